"""Sum up what was decided and how it came out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.core.codec import JsonForm
from advisor.core.worth import J_PER_KWH, Tariff
from advisor.loop.compare import (
    MeasuredChange,
    WorkloadJobs,
    against_prediction,
    pooled,
    share_interval,
    welch,
)
from advisor.loop.day_sums import add_days, whole_days
from advisor.loop.job_sums import JobSums, sample
from advisor.loop.reported_jobs import reported_jobs
from advisor.store.cap_trials import cap_trials_by_state
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
class GpuEnergy(JsonForm):
    """What the jobs of an application took on GPUs, kWh.

    ``jobs`` are those of which it is known, ``energy_kwh`` what was metered of the same jobs, with
    the GPUs or without them, as the scheduler's meter sees them; of ``unknown`` jobs with GPUs it
    is not known.
    """

    application: str
    jobs: int
    gpu_kwh: float
    energy_kwh: float
    unknown: int


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
    cluster: str = ""
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
    gpus: list[GpuEnergy] = field(default_factory=list)
    """By application, the one that took most first; those without GPUs are left out."""
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

    @property
    def gpu_kwh(self) -> float | None:
        """What GPUs took, None where that is known of no job."""
        known = [g.gpu_kwh for g in self.gpus if g.jobs]
        return sum(known) if known else None


def report(
    reader: Reader,
    *,
    since: str,
    application: str = "",
    user: str = "",
    cluster: str = "",
    newest: int | None = None,
) -> Report:
    """Sum up the jobs submitted since a moment (UTC, ISO 8601), of one application, user, cluster.

    ``newest``: only among so many jobs, those that were stored last. Jobs whose stamp was not
    theirs (``unverified``) are counted and otherwise left out. Days whose sums are kept are not
    read job by job, unless one user's are asked for.
    """
    result = Report(since, application, user, cluster, tariff=Tariff.of(reader.site()))
    sums = JobSums()
    with reader.one_moment():
        days = [] if user or newest is not None else whole_days(reader, since)
        add_days(reader, sums, days, application, cluster)
        for job in reported_jobs(reader, since, user, cluster, newest=newest, skipped_days=days):
            if not application or job.decision.application == application:
                sums.add(job)
    _take_counts(result, sums)
    _compare(result, sums)
    for t in trials(reader, "t.created_at >= ? AND t.state <> 'freed'", (since,)):
        if (
            cluster in ("", t.cluster)
            and application in ("", t.application)
            and user in ("", t.user)
        ):
            result.trials[t.class_name][t.state] += 1
    if not application:  # a script that tries caps is of no one application
        result.trials.update(cap_trials_by_state(reader, since, user, cluster))
    if not user:  # the sums know no users
        result.pruned = [
            month
            for month in month_sums(reader, since, application, cluster)
            if month.month not in reader.whole_months
        ]
    result.suspended = [
        m
        for m in reader.models(_suspended(reader))
        if not application or m.application == application
    ]
    return result


def by_cluster(reader: Reader, newest: int) -> list[Report]:
    """Return the totals of each cluster's jobs among so many that were stored last.

    At least one, which is of no cluster where none has jobs; nothing pruned, no trials.
    """
    sums: defaultdict[str, JobSums] = defaultdict(JobSums)
    with reader.one_moment():
        for job in reported_jobs(reader, "", newest=newest):
            sums[job.cluster].add(job)
    reports = []
    for cluster, of_cluster in sorted(sums.items()) or [("", JobSums())]:
        reports.append(Report("", "", "", cluster))
        _take_counts(reports[-1], of_cluster)
        _compare(reports[-1], of_cluster)
    return reports


def _suspended(reader: Reader) -> list[int]:
    return [row[0] for row in reader.rows("SELECT id FROM models WHERE state = 'suspended'")]


def _take_counts(result: Report, sums: JobSums) -> None:
    """Write what was counted into a report."""
    for name in ("jobs", "unverified", "stamped", "advised", "holdout", "possible_jobs"):
        setattr(result, name, round(sums.counts[name,]))
    for name in ("node_hours", "energy_kwh", "possible_kwh"):
        setattr(result, name, float(sums.counts[name,]))
    for name in ("verdicts", "estimated", "unknown_why", "left_alone", "missing_models"):
        setattr(result, name, sums.split(name))
    for (name, *parts), count in sums.counts.items():
        if name == "without_energy":
            scheduler, partition, why = parts
            result.without_energy[scheduler, partition, why] += count
        elif name == "classes":
            result.classes[parts[0]][parts[1]] += count
    names = ("gpu_jobs", "gpu_kwh", "gpu_whole_kwh", "gpu_unknown")
    jobs, gpu_kwh, whole_kwh, unknown = map(sums.split, names)
    result.gpus = [
        GpuEnergy(app, jobs[app], float(gpu_kwh[app]), float(whole_kwh[app]), unknown[app])
        for app in sorted(jobs | unknown, key=lambda app: (-gpu_kwh[app], app))
    ]


def _compare(result: Report, sums: JobSums) -> None:
    """Write promised and measured changes into a report."""
    total: Counter[str] = Counter()
    for compared in sums.compared.values():
        for name, value in compared.items():
            total[name] += value
    result.promised_kwh = (total["promised_base_j"] - total["promised_j"]) / J_PER_KWH
    result.promised_energy = _change(total, "j")
    result.promised_time = _change(total, "s")
    result.time_calibration, result.energy_calibration = (
        Calibration(round(total[f"{name}_inside"]), round(total[f"{name}_promises"]))
        for name in ("time", "energy")
    )
    energies, times = [], []
    for (application, workload), compared in sorted(sums.compared.items()):
        if not compared["time_on_jobs"]:
            continue
        floor = compared["coarse_sum"] / compared["coarse_jobs"]
        energy, time = (
            WorkloadJobs(sample(compared, f"{name}_on"), sample(compared, f"{name}_off"), floor)
            for name in ("energy", "time")
        )
        energies.append(energy)
        times.append(time)
        result.comparisons.append(
            OnOffComparison(
                application,
                workload,
                welch(energy) or against_prediction(energy),
                welch(time) or against_prediction(time),
                _change(compared, "j"),
                _change(compared, "s"),
                compared["kwh"],
            )
        )
    result.energy, result.time = pooled(energies), pooled(times)
    result.saved_kwh = _savings(result.energy, sum(c.energy_kwh for c in result.comparisons))
    saved_hours = _savings(result.time, total["node_hours"])
    result.saved_node_hours = saved_hours[0] if saved_hours else None


def _change(sums: Mapping[str, float], unit: str) -> float | None:
    """Return the promised change of energy (j) or time (s), None where nothing was promised."""
    base = sums[f"promised_base_{unit}"]
    return sums[f"promised_{unit}"] / base - 1 if base else None


def _savings(
    change: MeasuredChange | None, used: float
) -> tuple[float, float | None, float | None] | None:
    """Return what was saved if what jobs ``used`` changed by ``change``: value, least, most."""
    if change is None or not used:
        return None
    least, most = (
        None if end is None else used * (1 / (1 + end) - 1) for end in (change.hi, change.lo)
    )
    return used * (1 / (1 + change.change) - 1), least, most
