"""Races at the moments that decide: a run's end, its pause, its stop, an answer. Few in CI, many by a command."""
