"""The parts of a job: what its steps of each program took, as the accounting tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from advisor.core.job_history import JobPart, longest_parts
from advisor.core.recognise import clean_name
from advisor.schedulers.base import JobRecord, StepRecord


def parts_of(job: JobRecord) -> tuple[JobPart, ...]:
    """Return a job's parts, the longest first; none where it has no steps, or their times are not
    known, or some ran at once."""
    numbered = [step for step in job.steps if step.numbered]
    if any(step.elapsed_s is None for step in numbered):
        return ()
    groups: defaultdict[tuple[str, int, int], list[StepRecord]] = defaultdict(list)
    for step in numbered:
        groups[(clean_name(step.name), *_on_each_node(step))].append(step)
    parts = [_part(*key, steps) for key, steps in groups.items()]
    slack_s = job.resolution_s * len(numbered)
    if job.elapsed_s is None or sum(part.time_s for part in parts) > job.elapsed_s + slack_s:
        return ()
    return longest_parts(parts)


def _on_each_node(step: StepRecord) -> tuple[int, int]:
    """Return a step's ranks and CPUs on each node, 0 where they are not known or differ."""
    if not step.nodes:
        return 0, 0
    ranks, cpus = (
        count // step.nodes if count % step.nodes == 0 else 0 for count in (step.tasks, step.cpus)
    )
    return ranks, cpus


def _part(program: str, ranks: int, cpus: int, steps: Sequence[StepRecord]) -> JobPart:
    metered = [step.energy_j for step in steps if step.energy_j is not None]
    energy_j = sum(metered) if len(metered) == len(steps) else None
    time_s = sum(step.elapsed_s or 0.0 for step in steps)
    return JobPart(program, ranks, cpus, len(steps), time_s, energy_j)
