"""How a question is asked: methods, measurements, timesteps, regions; nothing computes.

A lens is what one column of the explorer shows. This file knows which lenses there are,
what their numbers mean in plain words, which of them make sense, and under which name a
collection stores an answer. It loads in no time: no torch, no files.
"""

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Method:
    """A way to score training pictures.

    Attributes:
        title: Its one name, everywhere.
        kind: "influence": a score is a predicted change of the measurement on removal,
            times N; "attribution": only the order and the sign count; "similarity":
            what is alike, not what caused the picture.
        meaning: What a large number means, in plain words.
        paper: Where it comes from.
        measurement: The measurement that belongs to the method; None: any.
        damped: Whether a damping changes its scores.
        additive: Whether the scores of disjoint ranges of timesteps add up.
        has_errors: Whether its scores have standard errors.
    """

    title: str
    kind: str
    meaning: str
    paper: str
    measurement: str | None = None
    damped: bool = True
    additive: bool = True
    has_errors: bool = True


@dataclass(frozen=True)
class MeasurementFacts:
    """What can be measured of a picture: a cost.

    Attributes:
        title: Its one name, everywhere.
        unit: Of the value, in words.
        meaning: What it says about a picture, in plain words.
        cost: What to call the value, which rises as a picture gets less likely, inside
            a sentence. Of a bound or a probability it is the negative.
        attributable: Whether training pictures can be scored for it; otherwise it is a
            value only.
    """

    title: str
    unit: str
    meaning: str
    cost: str
    attributable: bool = True


_PAPER = "Mlodozeniec et al. 2025"
_CHANGE = (
    "How much worse the model would do on this picture without the training picture"
)

METHODS = {
    "ekfac": Method(
        "EK-FAC influence",
        "influence",
        f"{_CHANGE}; the method that the paper recommends.",
        f"{_PAPER}; George et al. 2018",
    ),
    "kfac": Method(
        "K-FAC influence",
        "influence",
        f"{_CHANGE}; with a coarser picture of the loss surface than EK-FAC.",
        f"{_PAPER}; Martens and Grosse 2015",
    ),
    "ekfac-reduce": Method(
        "EK-FAC influence, reduce",
        "influence",
        f"{_CHANGE}; positions of a layer are added up before they are compared.",
        f"{_PAPER}; Eschenhagen et al. 2023",
    ),
    "kfac-reduce": Method(
        "K-FAC influence, reduce",
        "influence",
        f"{_CHANGE}; coarser than EK-FAC, positions of a layer added up.",
        f"{_PAPER}; Eschenhagen et al. 2023",
    ),
    "ekfac-fisher": Method(
        "EK-FAC influence, empirical Fisher",
        "influence",
        f"{_CHANGE}; the loss surface is taken from the training gradients.",
        f"{_PAPER}, Eq. 11",
    ),
    "kfac-fisher": Method(
        "K-FAC influence, empirical Fisher",
        "influence",
        f"{_CHANGE}; coarser, the loss surface taken from the training gradients.",
        f"{_PAPER}, Eq. 11",
    ),
    "kfac-fisher-reduce": Method(
        "K-FAC influence, empirical Fisher, reduce",
        "influence",
        f"{_CHANGE}; coarser, from the training gradients, positions added up.",
        f"{_PAPER}, App. C",
    ),
    "relatif": Method(
        "RelatIF",
        "attribution",
        "Influence per unit of influence on everything: favours pictures that matter "
        "for this one in particular over pictures that matter for all.",
        "Barshan et al. 2020",
    ),
    "gradient": Method(
        "Gradient product",
        "attribution",
        "How far a training step on the picture would also improve this one; curvature "
        "is left out.",
        "Charpiat et al. 2019",
        damped=False,
    ),
    "cosine": Method(
        "Gradient cosine",
        "attribution",
        "How alike the directions are in which the two pictures push the model; 1 is "
        "the same direction.",
        "Charpiat et al. 2019",
        damped=False,
        additive=False,
    ),
    "trak": Method(
        "TRAK",
        "attribution",
        "Influence computed from randomly shortened gradients; the order counts, not "
        "the size.",
        "Park et al. 2023",
        has_errors=False,
    ),
    "d-trak": Method(
        "D-TRAK",
        "attribution",
        "TRAK with the size of the model's output in place of its loss; the order "
        "counts, not the size.",
        "Zheng et al. 2024",
        measurement="square-norm",
        has_errors=False,
    ),
    "journey-trak": Method(
        "Journey-TRAK",
        "attribution",
        "TRAK added up over the steps in which the picture was drawn; the order "
        "counts, not the size.",
        "Georgiev et al. 2023",
        measurement="journey",
        has_errors=False,
    ),
    "datainf": Method(
        "DataInf",
        "influence",
        f"{_CHANGE}; with a quick closed form for the loss surface.",
        "Kwon et al. 2024",
        damped=False,
        has_errors=False,
    ),
    "das": Method(
        "Diffusion attribution score",
        "attribution",
        "How far the model's output for this picture would move without the training "
        "picture; the order counts, not the size.",
        "Lin et al. 2024",
        measurement="output",
        additive=False,
        has_errors=False,
    ),
    "clip": Method(
        "CLIP",
        "similarity",
        "How alike the two pictures look to CLIP; 1 is the same.",
        "Radford et al. 2021",
        damped=False,
        additive=False,
        has_errors=False,
    ),
    "pixel": Method(
        "Pixels",
        "similarity",
        "How alike the two pictures are, pixel by pixel; 1 is the same.",
        "nearest neighbours",
        damped=False,
        additive=False,
        has_errors=False,
    ),
    "latent": Method(
        "Latents",
        "similarity",
        "How alike the two pictures are to the model's own code of them; 1 is the "
        "same.",
        "nearest neighbours",
        damped=False,
        additive=False,
        has_errors=False,
    ),
}

MEASUREMENTS = {
    "loss": MeasurementFacts(
        "Training loss",
        "squared error",
        "How hard the picture is for the model, as it was trained to see it.",
        "training loss",
    ),
    "noise-loss": MeasurementFacts(
        "Noise loss",
        "squared error of the noise",
        "How badly the model guesses the noise that was added to the picture.",
        "noise loss",
    ),
    "elbo": MeasurementFacts(
        "ELBO",
        "nats",
        "A bound on how unlikely the picture is under the model; fine detail counts "
        "most.",
        "negative ELBO",
    ),
    "trajectory": MeasurementFacts(
        "Sampling trajectory",
        "nats",
        "How unlikely the very steps are in which the picture was drawn.",
        "negative log-probability of its sampling steps",
    ),
    "log-probability": MeasurementFacts(
        "Log-probability",
        "nats",
        "How unlikely the picture is under the model, exact up to a random trace, "
        "whose error is its ±; too slow to score training pictures with.",
        "negative log-probability",
        attributable=False,
    ),
}

KINDS = {  # what the numbers of each kind of method are
    "influence": "predicted change if removed",
    "attribution": "attribution: the order counts, not the size",
    "similarity": "similar, not cause",
}

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
            measurement is asked about; None means the whole picture.
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
        method = METHODS[self.method]
        if method.kind == "similarity":
            return Lens(self.method)
        lens = self
        if method.measurement is not None:
            lens = replace(lens, measurement=Lens.measurement)
        return lens if method.damped else replace(lens, damping=None)


def measures(method: str) -> bool:
    """Return whether a measurement can be chosen for a method."""
    facts = METHODS[method]
    return facts.kind != "similarity" and facts.measurement is None


def has_timesteps(method: str) -> bool:
    """Return whether a range of noise levels can be chosen for a method."""
    return METHODS[method].kind != "similarity"


def lens_title(lens: Lens) -> str:
    """Return the name of a lens, plain text."""
    parts = [METHODS[lens.method].title]
    if measures(lens.method):
        measured = MEASUREMENTS[lens.measurement].title
        acronym = measured[:2].isupper()
        parts.append(measured if acronym else measured[0].lower() + measured[1:])
    if lens.timesteps is not None and has_timesteps(lens.method):
        parts.append("noise {}–{}".format(*lens.timesteps))
    return " · ".join(parts)


def lens_notes(lens: Lens) -> list[str]:
    """Return what a reader should know of how a lens is answered, in sentences."""
    method = METHODS[lens.method]
    notes = []
    if method.kind == "similarity":
        if lens.timesteps or lens.region:
            notes.append(
                f"{method.title} compares whole pictures: timesteps and region change "
                "nothing."
            )
        return notes
    if method.measurement is not None and lens.measurement != Lens.measurement:
        notes.append(f"{method.title} has a measurement of its own.")
    if not method.damped and lens.damping is not None:
        notes.append(f"{method.title} has no damping to choose.")
    if lens.method == "relatif" and lens.damping is not None:
        notes.append("Self-influence is taken at the collection's own damping.")
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
    method = METHODS[lens.method]
    if method.kind != "similarity" and method.measurement is None:
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
        image_size: Side of the pictures, in pixels.

    Raises:
        ValueError: If it makes none; the message says what would.
    """
    if lens.method not in METHODS:
        raise ValueError(
            f"There is no method '{lens.method}'. Choose one of {', '.join(METHODS)}."
        )
    check_measurement(lens.measurement)
    if METHODS[lens.method].kind != "similarity":
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


def check_measurement(measurement: str) -> None:
    """Refuse a measurement that does not exist.

    Raises:
        ValueError: If it is none; the message lists those there are.
    """
    if measurement not in MEASUREMENTS:
        raise ValueError(
            f"There is no measurement '{measurement}'. Choose one of "
            f"{', '.join(MEASUREMENTS)}."
        )


def check_attributable(measurement: str) -> None:
    """Refuse to score training pictures for a measurement that is a value only.

    Raises:
        ValueError: If it is one.
    """
    if not MEASUREMENTS[measurement].attributable:
        others = [name for name, facts in MEASUREMENTS.items() if facts.attributable]
        raise ValueError(
            f"The measurement '{measurement}' gives a value for a picture but no "
            f"scores of training pictures. Choose one of {', '.join(others)}."
        )


def check_timesteps(
    timesteps: tuple[int, int] | None, num_train_timesteps: int
) -> None:
    """Refuse a range of timesteps that is empty or leaves [0, T).

    Raises:
        ValueError: If it does.
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
    """Refuse a box that is empty or leaves the picture.

    Raises:
        ValueError: If it does.
    """
    if region is None:
        return
    x0, y0, x1, y1 = region
    if not (0 <= x0 < x1 <= image_size and 0 <= y0 < y1 <= image_size):
        raise ValueError(
            f"The region {x0},{y0},{x1},{y1} is not a box inside the picture of "
            f"{image_size}x{image_size} pixels. Give left, top, right, bottom with "
            "left before right and top above bottom."
        )


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
        raise ValueError(f"'{text}' is no {what}. Write {expected}.")
    return numbers
