"""The diffusion model: denoiser, autoencoder, sampling, and models made elsewhere."""
