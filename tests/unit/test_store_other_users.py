"""Stores of somebody else: read in whatever state they are, written by their owner alone."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from advisor.errors import StoreError
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.another_user import as_user
from tests.unit.other_writer import runs


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can look into, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="advisor-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def read_only(place: Path) -> None:
    for file in place.iterdir():
        file.chmod(0o444)
    place.chmod(0o555)


def count_runs(path: Path) -> Callable[[], str]:
    def task() -> str:
        with Reader(path) as reader:
            return f"{reader._access} {len(reader.observations('app'))} {reader.changed()}"

    return task


def test_a_live_store_of_somebody_else_is_read_while_its_owner_has_it_open(
    open_folder: Path,
) -> None:
    path = open_folder / "advisor.db"
    Writer(path).close()
    path.chmod(0o644)  # its owner lets others read it
    with Writer(path) as store:
        store.add_observations("app", "default", runs(2))
        assert as_user(count_runs(path)) == "live 2 False"


def test_a_store_of_somebody_else_is_read_when_nobody_has_it_open(open_folder: Path) -> None:
    path = open_folder / "advisor.db"
    with Writer(path) as store:
        store.add_observations("app", "default", runs(2))
    assert sorted(p.name for p in open_folder.iterdir()) == ["advisor.db"]
    read_only(open_folder)
    assert as_user(count_runs(path)) == "quiet 2 False"
    assert sorted(p.name for p in open_folder.iterdir()) == ["advisor.db"]


def test_a_quiet_store_shows_what_its_owner_writes_later(open_folder: Path) -> None:
    path = open_folder / "advisor.db"
    Writer(path).close()
    path.chmod(0o644)  # its owner lets others read it
    with Writer(path) as store:
        store.add_observations("app", "default", runs(2))
    flag, done = open_folder / "flag", open_folder / "done"
    os.mkfifo(flag)
    os.mkfifo(done)
    for fifo in (flag, done):
        fifo.chmod(0o666)
    if os.geteuid():
        pytest.skip("needs two users")

    def task() -> str:
        with Reader(path) as reader:
            first = len(reader.observations("app"))
            flag.write_text("x")
            done.read_text()
            second = len(reader.observations("app"))  # without asking changed()
            flag.write_text("x")
            done.read_text()
            return f"{first} {second} {reader.changed()} {len(reader.observations('app'))}"

    def owner() -> None:
        flag.read_text()
        with Writer(path) as store:
            store.add_observations("app", "default", runs(1))
            done.write_text("x")
            flag.read_text()
            store.add_observations("app", "default", runs(4))
        done.write_text("x")

    thread = threading.Thread(target=owner)
    thread.start()
    assert as_user(task) == "2 3 True 7"
    thread.join()


def test_nobody_else_may_write(open_folder: Path) -> None:
    path = open_folder / "advisor.db"
    with Writer(path) as store:
        store.add_observations("app", "default", runs(2))
    read_only(open_folder)

    def task() -> str:
        try:
            with Writer(path) as store:
                store.add_observations("app", "default", runs(1))
        except StoreError as error:
            return str(error)
        return "written"

    answer = as_user(task)
    assert str(path) in answer and "\n" not in answer and "failed" not in answer, answer
    assert "owner" in answer or "permissions" in answer


def test_a_published_copy_in_a_read_only_folder(open_folder: Path, store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations("app", "default", runs(2))
    path = open_folder / "copy.db"
    publish(store_path, path)
    read_only(open_folder)
    assert as_user(count_runs(path)) == "frozen 2 False"
    names = ["copy.db", "copy.db.announced"]
    assert sorted(p.name for p in open_folder.iterdir()) == names
