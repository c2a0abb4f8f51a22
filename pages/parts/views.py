"""From a view in the link to the image that it names."""

from core.config import SAMPLERS
from core.drawing import Drawing
from core.explorer.explorer import Explorer, Query
from pages.parts import link, served, waiting

STEPS = (1, 1000)  # what the sampler may be asked for


GUIDANCE = (1.0, 7.0)


MAX_SEED = 2**31 - 1


OWN = {  # how an image of one's own was made, how to make it, what it is called
    "upload": ("uploaded", "Upload it", "Your image"),
    "draw": ("drawn", "Draw it", "Your drawing"),
}


def whole(view: dict[str, str], key: str, default: int | None = None) -> int | None:
    """Return a whole number from the link.

    Raises:
        ValueError: If there is something else.
    """
    if key not in view:
        return default
    value = link.number(view[key])
    if value is None:
        raise ValueError(
            f"The link says {key}={link.shortened(view[key])}, which is not a whole "
            "number of usual size. Choose an image here instead."
        )
    return value


def find_query(explorer: Explorer, view: dict[str, str]) -> Query | None:
    """Return the image that is asked about, None while it is being made.

    A `LookupError` or `ValueError` holds the sentence to show instead.
    """
    origin = link.origin_of(view)
    if origin == "sample":
        return explorer.query_from_gallery(whole(view, "sample"))
    if origin == "seed":
        return generated_query(explorer, view)
    if origin == "example":
        query = explorer.query_from_example(whole(view, "example"))
    else:
        query = own_query(explorer, view, origin)
    return explorer.inverted(query) if view.get("inverted") == "1" else query


def known_label(explorer: Explorer, view: dict[str, str]) -> int | None:
    """Return the class that a view names, None for any.

    Raises:
        ValueError: If the collection has no such class.
    """
    label = whole(view, "label")
    if label is None or label in explorer.classes.index:
        return label
    raise ValueError(
        f"The link asks for class {label}; this collection has "
        f"{len(explorer.classes)}, counted from 0. Choose an image here instead."
    )


def own_query(explorer: Explorer, view: dict[str, str], origin: str) -> Query:
    """Return an image that this visitor uploaded or drew.

    Raises:
        LookupError: If it was somebody else, or too long or too many images ago.
    """
    data = served.uploads().find(waiting.visitor(), view[origin])
    made, again, title = OWN[origin]
    if data is None:
        raise LookupError(
            f"This image was {made} in another visit or some images ago, and is not "
            f"kept; links do not include it. {again} here again."
        )
    return explorer.query_from_upload(data, known_label(explorer, view), title)


def generated_query(explorer: Explorer, view: dict[str, str]) -> Query | None:
    """Return an image made for a seed, None while the model is at work.

    Raises:
        ValueError: If the link asks for something the model cannot do.
    """
    seed, label = whole(view, "seed"), known_label(explorer, view)
    steps, sampler = whole(view, "steps", 50), view.get("sampler", "ddim")
    try:
        guidance = float(view.get("guidance", 1.0))
    except ValueError:
        guidance = float("nan")
    if sampler not in SAMPLERS or not 0 <= seed <= MAX_SEED:
        raise ValueError(
            f"The link asks for sampler '{link.shortened(sampler)}' and seed {seed}; "
            f"there are {' and '.join(SAMPLERS)}, and seeds from 0 to {MAX_SEED}. "
            "Choose an image here instead."
        )
    if not (STEPS[0] <= steps <= STEPS[1] and GUIDANCE[0] <= guidance <= GUIDANCE[1]):
        raise ValueError(
            f"The link asks for {steps} steps and guidance "
            f"{link.shortened(view.get('guidance', '1'))}; "
            f"{STEPS[0]} to {STEPS[1]} steps and guidance {GUIDANCE[0]:g} to "
            f"{GUIDANCE[1]:g} are possible."
        )
    drawing = Drawing(label, seed, sampler, steps, guidance)
    return waiting.result_of(
        "picture",
        f"{explorer.fingerprint}/generate/{drawing}",
        lambda progress: explorer.generate(drawing, progress),
    )
