"""Who asks: bearer tokens become principals. What a principal may do is decided where it is done."""
