"""The curvature of the training loss: K-FAC and EK-FAC (Eqs. 7 to 12)."""
