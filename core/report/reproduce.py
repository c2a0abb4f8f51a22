"""The command that asks the same question again, and what else names its answer."""

import hashlib
import shlex
from importlib import metadata
from platform import python_version

from core.answers import Query
from core.lenses import Lens
from core.methods import has_timesteps, measures

# What an answer's digits can depend on, besides the collection.
PACKAGES = ("torch", "diffusers", "numpy", "numba", "duckdb", "pillow")


def command(collection: str, query: Query, lens: Lens) -> str:
    """Return the command line that scores all training images for an image again.

    An uploaded image has to be given as the file `FILE`.
    """
    words = ["python", "-m", "precompute", "attribute", "--collection", collection]
    words += _image_flags(query) + _lens(lens)
    return shlex.join(words)


def _image_flags(query: Query) -> list[str]:
    """Return the flags that name an image."""
    facts, label = query.facts, []
    if query.label is not None:
        label = ["--label", str(query.label)]
    if query.kind == "gallery":
        words = ["--sample", str(facts["sample_id"])]
    elif query.kind == "example":
        words = ["--example", str(facts["example_id"])]
    elif query.kind == "generated":
        drawing = query.drawing
        words = ["--seed", str(drawing.seed), *label]
        words += ["--sampler", drawing.sampler, "--steps", str(drawing.num_steps)]
        words += ["--guidance", repr(float(drawing.guidance_scale))]
    else:
        words = ["--image", "FILE", *label]
    return words + (["--invert"] if query.inverted else [])


def _lens(lens: Lens) -> list[str]:
    """Return the flags that say how it is asked."""
    words = ["--method", lens.method]
    if measures(lens.method):
        words += ["--measurement", lens.measurement]
    if not has_timesteps(lens.method):
        return words
    if lens.timesteps is not None:
        words += ["--timesteps", "{}:{}".format(*lens.timesteps)]
    if lens.region is not None:
        words += ["--region", ",".join(map(str, lens.region))]
    words += ["--draws", str(lens.num_draws)]
    if lens.damping is not None:
        words += ["--damping", repr(float(lens.damping))]
    return [*words, "--index", lens.form]


def image_hash(query: Query) -> str:
    """Return the SHA-256 of an image's pixels, as the model sees them."""
    return hashlib.sha256(query.pixels.tobytes()).hexdigest()


def running_versions() -> dict[str, str]:
    """Return the versions of the packages that answer here."""
    versions = {"python": python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a GPU machine may keep its own build
            continue
    return versions
