"""Application profiles in the store, and the steps of their extrapolation.

Standard library only. Profiles are kept as the profiler wrote them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.count_laws import CountLaws
from advisor.core.nearest import suggestion
from advisor.errors import RefusedError
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction, insert


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """One profiled run as it is stored."""

    role: str
    scale: Mapping[str, float]
    file: str
    digest: str
    text: bytes


@dataclass(frozen=True, slots=True)
class ProfileStep:
    """One thing that was done: which action, with what, and what came out."""

    number: int
    action: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any]
    made_by: str
    created_at: str


def save_profile_files(
    writer: StoreTransaction, application: str, files: Sequence[ProfileFile], *, by: str
) -> int:
    """Store profiles; return how many are new. One stored before changes its role, if at all."""
    new = 0
    with writer.transaction() as db:
        _rows.check_name("application", application)
        for one in files:
            key = (application, one.digest)
            where = "application = ? AND digest = ?"
            known = db.execute(f"SELECT 1 FROM profiled_runs WHERE {where}", key).fetchone()
            if known:
                db.execute(
                    f"UPDATE profiled_runs SET role = ?, scale = ?, file = ? WHERE {where}",
                    (one.role, json.dumps(dict(one.scale)), one.file, *key),
                )
                continue
            new += 1
            insert(
                db,
                "profiled_runs",
                {
                    "application": application, "role": one.role,
                    "scale": json.dumps(dict(one.scale)), "file": _rows.clean(one.file),
                    "digest": one.digest, "content": zlib.compress(one.text),
                    "contributor": by, "created_at": _rows.now(),
                },
            )  # fmt: skip
    return new


def profile_files(reader: Reader, application: str) -> list[ProfileFile]:
    """Return an application's profiles in the order they came in. Raises RefusedError."""
    sql = (
        "SELECT role, scale, file, digest, content FROM profiled_runs WHERE application = ?"
        " ORDER BY id"
    )
    files = [
        ProfileFile(r[0], json.loads(r[1]), r[2], r[3], zlib.decompress(r[4]))
        for r in map(tuple, reader.rows(sql, [application]))
    ]
    if not files:
        known = [r[0] for r in reader.rows("SELECT DISTINCT application FROM profiled_runs")]
        raise RefusedError(
            f"no application profiles are stored for {application!r}",
            hint=suggestion(application, known) if known else "advisor profile import DIR",
        )
    return files


def add_profile_step(
    writer: StoreTransaction, application: str, action: str, arguments: Mapping[str, Any],
    result: Mapping[str, Any], *, by: str,
) -> int:  # fmt: skip
    """Store what was done; return its number."""
    with writer.transaction() as db:
        sql = "SELECT max(number) FROM profile_steps WHERE application = ?"
        number = int(db.execute(sql, [application]).fetchone()[0] or 0) + 1
        insert(
            db,
            "profile_steps",
            {
                "application": application, "number": number, "action": action,
                "arguments": json.dumps(dict(arguments)), "result": json.dumps(dict(result)),
                "made_by": by, "created_at": _rows.now(),
            },
        )  # fmt: skip
    return number


def profile_steps(reader: Reader, application: str) -> list[ProfileStep]:
    """Return what was done, the first step first."""
    sql = (
        "SELECT number, action, arguments, result, made_by, created_at FROM profile_steps"
        " WHERE application = ? ORDER BY number"
    )
    return [
        ProfileStep(r[0], r[1], json.loads(r[2]), json.loads(r[3]), r[4], r[5])
        for r in map(tuple, reader.rows(sql, [application]))
    ]


def save_count_laws(
    writer: StoreTransaction, application: str, number: int, laws: CountLaws | None
) -> None:
    """Keep with a step what the profiles say since it; families of sizes are fitted by that."""
    with writer.transaction() as db:
        text = json.dumps(None if laws is None else laws.to_dict())
        db.execute(
            "UPDATE profile_steps SET result = json_set(result, '$.laws', json(?))"
            " WHERE application = ? AND number = ?",
            (text, application, number),
        )
        sql = "SELECT name FROM workloads WHERE application = ? AND hidden = 0"
        for row in writer.rows(sql, [application]):
            writer.touch(application, row[0], "sizes")


def count_laws(reader: Reader, application: str) -> CountLaws | None:
    """Return what an application's profiles say of its sizes, None where they say nothing."""
    sql = (
        "SELECT json_extract(result, '$.laws') FROM profile_steps WHERE application = ?"
        " AND json_type(result, '$.laws') IS NOT NULL ORDER BY number DESC LIMIT 1"
    )
    for row in reader.rows(sql, [application]):
        return CountLaws.from_dict(json.loads(row[0] or "null"))
    return None
