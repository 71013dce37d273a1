"""The version before: its store is brought up to date while the daemon answers, its hooks are
answered as its own daemon answered them."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.core.protocol import call
from advisor.store.connection import applied_migrations
from advisor.store.reader import Reader
from advisor.store.versions import MIGRATIONS
from tests.waiting import wait_for

OLD = Path(__file__).resolve().parents[1] / "golden" / "store_0_2_0.sql"
"""Written by version 0.2.0: 77 runs of one program, its model, inventory and policy."""
RECORDED = OLD.parent / "hooks_0_2_0"
"""What the hooks of version 0.2.0 asked of a job that runs stencil, byte by byte, and what a daemon
of that version answered from this store."""
READ_BY_OLD_HOOKS = {"v", "decision", "rewrite", "message", "env", "to", "stamp", "program"}
DECIDE: dict[str, object] = {
    "op": "decide",
    "scheduler": "slurm",
    "hook": "cli_filter",
    "type": "sbatch",
    "options": {"nodes": "1", "exclusive": "", "partition": "broadwell", "time": "60"},
    "argv": ["/home/job.sh"],
    "script": "#!/bin/sh\nsrun stencil\n",
    "script_path": "/home/job.sh",
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a path short enough for a socket, and the old store in it."""
    folder = Path(tempfile.mkdtemp(prefix="adv-up-"))
    with closing(sqlite3.connect(folder / "a.db")) as db:
        db.executescript(OLD.read_text())
        db.execute("PRAGMA journal_mode = WAL")
    yield folder
    shutil.rmtree(folder)


@contextmanager
def serving(place: Path, *arguments: str) -> Iterator[None]:
    """Run a daemon on the store until the block ends."""
    command = [
        sys.executable,
        "-m",
        "advisor",
        "serve",
        "--socket",
        str(place / "s"),
        "--db",
        str(place / "a.db"),
        "--refresh",
        "0.05",
        *arguments,
    ]
    daemon = subprocess.Popen(command, stderr=(place / "log").open("w"))
    try:
        wait_for((place / "s").exists)
        yield
    finally:
        daemon.terminate()
        daemon.wait(20)


def ask(path: Path, line: bytes) -> dict[str, Any]:
    """Send a line as it was recorded."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(line)
        answer: dict[str, Any] = json.loads(connection.makefile().readline())
    return answer


def count_threads(place: Path) -> None:
    """Have the old model say that its runs with unset variables used all of their threads.

    Earlier versions counted nothing, and then its jobs keep their threads.
    """
    with closing(sqlite3.connect(place / "a.db")) as db:
        shapes = db.execute(
            "SELECT DISTINCT nodes, ranks_per_node, threads_per_node FROM observations"
        ).fetchall()
        db.execute(
            "UPDATE models SET stats = json_set(stats, '$.threads_unset', json(?))",
            (json.dumps(shapes),),
        )
        db.commit()


def test_a_model_from_before_threads_were_counted_changes_none(place: Path) -> None:
    with serving(place):
        wait_for(lambda: call(place / "s", {"op": "status"})["models"] == 1)
        now = ask(place / "s", (RECORDED / "cli_filter.request").read_bytes())
    assert now["env"] == {} and "threads-unset" in now["stamp"]


def test_the_daemon_answers_while_the_store_is_brought_up_to_date(place: Path) -> None:
    count_threads(place)
    with serving(place):
        assert call(place / "s", DECIDE)["decision"]  # whatever is known of the store by now
        wait_for(lambda: call(place / "s", {"op": "status"})["models"] == 1)
        decision = call(place / "s", {**DECIDE, "op": "explain"})
        for hook in ("cli_filter", "queuejob"):
            then = json.loads((RECORDED / f"{hook}.answer").read_bytes())
            asked = (RECORDED / f"{hook}.request").read_bytes()
            # that daemon held a job without a time limit to none: this one states an hour
            asked = asked.replace(b'"options":{"nodes"', b'"options":{"time":"60","nodes"')
            now = ask(place / "s", asked)
            assert then["rewrite"] and set(now) <= READ_BY_OLD_HOOKS, hook
            for name in ("v", "rewrite", "env", "message", "to"):
                assert now[name] == then[name], hook
            was, is_ = (json.loads(a["stamp"].removeprefix("advisor:")) for a in (then, now))
            assert {**is_, "id": "", "at": ""} == {**was, "id": "", "at": ""}
    with closing(sqlite3.connect(place / "a.db")) as db:
        assert applied_migrations(db) == set(MIGRATIONS)
    with Reader(place / "a.db") as store:
        assert len(store.observations("stencil")) == 77
    assert decision["application"] == "stencil"
    assert decision["rewrite"] or decision["environment"], decision["explanation"]
    assert "store-older" in (place / "log").read_text()


def test_a_daemon_that_only_reads_leaves_an_old_store_as_it_is(place: Path) -> None:
    with serving(place, "--read-only"):
        answer = call(place / "s", {**DECIDE, "op": "explain"})
    assert answer["reasons"] == ["store-unreadable"]
    text = (place / "log").read_text()
    assert "older version" in text and "advisor store publish" in text
    with closing(sqlite3.connect(place / "a.db")) as db:
        assert applied_migrations(db) == {m for m in MIGRATIONS if m <= "m0010"}
