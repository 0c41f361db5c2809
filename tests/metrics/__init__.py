"""Tests of what a process tells an operator in numbers and spans."""
