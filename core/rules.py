"""What a value may be: rules that say what they expect in words.

Knows values, not settings: which rule a setting has is in `core.checks`.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, Protocol


class Rule(Protocol):
    """Which values a setting may have."""

    def allows(self, value: Any) -> bool:
        """Return whether it may have this one."""

    def expected(self) -> str:
        """Return in words which it may have."""


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`, both included; None sets no bound."""

    least: int | None = None
    most: int | None = None
    step: int = 1

    def allows(self, value: Any) -> bool:
        """Return whether the value is one."""
        return (
            type(value) is int
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and value % self.step == 0
        )

    def expected(self) -> str:
        """Return what is."""
        kind = "a whole number" if self.step == 1 else f"a multiple of {self.step}"
        return kind + _bounds(self.least, self.most)


@dataclass(frozen=True)
class Number:
    """A finite number from `least` to `most`, both included but for `above`, `below`.

    Attributes:
        least: Lower bound.
        most: Upper bound; None is none.
        above: Whether it must be more than `least`.
        below: Whether it must be less than `most`.
    """

    least: float
    most: float | None = None
    above: bool = False
    below: bool = False

    def allows(self, value: Any) -> bool:
        """Return whether the value is one."""
        if type(value) not in (int, float) or not math.isfinite(value):
            return False
        low = value > self.least if self.above else value >= self.least
        if self.most is None:
            return low
        return low and (value < self.most if self.below else value <= self.most)

    def expected(self) -> str:
        """Return what is."""
        bounds = f"{'above' if self.above else 'of at least'} {self.least:g}"
        if self.most is not None:
            bounds += f" and {'below' if self.below else 'at most'} {self.most:g}"
        return f"a number {bounds}"


def _bounds(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    return f" from {least:,g} up" if most is None else f" from {least:,g} to {most:,g}"


@dataclass(frozen=True)
class OneOf:
    """One of some values."""

    values: tuple

    def allows(self, value: Any) -> bool:
        """Return whether the value is one."""
        return any(type(value) is type(one) and value == one for one in self.values)

    def expected(self) -> str:
        """Return what is."""
        *others, last = [
            str(one).lower() if isinstance(one, bool) else str(one)
            for one in self.values
        ]
        return f"{', '.join(others)} or {last}" if others else last


SWITCH = OneOf((True, False))


@dataclass(frozen=True)
class Text:
    """A text, of a form where one is given."""

    form: str = ""
    words: str = "a text"

    def allows(self, value: Any) -> bool:
        """Return whether the value is one."""
        return isinstance(value, str) and (
            not self.form or re.fullmatch(self.form, value) is not None
        )

    def expected(self) -> str:
        """Return what is."""
        return self.words


@dataclass(frozen=True)
class OrNone:
    """What a rule allows, or none."""

    rule: Rule

    def allows(self, value: Any) -> bool:
        """Return whether the value is that."""
        return value is None or self.rule.allows(value)

    def expected(self) -> str:
        """Return what is."""
        return f"{self.rule.expected()}, or none"


@dataclass(frozen=True)
class Several:
    """A list whose entries a rule allows, at least so many."""

    rule: Rule
    least: int = 0

    def allows(self, value: Any) -> bool:
        """Return whether the value is that."""
        return (
            isinstance(value, tuple)
            and len(value) >= self.least
            and all(map(self.rule.allows, value))
        )

    def expected(self) -> str:
        """Return what is."""
        at_least = f" of at least {self.least}" if self.least else ""
        return f"a list{at_least}, each {self.rule.expected()}"


@dataclass(frozen=True)
class Selected:
    """Pairs of a column and its allowed values."""

    def allows(self, value: Any) -> bool:
        """Return whether the value is that."""
        texts = Several(Text(), 1)
        return isinstance(value, tuple) and all(
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and texts.allows(pair[1])
            for pair in value
        )

    def expected(self) -> str:
        """Return what is."""
        return "columns with their allowed values, as --keep COLUMN=VALUE,... gives"


def written(value: Any) -> str:
    """Return a value as `--set` takes it."""
    if isinstance(value, tuple):
        return ",".join(map(written, value)) or "empty"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)
