"""A collection in Python: its images, new ones, and questions about any."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from core.answers import Query
from core.api.asked import Asked
from core.drawing import GUIDANCE, Drawing
from core.explorer.explorer import Explorer, open_explorer
from core.files.images import png
from core.labels import label_of
from core.lenses import Lens


def open_collection(name: str, folder: str | Path | None = None) -> "Opened":
    """Return a collection's current version.

    A missing or damaged one raises the LookupError or ValueError of the store.

    Args:
        name: Of the collection.
        folder: Where collections lie; None for the program's own.
    """
    return Opened(open_explorer(name, None if folder is None else Path(folder)))


class Opened:
    """A collection that can be asked.

    Attributes:
        explorer: All that a page asks; what is not here is there.
        training_images: Their metadata, indexed by example id.
        gallery: What made the generated images, indexed by sample id.
    """

    def __init__(self, explorer: Explorer):
        self.explorer = explorer
        self.training_images: pd.DataFrame = explorer.examples.table
        self.gallery: pd.DataFrame = explorer.gallery

    def __repr__(self) -> str:
        count = f"{self.explorer.num_examples:,} training images"
        return f"<{self.explorer.title}: {count}, {len(self.gallery)} generated>"

    def generate(
        self,
        seed: int = 0,
        label: int | str | None = None,
        sampler: str = Drawing.sampler,
        steps: int = Drawing.num_steps,
        guidance: float = GUIDANCE,
    ) -> Query:
        """Return a new image by the model; equal settings give the equal image.

        Args:
            seed: Of its noise.
            label: Class, by number or name; None for none.
            sampler: "ddim" or "ddpm".
            steps: Sampling steps.
            guidance: Of classifier-free guidance; 1 is none.
        """
        label = self._label(label)
        return self.explorer.generate(Drawing(label, seed, sampler, steps, guidance))

    def sample(self, sample_id: int) -> Query:
        """Return a generated image of the gallery; its answers are stored."""
        return self.explorer.query_from_gallery(sample_id)

    def training_image(self, example_id: int) -> Query:
        """Return a training image."""
        return self.explorer.query_from_example(example_id)

    def image(self, source: Any, label: int | str | None = None) -> Query:
        """Return any other image; what is none is a ValueError of one sentence.

        Args:
            source: A path, the bytes of a file, an image of Pillow, or pixels of shape
                (H, W), (H, W, 1) or (H, W, 3) in uint8.
            label: The class that it is taken for, by number or name; None for none.
        """
        return self.explorer.query_from_upload(_file_of(source), self._label(label))

    def ask(
        self,
        image: Any,
        method: str = Lens.method,
        measurement: str = Lens.measurement,
        timesteps: tuple[int, int] | None = None,
        region: tuple[int, int, int, int] | None = None,
        **rest: Any,
    ) -> Asked:
        """Return what each training image did for an image.

        Errors of the lens and of the image are one sentence each (ValueError).

        Args:
            image: From a method above, or what `image` takes.
            method: A key of `core.methods.METHODS`.
            measurement: A key of `core.measurements.MEASUREMENTS`.
            timesteps: Noise levels [a, b) whose contribution counts; None for all.
            region: Box x0, y0, x1, y1 in pixels whose part counts; None for all.
            **rest: `num_draws`, `damping` and `form`, as in `core.lenses.Lens`.
        """
        query = image if isinstance(image, Query) else self.image(image)
        lens = Lens(method, measurement, timesteps, region, **rest)
        return Asked(self.explorer, query, self.explorer.answer(query, lens))

    def _label(self, label: int | str | None) -> int | None:
        """Return a class by its number."""
        if isinstance(label, str):
            return label_of(label, self.explorer.class_names())
        return label


def _file_of(source: Any) -> bytes:
    """Return the bytes of an image file.

    Raises:
        ValueError: If there is no image in what was given.
    """
    if isinstance(source, bytes):
        return source
    if isinstance(source, str | Path):
        try:
            return Path(source).expanduser().read_bytes()
        except OSError as error:
            raise ValueError(
                f"'{source}' cannot be read ({error.strerror}). Give the path of an "
                "image."
            ) from error
    if isinstance(source, Image.Image):
        file = io.BytesIO()
        source.save(file, "PNG")
        return file.getvalue()
    pixels = np.asarray(source)
    if pixels.dtype == np.uint8 and pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise ValueError(
            f"{type(source).__name__} is not an image. Give a path, bytes, an image of "
            "Pillow, or pixels in uint8 of shape (H, W), (H, W, 1) or (H, W, 3)."
        )
    return png(pixels.transpose(2, 0, 1))
