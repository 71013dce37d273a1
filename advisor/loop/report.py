"""Sum up what was decided and how it came out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from advisor.core.decision import Decision
from advisor.core.reasons import ESTIMATED, TEXTS, TRIAL
from advisor.core.worth import Tariff
from advisor.loop.compare import (
    MeasuredChange,
    WorkloadJobs,
    against_prediction,
    log_ratios,
    pooled,
    share_interval,
    welch,
)
from advisor.loop.outcomes import unmetered
from advisor.loop.verdict import PromiseInterval, promised
from advisor.store.pruning import MonthSums, month_sums
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel
from advisor.store.rows import outcome
from advisor.store.trials import trials

J_PER_KWH = 3.6e6
_PAGE = 2000
_DECIDED = "nothing changed"
"""How the text of a reason begins that ended a decision."""


@dataclass(frozen=True, slots=True)
class OnOffComparison:
    """One workload's rewritten jobs against what they would have been. Fractions."""

    application: str
    workload: str
    energy: MeasuredChange | None
    time: MeasuredChange | None
    promised_energy: float | None
    promised_time: float | None
    energy_kwh: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many measured values lay inside their promised 90 % interval.

    The interval's ends give way by what the accounting cannot resolve.
    """

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
    rewritten and completed jobs should have saved; ``estimated`` are the verdicts of the rewritten
    jobs that went to node types where nothing had been measured. ``classes``: by class, the
    verdicts of those of applications never swept; ``trials``, apart from all other verdicts and
    savings: by class, what came of them.
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
    estimated: Counter[str] = field(default_factory=Counter)
    classes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    trials: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
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
    energy: MeasuredChange | None = None
    time: MeasuredChange | None = None
    saved_kwh: tuple[float, float | None, float | None] | None = None
    tariff: Tariff = field(default_factory=Tariff)
    comparisons: list[OnOffComparison] = field(default_factory=list)
    time_calibration: Calibration = field(default_factory=lambda: Calibration(0, 0))
    energy_calibration: Calibration = field(default_factory=lambda: Calibration(0, 0))
    suspended: list[StoredModel] = field(default_factory=list)
    missing_models: Counter[str] = field(default_factory=Counter)
    pruned: list[MonthSums] = field(default_factory=list)
    """What is no longer known job by job; not in the totals, and empty for one user's jobs."""


def report(reader: Reader, *, since: str, application: str = "", user: str = "") -> Report:
    """Sum up the jobs submitted since a moment (UTC, ISO 8601), of one application or user.

    Jobs whose stamp was not theirs (``unverified``) are counted and otherwise left out.
    """
    result = Report(since, application, user, tariff=Tariff.of(reader.site()))
    tally = _Tally()
    for o in _outcomes(reader, since):
        if application and o.record.get("application") != application:
            continue
        if user and o.user != user:
            continue
        decision = o.decision
        _count(result, o, decision)
        if TRIAL in decision.codes:
            continue
        if o.record.get("trust") != "unverified" and comparable(o, decision):
            tally.add(o, decision)
    tally.close(result)
    for t in trials(reader, "t.created_at >= ? AND t.state <> 'freed'", (since,)):
        if application in ("", t.application) and user in ("", t.user):
            result.trials[t.class_name][t.state] += 1
    if not user:  # the sums know no users
        result.pruned = month_sums(reader, since, application)
    result.suspended = [
        m
        for m in reader.models(_suspended(reader))
        if not application or m.application == application
    ]
    return result


def _outcomes(reader: Reader, since: str) -> Iterator[Outcome]:
    """Yield the outcomes of decided jobs, a page at a time: there may be very many."""
    last = -1
    while True:
        rows = reader.rows(
            "SELECT rowid AS place, * FROM outcomes WHERE rowid > ? AND submitted_at >= ?"
            " AND decision_id <> '' ORDER BY rowid LIMIT ?",
            (last, since, _PAGE),
        )
        if not rows:
            return
        yield from (outcome(row) for row in rows)
        last = rows[-1]["place"]


def _suspended(reader: Reader) -> list[int]:
    return [row[0] for row in reader.rows("SELECT id FROM models WHERE state = 'suspended'")]


def deciding(codes: Sequence[str]) -> str:
    """Return the reason code that ended a decision: the last that says nothing was changed."""
    for code in reversed(codes):
        if TEXTS.get(code, "").startswith(_DECIDED):
            return code
    return codes[-1] if codes else "unknown"


def _count(result: Report, o: Outcome, decision: Decision) -> None:
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
    if decision.changed:
        result.advised += 1
        if TRIAL in decision.codes:
            return
        result.verdicts[o.verdict] += 1
        if decision.cold_start:
            result.classes[str(decision.cold_start.get("class"))][o.verdict] += 1
        if ESTIMATED in decision.codes:
            result.estimated[o.verdict] += 1
        if o.verdict == "unknown":
            result.unknown_why[next(iter(record.get("notes") or ["?"]))] += 1
        return
    code = deciding(decision.codes)
    result.left_alone[code] += 1
    result.holdout += decision.holdout
    if code == "no-model":
        result.missing_models[decision.application] += 1
    if code in ("mode-advise", "mode-observe") and decision.chosen:
        result.possible_jobs += 1
        energy = promised(decision.chosen, "energy")
        if energy and decision.baseline_energy_j:
            result.possible_kwh += (decision.baseline_energy_j - energy.value) / J_PER_KWH


def comparable(o: Outcome, decision: Decision) -> bool:
    """Tell whether a job can be compared with others: ended well, ran as decided, not pinned."""
    record = o.record
    seen = record.get("ran") or {}
    return (
        o.state == "COMPLETED"
        and not record.get("mismatch")
        and seen.get("whole_nodes") is not False
        and not seen.get("step_failed")
        and not {"pinned", "baseline-nearest"} & set(decision.codes)
        and bool(decision.baseline_time_s)
    )


@dataclass(slots=True)
class _Promised:
    """Sums of what was promised and of the baseline it was promised against."""

    value: float = 0.0
    baseline: float = 0.0

    def add(self, interval: PromiseInterval | None, baseline: float | None) -> None:
        if interval and baseline:
            self.value += interval.value
            self.baseline += baseline

    @property
    def change(self) -> float | None:
        return self.value / self.baseline - 1 if self.baseline else None


@dataclass(slots=True)
class _Workload:
    """What is kept of one workload's comparable jobs, by (measured, predicted baseline)."""

    energies: dict[bool, list[tuple[float, float]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    times: dict[bool, list[tuple[float, float]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    energy: _Promised = field(default_factory=_Promised)
    time: _Promised = field(default_factory=_Promised)
    kwh: float = 0.0
    coarse: list[float] = field(default_factory=list)
    """Per job, the variance of its log time by the accounting's resolution."""

    def groups(self) -> tuple[WorkloadJobs, WorkloadJobs]:
        """Return energies and times as they are compared."""
        floor = fmean(self.coarse) if self.coarse else 0.0
        energies, times = self.energies, self.times
        return (
            WorkloadJobs(log_ratios(energies[True]), log_ratios(energies[False]), floor),
            WorkloadJobs(log_ratios(times[True]), log_ratios(times[False]), floor),
        )


class _Tally:
    """Sums up comparable jobs one by one."""

    def __init__(self) -> None:
        self._workloads: defaultdict[tuple[str, str], _Workload] = defaultdict(_Workload)
        self._energy, self._time = _Promised(), _Promised()
        self._inside = {"time_s": [0, 0], "energy_j": [0, 0]}

    def add(self, o: Outcome, decision: Decision) -> None:
        """Take one job: rewritten, or left alone at random."""
        if not decision.changed and not decision.holdout:
            return
        w = self._workloads[decision.application, decision.workload]
        for pairs, measured, baseline in (
            (w.energies, o.energy_j, decision.baseline_energy_j),
            (w.times, o.time_s, decision.baseline_time_s),
        ):
            if measured and baseline:
                pairs[decision.changed].append((measured, baseline))
        w.coarse.append(_coarseness(o) ** 2 / 6)  # of a difference of two whole numbers
        if decision.changed:
            self._add_promise(o, w, decision)

    def _add_promise(self, o: Outcome, w: _Workload, decision: Decision) -> None:
        time, energy = promised(decision.chosen, "time"), promised(decision.chosen, "energy")
        w.kwh += (o.energy_j or 0.0) / J_PER_KWH
        for sums in (w.energy, self._energy):
            sums.add(energy, decision.baseline_energy_j)
        for sums in (w.time, self._time):
            sums.add(time, decision.baseline_time_s)
        if unmetered(decision):
            energy = None
        for key, measured, interval in (
            ("time_s", o.time_s, time),
            ("energy_j", o.energy_j, energy),
        ):
            if interval and measured:
                slack = _coarseness(o)
                low, high = interval.lo * (1 - slack), interval.hi * (1 + slack)
                self._inside[key][0] += low <= measured <= high
                self._inside[key][1] += 1

    def close(self, result: Report) -> None:
        """Write the totals into a report."""
        result.promised_kwh = (self._energy.baseline - self._energy.value) / J_PER_KWH
        result.promised_energy, result.promised_time = self._energy.change, self._time.change
        result.time_calibration = Calibration(*self._inside["time_s"])
        result.energy_calibration = Calibration(*self._inside["energy_j"])
        energies, times = [], []
        for (application, workload), w in sorted(self._workloads.items()):
            if not w.times[True]:
                continue
            energy, time = w.groups()
            energies.append(energy)
            times.append(time)
            result.comparisons.append(
                OnOffComparison(
                    application,
                    workload,
                    welch(energy) or against_prediction(energy),
                    welch(time) or against_prediction(time),
                    w.energy.change,
                    w.time.change,
                    w.kwh,
                )
            )
        result.energy, result.time = pooled(energies), pooled(times)
        result.saved_kwh = _saved(result.energy, sum(c.energy_kwh for c in result.comparisons))


def _coarseness(o: Outcome) -> float:
    """Return the accounting's resolution of a job's time as a fraction of it."""
    seen = o.record.get("ran") or {}
    return float(seen.get("resolution_s") or 0.0) / o.time_s if o.time_s else 0.0


def _saved(
    change: MeasuredChange | None, used_kwh: float
) -> tuple[float, float | None, float | None] | None:
    """Return what was saved if the jobs' energy changed by ``change``: value, least, most."""
    if change is None or not used_kwh:
        return None
    least, most = (
        None if end is None else used_kwh * (1 / (1 + end) - 1) for end in (change.hi, change.lo)
    )
    return used_kwh * (1 / (1 + change.change) - 1), least, most
