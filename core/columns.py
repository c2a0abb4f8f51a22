"""Where columns that a user named meet columns that this program named.

A data set's columns may be called anything, "score", "label" and "id" too. Inside the
program the two never share a table: `Explorer.examples` and `Explorer.classes` hold
only users' columns, `Explorer.gallery` and `Query.facts` only ours. Whatever leaves the
program as one table, or as one text, is put together here. Does not know what any
column means.
"""

from collections.abc import Iterable

import pandas as pd

ORIGIN = "source_"  # goes before a user's column where its own name is taken


def free_names(users: Iterable[str], ours: Iterable[str]) -> dict[str, str]:
    """Return how each of a user's columns is called in a table that has ours too.

    A column keeps its name where that is free, and is otherwise called "source_NAME",
    with the prefix again for as long as that is taken too. No two get one name.
    """
    users, ours = list(dict.fromkeys(users)), set(ours)
    taken, names = ours | set(users), {}
    for column in users:
        names[column] = column
        if column in ours:
            while names[column] in taken:
                names[column] = ORIGIN + names[column]
            taken.add(names[column])
    return names


def beside(ours: pd.DataFrame, users: pd.DataFrame) -> pd.DataFrame:
    """Return a table of our columns with the user's after them, a row per example.

    Args:
        ours: Indexed by example id under a name, which becomes the first column.
        users: Metadata, indexed by example id; has every id of `ours`.

    Returns:
        The rows in the order of `ours`; the user's columns as `free_names` calls them.
    """
    rows = users.loc[ours.index].reset_index(drop=True)
    ours = ours.reset_index()
    rows.columns = list(free_names(rows.columns, ours.columns).values())
    return pd.concat([ours, rows], axis=1)


def joined(column: str, separator: str, value: object) -> str:
    """Return one text for a column and a value, such as "style=noto".

    Args:
        column: Of a user; the separator inside of it is escaped, as in an address.
        separator: A single sign.
        value: As text it may hold the separator.
    """
    escape = f"%{ord(separator):02X}"
    safe = column.replace("%", "%25").replace(separator, escape)
    return f"{safe}{separator}{value}"


def parted(text: str, separator: str) -> tuple[str, str]:
    """Return the column and the value that `joined` made one text of."""
    column, _, value = text.partition(separator)
    escape = f"%{ord(separator):02X}"
    return column.replace(escape, separator).replace("%25", "%"), value
