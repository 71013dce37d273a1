"""Application profiles in the store, and the steps of their extrapolation.

Standard library only. Profiles are kept as the profiler wrote them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.core.codec import JsonForm, wire
from advisor.core.nearest import suggestion
from advisor.errors import RefusedError
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.schema import apply_added
from advisor.store.transaction import StoreTransaction, insert

_NO_PROFILES = "no application profiles are stored for {!r}"
_IMPORT = "advisor lab profile import DIR"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """One profiled run as it is stored."""

    role: str
    scale: Mapping[str, float]
    file: str
    digest: str
    text: bytes


@dataclass(frozen=True, slots=True)
class ProfileStep(JsonForm):
    """One thing that was done: which action, with what, and what came out."""

    JSON = ("number", "action", "arguments", "made_by", "created_at")

    number: int = field(metadata=wire("step"))
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
        apply_added(db)
        _rows.check_name("application", application)
        for profile in files:
            key = (application, profile.digest)
            where = "application = ? AND digest = ?"
            stored_row = db.execute(f"SELECT 1 FROM profiled_runs WHERE {where}", key).fetchone()
            if stored_row:
                db.execute(
                    f"UPDATE profiled_runs SET role = ?, scale = ?, file = ? WHERE {where}",
                    (profile.role, json.dumps(dict(profile.scale)), profile.file, *key),
                )
                continue
            new += 1
            insert(
                db,
                "profiled_runs",
                {
                    "application": application,
                    "role": profile.role,
                    "scale": json.dumps(dict(profile.scale)),
                    "file": _rows.clean(profile.file),
                    "digest": profile.digest,
                    "content": zlib.compress(profile.text),
                    "contributor": by,
                    "created_at": _rows.now(),
                },
            )
    return new


def profile_files(reader: Reader, application: str) -> list[ProfileFile]:
    """Return an application's profiles in the order they came in. Raises RefusedError."""
    sql = (
        "SELECT role, scale, file, digest, content FROM profiled_runs WHERE application = ?"
        " ORDER BY id"
    )
    if not _has_tables(reader):
        raise RefusedError(_NO_PROFILES.format(application), hint=_IMPORT)
    files = [
        ProfileFile(r[0], json.loads(r[1]), r[2], r[3], zlib.decompress(r[4]))
        for r in map(tuple, reader.rows(sql, [application]))
    ]
    if not files:
        applications = [r[0] for r in reader.rows("SELECT DISTINCT application FROM profiled_runs")]
        raise RefusedError(
            _NO_PROFILES.format(application),
            hint=suggestion(application, applications) if applications else _IMPORT,
        )
    return files


def _has_tables(reader: Reader) -> bool:
    """Tell whether the store has the laboratory's tables: its first import makes them."""
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'profile_steps'"
    return bool(reader.rows(sql))


def add_profile_step(
    writer: StoreTransaction,
    application: str,
    action: str,
    arguments: Mapping[str, Any],
    result: Mapping[str, Any],
    *,
    by: str,
) -> int:
    """Store what was done; return its number."""
    with writer.transaction() as db:
        sql = "SELECT max(number) FROM profile_steps WHERE application = ?"
        number = int(db.execute(sql, [application]).fetchone()[0] or 0) + 1
        insert(
            db,
            "profile_steps",
            {
                "application": application,
                "number": number,
                "action": action,
                "arguments": json.dumps(dict(arguments)),
                "result": json.dumps(dict(result)),
                "made_by": by,
                "created_at": _rows.now(),
            },
        )
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
