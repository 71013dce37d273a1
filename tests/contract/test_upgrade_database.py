"""The version after this one: a store in PostgreSQL is brought up to date in place, or not at all.

A copy of the program with three more steps of the schema is that version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.database import DatabaseAddress
from advisor.errors import StoreError
from advisor.paths import share
from advisor.store.dialect import tables
from advisor.store.postgresql import PostgresConnection
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests import postgresql
from tests.contract.test_serve import DECIDE, ask, fill, place, start
from tests.contract.test_stores import both, example, server
from tests.waiting import wait_for

pytestmark = pytest.mark.postgresql
__all__ = ("both", "example", "place", "server", "start")
Run = Callable[..., Any]
STEPS = '''
_LESSONS = """
-- A site's lessons; what a decision's day adds up to is no longer known.
ALTER TABLE models ADD COLUMN season TEXT NOT NULL DEFAULT '' CHECK (season IN ('', 'all'));
CREATE TABLE lessons (
    id      INTEGER PRIMARY KEY,
    at      TEXT NOT NULL,
    weight  REAL NOT NULL DEFAULT 1.5 CHECK (weight > 0),
    record  BLOB NOT NULL DEFAULT x''
);
CREATE TRIGGER lesson_added AFTER INSERT ON lessons BEGIN
    DELETE FROM days WHERE day = substr(NEW.at, 1, 10);
END;
INSERT INTO lessons (at) SELECT created_at FROM decisions WHERE changed = 1 ORDER BY id;
"""


@migrations()
def m9001_lessons(db: Database) -> None:
    """Add lessons."""
    _run(db, _LESSONS)


_NODE_TYPES = """
CREATE TABLE node_types_now (
    name        TEXT NOT NULL,
    cluster     TEXT NOT NULL DEFAULT '',
    spec        TEXT NOT NULL CHECK (json_valid(spec)),
    source      TEXT NOT NULL,
    updated_at  TEXT NOT NULL,
    hardware    TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (cluster, name)
);
INSERT INTO node_types_now (rowid, name, cluster, spec, source, updated_at, hardware)
SELECT rowid, name, cluster, spec, source, updated_at, hardware FROM node_types;
DROP TABLE node_types;
ALTER TABLE node_types_now RENAME TO node_types;
CREATE INDEX node_types_by_source ON node_types (source) WHERE source <> '';
"""


@migrations()
def m9002_node_types(db: Database) -> None:
    """Make a table anew."""
    _run(db, _NODE_TYPES)


@migrations()
def m9003_energies(db: Database) -> None:
    """Change rows by what their records say."""
    sql = "UPDATE outcomes SET account = ? WHERE json_extract(record, '$.changed') IS NOT NULL"
    db.execute(sql, ["changed"])
'''
LOOK = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
        pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        AND c.relnamespace = 'advisor'::regnamespace
    UNION ALL SELECT conrelid::regclass::text, pg_get_constraintdef(oid), '', true, '', '', NULL
    FROM pg_constraint WHERE connamespace = 'advisor'::regnamespace
    UNION ALL SELECT tablename, regexp_replace(indexdef, 'INDEX \\w+_now\\w* ', 'INDEX '), '', true,
        '', '', NULL
    FROM pg_indexes WHERE schemaname = 'advisor' AND indexname !~ '_(key|pkey)\\d*$'
    UNION ALL SELECT tgrelid::regclass::text, pg_get_triggerdef(oid), '', true, '', '', NULL
    FROM pg_trigger WHERE NOT tgisinternal
    ORDER BY 1, 2
"""
"""All that makes a schema: columns, constraints, indices, triggers."""


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the version after this one."""
    root, folder = share("db").parent, tmp_path_factory.mktemp("later")
    for name in ("advisor", "db", "config", "hooks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / name, folder / name, ignore=ignored)
    with (folder / "db/migrations.py").open("a") as file:
        file.write(STEPS)
    schema = program(
        folder, "from advisor.store.schema import schema_sql; print(schema_sql(), end='')"
    )
    (folder / "db/schema.sql").write_text(schema)
    return folder


def began(later: Path, text: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program of that version."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        cwd=later,
        env={**os.environ, "PYTHONPATH": str(later)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def program(later: Path, text: str, *arguments: object) -> str:
    """Run a program of that version, and return what it prints."""
    running = began(later, text, *arguments)
    out, err = running.communicate()
    assert running.returncode == 0, err
    return out


UPGRADE = "import sys; from advisor.store.writer import Writer; Writer(sys.argv[1]).close()"


def steps(server: postgresql.Server, address: DatabaseAddress) -> str:
    """Return what of the later steps is there, as one line."""
    return server.sql(
        "SELECT string_agg(s, ' ') FROM (SELECT name AS s FROM advisor._sqlite_migrations"
        " WHERE name LIKE 'm9%' UNION ALL SELECT relname FROM pg_class WHERE relname = 'lessons'"
        " ORDER BY 1) AS found",
        database_name(address),
    ).strip()


ALL_STEPS = "lessons m9001_lessons m9002_node_types m9003_energies"


def database_name(address: DatabaseAddress) -> str:
    return re.sub(r".*/(\w+)\?.*", r"\1", str(address))


@contextmanager
def held(address: DatabaseAddress, table: str) -> Iterator[None]:
    """Keep others from changing a table, as a reader of it does."""
    connection = PostgresConnection(address, timeout_s=60)
    connection.execute("BEGIN READ WRITE")
    connection.script(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
    try:
        yield
    finally:
        connection.close()


def is_waited_for(server: postgresql.Server, address: DatabaseAddress, count: int = 1) -> bool:
    """Tell whether so many wait for a lock."""
    sql = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
    return int(server.sql(sql, database_name(address))) == count


def test_a_database_comes_to_what_a_file_comes_to(
    both: tuple[Path, DatabaseAddress], server: postgresql.Server, later: Path
) -> None:
    database = both[1]
    for store in both:
        program(later, UPGRADE, store)
    fresh = server.database()
    program(later, UPGRADE, fresh)
    look = [
        server.sql(f"SET search_path = advisor; {LOOK}", database_name(a))
        for a in (fresh, database)
    ]
    assert look[0] == look[1] and "lessons" in look[0]
    same = program(
        later,
        "import sys\n"
        "from advisor.store.dialect import tables\n"
        "from advisor.store.reader import Reader\n"
        "from advisor.store.writer import Writer\n"
        "stores = [Reader(s) for s in sys.argv[1:]]\n"
        "for name, table in tables().items():\n"
        "    columns = ', '.join(f'\"{c}\"' for c in table.stored if c != 'applied_at')\n"
        "    sql = f\"SELECT {columns} FROM {name} ORDER BY {', '.join(table.key)}\"\n"
        "    some = [[*map(tuple, s.rows(sql))] for s in stores]\n"
        "    if some[0] != some[1]: print(name, some)\n"
        "with Writer(sys.argv[2]) as writer:\n"
        "    with writer.transaction() as db:\n"
        '        number = db.execute("INSERT INTO node_types (name, spec, source, updated_at)"\n'
        "            \" VALUES ('new', '{}', 's', '') RETURNING rowid\").fetchone()[0]\n"
        "    most = writer.rows('SELECT max(rowid) FROM node_types')[0][0]\n"
        "    print(number == most, writer.rows('SELECT count(*) FROM lessons')[0][0] > 0)\n",
        *both,
    )
    assert same == "True True\n"
    with pytest.raises(StoreError, match="newer advisor"):
        Reader(database)
    assert steps(server, database) == ALL_STEPS
    assert tables()  # of this version: nothing of it was changed


def test_an_upgrade_that_is_killed_has_done_nothing(
    both: tuple[Path, DatabaseAddress], server: postgresql.Server, later: Path
) -> None:
    database = both[1]
    with held(database, "node_types"):  # the first step is done by then
        upgrade = began(later, UPGRADE, database)
        wait_for(lambda: is_waited_for(server, database))
        upgrade.kill()
        upgrade.wait()
    wait_for(lambda: is_waited_for(server, database, 0))
    assert steps(server, database) == ""
    with Writer(database) as writer:  # of this version: it is the store it was
        writer.apply_config("site", path="s", text="s", compiled={}, by="test")
    program(later, UPGRADE, database)
    assert steps(server, database) == ALL_STEPS


@pytest.mark.parametrize("pause_s", [0.2, 0.4, 0.6, 0.8])
def test_an_upgrade_that_is_killed_at_any_moment_is_all_or_nothing(
    pause_s: float, both: tuple[Path, DatabaseAddress], server: postgresql.Server, later: Path
) -> None:
    upgrade = began(later, UPGRADE, both[1])
    time.sleep(pause_s)
    upgrade.kill()
    upgrade.wait()
    assert steps(server, both[1]) in ("", ALL_STEPS)
    program(later, UPGRADE, both[1])
    assert steps(server, both[1]) == ALL_STEPS


def test_two_who_upgrade_at_once_do_it_once(
    both: tuple[Path, DatabaseAddress], server: postgresql.Server, later: Path
) -> None:
    database = both[1]
    with held(database, "node_types"):
        upgrades = [began(later, UPGRADE, database) for _ in range(2)]
        wait_for(lambda: is_waited_for(server, database, 2))
    for upgrade in upgrades:
        assert upgrade.wait() == 0, upgrade.communicate()
    name = database_name(database)
    assert steps(server, database) == ALL_STEPS
    counts = "SELECT (SELECT count(*) FROM advisor.lessons) - count(*) FROM advisor.decisions"
    assert server.sql(f"{counts} WHERE changed = 1", name) == "0\n"


def test_who_may_read_still_may(
    both: tuple[Path, DatabaseAddress], server: postgresql.Server, later: Path
) -> None:
    name = database_name(both[1])
    server.sql(
        "CREATE ROLE looks LOGIN; GRANT USAGE ON SCHEMA advisor TO looks;"
        " GRANT SELECT ON ALL TABLES IN SCHEMA advisor TO looks",
        name,
    )
    program(later, UPGRADE, both[1])
    count = (
        "import sys; from advisor.store.reader import Reader;"
        " print(len(Reader(sys.argv[1]).workloads()))"
    )
    assert int(program(later, count, server.address(name, "looks"))) > 0


def test_a_daemon_answers_from_memory_meanwhile(
    server: postgresql.Server, place: Path, start: Run, later: Path
) -> None:
    address = server.database()
    fill(address)
    start("--refresh", "0.2s", db=address)
    assert ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "8"}
    with held(address, "node_types"):
        upgrade = began(later, UPGRADE, address)
        wait_for(lambda: is_waited_for(server, address))
        during = [ask(place, DECIDE) for _ in range(3)]
        assert all(d["env"] == {"OMP_NUM_THREADS": "8"} for d in during)
    assert upgrade.wait() == 0, upgrade.communicate()
    ids = ", ".join(f"'{d['decision']}'" for d in during)
    count = f"SELECT count(*) FROM advisor.decisions WHERE id IN ({ids})"
    wait_for(lambda: server.sql(count, database_name(address)) == "3\n")
