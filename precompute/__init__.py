"""The verbs that make a collection: `python -m precompute STAGE --collection NAME`."""
