"""What a server loads before anybody asks for it, so that nobody waits for it.

At the server's start what pages show without the model: the browser needs a second for
itself then. The model a moment after a page was drawn, while its visitor looks at it.
"""

import importlib
import pkgutil
import threading
import time
from contextlib import suppress

REST = 2.0  # seconds from a page's end to the model; the browser draws meanwhile
_preparing = 0.0  # seconds that it took: on a slow or busy machine a browser is, too


def prepare_pages() -> None:
    """Begin to load what the first page needs, in a thread of its own."""
    threading.Thread(target=_prepare_pages, daemon=True).start()


def _prepare_pages() -> None:
    """Import every part of a page, and open the collection that is shown first."""
    global _preparing

    from pages import parts

    start = time.monotonic()
    for module in pkgutil.walk_packages(parts.__path__, f"{parts.__name__}."):
        importlib.import_module(module.name)
    with suppress(LookupError, ValueError):  # said to the visitor who asks for it
        if explorer := parts.shared.open_early():
            _ = explorer.clearest_sample
    _preparing = time.monotonic() - start


def wake_soon(explorer) -> None:
    """Let the model be loaded once the page that asks for it has been drawn."""
    if not explorer.awake:
        timer = threading.Timer(max(REST, 2 * _preparing), explorer.wake)
        timer.daemon = True
        timer.start()
