"""What a twin of the model, trained without some images, makes of a query."""

from pathlib import Path

from core.answers import Progress, Redrawn, steps
from core.drawing import Drawing
from core.engine.query import Question
from core.model.checkpoint import denoiser_from_bytes
from core.model.denoiser import Denoiser, to_pixels
from core.model.sampling import sample


def open_twin(path: Path, like: Denoiser) -> Denoiser:
    """Return a twin, on the device of the full model.

    Raises:
        ValueError: If it is of another model.
    """
    twin = denoiser_from_bytes(path.read_bytes())
    shapes = [
        {name: one.shape for name, one in model.unet.state_dict().items()}
        for model in (twin, like)
    ]
    if twin.shape != like.shape or shapes[0] != shapes[1]:
        raise ValueError(
            f"'{path.name}' is of another model than this collection's. Make it again "
            "with `python -m precompute retrain --without`."
        )
    return twin.to(like.device)


def redrawn(
    twin: Denoiser,
    full: Denoiser,
    question: Question,
    drawing: Drawing | None,
    progress: Progress | None = None,
) -> Redrawn:
    """Return the image as a twin draws it from its seed, and its cost in the twin.

    The cost is that of the image itself, by the draws that all models share: less the
    full model's, it is what leaving the images out changed. The redrawn image begins
    with the same noise.

    Args:
        twin: The model.
        full: The one that saw every image; decodes for both.
        question: About the image.
        drawing: How the image was drawn; None for one that no model drew.
        progress: Called after every step; may raise to stop.
    """
    pixels = None
    if drawing is not None:
        on_step = steps(progress, "Drawing")
        (drawn,) = sample(twin, [drawing], question.seed, on_step)
        pixels = to_pixels(full.decode(drawn.states[-1][None].to(full.device))[0])
    asked = question.to(twin)
    return Redrawn(pixels, asked.value(steps(progress, asked.doing))[0])
