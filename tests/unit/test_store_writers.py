"""Writers that are killed, wait for one another or undo a batch: the last good state stays."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from advisor.core.observation import Observation
from advisor.errors import InputError, StoreError
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.unit.other_writer import C, finish, one_line, ready, runs, start

pytestmark = pytest.mark.usefixtures("migrated_anew")

HOLD = """
with Writer(path) as store, store.transaction():
    say("ready")
    sys.stdin.readline()
"""


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
opening._publish = stuck
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
