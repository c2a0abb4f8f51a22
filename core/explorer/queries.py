"""The images that can be asked about: from the gallery, the training set, an upload."""

import hashlib
from dataclasses import replace

import numpy as np

from core.answers import BandAnswers, Forming, Query
from core.drawing import Drawing
from core.explorer.facts import Facts
from core.explorer.stored_levels import BANDS
from core.files.images import decode_image, frames_note
from core.labels import check_label
from core.lenses import Lens, lens_notes, uses_steps
from core.methods import METHODS


class Queries(Facts):
    """A collection whose images, and an upload, can be made queries."""

    def query_from_gallery(self, sample_id: int) -> Query:
        """Return a gallery sample as a query."""
        pixels = self._pixels(self.gallery_png(sample_id))  # refuses unknown ids
        samples = self._collection.samples()
        drawing = next(s.drawing for s in samples if s.sample_id == sample_id)
        return Query(
            "gallery",
            f"sample-{sample_id}",
            pixels,
            None,
            drawing.label,
            self._drawing_words(drawing),
            {"sample_id": sample_id},
            drawing,
        )

    def stored_bands(
        self, query: Query, lens: Lens, num_bands: int = 8
    ) -> BandAnswers | None:
        """Return a gallery sample's stored scores over bands, if the lens has some.

        They are of the training images that pages show first, not of all; the arguments
        are those of `band_answers`.
        """
        sample = self._stored_level(query, num_bands)
        if sample is None or lens.canonical() != Lens():
            return None
        return self.stored_levels.bands(sample, " ".join(lens_notes(lens)))

    def stored_forming(self, query: Query, num_bands: int = 8) -> Forming | None:
        """Return a gallery sample's stored `forming`, None where there is none."""
        sample = self._stored_level(query, num_bands)
        if sample is None:
            return None
        return self.stored_levels.forming(sample, query.pixels)

    def _stored_level(self, query: Query, num_bands: int) -> int | None:
        """Return the id of a gallery sample of which noise levels are stored."""
        if query.kind != "gallery" or num_bands != BANDS or not self.stored_levels:
            return None
        sample = query.facts["sample_id"]
        return sample if sample in self.stored_levels else None

    def query_from_example(self, example_id: int) -> Query:
        """Return a training image as a query.

        Raises:
            LookupError: If there is no such example; the message gives the range of
                ids.
        """
        if example_id not in self.examples.table.index:
            ids = self.examples.table.index
            raise LookupError(
                f"There is no training image {example_id} in '{self.name}'. Ids run "
                f"from {ids.min()} to {ids.max()}, with gaps."
            )
        label = int(self._labels[example_id])
        words = [f"Training image {example_id}"]
        if self.examples.caption_columns:
            words.append(", ".join(self.examples.caption(example_id)))
        return Query(
            "example",
            f"example-{example_id}",
            self._pixels(self.image_png(example_id)),
            None,
            label,
            " · ".join(words),
            {"example_id": example_id},
        )

    def query_from_upload(
        self, data: bytes, label: int | None = None, title: str = "Your image"
    ) -> Query:
        """Return an uploaded image as a query.

        Bytes that are not an image, or a class that the model does not have, raise the
        ValueError of `core.files.images` or `core.labels`, one sentence.

        Args:
            data: The file.
            label: The class that the model is told, None for no class.
            title: What to call the image.
        """
        check_label(label, self.class_names())
        digest, frames = hashlib.sha256(data).hexdigest()[:16], frames_note(data)
        words = [title, frames, f"measured as {self.class_words(label)}"]
        return Query(
            "upload",
            f"upload-{digest}-{label}",
            self._pixels(data),
            None,
            label,
            " · ".join(filter(None, words)),
            {"sha256": digest},
        )

    def inverted(self, query: Query) -> Query:
        """Return the same image with approximate steps from DDIM inversion."""
        if query.drawn or query.inverted:
            return query
        return replace(query, key=f"{query.key}-inverted", inverted=True)

    def trajectory_note(self, query: Query) -> str:
        """Return where the steps that drew a query come from, in one sentence."""
        if query.drawn:
            return (
                "The image is drawn again from its seed to get the steps in which it "
                "was drawn."
            )
        if query.inverted:
            return (
                "The model did not draw this image: its steps were found by DDIM "
                "inversion and are approximate."
            )
        return (
            "The model did not draw this image, so there are no steps in which it "
            "was drawn."
        )

    def _drawing_words(self, drawing: Drawing) -> str:
        return (
            f"Generated · {self.class_words(drawing.label)} · seed {drawing.seed} · "
            f"{drawing.sampler.upper()}, {drawing.num_steps} steps"
        )

    def _pixels(self, data: bytes) -> np.ndarray:
        return decode_image(data, self.image_shape)

    def check_steps(self, query: Query, lens: Lens) -> None:
        """Refuse a lens that asks about steps where none are known or probable.

        Raises:
            ValueError: If the lens needs the steps that drew the image, and they are
                not known or have no probability.
        """
        if not uses_steps(lens):
            return
        by_method = METHODS[lens.method].measurement is not None
        if not (query.drawn or query.inverted):
            instead = "method" if by_method else "measurement"
            raise ValueError(
                f"{self.trajectory_note(query)} Ask for approximate ones (--invert), "
                f"or choose another {instead}."
            )
        if not by_method and query.drawn and query.drawing.sampler == "ddim":
            raise ValueError(
                "DDIM draws without noise, so the steps that drew this image have no "
                "probability. Draw it with DDPM, or choose another measurement."
            )
