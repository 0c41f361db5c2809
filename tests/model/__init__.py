"""An executable proof of the protocol: an exhaustive model, and the database's functions held against it."""
