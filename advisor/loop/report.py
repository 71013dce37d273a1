"""Sum up what was decided and how it came out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.core.reasons import TEXTS
from advisor.loop.compare import (
    Change,
    Group,
    against_prediction,
    log_ratios,
    pooled,
    share_interval,
    welch,
)
from advisor.loop.verdict import Interval
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel

J_PER_KWH = 3.6e6
_DECIDED = "nothing changed"
"""How the text of a reason begins that ended a decision."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One workload's rewritten jobs against what they would have been. Fractions."""

    application: str
    workload: str
    energy: Change | None
    time: Change | None
    promised_energy: float | None
    promised_time: float | None
    energy_kwh: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many measured values lay inside their promised 90 % interval."""

    inside: int
    total: int

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form; ``share`` is None without any case."""
        interval = share_interval(self.inside, self.total)
        return {
            "inside": self.inside,
            "total": self.total,
            "share": self.inside / self.total if self.total else None,
            "share_lo": interval[0] if interval else None,
            "share_hi": interval[1] if interval else None,
            "nominal": 0.9,
        }


@dataclass(slots=True)
class Report:
    """The totals.

    ``left_alone`` counts the deciding reason codes of jobs that stayed as they were;
    ``without_energy`` counts completed jobs by partition and cause; ``promised_kwh`` is what the
    rewritten and completed jobs should have saved.
    """

    since: str
    application: str
    user: str
    jobs: int = 0
    advised: int = 0
    holdout: int = 0
    stamped: int = 0
    unverified: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    left_alone: Counter[str] = field(default_factory=Counter)
    unknown_why: Counter[str] = field(default_factory=Counter)
    node_hours: float = 0.0
    energy_kwh: float = 0.0
    without_energy: Counter[tuple[str, str]] = field(default_factory=Counter)
    promised_kwh: float = 0.0
    promised_energy: float | None = None
    promised_time: float | None = None
    possible_kwh: float = 0.0
    possible_jobs: int = 0
    energy: Change | None = None
    time: Change | None = None
    saved_kwh: tuple[float, float | None, float | None] | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    time_calibration: Calibration = field(default_factory=lambda: Calibration(0, 0))
    energy_calibration: Calibration = field(default_factory=lambda: Calibration(0, 0))
    suspended: list[StoredModel] = field(default_factory=list)
    missing_models: Counter[str] = field(default_factory=Counter)


def report(reader: Reader, *, since: str, application: str = "", user: str = "") -> Report:
    """Sum up the jobs submitted since a moment (UTC, ISO 8601), of one application or user.

    Jobs whose stamp was not theirs (``unverified``) are counted and otherwise left out.
    """
    result = Report(since, application, user)
    outcomes = [
        o
        for o in reader.outcomes(since=since)
        if o.decision_id
        and (not application or o.record.get("application") == application)
        and (not user or o.user == user)
    ]
    for o in outcomes:
        _count(result, o)
    trusted = [o for o in outcomes if o.record.get("trust") != "unverified"]
    _promises(result, trusted)
    _compare(result, trusted)
    _calibrate(result, trusted)
    result.suspended = [
        m
        for m in reader.models(_suspended(reader))
        if not application or m.application == application
    ]
    return result


def _suspended(reader: Reader) -> list[int]:
    return [row[0] for row in reader.rows("SELECT id FROM models WHERE state = 'suspended'")]


def deciding(codes: Sequence[str]) -> str:
    """Return the reason code that ended a decision: the last that says nothing was changed."""
    for code in reversed(codes):
        if TEXTS.get(code, "").startswith(_DECIDED):
            return code
    return codes[-1] if codes else "unknown"


def _count(result: Report, o: Outcome) -> None:
    record = o.record
    result.jobs += 1
    if record.get("trust") == "unverified":
        result.unverified += 1
        return
    result.stamped += record.get("trust") == "stamped"
    elapsed = record.get("elapsed_s") or 0.0
    result.node_hours += elapsed * o.nodes / 3600
    result.energy_kwh += (o.energy_j or 0.0) / J_PER_KWH
    if o.state == "COMPLETED" and o.energy_j is None:
        why = str((record.get("ran") or {}).get("energy_note") or "")
        result.without_energy[str(record.get("partition") or "?"), why] += 1
    if record.get("changed"):
        result.advised += 1
        result.verdicts[o.verdict] += 1
        if o.verdict == "unknown":
            result.unknown_why[next(iter(record.get("notes") or ["?"]))] += 1
        return
    code = deciding(record.get("reasons") or [])
    result.left_alone[code] += 1
    result.holdout += bool(record.get("holdout"))
    if code == "no-model":
        result.missing_models[str(record.get("application"))] += 1
    if code == "mode-advise" and record.get("chosen"):
        result.possible_jobs += 1
        result.possible_kwh += _promised_joules(record) / J_PER_KWH


def _promised_joules(record: Mapping[str, Any]) -> float:
    """Return what a decision promised to save, J."""
    energy = Interval.from_list((record.get("promised") or {}).get("energy_j"))
    baseline = (record.get("baseline") or {}).get("energy_j")
    return float(baseline) - energy.value if energy and baseline else 0.0


def comparable(o: Outcome) -> bool:
    """Tell whether a job can be compared with others: ended well, ran as decided, not pinned."""
    record = o.record
    seen = record.get("ran") or {}
    return (
        o.state == "COMPLETED"
        and not record.get("mismatch")
        and seen.get("whole_nodes") is not False
        and not seen.get("step_failed")
        and "pinned" not in (record.get("reasons") or ())
        and "baseline-nearest" not in (record.get("reasons") or ())
        and bool((record.get("baseline") or {}).get("time_s"))
    )


def _promises(result: Report, outcomes: Sequence[Outcome]) -> None:
    energy = base_energy = time = base_time = 0.0
    for o in outcomes:
        if not o.record.get("changed") or not comparable(o):
            continue
        promise = o.record.get("promised") or {}
        e, t = (Interval.from_list(promise.get(k)) for k in ("energy_j", "time_s"))
        baseline = o.record["baseline"]
        if e and baseline.get("energy_j"):
            energy += e.value
            base_energy += float(baseline["energy_j"])
        if t:
            time += t.value
            base_time += float(baseline["time_s"])
    result.promised_kwh = (base_energy - energy) / J_PER_KWH
    result.promised_energy = energy / base_energy - 1 if base_energy else None
    result.promised_time = time / base_time - 1 if base_time else None


def _compare(result: Report, outcomes: Sequence[Outcome]) -> None:
    by_workload: defaultdict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for o in outcomes:
        if comparable(o) and (o.record.get("changed") or o.record.get("holdout")):
            by_workload[str(o.record["application"]), str(o.record["workload"])].append(o)
    energies, times = [], []
    for (application, workload), jobs in sorted(by_workload.items()):
        advised = [o for o in jobs if o.record.get("changed")]
        if not advised:
            continue
        energy, time = _group(jobs, "energy_j"), _group(jobs, "time_s")
        energies.append(energy)
        times.append(time)
        result.comparisons.append(
            Comparison(
                application,
                workload,
                welch(energy) or against_prediction(energy),
                welch(time) or against_prediction(time),
                _promised(advised, "energy_j"),
                _promised(advised, "time_s"),
                sum(o.energy_j or 0.0 for o in advised) / J_PER_KWH,
            )
        )
    result.energy, result.time = pooled(energies), pooled(times)
    used = sum(c.energy_kwh for c in result.comparisons)
    change = result.energy
    if change is not None and used:
        low, high = (
            None if end is None else used * (1 / (1 + end) - 1) for end in (change.hi, change.lo)
        )
        result.saved_kwh = (used * (1 / (1 + change.change) - 1), low, high)


def _group(jobs: Sequence[Outcome], key: str) -> Group:
    sides: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for o in jobs:
        measured = o.energy_j if key == "energy_j" else o.time_s
        predicted = o.record["baseline"].get(key)
        if measured and predicted:
            sides[bool(o.record.get("changed"))].append((measured, float(predicted)))
    return Group(log_ratios(sides[True]), log_ratios(sides[False]))


def _promised(jobs: Sequence[Outcome], key: str) -> float | None:
    total = base = 0.0
    for o in jobs:
        interval = Interval.from_list((o.record.get("promised") or {}).get(key))
        baseline = o.record["baseline"].get(key)
        if interval and baseline:
            total += interval.value
            base += float(baseline)
    return total / base - 1 if base else None


def _calibrate(result: Report, outcomes: Sequence[Outcome]) -> None:
    counts = {"time_s": [0, 0], "energy_j": [0, 0]}
    for o in outcomes:
        if not o.record.get("changed") or not comparable(o):
            continue
        promise = o.record.get("promised") or {}
        if promise.get("energy_quality") == "estimated":
            promise = {**promise, "energy_j": None}
        for key, measured in (("time_s", o.time_s), ("energy_j", o.energy_j)):
            interval = Interval.from_list(promise.get(key))
            if interval and measured:
                counts[key][0] += interval.lo <= measured <= interval.hi
                counts[key][1] += 1
    result.time_calibration = Calibration(*counts["time_s"])
    result.energy_calibration = Calibration(*counts["energy_j"])
