"""The part of an explorer that needs the model: generate, encode, measure, score.

Loading torch and diffusers takes seconds, so `core.explorer.explorer` imports this file
only when a question needs it. Knows nothing about pages or stored answers.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import torch
from torch import Tensor

from core import answers
from core.answers import Answer, Forming, Progress, Query, Uncertainty, steps
from core.collection.store import Collection
from core.curvature.basis import Eigenbasis
from core.drawing import Drawing
from core.engine.clip import clip_similarity, stored_clip
from core.engine.forming import forming
from core.engine.query import QueryGradient, Question
from core.engine.recent import Recent
from core.engine.twins import open_twin, redrawn
from core.files.images import decode_image
from core.index.sketch import packed_products
from core.lenses import Lens, measured_by, uses_steps
from core.measure.costs import noise_weights
from core.measure.region import region_mask
from core.methods import METHODS
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser, to_pixels
from core.model.parameters import parameter_layout
from core.model.sampling import Subject, Trajectory, invert, sample
from core.scores.beside import open_eigenbasis
from core.scores.group_errors import find_uncertainty
from core.scores.journey import band_sums, draws_per_step, step_features
from core.scores.method_files import method_cost
from core.scores.scoring import Scores, Scoring, without_errors

KEPT_BYTES = 768e6  # of query gradients: 30 MB each for two million parameters
KEPT_TRAJECTORIES = 8
KEPT_TWINS = 8  # models
INVERSION_STEPS = 100
ENCODED_AT_ONCE = 64  # images


class Engine:
    """The model of a collection, and what is measured of images with it.

    It answers one question at a time, whichever threads ask.

    Args:
        collection: An open collection.
    """

    def __init__(self, collection: Collection):
        self.collection = collection
        self.settings = collection.meta("settings")
        self.seed = int(self.settings["seed"])
        self._lock = threading.RLock()
        self._gradients = Recent(
            KEPT_BYTES, lambda found: sum(one.folds.nbytes for one in found)
        )
        self._step_features = Recent(KEPT_BYTES, lambda features: features.nbytes)
        self._trajectories = Recent(KEPT_TRAJECTORIES, lambda trajectory: 1)
        self._twins = Recent(KEPT_TWINS, lambda twin: 1)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        # What the imports made stays for good. A server that collects garbage after
        # every page run would walk through it: half a second each, all threads halted.
        gc.freeze()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the model for a `with` block, at the number of threads for answers.

        One core stays free for the pages and the browser: threads of one product wait
        for each other by spinning, which takes most of the time when none is free. The
        number is set for the thread that asks, since each has its own and the last bits
        of a product depend on it: every thread and every program gets one answer.
        """
        with self._lock:
            torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
            yield

    @cached_property
    def denoiser(self) -> Denoiser:
        """The diffusion model, on the fastest device there is."""
        denoiser = denoiser_from_bytes(self.collection.denoiser())
        return denoiser.to(self.device)

    @cached_property
    def basis(self) -> Eigenbasis:
        """The Kronecker eigenbasis, from the file beside the collection."""
        layout = parameter_layout(self.denoiser.unet)
        return open_eigenbasis(self.collection, layout).to(self.device)

    @cached_property
    def scoring(self) -> Scoring:
        """All that turns query gradients into scores."""
        return Scoring(self.collection, self.basis)

    @cached_property
    def clip(self):
        """The CLIP model that made the collection's embeddings."""
        return stored_clip(self.collection.meta("clip"), str(self.device))

    def warm_up(self) -> None:
        """Load and compile everything that an influence answer needs."""
        with self._alone():
            _ = self.denoiser, self.scoring.noise
            sketched = self.scoring.sketched
            nothing = torch.zeros(1, 8 * sketched.bits.shape[1])
            packed_products(nothing, sketched.bits[:1], sketched.scales[:1])
        gc.freeze()  # what was loaded and compiled since stays for good, too

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        """Return x_0 of an image (C, H, W) in uint8, float32."""
        return self._encode(pixels[None])[0]

    def _encode(self, pixels: np.ndarray) -> np.ndarray:
        """Return x_0 of images (B, C, H, W) in uint8, float32."""
        images = torch.from_numpy(pixels.copy()).float() / 127.5 - 1
        with self._alone():
            return self.denoiser.encode(images.to(self.device)).cpu().numpy()

    def generate(
        self,
        drawing: Drawing,
        on_step: Callable[[int, int], None] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a new sample: x_0 (C', H', W') and its image (C, H, W) in uint8."""
        with self._alone():
            (trajectory,) = sample(self.denoiser, [drawing], self.seed, on_step)
            x_0 = trajectory.states[-1]
            image = self.denoiser.decode(x_0[None].to(self.device))[0]
        return x_0.numpy(), to_pixels(image)

    def cost(self, method: str) -> tuple[float, float]:
        """Return the seconds and bytes of what a method needs (`method_cost`)."""
        return method_cost(self.collection, method)

    def x_0(self, query: Query) -> np.ndarray:
        """Return the clean example of a query, shape (C, H, W), float32."""
        if query.x_0 is not None:
            return query.x_0
        if query.kind == "gallery":
            return self.collection.sample_x_0(query.facts["sample_id"])
        return self.encode(query.pixels)

    def subject(
        self, query: Query, with_steps: bool, progress: Progress | None = None
    ) -> Subject:
        """Return a query as the model sees it.

        Args:
            query: The image.
            with_steps: Whether the steps in which it was drawn are needed.
            progress: Called after every step; may raise to stop.
        """
        subject = Subject(torch.from_numpy(self.x_0(query)), query.label)
        if not with_steps:
            return subject
        trajectory = self._trajectories.get(
            query.key, lambda: self._trajectory(query, subject, progress)
        )
        if not query.drawn:  # the path of inversion, as if DDPM had taken it
            return replace(subject, trajectory=trajectory, sampler="ddpm")
        return replace(
            subject,
            trajectory=trajectory,
            sampler=query.drawing.sampler,
            guidance_scale=query.drawing.guidance_scale,
        )

    def _trajectory(
        self, query: Query, subject: Subject, progress: Progress | None
    ) -> Trajectory:
        """Return the steps that drew a query, drawn again, or approximate ones."""
        if not query.drawn:
            on_step = steps(progress, "Finding approximate steps")
            return invert(self.denoiser, subject, INVERSION_STEPS, on_step)
        on_step = steps(progress, "Drawing it again")
        return sample(self.denoiser, [query.drawing], self.seed, on_step)[0]

    def mask(self, region: tuple[int, int, int, int] | None) -> Tensor | None:
        """Return which entries of a clean example a region means; None for None."""
        return None if region is None else region_mask(self.denoiser, region)[0]

    def region_note(self, region: tuple[int, int, int, int]) -> str:
        """Return what part of the model's image a box stands for, in words."""
        return region_mask(self.denoiser, region)[1]

    def gradients(
        self,
        query: Query,
        lens: Lens,
        edges: tuple[int, ...] | None = None,
        progress: Progress | None = None,
        on_half: Callable[[QueryGradient], None] | None = None,
    ) -> list[QueryGradient]:
        """Return the rotated gradients of a query's measurement; the latest are kept.

        Lenses that differ only in method, damping or form share them.

        Args:
            query: The image.
            lens: Names measurement, timesteps, region and draws.
            edges: Bounds of bands of timesteps, a gradient for each; None for one
                gradient over the lens's timesteps.
            progress: Called after every part; may raise to stop.
            on_half: Called with what half of the draws say; never for bands.
        """

        def measure() -> list[QueryGradient]:
            asked = self.question(query, lens, progress).to(self.denoiser)
            on_step = steps(progress, "Measuring")
            if edges is None:
                measured = [asked.gradient(self.basis, on_step, on_half)]
            else:
                measured = asked.band_gradients(self.basis, list(edges), on_step)
            return [replace(one, folds=one.folds.cpu()) for one in measured]

        what = measured_by(lens), lens.num_draws, lens.timesteps, lens.region
        return self._gradients.get((query.key, *what, edges), measure)

    def question(
        self, query: Query, lens: Lens, progress: Progress | None = None
    ) -> Question:
        """Return what a lens asks of the model about an image."""
        return Question(
            self.subject(query, uses_steps(lens), progress),
            measured_by(lens),
            lens.num_draws,
            self.seed,
            lens.timesteps,
            self.mask(lens.region),
        )

    def value(
        self, query: Query, lens: Lens, progress: Progress | None = None
    ) -> tuple[float, float]:
        """Return what a lens measures of a query, and its standard error."""
        with self._alone():
            asked = self.question(query, lens, progress).to(self.denoiser)
            return asked.value(steps(progress, asked.doing))

    def redrawn(
        self, twin: Path, query: Query, lens: Lens, progress: Progress | None = None
    ) -> answers.Redrawn:
        """Return what a twin in a file makes of a query (`core.engine.twins`)."""
        with self._alone():
            model = self._twins.get(twin, lambda: open_twin(twin, self.denoiser))
            question = self.question(query, lens, progress)
            return redrawn(model, self.denoiser, question, query.drawing, progress)

    def noise_weights(self) -> dict[str, np.ndarray]:
        """Return what each timestep counts for, (T,), by measurement."""
        with self._alone():
            weights = noise_weights(self.denoiser)
        return {name: values.cpu().numpy() for name, values in weights.items()}

    def timestep_costs(
        self, query: Query, lens: Lens, progress: Progress | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return timesteps, costs and weights of a lens's draws, each of shape (S,)."""
        with self._alone():
            asked = self.question(query, lens, progress).to(self.denoiser)
            found = asked.costs(steps(progress, "Measuring"))
            return tuple(values.numpy() for values in found)

    def forming(self, query: Query, timesteps: np.ndarray) -> Forming:
        """Return a query at noise levels, noisy and as the model expects it clean."""
        with self._alone():
            subject = self.subject(query, with_steps=False)
            return forming(self.denoiser, subject, timesteps, self.seed)

    def scored(
        self,
        query: Query,
        lens: Lens,
        edges: tuple[int, ...] | None = None,
        progress: Progress | None = None,
        early: Callable[[Scores], None] | None = None,
    ) -> list[Scores]:
        """Return the scores of all training images: once, or for bands of timesteps.

        Args:
            query: The image.
            lens: How to ask.
            edges: Bounds of the bands; None for the lens's timesteps as a whole.
            progress: Called after every part; may raise to stop.
            early: Called with the scores by half of the draws, where they are measured
                now and quick to score.
        """

        def on_half(half: QueryGradient) -> None:
            (scores,) = self.scoring.scores(lens, [half.folds.cpu()])
            early(replace(scores, value=half.value, value_error=half.value_error))

        method = METHODS[lens.method]
        quick = method.has_errors and lens.form != "full"
        with self._alone():
            if method.reads == "images":
                row = resolve_name(method.scores)(self, query).astype(np.float64)
                return [without_errors(row, "exact")]
            self.scoring.require(lens)
            if method.reads == "steps":
                return self._by_steps(query, lens, edges, progress)
            wanted = on_half if early is not None and quick else None
            measured = self.gradients(query, lens, edges, progress, wanted)
            if edges is not None:  # each is a question about a band
                lens = replace(lens, timesteps=(edges[0], edges[-1]))
            found = self.scoring.scores(
                lens,
                [one.folds for one in measured],
                steps(progress, "Reading the index"),
            )
            return [
                replace(scores, value=one.value, value_error=one.value_error)
                for scores, one in zip(found, measured, strict=True)
            ]

    def uncertainty(
        self, query: Query, answer: Answer, progress: Progress | None = None
    ) -> Uncertainty:
        """Return what is uncertain about the scores of a query.

        Args:
            query: The image.
            answer: What was answered about it.
            progress: Called after every part; may raise to stop.
        """
        lens = answer.lens
        scores = Scores(answer.scores, answer.standard_errors, answer.source)
        with self._alone():
            self.scoring.require(lens)
            (measured,) = self.gradients(query, lens, progress=progress)
            return find_uncertainty(self.scoring, lens, measured.folds, scores)

    def _by_steps(self, query, lens, edges, progress) -> list[Scores]:
        """Return scores of every sampling step, added up in each band."""
        question = self.question(query, lens, progress)
        subject, layout = question.subject, self.basis.layout
        file = self.scoring.method_file(lens.method)
        costs = resolve_name(question.measurement.costs)
        features = self._step_features.get(
            (query.key, file.path, question.measurement, lens.num_draws, lens.region),
            lambda: step_features(
                self.denoiser,
                subject,
                partial(costs, mask=question.mask),
                lambda one: file.query_features(self.basis.rotate(one), layout),
                draws_per_step(lens.num_draws, len(subject.trajectory.timesteps)),
                self.seed,
                steps(progress, "Measuring every step"),
            ),
        )
        rows = self.scoring.feature_scores(lens, features)
        edges = edges or lens.timesteps or (0, self.denoiser.num_train_timesteps)
        sums = band_sums(rows, subject.trajectory.timesteps, edges)
        return [without_errors(row) for row in sums]

    def text_scores(self, text: str) -> np.ndarray:
        """Return the CLIP similarity of a text with all examples, shape (N,)."""
        with self._alone():
            query = self.clip.embed_texts([text])
        return clip_similarity(query, self.embeddings)[0].astype(np.float64)

    @cached_property
    def embeddings(self) -> np.ndarray:
        """CLIP embeddings of all examples, shape (N, D)."""
        return self.collection.array("clip")

    @cached_property
    def training_pixels(self) -> np.ndarray:
        """All training images, uint8, shape (N, C, H, W)."""
        data = self.settings["data"]
        shape = data["channels"], data["image_size"], data["image_size"]
        pictures = self.collection.images(self.collection.examples().index)
        return np.stack([decode_image(picture, shape) for picture in pictures])

    @cached_property
    def training_x_0(self) -> np.ndarray:
        """Clean examples of all training images, float32, shape (N, C', H', W')."""
        parts = np.array_split(
            self.training_pixels, -(-len(self.training_pixels) // ENCODED_AT_ONCE)
        )
        return np.concatenate([self._encode(part) for part in parts])
