"""One image asked: the loaded model, its query gradient, and CLIP."""
