"""What is differentiated: loss, ELBO, trajectory, at keyed draws (Eqs. 1 to 3)."""
