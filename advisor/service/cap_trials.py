"""Which job of a recurring script tries a frequency cap, where the policy lets some do so."""

from __future__ import annotations

from dataclasses import replace

from advisor.core.cap_trials import TriedCaps, tried_caps
from advisor.core.feasible import Constraints, feasible_rows
from advisor.core.inventory import NodeType
from advisor.core.job_history import JobHistory
from advisor.core.policy import Policy
from advisor.core.reasons import CAP_TRIAL, CAP_TRIALS_STOPPED, reason
from advisor.core.requested_configuration import default_freq
from advisor.core.select import weigh
from advisor.service.baseline import JobBaseline
from advisor.service.choice import Choice
from advisor.service.understand import UnderstoodJob

_NOTHING_TRIED = TriedCaps({})


def caps_of(history: JobHistory, node_type: NodeType, policy: Policy) -> TriedCaps:
    """Return what jobs of a history tell of the caps they tried, and what the next may try."""
    tried_jobs = [job for job in history.tried if job.shape == history.jobs[0].shape]
    most = policy.cold_start.cap_trials
    if not tried_jobs and not most:
        return _NOTHING_TRIED
    free_khz = default_freq(node_type)
    tried = tried_caps(history.jobs, tried_jobs, free_khz, node_type.freq_khz, policy)
    if tried is None:
        return _NOTHING_TRIED
    if history.stopped or history.trials >= most:
        return replace(tried, next_khz=0, worst=None)
    return tried


def cap_trial_of(
    job: UnderstoodJob, baseline: JobBaseline, bounds: Constraints, choice: Choice
) -> Choice:
    """Return the choice to try a cap where this job may do so now, else the choice as it is.

    One job of a script at a time; none of an array, nor one that starts nobody knows when.
    """
    model, policy = baseline.model, job.policy
    row, stop_reason, request = model.stats["trial"], model.stats["stopped"], job.request
    if stop_reason and policy.cold_start.cap_trials:
        why = reason(CAP_TRIALS_STOPPED, stop_reason)
        return replace(choice, reasons=(*choice.reasons, why))
    if row is None or policy.mode != "apply" or request.array or request.held:
        return choice
    rows, _ = feasible_rows(model.node_type, [row], bounds)
    if not rows:
        return choice
    if job.reading.identity in job.snapshot.cap_trials:
        return replace(choice, reasons=(*choice.reasons, reason("cap-trial-pending")))
    alternative = weigh((model.node_type, row), baseline.row, policy.goal).alternative()
    number = model.stats["tried"] + 1
    slower = f"{100 * alternative.time.hi:.1f} %"
    why = reason(CAP_TRIAL, number, policy.cold_start.cap_trials, slower)
    return Choice(alternative, choice.alternatives, (why,))
