"""What the store has of a user's jobs at each configuration of a workload, asked for many at once.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeVar

from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.signature_groups import Named
from advisor.store.transaction import StoreTransaction

WhoseWorkload = tuple[str, str, str]
"""Application, workload and user."""
PlaceOfJobs = tuple[object, ...]
"""A :data:`WhoseWorkload` and the configuration's fields, :data:`rows.PLACE`."""


class JobsThere(NamedTuple):
    """How many rows there are, the number of the oldest, and when the newest was stored."""

    rows: int = 0
    oldest: int | None = None
    newest: str = ""


_AT_ONCE = 300
"""Workloads that one query names: an older SQLite takes 999 values, of which each has three."""
_T = TypeVar("_T", bound=tuple[str, ...])


def _parts(wanted: Collection[_T]) -> Iterator[list[_T]]:
    in_order = iter(sorted(wanted))
    while part := list(islice(in_order, _AT_ONCE)):
        yield part


class JobPlaces:
    """What a table has of jobs from one source, by their :data:`PlaceOfJobs`, asked once for each.

    Who adds or takes away a row says so by :meth:`put`.
    """

    def __init__(
        self, reader: Reader, table: Literal["observations", "signatures"], source: str
    ) -> None:
        self._reader, self._table, self._source = reader, table, source
        self._there: dict[PlaceOfJobs, JobsThere] = {}
        self._asked: set[WhoseWorkload] = set()

    def look(self, whose: Collection[WhoseWorkload]) -> None:
        """Ask for all configurations of some users' workloads, a batch of jobs' at most."""
        for new in _parts(set(whose) - self._asked):
            self._look(new)

    def _look(self, new: Sequence[WhoseWorkload]) -> None:
        self._asked.update(new)
        place = ", ".join(f"t.{name}" for name in _rows.PLACE)
        key = f"w.application, w.name, t.contributor, {place}"
        rows = self._reader.rows(
            "WITH asked (application, workload, whose) AS"
            f" (VALUES {', '.join(['(?, ?, ?)'] * len(new))})"
            f" SELECT {key}, count(*), min(t.id), max(t.created_at) FROM {self._table} AS t"
            " JOIN workloads AS w ON w.id = t.workload_id JOIN asked AS a"
            " ON a.application = w.application AND a.workload = w.name AND a.whose = t.contributor"
            f" WHERE t.source = ? AND t.job_id <> '' GROUP BY {key}",
            (*chain.from_iterable(new), self._source),
        )
        for *place_key, count, oldest, newest in rows:
            self._there.setdefault(tuple(place_key), JobsThere(count, oldest, newest))

    def at(self, place: PlaceOfJobs) -> JobsThere:
        """Return what is at a place."""
        if place not in self._there and place[:3] not in self._asked:
            application, workload, user = map(str, place[:3])
            self.look([(application, workload, user)])
        return self._there.get(place, JobsThere())

    def put(self, place: PlaceOfJobs, there: JobsThere) -> None:
        """Note what is at a place from now on."""
        self._there[place] = there

    def forget(self, place: PlaceOfJobs) -> None:
        """Have a workload of a user asked for anew."""
        self._asked.discard(place[:3])
        self._there = {key: value for key, value in self._there.items() if key[:3] != place[:3]}


class WorkloadNumbers:
    """The numbers of workloads in the store, asked once for each while nobody else writes."""

    def __init__(self, writer: StoreTransaction) -> None:
        self._writer = writer
        self._numbers: dict[Named, int] = {}
        self._version: object = None

    def look(self, named: Collection[Named]) -> None:
        """Ask for some at once, inside the transaction that uses them."""
        version = self._writer.data_version()
        if version != self._version:  # somebody else wrote: a workload may be forgotten
            self._version = version
            self._numbers.clear()
        for new in _parts(set(named) - self._numbers.keys()):
            rows = self._writer.rows(
                f"WITH asked (application, name) AS (VALUES {', '.join(['(?, ?)'] * len(new))})"
                " SELECT w.id, w.application, w.name FROM asked AS a JOIN workloads AS w"
                " ON w.application = a.application AND w.name = a.name WHERE w.hidden = 0",
                tuple(chain.from_iterable(new)),
            )
            self._numbers |= {(row[1], row[2]): row[0] for row in rows}

    def number(self, named: Named) -> int:
        """Return a workload's number; it is made or shown again where needed."""
        if named not in self._numbers:
            with self._writer.transaction() as db:
                self._numbers[named] = self._writer.workload_id(db, *named)
        return self._numbers[named]

    def drop(self) -> None:
        """Forget all: what made some of them is undone."""
        self._numbers.clear()
