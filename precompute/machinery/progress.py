"""Progress of long work: a bar in the terminal, and the same for observers.

The bars of all stages are of this kind. While a command has announced itself, what they
show goes into its announcement, too, so that the app can say how far it is.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from core.files.running import Announcement, announced, seconds_left

_announcements: list[Announcement] = []  # of this process: none or one


@contextmanager
def telling(folder: Path, collection: str, verb: str) -> Iterator[None]:
    """Tell observers about the bars inside a `with` block.

    Of several processes only the first does.

    Yields:
        Nothing.
    """
    if int(os.environ.get("RANK", 0)) != 0:  # torchrun's; nobody has joined yet
        yield
        return
    with announced(folder, collection, verb) as announcement:
        _announcements.append(announcement)
        try:
            yield
        finally:
            _announcements.remove(announcement)


class Bar(tqdm):
    """A progress bar with time left."""

    def display(self, *args, **kwargs):
        """Show the bar, and say the same to observers."""
        for announcement in _announcements:
            facts = self.format_dict
            total, first = facts["total"] or 0, facts["initial"]
            left = seconds_left(facts["n"] - first, total - first, facts["elapsed"])
            stage = facts["prefix"].removesuffix(": ")
            announcement.say(stage, int(facts["n"]), int(total), left)
        return super().display(*args, **kwargs)
