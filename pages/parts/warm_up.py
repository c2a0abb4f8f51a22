"""What a server loads before anybody asks for it, so that nobody waits for it.

At the server's start what pages show without the model: the browser needs a second for
itself then. The model once a visitor looks at a page for a moment.
"""

import importlib
import pkgutil
import threading
import time
from contextlib import suppress

from core.explorer.page_first import wait_for_rest

FIRST = (
    "panel",
    "lens_views",
    "lens_cards",
    "filters",
    "share",
)  # parts that the first page shows
REST = 2.0  # seconds from a page's end to the model; the browser draws meanwhile
MOST = 20.0  # seconds that visitors who go from page to page put the model off
_preparing = 0.0  # seconds that it took: on a slow or busy machine a browser is, too
_resting: set[str] = set()  # fingerprints of the collections that are woken soon


def prepare_pages() -> None:
    """Begin to load what the first page needs, in a thread of its own."""
    threading.Thread(target=_prepare_pages, daemon=True).start()


def _prepare_pages() -> None:
    """Import the first page's parts, and open the collection that is shown first."""
    global _preparing

    from pages import parts

    start = time.monotonic()
    for name in FIRST:
        importlib.import_module(f"{parts.__name__}.{name}")
    with suppress(LookupError, ValueError):  # said to the visitor who asks for it
        if explorer := parts.shared.open_early():
            _ = explorer.first_image
    _preparing = time.monotonic() - start


def wake_soon(explorer) -> None:
    """Let the model be loaded once visitors have rested on a page."""
    if not explorer.awake and explorer.fingerprint not in _resting:
        _resting.add(explorer.fingerprint)
        threading.Thread(target=_load_rest, args=[explorer], daemon=True).start()


def _load_rest(explorer) -> None:
    """Import the parts of all other pages, and let the model be loaded."""
    from pages import parts

    rest, left = max(REST, 2 * _preparing), MOST
    left -= wait_for_rest(rest, left)
    for module in pkgutil.walk_packages(parts.__path__, f"{parts.__name__}."):
        left -= wait_for_rest(rest, left)
        importlib.import_module(module.name)
    explorer.wake()
    _resting.discard(explorer.fingerprint)
