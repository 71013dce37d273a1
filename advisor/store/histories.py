"""Histories of jobs by their identity, as the daemon reads them. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.store.reader import Reader

MOST = 20_000
"""Histories that are read into memory, those that changed last: about 1 KB each."""
_AT_ONCE = 500
"""Identities that one question names."""


def history_stamps(reader: Reader) -> dict[str, str]:
    """Return identity and updated_at of the histories that changed last."""
    sql = "SELECT identity, updated_at FROM job_histories ORDER BY updated_at DESC LIMIT ?"
    return {row[0]: row[1] for row in reader.rows(sql, (MOST,))}


def history_records(reader: Reader, identities: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return updated_at and the record, still JSON text, of each identity that has a history."""
    names, records = list(identities), dict[str, tuple[str, str]]()
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(part))
        where = f"identity IN ({marks})"
        sql = f"SELECT identity, updated_at, record FROM job_histories WHERE {where}"
        records |= {row[0]: (row[1], row[2]) for row in reader.rows(sql, part)}
    return records
