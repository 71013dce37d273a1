"""Whether a choice is applied to its job, and how it is written there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from advisor.core.axes import AXES
from advisor.core.configuration import Configuration
from advisor.core.feasible import Constraints
from advisor.core.reasons import TRIAL, Reason, reason
from advisor.core.request import CannotWriteError
from advisor.core.requested_configuration import cap_asked_for
from advisor.schedulers.translators import translator, writing_of
from advisor.service.baseline import JobBaseline
from advisor.service.choice import Choice, class_obstacle
from advisor.service.conclusion import Conclusion, Rewrite
from advisor.service.same_program import reason_against
from advisor.service.understand import UnderstoodJob


@dataclass(frozen=True, slots=True)
class Unwritable:
    """An axis of a choice that cannot be written in the options; ``binding`` keeps it."""

    axis: str
    binding: str


def apply_choice(
    job: UnderstoodJob,
    baseline: JobBaseline,
    bounds: Constraints,
    choice: Choice,
    chance: Callable[[], float],
) -> Conclusion | Unwritable:
    """Return the decision's end: the job with the choice written into it, or why it has it not.

    ``chance`` draws the holdout, last of all.
    """
    conclude = partial(baseline.conclude, job, *choice.reasons, choice=choice)
    if choice.chosen is None:
        return conclude()
    if why := why_only_shown(job, baseline, choice, chance):
        return conclude(why)
    rewrite = _write(job, baseline, bounds, choice.chosen.configuration)
    if isinstance(rewrite, Reason):
        return conclude(rewrite)
    if isinstance(rewrite, Unwritable):
        return rewrite
    notes = [reason("node-cap")] if rewrite.node_cap_khz else []
    return conclude(*notes, rewrite=rewrite)


def keeping(job: UnderstoodJob, unwritable: Unwritable) -> UnderstoodJob:
    """Return the job as one that keeps the axis which cannot be written."""
    binds = {**job.request.binds, unwritable.axis: unwritable.binding}
    return replace(job, request=replace(job.request, binds=binds))


def why_only_shown(
    job: UnderstoodJob, baseline: JobBaseline, choice: Choice, chance: Callable[[], float]
) -> Reason | None:
    """Return why the job does not get a choice, None where it does."""
    policy, model = job.policy, baseline.model
    if policy.mode == "observe":
        return reason("mode-observe")
    if model.of_sizes and policy.extrapolated != "accept":
        return reason("extrapolated-advise")
    # A pin is the user's own word: neither `advise` nor the holdout takes it back.
    if choice.pinned:
        return None
    if why := reason_against(job.request, job.recognised, model):
        return why
    if model.by_class:
        trial = TRIAL in (r.code for r in choice.reasons)
        if why := class_obstacle(model, policy, None if trial else choice):
            return why
    estimate = model.energy_quality == "estimated" and policy.estimated_energy != "apply"
    if policy.mode == "advise" or estimate:
        return reason("mode-advise")
    return reason("holdout") if chance() < policy.holdout else None


def _write(
    job: UnderstoodJob, baseline: JobBaseline, bounds: Constraints, chosen: Configuration
) -> Rewrite | Unwritable | Reason:
    """Return a choice in the scheduler's words, or what cannot be written, or why nothing can."""
    request = job.request
    node_type = job.snapshot.inventory.node_types[chosen.node_type]
    moves = chosen.node_type != baseline.configuration.node_type
    binds_node_type = moves or (len(job.node_types) > 1 and not request.node_list)
    try:
        options, environment = translator(request.scheduler).render(
            bounds.natural(node_type),
            chosen,
            node_type,
            request,
            pin_node_type=binds_node_type,
            whole=baseline.whole,
            variables=job.recognised.threads_from,
        )
    except CannotWriteError as error:
        if error.axis in request.binds:
            return reason("cannot-write", error)
        return Unwritable(error.axis, error.binding)
    except ValueError as error:
        return reason("cannot-write", error)
    node_cap_khz = 0
    if job.reading.node_cap:
        node_cap_khz = cap_asked_for(request, chosen, node_type)
    node_axes = []
    for name, value in chosen.extra:
        writing = writing_of(name, request.scheduler, job.snapshot.axes)
        if writing is None:  # it was there when the bounds were made
            return reason("cannot-write", AXES[name].words)
        if writing.nodes:
            node_axes.append((name, value))
        else:
            options[writing.option] = writing.text(value)
    return Rewrite(options, environment, binds_node_type, node_cap_khz, tuple(node_axes))
