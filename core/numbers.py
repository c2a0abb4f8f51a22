"""How a number is printed: sizes, changes, errors, durations; one way for each."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from core.files.texts import minus


def listed(words: Iterable[str]) -> str:
    """Return phrases as one: "a, b and c"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def size_of(num_bytes: float) -> str:
    """Return bytes in thousands or millions, e.g. "12.3 kB"."""
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.3g} kB"
    return f"{num_bytes / 1e6:.3g} MB"


def change_of(value: float, error: float) -> str:
    """Return a change with its sign, to two digits of its error, "+0.302 ± 0.012"."""
    if not np.isfinite(error) or error <= 0:
        return minus(f"{value:+.3g}")
    digits = max(1 - int(np.floor(np.log10(error))), 0)
    return minus(f"{value:+,.{digits}f} ± {error:,.{digits}f}")


def number(value: float) -> str:
    """Return a correlation with two digits, e.g. "−0.04"."""
    return minus(f"{round(float(value), 2) + 0.0:.2f}")  # no "-0.00"


def plus_minus(value: float, error: float) -> str:
    """Return a correlation with its standard error; no error, no ±."""
    return f"{number(value)} ± {error:.2f}" if np.isfinite(error) else number(value)


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Scale:
    """How the scores of one answer are printed.

    Attributes:
        factor: A printed number is the score times this.
        exponent: The power of ten left out of the printed numbers, 0 for similarities.
        decimals: Digits after the point.
        signed: Whether a positive number carries its plus sign.
    """

    factor: float
    exponent: int
    decimals: int
    signed: bool

    @property
    def unit(self) -> str:
        """The factor to read behind a printed number: "" or "×10⁻³"."""
        power = str(self.exponent).translate(SUPERSCRIPTS)
        return f"×10{power}" if self.exponent else ""

    def number(self, score: float) -> str:
        """Return a score as it is printed, e.g. "+4.81"."""
        value = round(score * self.factor, self.decimals) + 0.0  # no "-0.00"
        sign = "+" if self.signed and value > 0 else ""
        return minus(f"{sign}{value:.{self.decimals}f}")

    def error(self, standard_error: float) -> str:
        """Return a standard error as it is printed, "" where the method has none."""
        if not math.isfinite(standard_error):
            return ""
        return f"± {standard_error * self.factor:.{self.decimals}f}"


def signed_scale(largest: float, size: int = 1) -> Scale:
    """Return the scale on which a number over a size has three digits.

    Args:
        largest: The largest magnitude to print.
        size: What every number is divided by.
    """
    largest = float(largest) / size
    if not 0 < largest < math.inf:
        return Scale(1 / size, 0, 2, signed=True)
    exponent = 3 * math.floor(math.log10(largest) / 3)
    if 0.1 <= largest < 1:
        exponent = 0  # 0.500 reads better than 500 thousandths
    digits_before = math.floor(math.log10(largest)) - exponent + 1  # 1, 2 or 3
    factor = 10.0**-exponent / size
    return Scale(factor, exponent, 3 - digits_before, signed=True)


def plain(value: float) -> str:
    """Return a number with about three digits and no exponent, e.g. "3,087"."""
    return minus(f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}")


def signed(value: float) -> str:
    """Return a correlation as it is printed, e.g. "+0.85"."""
    return minus(f"{value:+.2f}")


def measured(value: float, error: float) -> str:
    """Return a value with its standard error, to the same digits; no error, no ±."""
    digits = 0 if abs(value) >= 100 else 2
    text = minus(f"{value:,.{digits}f}")
    return f"{text} ± {error:,.{digits}f}" if math.isfinite(error) else text


def duration(seconds: float) -> str:
    """Return a number of seconds in words that suit its size."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size(num_bytes: float) -> str:
    """Return a number of bytes in words that suit its size."""
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} GB"


def clock(seconds: float) -> str:
    """Return a time as a person reads it: 40 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
