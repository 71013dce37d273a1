"""``advisor run``: measure one command, record it if asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.inventory import NodeType
from advisor.store.reader import Reader
from advisor.store.signatures import signatures
from advisor.store.writer import Writer

Run = Callable[..., Any]
PRINT = (sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])")


def test_one_run_as_json(advisor: Run) -> None:
    done = advisor("run", "--json", "--threads", 1, "--meter", "none", "--", *PRINT)
    assert done.code == 0
    result = done.json()
    assert result["schema"] == "advisor/run/1"
    (measured,) = result["runs"]
    assert measured["time_s"] > 0 and measured["energy_j"] is None
    assert measured["energy_quality"] == "missing"
    assert result["configuration"]["threads_per_node"] == 1
    assert result["observations"] == []


def test_the_meter_is_said(advisor: Run) -> None:
    done = advisor("run", "--meter", "estimate", "--repeat", 2, "--", "true")
    assert done.code == 0
    assert done.out.count("(estimated, estimate (generic))") == 2
    assert "estimated, not measured" in done.out


def test_recorded_runs_are_observations(advisor: Run, store_path: Path) -> None:
    with Writer(store_path) as writer:
        node_type = NodeType("mine", cores=2, base_power_w=50, core_power_w=5, nodes=("here",))
        writer.save_node_types([node_type], source="site")
    done = advisor(
        "run",
        "--json",
        "--record",
        "--application",
        "app",
        "--workload",
        "w",
        "--node-type",
        "mine",
        "--threads",
        1,
        "--repeat",
        2,
        "--meter",
        "estimate",
        "--",
        "true",
    )
    assert done.code == 0, done.err
    with Reader(store_path) as reader:
        found = [o.observation for o in reader.observations("app", "w")]
    assert len(found) == 2 == len(done.json()["observations"])
    assert {(o.source, o.scope) for o in found} == {("run", "own")}
    assert found[0].configuration.node_type == "mine"
    assert found[0].energy_quality == "estimated"


def test_without_record_nothing_is_stored(advisor: Run, store_path: Path) -> None:
    assert advisor("run", "--", "true").code == 0
    assert not store_path.exists()


def test_the_application_is_recognised(advisor: Run, tmp_path: Path) -> None:
    program = tmp_path / "solver"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    done = advisor("run", "--json", "--", program, "big", "--fast")
    assert (done.json()["application"], done.json()["workload"]) == ("solver", "big --fast")


def test_a_failing_command_records_nothing(advisor: Run, store_path: Path) -> None:
    done = advisor("run", "--record", "--repeat", 3, "--", "sh", "-c", "exit 5")
    assert done.code == 1
    assert done.err == "advisor: sh: exit code 5 (run 1 of 3); nothing is recorded\n"
    assert not store_path.exists()
    failed = advisor("run", "--json", "--", "sh", "-c", "kill -9 $$")
    assert failed.code == 1
    assert failed.json() == {
        "schema": "advisor/run/1",
        "ok": False,
        "exit_code": -9,
        "error": "sh: killed by SIGKILL",
    }


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ([], 2, "nothing to run"),
        (["--", "/no/such/program"], 1, "cannot run /no/such/program"),
        (["--repeat", "0", "--", "true"], 2, "--repeat"),
        (["--threads", "0", "--", "true"], 2, "--threads"),
        (["--threads", "9999", "--", "true"], 1, "this machine offers"),
        (["--meter", "crystal-ball", "--", "true"], 2, "no meter"),
        (["--freq", "quick", "--", "true"], 2, "--freq"),
        (["--node-type", "knl", "--", "true"], 2, "not in the inventory"),
    ],
)
def test_mistakes_are_one_line(advisor: Run, argv: list[str], code: int, message: str) -> None:
    done = advisor("run", *argv)
    assert (done.code, done.out) == (code, "")
    assert message in done.err and done.err.count("\n") == 1


def test_counters_make_a_signature(advisor: Callable[..., Any], store_path: Path) -> None:
    done = advisor("run", "--counters", "--record", "--json", "--", "true").json()
    (found,) = done["signatures"]
    assert found["time_s"] > 0 and found["cpu_util"] >= 0 and "memory_mb" in found
    assert ("cpi" in found) != any(note.startswith("cycles") for note in found["notes"])
    with Reader(store_path) as reader:
        (stored,) = signatures(reader, done["application"])
    assert stored.signature.source == "counters" and stored.signature.time_s == found["time_s"]
    assert "signature: " in advisor("run", "--counters", "--", "true").out
    failed = advisor("run", "--counters", "--record", "--", "sh", "-c", "kill -9 $$")
    assert failed.code == 1 and "nothing is recorded" in failed.err
    with Reader(store_path) as reader:
        assert len(signatures(reader)) == 1
