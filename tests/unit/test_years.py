"""What years bring: kills, a clock set back, a store's host that is down, two who write."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlite_utils import Database

from advisor.core.decision import Decision
from advisor.core.policy import Policy
from advisor.core.stamp import make_stamp
from advisor.loop import clock
from advisor.loop.collect import collect, watermark
from advisor.loop.health import open_store
from advisor.loop.retention import prune_old
from advisor.schedulers.base import JobRecord
from advisor.service.handlers import Handlers
from advisor.service.snapshot import StoreSource
from advisor.store import connection, opening
from advisor.store.pruning import prune
from advisor.store.publish import publish
from advisor.store.schema import load_migrations
from advisor.store.seen import old_copy
from advisor.store.versions import MIGRATIONS
from advisor.store.writer import Writer

NOW = datetime.now(UTC).replace(microsecond=0)


def decided(number: int, at: datetime = NOW - timedelta(days=40)) -> Decision:
    decision = Decision.from_dict({"decision": f"{number:016x}", "user": "ann"})
    return replace(decision, created_at=clock.form(at), application="app")


class Accounting:
    """A scheduler that answers with the records it was given."""

    NAME: ClassVar[str] = "slurm"

    def __init__(self, jobs: list[JobRecord]) -> None:
        self.jobs = jobs

    def finished_jobs(self, since: str) -> list[JobRecord]:
        return self.jobs


def job(number: int, at: datetime = NOW - timedelta(hours=1)) -> JobRecord:
    when = at.isoformat()
    return JobRecord(
        str(number), "job", "ann", "proj", "COMPLETED", when, 10.0, 1, "n1", ended_at=when
    )


def kills(work: Callable[[], object], stop: int) -> bool:
    """Do work in a child that is killed before its statement number ``stop``; tell whether so."""
    child = os.fork()
    if not child:
        left = stop

        def traced(path: Path, timeout_s: float) -> sqlite3.Connection:
            made = plain(path, timeout_s)

            def statement(_: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            made.set_trace_callback(statement)
            return made

        plain, opening._connect = opening._connect, traced
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.fixture
def store_path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "advisor.db"


def old_store(path: Path, before: str) -> None:
    """Make a store as the version before a migration left it, with a decision and a run in it."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path, isolation_level=None) as db:
        load_migrations().apply(Database(db), stop_before=before)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO workloads (id, application, created_at) VALUES (1, 'app', '2026')")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


@pytest.mark.parametrize(("before", "step"), [("m0002", 15), ("m0010", 3)])
def test_a_migration_killed_on_its_way(store_path: Path, before: str, step: int) -> None:
    """The store is as it was or as it shall be, and the next writer brings it there.

    Each ``step``-th statement is enough from day to day.
    """
    first = next(name for name in MIGRATIONS if name.startswith(before))
    old_store(store_path, first)
    old, states = store_path.read_bytes(), set()
    for stop in range(0, 1000, step):
        for end in ("", "-wal", "-shm"):
            Path(f"{store_path}{end}").unlink(missing_ok=True)
        store_path.write_bytes(old)
        killed = kills(lambda: Writer(store_path).close(), stop)
        with sqlite3.connect(store_path) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            done = [row[0] for row in db.execute("SELECT name FROM _sqlite_migrations ORDER BY 1")]
        db.close()
        assert done in (sorted(MIGRATIONS[: MIGRATIONS.index(first)]), sorted(MIGRATIONS)), stop
        states.add(len(done))
        if not killed:
            break
    with Writer(store_path) as store:
        assert [r["application"] for r in store.rows("SELECT * FROM workloads")] == ["app"]
    assert not killed and len(states) == 2


def test_a_pruning_killed_at_every_statement(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each decision is there or in the sums of its month, and never in both."""
    monkeypatch.setattr("advisor.store.pruning._STEP", 4)
    with Writer(store_path) as store:
        for number in range(10):
            store.save_decision(decided(number))

    def forget() -> None:
        with Writer(store_path) as store:
            prune(store, decisions_before="9999")

    for stop in range(0, 200, 3):
        killed = kills(forget, stop)
        with Writer(store_path) as store:
            here = store.rows("SELECT count(*) FROM decisions")[0][0]
            summed = store.rows("SELECT coalesce(sum(decisions), 0) FROM months")[0][0]
        assert here + summed == 10, stop
        if not killed:
            break
    assert here == 0


def test_pruning_while_a_collection_is_at_work(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job's outcome and no decision is lost, and none is counted twice."""
    monkeypatch.setattr("advisor.store.pruning._STEP", 7)
    monkeypatch.setattr("advisor.loop.collect.BATCH", 5)
    count, failed = 60, list[Exception]()
    with Writer(store_path) as store:
        for number in range(count):
            store.save_decision(decided(number), job_id=str(number))
    stop = threading.Event()

    def forget() -> None:
        try:
            while not stop.is_set():
                with Writer(store_path) as other:
                    prune(other, decisions_before=clock.form(NOW - timedelta(days=30)))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=forget)
    with Writer(store_path) as store:
        thread.start()
        try:
            jobs = [job(number) for number in range(count)]
            found = collect(store, Accounting(jobs), NOW)  # type: ignore[arg-type]
        finally:
            stop.set()
            thread.join()
        assert failed == [] and found.failed == []
        assert len(found.outcomes) + found.without == count
        here = store.rows("SELECT count(*) FROM decisions")[0][0]
        assert here + store.rows("SELECT sum(decisions) FROM months")[0][0] == count
        assert store.rows("SELECT count(*) FROM outcomes")[0][0] == len(found.outcomes)


def test_a_clock_that_was_ahead_and_was_set_back(store_path: Path, tmp_path: Path) -> None:
    ahead = NOW + timedelta(hours=1)
    with Writer(store_path) as store:
        store.save_decision(decided(1, ahead), job_id="1")
        collect(store, Accounting([job(1, ahead)]), NOW)  # type: ignore[arg-type]
        assert store.rows("SELECT count(*) FROM outcomes")[0][0] == 1
        assert watermark(store, "slurm", NOW - timedelta(days=7)) <= clock.now()
        # jobs that end now are read, though one of later is known
        store.save_decision(decided(2, NOW - timedelta(hours=2)), job_id="2")
        again = collect(store, Accounting([job(1, ahead), job(2)]), NOW)  # type: ignore[arg-type]
        assert (again.known, len(again.outcomes)) == (1, 1)
        publish(store_path, tmp_path / "copy.db")
        os.utime(tmp_path / "copy.db", (time.time() + 3600,) * 2)
        assert connection.age_of_copy(tmp_path / "copy.db") == 0
        done = prune_old(store, "0d")
        assert done is not None and (done.decisions, done.outcomes) == (2, 2)


def test_a_store_s_host_that_is_down_for_a_day(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Login nodes go on with their copy, and say how old it is."""
    Writer(store_path).close()
    copy = tmp_path / "copy.db"
    publish(store_path, copy)
    source = StoreSource(copy)
    handlers = Handlers(source)
    try:
        handlers.refresh()
        fresh: Any = handlers.status()["store_age_s"]
        assert 0 <= fresh < 60 and "\nadvisor_store_age_seconds " in handlers.metrics()
        assert old_copy(str(copy)) == ""
        os.utime(copy, (time.time() - 26 * 3600,) * 2)
        handlers.refresh(force=True)
        assert handlers.status()["store_age_s"] == pytest.approx(26 * 3600, abs=60)
        assert handlers.source.error == ""
        reader, checks = open_store(copy)
        assert reader is not None
        reader.close()
        assert checks[0].state == "warn" and "26.0 h old" in checks[0].text
        assert "advisor store publish" in checks[0].todo
        assert "26.0 h old" in old_copy(str(copy))
        copy.unlink()  # and then its file system goes, too
        handlers.refresh()
        assert handlers.source.error and handlers.status()["store_age_s"]
    finally:
        handlers.close()
    live = StoreSource(store_path)
    live.refresh()
    assert live.age_s() is None and old_copy(str(store_path)) == ""
    live.close()


def test_what_was_pruned_does_not_count_again(store_path: Path) -> None:
    """Collected again from the accounting, by link or by stamp, it stays in the sums alone."""
    decisions = [replace(decided(n, NOW - timedelta(hours=2)), policy=Policy()) for n in range(3)]
    jobs = [replace(job(n), admin_comment=make_stamp(d)) for n, d in enumerate(decisions)]
    totals = "SELECT sum(decisions), sum(outcomes) FROM months WHERE application = 'app'"
    with Writer(store_path) as store:
        for number, decision in enumerate(decisions[:2]):
            store.save_decision(decision, job_id=str(number))
        first = collect(store, Accounting(jobs[:1]), NOW)  # type: ignore[arg-type]
        prune_old(store, "0d")  # the second job has not ended yet, the third is a login node's
        again = collect(store, Accounting(jobs), NOW)  # type: ignore[arg-type]
        assert (len(first.outcomes), again.known, len(again.outcomes)) == (1, 1, 2)
        assert again.decisions == 1
        for _ in range(2):
            prune_old(store, "0d")
            later = collect(store, Accounting(jobs), NOW)  # type: ignore[arg-type]
            assert (later.known, later.outcomes) == (3, [])
        assert tuple(store.rows(totals)[0]) == (3, 3)
        old = job(7, NOW - timedelta(days=40))
        stamped = replace(old, admin_comment=jobs[0].admin_comment)
        assert collect(store, Accounting([stamped]), NOW).known == 1  # type: ignore[arg-type]
