"""Processes that carry out calls of tools for workers, each call in a child process that can be killed."""
