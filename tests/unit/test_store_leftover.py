"""A backup put beside the log of an earlier file: kept whole, and said so; a crash: replayed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.errors import StoreError
from advisor.store import leftover
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer

pytestmark = pytest.mark.usefixtures("migrated_anew")

C = Configuration("hsw", 1, 1, 4, 0)
KILLED = """
import os, signal, sys
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.store.writer import Writer
path, count, then = sys.argv[1], int(sys.argv[2]), sys.argv[3]
writer = Writer(path)
for i in range(count):
    row = Observation(Configuration("hsw", 1, 1, 4, 0), 2.0 + i, 1.0, extra={"note": "x" * 3000})
    writer.add_observations("later", "w", [row])
if then == "checkpoint":
    writer._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
os.kill(os.getpid(), signal.SIGKILL)
"""


def crashed(store: Path, count: int, then: str = "") -> None:
    """Let another process write runs and die, so that its log stays behind."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(store), str(count), then])
    assert done.returncode == -signal.SIGKILL
    assert leftover.has_log(store)


def filled(store: Path, count: int = 200) -> None:
    with Writer(store) as writer:
        rows = [Observation(C, 1.0 + i, 1.0, extra={"note": "y" * 500}) for i in range(count)]
        writer.add_observations("first", "w", rows)


def runs(store: Path) -> dict[str, int]:
    with Reader(store) as reader:
        return {w.application: w.observations for w in reader.workloads()}


def state(store: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in store.parent.glob(f"{store.name}*") if p.is_file()}


@pytest.fixture
def backup(store_path: Path, tmp_path: Path) -> Path:
    """A copy of the store as it was before more was written and its writer was killed."""
    filled(store_path)
    copy = tmp_path / "backup" / "advisor.db"
    copy.parent.mkdir()
    shutil.copy2(store_path, copy)
    with Writer(store_path) as writer:  # a checkpoint between backup and crash
        writer.add_observations("first", "w", [Observation(C, 999.0 + i, 1.0) for i in range(500)])
    crashed(store_path, 40)
    return copy


def put(backup: Path, store: Path, how: str) -> None:
    if how == "cp":
        shutil.copyfile(backup, store)
    elif how == "cp -p":
        shutil.copy2(backup, store)
    else:
        aside = store.with_name("aside")
        shutil.copy2(backup, aside)
        aside.replace(store)


def test_sqlite_alone_destroys_such_a_backup(backup: Path, store_path: Path) -> None:
    put(backup, store_path, "cp")
    connection = sqlite3.connect(store_path)
    try:
        verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        found = connection.execute("SELECT count(*) FROM observations").fetchone()[0]
    except sqlite3.DatabaseError as error:
        verdict, found = str(error), 0
    finally:
        connection.close()
    assert verdict != "ok" or found != 200
    assert store_path.read_bytes() != backup.read_bytes()


@pytest.mark.parametrize("how", ["cp", "cp -p", "mv"])
def test_a_backup_beside_an_old_log_is_kept(backup: Path, store_path: Path, how: str) -> None:
    put(backup, store_path, how)
    before = state(store_path)
    assert before["advisor.db"] == backup.read_bytes()
    for opening in (Reader, Writer):
        with pytest.raises(StoreError) as refused:
            opening(store_path)
        text = str(refused.value)
        assert "\n" not in text and f"touch {store_path}-wal" in text and "move" in text
    assert state(store_path) == before
    for end in ("-wal", "-shm"):
        Path(f"{store_path}{end}").rename(store_path.with_name(f"away{end}"))
    assert runs(store_path) == {"first": 200}
    filled(store_path, 1)
    assert runs(store_path) == {"first": 201}


def test_a_published_copy_as_backup(store_path: Path, tmp_path: Path) -> None:
    filled(store_path)
    publish(store_path, tmp_path / "copy.db")
    crashed(store_path, 3)
    shutil.copyfile(tmp_path / "copy.db", store_path)
    before = state(store_path)
    with pytest.raises(StoreError, match="put there beside"):
        Writer(store_path)
    assert runs(store_path) == {"first": 200}  # a reader looks at no log of such a file
    assert state(store_path) == before


def test_a_backup_of_just_before_the_crash(store_path: Path, tmp_path: Path) -> None:
    """No checkpoint lies between; SQLite would undo the restoring without a trace."""
    filled(store_path)
    shutil.copyfile(store_path, tmp_path / "copy.db")
    crashed(store_path, 3)
    shutil.copyfile(tmp_path / "copy.db", store_path)
    with pytest.raises(StoreError, match="put there beside"):
        Reader(store_path)
    os.utime(f"{store_path}-wal")  # as the message says, for two that belong together
    assert runs(store_path) == {"first": 200, "later": 3}


def test_a_log_without_its_store(store_path: Path) -> None:
    filled(store_path)
    crashed(store_path, 3)
    store_path.unlink()
    before = state(store_path)
    with pytest.raises(StoreError, match="earlier file"):
        Writer(store_path)
    assert state(store_path) == before


@pytest.mark.parametrize(("count", "then"), [(1, ""), (30, ""), (30, "checkpoint"), (700, "")])
def test_after_a_crash_the_log_is_replayed(store_path: Path, count: int, then: str) -> None:
    """With more than 1000 pages SQLite has checkpointed by itself."""
    filled(store_path)
    crashed(store_path, count, then)
    assert runs(store_path) == {"first": 200, "later": count}
    filled(store_path, 1)
    assert runs(store_path) == {"first": 201, "later": count}


def test_a_checkpoint_that_a_reader_held_back(store_path: Path) -> None:
    """Only what the reader no longer needs was copied: still the store's own log."""
    filled(store_path)
    held = sqlite3.connect(store_path, isolation_level=None)
    with Writer(store_path) as writer:
        writer.add_observations("later", "w", [Observation(C, 1.0, 1.0)])
        held.execute("BEGIN")
        held.execute("SELECT count(*) FROM observations").fetchone()
        for i in range(20):
            row = Observation(C, 2.0 + i, 1.0, extra={"note": "z" * 3000})
            writer.add_observations("later", "w", [row])
        _, logged, copied = writer._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert 0 < copied < logged
        database, log = store_path.stat(), Path(f"{store_path}-wal").stat()
        assert database.st_ctime_ns >= log.st_ctime_ns
        assert runs(store_path) == {"first": 200, "later": 21}
    held.close()


def test_a_store_under_load_is_never_refused(store_path: Path) -> None:
    """Checkpoints, restarts of the log and crashes at any moment."""
    filled(store_path, 1)
    code = KILLED.replace(
        "writer = Writer(path)",
        "writer = Writer(path)\n"
        "writer._connection.execute('PRAGMA wal_autocheckpoint = 5')\n"
        "print('ready', flush=True)",
    )
    for delay in (0.0, 0.01, 0.02, 0.05, 0.1):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(store_path), "100000", ""], stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        for _ in range(10):
            Reader(store_path).close()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay)
        process.kill()
        process.communicate()
        Reader(store_path).close()
        with Writer(store_path) as writer:
            verdict = writer.rows("PRAGMA integrity_check(1)")[0][0]
        assert verdict == "ok"


def test_a_checkpoint_that_copied_no_page_that_is_logged_again(store_path: Path) -> None:
    """A reader holds it back, and the lowest pages of what it needs are in a later commit."""
    writer, reader = (sqlite3.connect(store_path, isolation_level=None) for _ in range(2))
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA wal_autocheckpoint=0",
        "CREATE TABLE low (x)",
        "CREATE TABLE high (x)",
        "INSERT INTO low VALUES (0)",
        "INSERT INTO high VALUES (0)",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "UPDATE low SET x = 1",
        "UPDATE high SET x = 1",
    ):
        writer.execute(statement).fetchall()
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM high").fetchall()
    writer.execute("UPDATE low SET x = 2")
    time.sleep(0.05)  # the clock of files is coarse
    _, logged, copied = writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert 0 < copied < logged
    database = os.open(store_path, os.O_RDONLY)  # not closed before SQLite's
    assert os.fstat(database).st_ctime_ns > Path(f"{store_path}-wal").stat().st_ctime_ns
    assert leftover.belongs(store_path, database)
    reader.close()
    writer.close()
    os.close(database)


def test_a_checkpoint_that_was_killed_before_it_copied_anything(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has noted the time of its first write; the database is as it was."""
    filled(store_path)
    crashed(store_path, 3)
    with Path(f"{store_path}-shm").open("r+b") as index:
        index.seek(96)
        assert index.read(4) == bytes(4)  # nBackfill
        index.seek(128)
        index.write((5).to_bytes(4, sys.byteorder))  # nBackfillAttempted
    log = Path(f"{store_path}-wal")
    while store_path.stat().st_ctime_ns <= log.stat().st_ctime_ns:  # files' clock has coarse ticks
        store_path.touch()
    before = state(store_path)
    with monkeypatch.context() as patch:  # it begins right after a commit: what is later is not it
        patch.setattr(leftover, "_BEGUN_NS", 0)
        with pytest.raises(StoreError, match="the log of an earlier file"):
            Reader(store_path)
    assert state(store_path) == before
    assert runs(store_path) == {"first": 200, "later": 3}


def test_a_clock_that_was_set_back_refuses_no_store(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint then lies an hour ahead of all that is committed since."""
    filled(store_path)
    ahead, real = time.time_ns() + 3600 * 10**9, os.fstat

    def fstat(descriptor: int) -> os.stat_result | SimpleNamespace:
        status = real(descriptor)
        if status.st_ino == store_path.stat().st_ino:
            return SimpleNamespace(st_ctime_ns=ahead)
        return status

    with Writer(store_path) as daemon:
        daemon._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        daemon.add_observations("later", "w", [Observation(C, 2.0, 1.0)])
        daemon.add_observations("later", "w", [Observation(C, 3.0, 1.0)])
        monkeypatch.setattr(os, "fstat", fstat)
        assert runs(store_path) == {"first": 200, "later": 2}
        with Writer(store_path) as collect:
            collect.add_observations("later", "w", [Observation(C, 4.0, 1.0)])
    assert runs(store_path) == {"first": 200, "later": 3}
