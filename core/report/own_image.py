"""What is said of an image that the model did not draw, and how far an answer holds.

Two things are asked. Do the scores stand out from noise? Where all scores are noise,
the strongest of them still looks strong, so that is what the ten shown are held
against. And does the model draw such images at all? Its own are what the loss is held
against.
"""

from statistics import NormalDist

import numpy as np

from core.explorer.explorer import Answer, Explorer

SHOWN = 10  # training images that an answer begins with
RARELY = 0.05  # chance that noise alone lifts any image so far


def beyond_noise(answer: Answer) -> int | None:
    """Return how many of the ten strongest images noise alone would not explain.

    Counted are scores above zero by more standard errors than the largest of N scores
    of noise reaches once in 20 times. None where the method has no errors.

    Args:
        answer: An answer by influence over N training images.
    """
    if not np.isfinite(answer.standard_errors).all():
        return None
    highest = NormalDist().inv_cdf((1 - RARELY) ** (1 / len(answer.scores)))
    top = answer.top(SHOWN)
    return int((answer.scores[top] > highest * answer.standard_errors[top]).sum())


def strength_words(answer: Answer) -> str:
    """Return how far an answer stands out from noise, in words, "" where unknown."""
    count, size = beyond_noise(answer), len(answer.scores)
    if count is None:
        return ""
    shown = min(SHOWN, size)
    noise = f"than noise alone would lift any of {size:,}"
    if count == shown:
        return f"Clear answer: all {shown} of the strongest stand higher {noise}."
    if count:
        how = "Fairly clear answer" if 2 * count >= shown else "Weak answer"
        stand = "stands" if count == 1 else "stand"
        return f"{how}: {count} of the {shown} strongest {stand} higher {noise}."
    return f"No clear answer: none of the {shown} strongest stands higher {noise}."


def familiar_words(explorer: Explorer, answer: Answer) -> str:
    """Return whether the model draws such images, in a sentence, "" where unknown.

    Args:
        explorer: The collection.
        answer: About the whole image, over all noise levels; its value is compared with
            those of the gallery under the same lens.
    """
    values = explorer.gallery_values(answer.lens)
    if not len(values) or not np.isfinite(answer.value):
        return ""
    below, size = int((values < answer.value).sum()), len(values)
    if below == size:
        return (
            f"All {size} images of the gallery are easier for the model than yours: it "
            "has not learned to draw such images."
        )
    if below >= size / 2:
        return f"Yours is harder for the model than {below} of its {size} own images."
    return f"The model knows such images: {size - below} of its {size} own are harder."


def not_drawn_words(answer: Answer) -> str:
    """Return what an answer about an image of one's own means, in a sentence."""
    if answer.lens.kind == "similarity":
        return "The model did not draw this image."
    return (
        "The model did not draw this image: these training images would help it most "
        "to draw yours."
    )


def trust_words(explorer: Explorer, answer: Answer) -> str:
    """Return how strong an answer about an image of one's own is, in sentences."""
    parts = strength_words(answer), familiar_words(explorer, answer)
    return " ".join(filter(None, parts))
