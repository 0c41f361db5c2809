"""The HTTP doors over a real server and real clients, on a Runner that does what a test says."""
