"""Models that jobs were promised by, read once for many jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from advisor.store.reader import Reader
from advisor.store.records import StoredModel

_MOST = 500
"""Models that are kept: each is some ten kilobytes."""


class KnownModels:
    """A Reader's models, kept until anything of any model changes in the store."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._marks: tuple[object, ...] = ()
        self._by_id: dict[int, StoredModel | None] = {}
        self._found: dict[tuple[str, str, str], list[StoredModel]] = {}

    def look(self) -> None:
        """Forget what is kept if the store has other models now."""
        marks = self._reader.marks()
        if marks != self._marks:
            self._marks = marks
            self._by_id.clear()
            self._found.clear()

    def models(self, ids: Iterable[int]) -> Iterator[StoredModel]:
        """Yield the given models whatever their state, as :meth:`Reader.models` does."""
        for number in sorted(set(ids)):
            if number not in self._by_id:
                if len(self._by_id) >= _MOST:
                    self._by_id.clear()
                self._by_id[number] = next(self._reader.models([number]), None)
            model = self._by_id[number]
            if model is not None:
                yield model

    def find_models(self, application: str, workload: str, node_type: str) -> list[StoredModel]:
        """Return the current models of a workload on a node type, as the Reader does."""
        key = (application, workload, node_type)
        if key not in self._found:
            if len(self._found) >= _MOST:
                self._found.clear()
            self._found[key] = self._reader.find_models(*key)
        return self._found[key]
