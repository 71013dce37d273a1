"""What tells that something was written that a decision depends on; light, for first screens."""

from __future__ import annotations

from advisor.store.connection import StoreConnection

# How many, too: the latest time stays where a row goes.
_MARKS = (
    "SELECT (SELECT group_concat(id) FROM config_versions WHERE active = 1),"
    " (SELECT count(*) || max(updated_at) FROM models WHERE state <> 'replaced'),"
    " (SELECT count(*) || max(updated_at) FROM node_types),"
    " (SELECT group_concat(id || state) FROM training_requests"
    " WHERE state IN ('requested', 'running')),"
    " (SELECT count(*) || max(updated_at) FROM trials),"
    " (SELECT max(updated_at) FROM job_histories),"
    " (SELECT group_concat(decision_id) FROM cap_trials WHERE job_id = '')"
)


def marks(store: StoreConnection) -> tuple[object, ...]:
    """Return what differs as soon as anything a decision depends on has been written.

    Decisions and outcomes themselves do not count, so that a busy site does not look new.
    """
    return tuple(store.rows(_MARKS)[0])
