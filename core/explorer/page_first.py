"""Whoever loads the model stands back while a page is drawn.

One thread at a time runs Python, and loading torch keeps it for seconds: a page that is
drawn meanwhile would take many times as long. So the thread that loads waits before
each import until no page is being drawn, for two seconds altogether.
"""

import importlib.abc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Pages import these, too: whoever loads one must not wait for a page that needs it.
SHARED = {"core", "numpy", "scipy", "pandas", "pyarrow", "PIL", "plotly"}
MOST = 2.0  # seconds that one thread stands back altogether

_drawn = threading.Condition()
_pages = 0  # that are being drawn
_loading = 0  # threads that stand back
_patience = threading.local()  # `left`: seconds that a thread may still stand back


@contextmanager
def page_drawn() -> Iterator[None]:
    """Draw a page inside: threads that stand back wait meanwhile."""
    global _pages
    with _drawn:
        _pages += 1
    try:
        yield
    finally:
        with _drawn:
            _pages -= 1
            _drawn.notify_all()


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
        if left > 0 and _pages and name.partition(".")[0] not in SHARED:
            start = time.monotonic()
            with _drawn:
                _drawn.wait_for(lambda: not _pages, left)
            _patience.left = left - (time.monotonic() - start)
        return None
