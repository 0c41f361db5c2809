"""Runs and threads: the state machine, the use cases and the execution of one run."""
