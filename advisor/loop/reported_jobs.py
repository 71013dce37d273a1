"""Finished jobs as reports count them: a few facts of each outcome, not the whole decision again.

There may be millions, so SQLite takes from each record what reports ask, and a decision that many
jobs had is read once. Numbers come as the record has them; SQLite might round the last bit away.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from advisor.core.decision import against, number_or_none, read_configuration
from advisor.core.reasons import ESTIMATED, KINDS, STEP_PLAN, TRIALS
from advisor.loop.outcomes import unmetered_promise
from advisor.loop.verdict import PromiseInterval, interval_of
from advisor.store import rows as _rows
from advisor.store.port import ResultRow
from advisor.store.reader import Reader
from advisor.store.records import Outcome
from advisor.store.rows import OutcomeKey

_KEPT = 4096
"""Decisions that are kept read, each a few hundred bytes: as many as jobs had that differ."""
_DECIDED = (
    "application",
    "workload",
    "trust",
    "changed",
    "holdout",
    "reasons",
    "baseline",
    "chosen",
    "promised",
    "cold_start",
)
_RAN = (
    "elapsed_s",
    "partition",
    "mismatch",
    "notes[0]",
    "ran.energy_note",
    "ran.whole_nodes",
    "ran.step_failed",
    "ran.resolution_s",
    "ran.energy_gpu_j",
    "ran.gpu_note",
)


def _parts(names: Sequence[str]) -> str:
    """Return how SQLite takes some parts of a record, as one JSON array."""
    paths = ", ".join(f"'$.{name}'" for name in names)
    return f"json_extract(record, {paths})"


_COLUMNS = (
    "job_id, scheduler, cluster, state, nodes, time_s, energy_j, verdict, json_type(record),"
    f" {_parts(_DECIDED)}, {_parts(_RAN)}"
)
_JOBS = (
    f"SELECT submitted_at, rowid, {_COLUMNS} FROM outcomes WHERE submitted_at >= ?"
    " AND (submitted_at, rowid) > (?, ?) AND submitted_at < ? AND decision_id <> '' {more}"
    " ORDER BY submitted_at, rowid LIMIT {page}"
)
_NEWEST = (
    f"SELECT submitted_at, rowid, {_COLUMNS} FROM outcomes WHERE rowid > ? AND submitted_at >= ?"
    f" AND decision_id <> '' {{more}} ORDER BY rowid LIMIT {{page}}"
)
_NAMED = (
    f"SELECT submitted_at, rowid, {_COLUMNS} FROM outcomes"
    " WHERE job_id IN (SELECT value FROM json_each(?)) AND decision_id <> ''"
)
END = "\U0010ffff"
"""After every time, and after every time that begins with what stands before it."""
_PINNED = frozenset({"pinned", "baseline-nearest"})


@dataclass(frozen=True, slots=True)
class ReportedDecision:
    """What reports ask of a decision; many jobs share one.

    ``changed``: the job was rewritten; ``trust``: how far the decision is trusted; ``code``: the
    reason that ended it; ``base_time_s`` and ``base_energy_j``: what the model expected of the job
    as it was written; ``time`` and ``energy``: what was promised, None where nothing was;
    ``unmetered``: the energy promised cannot be held against a metered one; ``class_name``: the
    class of an application never swept, None for others.
    """

    application: object
    key: tuple[str, str]
    trust: object
    changed: bool
    holdout: bool
    code: str
    trial: bool
    estimated: bool
    pinned: bool
    chosen: bool
    base_time_s: float | None
    base_energy_j: float | None
    time: PromiseInterval | None
    energy: PromiseInterval | None
    unmetered: bool
    class_name: str | None


@dataclass(slots=True)
class ReportedJob:
    """One outcome: what was measured, how it ran, and its decision.

    ``resolution_s`` is the accounting's of its time; ``note`` says why its verdict is not known,
    ``energy_note`` why its energy is not, ``gpu_note`` why that of its GPUs is not.
    """

    scheduler: str
    cluster: str
    state: str
    nodes: int
    time_s: float | None
    energy_j: float | None
    verdict: str
    decision: ReportedDecision
    elapsed_s: float
    partition: object
    mismatch: object
    note: object
    energy_note: object
    whole_nodes: object
    step_failed: object
    resolution_s: float | None
    energy_gpu_j: float | None
    gpu_note: object

    @property
    def comparable(self) -> bool:
        """Whether it can be compared with others: ended well, ran as decided, not pinned."""
        return (
            self.state == "COMPLETED"
            and not self.mismatch
            and self.whole_nodes is not False
            and not self.step_failed
            and not self.decision.pinned
            and bool(self.decision.base_time_s)
        )

    @property
    def coarseness(self) -> float:
        """The accounting's resolution of its time as a fraction of it."""
        return (self.resolution_s or 0.0) / self.time_s if self.time_s else 0.0


def deciding(codes: Sequence[str]) -> str:
    """Return the reason code that ended a decision: the last that says nothing was changed.

    Of a job with a plan that is not all: its steps may have been.
    """
    if STEP_PLAN in codes:
        return STEP_PLAN
    for code in reversed(codes):
        if code in KINDS and KINDS[code].changes_nothing:
            return code
    return codes[-1] if codes else "unknown"


def reported_jobs(
    reader: Reader,
    since: str,
    user: str = "",
    cluster: str = "",
    *,
    newest: int | None = None,
    skipped_days: Sequence[str] = (),
    until: str = END,
) -> Iterator[ReportedJob]:
    """Yield the decided jobs submitted since a moment, of one user and cluster or all; a page at a
    time.

    ``newest``: only among so many jobs, those that were stored last. ``skipped_days``: but for
    those submitted on some days (2026-01-31), which are in order; ``until``: and before a moment.
    """
    named = {name: value for name, value in (("user", user), ("cluster", cluster)) if value}
    more, values = "".join(f" AND {name} = ?" for name in named), tuple(named.values())
    if newest is not None:
        number = (reader.rows("SELECT max(rowid) FROM outcomes")[0][0] or 0) - newest
        while rows := reader.rows(
            _NEWEST.format(more=more, page=reader.page), (number, since, *values)
        ):
            number = rows[-1]["rowid"]
            yield from map(_job, rows)
            if len(rows) < reader.page:  # what is asked after the last page takes as long as one
                break
        return
    begin = since
    for day in (*skipped_days, until):
        last = begin, begin, -1
        while rows := reader.rows(_JOBS.format(more=more, page=reader.page), (*last, day, *values)):
            last = rows[-1]["submitted_at"], rows[-1]["submitted_at"], rows[-1]["rowid"]
            yield from map(_job, rows)
            if len(rows) < reader.page:
                break
        begin = day + END


def reported_jobs_of(
    reader: Reader, keys: Collection[OutcomeKey]
) -> Iterator[tuple[OutcomeKey, ReportedJob]]:
    """Yield those of some outcomes that have a decision, as jobs, each with its key."""
    for row in reader.rows(_NAMED, (json.dumps([key[0] for key in keys]),)):
        key = row["job_id"], row["scheduler"], row["cluster"], row["submitted_at"]
        if key in keys:
            yield key, _job(row)


def _job(row: ResultRow) -> ReportedJob:
    _, _, job_id, *facts, kind, decided, ran = row
    if kind != "object":
        _rows.from_json("[]", f"outcome of job {job_id}")
    return _reported(facts, decided, ran)


def _reported(facts: Sequence[Any], decided: str, ran: str) -> ReportedJob:
    elapsed_s, *execution_fields = _read(ran)
    fields = (*facts, _decision(decided), elapsed_s or 0.0, *execution_fields)
    return ReportedJob(*fields)


def reported_job(outcome: Outcome) -> ReportedJob | None:
    """Return an outcome, before it is stored, as :func:`reported_jobs_of` reads it afterwards."""
    if not outcome.decision_id:
        return None
    decided, ran = (
        _rows.to_json([_part(outcome.record, name) for name in names]) for names in (_DECIDED, _RAN)
    )
    return _reported(_FACTS(outcome), decided, ran)


_FACTS = attrgetter("scheduler", "cluster", "state", "nodes", "time_s", "energy_j", "verdict")


def _part(record: Mapping[str, Any], name: str) -> Any:
    """Return a part of a record by its name, as JSON's paths name it; None where it has none."""
    part: Any = record
    for key in name.removesuffix("[0]").split("."):
        part = part.get(key) if isinstance(part, Mapping) else None
    return next(iter(part or ()), None) if name.endswith("[0]") else part


_read = json.JSONDecoder().decode


@lru_cache(_KEPT)
def _decision(text: str) -> ReportedDecision:
    """Read what :data:`_DECIDED` names of a record."""
    application, workload, trust, changed, holdout, reasons, baseline, place, about, cold = _read(
        text
    )
    codes = tuple(map(str, reasons)) if isinstance(reasons, list) else ()
    cost: Mapping[str, Any] = baseline if isinstance(baseline, dict) else {}
    promise: Mapping[str, Any] = about if isinstance(about, dict) else {}
    base_time_s, base_energy_j = (number_or_none(cost.get(n)) for n in ("time_s", "energy_j"))
    chosen = read_configuration(place) is not None
    return ReportedDecision(
        application=application,
        key=(str(application or ""), str(workload or "")),
        trust=trust,
        changed=bool(changed),
        holdout=bool(holdout),
        code=deciding(codes),
        trial=not TRIALS.isdisjoint(codes),
        estimated=ESTIMATED in codes,
        pinned=not _PINNED.isdisjoint(codes),
        chosen=chosen,
        base_time_s=base_time_s,
        base_energy_j=base_energy_j,
        time=interval_of(*against(promise.get("time_s"), base_time_s)) if chosen else None,
        energy=interval_of(*against(promise.get("energy_j"), base_energy_j)) if chosen else None,
        unmetered=unmetered_promise(str(promise.get("energy_quality") or "missing"), codes),
        class_name=str(cold.get("class")) if isinstance(cold, dict) and cold else None,
    )
