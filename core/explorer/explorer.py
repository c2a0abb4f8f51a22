"""All that a page or the headless command may ask of a collection.

`Explorer` answers in dataclasses of numpy and pandas values; it hides torch and DuckDB
from its callers. Every answer to "what made this picture" goes through
`Explorer.answer`.
"""

import gc
import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from core.answers import (
    Answer,
    BandAnswers,
    Cancelled,
    Examples,
    Measured,
    Progress,
    Query,
    Uncertainty,
    steps,
)
from core.collection import store
from core.config import DATA_DIR, CollectionConfig, config_from_dict
from core.drawing import Drawing
from core.evidence.stored import Evidence, evidence_folder, evidence_of
from core.explorer import layout
from core.explorer.bands import band_edges, band_table, step_table
from core.explorer.resemblance import Resemblance, resemblance
from core.files.images import decode_picture, frames_note
from core.labels import check_label
from core.lenses import (
    QUERY_DRAWS,
    Lens,
    check_bands,
    check_lens,
    lens_notes,
    stored_key,
    uses_steps,
)
from core.measurements import MEASUREMENTS, check_attributable, check_measurement
from core.methods import METHODS, has_timesteps
from core.scores.errors import StoredErrors

__all__ = [
    "Answer",
    "BandAnswers",
    "Cancelled",
    "Explorer",
    "Lens",
    "Measured",
    "Progress",
    "Query",
    "list_collections",
    "open_explorer",
]


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
        classes: One row per class label, one column per label column, called as in the
            metadata.
        gallery: One row per gallery sample, lowest loss first: label (missing where
            there was none), seed, sampler, num_steps, guidance_scale.
        num_train_timesteps: T, the number of noise levels. provenance: How the
        collection was made: settings, versions, costs, reliability. evaluations: What
        was measured of it, by name: "fidelity" of index formats. coverage: How its
        standard errors stood a test by other draws (`core.scores.errors`);
            empty where they were not tested.
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
        self.num_train_timesteps = settings["model"]["num_train_timesteps"]
        self.classes = pd.DataFrame(
            self._collection.classes(), columns=list(self._data["label_columns"])
        ).rename_axis("label")
        self.gallery = self._gallery_table()
        self.provenance = {
            key: self._collection.meta(key)
            for key in ("settings", "versions", "costs", "quality", "damping", "clip")
        }
        self.evaluations = self._collection.evaluations()
        self._errors = StoredErrors(self._collection)
        self.coverage = self._errors.coverage
        # What was found when everything was asked again stands beside the rest.
        self.provenance["quality"] = {
            **(self.provenance["quality"] or {}),
            **{f"{form}_again": r for form, r in self._errors.agreement.items()},
        }
        self._opening, self._waking = threading.Lock(), threading.Lock()
        self._engine = None
        self._map = None
        self._loader = None

    def _gallery_table(self) -> pd.DataFrame:
        samples = self._collection.samples()
        table = pd.DataFrame(
            [(sample.sample_id, *astuple(sample.drawing)) for sample in samples],
            columns=["sample_id", *(field.name for field in fields(Drawing))],
        ).set_index("sample_id")
        # The pictures that the model finds most natural come first.
        losses = self._collection.values(stored_key(Lens()))
        return table.loc[sorted(table.index, key=lambda i: (losses.get(i, 0.0), i))]

    def close(self) -> None:
        """Close the collection's file."""
        self._collection.close()

    @property
    def engine(self):
        """The model behind this collection, loaded when first asked for."""
        # Imported here because torch and diffusers take seconds to load, and the
        # gallery's stored answers need neither.
        from core.engine.engine import Engine

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

    def wake(self) -> None:
        """Begin to load the model, in a thread of its own; more calls do nothing."""
        with self._waking:
            if self._loader is None:
                self._loader = threading.Thread(target=self._warm_up, daemon=True)
                self._loader.start()

    @property
    def awake(self) -> bool:
        """Whether the model is loaded, so that asking it holds nobody up."""
        return self._loader is not None and not self._loader.is_alive()

    def _warm_up(self) -> None:
        """Load what a new question needs, as far as the files that came along allow."""
        with suppress(LookupError, ValueError):  # said where a question needs the file
            self.engine.warm_up()
        # Loading CLIP takes as long again, and few questions wait for it.
        threading.Thread(target=self._warm_up_clip, daemon=True).start()

    def _warm_up_clip(self) -> None:
        with suppress(LookupError, ValueError):
            _ = self.engine.clip

    def _wait_for_model(self, progress: Progress | None) -> None:
        """Let the model be loaded; whoever waits for it can stop meanwhile."""
        if progress is None:
            return
        self.wake()
        while self._loader.is_alive():
            progress(0, 1, "Loading the model")
            # A server collects garbage after every page run, and the pages of those who
            # wait run often: walking through a half loaded torch took most of the time.
            gc.freeze()
            self._loader.join(0.2)

    def image_png(self, example_id: int) -> bytes:
        """Return the file bytes of a training picture."""
        return self._collection.image(example_id)

    def images_png(self, example_ids: list[int]) -> list[bytes]:
        """Return the file bytes of training pictures, read together."""
        return self._collection.images(example_ids)

    def gallery_png(self, sample_id: int) -> bytes:
        """Return the file bytes of a gallery sample."""
        return self._collection.sample_image(sample_id)

    @property
    def credits(self) -> list[str]:
        """All credit lines of the art."""
        return list(self._credits["lines"].values())

    def credit(self, example_id: int) -> str:
        """Return the credit line of one training picture."""
        column, lines = self._credits["column"], self._credits["lines"]
        if column is None and lines:  # one for all
            return next(iter(lines.values()))
        if column not in self.examples.table:
            return "No credit is recorded for this data set."
        value = self.examples.table.at[example_id, column]
        return lines.get(value, f"No credit is recorded for {value}.")

    @property
    def config(self) -> CollectionConfig:
        """The settings that made the collection.

        Those of another version of the program raise the ValueError of `core.config`.
        """
        return config_from_dict(self.provenance["settings"])

    def evidence_version(self) -> int:
        """Return a number that changes with the evidence, 0 where there is none."""
        recipe = evidence_folder(self._collection.path.parent, self.config)
        recipe /= "recipe.json"  # written last
        return recipe.stat().st_mtime_ns if recipe.exists() else 0

    def evidence(self) -> Evidence:
        """Return what retraining says of this collection's scores.

        Where nothing was retrained, or other scores were tested, `core.evidence.stored`
        raises a LookupError or ValueError whose message says what to do.
        """
        return evidence_of(self._collection.path.parent, self.config)

    def class_of(self, label: int | None) -> dict[str, str]:
        """Return a class by label column; nothing for no class."""
        return {} if label is None else self.classes.loc[label].to_dict()

    def class_words(self, label: int | None) -> str:
        """Return a class in words."""
        words = [str(value) or "(empty)" for value in self.class_of(label).values()]
        return ", ".join(words) or "no class"

    def _pixels(self, data: bytes) -> np.ndarray:
        size = self._data["image_size"]
        return decode_picture(data, (self._data["channels"], size, size))

    def class_names(self) -> list[str]:
        """Return all classes by number, in words; none for a model without classes."""
        has_classes = len(self.classes.columns) > 0
        return [self.class_words(i) for i in self.classes.index] if has_classes else []

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

    def _drawing_words(self, drawing: Drawing) -> str:
        return (
            f"Generated · {self.class_words(drawing.label)} · seed {drawing.seed} · "
            f"{drawing.sampler.upper()}, {drawing.num_steps} steps"
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
        said = [f"Training picture {example_id}"]
        if self.examples.caption_columns:
            said.append(", ".join(self.examples.caption(example_id)))
        return Query(
            "example",
            f"example-{example_id}",
            self._pixels(self.image_png(example_id)),
            None,
            label,
            " · ".join(said),
            {"example_id": example_id},
        )

    def query_from_upload(self, data: bytes, label: int | None = None) -> Query:
        """Return an uploaded picture as a query.

        Bytes that are no picture, or a class that the model does not have, raise the
        ValueError of `core.files.images` or `core.labels`, one sentence.
        """
        check_label(label, self.class_names())
        digest, frames = hashlib.sha256(data).hexdigest()[:16], frames_note(data)
        said = ["Your picture", frames, f"measured as {self.class_words(label)}"]
        return Query(
            "upload",
            f"upload-{digest}-{label}",
            self._pixels(data),
            None,
            label,
            " · ".join(filter(None, said)),
            {"sha256": digest},
        )

    def generate(self, drawing: Drawing, progress: Progress | None = None) -> Query:
        """Return a new sample of the model as a query.

        A class that the model does not have raises the ValueError of `core.labels`.

        Args:
            drawing: How to draw it; equal settings give the equal image.
            progress: Called after every step; may raise to stop.
        """
        check_label(drawing.label, self.class_names())
        self._wait_for_model(progress)
        x_0, pixels = self.engine.generate(drawing, steps(progress, "Drawing"))
        return Query(
            "generated",
            "-".join(["generated", *map(str, astuple(drawing))]),
            pixels,
            x_0,
            drawing.label,
            self._drawing_words(drawing),
            {},
            drawing,
        )

    def answer(
        self,
        query: Query,
        lens: Lens,
        progress: Progress | None = None,
        early: Callable[[Answer], None] | None = None,
    ) -> Answer:
        """Return the scores of all training pictures for a query under a lens.

        Gallery samples have stored answers, computed exactly; others are computed now.
        A lens that makes no sense raises the ValueError of `core.lenses`.

        Args:
            query: From one of the `query_from` methods or `generate`.
            lens: How to ask.
            progress: Called after every part; may raise to stop.
            early: Called with the answer by half of the draws, while the others are
                measured; the answer returned is the same with and without.
        """
        check_lens(lens, self.num_train_timesteps, self._data["image_size"])
        stored = self.stored_answer(query, lens)
        if stored is not None:
            return stored
        self._wait_for_model(progress)
        ids = self.examples.table.index.to_numpy()
        self._check_steps(query, lens)

        def answered(found, lens: Lens, note: str) -> Answer:
            scores = found.scores
            numbers = scores.scores, scores.standard_errors, scores.source
            return Answer(lens, ids, *numbers, found.value, found.value_error, note)

        def by_half(found) -> None:
            half = replace(lens, num_draws=lens.num_draws // 2)
            note = f"first {half.num_draws} of {lens.num_draws} draws"
            early(answered(found, half, note))

        wanted = None if early is None else by_half
        found = self.engine.scored(query, lens, progress=progress, early=wanted)[0]
        return answered(found, lens, self._note(query, lens))

    def answers(
        self, query: Query, lenses: list[Lens], progress: Progress | None = None
    ) -> list[Answer]:
        """Return one answer per lens; what lenses have in common is computed once."""
        return [self.answer(query, lens, progress) for lens in lenses]

    def uncertainty(
        self, query: Query, answer: Answer, progress: Progress | None = None
    ) -> Uncertainty:
        """Return what is uncertain about an answer's scores and about sums of them.

        Args:
            query: The picture.
            answer: What was answered about it, by influence.
            progress: Called after every part; may raise to stop.
        """
        self._wait_for_model(progress)
        return self.engine.uncertainty(query, answer, progress)

    @property
    def computes(self) -> bool:
        """Whether what computing a score takes came along, besides stored answers."""
        shards = self._collection.shards()
        paths = [
            self._collection.shard_path(shard)
            for shard in shards
            if shard.layout["kind"] == "eigenvectors"
        ]
        return any(path.is_file() for path in paths)

    def embeddings(self) -> np.ndarray:
        """Return the CLIP embeddings of the training pictures, shape (N, D)."""
        return self._collection.array("clip")

    def map_positions(self, progress: Progress | None = None) -> np.ndarray:
        """Return where the training pictures lie on a map, shape (N, 2).

        Found once, by CLIP: those that look alike lie near each other.

        Args:
            progress: Called now and then; may raise to stop.
        """
        if self._map is None:
            self._map = layout.arranged(self.embeddings(), progress)
        return self._map

    @cached_property
    def resemblance(self) -> Resemblance:
        """How far the model's samples are from its training images."""
        return resemblance(self._collection)

    @cached_property
    def clearest_sample(self) -> int:
        """The gallery sample that CLIP finds most like some training image.

        The lowest loss, which stands first in the gallery, is often an empty image.
        """
        key, clearness = stored_key(Lens("clip")), {}
        for sample in map(int, self.gallery.index):
            found = self._collection.answer(sample, key)
            clearness[sample] = -np.inf if found is None else found.scores.max()
        return max(clearness, key=clearness.get)

    def stored_answer(self, query: Query, lens: Lens) -> Answer | None:
        """Return a gallery sample's precomputed answer, if the lens has one."""
        draws = self.provenance["settings"]["samples"]["num_draws"]
        if query.kind != "gallery" or lens.form != "auto":
            return None
        sample, key = query.facts["sample_id"], stored_key(lens)
        found = self._collection.answer(sample, key)
        if found is None:
            return None
        return Answer(
            replace(lens, num_draws=draws),
            self.examples.table.index.to_numpy(),
            found.scores,
            self._errors.of(found, sample, key),
            found.source,
            found.value,
            note=self._note(query, lens),
        )

    def _note(self, query: Query, lens: Lens) -> str:
        """Return what a reader should know of how an answer was found, in words."""
        notes = lens_notes(lens)
        if uses_steps(lens):
            notes.append(self.trajectory_note(query))
        if lens.region is not None and has_timesteps(lens.method):
            notes.append(self.engine.region_note(lens.region))
        return " ".join(notes)

    def _check_steps(self, query: Query, lens: Lens) -> None:
        """Refuse to ask about steps that are not known or have no probability.

        Raises:
            ValueError: If they are not or have none.
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
                "DDIM draws without noise, so the steps that drew this picture have no "
                "probability. Draw it with DDPM, or choose another measurement."
            )

    def measure(
        self,
        query: Query,
        measurement: str,
        timesteps: tuple[int, int] | None = None,
        region: tuple[int, int, int, int] | None = None,
        num_draws: int = QUERY_DRAWS,
        progress: Progress | None = None,
    ) -> Measured:
        """Return what a measurement says of a query, without scoring anything.

        Args:
            query: The picture.
            measurement: A key of `MEASUREMENTS`.
            timesteps: Range whose contribution counts; None means all.
            region: Box in image pixels whose part counts; None means all.
            num_draws: Monte Carlo draws.
            progress: Called after every part; may raise to stop.

        Raises:
            ValueError: If a part is asked of what only the whole picture has.
        """
        lens = self._measurement(query, measurement, timesteps, region, num_draws)
        facts = MEASUREMENTS[measurement]
        if facts.over == "image" and (timesteps or region):
            raise ValueError(
                f"The {facts.title.lower()} is that of the whole picture over all "
                "timesteps. Leave out timesteps and region, or choose the measurement "
                "'elbo'."
            )
        self._wait_for_model(progress)
        value, error = self.engine.value(query, lens, progress)
        return Measured(value, error, facts.unit, self._note(query, lens))

    def _measurement(self, query, measurement, timesteps, region, num_draws) -> Lens:
        """Return a lens that names what is to be measured, if that is possible."""
        check_measurement(measurement)
        lens = Lens("ekfac", "loss", timesteps, region, num_draws)
        check_lens(lens, self.num_train_timesteps, self._data["image_size"])
        lens = replace(lens, measurement=measurement)
        self._check_steps(query, lens)
        return lens

    def timestep_losses(
        self,
        query: Query,
        measurement: str = "loss",
        region: tuple[int, int, int, int] | None = None,
        num_draws: int = QUERY_DRAWS,
        num_bands: int = 32,
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """Return the mean cost per timestep, in bands of timesteps.

        Args:
            query: The picture.
            measurement: A key of `MEASUREMENTS` with a value at every timestep.
            region: Box in image pixels whose part counts; None means all.
            num_draws: Monte Carlo draws over all timesteps.
            num_bands: Bands of equal width; those without a draw are left out. For the
                trajectory each sampling step is a band.
            progress: Called after every part; may raise to stop.

        Returns:
            One row per band: timestep_low, timestep_high (exclusive), cost (for the
            trajectory, the cost of the step), standard_error (NaN where there is none).
        """
        lens = self._measurement(query, measurement, None, region, num_draws)
        check_attributable(measurement)
        self._wait_for_model(progress)
        timesteps, costs, weights = self.engine.timestep_costs(query, lens, progress)
        if uses_steps(lens):
            return step_table(timesteps, costs)
        edges = band_edges((0, self.num_train_timesteps), num_bands)
        return band_table(timesteps, costs, weights, edges)

    def band_answers(
        self,
        query: Query,
        lens: Lens,
        num_bands: int = 8,
        progress: Progress | None = None,
    ) -> BandAnswers:
        """Return the scores under a lens, divided over bands of timesteps.

        The bands divide the lens's range of timesteps, and their scores add up to its
        scores. A lens that cannot be divided raises the ValueError of `core.lenses`.

        Args:
            query: The picture.
            lens: How to ask.
            num_bands: Bands of equal width.
            progress: Called after every part; may raise to stop.
        """
        check_lens(lens, self.num_train_timesteps, self._data["image_size"])
        check_bands(lens, num_bands, self.num_train_timesteps)
        self._check_steps(query, lens)
        edges = band_edges(lens.timesteps or (0, self.num_train_timesteps), num_bands)
        self._wait_for_model(progress)
        found = self.engine.scored(query, lens, edges, progress)
        return BandAnswers(
            edges,
            self.examples.table.index.to_numpy(),
            np.stack([one.scores.scores for one in found]),
            np.stack([one.scores.standard_errors for one in found]),
            np.array([one.value for one in found]),
            found[0].scores.source,
            self._note(query, lens),
        )

    def method_facts(self) -> pd.DataFrame:
        """Return what is known of every method, one row each.

        Returns:
            Columns method, title, kind, available, why_not ("" where it is), and the
            seconds and bytes of what it needs (NaN where that is not recorded).
        """
        rows = []
        for name, facts in METHODS.items():
            why_not, cost = "", (np.nan, np.nan)
            try:
                cost = self.engine.cost(name)
            except (LookupError, ValueError) as error:
                why_not = str(error.args[0])
            rows.append((name, facts.title, facts.kind, not why_not, why_not, *cost))
        columns = ["method", "title", "kind", "available", "why_not"]
        return pd.DataFrame(rows, columns=[*columns, "seconds", "bytes"])

    def measurement_weights(self) -> pd.DataFrame:
        """Return what a wrong guess of the noise counts for at every timestep.

        Returns:
            Columns timestep, weight (1 on average over the timesteps) and measurement
            (its title), for the measurements that are means over all timesteps.
        """
        parts = [
            pd.DataFrame({
                "timestep": np.arange(len(weights)),
                "weight": weights / weights.mean(),
                "measurement": MEASUREMENTS[name].title,
            })
            for name, weights in self.engine.noise_weights().items()
        ]
        return pd.concat(parts, ignore_index=True)

    def trajectory_note(self, query: Query) -> str:
        """Return where the steps that drew a query come from, in one sentence."""
        if query.drawn:
            return (
                "The picture is drawn again from its seed to get the steps in which it "
                "was drawn."
            )
        if query.inverted:
            return (
                "The model did not draw this picture: its steps were found by DDIM "
                "inversion and are approximate."
            )
        return (
            "The model did not draw this picture, so there are no steps in which it "
            "was drawn."
        )

    def inverted(self, query: Query) -> Query:
        """Return the same picture with approximate steps from DDIM inversion."""
        if query.drawn or query.inverted:
            return query
        return replace(query, key=f"{query.key}-inverted", inverted=True)

    def search(self, text: str, count: int) -> list[tuple[int, float]]:
        """Return the training pictures nearest to a text: (example id, similarity)."""
        similarity = self.engine.text_scores(text)
        best = np.argsort(-similarity, kind="stable")[:count]
        ids = self.examples.table.index
        return [(int(ids[i]), float(similarity[i])) for i in best]
