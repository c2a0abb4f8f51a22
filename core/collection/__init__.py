"""The DuckDB file of a collection: its schema, reading it, and publishing it whole."""
