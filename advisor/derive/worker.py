"""Work out what is stale, for so long as there is time: what is left waits for the next pass.

All is worked out from one moment's view of the store, outside of any transaction. A short one
stores the result and takes the mark away, if nobody has marked it anew meanwhile; else it stays
stale. So others write while this goes on, and whoever dies here loses nothing but work.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from advisor.database import DatabaseAddress, store_at
from advisor.derive import transfers
from advisor.derive.change import Change
from advisor.derive.class_models import ModelsByClass, taught
from advisor.derive.histories import derive_histories
from advisor.derive.size_models import FamilyModels
from advisor.errors import StoreError
from advisor.store.families import line_of
from advisor.store.reader import Reader
from advisor.store.stale import Stale, clear, stale, unchanged
from advisor.store.transaction import StoreTransaction
from advisor.store.writer import Writer

log = logging.getLogger("advisor.derive")

PASS_S = 15.0
"""Seconds of processor time of one pass; what it has begun then, it ends. On a database, where most
of it is waiting, seconds of any kind: the review of the next collection waits behind it."""
_WAITS_S = 60.0
"""How long other writers are waited for in a database, where each cluster may have one."""
_MOST = 200
"""Marks that are looked at in one view of the store, since while it is held its log only grows; and
that are made in one transaction, 7 ms."""
_RUNS = """
    SELECT count(*), max(o.id) FROM observations AS o JOIN workloads AS w ON w.id = o.workload_id
    WHERE w.application = ?"""
_LESSONS = "SELECT id, mark FROM stale WHERE kind = 'lesson'"


@contextmanager
def deriving(path: Path | str, *, first: str = "") -> Iterator[Writer]:
    """Open a store to write, and derive what follows once all that is written is committed.

    What follows from the application ``first`` comes first. Raises StoreError.
    """
    waits = {"timeout_s": _WAITS_S} if isinstance(store_at(path), DatabaseAddress) else {}
    with Writer(path, **waits) as writer:
        yield writer
        derive(writer, first=first)


def derive(writer: Writer, *, budget_s: float = PASS_S, first: str = "") -> bool:
    """Bring what is stale in step, the longest first; tell whether all is.

    After ``budget_s`` seconds (:data:`PASS_S`) nothing more is begun. Must be called outside of a
    transaction. Nothing is done where another process does so, but for the application ``first``.
    What fails stays stale and is logged; so does the rest once the store cannot be read or written.
    Raises StoreError where it cannot from the start.
    """
    assert not writer.in_transaction
    with writer.deriving() as alone:
        return (alone or bool(first)) and _derive(writer, _ends(writer, budget_s), first)


def _derive(writer: Writer, is_over: Callable[[], bool], first: str) -> bool:
    failed: set[int] = set()
    try:
        current = derive_histories(writer, is_over)
    except StoreError as error:
        log.warning("event=derived-later store=%s error=%r", writer.path, str(error))
        return False
    while {m.id for m in stale(writer)} - failed:
        try:
            failed |= _round(writer, first, failed, is_over)
        except StoreError as error:
            log.warning("event=derived-later store=%s error=%r", writer.path, str(error))
            return False
        if is_over():
            return current and not stale(writer)
    return current and not failed


def _ends(writer: Writer, budget_s: float) -> Callable[[], bool]:
    """Return what tells whether a budget is spent."""
    clock = time.monotonic if isinstance(writer.path, DatabaseAddress) else time.thread_time
    until = clock() + budget_s
    return lambda: clock() >= until


def _round(
    writer: Writer, first: str, left_out: Collection[int], is_over: Callable[[], bool]
) -> set[int]:
    """Do what one view of the store shows, until then; return the marks of what failed."""
    failed: set[int] = set()
    with Reader(writer.path) as reader, writer.unsynced():  # result and mark are undone together
        reader.rows("BEGIN")  # one moment's view, until it is closed
        for task in _tasks(reader, first, left_out):
            try:
                task.run(writer)
            except StoreError:
                raise
            except Exception as error:  # what is wrong with one keeps no other from its own
                names = sorted({m.named for m in task.marks})
                log.warning("event=not-derived workloads=%r error=%r", names, error)
                failed.update(m.id for m in task.marks)
            if is_over():
                break
    return failed


@dataclass(frozen=True, slots=True)
class _Task:
    """What brings some marks in step: ``changes`` are worked out when its turn comes.

    Those of ``soon``, which are quickly known, are stored before, each part by itself. ``inputs``
    asks for more than the marks, and ``read_rows`` is what the reader saw there: what it did not
    see makes the result useless.
    """

    marks: Sequence[Stale]
    changes: Callable[[], Sequence[Change]] = tuple
    soon: Callable[[], Sequence[Sequence[Change]]] = tuple
    inputs: tuple[str, tuple[str, ...]] | None = None
    read_rows: Collection[tuple[Any, ...]] = ()

    def run(self, writer: Writer) -> None:
        """Work out, store, and take the marks away; nothing once one of them was made anew."""
        if self._is_current(writer) and all(
            self._store_changes(writer, part) for part in self.soon()
        ):
            changes = self.changes()
            self._store_changes(writer, [*changes, lambda w: clear(w, self.marks)])

    def _store_changes(self, writer: Writer, changes: Sequence[Change]) -> bool:
        with writer.transaction():
            current = self._is_current(writer)
            for change in changes if current else ():
                change(writer)
        return current

    def _is_current(self, writer: Writer) -> bool:
        """Tell whether what was read still holds."""
        if not unchanged(writer, self.marks):
            return False
        if self.inputs is None:
            return True
        return all(tuple(row) in self.read_rows for row in writer.rows(*self.inputs))


def _tasks(reader: Reader, first: str, failed: Collection[int]) -> Iterator[_Task]:
    """Yield what is to be done: lessons, from which other marks follow, then in order."""
    marks = [m for m in stale(reader) if m.id not in failed]
    marks.sort(key=lambda m: m.application != first)
    if lessons := [m for m in marks if m.kind == "lesson"]:
        yield _Task(lessons, soon=lambda: _lessons(reader, lessons))
    marks = [m for m in marks if m.kind != "lesson"][:_MOST]
    by_class = ModelsByClass(reader, {m.named for m in marks if m.kind == "class"})
    lessons_read = {tuple(row) for row in reader.rows(_LESSONS)}
    families: defaultdict[tuple[str, str], list[Stale]] = defaultdict(list)
    for m in marks:
        if m.kind == "sizes":
            families[_family(m)].append(m)
    for m in marks:
        if m.kind == "transfers":
            yield _Task([m], partial(transfers.changes, reader, *m.named))
        elif m.kind == "class":
            class_changes = partial(by_class.changes, (m.named, m.whose))
            yield _Task([m], class_changes, inputs=(_LESSONS, ()), read_rows=lessons_read)
        elif same_family := families.pop(_family(m), []):
            yield _sizes(reader, same_family)


def _lessons(reader: Reader, marks: Sequence[Stale]) -> list[list[Change]]:
    groups = taught(reader, [m.named for m in marks])
    parts = [groups[i : i + _MOST] for i in range(0, len(groups), _MOST)]
    return [[partial(StoreTransaction.touch_groups, groups=part)] for part in parts]


def _family(mark: Stale) -> tuple[str, str]:
    line = line_of(mark.workload)
    return mark.application, "" if line is None else line.family


def _sizes(reader: Reader, marks: Sequence[Stale]) -> _Task:
    application, name = _family(marks[0])
    if not name:
        return _Task(marks)
    family = FamilyModels(reader, application, name)
    inputs = _RUNS, (application,)
    return _Task(
        marks,
        family.changes,
        lambda: [family.outdated()],
        inputs,
        {tuple(row) for row in reader.rows(*inputs)},
    )
