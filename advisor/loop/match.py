"""Which decision a job carries, and how far to trust that it was made for this job.

The stamp on a job may have passed through the user's own environment: it is data to be checked.
What the store knows of a decision always wins over what a stamp says of it, and whose job it is
comes from the accounting alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, Protocol

from advisor.core.cluster_name import is_federated, same_cluster
from advisor.core.decision import FROM_STAMP, Decision, read_policy
from advisor.core.policy import GOALS, MODES
from advisor.core.recognise import clean_name
from advisor.core.stamp import NAME_CUT, read_stamp
from advisor.loop.clock import moment, utc
from advisor.loop.verdict import QUANTITIES, promised
from advisor.schedulers.base import JobRecord
from advisor.store.reader import array_of

StampTrust = Literal["verified", "stamped", "unverified"]
"""``verified``: the store's own daemon made this decision for this user. ``stamped``: known from
the stamp alone, as from a login node. ``unverified``: stamp and store or accounting disagree."""

_EARLY, _LATE = timedelta(minutes=10), timedelta(hours=1)
"""So long before and after a decision its job may be submitted, where it is linked to none yet: a
host's clock is ahead of the controller's, or the submission waited."""


class DecisionReader(Protocol):
    """Where decisions are looked up: a Reader, or what was read for many jobs at once."""

    def decision(self, id: str) -> Decision | None:
        """Return a decision, None when it is not known."""

    def decisions_of(
        self, job_id: str, user: str, cluster: str = "", *, brief: bool = False
    ) -> list[Decision]:
        """Return the decisions that are linked to a job of a user, newest first."""


@dataclass(frozen=True, slots=True)
class MatchedJob:
    """The decision of a job, how far to trust it, and why not further."""

    decision: Decision
    trust: StampTrust
    why: str = ""
    stored: bool = False
    """The decision is as the store has it."""


def stamp_of(job: JobRecord) -> Decision | None:
    """Return the decision stamped on a job, None when there is none."""
    carried = (text for name, text in sorted(job.stamp.items()) if name.endswith("ADVISOR_STAMP"))
    # The comment first: what stands there the controller wrote, a variable the user may have set.
    texts = (job.admin_comment, *carried)
    return next((stamp for stamp in map(read_stamp, texts) if stamp is not None), None)


def find(
    job: JobRecord, reader: DecisionReader | None, *, brief: bool = False
) -> MatchedJob | None:
    """Return the decision a job carries, None when it carries none. ``reader``: None, no store.

    ``brief``: one that the store links to the job without what was asked, read and weighed. What is
    asked counts for a job that its time limit ended.
    """
    if reader is not None:
        linked = _linked_match(job, reader, brief and job.state.split()[:1] != ["TIMEOUT"])
        if linked is not None:
            return linked
    stamp = stamp_of(job)
    if stamp is None:
        return None
    stamped_decision = replace(
        stamp,
        application=clean_name(stamp.application),
        workload=clean_name(stamp.workload),
        policy=read_policy(
            stamp.mode if stamp.mode in MODES else "", stamp.goal if stamp.goal in GOALS else ""
        ),
        created_at=utc(stamp.created_at) or utc(job.submitted_at),
        user=job.user,
        account=job.account,
        cluster=job.cluster,
    )
    stored = None if reader is None else reader.decision(stamp.id)
    if stored is None:
        return MatchedJob(stamped_decision, "stamped", "known from the job's stamp only")
    why = _conflict(job, stamp, stored)
    if why:
        return MatchedJob(stamped_decision, "unverified", why)
    return MatchedJob(stored, *_of_store(stored), stored=True)


def _linked_match(job: JobRecord, reader: DecisionReader, brief: bool) -> MatchedJob | None:
    """Return the latest decision that the store links to this job and this user."""
    submitted_at = moment(job.submitted_at)
    for decision in reader.decisions_of(array_of(job.job_id), job.user, job.cluster, brief=brief):
        # A scheduler may count its jobs from 1 again: what was decided after this one was
        # submitted is of a later job with its number.
        decided_at = moment(decision.created_at)
        if (
            submitted_at is not None
            and decided_at is not None
            and decided_at > submitted_at + _EARLY
        ):
            continue
        return MatchedJob(decision, *_of_store(decision), stored=True)
    return None


def _of_store(decision: Decision) -> tuple[StampTrust, str]:
    if decision.origin == FROM_STAMP:
        return "stamped", "known from the job's stamp only"
    return "verified", ""


def _conflict(job: JobRecord, stamp: Decision, stored: Decision) -> str:
    """Return why a stamp cannot stand for the stored decision of the same id, "" if it can."""
    if stored.user != job.user:
        return "its stamp names a decision made for another user"
    if stored.job_id and stored.job_id != array_of(job.job_id):
        return f"its stamp names the decision made for job {stored.job_id}"
    if not same_cluster(stored.cluster, job.cluster) and not is_federated(job.job_id):
        return f"its stamp names a decision made for cluster {stored.cluster}"
    submitted_at, decided_at = moment(job.submitted_at), moment(stored.created_at)
    if (
        not stored.job_id
        and submitted_at is not None
        and decided_at is not None
        and not decided_at - _EARLY <= submitted_at <= decided_at + _LATE
    ):
        return "its stamp names a decision made at another time"
    differing = _differing(stamp, stored)
    if differing:
        return f"its stamp differs from the decision made ({', '.join(differing)})"
    return ""


def _differing(stamp: Decision, stored: Decision) -> list[str]:
    """Return the names of what a stamp says otherwise than the stored decision."""
    names = [
        name
        for name in ("mode", "goal", "holdout", "model_id", "policy_version")
        if getattr(stamp, name) != getattr(stored, name)
    ]
    for name in ("application", "workload"):
        stamped, full = getattr(stamp, name), getattr(stored, name)
        if stamped != full and not (len(stamped) == NAME_CUT and full.startswith(stamped)):
            names.append(name)
    if stamp.changed != stored.changed:
        names.append("rewrite")
    if stamp.baseline != stored.baseline:
        names.append("baseline")
    points = [d.chosen.configuration if d.chosen else None for d in (stamp, stored)]
    if points[0] != points[1]:
        names.append("chosen")
    for quantity in QUANTITIES:
        a, b = promised(stamp.chosen, quantity), promised(stored.chosen, quantity)
        ends = zip(a.to_list() if a else (), b.to_list() if b else (), strict=False)
        # A stamp has its numbers rounded.
        if (a is None) != (b is None) or not all(math.isclose(x, y, rel_tol=1e-3) for x, y in ends):
            names.append(f"promised {quantity}")
    return names
