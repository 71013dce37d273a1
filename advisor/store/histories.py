"""Histories of jobs by their identity: which are stale, and what is known. Standard library only.

A collection marks the identities of the jobs that it takes over; ``advisor/derive`` works their
histories out after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from advisor.core.job_history import JobHistory
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction, marks

MOST = 20_000
"""Histories that are read into memory, those that changed last: about 1 KB each."""
_AT_ONCE = 500
"""Identities that one question names."""


class StaleHistory(NamedTuple):
    """A mark: the history of an identity follows from something that has changed."""

    identity: str
    mark: int


def touch_histories(writer: StoreTransaction, identities: Sequence[str]) -> None:
    """Mark the histories of identities stale, inside the transaction that changes their jobs."""
    writer.change_many(
        "INSERT INTO stale_histories (identity, since) VALUES (?, ?)"
        " ON CONFLICT (identity) DO UPDATE SET mark = excluded.mark",
        [(identity, _rows.now()) for identity in identities],
    )


def stale_histories(reader: Reader, most: int) -> list[StaleHistory]:
    """Return which histories are stale, the longest first."""
    sql = "SELECT identity, mark FROM stale_histories ORDER BY since, identity LIMIT ?"
    return [StaleHistory(*row) for row in map(tuple, reader.rows(sql, (most,)))]


def save_histories(
    writer: StoreTransaction, histories: Mapping[StaleHistory, JobHistory], before: str
) -> None:
    """Store histories and take their marks away, of those that nobody marked anew meanwhile.

    One without jobs is none; neither is one that was not renewed since ``before``.
    """
    with writer.transaction() as db:
        for stale, history in histories.items():
            done = db.execute("DELETE FROM stale_histories WHERE identity = ? AND mark = ?", stale)
            if not done.rowcount:
                continue
            if not history.jobs:
                db.execute("DELETE FROM job_histories WHERE identity = ?", (stale.identity,))
                continue
            record = _rows.to_json(history.to_dict())
            values = (stale.identity, record, _rows.now())
            db.execute("INSERT OR REPLACE INTO job_histories VALUES (?, ?, ?)", values)
        db.execute("DELETE FROM job_histories WHERE updated_at < ?", (before,))


def history_stamps(reader: Reader) -> dict[str, str]:
    """Return identity and updated_at of the histories that changed last."""
    sql = "SELECT identity, updated_at FROM job_histories ORDER BY updated_at DESC LIMIT ?"
    return {row[0]: row[1] for row in reader.rows(sql, (MOST,))}


def history_records(reader: Reader, identities: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return updated_at and the record, still JSON text, of each identity that has a history."""
    names, records = list(identities), dict[str, tuple[str, str]]()
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        where = f"identity IN ({marks(part)})"
        sql = f"SELECT identity, updated_at, record FROM job_histories WHERE {where}"
        records |= {row[0]: (row[1], row[2]) for row in reader.rows(sql, part)}
    return records
