"""Stores of newer and older versions: refused with a hint, or upgraded as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import StoreError
from advisor.store.reader import Reader
from advisor.store.schema import load_migrations
from advisor.store.versions import MIGRATIONS
from advisor.store.writer import Writer
from tests.unit.other_writer import one_line, runs

pytestmark = pytest.mark.usefixtures("migrated_anew")


@pytest.mark.parametrize("kind", [Reader, Writer])
def test_a_newer_store_is_refused_with_a_hint(store_path: Path, kind: type[Reader]) -> None:
    with Writer(store_path) as store, store.transaction() as db:
        db.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES ('advisor', 'm9999_future', '')"
        )
    with pytest.raises(StoreError) as caught:
        kind(store_path)
    text = one_line(caught, store_path)
    assert "newer" in text and "m9999_future" in text and "upgrade hpc-advisor" in text


def test_an_older_store_is_refused_to_read(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(store_path).close()
    monkeypatch.setattr("advisor.store.connection.MIGRATIONS", (*MIGRATIONS, "m9999_next"))
    with pytest.raises(StoreError, match=r"older version \(it lacks m9999_next\)"):
        Reader(store_path)


def upgraded(monkeypatch: pytest.MonkeyPatch, second: Callable[[Any], None]) -> None:
    """Pretend that this program knows a second migration."""
    migrations = load_migrations()
    migrations(name="m9999_second")(second)
    monkeypatch.setattr("advisor.store.schema.load_migrations", lambda: migrations)
    for module in ("connection", "opening", "versions"):
        known = (*MIGRATIONS, "m9999_second")
        monkeypatch.setattr(f"advisor.store.{module}.MIGRATIONS", known)


def test_an_older_store_is_upgraded_by_a_writer(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(store_path) as store:
        store.add_observations("app", "default", runs(2))
    upgraded(monkeypatch, lambda db: db.executescript("CREATE TABLE a (x); CREATE TABLE b (x);"))
    with Writer(store_path) as store:
        assert store.rows("SELECT * FROM a UNION SELECT * FROM b") == []
    with Reader(store_path) as reader:
        assert len(reader.observations("app")) == 2


def test_an_upgrade_that_fails_changes_nothing(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(store_path).close()
    with monkeypatch.context() as patch:
        upgraded(patch, lambda db: db.executescript("CREATE TABLE a (x); DROP TABLE none;"))
        with pytest.raises(StoreError, match="no such table: none"):
            Writer(store_path)
    with Writer(store_path) as store:
        assert store.rows("SELECT 1 FROM sqlite_master WHERE name = 'a'") == []
