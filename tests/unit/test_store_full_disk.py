"""A full disk, or a limit on file sizes: one clear error, and nothing is lost."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from advisor.errors import StoreError
from advisor.store.publish import publish
from advisor.store.writer import Writer
from tests.unit.other_writer import finish, one_line, ready, runs, start

pytestmark = pytest.mark.usefixtures("migrated_anew")


def test_a_batch_on_a_full_disk_is_undone_as_a_whole(small_disk: Path) -> None:
    with Writer(small_disk / "advisor.db") as store:
        with pytest.raises(StoreError, match="no space left"), store.batch():
            store.add_observations("app", "default", runs(1))
            store.add_observations("app", "default", runs(5000))
        assert store.workloads() == []
        store.add_observations("app", "default", runs(1))


@contextmanager
def mounted(place: Path, kib: int) -> Iterator[Path]:
    """A real file system of so many KiB."""
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    target = str(place).encode()
    if libc.mount(b"tmpfs", target, b"tmpfs", 0, f"size={kib}k".encode()):
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        assert libc.umount2(target, 2) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 640) as place:
        yield place


@pytest.mark.parametrize("kib", range(64, 769, 64))
def test_a_store_for_which_there_is_no_room_is_not_made(tmp_path: Path, kib: int) -> None:
    with mounted(tmp_path / "disk", kib) as place:
        path = place / "advisor.db"
        try:
            Writer(path).close()
        except StoreError as error:
            assert "no space left" in str(error)
        made = path.exists()
        assert made or not list(place.iterdir())
    if made:
        assert kib > 300  # what an empty store takes


def test_without_inodes_or_on_a_read_only_file_system_the_line_says_so(small_disk: Path) -> None:
    path, libc = small_disk / "advisor.db", ctypes.CDLL(None, use_errno=True)
    Writer(path).close()
    shutil.copy(path, source := small_disk.with_name("source.db"))

    def remount(options: bytes) -> None:
        target = str(small_disk).encode()
        assert libc.mount(b"tmpfs", target, b"tmpfs", 32, options) == 0  # MS_REMOUNT

    used = len(list(small_disk.iterdir())) + 1
    remount(f"nr_inodes={used}".encode())
    with pytest.raises(StoreError) as caught:
        Writer(path)
    assert "no inodes left" in one_line(caught, path)
    with pytest.raises(StoreError) as caught:
        publish(source, small_disk / "copy.db")
    assert "no inodes left" in one_line(caught, small_disk / "copy.db")
    assert libc.mount(b"tmpfs", str(small_disk).encode(), b"tmpfs", 33, b"nr_inodes=99") == 0
    with pytest.raises(StoreError) as caught:
        Writer(path)
    assert "read-only" in one_line(caught, path)
    remount(b"nr_inodes=99")
    Writer(path).close()


@pytest.mark.parametrize("room", [1, 2])
def test_a_store_whose_log_finds_no_inode_says_so(small_disk: Path, room: int) -> None:
    """Its own draft is gone by then, so that an inode is free again."""
    used, path = 1 + len(list(small_disk.iterdir())), small_disk / "advisor.db"
    words = str(small_disk).encode(), b"tmpfs", 32, f"nr_inodes={used + room}".encode()
    assert ctypes.CDLL(None).mount(b"tmpfs", *words) == 0  # MS_REMOUNT
    with pytest.raises(StoreError) as caught:
        Writer(path)
    assert "no inodes left" in one_line(caught, path)
    assert not list(small_disk.glob(".*"))


def test_a_full_disk_is_one_clear_error_and_nothing_is_lost(small_disk: Path) -> None:
    path = small_disk / "advisor.db"
    with Writer(path) as store:
        store.add_observations("app", "default", runs(10))
        with pytest.raises(StoreError) as caught:
            store.add_observations("app", "default", runs(5000))
        assert "no space left" in one_line(caught, path)
        assert len(store.observations("app")) == 10
        filler = small_disk / "filler"
        fill(filler)
        with pytest.raises(StoreError, match="no space left"):
            store.add_observations("app", "default", runs(5000))
        filler.unlink()
        store.add_observations("app", "default", runs(5))
        assert len(store.observations("app")) == 15
        assert store.rows("PRAGMA integrity_check")[0][0] == "ok"


def test_a_store_is_not_half_made_on_a_full_disk(small_disk: Path) -> None:
    fill(small_disk / "filler")
    with pytest.raises(StoreError, match="no space left"):
        Writer(small_disk / "advisor.db")
    assert [p.name for p in small_disk.iterdir()] == ["filler"]


def test_publishing_to_a_full_disk_keeps_the_copy_that_is_there(
    small_disk: Path, store_path: Path
) -> None:
    target = small_disk / "copy.db"
    with Writer(store_path) as store:
        store.add_observations("app", "default", runs(10))
        publish(store_path, target)
        before = target.read_bytes()
        store.add_observations("app", "default", runs(3000))
    with pytest.raises(StoreError, match="No space left") as caught:
        publish(store_path, target)
    one_line(caught, target)
    assert target.read_bytes() == before
    assert {p.name for p in small_disk.iterdir()} == {"copy.db", "copy.db.announced"}


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(b"x" * 4096)


def test_a_limit_on_file_sizes_is_one_clear_error_and_nothing_is_lost(store_path: Path) -> None:
    code = """
import resource
from advisor.errors import InputError, StoreError
with Writer(path) as store:
    store.add_observations("app", "default", [Observation(C, 1.0)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    try:
        store.add_observations("app", "default",
                               [Observation(C, 1.0, extra={"x": "y" * 500})] * 5000)
    except StoreError as error:
        assert path in str(error) and "limit on file sizes" in str(error), error
        assert len(store.observations("app")) == 1
        say("ready")
"""
    process = start(code, store_path)
    ready(process)
    finish(process)
    with Writer(store_path) as store:
        assert len(store.observations("app")) == 1
        store.add_observations("app", "default", runs(1))
