"""A published collection as it lies on disk: what it holds and how it was made.

Knows neither the model nor how an image is asked about, and loads no torch.
"""

from contextlib import suppress
from dataclasses import astuple, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from core.answers import Examples, Progress
from core.collection.schema import StoredAnswer
from core.collection.store import Collection
from core.config import CollectionConfig, config_from_dict
from core.drawing import Drawing
from core.evidence.stored import Evidence, evidence_folder, evidence_of
from core.evidence.twins import Twin, find_twins, twins_folder
from core.explorer import groups, layout
from core.explorer.first_image import FirstImage, clearest_first, first_image
from core.explorer.resemblance import Resemblance, resemblance
from core.explorer.stored_levels import StoredLevels, levels_path, read_levels, recipe
from core.files import grounds
from core.files.images import open_image
from core.lenses import Lens, lens_title, stored_key
from core.methods import METHODS
from core.scores.error_files import StoredErrors

LICENCES = ("license", "licence")  # what a column of them is called
GROUNDS = 64  # training images that are asked for their ground


class Facts:
    """What is known of a collection without its model.

    Args:
        path: The collection file.

    Attributes:
        name: The collection's name, as in commands.
        title: The collection's name, as on pages.
        fingerprint: Identifies the content.
        num_examples: N, the number of training images.
        examples: The training images' metadata.
        classes: One row per class label, one column per label column, called as in the
            metadata.
        gallery: One row per gallery sample, lowest loss first: label (missing where
            there was none), seed, sampler, num_steps, guidance_scale.
        num_train_timesteps: T, the number of noise levels.
        image_shape: Channels, height and width of the images, in pixels.
        provenance: How the collection was made: settings, versions, costs, reliability.
        evaluations: What was measured of it, by name: "fidelity" of index formats.
        coverage: How its standard errors stood a test by other draws
            (`core.scores.errors`); empty where they were not tested.
    """

    def __init__(self, path: Path):
        self._collection = Collection(path)
        self.name = self._collection.name
        self.fingerprint = self._collection.fingerprint
        self._credits = self._collection.meta("credits")
        self.title = self._collection.meta("title")
        table = self._collection.examples()
        self.examples = Examples(table, tuple(self._collection.meta("captions")))
        self.num_examples = len(table)
        self._labels = pd.Series(self._collection.labels(), table.index)
        settings = self._collection.meta("settings")
        self.num_train_timesteps = settings["model"]["num_train_timesteps"]
        side = settings["data"]["image_size"]
        self.image_shape = settings["data"]["channels"], side, side
        self.classes = pd.DataFrame(
            self._collection.classes(), columns=settings["data"]["label_columns"]
        ).rename_axis("label")
        self.gallery = self._gallery_table()
        self.provenance = {
            key: self._collection.meta(key)
            for key in ("settings", "versions", "costs", "quality", "damping", "clip")
        }
        self.evaluations = self._collection.evaluations()
        self._errors = StoredErrors(self._collection)
        self.coverage = self._errors.coverage
        # How far a second run agreed stands beside the rest.
        self.provenance["quality"] = {
            **(self.provenance["quality"] or {}),
            **{f"{form}_again": r for form, r in self._errors.agreement.items()},
        }
        self._map = None

    def _gallery_table(self) -> pd.DataFrame:
        samples = self._collection.samples()
        table = pd.DataFrame(
            [(sample.sample_id, *astuple(sample.drawing)) for sample in samples],
            columns=["sample_id", *(field.name for field in fields(Drawing))],
        ).set_index("sample_id")
        # The images that the model finds most natural come first.
        losses = self._collection.values(stored_key(Lens()))
        return table.loc[sorted(table.index, key=lambda i: (losses.get(i, 0.0), i))]

    @property
    def clip_title(self) -> str:
        """What the CLIP that compares images is called: a small one says so."""
        name = (self.provenance["clip"] or {}).get("name", "")
        small = name.startswith("Glyphs CLIP")  # `core.engine.clip.GLYPHS_CLIP_NAME`
        return "CLIP (small, trained on emoji)" if small else METHODS["clip"].title

    def titled(self, lens: Lens) -> str:
        """Return the name of a lens, as `lens_title` but for the collection's CLIP."""
        return self.clip_title if lens.method == "clip" else lens_title(lens)

    @property
    def cell(self) -> int:
        """The side in pixels of the squares that a region is measured in.

        1 for a model of pixels; of an autoencoder made elsewhere the usual 8.
        """
        model = self.provenance["settings"]["model"]
        sides = {"none": 1, "patch": model["patch_size"]}
        return sides.get(model["autoencoder"], 8)

    def close(self) -> None:
        """Close the collection's file."""
        self._collection.close()

    def image_png(self, example_id: int) -> bytes:
        """Return the file bytes of a training image."""
        return self._collection.image(example_id)

    def images_png(self, example_ids: list[int]) -> list[bytes]:
        """Return the file bytes of training images, read together."""
        return self._collection.images(example_ids)

    def gallery_png(self, sample_id: int) -> bytes:
        """Return the file bytes of a gallery sample."""
        return self._collection.sample_image(sample_id)

    def stored_keys(self, sample_id: int) -> list[dict]:
        """Return the names of the lenses whose answers for a sample are stored."""
        keys = self._collection.lenses(sample_id)
        return [
            {n: tuple(v) if isinstance(v, list) else v for n, v in key.items()}
            for key in keys
        ]

    def gallery_pngs(self) -> dict[int, bytes]:
        """Return the file bytes of all gallery samples by id, read together."""
        return self._collection.sample_images()

    @property
    def credits(self) -> list[str]:
        """All credit lines of the art."""
        return list(self._credits["lines"].values())

    @property
    def licence_column(self) -> str | None:
        """The column that holds a licence for each image, None if there is none."""
        table = self.examples.table
        return next((name for name in LICENCES if name in table), None)

    @property
    def credit_changes(self) -> str:
        """What was changed of the art, in a sentence; "" where nothing is recorded."""
        return self._credits["changes"]

    @cached_property
    def origin(self) -> dict:
        """Where a user's images came from and what was left out of them.

        As `precompute.imports.origin` writes it; empty where it was not recorded.
        """
        with suppress(LookupError):
            return self._collection.meta("origin")
        return {}

    @property
    def credit_column(self) -> str | None:
        """The label column that says whose art an image is; None: all are alike."""
        return self._credits["column"]

    def credit(self, example_id: int) -> str:
        """Return the credit line of one training image."""
        column, lines = self._credits["column"], self._credits["lines"]
        if column is None and lines:  # one for all
            return next(iter(lines.values()))
        if column not in self.examples.table:
            return "No credit is recorded for this data set."
        value = self.examples.table.at[example_id, column]
        return lines.get(value, f"No credit is recorded for {value}.")

    @cached_property
    def config(self) -> CollectionConfig:
        """The settings that made the collection.

        Those of another version of the program raise the ValueError of `core.config`.
        """
        return config_from_dict(self.provenance["settings"])

    @cached_property
    def stored_levels(self) -> StoredLevels | None:
        """What is stored of the gallery over the noise levels, None where nothing is.

        Settings of another version of the program made nothing that is known here.
        """
        root = self._collection.path.parent
        with suppress(ValueError):
            made_by = recipe(root, self.config)
            return read_levels(levels_path(root, self.config), made_by)
        return None

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

    @cached_property
    def twins(self) -> list[Twin]:
        """The models trained without groups of images that came along."""
        return find_twins(twins_folder(self._collection.path.parent, self.config))

    def class_of(self, label: int | None) -> dict[str, str]:
        """Return a class by label column; nothing for no class."""
        return {} if label is None else self.classes.loc[label].to_dict()

    def class_words(self, label: int | None) -> str:
        """Return a class in words."""
        words = [str(value) or "(empty)" for value in self.class_of(label).values()]
        return ", ".join(words) or "no class"

    def class_names(self) -> list[str]:
        """Return all classes by number, in words; none for a model without classes."""
        has_classes = len(self.classes.columns) > 0
        return [self.class_words(i) for i in self.classes.index] if has_classes else []

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
        """Return the CLIP embeddings of the training images, shape (N, D)."""
        return self._collection.array("clip")

    def map_positions(self, progress: Progress | None = None) -> np.ndarray:
        """Return where the training images lie on a map, shape (N, 2).

        Arranged once, by CLIP: those that look alike lie near each other.

        Args:
            progress: Called now and then; may raise to stop.
        """
        if self._map is None:
            self._map = layout.arranged(self.embeddings(), progress)
        return self._map

    @cached_property
    def facets(self) -> list[str]:
        """The columns of metadata that divide the images into groups."""
        return groups.facets(self.examples.table)

    @cached_property
    def resemblance(self) -> Resemblance:
        """How far the model's samples are from its training images."""
        return resemblance(self._collection)

    @cached_property
    def ground(self) -> grounds.Colour | None:
        """The colour around most training images, None where they share none.

        Photographs do not.
        """
        ids = self.examples.table.index
        some = ids[:: -(-len(ids) // GROUNDS)].tolist()
        return grounds.shared_ground(
            np.asarray(open_image(file)) for file in self.images_png(some)
        )

    @cached_property
    def gallery_order(self) -> list[int]:
        """The gallery samples, the clearest first (`core.explorer.first_image`)."""
        losses = self._collection.values(stored_key(Lens()))
        losses = {int(i): losses.get(i, np.nan) for i in self.gallery.index}
        return clearest_first(losses, self._stored_scores(Lens("clip")))

    @cached_property
    def first_image(self) -> FirstImage:
        """The gallery sample that opens first; there has to be a gallery."""
        evidence = None
        with suppress(LookupError, ValueError):  # none, or of other scores
            evidence = self.evidence()
        own = {
            int(i): {} if pd.isna(label) else self.class_of(int(label))
            for i, label in self.gallery["label"].items()
        }
        labels = self.examples.table[list(self.classes.columns)].astype(str)
        scores = map(self._stored_scores, (Lens(), Lens("clip")))
        return first_image(self.gallery_order, own, labels, *scores, evidence)

    def gallery_values(self, lens: Lens) -> np.ndarray:
        """Return the stored values of the gallery under a lens, as many as there are.

        No value is stored of a lens that gives none, such as a similarity.
        """
        values = np.array(list(self._collection.values(stored_key(lens)).values()))
        return values[np.isfinite(values)]

    def gallery_answers(self, lens: Lens) -> dict[int, StoredAnswer]:
        """Return the stored answers of gallery samples under a lens, by sample."""
        return self._collection.answers(stored_key(lens))

    def _stored_scores(self, lens: Lens) -> dict[int, np.ndarray]:
        """Return the stored scores of all gallery samples under a lens."""
        answers = self.gallery_answers(lens).items()
        return {int(i): answer.scores for i, answer in answers}
