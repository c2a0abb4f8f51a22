"""A user's images: what lies at a path, and the copies that a collection is made of."""
