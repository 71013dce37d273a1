"""Keep what was worked out before, within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Remembered(Generic[V]):
    """Values by key; beyond ``limit`` bytes the one that was not asked for longest goes.

    Whoever puts a value in says how many bytes it takes, roughly; one that takes more than a
    tenth of the limit is not kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> V | None:
        """Return the value for ``key``, None where there is none."""
        entry = self._kept.get(key)
        if entry is None:
            return None
        self._kept.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep a value of ``size`` bytes."""
        if size > self.limit // 10:
            return
        previous = self._kept.pop(key, None)
        self.size += size - (previous[1] if previous else 0)
        self._kept[key] = value, size
        while self.size > self.limit:
            self.size -= self._kept.popitem(last=False)[1][1]
