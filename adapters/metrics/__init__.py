"""Metrics of one process for Prometheus. The core counts in plain numbers and knows nothing of it."""
