"""Attribution of diffusion models: everything Afterimage computes.

This package knows neither Streamlit nor the pages. Equation numbers refer to "Influence
Functions for Scalable Data Attribution in Diffusion Models" (ICLR 2025).

Four traps in the paper's notation, and how this code reads them:

1. Factor two. Eq. 10's Fisher form equals *twice* the GGN of Eq. 9. Eq. 9, with the
   middle matrix 2I of a squared error that is summed over pixels, is the definition
   used here.
2. lambda is the noise schedule (Sec. 2.1) and the damping (App. J.5); K is Monte Carlo
   draws and LDS seeds; epsilon is noise and down-weighting. The code uses words:
   `alphas_cumprod`, `damping`, `num_draws`, `noise`.
3. Sec. 2.1 writes the step variance as (1 - lambda_t)^2, but its own marginals need
   1 - lambda_t^2. The schedule is therefore always read from diffusers'
   `alphas_cumprod`.
4. Sign. Eq. 6 is the change on *removal*: a helpful example has a positive score for a
   cost. Timesteps are 0-based here: the code's t is the paper's t - 1.
"""
