"""A cache by size: what was not asked for the longest goes first."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class Recent:
    """Results by what they depend on; those not asked for the longest go first.

    Args:
        room: What the kept results may measure together; the latest always stays.
        measure: What one result measures.
    """

    def __init__(self, room: float, measure: Callable[[Any], float]):
        self._room, self._measure = room, measure
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result for a key, making it where it is not kept."""
        if key not in self._kept:
            self._kept[key] = make()
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and self._used() > self._room:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _used(self) -> float:
        return sum(map(self._measure, self._kept.values()))
