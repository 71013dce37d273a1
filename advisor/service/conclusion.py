"""What a decision comes to, and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.core.axes import Extra
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.option import Row
from advisor.core.policy import Policy
from advisor.core.reading import JobReading
from advisor.core.reasons import Reason
from advisor.core.request import JobRequest
from advisor.core.step_plan import StepPlan
from advisor.service.choice import Choice, cold_start_of
from advisor.service.issue import new_id, timestamp
from advisor.service.message import effect_line, plan_line
from advisor.service.same_program import to_look_at
from advisor.service.snapshot import Snapshot
from advisor.store.records import StoredModel

NO_CHOICE = Choice(None, (), ())


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as a hook sent it, under the policy that holds for it as far as it was looked at.

    ``reading`` is None until the job was read.
    """

    request: JobRequest
    snapshot: Snapshot
    policy: Policy
    reading: JobReading | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A choice in the scheduler's options and in variables of the job; see :class:`Decision`."""

    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    binds_node_type: bool = False
    node_cap_khz: int = 0
    node_axes: Extra = ()


NO_REWRITE = Rewrite()


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The end of a decision: why, and how far it came.

    Where there is no ``rewrite`` the job stays as it is written; then a ``plan`` may say what its
    steps get. ``baseline`` is what the job gets
    then, as far as that is known, and ``row`` what its ``model`` predicts of it.
    """

    submission: Submission
    reasons: tuple[Reason, ...]
    workload: str = ""
    model: StoredModel | None = None
    baseline: Configuration | None = None
    row: Row | None = None
    choice: Choice = NO_CHOICE
    rewrite: Rewrite = NO_REWRITE
    plan: StepPlan | None = None


def record(conclusion: Conclusion) -> Decision:
    """Return the decision as it is answered and kept."""
    submission, model, row = conclusion.submission, conclusion.model, conclusion.row
    request, reading = submission.request, submission.reading
    choice, rewrite, reasons = conclusion.choice, conclusion.rewrite, conclusion.reasons
    runs = reading.use.runs if reading and reading.use else 1  # a model knows what one takes
    recognised = reading.recognised if reading else None
    application = recognised.application if recognised else ""
    if model is not None and model.of_history:  # whichever program its script starts first
        application = model.application
    quality = model.energy_quality if model else "missing"
    sized = model is not None and model.of_sizes  # its energies were metered
    if choice.chosen is not None and choice.chosen.estimated and not sized:
        quality = "estimated"
    message = ""
    if submission.policy.message != "never":
        message = effect_line(
            application,
            conclusion.baseline,
            choice.chosen,
            reasons,
            bool(rewrite.options or rewrite.environment or rewrite.node_axes),
            quality,
        )
        message = message if conclusion.plan is None else plan_line(conclusion.plan)
    return Decision(
        id=new_id(),
        created_at=timestamp(),
        scheduler=request.scheduler,
        hook=request.hook,
        user=request.user,
        account=request.account,
        cluster=request.cluster,
        policy=submission.policy,
        application=application,
        workload=conclusion.workload,
        baseline=conclusion.baseline,
        chosen=choice.chosen and choice.chosen.times(runs),
        alternatives=tuple(a.times(runs) for a in choice.alternatives),
        rewrite=rewrite.options,
        environment=rewrite.environment,
        reasons=reasons,
        message=message,
        holdout=any(r.code == "holdout" for r in reasons),
        model_id=model.id if model and not model.of_one_job else None,
        parts=tuple(model.stats["parts"]) if model and model.of_one_job else (),
        energy_quality=quality,
        policy_version=submission.snapshot.policy.version,
        baseline_time_s=row.time_s * runs if row else None,
        baseline_energy_j=row.energy_j * runs if row else None,
        request=request,
        reading=reading,
        program=request.program,
        identity=reading.identity if reading else "",
        look_at=to_look_at(request, recognised, model),
        cold_start=cold_start_of(model, choice),
        binds_node_type=rewrite.binds_node_type,
        node_cap_khz=rewrite.node_cap_khz,
        node_axes=rewrite.node_axes,
        plan=conclusion.plan,
    )
