"""Which histories of jobs are stale, and how they are renewed.

A collection marks the identities of the jobs that it takes over; ``advisor/derive`` works their
histories out after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advisor.core.job_history import JobHistory
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction, marks


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
    writer: StoreTransaction, histories: Mapping[StaleHistory, JobHistory], cutoff: str
) -> None:
    """Store histories and take their marks away, of those that nobody marked anew meanwhile.

    One that has no jobs and broke no promise is none; neither is one that was not renewed since
    ``cutoff``.
    """
    identities = [stale.identity for stale in histories]
    sql = f"SELECT identity, mark FROM stale_histories WHERE identity IN ({marks(identities)})"
    with writer.transaction() as db:
        current = {tuple(row) for row in db.execute(sql, identities)}
        renewed = {s.identity: history for s, history in histories.items() if s in current}
        telling = {i: h for i, h in renewed.items() if h.timed.jobs or h.worse}
        without = [(identity,) for identity in renewed if identity not in telling]
        db.executemany("DELETE FROM stale_histories WHERE identity = ?", [(i,) for i in renewed])
        db.executemany("DELETE FROM job_histories WHERE identity = ?", without)
        db.executemany(
            "INSERT OR REPLACE INTO job_histories VALUES (?, ?, ?)",
            [
                (identity, _rows.to_json(history.to_dict()), _rows.now())
                for identity, history in telling.items()
            ],
        )
        db.execute("DELETE FROM job_histories WHERE updated_at < ?", (cutoff,))
        db.execute("DELETE FROM cap_trials WHERE created_at < ?", (cutoff,))
