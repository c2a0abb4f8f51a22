"""From gradients to scores: influence (Eq. 6) and the methods beside it."""
