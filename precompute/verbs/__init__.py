"""The verbs of `python -m precompute`, one file each."""
