"""What reports add up of finished jobs: counts and sums, so that those of a day can be kept."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from advisor.core.worth import J_PER_KWH
from advisor.loop.compare import JobSample, log_ratio
from advisor.loop.reported_jobs import ReportedDecision, ReportedJob
from advisor.loop.verdict import PromiseInterval
from advisor.store.signature_groups import Named

_SAMPLES = ("energy_on", "energy_off", "time_on", "time_off")
COMPARED = (
    *(f"{name}_{part}" for name in _SAMPLES for part in ("jobs", "sum", "squares")),
    *("coarse_jobs", "coarse_sum"),
    *("promised_j", "promised_base_j", "promised_s", "promised_base_s"),
    *("kwh", "node_hours"),
    *("time_inside", "time_promises", "energy_inside", "energy_promises"),
)
"""The sums of one workload's comparable jobs, rewritten (on) and left alone at random (off).

The samples are of ln(measured / predicted for the job as written); ``coarse`` is the variance of a
job's log time by the accounting's resolution.
"""


class JobSums:
    """Counts of all jobs, by a name and what they are split by, and sums by workload."""

    def __init__(self) -> None:
        # A Counter's 0 is a whole number, so that counts stay whole; sums become floats, which its
        # type does not foresee.
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.compared: defaultdict[Named, Counter[str]] = defaultdict(Counter)

    def add(self, job: ReportedJob, times: int = 1) -> None:
        """Add a job; -1 ``times`` takes one away that was added as it was."""
        decision = job.decision
        for key, value in _counts(job, decision):
            self.counts[key] += times * value  # type: ignore[assignment]
        if decision.trial or decision.trust == "unverified" or not job.comparable:
            return
        if decision.changed or decision.holdout:
            sums = self.compared[decision.key]
            for name, value in _compared(job, decision):
                sums[name] += times * value  # type: ignore[assignment]

    def merge(self, counts: Mapping[tuple[str, ...], float]) -> None:
        """Add counts that were kept."""
        for key, value in counts.items():
            self.counts[key] += value  # type: ignore[assignment]

    def split(self, name: str) -> Counter[str]:
        """Return the counts of a name by the one thing they are split by."""
        return Counter({key[1]: n for key, n in self.counts.items() if key[0] == name and n})


def packed(counts: Mapping[tuple[str, ...], float]) -> str:
    """Return counts as JSON: a list of each one's name, what it is split by, and its value."""
    return json.dumps([[*key, value] for key, value in counts.items() if value])


def unpacked(text: str) -> Counter[tuple[str, ...]]:
    """Read :func:`packed` back."""
    counts: Counter[tuple[str, ...]] = Counter()
    for *key, value in json.loads(text):
        counts[tuple(key)] += value
    return counts


def sample(sums: Mapping[str, float], name: str) -> JobSample:
    """Return one of the samples of a workload's sums."""
    return JobSample.of_sums(*(sums[f"{name}_{part}"] for part in ("jobs", "sum", "squares")))


def _counts(
    job: ReportedJob, decision: ReportedDecision
) -> Iterable[tuple[tuple[str, ...], float]]:
    yield ("jobs",), 1
    if decision.trust == "unverified":
        yield ("unverified",), 1
        return
    if decision.trust == "stamped":
        yield ("stamped",), 1
    yield ("node_hours",), job.elapsed_s * job.nodes / 3600
    yield ("energy_kwh",), (job.energy_j or 0.0) / J_PER_KWH
    if job.energy_gpu_j is not None:
        application = decision.key[0]
        yield ("gpu_jobs", application), 1
        yield ("gpu_kwh", application), job.energy_gpu_j / J_PER_KWH
        yield ("gpu_whole_kwh", application), (job.energy_j or 0.0) / J_PER_KWH
    elif job.gpu_note:
        yield ("gpu_unknown", decision.key[0]), 1
    if job.state == "COMPLETED" and job.energy_j is None:
        why = str(job.energy_note or "")
        yield ("without_energy", job.scheduler, str(job.partition or "?"), why), 1
    if decision.changed:
        yield ("advised",), 1
        if decision.trial:
            return
        yield ("verdicts", job.verdict), 1
        if decision.class_name is not None:
            yield ("classes", decision.class_name, job.verdict), 1
        if decision.estimated:
            yield ("estimated", job.verdict), 1
        if job.verdict == "unknown":
            yield ("unknown_why", str(job.note or "?")), 1
        return
    yield ("left_alone", decision.code), 1
    if decision.holdout:
        yield ("holdout",), 1
    if decision.code == "no-model":
        yield ("missing_models", decision.key[0]), 1
    if decision.code in ("mode-advise", "mode-observe") and decision.chosen:
        yield ("possible_jobs",), 1
        if decision.energy and decision.base_energy_j:
            saved_j = decision.base_energy_j - decision.energy.value
            yield ("possible_kwh",), saved_j / J_PER_KWH


def _compared(job: ReportedJob, decision: ReportedDecision) -> Iterable[tuple[str, float]]:
    side = "on" if decision.changed else "off"
    for name, ratio in (
        ("energy", log_ratio(job.energy_j, decision.base_energy_j)),
        ("time", log_ratio(job.time_s, decision.base_time_s)),
    ):
        if ratio is not None:
            yield f"{name}_{side}_jobs", 1
            yield f"{name}_{side}_sum", ratio
            yield f"{name}_{side}_squares", ratio * ratio
    yield "coarse_jobs", 1
    yield "coarse_sum", job.coarseness**2 / 6  # of a difference of two whole numbers
    if decision.changed:
        yield from _promised(job, decision)


def _promised(job: ReportedJob, decision: ReportedDecision) -> Iterable[tuple[str, float]]:
    time, energy = decision.time, decision.energy
    yield "kwh", (job.energy_j or 0.0) / J_PER_KWH
    yield "node_hours", (job.time_s or 0.0) * job.nodes / 3600
    if energy and decision.base_energy_j:
        yield "promised_j", energy.value
        yield "promised_base_j", decision.base_energy_j
    if time and decision.base_time_s:
        yield "promised_s", time.value
        yield "promised_base_s", decision.base_time_s
    measured: tuple[tuple[str, float | None, PromiseInterval | None], ...] = (
        ("time", job.time_s, time),
        ("energy", job.energy_j, None if decision.unmetered else energy),
    )
    slack = job.coarseness
    for name, value, interval in measured:
        if interval and value:
            off = interval.is_below(value, slack) or interval.is_above(value, slack)
            yield f"{name}_inside", not off
            yield f"{name}_promises", 1
