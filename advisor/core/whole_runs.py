"""What is a run of a program, of all that an importer reads: the same rule for every format."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from statistics import median

from advisor.core.observation import Observation
from advisor.core.units import format_count

FAR = 5.0
"""Times another run's time: no disturbance of the same work makes so much."""
_FEWEST = 3
"""Runs at one configuration: of two that differ, nobody knows which is odd."""
_NUMBERED = 0xFFFFFFFA
"""Slurm's steps from here on are no numbered ones: batch, extern, interactive, pending."""

OWN_STEP = "of the batch script or of Slurm's own, beside the job's steps"
UNCOUNTED = "without counters, where others of the application have some"
HELPER = f"less than 1/{FAR:g} of their job's longest step"
OUTSIDE = f"more than {FAR:g} times from the usual time at their configuration"


def numbered(step: str) -> bool:
    """Tell whether a step's number is one that srun gives, and not Slurm's for its own steps."""
    return not step.isdecimal() or int(step) < _NUMBERED


def step_faults(steps: Sequence[tuple[Hashable, str, Hashable, bool, float]]) -> list[str]:
    """Return for each step why it is no run of its program, "" where it is one.

    Steps are (job, step's number, application, whether it has counters, time in s).
    """
    jobs = {job for job, step, *_ in steps if numbered(step)}
    applications = {name for _, step, name, counts, _ in steps if counts and numbered(step)}
    longest: dict[Hashable, float] = {}
    for job, step, _, _, time_s in steps:
        if numbered(step):
            longest[job] = max(longest.get(job, 0.0), time_s)
    return [
        OWN_STEP
        if job in jobs and not numbered(step)
        else UNCOUNTED
        if not counts and name in applications
        else HELPER
        if time_s * FAR < longest.get(job, 0.0)
        else ""
        for job, step, name, counts, time_s in steps
    ]


def outside(runs: Sequence[Observation]) -> list[int]:
    """Return which runs of one workload took far more or less than others like them.

    Runs with a rate of their own may differ in length, and of fewer than three at a configuration
    none is judged.
    """
    if any(run.fom is not None for run in runs):
        return []
    cells: dict[object, list[int]] = {}
    for i, run in enumerate(runs):
        cells.setdefault(run.configuration, []).append(i)
    odd = []
    for cell in cells.values():
        usual_s = median(runs[i].time_s for i in cell)
        far = [i for i in cell if max(runs[i].time_s / usual_s, usual_s / runs[i].time_s) > FAR]
        odd += far if len(cell) >= _FEWEST else []
    return sorted(odd)


def skipped_notes(whys: Iterable[str], what: str = "run") -> list[str]:
    """Return a sentence for each reason why some were skipped; "" is none."""
    counts: dict[str, int] = {}
    for why in whys:
        if why:
            counts[why] = counts.get(why, 0) + 1
    return [f"{format_count(n, what)} skipped: {why}" for why, n in counts.items()]
