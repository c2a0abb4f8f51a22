"""Similarity of images, which asks for no gradient: what `core.methods` names.

A score says how alike two images are, not what caused the query.
"""

import numpy as np
import torch

from core.answers import Query
from core.engine.clip import clip_similarity
from core.measure.draws import keyed_generator
from core.scores.baselines import latent_similarity, pixel_similarity
from core.scores.patches import patch_scores


def by_clip(engine, query: Query) -> np.ndarray:
    """Return the cosine of CLIP embeddings, shape (N,)."""
    embedded = engine.clip.embed_images(query.pixels[None])
    return clip_similarity(embedded, engine.embeddings)[0]


def by_pixels(engine, query: Query) -> np.ndarray:
    """Return how near images are, pixel by pixel, shape (N,)."""
    return pixel_similarity(query.pixels[None], engine.training_pixels)[0]


def by_latents(engine, query: Query) -> np.ndarray:
    """Return the cosine of clean examples as the model sees them, shape (N,)."""
    return latent_similarity(engine.x_0(query)[None], engine.training_x_0)[0]


def by_patches(engine, query: Query) -> np.ndarray:
    """Return what each image's patches weigh in the query, shape (N,)."""
    clean = (torch.from_numpy(x) for x in (engine.x_0(query), engine.training_x_0))
    levels = engine.denoiser.alphas_cumprod.cpu()
    generator = keyed_generator(engine.seed, "patches")
    return patch_scores(*clean, levels, generator).numpy()
