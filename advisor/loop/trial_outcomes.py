"""What came of trials: a point confirmed or ruled out, or a place that is free again.

A trial is confirmed where its job kept ``max_slowdown`` and reached ``min_saving`` of the policy it
was submitted under, against what the job took as written. It is bad where the job was harmed:
slower than the bound by 2 points, 2 % more energy, or ended by its time limit. A job that was
cancelled or never ran frees its place; one that ran and says nothing has used its trial up, so
that nobody's jobs are tried for ever.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from advisor.core.cluster_name import same_cluster
from advisor.core.reasons import CAP_TRIAL, TRIAL
from advisor.errors import SchedulerError
from advisor.loop.clock import moment, now
from advisor.loop.match import MatchedJob
from advisor.schedulers.base import JobRecord, Scheduler
from advisor.store import rows as _rows
from advisor.store.cap_trials import PendingCapTrial, pending_cap_trials
from advisor.store.records import Outcome
from advisor.store.rows import OUTCOME_KEY
from advisor.store.trials import StoredTrial, TrialState, trials
from advisor.store.writer import Writer

log = logging.getLogger("advisor.collect")

HARM = 0.02
"""A slowdown so far beyond the bound, or so much more energy, is harm."""
_RUN_ERROR = 0.01
"""Least relative standard error of one run's time and energy."""
_NOT_ITS_DOING = frozenset({"CANCELLED", "BOOT_FAIL", "REVOKED", "PREEMPTED", "NODE_FAIL"})
_UNSEEN = timedelta(hours=1)
"""After so long a submission that the scheduler does not know never became a job."""


def settle_trial(writer: Writer, job: JobRecord, match: MatchedJob, outcome: Outcome) -> str:
    """Write down what came of the trial that an ended job was; return that, "" for nothing new.

    No other trial takes its place until its class model knows of it, which is marked stale.
    """
    if match.trust == "unverified":
        return ""
    if CAP_TRIAL in match.decision.codes:
        return _settle_cap_trial(writer, job, match, outcome)
    if TRIAL not in match.decision.codes:
        return ""
    decided_trials = trials(
        writer, "t.decision_id = ? AND t.user = ?", (match.decision.id, job.user)
    )
    if not decided_trials:
        return ""
    trial = decided_trials[0]
    if not job.node_list or outcome.state in _NOT_ITS_DOING or outcome.verdict == "left-alone":
        return "freed" if _free_place(writer, trial) else ""
    settled = _outcome(trial, outcome)
    if settled == (trial.state, trial.time_s, trial.energy_j):
        return ""
    execution = outcome.record.get("ran") or {}
    resolution = float(execution.get("resolution_s") or 0.0) / (outcome.time_s or 1.0)
    writer.change(
        "UPDATE trials SET state = ?, time_s = ?, energy_j = ?, error = ?, updated_at = ?"
        " WHERE id = ?",
        (*settled, max(_RUN_ERROR, resolution / 2), _rows.now(), trial.id),
    )
    writer.touch(trial.application, trial.workload)
    return settled[0]


def _settle_cap_trial(writer: Writer, job: JobRecord, match: MatchedJob, outcome: Outcome) -> str:
    """Note which job a trial of a cap was; its history tells what came of it."""
    if not job.node_list or outcome.state in _NOT_ITS_DOING or outcome.verdict == "left-alone":
        return "freed" if _free_cap_trial(writer, match.decision.id, job.user) else ""
    tried = writer.change(
        f"UPDATE cap_trials SET {', '.join(f'{name} = ?' for name in OUTCOME_KEY)} {_CAP_TRIAL}",
        (*outcome.key, match.decision.id, job.user),
    )
    return "cap-tried" if tried else ""


def _free_cap_trial(writer: Writer, decision_id: str, user: str) -> bool:
    return bool(writer.change(f"DELETE FROM cap_trials {_CAP_TRIAL}", (decision_id, user)))


_CAP_TRIAL = "WHERE decision_id = ? AND user = ? AND job_id = ''"
"""A trial under way, and nobody else's."""


def _outcome(trial: StoredTrial, o: Outcome) -> tuple[TrialState, float | None, float | None]:
    """Return what came of a trial: its state, and time and energy where they mean something."""
    if o.verdict == "worse" and o.state == "TIMEOUT":
        return "bad", None, None
    ran_alone = o.verdict in ("as-promised", "better", "worse", "unknown")
    if not ran_alone or o.state != "COMPLETED" or o.time_s is None or _says_nothing(o):
        return "unjudged", None, None
    slowdown = o.time_s / trial.own_time_s - 1
    if slowdown > trial.max_slowdown + HARM:
        return "bad", o.time_s, o.energy_j
    if o.energy_j is None or o.verdict == "unknown":
        return "unjudged", None, None
    energy = o.energy_j / trial.own_energy_j - 1
    if energy > HARM:
        return "bad", o.time_s, o.energy_j
    within_bounds = slowdown <= trial.max_slowdown and -energy >= trial.min_saving
    return ("confirmed" if within_bounds else "refuted"), o.time_s, o.energy_j


def _says_nothing(outcome: Outcome) -> bool:
    """Tell whether a job ran otherwise than decided, or not alone, or a part of it failed."""
    execution = outcome.record.get("ran") or {}
    return bool(
        outcome.record.get("mismatch")
        or execution.get("step_failed")
        or execution.get("whole_nodes") is False
    )


def free_places(writer: Writer, scheduler: Scheduler, cluster: str) -> int:
    """Free the places of submissions to a cluster that never became jobs; return how many.

    Those whose user has a job that was submitted then and has not ended are waited for.
    """
    pending: list[StoredTrial | PendingCapTrial] = [
        *trials(writer, "t.state = 'pending'"),
        *pending_cap_trials(writer),
    ]
    late = [
        (trial, created_at)
        for trial in pending
        if same_cluster(trial.cluster, cluster)
        and (created_at := moment(trial.created_at)) is not None
        and created_at < now() - _UNSEEN
    ]
    if not late:
        return 0
    try:
        waiting = [(job.user, moment(job.submitted_at)) for job in scheduler.unfinished_jobs()]
    except SchedulerError as error:
        log.warning("event=queue-unread error=%r", str(error))
        return 0

    freed = 0
    for trial, created_at in late:
        if not any(
            user == trial.user
            and submitted_at is not None
            and created_at - _UNSEEN < submitted_at < created_at + _UNSEEN
            for user, submitted_at in waiting
        ):
            freed += _free_place(writer, trial)
    return freed


def _free_place(writer: Writer, trial: StoredTrial | PendingCapTrial) -> bool:
    """Free the place of a trial that did not take place, as if it had never been chosen."""
    if isinstance(trial, PendingCapTrial):
        return _free_cap_trial(writer, trial.decision_id, trial.user)
    sql = "UPDATE trials SET state = 'freed', updated_at = ? WHERE id = ? AND state = 'pending'"
    return bool(writer.change(sql, (_rows.now(), trial.id)))
