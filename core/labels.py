"""Which class a person means: by its number, or by its name as pages write it."""

from collections.abc import Sequence
from difflib import get_close_matches

SHOWN = 20  # names that one sentence may list


def check_label(label: int | None, names: Sequence[str]) -> None:
    """Refuse a class that a model does not have.

    Args:
        label: The class's number, or None for no class.
        names: Of all classes by number; none for a model without classes.

    Raises:
        ValueError: If there is none of this number.
    """
    if label is None:
        return
    if not names:
        raise ValueError("The model has no classes. Omit the label.")
    if not 0 <= label < len(names):
        raise ValueError(
            f"There is no class {label}; the model has {len(names):,}, numbered 0 to "
            f"{len(names) - 1}. {_listed(names)}"
        )


def label_of(text: str, names: Sequence[str]) -> int:
    """Return the number of the class that a text names.

    The number of a class comes before a name that looks like one, as commands write
    numbers; a year is a name where there are not as many classes. A name may differ
    in letter case and white space, if only one is like it.

    Args:
        text: A number, or a name such as "noto, food-fruit".
        names: As for `check_label`.

    Raises:
        ValueError: If there is no such class.
    """
    text = text.strip()
    number = int(text) if text.removeprefix("-").isdecimal() else 0
    if str(number) == text and (number in range(len(names)) or text not in names):
        check_label(number, names)
        return number
    check_label(0, names)  # any are there
    if text in names:
        return list(names).index(text)
    alike = [i for i, name in enumerate(names) if _plain(name) == _plain(text)]
    if len(alike) == 1:
        return alike[0]
    raise ValueError(f"There is no class '{text}'. {_listed(names, text)}")


def _plain(name: str) -> str:
    """Return a name without what people write now so, now otherwise."""
    return "".join(name.casefold().split())


def _listed(names: Sequence[str], like: str = "") -> str:
    """Return which classes there are, in a sentence; of many those like a text."""
    if len(names) <= SHOWN:
        return f"Choose one of: {'; '.join(names)}."
    near = get_close_matches(like, names, 5, 0.4) or names[:5]
    return f"Of its {len(names):,}, for example: {'; '.join(near)}."
