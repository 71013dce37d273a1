"""The journal writes behind the answer and never troubles whoever hands decisions over."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.decision import Decision
from advisor.store.journal import Journal
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.waiting import wait_for

HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
"""


def record(number: int, **more: object) -> Decision:
    at = f"2026-01-01T00:00:00.{number:06}Z"
    plain = Decision.from_dict({"decision": f"d{number}", "created_at": at, "user": "ann"})
    return replace(plain, **more)  # type: ignore[arg-type]


def stored(path: Path) -> list[str]:
    with Reader(path) as reader:
        return [d.id for d in reversed(reader.decisions())]


def hold(path: Path) -> subprocess.Popen[str]:
    """Let another process hold the store's write lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def release(process: subprocess.Popen[str]) -> None:
    process.communicate("go\n", timeout=60)
    assert process.returncode == 0


def test_decisions_and_jobs_are_written_in_order(store_path: Path) -> None:
    Writer(store_path).close()
    journal = Journal(store_path)
    journal.put(record(0))  # before the start, too
    journal.start()
    for number in range(1, 700):
        journal.put(record(number))
        journal.link(f"d{number}", str(1000 + number))
    journal.put(record(700), "99")
    assert journal.close(30) == 0
    assert journal.written == 1400
    assert stored(store_path) == [f"d{n}" for n in range(701)]
    with Reader(store_path) as reader:
        found = reader.decision_for_job("1333")
        assert found is not None and found.id == "d333"
        last = reader.decision("d700")
        assert last is not None and last.job_id == "99"


def test_a_locked_store_makes_decisions_wait(
    store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Writer(store_path).close()
    holder = hold(store_path)
    journal = Journal(store_path)
    journal.start()
    for number in range(50):
        journal.put(record(number))
        journal.link(f"d{number}", str(1000 + number))
    wait_for(lambda: bool(journal.trouble))
    assert f"process {holder.pid} holds the store" in journal.trouble
    journal.put(record(50))
    wait_for(lambda: journal.waiting == 101)
    with Reader(store_path) as reader:
        assert reader.decisions() == []
    release(holder)
    wait_for(lambda: journal.waiting == 0)
    assert journal.trouble == ""
    assert journal.close() == 0
    assert stored(store_path) == [f"d{n}" for n in range(51)]
    with Reader(store_path) as reader:  # a link finds its decision: what waited kept its order
        linked = [reader.decision(f"d{n}") for n in range(50)]
    assert [d.job_id for d in linked if d is not None] == [str(1000 + n) for n in range(50)]
    assert journal.dropped == 0
    troubles = [m for r in caplog.records if "event=decisions-not-" in (m := r.getMessage())]
    assert len(troubles) == 1 and "waiting=" in troubles[0]  # said once, however often it was tried


def test_the_oldest_are_dropped_beyond_the_limit_and_counted_in_the_log(
    store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Writer(store_path).close()
    holder = hold(store_path)
    journal = Journal(store_path, limit=10)
    journal.start()
    for number in range(30):
        journal.put(record(number))
    wait_for(lambda: journal.dropped == 20 and bool(journal.trouble))
    release(holder)
    assert journal.close(30) == 0
    assert stored(store_path) == [f"d{n}" for n in range(20, 30)]
    assert any(
        "event=decisions-dropped" in r.getMessage() and "in_all=20" in r.getMessage()
        for r in caplog.records
    )


def test_closing_does_not_wait_for_ever(store_path: Path) -> None:
    Writer(store_path).close()
    holder = hold(store_path)
    journal = Journal(store_path)
    journal.start()
    journal.put(record(1))
    assert journal.close(0.1) == 1
    journal.put(record(2))  # after the end: lost, but quietly
    assert journal.dropped == 1
    release(holder)
    assert stored(store_path) == []


def test_closing_what_was_never_started(store_path: Path) -> None:
    journal = Journal(store_path)
    journal.put(record(1))
    assert journal.close() == 1


def test_a_record_that_cannot_be_stored_does_not_hold_up_the_others(
    store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Writer(store_path).close()
    journal = Journal(store_path)
    journal.put(record(1))
    journal.put(record(2, id=""))
    journal.put(record(2, policy_version="x"))
    journal.put(record(3, model_id={"no": "number"}))
    journal.put(record(4, baseline="text"))
    journal.put(record(4, holdout=None))
    bad = {"odd": object(), "bad": float("nan"), "path": Path("/x"), "job": "\udcfc"}
    journal.put(record(5, rewrite=bad, account="\udcfc"))
    journal.put(record(6))
    journal.start()
    assert journal.close(30) == 0
    assert stored(store_path) == ["d1", "d5", "d6"]
    assert (journal.written, journal.dropped) == (3, 5)
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 5
    with Reader(store_path) as reader:
        odd = reader.decision("d5")
        assert odd is not None and odd.rewrite["job"] == "\udcfc" and odd.rewrite["bad"] == "None"


def test_a_store_that_comes_later_or_is_replaced_gets_what_waited(store_path: Path) -> None:
    journal = Journal(store_path)
    journal.start()
    journal.put(record(1))
    wait_for(lambda: "there is no store (advisor store restore" in journal.trouble)
    Writer(store_path).close()
    wait_for(lambda: journal.waiting == 0)
    assert stored(store_path) == ["d1"]
    other = store_path.with_name("other.db")
    Writer(other).close()
    other.replace(store_path)
    for end in ("-wal", "-shm"):
        Path(f"{store_path}{end}").unlink(missing_ok=True)
    journal.put(record(2))
    assert journal.close(30) == 0
    assert stored(store_path) == ["d2"]


def test_a_published_copy_is_never_written(
    store_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Writer(store_path).close()
    copy = tmp_path / "copy.db"
    publish(store_path, copy)
    before = copy.read_bytes(), copy.stat().st_mtime_ns
    journal = Journal(copy)
    journal.start()
    for number in range(5):
        journal.put(record(number))
    assert journal.close(30) == 0
    assert (copy.read_bytes(), copy.stat().st_mtime_ns) == before
    assert "published copy" in journal.trouble
    assert journal.written == 0
    assert len(caplog.records) == 1


def test_a_full_disk_makes_decisions_wait_and_never_raises(store_path: Path) -> None:
    code = """
import resource, sys, time
from advisor.core.decision import Decision
from advisor.store.journal import Journal
from advisor.store.writer import Writer

def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

path = sys.argv[1]
Writer(path).close()
journal = Journal(path)
journal.start()
journal.put(Decision.from_dict({"decision": "d0"}))
until(lambda: journal.written == 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
for n in range(1, 11):
    journal.put(Decision.from_dict({"decision": f"d{n}", "message": "x" * 100_000}))
until(lambda: journal.trouble)
assert path in journal.trouble and "failed" in journal.trouble, journal.trouble
assert journal.waiting == 10 and journal.written == 1, (journal.waiting, journal.written)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
until(lambda: journal.waiting == 0)
assert journal.close() == 0
assert journal.written == 11 and journal.dropped == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(store_path)], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    with Reader(store_path) as reader:
        assert len(reader.decisions()) == 11


def test_a_damaged_store_makes_decisions_wait(store_path: Path) -> None:
    store_path.write_bytes(b"no database " * 1000)
    journal = Journal(store_path)
    journal.start()
    journal.put(record(1))
    wait_for(lambda: "damaged" in journal.trouble)
    assert journal.close(0.1) == 1
    assert store_path.read_bytes().startswith(b"no database")
