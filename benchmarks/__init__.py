"""Measurements: each number beside its floor, which is what the bare servers and drivers cost in the same run."""
