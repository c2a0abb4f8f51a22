"""Whoever loads the model stands back while a page is drawn.

One thread at a time runs Python, and loading torch keeps it for seconds: a page that is
drawn meanwhile would take many times as long. So the thread that loads waits before
each import until no page is being drawn and the browser has shown the last one, for
some seconds altogether. A browser that waits for a result looks after it as soon as the
page is shown; of others nothing is heard, so a while must do.
"""

import _imp
import importlib.abc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from core.answers import Progress

# What only the model and the map load: a page that needed what is held back would wait
# for the thread that waits for it.
HEAVY = set(
    "accelerate diffusers ftfy functorch huggingface_hub joblib llvmlite mpmath numba "
    "openTSNE open_clip peft sklearn sympy timm tokenizers torch torchgen torchvision "
    "transformers triton".split()
)
MOST = 20.0  # seconds that one thread stands back altogether
SETTLE = 2.0  # seconds from a page's end until a browser that says nothing shows it
PATIENCE = 2.0  # seconds that a question lets pages go first

_drawn = threading.Condition()
_pages = 0  # that are being drawn
_last = -float("inf")  # when the last page ended
_is_shown = False  # whether a browser was heard of since
_loading = 0  # threads that stand back
_patience = threading.local()  # `left`: seconds that a thread may still stand back


@contextmanager
def page_drawn() -> Iterator[None]:
    """Draw a page inside: threads that stand back wait meanwhile."""
    global _pages, _last, _is_shown
    with _drawn:
        _pages += 1
        _is_shown = False
    try:
        yield
    finally:
        with _drawn:
            _pages -= 1
            _last = time.monotonic()
            _drawn.notify_all()


def page_shown() -> None:
    """Note that a browser shows the last page, and waits there for a result."""
    global _is_shown
    with _drawn:
        _is_shown = _pages == 0
        _drawn.notify_all()


def wait_for_rest(rest: float, most: float) -> float:
    """Wait until no page is drawn and the last one is shown, or was some time ago.

    Args:
        rest: Seconds from the end of the last page.
        most: Seconds to wait at most.

    Returns:
        The seconds that it took.
    """
    start = time.monotonic()
    with _drawn:
        while True:
            rested = start if _is_shown else _last + rest
            end = start + most if _pages else min(rested, start + most)
            if (now := time.monotonic()) >= end:
                return now - start
            _drawn.wait(end - now)


def let_pages_go_first(progress: Progress, doing: str) -> None:
    """Wait a moment for pages; the question of who went to another one stops here.

    Args:
        progress: Of the question; may raise to stop.
        doing: What comes next, in words.
    """
    wait_for_rest(SETTLE, PATIENCE)
    progress(0, 1, doing)


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
        if left > 0 and _is_heavy(name) and _holds_only_heavy_modules():
            with _other_imports_allowed():
                _patience.left = left - wait_for_rest(SETTLE, left)
        return None


def _is_heavy(name: str) -> bool:
    """Return whether no page imports a module."""
    return name.partition(".")[0] in HEAVY


def _holds_only_heavy_modules() -> bool:
    """Return whether no page may wait for a module that this thread is importing.

    Those in `core` that import heavy ones are not a page's, as `tests/test_layers.py`
    has it.
    """
    frame = sys._getframe()
    while frame := frame.f_back:
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>" and not _is_heavy(name):
            if not name.startswith("core."):
                return False
    return True


@contextmanager
def _other_imports_allowed() -> Iterator[None]:
    """Let other threads import inside, though Python looks for a module here.

    It holds a lock meanwhile that every import takes, also a page's.
    """
    held = 0
    with suppress(RuntimeError):  # that this thread does not hold it any more
        while True:
            _imp.release_lock()
            held += 1
    try:
        yield
    finally:
        for _ in range(held):
            _imp.acquire_lock()
