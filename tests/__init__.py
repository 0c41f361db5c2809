"""The tests, in one folder per part of the package; tests/support holds what they share."""
