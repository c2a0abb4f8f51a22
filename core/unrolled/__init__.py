"""Influence by differentiating the training itself: a step, and the way back."""
