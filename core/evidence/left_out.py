"""Groups of training images that models were trained without: names, members, sizes."""

import numpy as np
import pandas as pd

from core.columns import joined, parted


def group_name(column: str, value: str) -> str:
    """Return how a group of images is called that was left out: "style=noto"."""
    return joined(column, "=", value)


def control_share(share: float) -> float:
    """Return the share of the images that a group's controls leave out by chance.

    Groups of nearly one size, to two digits, have their controls in common.
    """
    return float(f"{share:.2g}")


def group_members(name: str, table: pd.DataFrame) -> np.ndarray:
    """Return who is in a group, bool, shape (N,).

    Args:
        name: As `group_name` returns it.
        table: The training images' metadata, a row each.

    Raises:
        LookupError: If there is no such column, or no image with that value.
    """
    column, value = parted(name, "=")
    if column not in table:
        written = (group_name(known, "").removesuffix("=") for known in table.columns)
        raise LookupError(
            f"The images have no column '{column}'. They have {', '.join(written)}."
        )
    members = (table[column].astype(str) == value).to_numpy()
    if not members.any():
        known = sorted(table[column].astype(str).unique())
        more = f" and {len(known) - 12} more" if len(known) > 12 else ""
        raise LookupError(
            f"No image has '{value}' as its {column}. There are "
            f"{', '.join(known[:12])}{more}."
        )
    return members


def groups_left_out(measured: pd.DataFrame) -> list[str]:
    """Return the groups that a model was trained without, in order of their names."""
    removed = measured[measured["kind"] == "removed"]["method"].unique()
    return sorted(name for name in removed if "=" in name)
