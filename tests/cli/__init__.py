"""The command line, its client and the examples."""
