"""What earlier jobs of one identity did: the parts they ran, by program, in time and energy.

A part is what a job's steps of one program at one number of ranks and cores took together. Time
and energy that no part took are the job's too: nothing is known of them but how much they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from advisor.core.codec import Record, wire

MOST_JOBS = 5
"""Jobs of an identity that are kept: the latest."""
MOST_TRIED = 40
"""Jobs that tried a cap and are kept: the latest."""
LEAST_JOBS = 3
"""So many must be alike, or nothing is promised of the next one."""
MOST_PARTS = 12
"""Parts of a job that are kept: those that took longest; the others count together as unknown."""
MAX_AGE_DAYS = 90
"""An older job says nothing of the next one."""
COARSEST = 0.1
"""Share of a job's time that the accounting's clock leaves open at most."""
ALIKE = 0.25
"""A job whose time is further from their median, as a share of it, is not like the others."""


@dataclass(frozen=True, slots=True)
class JobPart(Record):
    """What a job's steps of one program took, one after the other.

    ``ranks_per_node`` and ``cpus_per_node`` are those of a step, 0 where the accounting does not
    tell; ``energy_j`` is None where it was not metered.
    """

    program: str
    ranks_per_node: int
    cpus_per_node: int
    steps: int
    time_s: float
    energy_j: float | None = field(default=None, metadata=wire(omit=True))

    @property
    def step_s(self) -> float:
        """What one of its steps took in the mean."""
        return self.time_s / self.steps


@dataclass(frozen=True, slots=True)
class PastJob(Record):
    """A job that ran well, as it was written, on whole nodes of one type.

    ``time_s`` is all that it took, ``resolution_s`` how finely the accounting tells that, and
    ``ranks_per_node`` and ``cpus_per_node`` are those of its longest step, 0 where it had none.
    ``freq_khz`` is the cap that it ran under in place of as written, 0 for none. ``whole``: nothing
    tells what it was made of, and its one part is all of it.
    """

    node_type: str
    nodes: int
    time_s: float
    resolution_s: float
    ranks_per_node: int
    cpus_per_node: int
    parts: tuple[JobPart, ...]
    freq_khz: int = field(default=0, metadata=wire(omit=True))
    whole: bool = field(default=False, metadata=wire(omit=True))

    @property
    def shape(self) -> tuple[str, int, int, int, bool]:
        """Node type, nodes, on each of them ranks and CPUs; and whether it is known as a whole."""
        return self.node_type, self.nodes, self.ranks_per_node, self.cpus_per_node, self.whole

    @property
    def parts_s(self) -> float:
        """What its parts took together."""
        return sum(part.time_s for part in self.parts)


@dataclass(frozen=True, slots=True)
class JobHistory(Record):
    """The latest jobs of an identity, the newest first.

    ``worse``: why nothing is promised of the next one, as jobs came out worse than promised.
    ``planned`` are the latest that had a plan for their steps: they tell what such jobs run, and
    how long they would take at most as written, and nothing of energy. ``tried`` are those that
    tried a cap (:mod:`advisor.core.cap_trials`), and ``trials`` how many did, of those that told
    nothing, too; ``stopped`` says why no more of them do.
    """

    jobs: tuple[PastJob, ...] = ()
    worse: str = ""
    planned: tuple[PastJob, ...] = field(default=(), metadata=wire(omit=True))
    tried: tuple[PastJob, ...] = field(default=(), metadata=wire(omit=True))
    trials: int = field(default=0, metadata=wire(omit=True))
    stopped: str = field(default="", metadata=wire(omit=True))

    @property
    def whole(self) -> bool:
        """Whether its jobs tell of all that they ran, and of nothing apart."""
        return bool(self.jobs) and self.jobs[0].whole

    @property
    def timed(self) -> JobHistory:
        """The same of all jobs that tell how long the next one takes, as written first."""
        return replace(self, jobs=(*self.jobs, *self.planned)[:MOST_JOBS])

    @property
    def obstacle(self) -> str:
        """Why the next job cannot be expected to be like these, "" where it can."""
        if len(self.jobs) < LEAST_JOBS:
            return f"{len(self.jobs)} earlier jobs ran as written, it takes {LEAST_JOBS}"
        if len({job.shape for job in self.jobs}) > 1:
            return "its earlier jobs ran on other nodes, or otherwise there"
        middle_s = median(job.time_s for job in self.jobs)
        if any(abs(job.time_s - middle_s) > ALIKE * middle_s for job in self.jobs):
            return "its earlier jobs took times too different"
        return ""


def longest_parts(parts: Sequence[JobPart]) -> tuple[JobPart, ...]:
    """Return the parts that are kept of a job, the longest first, and one for all others."""
    ordered = sorted(parts, key=lambda part: -part.time_s)
    shorter_parts = ordered[MOST_PARTS:]
    if not shorter_parts:
        return tuple(ordered)
    steps, time_s = (
        sum(part.steps for part in shorter_parts),
        sum(part.time_s for part in shorter_parts),
    )
    return (*ordered[:MOST_PARTS], JobPart("", 0, 0, steps, time_s))
