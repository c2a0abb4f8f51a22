"""How a question is asked: method, measurement, timesteps, region; nothing computes.

A lens is what one column of the explorer shows. This file knows which lenses make
sense, what they are called, and under which name a collection stores an answer. It
loads in no time: no torch, no files.
"""

from dataclasses import dataclass, fields, replace

from core.measurements import (
    MEASUREMENTS,
    Measurement,
    check_attributable,
    check_measurement,
)
from core.methods import METHODS, has_timesteps, measures

# Draws of a query, as many as a gallery's stored answers took: values and scores that
# stand side by side share their draws, and so what these leave of error. With 64 the
# same loss read 9% higher, and noise was a third of what a sketch has to carry.
QUERY_DRAWS = 256
QUERY_FOLDS = 4  # parts of a query's draws, for its share of the standard error


@dataclass(frozen=True)
class Lens:
    """How a question is asked: what one column of the explorer shows.

    Attributes:
        method: A key of `METHODS`.
        measurement: A key of `MEASUREMENTS`; ignored by similarity methods and by
            methods with a measurement of their own.
        timesteps: Half-open range [a, b) of timesteps whose contribution to the
            measurement is asked about; None means all.
        region: Box x0, y0, x1, y1 in image pixels, half-open, whose part of the
            measurement is asked about; None means the whole image.
        num_draws: Monte Carlo draws of the query gradient.
        damping: Added to the GGN; None means the collection's own.
        form: The gradients to score with: "full" index, "sketch", or "auto": the stored
            exact answer where there is one, else the sketch, which takes a second
            where the full index takes many.
    """

    method: str = "ekfac"
    measurement: str = "loss"
    timesteps: tuple[int, int] | None = None
    region: tuple[int, int, int, int] | None = None
    num_draws: int = QUERY_DRAWS
    damping: float | None = None
    form: str = "auto"

    @property
    def kind(self) -> str:
        """What its numbers are: "influence", "attribution" or "similarity"."""
        return METHODS[self.method].kind

    def canonical(self) -> "Lens":
        """Return the lens with every field that changes nothing at its default."""
        method, lens = METHODS[self.method], self
        if not has_timesteps(self.method):
            return Lens(self.method)
        if method.measurement is not None:
            lens = replace(lens, measurement=Lens.measurement)
        return lens if method.damped else replace(lens, damping=None)


def measured_by(lens: Lens) -> Measurement:
    """Return what is measured for a lens: the method's own, or the one chosen."""
    return METHODS[lens.method].measurement or MEASUREMENTS[lens.measurement]


def uses_steps(lens: Lens) -> bool:
    """Return whether a lens asks about the steps in which an image was drawn."""
    return has_timesteps(lens.method) and measured_by(lens).over == "steps"


def lens_title(lens: Lens) -> str:
    """Return the name of a lens, plain text."""
    parts = [METHODS[lens.method].title]
    if measures(lens.method):
        parts.append(in_sentence(MEASUREMENTS[lens.measurement].title))
    if lens.timesteps is not None and has_timesteps(lens.method):
        parts.append("noise {}–{}".format(*lens.timesteps))
    return " · ".join(parts)


def in_sentence(title: str) -> str:
    """Return a title as it stands inside a sentence: small, unless an acronym."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def lens_notes(lens: Lens) -> list[str]:
    """Return what a reader should know of how a lens is answered, in sentences."""
    method = METHODS[lens.method]
    notes = []
    if not has_timesteps(lens.method):
        if lens.timesteps or lens.region:
            notes.append(
                f"{method.title} compares whole images: timesteps and region change "
                "nothing."
            )
        return notes
    if method.measurement is not None and lens.measurement != Lens.measurement:
        notes.append(f"{method.title} has a measurement of its own.")
    if not method.damped and lens.damping is not None:
        notes.append(f"{method.title} has no damping to choose.")
    if method.note and lens.damping is not None:
        notes.append(method.note)
    if not method.has_errors:
        notes.append(f"{method.title} gives no standard errors.")
    return notes


def stored_key(lens: Lens) -> dict:
    """Return the name under which a collection stores the answers of a lens.

    Only what differs from the default is named, besides the method and, where it
    counts, the measurement. Draws are not: stored answers record how many they took.
    """
    lens = lens.canonical()
    key = {"method": lens.method}
    if measures(lens.method):
        key["measurement"] = lens.measurement
    for field in fields(Lens)[2:]:
        value = getattr(lens, field.name)
        if field.name != "num_draws" and value != field.default:
            key[field.name] = value
    return key


def stored_lenses(sampler: str = "ddpm") -> list[Lens]:
    """Return the lenses whose answers for the gallery are worth storing.

    Args:
        sampler: What drew the gallery; the steps of DDIM have no probability.
    """
    measurements = ["loss", "elbo", "trajectory"]
    if sampler == "ddim":
        measurements.remove("trajectory")
    return [
        *(Lens("ekfac", measurement) for measurement in measurements),
        Lens("trak"),
        Lens("clip"),
    ]


def check_lens(lens: Lens, num_train_timesteps: int, image_size: int) -> None:
    """Refuse a lens that makes no sense for a collection.

    Args:
        lens: What was asked.
        num_train_timesteps: T.
        image_size: Side of the images, in pixels.

    Raises:
        ValueError: If it makes none; the message says what would.
    """
    if lens.method not in METHODS:
        raise ValueError(
            f"There is no method '{lens.method}'. Choose one of {', '.join(METHODS)}."
        )
    check_measurement(lens.measurement)
    if has_timesteps(lens.method):
        check_attributable(lens.measurement)
    check_timesteps(lens.timesteps, num_train_timesteps)
    check_region(lens.region, image_size)
    if lens.num_draws < 1 or lens.num_draws % QUERY_FOLDS:
        raise ValueError(
            f"{lens.num_draws} draws cannot be split into {QUERY_FOLDS} equal parts. "
            f"Choose a multiple of {QUERY_FOLDS}."
        )
    if lens.damping is not None and not 0 < lens.damping < float("inf"):
        raise ValueError(
            f"The damping {lens.damping:g} is not a positive number. Choose one above "
            "0, or none for the collection's own."
        )
    if lens.form not in ("auto", "full", "sketch"):
        raise ValueError(
            f"There is no form '{lens.form}' of the gradients. Choose one of auto, "
            "full, sketch."
        )


def check_bands(lens: Lens, num_bands: int, num_train_timesteps: int) -> None:
    """Refuse to divide scores over timesteps where they would not add up.

    Raises:
        ValueError: If the method's scores do not, or there are too many bands.
    """
    if not METHODS[lens.method].additive:
        others = [name for name, facts in METHODS.items() if facts.additive]
        raise ValueError(
            f"The scores of '{lens.method}' do not add up over timesteps. Choose one "
            f"of {', '.join(others)}."
        )
    start, stop = lens.timesteps or (0, num_train_timesteps)
    if not 1 <= num_bands <= stop - start:
        raise ValueError(
            f"The timesteps {start}:{stop} cannot be divided into {num_bands} bands. "
            f"Choose 1 to {stop - start}."
        )


def check_timesteps(
    timesteps: tuple[int, int] | None, num_train_timesteps: int
) -> None:
    """Refuse a range of timesteps that is empty or leaves [0, T).

    Raises:
        ValueError: If the range does.
    """
    if timesteps is None:
        return
    start, stop = timesteps
    if not 0 <= start < stop <= num_train_timesteps:
        raise ValueError(
            f"The timestep range {start}:{stop} is not inside 0:{num_train_timesteps}. "
            "Give a first timestep smaller than the last one."
        )


def check_region(region: tuple[int, int, int, int] | None, image_size: int) -> None:
    """Refuse a box that is empty or leaves the image.

    Raises:
        ValueError: If the box does.
    """
    if region is None:
        return
    x0, y0, x1, y1 = region
    if not (0 <= x0 < x1 <= image_size and 0 <= y0 < y1 <= image_size):
        raise ValueError(
            f"The region {x0},{y0},{x1},{y1} is not a box inside the image of "
            f"{image_size}x{image_size} pixels. Give left, top, right, bottom with "
            "left before right and top above bottom."
        )


def in_cells(box: tuple[int, int, int, int], cell: int) -> tuple[int, int, int, int]:
    """Return the box of all cells that a box touches, of a side in pixels."""
    x0, y0, x1, y1 = box
    low, high = (x0 // cell, y0 // cell), (-(-x1 // cell), -(-y1 // cell))
    return tuple(cell * side for side in (*low, *high))


def parse_timesteps(text: str) -> tuple[int, int]:
    """Return the range that "a:b" names; other text raises a ValueError."""
    return _whole_numbers(
        text, ":", 2, "timestep range", "two whole numbers such as 0:250"
    )


def parse_region(text: str) -> tuple[int, int, int, int]:
    """Return the box that "x0,y0,x1,y1" names; other text raises a ValueError."""
    return _whole_numbers(
        text, ",", 4, "region", "left, top, right, bottom such as 8,8,24,32"
    )


def _whole_numbers(
    text: str, separator: str, count: int, what: str, expected: str
) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(separator))
    except ValueError:
        numbers = ()
    if len(numbers) != count:
        raise ValueError(f"'{text}' is not a {what}. Write {expected}.")
    return numbers
