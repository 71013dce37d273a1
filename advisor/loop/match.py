"""Which decision a job carries, and how far to trust that it was made for this job.

The stamp on a job may have passed through the user's own environment: it is data to be checked.
What the store knows of a decision always wins over what a stamp says of it, and whose job it is
comes from the accounting alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from advisor.core.decision import changed
from advisor.core.policy import GOALS, MODES
from advisor.core.recognise import clean_name
from advisor.core.stamp import read_stamp
from advisor.loop.clock import moment, utc
from advisor.loop.verdict import QUANTITIES, promised
from advisor.schedulers.base import JobRecord
from advisor.store.reader import Reader

StampTrust = Literal["verified", "stamped", "unverified"]
"""``verified``: the store's own daemon made this decision for this user. ``stamped``: known from
the stamp alone, as from a login node. ``unverified``: stamp and store or accounting disagree."""

STAMP_VARIABLES = ("ADVISOR_STAMP", "SLURM_ADVISOR_STAMP")
ORIGIN_STAMP = "stamp"
_CUT = 80
"""Length at which a long stamp cuts names."""
_EARLY, _LATE = timedelta(minutes=10), timedelta(hours=1)
"""A decision that is linked to no job yet was made this long before its job at most."""


@dataclass(frozen=True, slots=True)
class MatchedJob:
    """The decision of a job: its record, how far to trust it, and why not further."""

    record: Mapping[str, Any]
    trust: StampTrust
    why: str = ""

    @property
    def id(self) -> str:
        """The decision's id."""
        return str(self.record.get("decision") or "")


def base_id(job_id: str) -> str:
    """Return the job that an array task or a part of a heterogeneous job belongs to."""
    return job_id.partition("_")[0].partition("+")[0].partition("[")[0]


def stamp_of(job: JobRecord) -> dict[str, object] | None:
    """Return the decision record stamped on a job, None when there is none."""
    texts = (job.admin_comment, *(job.stamp.get(name, "") for name in STAMP_VARIABLES))
    return next((found for found in map(read_stamp, texts) if found is not None), None)


def find(job: JobRecord, reader: Reader | None) -> MatchedJob | None:
    """Return the decision a job carries, None when it carries none. ``reader``: None, no store."""
    if reader is not None:
        linked = _linked(job, reader)
        if linked is not None:
            return linked
    stamp = stamp_of(job)
    if stamp is None:
        return None
    own = {
        **stamp,
        "application": clean_name(str(stamp["application"])),
        "workload": clean_name(str(stamp["workload"])),
        "mode": stamp["mode"] if stamp["mode"] in MODES else "",
        "goal": stamp["goal"] if stamp["goal"] in GOALS else "",
        "created_at": utc(str(stamp["created_at"])) or utc(job.submitted_at),
        "scheduler": "",
        "hook": "stamp",
        "user": job.user,
        "account": job.account,
        "origin": ORIGIN_STAMP,
    }
    stored = None if reader is None else reader.decision(str(stamp["decision"]))
    if stored is None:
        return MatchedJob(own, "stamped", "known from the job's stamp only")
    why = _conflict(job, stamp, stored)
    if why:
        return MatchedJob(own, "unverified", why)
    return MatchedJob(stored, *_of_store(stored))


def _linked(job: JobRecord, reader: Reader) -> MatchedJob | None:
    """Return the latest decision that the store links to this job and this user."""
    rows = reader.rows(
        "SELECT id, record FROM decisions WHERE job_id = ? AND job_id <> '' AND user = ?"
        " ORDER BY created_at DESC",
        (base_id(job.job_id), job.user),
    )
    submitted = moment(job.submitted_at)
    for row in rows:
        record = json.loads(row["record"])
        made = moment(str(record.get("created_at") or ""))
        if submitted is not None and made is not None and made > submitted + _EARLY:
            continue
        return MatchedJob(record, *_of_store(record))
    return None


def _of_store(record: Mapping[str, Any]) -> tuple[StampTrust, str]:
    if record.get("origin") == ORIGIN_STAMP:
        return "stamped", "known from the job's stamp only"
    return "verified", ""


def _conflict(job: JobRecord, stamp: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    """Return why a stamp cannot stand for the stored decision of the same id, "" if it can."""
    if stored.get("user") != job.user:
        return "its stamp names a decision made for another user"
    linked = str(stored.get("job_id") or "")
    if linked and linked != base_id(job.job_id):
        return f"its stamp names the decision made for job {linked}"
    submitted, made = moment(job.submitted_at), moment(str(stored.get("created_at") or ""))
    if (
        not linked
        and submitted is not None
        and made is not None
        and not made - _EARLY <= submitted <= made + _LATE
    ):
        return "its stamp names a decision made at another time"
    differing = _differing(stamp, stored)
    if differing:
        return f"its stamp differs from the decision made ({', '.join(differing)})"
    return ""


def _differing(stamp: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Return the names of what a stamp says otherwise than the stored record."""
    found = [
        name
        for name in ("mode", "goal", "holdout", "model_id", "policy_version")
        if stamp.get(name) != stored.get(name)
    ]
    for name in ("application", "workload"):
        said, kept = str(stamp.get(name) or ""), str(stored.get(name) or "")
        if said != kept and not (len(said) == _CUT and kept.startswith(said)):
            found.append(name)
    if changed(stamp) != changed(stored):
        found.append("rewrite")
    found += [n for n in ("baseline", "chosen") if _point(stamp.get(n)) != _point(stored.get(n))]
    for quantity in QUANTITIES:
        a, b = promised(stamp, quantity), promised(stored, quantity)
        ends = zip(a.to_list() if a else (), b.to_list() if b else (), strict=False)
        if (a is None) != (b is None) or not all(math.isclose(x, y, rel_tol=1e-3) for x, y in ends):
            found.append(f"promised {quantity}")
    return found


def _point(value: object) -> tuple[object, ...] | None:
    if not isinstance(value, Mapping):
        return None
    names = ("node_type", "nodes", "ranks_per_node", "threads_per_node", "freq_khz")
    return tuple(value.get(name) for name in names)
