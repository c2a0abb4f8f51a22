"""Embeddings of images and texts in one space, by a CLIP model (App. J.4).

Similarity is a baseline, not attribution: it says what looks or is named alike, and
never asks the diffusion model. The model is the project's own small one, whose file
describes itself. This file does not know how it is trained. open_clip takes as long to
load as torch and all else that an influence answer needs, so it is imported where a
model is made.
"""

import gzip
import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.collection.schema import file_sha256
from core.config import DATA_DIR
from core.files.tensor_files import read_tensors, tensors_file
from core.files.whole import Damaged

GLYPHS_CLIP_PATH = DATA_DIR / "models" / "glyphs-clip.safetensors"
GLYPHS_CLIP_NAME = "Glyphs CLIP (small, trained on the drawings' names)"

# Pieces of text that exist before any merge: 256 bytes, each also as the end of a word,
# and the start and the end of a text.
_UNMERGED_TOKENS = 514


class ClipModel:
    """A CLIP model that turns images and texts into comparable unit vectors.

    Attributes:
        name: What the model is, for people; every table that uses it shows this.
        model: The open_clip network, in evaluation mode.
        tokenizer: Texts to token ids, shape (N, context length).
        config: `model_cfg` and `preprocess_cfg`, as in open_clip's configuration files.
        facts: What else a file says about the model's making.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer,
        config: dict,
        name: str,
        facts: dict | None = None,
    ):
        """Hold a network together with how its inputs are prepared."""
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.config = config
        self.name = name
        self.facts = facts or {}

    @property
    def device(self) -> torch.device:
        """Return where the network is."""
        return next(self.model.parameters()).device

    @torch.no_grad()
    def embed_images(self, pixels: np.ndarray, batch_size: int = 256) -> np.ndarray:
        """Return the unit embedding of every image.

        Args:
            pixels: Images of any size, uint8, shape (N, C, H, W), with C of 1 or 3.
            batch_size: Images at a time; changes speed and memory, not the result.

        Returns:
            Embeddings, shape (N, D), float32.

        Raises:
            ValueError: If the pixels are not a non-empty batch of uint8 images.
        """
        shape = tuple(pixels.shape)
        if (
            pixels.dtype != np.uint8
            or len(shape) != 4
            or not shape[0]
            or shape[1] not in (1, 3)
        ):
            raise ValueError(
                f"Images of type {pixels.dtype} and shape {shape} cannot be "
                "embedded. Give uint8 pixels of shape (N, C, H, W) with at least one "
                "image and 1 or 3 channels."
            )
        parts = []
        for first in range(0, len(pixels), batch_size):
            batch = torch.from_numpy(pixels[first : first + batch_size].copy())
            parts.append(self.encode_images(batch.to(self.device).float() / 255))
        return torch.cat(parts).cpu().numpy()

    @torch.no_grad()
    def embed_texts(self, texts: list[str], batch_size: int = 256) -> np.ndarray:
        """Return the unit embedding of every text.

        Text beyond the model's context length is not read.

        Args:
            texts: N texts.
            batch_size: Texts at a time; changes speed and memory, not the result.

        Returns:
            Embeddings, shape (N, D), float32.

        Raises:
            ValueError: If there is no text.
        """
        if not texts:
            raise ValueError("There is no text to embed. Give at least one.")
        parts = []
        for first in range(0, len(texts), batch_size):
            parts.append(self.encode_texts(list(texts[first : first + batch_size])))
        return torch.cat(parts).cpu().numpy()

    def encode_images(self, images: Tensor) -> Tensor:
        """Return unit embeddings (N, D) of images (N, C, H, W) in [0, 1]."""
        size = self.model.visual.image_size
        size = (size, size) if isinstance(size, int) else tuple(size)
        if images.shape[-2:] != size:
            images = F.interpolate(images, size, mode="bicubic", antialias=True).clamp(
                0, 1
            )
        images = images.expand(-1, 3, -1, -1)  # grey becomes RGB
        preparation = self.config["preprocess_cfg"]
        mean = images.new_tensor(preparation["mean"])[:, None, None]
        std = images.new_tensor(preparation["std"])[:, None, None]
        return self.model.encode_image((images - mean) / std, normalize=True).float()

    def encode_texts(self, texts: list[str]) -> Tensor:
        """Return unit embeddings, shape (N, D)."""
        tokens = self.tokenizer(texts).to(self.device)
        return self.model.encode_text(tokens, normalize=True).float()


def clip_similarity(query: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """Return the cosine similarity of every query with every example.

    Args:
        query: Embeddings of queries, shape (Q, D).
        embeddings: Embeddings of examples, shape (N, D).

    Returns:
        Cosines in [-1, 1], shape (Q, N), float32.

    Raises:
        ValueError: If the dimensions differ, or a vector has no direction.
    """
    if query.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"Embeddings of {query.shape[1]} and {embeddings.shape[1]} dimensions "
            "cannot be compared. Embed both with the same CLIP model."
        )
    cosine = _unit_rows(query, "query") @ _unit_rows(embeddings, "example").T
    return cosine.clip(-1, 1).astype(np.float32)  # rounding may exceed 1 by 1e-16


def _unit_rows(vectors: np.ndarray, what: str) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    bad = np.flatnonzero(~((lengths > 0) & np.isfinite(lengths)))
    if len(bad):
        raise ValueError(
            f"The embedding of {what} {bad[0]} is zero or not finite, so its "
            "similarity is undefined. Embed the image again."
        )
    return vectors / lengths


def small_tokenizer(text_config: dict):
    """Return CLIP's tokenizer cut to the first merges, as many as `vocab_size` allows.

    The merges are ordered by how common they are, so rare words fall into more pieces,
    but every text still has tokens and the table of embeddings is ten times smaller.
    """
    from open_clip.tokenizer import SimpleTokenizer, default_bpe

    num_merges = text_config["vocab_size"] - _UNMERGED_TOKENS
    lines = gzip.decompress(Path(default_bpe()).read_bytes()).decode().split("\n")
    merges = "\n".join(lines[: 1 + num_merges])  # the first line is a version
    file = io.BytesIO(gzip.compress(merges.encode()))
    return SimpleTokenizer(file, context_length=text_config["context_length"])


def new_clip(
    config: dict, name: str, generator: torch.Generator, facts: dict | None = None
) -> ClipModel:
    """Return an untrained small model; its weights depend on the generator alone."""
    from open_clip.model import CLIP

    with torch.random.fork_rng(devices=[]):
        # open_clip initialises from the global state; seed it for this line alone.
        torch.manual_seed(generator.initial_seed())
        model = CLIP(**config["model_cfg"])
    return ClipModel(
        model, small_tokenizer(config["model_cfg"]["text_cfg"]), config, name, facts
    )


def clip_to_bytes(clip_model: ClipModel, dtype: torch.dtype = torch.float16) -> bytes:
    """Return a small model's weights, configuration and name as a safetensors file."""
    weights = {
        key: value.to(dtype if value.is_floating_point() else value.dtype)
        for key, value in clip_model.model.state_dict().items()
    }
    description = {
        "name": clip_model.name,
        "facts": clip_model.facts,
        **clip_model.config,
    }
    return tensors_file(weights, {"open_clip_config": description})


def load_clip(path: Path | str = GLYPHS_CLIP_PATH, device: str = "cpu") -> ClipModel:
    """Return the small model that `clip_to_bytes` wrote, in float32.

    Raises:
        LookupError: If there is no file at the path.
        ValueError: If the file is not such a model.
    """
    path = Path(path)
    if not path.is_file():
        raise LookupError(
            f"There is no CLIP model at '{path}'. Train it with "
            f"`python -m precompute clip --out {path}`."
        )
    try:
        weights, header = read_tensors(path, sealed=False)
        description = header["open_clip_config"]
        name, facts = description.pop("name"), description.pop("facts")
        clip_model = new_clip(description, name, torch.Generator(), facts)
        clip_model.model.load_state_dict(weights)
    except (Damaged, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"'{path.name}' is not a CLIP model of this project, or it is damaged. "
            f"Train it again with `python -m precompute clip --out {path}`."
        ) from error
    clip_model.model.to(device)
    return clip_model


def stored_clip(facts: dict, device: str) -> ClipModel:
    """Return the model that made the embeddings of a collection.

    Args:
        facts: What the collection says of it: its `sha256`.
        device: Where to compute.

    Raises:
        ValueError: If the model file is another one.
    """
    digest = file_sha256(GLYPHS_CLIP_PATH)
    if digest != facts["sha256"]:
        raise ValueError(
            f"The images were embedded by CLIP model {facts['sha256'][:12]}, but "
            f"'{GLYPHS_CLIP_PATH.name}' is {digest[:12]}. Build the collection again."
        )
    return load_clip(device=device)
