"""Files that are no store, or cannot be opened: one clear error, and they stay as they are."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.errors import StoreError
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.unit.other_writer import one_line, runs


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database at all, " * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (x)")
    db.close()


def truncated(path: Path) -> None:
    with Writer(path) as store:
        store.add_observations("app", "default", runs(500))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    """Keep the header and break everything after it."""
    with Writer(path) as store:
        store.add_observations("app", "default", runs(500))
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(path.stat().st_size - 100))


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [garbage, foreign, truncated, overwritten, folder])
@pytest.mark.parametrize("kind", [Reader, Writer])
def test_a_broken_store_is_one_clear_error_and_stays_as_it_is(
    store_path: Path, spoil: Callable[[Path], None], kind: type[Reader]
) -> None:
    spoil(store_path)
    before = store_path.read_bytes() if store_path.is_file() else b""
    with pytest.raises(StoreError) as caught, kind(store_path) as store:
        store.observations("app")
        store.rows("PRAGMA quick_check")
    text = str(caught.value)
    assert str(store_path) in text and "\n" not in text
    if store_path.is_file():
        assert "damaged" in text and "backup" in text
        assert store_path.read_bytes() == before


def test_an_empty_file_is_no_store_to_a_reader_and_a_new_one_to_a_writer(store_path: Path) -> None:
    empty(store_path)
    with pytest.raises(StoreError, match="empty file"):
        Reader(store_path)
    with Writer(store_path) as store:
        assert store.workloads() == []


def test_a_missing_store_is_one_clear_error(store_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        Reader(store_path)
    assert "there is no store" in one_line(caught, store_path)
    assert not store_path.exists()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        Writer(tmp_path / "file" / "advisor.db")
    assert "cannot be made" in one_line(caught, tmp_path / "file" / "advisor.db")
