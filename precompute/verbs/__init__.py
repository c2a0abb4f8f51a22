"""One file for each verb of `python -m precompute`: its options, and what it runs."""
