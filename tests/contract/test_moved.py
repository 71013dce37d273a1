"""A store that is moved while jobs are submitted: every decision is in one place, once.

A real daemon answers a stream of submissions; the real verb moves its store to PostgreSQL and back,
and is killed with SIGKILL at drawn moments until it comes through.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from advisor.core.delivery import write_spool_file
from advisor.database import DatabaseAddress
from advisor.errors import MovedStoreError, RefusedError, StoreError
from advisor.paths import beside
from advisor.store import follow, moved
from advisor.store.journal import Journal
from advisor.store.move import move
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests import postgresql
from tests.contract.test_serve import DECIDE, ask, fill, place, start
from tests.unit.stored import decision as stored_decision
from tests.waiting import wait_for

pytestmark = pytest.mark.postgresql
__all__ = ("place", "start")
Run = Callable[..., Any]

EVERY_S = 0.02
"""Between two submissions."""
KILLS = 3
"""Movers killed before each move that comes through."""


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    if why := postgresql.why_none():
        pytest.skip(why)
    with postgresql.server(durable=False) as started:
        yield started


@pytest.fixture
def address(server: postgresql.Server) -> DatabaseAddress:
    """An empty database."""
    return server.database()


class Stream:
    """Submissions, one after the other, until it is ended."""

    def __init__(self, place: Path) -> None:
        self.answered: list[str] = []
        self.failed: list[Exception] = []
        self._place, self._end = place, threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def _submit(self) -> None:
        while not self._end.wait(EVERY_S):
            try:
                answer = ask(self._place, DECIDE)
                assert answer["env"] == {"OMP_NUM_THREADS": "8"}, answer
                self.answered.append(answer["decision"])
            except Exception as error:
                self.failed.append(error)

    def goes_on(self, count: int) -> bool:
        """Tell whether so many were answered."""
        return len(self.answered) >= count

    def end(self) -> None:
        """Submit no more."""
        self._end.set()
        self._thread.join()


def serves(place: Path, store: Path) -> bool:
    return bool(ask(place, {"v": 1, "op": "status"})["store"] == str(store))


def decisions(store: Path) -> list[str]:
    with Reader(store) as reader:
        return [row[0] for row in reader.rows("SELECT id FROM decisions")]


def behind(store: Path, server: postgresql.Server) -> list[str]:
    """Return the decisions of a store that was moved away, which no reader opens."""
    if isinstance(store, DatabaseAddress):
        name = str(store).partition("?")[0].rpartition("/")[2]
        return server.sql("SELECT id FROM advisor.decisions", name).split()
    with sqlite3.connect(store) as db:
        return [row[0] for row in db.execute("SELECT id FROM decisions")]


def moving(source: Path, target: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "advisor", "store", "move", "--to", str(target)]
    return subprocess.Popen([*command, "--db", str(source)], stdout=subprocess.DEVNULL)


def take_s(target: Path, source: Path) -> float:
    """Return how long a move of this store takes here, from a copy."""
    began = time.monotonic()
    command = [sys.executable, "-m", "advisor", "store", "move", "--copy", "--to", str(target)]
    subprocess.run([*command, "--db", str(source)], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def test_submissions_during_a_move_and_back_are_kept_once(
    server: postgresql.Server, place: Path, start: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    draw, killed = random.Random(40), 0
    file, database, back = place / "a.db", server.database(), place / "back.db"
    fill(file)
    lasts_s = take_s(server.database(), file)
    start(db=file)
    stream = Stream(place)
    for source, target in ((file, database), (database, back)):
        for _ in range(KILLS):
            mover = moving(source, target)
            with suppress(subprocess.TimeoutExpired):
                mover.wait(draw.uniform(lasts_s / 3, lasts_s))
            mover.kill()
            killed += mover.wait() != 0
        assert moving(source, target).wait() == 0
        wait_for(partial(serves, place, target))
        wait_for(partial(stream.goes_on, len(stream.answered) + 20))
    stream.end()
    assert not stream.failed, "nobody waited, and nobody got another answer"
    answered = set(stream.answered)
    assert len(answered) == len(stream.answered) and killed

    wait_for(lambda: answered <= set(decisions(back)))
    kept = decisions(back)
    assert len(kept) == len(set(kept))
    for former in (file, database):
        assert set(behind(former, server)) <= set(kept), "nothing was written behind the move"
    with pytest.raises(MovedStoreError, match="was moved to"):
        Reader(file)


def test_a_mover_that_dies_before_its_mark_moved_nothing(
    address: DatabaseAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, back = tmp_path / "a.db", tmp_path / "back.db"
    fill(file)
    for source, target in ((file, address), (address, back)):
        move_dies(monkeypatch, moved, "mark_away", source, target)
        with pytest.raises(StoreError, match=r"did not end.*advisor store move --db"):
            Reader(target)
        with pytest.raises(StoreError, match="did not end"):
            Writer(target)
        with Writer(source) as writer:  # it is the store still
            writer.save_decision(stored_decision(uuid4().hex[:16]))
            there = {d.id for d in writer.decisions()}
        assert there and move(source, target, away=True).rows["decisions"] == len(there)
        assert set(decisions(target)) == there


def test_a_mover_that_dies_after_its_mark_moved_all(
    address: DatabaseAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, back = tmp_path / "a.db", tmp_path / "back.db"
    fill(file)
    for source, target in ((file, address), (address, back)):
        move_dies(monkeypatch, follow, "arrive", source, target)
        with pytest.raises(MovedStoreError, match="was moved to"):
            Writer(source)
        assert move(source, target, away=True).rows == {}, "it only says so there"
        Reader(target).close()


def test_a_journal_follows_and_a_writer_says_where(
    address: DatabaseAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.db"
    fill(file)
    journal = Journal(file)
    journal.start()
    journal.put(stored_decision("b" * 16))
    wait_for(lambda: journal.written == 1)
    with Writer(file) as opened:
        monkeypatch.setattr(follow, "arrive", lambda *_: None)  # the mover is killed there
        move(file, address, away=True)
        monkeypatch.undo()
        with pytest.raises(MovedStoreError, match="ADVISOR_DB"):
            opened.save_decision(stored_decision("c" * 16))
    journal.put(stored_decision("d" * 16))
    journal.close()
    assert sorted(decisions(address)) == ["b" * 16, "d" * 16]


def test_what_waits_in_the_spool_goes_along(
    server: postgresql.Server,
    address: DatabaseAddress,
    place: Path,
    start: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    file = place / "a.db"
    fill(file)
    observed = {
        "v": 1,
        "op": "observe",
        "application": "a",
        "workload": "w",
        "observations": [
            {
                "configuration": {
                    "node_type": "bdw",
                    "nodes": 1,
                    "ranks_per_node": 1,
                    "threads_per_node": 8,
                    "freq_khz": 0,
                },
                "time_s": 1.0,
                "energy_j": 2.0,
            }
        ],
    }
    (beside(file) / "spool").mkdir()
    waiting = write_spool_file(beside(file) / "spool", "{", note=f"-u{os.getuid()}-n1")
    assert moving(file, address).wait() == 0
    assert not waiting.exists() and (beside(address) / "spool" / waiting.name).exists()
    start(db=file)  # it names the old store still
    assert ask(place, observed).get("ok"), ask(place, observed)

    def stored() -> bool:
        with Reader(address) as reader:
            return len(reader.observations("a", "w")) == 1

    wait_for(stored)


def test_only_a_store_of_this_mover_is_replaced(
    both_: tuple[Path, Path], address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = both_
    move_dies(monkeypatch, moved, "mark_away", one, address)
    with pytest.raises(RefusedError, match="there is a store already"):
        move(other, address, away=True)
    assert move(one, address, away=True).rows


@pytest.fixture
def both_(tmp_path: Path) -> tuple[Path, Path]:
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    fill(one)
    fill(other)
    return one, other


def move_dies(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str, source: Path, target: Path
) -> None:
    """Have a move killed at a step."""
    with monkeypatch.context() as killed:
        killed.setattr(module, step, _die)
        with pytest.raises(KeyboardInterrupt):
            move(source, target, away=True)


def _die(*_: object) -> None:
    raise KeyboardInterrupt
