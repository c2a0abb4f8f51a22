"""Whoever loads the model stands back while a page is drawn.

One thread at a time runs Python, and loading torch keeps it for seconds: a page that is
drawn meanwhile would take many times as long. So the thread that loads waits before
each import until no page is being drawn and the browser has shown the last one, for ten
seconds altogether.
"""

import importlib.abc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Pages import these, too: whoever loads one must not wait for a page that needs it.
SHARED = {"core", "numpy", "scipy", "pandas", "pyarrow", "PIL", "plotly"}
MOST = 10.0  # seconds that one thread stands back altogether
SETTLE = 0.4  # seconds from a page's end until the browser shows it and takes a click

_drawn = threading.Condition()
_pages = 0  # that are being drawn
_last = -float("inf")  # when the last page ended
_loading = 0  # threads that stand back
_patience = threading.local()  # `left`: seconds that a thread may still stand back


@contextmanager
def page_drawn() -> Iterator[None]:
    """Draw a page inside: threads that stand back wait meanwhile."""
    global _pages, _last
    with _drawn:
        _pages += 1
    try:
        yield
    finally:
        with _drawn:
            _pages -= 1
            _last = time.monotonic()
            _drawn.notify_all()


def wait_for_rest(rest: float, most: float) -> float:
    """Wait until no page is drawn and some time has passed since the last one.

    Args:
        rest: Seconds from the end of the last page.
        most: Seconds to wait at most.

    Returns:
        The seconds that it took.
    """
    start = time.monotonic()
    with _drawn:
        while True:
            end = start + most if _pages else min(_last + rest, start + most)
            if (now := time.monotonic()) >= end:
                return now - start
            _drawn.wait(end - now)


@contextmanager
def standing_back() -> Iterator[None]:
    """Import inside, before each module waiting for the pages that are being drawn."""
    global _loading
    if not any(isinstance(finder, _Gate) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Gate())
    _patience.left = MOST
    with _drawn:
        _loading += 1
    try:
        yield
    finally:
        _patience.left = 0.0
        with _drawn:
            _loading -= 1


def is_loading() -> bool:
    """Return whether a thread is loading, so that no quick answer can be expected."""
    return _loading > 0


class _Gate(importlib.abc.MetaPathFinder):
    """Finds no module; asked first, it lets threads that stand back wait."""

    def find_spec(self, name, path=None, target=None):
        """Wait where a page is being drawn; return None."""
        left = getattr(_patience, "left", 0.0)
        if left > 0 and name.partition(".")[0] not in SHARED:
            _patience.left = left - wait_for_rest(SETTLE, left)
        return None
