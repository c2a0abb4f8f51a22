"""Measured comparisons, one command each: `python -m tests.benchmarks NAME`."""
