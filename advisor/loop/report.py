"""Sum up what was decided and how it came out."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from statistics import fmean

from advisor.core.codec import JsonForm
from advisor.core.worth import J_PER_KWH, Tariff
from advisor.loop.compare import (
    MeasuredChange,
    WorkloadJobs,
    against_prediction,
    log_ratio,
    pooled,
    share_interval,
    welch,
)
from advisor.loop.reported_jobs import ReportedDecision, ReportedJob, reported_jobs
from advisor.loop.verdict import PromiseInterval
from advisor.store.pruning import MonthSums, month_sums
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.store.trials import trials


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
class Calibration(JsonForm):
    """How many measured values lay inside their promised 90 % interval.

    The interval's ends give way by what the accounting cannot resolve.
    """

    JSON = ("inside", "total", "share", "share_lo", "share_hi", "nominal")

    inside: int
    total: int

    @property
    def share(self) -> float | None:
        """The share inside, None without any case."""
        return self.inside / self.total if self.total else None

    @property
    def share_lo(self) -> float | None:
        """Lower end of the share's interval."""
        interval = share_interval(self.inside, self.total)
        return interval[0] if interval else None

    @property
    def share_hi(self) -> float | None:
        """Upper end of the share's interval."""
        interval = share_interval(self.inside, self.total)
        return interval[1] if interval else None

    @property
    def nominal(self) -> float:
        """The share that should be inside."""
        return 0.9


@dataclass(slots=True)
class Report:
    """The totals.

    ``left_alone`` counts the deciding reason codes of jobs that stayed as they were;
    ``without_energy`` counts completed jobs by scheduler, partition and cause; ``promised_kwh`` is
    what the rewritten and completed jobs should have saved; ``estimated`` are the verdicts of the
    rewritten jobs that went to node types where nothing had been measured. ``classes``: by class,
    the verdicts of those of applications never swept; ``trials``, apart from all other verdicts and
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
    without_energy: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    promised_kwh: float = 0.0
    promised_energy: float | None = None
    promised_time: float | None = None
    possible_kwh: float = 0.0
    possible_jobs: int = 0
    energy: MeasuredChange | None = None
    time: MeasuredChange | None = None
    saved_kwh: tuple[float, float | None, float | None] | None = None
    saved_node_hours: float | None = None
    tariff: Tariff = field(default_factory=Tariff)
    comparisons: list[OnOffComparison] = field(default_factory=list)
    time_calibration: Calibration = field(default_factory=lambda: Calibration(0, 0))
    energy_calibration: Calibration = field(default_factory=lambda: Calibration(0, 0))
    suspended: list[StoredModel] = field(default_factory=list)
    missing_models: Counter[str] = field(default_factory=Counter)
    pruned: list[MonthSums] = field(default_factory=list)
    """What is no longer known job by job; not in the totals, and empty for one user's jobs."""


def report(
    reader: Reader, *, since: str, application: str = "", user: str = "", newest: int | None = None
) -> Report:
    """Sum up the jobs submitted since a moment (UTC, ISO 8601), of one application or user.

    ``newest``: only among so many jobs, those that were stored last. Jobs whose stamp was not
    theirs (``unverified``) are counted and otherwise left out.
    """
    result = Report(since, application, user, tariff=Tariff.of(reader.site()))
    tally = _Tally()
    for job in reported_jobs(reader, since, user, newest=newest):
        decision = job.decision
        if application and decision.application != application:
            continue
        _count(result, job, decision)
        if not decision.trial and decision.trust != "unverified" and job.comparable:
            tally.add(job, decision)
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


def _suspended(reader: Reader) -> list[int]:
    return [row[0] for row in reader.rows("SELECT id FROM models WHERE state = 'suspended'")]


def _count(result: Report, job: ReportedJob, decision: ReportedDecision) -> None:
    result.jobs += 1
    if decision.trust == "unverified":
        result.unverified += 1
        return
    result.stamped += decision.trust == "stamped"
    result.node_hours += job.elapsed_s * job.nodes / 3600
    result.energy_kwh += (job.energy_j or 0.0) / J_PER_KWH
    if job.state == "COMPLETED" and job.energy_j is None:
        why = str(job.energy_note or "")
        result.without_energy[job.scheduler, str(job.partition or "?"), why] += 1
    if decision.changed:
        result.advised += 1
        if decision.trial:
            return
        result.verdicts[job.verdict] += 1
        if decision.class_name is not None:
            result.classes[decision.class_name][job.verdict] += 1
        if decision.estimated:
            result.estimated[job.verdict] += 1
        if job.verdict == "unknown":
            result.unknown_why[str(job.note or "?")] += 1
        return
    result.left_alone[decision.code] += 1
    result.holdout += decision.holdout
    if decision.code == "no-model":
        result.missing_models[decision.key[0]] += 1
    if decision.code in ("mode-advise", "mode-observe") and decision.chosen:
        result.possible_jobs += 1
        if decision.energy and decision.base_energy_j:
            result.possible_kwh += (decision.base_energy_j - decision.energy.value) / J_PER_KWH


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


def _sides() -> dict[bool, array[float]]:
    return {True: array("d"), False: array("d")}


@dataclass(slots=True)
class _Workload:
    """What is kept of one workload's comparable jobs, rewritten (True) and left alone.

    ``energies`` and ``times`` are ln(measured / predicted for the job as written).
    """

    energies: dict[bool, array[float]] = field(default_factory=_sides)
    times: dict[bool, array[float]] = field(default_factory=_sides)
    energy: _Promised = field(default_factory=_Promised)
    time: _Promised = field(default_factory=_Promised)
    kwh: float = 0.0
    coarse: array[float] = field(default_factory=lambda: array("d"))
    """Per job, the variance of its log time by the accounting's resolution."""

    def groups(self) -> tuple[WorkloadJobs, WorkloadJobs]:
        """Return energies and times as they are compared."""
        floor = fmean(self.coarse) if self.coarse else 0.0
        energies, times = self.energies, self.times
        return (
            WorkloadJobs(energies[True], energies[False], floor),
            WorkloadJobs(times[True], times[False], floor),
        )


class _Tally:
    """Sums up comparable jobs one by one."""

    def __init__(self) -> None:
        self._workloads: defaultdict[tuple[str, str], _Workload] = defaultdict(_Workload)
        self._energy, self._time = _Promised(), _Promised()
        self._inside = {"time_s": [0, 0], "energy_j": [0, 0]}
        self._node_hours = 0.0

    def add(self, job: ReportedJob, decision: ReportedDecision) -> None:
        """Take one job: rewritten, or left alone at random."""
        changed = decision.changed
        if not changed and not decision.holdout:
            return
        w = self._workloads[decision.key]
        energy = log_ratio(job.energy_j, decision.base_energy_j)
        if energy is not None:
            w.energies[changed].append(energy)
        time = log_ratio(job.time_s, decision.base_time_s)
        if time is not None:
            w.times[changed].append(time)
        w.coarse.append(job.coarseness**2 / 6)  # of a difference of two whole numbers
        if changed:
            self._add_promise(job, decision, w)

    def _add_promise(self, job: ReportedJob, decision: ReportedDecision, w: _Workload) -> None:
        time, energy = decision.time, decision.energy
        w.kwh += (job.energy_j or 0.0) / J_PER_KWH
        self._node_hours += (job.time_s or 0.0) * job.nodes / 3600
        for sums in (w.energy, self._energy):
            sums.add(energy, decision.base_energy_j)
        for sums in (w.time, self._time):
            sums.add(time, decision.base_time_s)
        if decision.unmetered:
            energy = None
        slack = job.coarseness
        for key, measured, interval in (
            ("time_s", job.time_s, time),
            ("energy_j", job.energy_j, energy),
        ):
            if interval and measured:
                off = interval.is_below(measured, slack) or interval.is_above(measured, slack)
                self._inside[key][0] += not off
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
        saved_hours = _saved(result.time, self._node_hours)
        result.saved_node_hours = saved_hours[0] if saved_hours else None


def _saved(
    change: MeasuredChange | None, used: float
) -> tuple[float, float | None, float | None] | None:
    """Return what was saved if what jobs ``used`` changed by ``change``: value, least, most."""
    if change is None or not used:
        return None
    least, most = (
        None if end is None else used * (1 / (1 + end) - 1) for end in (change.hi, change.lo)
    )
    return used * (1 / (1 + change.change) - 1), least, most
