"""A user's own images and models: what lies at a path, and a collection of it."""
