"""Whether what a job did counts, for its decision and against the model that this names.

A job that was altered, cancelled or started again since cannot be held against its decision: none
of that is the model's doing, so it gets no verdict, whatever came out.

Daemons on login nodes answer from a published copy and write nothing: their decisions arrive
with the jobs. A forged stamp can name any model, but what it promises must then be that model's
own promise to the last digit, or it does not count against the model.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.option import Row
from advisor.core.reasons import WHOLE_JOB
from advisor.core.select import weigh
from advisor.core.units import format_duration
from advisor.errors import StoreError
from advisor.loop.clock import moment
from advisor.loop.execution import Execution, differs
from advisor.loop.verdict import QUANTITIES, PromiseInterval, promised
from advisor.schedulers.base import JobRecord
from advisor.store.records import StoredModel

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


def model_promises(decision: Decision, model: StoredModel, home: StoredModel) -> bool:
    """Tell whether a decision's promise is what ``model`` predicts for its choice.

    ``home`` is the model of the baseline, on another node type perhaps.
    """
    if decision.chosen is None or decision.baseline is None:
        return False
    chosen, baseline = decision.chosen.configuration, decision.baseline
    try:
        row, base_row = (_row_at(c, model) or _row_at(c, home) for c in (chosen, baseline))
    except StoreError:
        return False
    if row is None or base_row is None or chosen == baseline:
        return False
    predicted = weigh((model.node_type, row), base_row, "balanced").alternative()
    for quantity in QUANTITIES:
        a, b = promised(decision.chosen, quantity), promised(predicted, quantity)
        if a is None or b is None:
            return False
        pairs = zip(a.to_list(), b.to_list(), strict=True)
        if not all(math.isclose(x, y, rel_tol=1e-3) for x, y in pairs):
            return False
    return True


def _row_at(c: Configuration, model: StoredModel) -> Row | None:
    """Return what a model predicts for a configuration, None where it does not know it."""
    if c.node_type != model.node_type:
        return None
    place = (c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz)
    axes = tuple(name for name, _ in c.extra)
    return next((r for r in model.rows(axes) if r[:4] == place and r.extra == c.extra), None)
