"""Understand a job: what it runs, where it would run, under which policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.core.inventory import NodeType
from advisor.core.policy import JobFacts, Policy
from advisor.core.reading import JobReading
from advisor.core.reasons import SEVERAL_RUNS, Reason, reason
from advisor.core.recognise import Recognised
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import partition_of, possible_node_types
from advisor.core.script_use import NO_USE, ScriptUse
from advisor.core.settings import Settings, apply_settings
from advisor.service.conclusion import Conclusion, Submission
from advisor.service.read_job import read_job, with_use, with_whole_nodes

MODE_OFF = reason("mode-off")


@dataclass(frozen=True, slots=True)
class UnderstoodJob(Submission):
    """A job of which everything is understood.

    ``node_types`` are those it may land on as it is written, the likeliest first; ``reasons`` say
    how it was understood.
    """

    reading: JobReading
    recognised: Recognised
    use: ScriptUse
    partition: str
    node_types: tuple[NodeType, ...]
    reasons: tuple[Reason, ...]


def understand(submission: Submission) -> UnderstoodJob | Conclusion:
    """Return what a job runs, and where, with the policy and the user's settings that hold for it.

    A job of which anything is not understood is left alone.
    """
    request, snapshot = submission.request, submission.snapshot
    reading = submission.reading or read_job(request, snapshot.rules)
    settings, recognised = reading.settings, reading.recognised
    if recognised is None:
        unread = _reason_unread(request, settings)
        return Conclusion(replace(submission, reading=reading), (unread,))

    request = with_whole_nodes(request, snapshot)
    partition = partition_of(request, snapshot.inventory)
    node_types = possible_node_types(request, snapshot.inventory, snapshot.default_node_types)
    facts = JobFacts.of(
        request,
        partition=partition,
        application=recognised.application,
        workload=recognised.workload,
        node_type=node_types[0].name if node_types else "",
    )
    policy, refused = apply_settings(snapshot.policy.for_job(facts)[0], settings)
    reasons = (*recognised.how, *settings.notes, *refused)

    why = _reason_against(request, settings, policy, recognised)
    for_another_policy = why is MODE_OFF and recognised.application
    if why is None or for_another_policy:
        reading = with_use(reading, request, snapshot.availability, snapshot.rules)
    use = reading.use or NO_USE
    if why is None:
        why = _reason_not_understood(use)
    if why is not None:
        unchanged = Submission(request, snapshot, policy, reading)
        return Conclusion(unchanged, (*reasons, why), recognised.workload)
    if use.runs > 1:
        reasons = (*reasons, reason(SEVERAL_RUNS, use.runs))
    if use.freq_khz:  # the launcher's own option goes before the job's
        request = replace(request, freq_khz=use.freq_khz)
    if reading.uncapped:  # a cap of the user's own has no effect either
        request = replace(request, freq_khz=None, freq_unclear="")
    return UnderstoodJob(
        request, snapshot, policy, reading, recognised, use, partition, tuple(node_types), reasons
    )


def _reason_unread(request: JobRequest, settings: Settings) -> Reason:
    """Return why nothing was recognised in a job; see :func:`read_job`."""
    if settings.off:
        return reason("opted-out", settings.off)
    return reason("step" if request.kind == "step" else "het-job")


def _reason_against(
    request: JobRequest, settings: Settings, policy: Policy, recognised: Recognised
) -> Reason | None:
    """Return why a job is left alone whatever its script does, None where it is not."""
    if settings.off:
        return reason("opted-out", settings.off)
    if policy.mode == "off":
        return MODE_OFF
    if not recognised.application:
        if request.kind == "allocate":
            return reason("interactive", "an interactive job")
        nothing_sent = request.script is None and request.kind == "batch"
        return reason("no-script" if nothing_sent else "unrecognised")
    if request.not_understood:
        return reason("option-not-understood", ", ".join(request.not_understood))
    for axis in ("all", "shape"):
        if axis in request.binds:
            return reason("option-binds", request.binds[axis])
    return None


def _reason_not_understood(use: ScriptUse) -> Reason | None:
    """Return what of a script is not understood."""
    code, detail = use.obstacle
    return reason(code, *filter(None, (detail,))) if code else None
