"""The schema that migrations make, and what opening a store imports."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import paths
from advisor.core.observation import Observation
from advisor.store.connection import MIGRATIONS
from advisor.store.schema import load_migrations, schema_sql
from advisor.store.writer import Writer
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
            "swept", "default", "skl", scope="all", owner="", name="transfer", n_train=0,
            energy_quality="missing", stats=base, options=options(1.0, node_type="skl"),
        )  # fmt: skip
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
            "swept": ["request", ""], "here": ["variables"], "imported": [""],
            "advised": ["request"],
        }  # fmt: skip
        models = {name: [m.method for m in store.find_models(name)] for name in how}
        assert models == {
            "swept": ["request", "request", "request"], "here": ["variables"], "imported": [""],
            "advised": ["request"],
        }  # fmt: skip


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
