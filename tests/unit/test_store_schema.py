"""The schema that migrations make, and what opening a store imports."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import paths
from advisor.core.observation import Observation
from advisor.errors import RefusedError
from advisor.store.count_laws import count_laws
from advisor.store.reader import Reader
from advisor.store.schema import load_migrations, schema_sql
from advisor.store.versions import MIGRATIONS
from advisor.store.writer import Writer
from advisor_lab.profile.store import ProfileFile, profile_files, save_profile_files
from tests.unit.stored import C, decision, options, save

pytestmark = pytest.mark.usefixtures("migrated_anew")


def test_schema_text_is_what_the_migrations_make() -> None:
    assert paths.share("db/schema.sql").read_text(encoding="utf-8") == schema_sql()


def test_the_program_knows_every_migration() -> None:
    assert tuple(m.name for m in load_migrations()._migrations) == MIGRATIONS


def test_runs_and_models_of_earlier_versions_are_marked_with_how_they_were_measured(
    store_path: Path,
) -> None:
    def seen(**more: str) -> Observation:
        return Observation(C, 1.0, scope="all", **more)  # type: ignore[arg-type]

    with Writer(store_path) as store:
        for name, runs in {
            "swept": [seen(source="sweep", job_id="7"), seen(source="import")],
            "here": [seen(source="confirm")],
            "imported": [seen(source="import")],
            "advised": [seen(source="job", job_id="8")],
        }.items():
            store.add_observations(name, "default", runs)
            save(store, name)
        save(store, "swept", scope="own", owner="ann")
        base = {"transfer": {"base": "hsw"}}
        store.save_model(
            "swept",
            "default",
            "skl",
            scope="all",
            owner="",
            name="transfer",
            n_train=0,
            energy_quality="missing",
            stats=base,
            options=options(1.0, node_type="skl"),
        )
        store.save_decision(decision("d1", rewrite={"cpus-per-task": "4"}))
    db = sqlite3.connect(store_path)
    db.execute("UPDATE observations SET extra = '{\"decision\": \"d1\"}' WHERE source = 'job'")
    db.execute("ALTER TABLE observations DROP COLUMN method")
    db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm0006_method'")
    db.commit()
    db.close()
    with Writer(store_path) as store:
        how = {
            name: [o.observation.method for o in store.observations(name)]
            for name in ("swept", "here", "imported", "advised")
        }
        assert how == {
            "swept": ["request", ""],
            "here": ["variables"],
            "imported": [""],
            "advised": ["request"],
        }
        models = {name: [m.method for m in store.find_models(name)] for name in how}
        assert models == {
            "swept": ["request", "request", "request"],
            "here": ["variables"],
            "imported": [""],
            "advised": ["request"],
        }


def test_a_store_has_the_printed_schema(store_path: Path) -> None:
    Writer(store_path).close()
    db = sqlite3.connect(store_path)
    statements = [r[0] for r in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    db.close()
    assert len(statements) > 10
    for statement in statements:
        assert f"\n{statement};\n" in schema_sql()


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys; import advisor.store.reader, advisor.store.journal, advisor.store.publish;"
        "heavy = {'numpy', 'pandas', 'sqlite_utils', 'yaml', 'pydantic'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_store_that_is_up_to_date_opens_without_sqlite_utils(store_path: Path) -> None:
    Writer(store_path).close()
    code = (
        "import sys; from advisor.store.writer import Writer; Writer(sys.argv[1]).close();"
        "sys.exit('sqlite_utils' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(store_path)]).returncode == 0


def test_what_profiles_say_outlives_the_time_when_their_tables_were_the_advisors(
    store_path: Path,
) -> None:
    """The tables stay as they are; of several steps the last one that says something counts."""
    laws = {
        "parameters": ["n"],
        "processes": "",
        "threads": {},
        "instructions": [],
        "footprint": [],
        "fixed": {},
    }
    results = ({"laws": {**laws, "parameters": ["m"]}}, {"laws": laws}, {"classes": 2})
    with Writer(store_path):
        pass
    db = sqlite3.connect(store_path)
    db.execute(
        "CREATE TABLE profile_steps (id INTEGER PRIMARY KEY, application TEXT, number INTEGER,"
        " action TEXT, arguments TEXT, result TEXT, made_by TEXT, created_at TEXT)"
    )
    db.executemany(
        "INSERT INTO profile_steps (application, number, action, arguments, result, made_by,"
        " created_at) VALUES (?, ?, 'fit', '{}', ?, 'ann', '2026-01-01')",
        [("app", n, json.dumps(result)) for n, result in enumerate(results, 1)]
        + [("other", 1, "{}"), ("none", 1, '{"laws": null}')],
    )
    db.execute("DROP TABLE count_laws")
    db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm0022_count_laws'")
    db.commit()
    db.close()
    with Writer(store_path) as store:
        found = count_laws(store, "app")
        assert found is not None and found.parameters == ("n",)
        assert count_laws(store, "other") is None and count_laws(store, "none") is None
        rows = store.rows("SELECT application FROM count_laws ORDER BY application")
        assert [row[0] for row in rows] == ["app", "none"]
        assert len(store.rows("SELECT 1 FROM profile_steps")) == 5


def test_a_new_store_has_no_table_of_the_laboratory_until_it_imports_profiles(
    store_path: Path,
) -> None:
    with Writer(store_path) as store:
        assert not _tables(store) & {"profiled_runs", "profile_steps"}
        with pytest.raises(RefusedError, match="no application profiles are stored"):
            profile_files(store, "app")
        for _ in range(2):
            save_profile_files(
                store, "app", [ProfileFile("train", {"n": 1.0}, "f", "d", b"{}")], by="ann"
            )
        assert _tables(store) >= {"profiled_runs", "profile_steps"}
        assert [one.text for one in profile_files(store, "app")] == [b"{}"]
    with Reader(store_path) as store:  # its schema is still one that every advisor knows
        assert len(profile_files(store, "app")) == 1


def _tables(store: Reader) -> set[str]:
    return {row[0] for row in store.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
