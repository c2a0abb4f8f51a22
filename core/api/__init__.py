"""The Python face: build a collection, open one, ask; for notebooks and scripts.

Answers are those of the app and of the command line, to the last digit.
"""

from core.api.building import build
from core.api.opened import open_collection

__all__ = ["build", "open_collection"]
