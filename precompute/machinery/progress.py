"""Progress of long work: a bar in the terminal, and a word to those who look on.

The bars of all stages are of this kind. While a command has announced itself, what they
show goes into its announcement, too, so that the app can say how far it is.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from core.files.running import Announcement, announced

_announcements: list[Announcement] = []  # of this process: none or one


@contextmanager
def telling(folder: Path, collection: str, verb: str) -> Iterator[None]:
    """Tell those who look on about the bars inside a `with` block.

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
        """Show the bar, and say the same to those who look on."""
        for announcement in _announcements:
            facts = self.format_dict
            total, rate = facts["total"] or 0, facts["rate"]
            if not rate and facts["elapsed"] > 0:
                rate = (facts["n"] - facts["initial"]) / facts["elapsed"]
            left = (total - facts["n"]) / rate if rate and total else None
            stage = facts["prefix"].removesuffix(": ")
            announcement.say(stage, int(facts["n"]), int(total), left)
        return super().display(*args, **kwargs)
