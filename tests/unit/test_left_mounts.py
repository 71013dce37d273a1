"""Results that wait on a shared file system which fills up or goes away, mounted for real."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from advisor.errors import AdvisorError, StoreError
from advisor.store.writer import Writer
from advisor.training.result_store import LeftResults
from tests.another_user import as_user
from tests.unit.test_left_results import RUNS, USER, Home

_BIND, _DETACH = 4096, 2


class Shared:
    """A file system of 640 kB: the server's side stays, a host's mount of it comes and goes."""

    def __init__(self, root: Path) -> None:
        self.server, self.place = root / "server", root / "shared"
        self._libc = ctypes.CDLL(None, use_errno=True)
        for folder in (self.server, self.place):
            folder.mkdir()
        tmpfs = self._libc.mount(b"tmpfs", str(self.server).encode(), b"tmpfs", 0, b"size=640k")
        if tmpfs:
            pytest.skip("needs the right to mount a file system")
        self.mount()

    def mount(self) -> None:
        source, target = str(self.server).encode(), str(self.place).encode()
        assert self._libc.mount(source, target, None, _BIND, None) == 0

    def unmount(self, place: Path | None = None) -> None:
        """Take it away, whoever has it open."""
        assert self._libc.umount2(str(place or self.place).encode(), _DETACH) == 0

    def fill(self) -> Path:
        file = self.server / "filler"
        with file.open("wb", buffering=0) as filler, pytest.raises(OSError, match="space"):
            while True:
                filler.write(b"x" * 4096)
        return file


@pytest.fixture
def shared() -> Iterator[Shared]:
    root = Path(tempfile.mkdtemp(prefix="left-", dir="/tmp"))
    root.chmod(0o755)
    disk = Shared(root)
    try:
        yield disk
    finally:
        while os.path.ismount(disk.place):
            disk.unmount()
        disk.unmount(disk.server)
        shutil.rmtree(root)


@pytest.fixture
def home(shared: Shared, store_path: Path) -> Iterator[Home]:
    (shared.place / "to-collect").mkdir()
    entry = pwd.getpwnam(USER)
    for folder in (shared.place, shared.place / "to-collect"):
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    with Writer(store_path) as store:
        yield Home(shared.place, store)


def left(home: Home, number: int) -> Callable[[], object]:
    """Return what leaves one delivery, as a sweep does that began while all was well."""
    sink = LeftResults.__new__(LeftResults)
    sink.place = home.folder
    return lambda: sink.observe(f"app{number}", "w", RUNS)


def stored(home: Home) -> dict[str, int]:
    """Return by application how many runs the store has."""
    return {w.application: w.observations for w in home.store.workloads()}


def test_a_full_file_system_keeps_what_waits_and_takes_no_half(shared: Shared, home: Home) -> None:
    assert as_user(left(home, 1), USER) == ""
    filler = shared.fill()
    text = as_user(left(home, 2), USER)
    assert (
        text.startswith("failed: StoreError: ") and "No space left" in text and "--resume" in text
    )
    assert "\n" not in text
    assert len(list(home.folder.iterdir())) == 1  # no half file
    assert home.take().files == 1  # nothing need be written there to take it
    filler.unlink()
    assert as_user(left(home, 2), USER) == ""
    assert home.take().files == 1
    home.taken()
    assert stored(home) == {"app1": 3, "app2": 3}


def test_a_file_system_that_is_gone_when_a_sweep_ends(shared: Shared, home: Home) -> None:
    """Nothing is left in the folder below the mount, where nobody would find it again."""
    assert as_user(left(home, 1), USER) == ""
    shared.unmount()
    shared.place.chmod(0o777)
    text = as_user(left(home, 2), USER)
    assert text.startswith("failed: StoreError: ") and "mounted" in text and "--resume" in text
    assert list(shared.place.iterdir()) == []
    taken = home.take()
    assert taken.files == 0 and "No such file" in taken.problems[0]
    shared.mount()
    assert as_user(left(home, 2), USER) == ""
    assert home.take().files == 2
    home.taken()
    assert stored(home) == {"app1": 3, "app2": 3}


@pytest.mark.slow
def test_it_comes_and_goes_while_results_are_left_and_taken(shared: Shared, home: Home) -> None:
    """What was left is stored once each; what was not left is known to whoever measured it."""
    stop = threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            time.sleep(0.013)
            shared.unmount()
            time.sleep(0.007)
            shared.mount()

    thread = threading.Thread(target=flicker)
    thread.start()
    kept, files = [], 0
    try:
        for number in range(60):
            if not as_user(left(home, number), USER):
                kept.append(f"app{number}")
            files += home.take().files
            if number % 7 == 0:
                home.taken()
    finally:
        stop.set()
        thread.join()
    home.take()
    home.taken()
    assert stored(home) == dict.fromkeys(kept, 3)
    assert list(home.folder.iterdir()) == []


def test_the_stores_own_disk_is_full_while_results_are_taken(
    shared: Shared, tmp_path: Path
) -> None:
    """Then the user's files stay where they are."""
    root = Path(tempfile.mkdtemp(prefix="left-", dir="/tmp"))
    (root / "to-collect").mkdir()
    try:
        with Writer(shared.place / "advisor.db") as store:
            home = Home(root, store)
            home.leave()
            filler = shared.fill()
            with pytest.raises(StoreError, match="No space left") as caught:
                home.take()
            assert "beside the store" in caught.value.hint
            assert len(list(home.folder.iterdir())) == 1
            filler.unlink()
            assert home.take().files == 1
            filler = shared.fill()
            try:
                home.taken()
            except AdvisorError as error:
                assert "no space left" in str(error)
            filler.unlink()
            home.taken()
            assert stored(home) == {"app": 3}
    finally:
        shutil.rmtree(root)
