"""An image forming out of noise, played in the browser: the page Timesteps.

All frames go there once; its slider, its play button and its arrow keys change nothing
here. Every row has the same order: noise on the left, detail on the right.
"""

from dataclasses import replace

import numpy as np

from core.answers import BandAnswers, Forming
from core.explorer.explorer import Explorer
from core.explorer.stored_levels import ROWS, TOPS
from core.files import images
from core.report import comparison, figures, levels
from pages.parts import components

_mount = components.component("player")


def frames(forming: Forming, num_timesteps: int) -> list[dict]:
    """Return what the browser shows of every noise level, the noisiest first.

    Args:
        forming: The image at the levels.
        num_timesteps: T, how many levels the model has.
    """
    found = []
    for place, timestep in enumerate(forming.timesteps):
        stage, words = levels.stage_of(timestep, num_timesteps)
        found.append({
            "stage": stage,
            "words": f"{stage}: {words}.",
            "noise": share_words(forming.noise[place]),
            "noisy": images.data_uri(images.preview(forming.noisy[place])),
            "expected": images.data_uri(images.preview(forming.expected[place])),
        })
    return found


def share_words(share: float) -> str:
    """Return how much of an image is noise; the noisiest level is never all noise."""
    return "over 99% noise" if share > 0.99 else f"{share:.0%} noise"


def noisiest_first(bands: BandAnswers) -> BandAnswers:
    """Return the bands in the order of the page; the edges descend, too."""
    return replace(
        bands,
        edges=bands.edges[::-1],
        scores=bands.scores[::-1],
        standard_errors=bands.standard_errors[::-1],
        values=bands.values[::-1],
    )


def band_words(bands: BandAnswers, place: int, size: int) -> list[str]:
    """Return an image's predicted change at every level, in words, with its error.

    Args:
        bands: The scores.
        place: Of the image among theirs.
        size: N, how many training images there are.
    """
    scores, errors = bands.scores[:, place], bands.standard_errors[:, place]
    return figures.hover_numbers(scores / size, errors / size)


def is_sure(bands: BandAnswers) -> np.ndarray:
    """Return which scores are beyond two standard errors of zero, shape (B, N)."""
    return ~(np.abs(bands.scores) < 2 * bands.standard_errors)


def show(
    explorer: Explorer, shown: list[dict], bands: BandAnswers | None, key: str
) -> int | None:
    """Show the frames, and what each training image did at them where that is known.

    Args:
        explorer: The collection.
        shown: Of `frames`.
        bands: The influence at the same levels; None while it is computed.
        key: The component's key.

    Returns:
        The training image that was clicked just now, or None.
    """
    pictures, rows = {}, []
    if bands is not None:
        bands = noisiest_first(bands)
        sure = is_sure(bands)
        tops = comparison.band_tops(bands.scores, TOPS)
        strongest = comparison.strongest_over_bands(bands.scores, ROWS)
        ids = bands.example_ids
        wanted = np.unique(np.concatenate([tops.ravel(), strongest]))
        components.example_uris(explorer, ids[wanted].tolist())
        pictures = {
            str(ids[i]): components.example_tile(explorer, int(ids[i])) for i in wanted
        }
        shown = [
            frame
            | {"tops": [{"id": int(ids[i]), "sure": bool(sure[b, i])} for i in tops[b]]}
            for b, frame in enumerate(shown)
        ]
        heights = levels.signed_roots(bands.scores[:, strongest])
        rows = [
            {
                "id": int(ids[place]),
                "bars": [
                    {
                        "height": round(float(heights[band, row]), 3),
                        "change": words,
                        "sure": bool(sure[band, place]),
                    }
                    for band, words in enumerate(
                        band_words(bands, int(place), explorer.num_examples)
                    )
                ],
            }
            for row, place in enumerate(strongest)
        ]
    result = _mount(
        key=key,
        data={"frames": shown, "pictures": pictures, "rows": rows},
        on_picked_change=lambda: None,
    )
    return result.picked
