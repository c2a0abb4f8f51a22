"""Images as users have them: one function that finds out what lies at a path.

`find_source` decides by content which of the known layouts a file or a folder has, and
returns a `Source` whose records are read one at a time, so that memory stays flat
however many there are. Knows nothing of models or of training.
"""

from core.data.sources.detect import find_source, opened
from core.data.sources.records import Record, Source, selected

__all__ = ["Record", "Source", "find_source", "opened", "selected"]
