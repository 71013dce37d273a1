"""Why a job cannot be held against its decision: altered, cancelled or started again since.

None of these is the model's doing, so such a job gets no verdict, whatever came out.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.reasons import WHOLE_JOB
from advisor.core.units import format_duration
from advisor.loop.clock import moment
from advisor.loop.execution import Execution, differs
from advisor.loop.verdict import PromiseInterval
from advisor.schedulers.base import JobRecord

_LATE = timedelta(hours=1)
"""A scheduler that starts a job again may give it a new time of submission."""


def incomparable(
    job: JobRecord, decision: Decision, execution: Execution, inventory: Inventory
) -> str:
    """Return in words why what a job did says nothing of its decision, "" where it does."""
    state = (job.state.split() or ["UNKNOWN"])[0]
    if not job.node_list and state != "COMPLETED":
        how = "was cancelled" if state == "CANCELLED" else f"ended as {state}"
        return f"it {how} before it started"
    submitted_at, decided_at = moment(job.submitted_at), moment(decision.created_at)
    late = submitted_at is not None and decided_at is not None and submitted_at > decided_at + _LATE
    if job.restarts or late:
        return "it was started more than once (requeued)"
    if job.altered:
        return f"what it asks for was changed after the decision ({job.altered})"
    configuration = decision.configuration
    if WHOLE_JOB in decision.codes:  # its history says which jobs were of one shape
        execution = replace(execution, ranks_per_node=0, threads_per_node=0, threads_per_rank=0)
    return differs(configuration, execution, inventory) if configuration else ""


def limit_to_blame(job: JobRecord, decision: Decision, time: PromiseInterval | None) -> str:
    """Return why a time limit that struck is not the model's doing, "" where it may be.

    A limit is never chosen so that the promised time does not fit: one that is shorter was
    shortened later. And where the job as it was written would not have fitted either, nothing is
    lost.
    """
    if job.state.split()[:1] != ["TIMEOUT"] or job.elapsed_s is None:
        return ""
    requested_limit_s = decision.request.time_limit_s if decision.request else None
    slack = 2 * job.resolution_s  # the accounting rounds both ends of a time
    if requested_limit_s and job.time_limit_s and job.time_limit_s < requested_limit_s - slack:
        limit, former_limit = format_duration(job.time_limit_s), format_duration(requested_limit_s)
        return (
            f"its time limit was shortened after it was submitted, from {former_limit} to {limit}"
        )
    if time is not None and job.elapsed_s + slack < time.hi:
        return "its time limit ended it before the promised time was over"
    baseline_s = decision.baseline_time_s
    if baseline_s and job.elapsed_s + slack < baseline_s:
        return "its time limit was too short for the job as it was written"
    return ""
