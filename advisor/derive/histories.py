"""Histories of jobs by identity, from the outcomes of their latest jobs. Standard library only."""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from advisor.core.codec import FieldError
from advisor.core.complaint import is_harm, last_worse
from advisor.core.inventory import Inventory
from advisor.core.job_history import (
    COARSEST,
    MAX_AGE_DAYS,
    MOST_JOBS,
    MOST_TRIED,
    JobHistory,
    JobPart,
    PastJob,
)
from advisor.core.reasons import CAP_TRIAL, SEVERAL_PROGRAMS, STEP_PLAN, WHOLE_JOB
from advisor.core.requested_configuration import default_freq
from advisor.store.port import ResultRow
from advisor.store.reader import Reader
from advisor.store.rows import OUTCOME_KEY
from advisor.store.stale_histories import StaleHistory, save_histories, stale_histories
from advisor.store.transaction import marks
from advisor.store.writer import Writer

log = logging.getLogger("advisor.derive")

_WHOLE = frozenset({WHOLE_JOB, SEVERAL_PROGRAMS})
"""Reasons of promises of a whole job that no stored model made."""
_AT_ONCE = 200
"""Histories of one transaction, some ms."""
_LOOKED_AT = 50
"""Outcomes of an identity that are looked at, the latest: some failed, some were changed."""
_AMONG = 1000
"""Outcomes of an identity, the latest, among which those of jobs as written are looked for."""
_OUTCOMES = (
    "SELECT job_id, state, verdict, record FROM outcomes"
    " WHERE json_extract(record, '$.identity') IS NOT NULL"
    " AND json_extract(record, '$.identity') = ? AND submitted_at >= ?"
    " ORDER BY submitted_at DESC LIMIT "
)
_AS_WRITTEN = (
    f"SELECT * FROM ({_OUTCOMES}{_AMONG}) AS latest"
    " WHERE json_extract(record, '$.changed') = 0 OR json_extract(record, '$.changed') = 'false'"
    f" LIMIT {_LOOKED_AT}"
)
_TRIED = (
    "SELECT t.identity, o.job_id, o.state, o.verdict, o.record FROM cap_trials AS t"
    f" JOIN outcomes AS o ON {' AND '.join(f'o.{name} = t.{name}' for name in OUTCOME_KEY)}"
    " WHERE t.identity IN ({}) AND t.created_at >= ? ORDER BY t.created_at DESC"
)
"""One job of an identity tries at a time, so they are few."""

_Ended = tuple[str, str, str, Mapping[str, Any]]
"""A job's id, state, verdict and record."""


def derive_histories(writer: Writer, is_over: Callable[[], bool]) -> bool:
    """Work out stale histories until the time is over; tell whether none is left.

    Raises StoreError where the store cannot be read or written.
    """
    oldest_day = (datetime.now(UTC) - timedelta(days=MAX_AGE_DAYS)).isoformat()
    with Reader(writer.path) as reader:
        inventory = reader.inventory()
        while stale := stale_histories(writer, _AT_ONCE):
            with writer.unsynced():
                histories = _histories(reader, stale, oldest_day, inventory)
                save_histories(writer, histories, oldest_day)
            if is_over():
                return not stale_histories(writer, 1)
    return True


def _histories(
    reader: Reader, stale: Sequence[StaleHistory], since: str, inventory: Inventory
) -> dict[StaleHistory, JobHistory]:
    """Work out some histories; what is read for them is asked for at once."""
    identities = [mark.identity for mark in stale]
    latest = reader.rows_of_each(f"{_OUTCOMES}{_LOOKED_AT}", [(i, since) for i in identities])
    tried: defaultdict[str, list[ResultRow]] = defaultdict(list)
    for row in reader.rows(_TRIED.format(marks(identities)), (*identities, since)):
        tried[row["identity"]].append(row)
    histories = {}
    for mark, rows in zip(stale, latest, strict=True):
        try:
            outcomes = [_ended(row) for row in rows]
            as_written = [row for row in outcomes if row[3].get("changed") == 0]
            if len(rows) == _LOOKED_AT:  # those that ran as written may have come before
                as_written = [
                    _ended(row) for row in reader.rows(_AS_WRITTEN, (mark.identity, since))
                ]
            trials = [_ended(row) for row in tried[mark.identity][:MOST_TRIED]]
            histories[mark] = _history(outcomes, as_written, trials, inventory)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a record of no sense
            log.warning("event=not-derived identity=%s error=%r", mark.identity, error)
            histories[mark] = JobHistory()
    return histories


def _ended(row: ResultRow) -> _Ended:
    return row["job_id"], row["state"], row["verdict"], json.loads(row["record"])


def _history(
    outcomes: Sequence[_Ended],
    as_written: Sequence[_Ended],
    trials: Sequence[_Ended],
    inventory: Inventory,
) -> JobHistory:
    """Return the history of an identity's latest jobs, of those that ran as written, and of those
    that tried a cap."""
    past = [(_is_planned(row), job) for row in as_written if (job := _past_job(row, inventory))]
    written, planned = ([job for p, job in past if p is kind] for kind in (False, True))
    worse = _broken_promises(outcomes)
    tried = [job for row in trials if (job := _tried_job(row, inventory))]
    ended_by_limit = [row[0] for row in trials if row[1] == "TIMEOUT"]
    return JobHistory(
        tuple(written[:MOST_JOBS]),
        worse,
        tuple(planned[:MOST_JOBS]),
        tuple(tried),
        len(trials),
        f"job {ended_by_limit[0]} ended at its time limit" if ended_by_limit else "",
    )


def _is_planned(outcome: _Ended) -> bool:
    """Tell whether a job had a plan, so that its steps may have run otherwise than written."""
    return STEP_PLAN in (outcome[3].get("reasons") or ())


def _past_job(outcome: _Ended, inventory: Inventory) -> PastJob | None:
    """Return a job that says how the next one will run, None where it does not."""
    record = outcome[3]
    job = _job_that_ran(outcome, inventory)
    if job is None or record.get("changed"):
        return None
    if not _is_planned(outcome):
        return None if job.freq_khz else job
    return replace(job, time_s=job.time_s / float(record.get("planned_time") or 1.0), freq_khz=0)


def _tried_job(outcome: _Ended, inventory: Inventory) -> PastJob | None:
    """Return a job that tried a cap and ran under it, its parts as one; None of any other."""
    job = _job_that_ran(outcome, inventory)
    if job is None or not job.freq_khz or outcome[3].get("mismatch"):
        return None
    energies_j = [part.energy_j for part in job.parts]
    energy_j = None if None in energies_j else math.fsum(filter(None, energies_j))
    steps = sum(part.steps for part in job.parts)
    return replace(job, parts=(JobPart("", 0, 0, steps, job.parts_s, energy_j),))


def _job_that_ran(outcome: _Ended, inventory: Inventory) -> PastJob | None:
    """Return a job that ended well on whole nodes of one type, None of any other."""
    _, state, _, record = outcome
    ran, parts, elapsed_s = record.get("ran"), record.get("parts"), record.get("elapsed_s")
    if state != "COMPLETED" or not isinstance(ran, dict) or not parts or not elapsed_s:
        return None
    node_type = inventory.node_types.get(str(ran.get("node_type")))
    if record.get("trust") != "verified" or node_type is None:
        return None
    if ran.get("whole_nodes") is not True or ran.get("step_failed"):
        return None
    try:
        cap_khz = int(ran["freq_khz"])
        job = PastJob(
            node_type.name,
            int(ran["nodes"]),
            float(elapsed_s),
            float(ran["resolution_s"]),
            int(ran["ranks_per_node"]),
            int(ran["threads_per_node"]),
            tuple(JobPart.from_dict(part) for part in parts),
            0 if cap_khz == default_freq(node_type) else cap_khz,
            whole=len(parts) == 1 and not parts[0]["program"],
        )
    except (FieldError, KeyError, TypeError, ValueError):
        return None
    if not job.parts_s > 0 or not all(part.steps > 0 for part in job.parts):
        return None
    return job if job.resolution_s <= COARSEST * job.time_s else None


def _broken_promises(outcomes: Sequence[_Ended]) -> str:
    """Return which promises of a whole job were broken, where that is a reason to complain."""
    promised = [
        row
        for row in reversed(outcomes)
        if not _WHOLE.isdisjoint(codes := row[3].get("reasons") or ())
        and CAP_TRIAL not in codes
        and row[2] in ("as-promised", "better", "worse")
    ]
    worse = last_worse(promised, lambda row: row[2] == "worse")
    if not is_harm(worse, lambda row: bool(row[3].get("far"))):
        return ""
    return "worse than promised: " + ", ".join(f"job {row[0]}" for row in worse)
