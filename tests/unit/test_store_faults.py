"""Whatever happens to the store: the last good state stays, and the error is one clear line."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.errors import InputError, StoreError
from advisor.store.connection import MIGRATIONS
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.schema import load_migrations
from advisor.store.writer import Writer
from tests.another_user import as_user

C = Configuration("hsw", 1, 1, 4, 0)
PRELUDE = """
import sys
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.store.writer import Writer
C = Configuration("hsw", 1, 1, 4, 0)
path = sys.argv[1]
def say(word):
    print(word, flush=True)
"""


def start(code: str, path: Path) -> subprocess.Popen[str]:
    """Start another process that says one word when it is ready."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate("go\n", timeout=60)
    assert process.returncode == 0


HOLD = """
with Writer(path) as store, store.transaction():
    say("ready")
    sys.stdin.readline()
"""


def runs(count: int) -> list[Observation]:
    return [Observation(C, n + 1.0, extra={"text": "x" * 200}) for n in range(count)]


def one_line(caught: pytest.ExceptionInfo[StoreError], path: Path) -> str:
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    assert caught.value.hint
    return text


# -- crashes and other writers -------------------------------------------------------------------


def test_a_writer_killed_in_a_transaction_leaves_the_last_good_state(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations("app", "default", runs(3))
    code = """
store = Writer(path)
store._connection.execute("PRAGMA cache_size = 10")  # so that much is on the disk already
with store.transaction() as db:
    db.execute("DELETE FROM observations")
    for n in range(5000):
        db.execute("INSERT INTO imports (file, sha256, imported_by, imported_at)"
                   " VALUES (?, '', '', '')", ("x" * 500,))
    say("ready")
    sys.stdin.readline()
"""
    process = start(code, store_path)
    ready(process)
    assert Path(f"{store_path}-wal").stat().st_size > 1_000_000
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Reader(store_path) as reader:
        assert len(reader.observations("app")) == 3
    with Writer(store_path) as store:
        store.add_observations("app", "default", runs(1))
        assert len(store.observations("app")) == 4
        assert store.rows("PRAGMA integrity_check")[0][0] == "ok"
        assert store.rows("SELECT count(*) FROM imports")[0][0] == 0


def test_a_store_being_made_is_there_whole_or_not_at_all(store_path: Path) -> None:
    code = """
import advisor.store.opening as opening
def stuck(draft, path):
    say("ready")
    sys.stdin.readline()
opening._place = stuck
Writer(path)
"""
    process = start(code, store_path)
    ready(process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not store_path.exists()
    with Writer(store_path) as store:
        assert store.add_observations("app", "default", runs(1)) == [1]


def test_writers_that_make_the_store_at_once_lose_nothing(store_path: Path) -> None:
    code = """
say("ready")
sys.stdin.readline()
for n in range(12):
    with Writer(path, timeout_s=60) as store:
        store.add_observations("app", "default", [Observation(C, 1.0 + n)] * 2)
"""
    processes = [start(code, store_path) for _ in range(4)]
    for process in processes:
        ready(process)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        finish(process)
    with Reader(store_path) as reader:
        found = reader.observations("app")
        assert len(found) == len({o.id for o in found}) == 4 * 12 * 2
    assert sorted(p.name for p in store_path.parent.glob(".advisor*")) == []


def test_a_second_writer_gives_up_with_one_error_and_works_later(store_path: Path) -> None:
    Writer(store_path).close()
    holder = start(HOLD, store_path)
    ready(holder)
    with Writer(store_path, timeout_s=0.1) as store:
        with pytest.raises(StoreError) as caught:
            store.add_observations("app", "default", runs(1))
        assert f"process {holder.pid} holds the store" in one_line(caught, store_path)
        with Reader(store_path) as reader:  # reading goes on meanwhile
            assert reader.workloads() == []
        finish(holder)
        store.add_observations("app", "default", runs(1))
        assert len(store.observations("app")) == 1


def test_a_second_writer_waits_for_the_first(store_path: Path) -> None:
    Writer(store_path).close()
    holder = start(HOLD, store_path)
    ready(holder)
    threading.Timer(0.3, finish, [holder]).start()
    with Writer(store_path, timeout_s=60) as store:
        assert store.add_observations("app", "default", runs(1)) == [1]


def test_an_error_inside_a_transaction_undoes_it_and_the_next_one_works(store_path: Path) -> None:
    with Writer(store_path) as store:
        with pytest.raises(KeyboardInterrupt), store.transaction() as db:
            db.execute("INSERT INTO workloads (application, created_at) VALUES ('x', '')")
            raise KeyboardInterrupt
        assert store.workloads() == []
        store.add_observations("app", "default", runs(1))


def test_a_batch_is_one_transaction(store_path: Path) -> None:
    with Writer(store_path) as store, Reader(store_path) as reader:
        with store.batch():
            store.add_observations("app", "default", runs(1))
            with pytest.raises(InputError):  # undoes only its own part
                store.add_observations("bad", "default", [*runs(1), Observation(C, 0.0)])
            store.add_observations("app", "default", runs(1))
            assert reader.workloads() == []  # nothing is seen before the end
        assert [(w.application, w.observations) for w in reader.workloads()] == [("app", 2)]
        with pytest.raises(InputError), store.batch():
            store.add_observations("app", "default", runs(1))
            store.add_observations("bad", "default", [Observation(C, 0.0)])
        assert [(w.application, w.observations) for w in reader.workloads()] == [("app", 2)]


def test_a_batch_on_a_full_disk_is_undone_as_a_whole(small_disk: Path) -> None:
    with Writer(small_disk / "advisor.db") as store:
        with pytest.raises(StoreError, match="no space left"), store.batch():
            store.add_observations("app", "default", runs(1))
            store.add_observations("app", "default", runs(5000))
        assert store.workloads() == []
        store.add_observations("app", "default", runs(1))


# -- files that are no store ---------------------------------------------------------------------


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
    for module in ("connection", "opening"):
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


# -- full disks ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 640 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    target = str(place).encode()
    if libc.mount(b"tmpfs", target, b"tmpfs", 0, b"size=640k"):
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        assert libc.umount2(target, 2) == 0


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
    assert [p.name for p in small_disk.iterdir()] == ["copy.db"]


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


# -- stores of somebody else ---------------------------------------------------------------------


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
    assert sorted(p.name for p in open_folder.iterdir()) == ["copy.db"]
