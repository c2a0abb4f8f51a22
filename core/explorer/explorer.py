"""All that a page or the headless command may ask of a collection.

`Explorer` answers in dataclasses of numpy and pandas values; it hides torch and DuckDB
from its callers. Every answer to "what made this image" goes through
`Explorer.answer`.
"""

from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pandas as pd

from core.answers import (
    Answer,
    BandAnswers,
    Cancelled,
    Forming,
    Measured,
    Progress,
    Query,
    Redrawn,
    Uncertainty,
    steps,
)
from core.collection import store
from core.config import DATA_DIR
from core.drawing import Drawing
from core.evidence.twins import Twin
from core.explorer.bands import band_edges, band_table, step_table
from core.explorer.with_model import WithModel
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


class Explorer(WithModel):
    """A published collection, ready for questions; safe to use from several threads.

    What is known of it without its model are the attributes of `Facts`.

    Args:
        path: The collection file.
    """

    def generate(self, drawing: Drawing, progress: Progress | None = None) -> Query:
        """Return a newly generated image as a query.

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
        """Return the scores of all training images for a query under a lens.

        Gallery samples have stored answers, computed exactly; others are computed now.
        A lens that makes no sense raises the ValueError of `core.lenses`.

        Args:
            query: From one of the `query_from` methods or `generate`.
            lens: How to ask.
            progress: Called after every part; may raise to stop.
            early: Called with the answer by half of the draws, while the others are
                measured; the answer returned is the same with and without.
        """
        self._check_lens(lens)
        stored = self.stored_answer(query, lens)
        if stored is not None:
            return stored
        self._wait_for_model(progress)
        ids = self.examples.table.index.to_numpy()
        self.check_steps(query, lens)

        def answer(scored, lens: Lens, note: str) -> Answer:
            numbers = scored.scores, scored.standard_errors, scored.source
            return Answer(lens, ids, *numbers, scored.value, scored.value_error, note)

        def tell_half(scored) -> None:
            half = replace(lens, num_draws=lens.num_draws // 2)
            note = f"first {half.num_draws} of {lens.num_draws} draws"
            early(answer(scored, half, note))

        on_half = None if early is None else tell_half
        (scored,) = self.engine.scored(query, lens, None, progress, on_half)
        return answer(scored, lens, self._note(query, lens))

    def uncertainty(
        self, query: Query, answer: Answer, progress: Progress | None = None
    ) -> Uncertainty:
        """Return what is uncertain about an answer's scores and about sums of them.

        Args:
            query: The image.
            answer: What was answered about it, by influence.
            progress: Called after every part; may raise to stop.
        """
        self._wait_for_model(progress)
        return self.engine.uncertainty(query, answer, progress)

    def stored_answer(self, query: Query, lens: Lens) -> Answer | None:
        """Return a gallery sample's precomputed answer, if the lens has one."""
        draws = self.provenance["settings"]["samples"]["num_draws"]
        if query.kind != "gallery" or lens.form != "auto":
            return None
        sample, key = query.facts["sample_id"], stored_key(lens)
        stored = self._collection.answer(sample, key)
        if stored is None:
            return None
        return Answer(
            replace(lens, num_draws=draws),
            self.examples.table.index.to_numpy(),
            stored.scores,
            self._errors.of(stored, sample, key),
            stored.source,
            stored.value,
            note=self._note(query, lens),
        )

    def _note(self, query: Query, lens: Lens) -> str:
        """Return what a reader should know of how an answer came about, in words."""
        notes = lens_notes(lens)
        if uses_steps(lens):
            notes.append(self.trajectory_note(query))
        if lens.region is not None and has_timesteps(lens.method):
            notes.append(self.engine.region_note(lens.region))
        return " ".join(notes)

    def _check_lens(self, lens: Lens) -> None:
        check_lens(lens, self.num_train_timesteps, self.image_shape[-1])

    def measure(
        self,
        query: Query,
        measurement: str,
        timesteps: tuple[int, int] | None = None,
        region: tuple[int, int, int, int] | None = None,
        num_draws: int = QUERY_DRAWS,
        progress: Progress | None = None,
    ) -> Measured:
        """Return the value of a measurement for a query, without scoring anything.

        Args:
            query: The image.
            measurement: A key of `MEASUREMENTS`.
            timesteps: Range whose contribution counts; None means all.
            region: Box in image pixels whose part counts; None means all.
            num_draws: Monte Carlo draws.
            progress: Called after every part; may raise to stop.

        Raises:
            ValueError: If a part is asked of what only the whole image has.
        """
        lens = self._measurement(query, measurement, timesteps, region, num_draws)
        facts = MEASUREMENTS[measurement]
        if facts.over == "image" and (timesteps or region):
            raise ValueError(
                f"The {facts.title.lower()} is that of the whole image over all "
                "timesteps. Leave out timesteps and region, or choose the measurement "
                "'elbo'."
            )
        self._wait_for_model(progress)
        value, error = self.engine.value(query, lens, progress)
        return Measured(value, error, facts.unit, self._note(query, lens))

    def redrawn(
        self, query: Query, lens: Lens, twin: Twin, progress: Progress | None = None
    ) -> Redrawn:
        """Return what a model without some images makes of a query.

        Args:
            query: The image.
            lens: Names measurement, timesteps and region.
            twin: One of `twins`.
            progress: Called after every step; may raise to stop.
        """
        self._check_lens(lens)
        self.check_steps(query, lens)
        self._wait_for_model(progress)
        return self.engine.redrawn(twin.path, query, lens, progress)

    def _measurement(self, query, measurement, timesteps, region, num_draws) -> Lens:
        """Return a lens that names what is to be measured, if that is possible."""
        check_measurement(measurement)
        lens = Lens("ekfac", "loss", timesteps, region, num_draws)
        self._check_lens(lens)
        lens = replace(lens, measurement=measurement)
        self.check_steps(query, lens)
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
            query: The image.
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
            query: The image.
            lens: How to ask.
            num_bands: Bands of equal width.
            progress: Called after every part; may raise to stop.
        """
        self._check_lens(lens)
        check_bands(lens, num_bands, self.num_train_timesteps)
        self.check_steps(query, lens)
        edges = band_edges(lens.timesteps or (0, self.num_train_timesteps), num_bands)
        self._wait_for_model(progress)
        bands = self.engine.scored(query, lens, edges, progress)
        return BandAnswers(
            edges,
            self.examples.table.index.to_numpy(),
            np.stack([band.scores for band in bands]),
            np.stack([band.standard_errors for band in bands]),
            np.array([band.value for band in bands]),
            bands[0].source,
            self._note(query, lens),
        )

    def forming(
        self, query: Query, num_bands: int = 8, progress: Progress | None = None
    ) -> Forming:
        """Return an image forming out of noise, in the middle of bands of timesteps.

        Args:
            query: The image.
            num_bands: Bands of equal width, as in `band_answers`.
            progress: Called while the model is loaded; may raise to stop.
        """
        edges = np.array(band_edges((0, self.num_train_timesteps), num_bands))
        self._wait_for_model(progress)
        return self.engine.forming(query, ((edges[:-1] + edges[1:]) // 2)[::-1].copy())

    def method_facts(self, progress: Progress | None = None) -> pd.DataFrame:
        """Return what is known of every method, one row each.

        Args:
            progress: Called while the model is loaded; may raise to stop.

        Returns:
            Columns method, title, kind, available, why_not ("" where it is), and the
            seconds and bytes of what it needs (NaN where that is not recorded).
        """
        self._wait_for_model(progress)
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

    def measurement_weights(self, progress: Progress | None = None) -> pd.DataFrame:
        """Return how much a wrong guess of the noise counts at every timestep.

        Args:
            progress: Called while the model is loaded; may raise to stop.

        Returns:
            Columns timestep, weight (1 on average over the timesteps) and measurement
            (its title), for the measurements that are means over all timesteps.
        """
        self._wait_for_model(progress)
        tables = [
            pd.DataFrame({
                "timestep": np.arange(len(weights)),
                "weight": weights / weights.mean(),
                "measurement": MEASUREMENTS[name].title,
            })
            for name, weights in self.engine.noise_weights().items()
        ]
        return pd.concat(tables, ignore_index=True)

    def search(self, text: str, count: int) -> list[tuple[int, float]]:
        """Return the training images nearest to a text: (example id, similarity)."""
        similarity = self.engine.text_scores(text)
        best = np.argsort(-similarity, kind="stable")[:count]
        ids = self.examples.table.index
        return [(int(ids[i]), float(similarity[i])) for i in best]
