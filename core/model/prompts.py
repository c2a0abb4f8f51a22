"""A UNet that is conditional on a text, behind the face of one with classes.

The texts that it was shown in training are its classes: each has its embedding in a
table, made once by the text encoder, and the last row is that of the empty text, which
stands for "no label". Draws, gradients, curvature and sampling need know no more.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from core.model.weight_files import load_whole, quietly

EMBEDDED_AT_ONCE = 32  # texts


class TextConditioned(nn.Module):
    """A UNet that looks up its text by a label.

    Args:
        unet: A UNet2DConditionModel.
        captions: The texts, in the order of their labels.
        table: Their embeddings, and last that of the empty text, shape (K + 1, L, D).
    """

    def __init__(self, unet: nn.Module, captions: Sequence[str], table: Tensor):
        super().__init__()
        self.unet, self.captions = unet, tuple(captions)
        self.register_buffer("table", table)

    @property
    def config(self):
        """The UNet's settings."""
        return self.unet.config

    def forward(self, x_t: Tensor, timesteps: Tensor, class_labels: Tensor):
        """Return what the UNet says of noisy examples under the texts of labels."""
        texts = self.table[class_labels]  # (B, L, D)
        return self.unet(x_t, timesteps, encoder_hidden_states=texts)


def read_tokenizer(folder: Path):
    """Return the tokenizer in a folder.

    Raises:
        ValueError: If it cannot be read, or is of another kind.
    """
    transformers = _transformers()
    try:
        with quietly():
            return transformers.CLIPTokenizer.from_pretrained(
                folder, local_files_only=True
            )
    except Exception:  # transformers raises many kinds, with advice for programmers
        raise ValueError(
            f"The '{folder.name}' folder could not be read as CLIP's, the only kind "
            "that is known. Save the model again with `save_pretrained`."
        ) from None


def read_text_encoder(folder: Path) -> nn.Module:
    """Return the text encoder in a folder, in float32, to evaluate.

    Errors of `load_whole` pass through.
    """
    kind = _transformers().CLIPTextModel
    return load_whole(kind, folder, dtype=torch.float32).eval().requires_grad_(False)


def _transformers():
    """Return the library.

    Raises:
        ValueError: If it is not installed.
    """
    try:
        import transformers
    except ImportError:
        raise ValueError(
            "Texts are embedded by transformers, which is not installed. Install it "
            "with `pip install transformers`."
        ) from None
    return transformers


@torch.no_grad()
def embed_texts(tokenizer, encoder, texts: Sequence[str]) -> Tensor:
    """Return texts as the UNet is shown them, shape (K, L, D).

    As in diffusers' pipeline and training scripts: filled up or cut to the encoder's
    length, the last hidden state, no mask.
    """
    rows = []
    for first in range(0, len(texts), EMBEDDED_AT_ONCE):
        tokens = tokenizer(
            list(texts[first : first + EMBEDDED_AT_ONCE]),
            padding="max_length",
            max_length=tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        )
        rows.append(encoder(tokens.input_ids)[0])
    return torch.cat(rows)


def cut_texts(tokenizer, texts: Sequence[str]) -> int:
    """Return how many texts are longer than what the encoder reads."""
    limit = tokenizer.model_max_length
    return sum(len(tokenizer(text).input_ids) > limit for text in texts)


def check_captions(unet: nn.Module, class_names: Sequence[tuple[str, ...]]) -> None:
    """Refuse images whose classes are not the texts that a model has embedded.

    Models that are not conditional on text are passed over.

    Raises:
        ValueError: If classes and captions differ.
    """
    if not isinstance(unet, TextConditioned):
        return
    captions = tuple(" ".join(names) for names in class_names)
    if captions != unet.captions:
        raise ValueError(
            f"The images have {len(captions)} different captions and the model was "
            f"imported with {len(unet.captions)}, or others. Import it again with the "
            "images that are wanted; --limit, --keep and --split choose them."
        )
