"""The look: every text can be read, and + and - are told apart by every eye."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from core.report import card, figures

ROOT = Path(__file__).resolve().parents[2]
THEME = tomllib.loads((ROOT / ".streamlit/config.toml").read_text())["theme"]
BOTH = ("light", "dark")
AA, AA_LARGE = 4.5, 3.0  # WCAG 2.2: text, and what is large or no text
CAPTION = 0.6  # the share of the text colour in Streamlit's captions
# Brettel-like simulation for those without one kind of cone (Viénot et al. 1999), in
# linear sRGB.
MISSING = {
    "protanopia": [
        [0.11238, 0.88762, 0],
        [0.11238, 0.88762, 0],
        [0.00401, -0.00401, 1],
    ],
    "deuteranopia": [
        [0.29275, 0.70725, 0],
        [0.29275, 0.70725, 0],
        [-0.02234, 0.02234, 1],
    ],
}


def linear(colour: str) -> np.ndarray:
    """Return a hexadecimal colour as linear sRGB in [0, 1]."""
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    values = np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(
        values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4
    )


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours by WCAG, 1 to 21."""
    lights = [float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (first, second)]
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def mixed(front: str, back: str, share: float) -> str:
    """Return a translucent colour on a ground, as a browser mixes it."""
    front, back = (
        np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in (front, back)
    )
    seen = (share * front + (1 - share) * back).round().astype(int)
    return "#" + "".join(f"{value:02x}" for value in seen)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Return linear sRGB as CIE L*a*b*, in which equal steps look equal."""
    to_xyz = [
        [0.4124, 0.3576, 0.1805],
        [0.2126, 0.7152, 0.0722],
        [0.0193, 0.1192, 0.9505],
    ]
    ratio = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("ground", ["backgroundColor", "secondaryBackgroundColor"])
def test_every_text_stands_out_from_its_ground(mode, ground):
    theme = THEME[mode]
    text = [theme[name] for name in theme if name.endswith(("TextColor", "linkColor"))]
    text += [theme["textColor"], theme["linkColor"]]
    text.append(mixed(theme["textColor"], theme[ground], CAPTION))
    for colour in text:
        assert contrast(colour, theme[ground]) >= AA, (colour, theme[ground])


@pytest.mark.parametrize("mode", BOTH)
def test_marks_in_figures_stand_out(mode):
    """Lines and bars are no text: three to one is asked of them."""
    for colour in (*figures.SERIES[:3], THEME[mode]["primaryColor"]):
        assert contrast(colour, THEME[mode]["backgroundColor"]) >= AA_LARGE, colour


def test_card_can_be_read():
    for colour in (card.TEXT, card.FAINT, card.ACCENT):
        assert contrast(colour, card.GROUND) >= AA, colour


def test_matrix_text_is_black_or_white_by_what_stands_out():
    """The lightness at which the style sheet changes sides leaves 4.5 on both."""
    for grey in range(256):
        ground = f"#{grey:02x}{grey:02x}{grey:02x}"
        dark = lab(linear(ground))[0] > 49.44
        assert contrast(ground, "#000000" if dark else "#ffffff") >= AA, ground
    assert "49.44" in (ROOT / "pages/parts/matrix.css").read_text()


@pytest.mark.parametrize("missing", [None, *MISSING])
def test_plus_and_minus_differ_for_every_eye(missing):
    """In figures and in titles of strips; 20 is a difference seen at a glance."""
    pairs = [(figures.ACCENT, figures.MARKER)]
    pairs += [(THEME[m]["greenTextColor"], THEME[m]["orangeTextColor"]) for m in BOTH]
    pairs += [(THEME[m]["primaryColor"], THEME[m]["orangeTextColor"]) for m in BOTH]
    see = np.eye(3) if missing is None else np.array(MISSING[missing])
    for first, second in pairs:
        seen = [lab(see @ linear(colour)) for colour in (first, second)]
        assert np.linalg.norm(seen[0] - seen[1]) > 20, (first, second)
