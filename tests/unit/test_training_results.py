"""Where a sweep's results go, and what stands around its runs: launchers, caps, schedulers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from advisor import plugins
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.policy import scope_of
from advisor.errors import InputError, RefusedError, StoreError
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob
from advisor.schedulers.choose import create
from advisor.schedulers.command import interpreter
from advisor.schedulers.cpufreq import Cpufreq
from advisor.schedulers.local.scheduler import Local
from advisor.schedulers.results import append_result, read_results
from advisor.schedulers.this_machine import local_node_type
from advisor.training.result_store import (
    DaemonResults,
    LeftResults,
    LocalResults,
    ResultStore,
    open_results,
    owner_of,
)


def test_a_torn_results_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    first = RunResult(0, 1, True, 1.5, 20.0, "measured", "rapl")
    append_result(path, first)
    with path.open("a") as file:
        file.write('{"seq": 1, "attem')
    assert read_results(path) == [first]


def test_runs_are_open_until_done_or_given_up() -> None:
    runs = tuple(PlannedRun(i, "design", None) for i in range(4))  # type: ignore[arg-type]
    job = SweepJob("x", "design", Path("/"), Path("/"), NodeType("n"), runs, attempts=2)
    results = [
        RunResult(0, 1, True),
        RunResult(1, 1, False),
        RunResult(2, 1, False),
        RunResult(2, 2, False),
        RunResult(3, 1, False, final=True),
    ]
    assert [r.seq for r in job.open_runs(results)] == [1]
    assert [r.seq for r in job.open_runs([])] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("#!/bin/bash -l\n", ["/bin/bash", "-l"]),
        ("#! /usr/bin/env python3\n", None),
        ("echo hi\n", ["/bin/sh"]),
        ("#!\n", ["/bin/sh"]),
    ],
)
def test_interpreter(tmp_path: Path, line: str, argv: list[str] | None) -> None:
    path = tmp_path / "s"
    path.write_text(line)
    assert interpreter(path) == (argv or ["/usr/bin/env", "python3"])


@pytest.mark.parametrize(
    ("call", "printed", "code"),
    [
        ("srun echo a b", "a b", 0),
        ("srun -n 1 -c 4 --cpu-freq=1-2 --exclusive -u echo hi", "hi", 0),
        ("srun --cpu-bind cores -N1 -- echo -n x", "x", 0),
        ("srun --mem 0 --label echo --ntasks=7", "--ntasks=7", 0),
        ("srun -n 4 echo x", "", 2),
        ("srun --ntasks=2 echo x", "", 2),
        ("srun -k -h --bcast echo hi", "hi", 0),
        ("srun false", "", 1),
    ],
)
def test_local_srun(tmp_path: Path, call: str, printed: str, code: int) -> None:
    environment = Local().environment_here(Configuration("local", 1, 1, 1, 0), tmp_path, ())
    done = subprocess.run(
        ["bash", "-c", call],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (printed, code)


def test_this_machine_is_a_node_type() -> None:
    node_type = local_node_type()
    assert 1 <= node_type.cores <= len(os.sched_getaffinity(0))
    assert node_type.sockets >= 1 and node_type.memory_mb > 0


def test_caps_of_drivers_without_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    assert "may not be written" in (Cpufreq(tmp_path).controllable() or "")
    for name, value in (
        ("scaling_max_freq", 3_500_000),
        ("cpuinfo_min_freq", 800_000),
        ("cpuinfo_max_freq", 3_500_000),
    ):
        (folder / name).write_text(f"{value}\n")
    steps = Cpufreq(tmp_path).steps()
    assert steps[-1] == 3_500_000 and steps[0] >= 800_000 and len(steps) <= 16


def test_schedulers_by_name() -> None:
    assert {"slurm", "local"} <= set(plugins.names("schedulers"))
    assert create("local").available() is None
    with pytest.raises(InputError, match="pbs2"):
        create("pbs2")


# -- sinks ---------------------------------------------------------------------------------------


class Daemon(threading.Thread):
    """Answers one line per connection with what it is told to; keeps what it got."""

    def __init__(self, path: Path, answer: bytes) -> None:
        super().__init__(daemon=True)
        self.answer = answer
        self.got: list[dict[str, Any]] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                line = lines.readline()
                if line:
                    self.got.append(json.loads(line))
                    connection.sendall(self.answer)


OBSERVATION = Observation(
    Configuration("posed", 1, 1, 2, 2_000_000),
    1.5,
    20.0,
    source="sweep",
    account="proj",
    extra={"sweep": "s", "seq": 3},
)


def test_results_go_to_the_daemon_where_the_store_is_out_of_reach(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    daemon = Daemon(path, b'{"v":1,"ok":true,"stored":1}\n')
    sink = DaemonResults(path)
    assert sink.observe("app", "w", [OBSERVATION]) == [0]
    (message,) = [m for m in daemon.got if m["op"] != "status"]
    assert (message["v"], message["op"], message["fit"]) == (1, "observe", True)
    assert (message["application"], message["workload"], message["account"]) == (
        "app",
        "w",
        "proj",
    )
    (sent,) = message["observations"]
    assert sent["time_s"] == 1.5 and sent["configuration"]["threads_per_node"] == 2
    assert sent["extra"] == {"sweep": "s", "seq": 3}
    assert "contributor" not in sent and "scope" not in sent


@pytest.mark.parametrize(
    "answer", [b'{"v":1,"ok":false,"error":"full"}\n', b"garbage\n", b"[]\n", b"\n"]
)
def test_a_daemon_that_does_not_take_them(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "d.sock"
    Daemon(path, answer)
    with pytest.raises(StoreError):
        DaemonResults(path).observe("app", "w", [OBSERVATION])
    with pytest.raises(StoreError, match="not stored: no answer from"):
        DaemonResults(tmp_path / "none.sock").observe("app", "w", [OBSERVATION])


def test_where_results_go(tmp_path: Path) -> None:
    store, path = tmp_path / "a.db", tmp_path / "d.sock"
    left = tmp_path / "to-collect"

    def opened(store: Path, daemon: Path, *, explicit: bool) -> ResultStore:
        return open_results(
            store, daemon, explicit=explicit, user="ann", trust="own", left_folder=left
        )

    here = opened(store, path, explicit=True)
    assert isinstance(here, LocalResults)
    here.close()
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(RefusedError, match="no place for the results") as caught:
        opened(blocked / "a.db", path, explicit=True)
    assert "--db" in caught.value.hint and not left.exists()
    only_reads = tmp_path / "r.sock"
    Daemon(only_reads, b'{"takes_results": false}\n')
    for named in (
        opened(blocked / "a.db", only_reads, explicit=True),
        opened(tmp_path / "own.db", only_reads, explicit=False),
    ):
        assert isinstance(named, LeftResults) and named.place == left
    assert not (tmp_path / "own.db").exists()
    own = opened(store, only_reads, explicit=False)
    assert isinstance(own, LocalResults)
    own.close()
    reads_it = tmp_path / "c.sock"
    answer = json.dumps({"takes_results": False, "store": str(store)})
    Daemon(reads_it, answer.encode() + b"\n")
    for explicit in (True, False):  # root may write a published copy, and shall not
        assert isinstance(opened(store, reads_it, explicit=explicit), LeftResults)
    Daemon(path, b"{}\n")
    there = opened(blocked / "a.db", path, explicit=True)
    assert isinstance(there, DaemonResults)
    other = opened(tmp_path / "new.db", path, explicit=False)
    assert isinstance(other, DaemonResults)


def test_scope_and_owner() -> None:
    assert scope_of("account", "proj") == "account"
    assert scope_of("account", "") == "own"
    assert (scope_of("all", ""), scope_of("own", "proj")) == ("all", "own")
    assert [owner_of(s, "ann", "proj") for s in ("own", "account", "all")] == ["ann", "proj", ""]
