"""Jobs of recurring scripts that try a frequency cap: one of a script at a time.

The daemon takes the place before it answers, in one statement that no other daemon can repeat;
``advisor collect`` writes down which job it was, or frees the place. Standard library only.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from advisor.core.decision import Decision
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.trials import write_now

RECURRING = "recurring-scripts"
"""What trials of caps stand under in a report, beside the classes of applications."""


class PendingCapTrial(NamedTuple):
    """A trial of which no job is known yet."""

    decision_id: str
    identity: str
    user: str
    cluster: str
    created_at: str


def pending_cap_trials(reader: Reader) -> list[PendingCapTrial]:
    """Return the trials that are under way."""
    sql = (
        "SELECT decision_id, identity, user, cluster, created_at FROM cap_trials WHERE job_id = ''"
    )
    return [PendingCapTrial(*row) for row in map(tuple, reader.rows(sql, ()))]


def cap_trials_by_state(
    reader: Reader, since: str, user: str, cluster: str = ""
) -> dict[str, Counter[str]]:
    """Return how many trials since a moment are under way and over; ``user`` and ``cluster`` "" for
    all."""
    sql = (
        "SELECT CASE job_id WHEN '' THEN 'pending' ELSE 'tried' END, count(*) FROM cap_trials"
        " WHERE created_at >= ? AND ? IN ('', user) AND ? IN ('', cluster) GROUP BY 1"
    )
    states = Counter({row[0]: row[1] for row in reader.rows(sql, (since, user, cluster))})
    return {RECURRING: states} if states else {}


def take_cap_trial(path: Path, decision: Decision) -> bool:
    """Take the place of a trial for a decision; False where it is not free. Never raises."""
    sql = "INSERT OR IGNORE INTO cap_trials (decision_id, identity, user, cluster, created_at)"
    values: dict[str, object] = {
        "id": decision.id,
        "identity": decision.identity,
        "user": decision.user,
        "cluster": decision.cluster,
        "at": _rows.now(),
    }
    return write_now(path, f"{sql} VALUES (:id, :identity, :user, :cluster, :at)", values) == 1


def give_up_cap_trial(path: Path, decision_id: str) -> None:
    """Free the place of a trial that no job runs. Never raises."""
    sql = "DELETE FROM cap_trials WHERE decision_id = :id AND job_id = ''"
    write_now(path, sql, {"id": decision_id})
