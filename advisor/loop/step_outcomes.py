"""What each step of a job with a plan got, as far as the accounting tells."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.core.codec import Record
from advisor.core.recognise import clean_name
from advisor.core.step_plan import PlannedStep, StepPlan
from advisor.core.wrappers import FRONTS_AT_STEP, front_at_step
from advisor.schedulers.base import JobRecord, StepRecord

_MOST = 200
"""Steps of a job that are kept: the first."""
_ENDINGS = {"python": ".py", "julia": ".jl", "Rscript": ".R"}
"""Interpreters, which the accounting names in place of the file that they run, by its ending."""


@dataclass(frozen=True, slots=True)
class StepOutcome(Record):
    """A step: its program and ranks, the cap it asked for, and what the plan has for such a step.

    ``cap_khz`` is 0 without a cap; ``as_planned`` is None where the plan has nothing for it, or no
    cap: the accounting tells no number of threads. ``threads_new`` is then what the plan sets where
    the step's variable of threads says what it was planned for, 0 for nothing.
    """

    step: str
    program: str
    ranks: int
    cap_khz: int
    as_planned: bool | None
    threads: int
    threads_new: int


def step_outcomes(job: JobRecord, plan: StepPlan | None) -> list[StepOutcome]:
    """Return what the steps of srun of a job got, in their order; none without a plan."""
    if plan is None:
        return []
    return [_outcome(step, plan) for step in job.steps if step.numbered][:_MOST]


def _outcome(step: StepRecord, plan: StepPlan) -> StepOutcome:
    name, cap_khz = clean_name(step.name), step.freq_requested_khz or 0
    planned = [p for p in plan.steps if p.ranks == step.tasks and p.changes and _may_be(p, name)]
    caps = {p.cap_khz for p in planned} - {0}
    if _hides(name) and cap_khz not in caps:
        planned, caps = [], set()  # its cap alone tells that its program is one of the plan's
    as_planned = cap_khz in caps if caps else None
    fitting = [p for p in planned if p.cap_khz == cap_khz]
    threads = {(p.threads, p.threads_new) for p in fitting if p.threads_new}
    before, after = threads.pop() if len(threads) == 1 else (0, 0)
    return StepOutcome(step.step_id, name, step.tasks, cap_khz, as_planned, before, after)


def _may_be(planned: PlannedStep, name: str) -> bool:
    """Tell whether a step of that name in the accounting may have run a program of the plan."""
    ending = _ENDINGS.get(front_at_step(name))
    is_its_file = ending is not None and planned.program.endswith(ending)
    return planned.program == name or is_its_file or _hides(name)


def _hides(name: str) -> bool:
    """Tell whether any program may be behind that name: a container's, or ``stdbuf``."""
    front = FRONTS_AT_STEP.get(front_at_step(name))
    return front is not None and not front.interpreter
