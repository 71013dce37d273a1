"""Finished jobs as reports count them: a few facts of each outcome, not the whole decision again.

There may be millions, so what a report does not count is not worked out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.decision import against, number_or_none, read_configuration
from advisor.loop.outcomes import unmetered_promise
from advisor.loop.verdict import PromiseInterval, interval_of
from advisor.store import rows as _rows
from advisor.store.reader import Reader

_PAGE = 2000
_JOBS = (
    "SELECT rowid, job_id, state, nodes, time_s, energy_j, verdict, record FROM outcomes"
    " WHERE rowid > ? AND submitted_at >= ? AND (? = '' OR user = ?) AND decision_id <> ''"
    f" ORDER BY rowid LIMIT {_PAGE}"
)
_PINNED = frozenset({"pinned", "baseline-nearest"})


@dataclass(slots=True)
class ReportedJob:
    """One outcome: what was measured, and of its ``record`` what every report asks.

    ``changed``: the job was rewritten; ``trust``: how far its decision is trusted; ``codes``: the
    decision's reasons; ``seen``: how it ran; ``base_time_s`` and ``base_energy_j``: what the model
    expected of the job as it was written.
    """

    state: str
    nodes: int
    time_s: float | None
    energy_j: float | None
    verdict: str
    record: Mapping[str, Any]
    changed: bool
    trust: object
    codes: Sequence[str]
    seen: Mapping[str, Any]
    base_time_s: float | None
    base_energy_j: float | None

    def text(self, key: str) -> str:
        """Return a text of the record, "" without one."""
        return str(self.record.get(key) or "")

    @property
    def chosen(self) -> bool:
        """Whether its decision chose a configuration."""
        return read_configuration(self.record.get("chosen")) is not None

    def promised(self) -> tuple[PromiseInterval | None, PromiseInterval | None]:
        """Return the promised time and energy, None where nothing was promised."""
        if not self.chosen:
            return None, None
        promise = self._promise()
        return (
            interval_of(*against(promise.get("time_s"), self.base_time_s)),
            interval_of(*against(promise.get("energy_j"), self.base_energy_j)),
        )

    @property
    def unmetered(self) -> bool:
        """Whether its promised energy cannot be held against a metered one."""
        quality = str(self._promise().get("energy_quality") or "missing")
        return unmetered_promise(quality, self.codes)

    def _promise(self) -> Mapping[str, Any]:
        promise = self.record.get("promised")
        return promise if isinstance(promise, dict) else {}

    @property
    def comparable(self) -> bool:
        """Whether it can be compared with others: ended well, ran as decided, not pinned."""
        return (
            self.state == "COMPLETED"
            and not self.record.get("mismatch")
            and self.seen.get("whole_nodes") is not False
            and not self.seen.get("step_failed")
            and _PINNED.isdisjoint(self.codes)
            and bool(self.base_time_s)
        )

    @property
    def coarseness(self) -> float:
        """The accounting's resolution of its time as a fraction of it."""
        return float(self.seen.get("resolution_s") or 0.0) / self.time_s if self.time_s else 0.0


def reported_jobs(
    reader: Reader, since: str, user: str = "", *, newest: int | None = None
) -> Iterator[ReportedJob]:
    """Yield the decided jobs submitted since a moment, of one user or all; a page at a time.

    ``newest``: only among so many jobs, those that were stored last.
    """
    last = -1
    if newest is not None:
        last = (reader.rows("SELECT max(rowid) FROM outcomes")[0][0] or 0) - newest
    while rows := reader.rows(_JOBS, (last, since, user, user)):
        yield from map(_job, rows)
        last = rows[-1]["rowid"]


def _job(row: sqlite3.Row) -> ReportedJob:
    _, job_id, state, nodes, time_s, energy_j, verdict, text = row
    record = _rows.from_json(text, f"outcome of job {job_id}")
    get = record.get
    codes, seen, cost = get("reasons"), get("ran"), get("baseline")
    base = cost if isinstance(cost, dict) else {}
    return ReportedJob(
        state,
        nodes,
        time_s,
        energy_j,
        verdict,
        record,
        bool(get("changed")),
        get("trust"),
        list(map(str, codes)) if isinstance(codes, list) else (),
        seen or {},
        number_or_none(base.get("time_s")),
        number_or_none(base.get("energy_j")),
    )
