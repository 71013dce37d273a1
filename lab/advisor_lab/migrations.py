"""The laboratory's tables in the store, as sqlite-utils migrations: never edited afterwards."""

from __future__ import annotations

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

migrations = Migrations("advisor_lab")

_PROFILED_RUNS = """
-- What a profiler said of the threads of one run, as it wrote it (text, compressed); scale: the
-- scaling parameters.
CREATE TABLE IF NOT EXISTS profiled_runs (
    id           INTEGER PRIMARY KEY,
    application  TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('train', 'test')),
    scale        TEXT NOT NULL CHECK (json_valid(scale)),
    file         TEXT NOT NULL,
    digest       TEXT NOT NULL,
    content      BLOB NOT NULL,
    contributor  TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    UNIQUE (application, digest)
)
"""
_PROFILE_STEPS = """
-- What was done with an application's profiles, step by step: with what, and what came out.
CREATE TABLE IF NOT EXISTS profile_steps (
    id           INTEGER PRIMARY KEY,
    application  TEXT NOT NULL,
    number       INTEGER NOT NULL CHECK (number >= 1),
    action       TEXT NOT NULL,
    arguments    TEXT NOT NULL CHECK (json_valid(arguments)),
    result       TEXT NOT NULL CHECK (json_valid(result)),
    made_by      TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    UNIQUE (application, number)
)
"""


@migrations()
def l0001_application_profiles(db: Database) -> None:
    """Add profiles of applications' threads and the steps of their extrapolation.

    Stores of the time before the laboratory was a distribution of its own have these tables.
    """
    for table in (_PROFILED_RUNS, _PROFILE_STEPS):
        db.execute(table)
