"""All that a page or the headless command may ask of a collection.

`Explorer` answers in dataclasses of numpy and pandas values; it hides torch and DuckDB
from its callers. Every answer to "what made this picture" goes through
`Explorer.answer`.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from core import store
from core.config import DATA_DIR
from core.images import decode_picture


class Cancelled(Exception):
    """Raised inside a long computation after its caller asked it to stop."""


# Called with (steps done, steps in all, what is being done); may raise Cancelled.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Query:
    """One picture to explain.

    Attributes:
        kind: "gallery", "generated", "example" (a training picture) or "upload".
        key: Short text that identifies the picture: equal keys, equal pictures.
        pixels: The picture as the model saw or made it, uint8, shape (C, H, W).
        x_0: The clean example (latents for a latent model), float32, shape
            (C', H', W'); None where it is the encoding of `pixels`.
        label: Class index the measurement is conditioned on; None means no label.
        description: What it is, in words, e.g. "Generated, seed 1184, DDIM, 50 steps".
        facts: Settings worth showing: seed, sampler, steps, class, example id.
    """

    kind: str
    key: str
    pixels: np.ndarray = field(repr=False)
    x_0: np.ndarray | None = field(repr=False)
    label: int | None
    description: str
    facts: dict


@dataclass(frozen=True)
class Lens:
    """How a question is asked: what one column of the explorer shows.

    Attributes:
        method: "ekfac" (predicted change on removal) or "clip" (similarity only).
        measurement: What the change is of: "loss". Ignored by similarity methods.
        num_draws: Monte Carlo draws of the query gradient.
        damping: Added to the GGN; None means the collection's own.
        form: The gradients to score with: "full" index, "sketch", or "auto": the stored
            exact answer where there is one, else the sketch, which takes a second
            where the full index takes many.
    """

    method: str = "ekfac"
    measurement: str = "loss"
    num_draws: int = 64
    damping: float | None = None
    form: str = "auto"


@dataclass(frozen=True)
class Answer:
    """The scores of all training examples for one query under one lens.

    Attributes:
        lens: The lens that was asked.
        example_ids: Shape (N,), int64, in the collection's order.
        scores: Shape (N,), float64. For influence: the predicted change of the
            measurement if the example is removed, times N. For similarity: a cosine in
            [-1, 1].
        standard_errors: Shape (N,), float64; NaN where the method has none.
        source: Where the numbers come from, in words: "exact", "full index", "sketch".
        value: The measured value for the query (e.g. its loss), NaN for similarity.
    """

    lens: Lens
    example_ids: np.ndarray
    scores: np.ndarray
    standard_errors: np.ndarray
    source: str
    value: float

    def order(self) -> np.ndarray:
        """Return positions from most to least influential, ties by example id."""
        return np.lexsort((self.example_ids, -self.scores))

    def top(self, count: int) -> np.ndarray:
        """Return the positions of the largest scores, largest first."""
        return self.order()[:count]

    def opposing(self, count: int) -> np.ndarray:
        """Return the positions of the smallest scores, smallest first."""
        return self.order()[::-1][:count]

    def neutral(self, count: int) -> np.ndarray:
        """Return the positions that matter least, most neutral first.

        For influence these have scores nearest zero; for similarity, nearest the
        median.
        """
        centre = 0.0 if self.lens.method != "clip" else float(np.median(self.scores))
        distance = np.abs(self.scores - centre)
        return np.lexsort((self.example_ids, distance))[:count]

    def ranks(self) -> np.ndarray:
        """Return the rank of every example, 1 for the most influential, shape (N,)."""
        ranks = np.empty(len(self.scores), dtype=np.int64)
        ranks[self.order()] = np.arange(1, len(self.scores) + 1)
        return ranks


@dataclass(frozen=True)
class Examples:
    """The training pictures of a collection.

    Attributes:
        table: Metadata, one row per example, indexed by example id.
        caption_columns: The columns to show under a tile, most telling first.
    """

    table: pd.DataFrame
    caption_columns: tuple[str, ...]


METHODS = ("ekfac", "clip")


def list_collections(root: Path | None = None) -> list[str]:
    """Return the names of the published collections."""
    return store.list_collections(root or DATA_DIR / "collections")


def open_explorer(name: str, root: Path | None = None) -> "Explorer":
    """Return the explorer of a collection's current version.

    A missing or damaged collection raises the store's LookupError or ValueError, whose
    message says what to do.
    """
    return Explorer(store.find_collection(root or DATA_DIR / "collections", name))


class Explorer:
    """A published collection, ready for questions; safe to use from several threads.

    Args:
        path: The collection file.

    Attributes:
        name: The collection's name, as in commands.
        title: The collection's name, as on pages.
        fingerprint: Identifies the content.
        num_examples: N, the number of training pictures.
        examples: The training pictures' metadata.
        classes: One row per class label, one column per label column.
        gallery: One row per gallery sample, lowest loss first: label, class, seed,
            sampler, steps, guidance.
        provenance: How the collection was made: settings, versions, costs, reliability.
    """

    def __init__(self, path: Path):
        self._collection = store.Collection(path)
        self.name, self.fingerprint = (
            self._collection.name,
            self._collection.fingerprint,
        )
        self._credits = self._collection.meta("credits")
        self.title = self._collection.meta("title")
        table = self._collection.examples()
        self.examples = Examples(table, tuple(self._collection.meta("captions")))
        self.num_examples = len(table)
        self._labels = pd.Series(self._collection.labels(), table.index)
        settings = self._collection.meta("settings")
        self._data = settings["data"]
        self.classes = pd.DataFrame(
            self._collection.classes(), columns=list(self._data["label_columns"])
        ).rename_axis("label")
        self.gallery = self._gallery_table()
        self.provenance = {
            key: self._collection.meta(key)
            for key in ("settings", "versions", "costs", "quality", "damping", "clip")
        }
        self._opening = threading.Lock()
        self._engine = None

    def _gallery_table(self) -> pd.DataFrame:
        samples = self._collection.samples()
        table = pd.DataFrame(
            [
                (s.sample_id, s.label, s.seed, s.sampler, s.num_steps, s.guidance_scale)
                for s in samples
            ],
            columns=[
                "sample_id",
                "label",
                "seed",
                "sampler",
                "num_steps",
                "guidance_scale",
            ],
        ).set_index("sample_id")
        # The pictures that the model finds most natural come first.
        losses = self._collection.values(stored_key("ekfac", "loss"))
        table = table.loc[sorted(table.index, key=lambda i: (losses.get(i, 0.0), i))]
        if table["label"].isna().any():  # a model without classes
            return table
        return table.join(self.classes, on="label")

    @property
    def engine(self):
        """The model behind this collection, loaded when first asked for."""
        # Imported here because torch and diffusers take seconds to load, and the
        # gallery's stored answers need neither.
        from core.engine import Engine

        with self._opening:
            if self._engine is None:
                self._engine = Engine(self._collection)
            return self._engine

    @property
    def device_name(self) -> str:
        """The card that answers, or "CPU"."""
        if not Path("/dev/nvidia0").exists():  # asking torch would load it
            return "CPU"
        import torch

        if not torch.cuda.is_available():
            return "CPU"
        return torch.cuda.get_device_name()

    def warm_up(self) -> None:
        """Load the model, so that the first new question need not wait for it."""
        self.engine.warm_up()

    def image_png(self, example_id: int) -> bytes:
        """Return the file bytes of a training picture."""
        return self._collection.image(example_id)

    def gallery_png(self, sample_id: int) -> bytes:
        """Return the file bytes of a gallery sample."""
        return self._collection.sample_image(sample_id)

    @property
    def credits(self) -> list[str]:
        """All credit lines of the art."""
        return list(self._credits["lines"].values())

    def credit(self, example_id: int) -> str:
        """Return the credit line of one training picture."""
        if self._credits["column"] is None:
            return "No credit is recorded for this data set."
        value = self.examples.table.at[example_id, self._credits["column"]]
        return self._credits["lines"][value]

    def _words(self, label: int | None) -> str:
        if label is None:
            return "no class"
        return ", ".join(map(str, self.classes.loc[label]))

    def _pixels(self, data: bytes) -> np.ndarray:
        size = self._data["image_size"]
        return decode_picture(data, (self._data["channels"], size, size))

    def query_from_gallery(self, sample_id: int) -> Query:
        """Return a gallery sample as a query."""
        pixels = self._pixels(self.gallery_png(sample_id))  # refuses unknown ids
        row = next(s for s in self._collection.samples() if s.sample_id == sample_id)
        facts = {
            "seed": row.seed,
            "sampler": row.sampler,
            "num_steps": row.num_steps,
            "guidance_scale": row.guidance_scale,
        }
        return Query(
            "gallery",
            f"sample-{sample_id}",
            pixels,
            self._collection.sample_x_0(sample_id),
            row.label,
            f"Generated · {self._words(row.label)} · seed {row.seed} · "
            f"{row.sampler.upper()}, {row.num_steps} steps",
            facts | {"sample_id": sample_id} | self._class_facts(row.label),
        )

    def query_from_example(self, example_id: int) -> Query:
        """Return a training picture as a query.

        Raises:
            LookupError: If there is no such example; the message gives the range of
                ids.
        """
        if example_id not in self.examples.table.index:
            ids = self.examples.table.index
            raise LookupError(
                f"There is no training picture {example_id} in '{self.name}'. Ids run "
                f"from {ids.min()} to {ids.max()}, with gaps."
            )
        label = int(self._labels[example_id])
        caption = self.examples.table.loc[
            example_id, list(self.examples.caption_columns)
        ]
        return Query(
            "example",
            f"example-{example_id}",
            self._pixels(self.image_png(example_id)),
            None,
            label,
            f"Training picture {example_id} · {', '.join(map(str, caption))}",
            {"example_id": example_id} | self._class_facts(label),
        )

    def query_from_upload(self, data: bytes, label: int | None = None) -> Query:
        """Return an uploaded picture as a query.

        Bytes that are no picture raise the ValueError of `core.images`, one sentence.
        """
        digest = hashlib.sha256(data).hexdigest()[:16]
        return Query(
            "upload",
            f"upload-{digest}-{label}",
            self._pixels(data),
            None,
            label,
            f"Your picture · measured as {self._words(label)}",
            {"sha256": digest} | self._class_facts(label),
        )

    def _class_facts(self, label: int | None) -> dict:
        return {} if label is None else self.classes.loc[label].to_dict()

    def generate(
        self,
        label: int | None,
        seed: int,
        sampler: str,
        num_steps: int,
        guidance_scale: float,
        progress: Progress | None = None,
    ) -> Query:
        """Return a new sample of the model as a query.

        Args:
            label: Class index, or None for any class.
            seed: Of the noise; equal settings give the equal picture.
            sampler: "ddim" or "ddpm".
            num_steps: Denoising steps, 1 to T.
            guidance_scale: 1 follows the model; more exaggerates the class.
            progress: Called after every step; may raise to stop.
        """
        x_0, pixels = self.engine.generate(
            label, seed, sampler, num_steps, guidance_scale, _steps(progress, "Drawing")
        )
        return Query(
            "generated",
            f"generated-{label}-{seed}-{sampler}-{num_steps}-{guidance_scale}",
            pixels,
            x_0,
            label,
            f"Generated · {self._words(label)} · seed {seed} · {sampler.upper()}, "
            f"{num_steps} steps",
            {
                "seed": seed,
                "sampler": sampler,
                "num_steps": num_steps,
                "guidance_scale": guidance_scale,
            }
            | self._class_facts(label),
        )

    def answer(
        self, query: Query, lens: Lens, progress: Progress | None = None
    ) -> Answer:
        """Return the scores of all training pictures for a query under a lens.

        Gallery samples have stored answers, computed exactly; others are computed now.

        Args:
            query: From one of the `query_from` methods or `generate`.
            lens: How to ask.
            progress: Called after every part; may raise to stop.

        Raises:
            ValueError: If the method is unknown; the message lists those there are.
        """
        if lens.method not in METHODS:
            raise ValueError(
                f"There is no method '{lens.method}'. Choose one of "
                f"{', '.join(METHODS)}."
            )
        stored = self._stored(query, lens)
        if stored is not None:
            return stored
        ids = self.examples.table.index.to_numpy()
        if lens.method == "clip":
            scores = self.engine.clip_scores(query.pixels)
            nothing = np.full(len(ids), np.nan)
            return Answer(lens, ids, scores, nothing, "exact", float("nan"))
        x_0 = self.engine.encode(query.pixels) if query.x_0 is None else query.x_0
        scores, errors, value, source = self.engine.influence(
            x_0,
            query.label,
            lens.measurement,
            lens.num_draws,
            lens.damping,
            lens.form,
            _steps(progress, "Measuring"),
        )
        return Answer(lens, ids, scores, errors, source, value)

    def _stored(self, query: Query, lens: Lens) -> Answer | None:
        """Return a gallery sample's precomputed answer, if the lens has one."""
        if query.kind != "gallery" or lens.damping is not None or lens.form != "auto":
            return None
        key = stored_key(lens.method, lens.measurement)
        found = self._collection.answer(query.facts["sample_id"], key)
        if found is None:
            return None
        draws = self.provenance["settings"]["samples"]["num_draws"]
        return Answer(
            replace(lens, num_draws=draws),
            self.examples.table.index.to_numpy(),
            found.scores,
            found.standard_errors,
            found.source,
            found.value,
        )

    def search(self, text: str, count: int) -> list[tuple[int, float]]:
        """Return the training pictures nearest to a text: (example id, similarity)."""
        similarity = self.engine.text_scores(text)
        best = np.argsort(-similarity, kind="stable")[:count]
        ids = self.examples.table.index
        return [(int(ids[i]), float(similarity[i])) for i in best]


def stored_key(method: str, measurement: str) -> dict[str, str]:
    """Return the name under which a collection stores the answers of a lens."""
    if method == "clip":
        return {"method": method}
    return {"method": method, "measurement": measurement}


def _steps(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    """Return a two-number callback that names what is being done."""
    if progress is None:
        return None
    return lambda done, total: progress(done, total, what)
