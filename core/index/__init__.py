"""Training gradients on disk, compressed, and their products with a query (App. F)."""
