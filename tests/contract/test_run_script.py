"""``advisor run SCRIPT``: a job script on this machine, as advised."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.option import Option
from advisor.core.program import find
from advisor.schedulers.this_machine import local_node_type
from advisor.store.writer import Writer
from tests.unset import as_measured

Run = Callable[..., Any]
CORES = local_node_type().cores
LATE_S = 60.0
"""A run on all cores takes 1 s to this, by its model: a busy machine wakes a sleeper late."""

pytestmark = pytest.mark.skipif(CORES < 2, reason="one core leaves nothing to choose")


@pytest.fixture
def script(tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that prints its threads, and a model that says: one core is best."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    node = local_node_type()
    options = [
        Option(
            Configuration("local", 1, 1, t, node.default_freq_khz),
            time,
            time * 0.99,
            longest,
            e,
            e * 0.99,
            e * 1.01,
            True,
            True,
            True,
            True,
        )
        for t, time, longest, e in ((CORES, 1.0, LATE_S, 100.0), (1, 0.01, 0.0101, 50.0))
    ]
    with Writer(store_path) as store:
        store.save_node_types([node], source="test")
        base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0}
        store.apply_config(
            "policy", path="p", text="p", compiled={"base": base, "rules": []}, by="test"
        )
        store.save_model(
            "threads",
            "default",
            "local",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats=as_measured(options),
            options=options,
        )
    program = tmp_path / "threads"
    program.write_text('#!/bin/sh\necho "${OMP_NUM_THREADS-unset}" > seen\nexit ${EXIT:-0}\n')
    program.chmod(0o755)
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/sh\n#SBATCH -p far -C away\ncd {tmp_path}\nsrun -n 1 ./threads\n")
    return path


def seen(script: Path) -> str:
    return (script.parent / "seen").read_text().strip()


def test_it_runs_as_advised_and_why_knows(script: Path, advisor: Run) -> None:
    result = advisor("run", script, "--meter", "none", "--json")
    data = result.json()
    assert data["rewrite"] == {}
    assert data["environment"] == {"OMP_NUM_THREADS": "1"}
    assert data["energy_quality"] == "missing"
    assert seen(script) == "1"
    assert "ADVISOR=off" in result.err
    told = advisor("why", data["job"], "--json").json()
    assert told["decision"]["application"] == "threads"
    assert told["outcome"]["state"] == "COMPLETED"
    why = advisor("why", data["job"]).out
    assert ", 1 thread" in why and "to turn the advisor off: ADVISOR=off advisor run ..." in why


def test_off_runs_it_as_it_is(script: Path, advisor: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR", "off")
    data = advisor("run", script, "--json").json()
    assert data["rewrite"] == {}
    assert seen(script) == "unset"


@pytest.mark.parametrize("content", [None, b"no store at all" * 999])
def test_without_a_usable_store_it_still_runs(
    script: Path, store_path: Path, advisor: Run, content: bytes | None
) -> None:
    for leftover in store_path.parent.glob("advisor.db*"):
        leftover.unlink()
    if content is not None:
        store_path.write_bytes(content)
    result = advisor("run", script)
    assert result.code == 0
    assert seen(script) == "unset"
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("changed", "code"),
    [("path", None), ("build", "program-rebuilt"), ("path build", "other-program")],
)
def test_it_is_only_changed_if_its_program_is_the_measured_one(
    script: Path, store_path: Path, advisor: Run, changed: str, code: str | None
) -> None:
    text = script.read_text().replace("./threads", f"{script.parent}/threads")
    script.write_text(text)
    facts = find(str(script.parent / "threads"), script.parent)
    facts |= {"path": "/elsewhere/threads"} if "path" in changed else {}
    facts |= {"build": "ab" * 20} if "build" in changed else {}
    with Writer(store_path) as store:
        model = next(iter(store.models()))
        store.add_program(model.id, facts)
    data = advisor("run", script, "--json").json()
    assert seen(script) == ("1" if code is None else "unset")
    assert code is None or code in data["reasons"]
    assert bool(data["environment"]) is (code is None)


def test_a_rebuilt_program_counts_once_it_came_out_as_the_model_says(
    script: Path, store_path: Path, advisor: Run
) -> None:
    program = script.parent / "threads"
    script.write_text(script.read_text().replace("./threads", str(program)))
    with Writer(store_path) as store:
        model = next(iter(store.models()))
        store.add_program(model.id, find(str(program), program.parent) | {"build": "ab" * 20})
    program.write_text(f"#!/bin/sh\nsleep 0.99\n{program.read_text().split(chr(10), 1)[1]}")
    assert (
        "program-rebuilt" in advisor("run", script, "--meter", "none", "--json").json()["reasons"]
    )
    data = advisor("run", script, "--meter", "none", "--json").json()
    assert data["environment"] == {"OMP_NUM_THREADS": "1"}, data["reasons"]


def test_a_failing_job_is_said(script: Path, advisor: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXIT", "3")
    result = advisor("run", script)
    assert result.code == 1
    assert os.fspath(script) in result.err
    assert "Traceback" not in result.err


def test_a_script_and_a_command_are_too_much(script: Path, advisor: Run) -> None:
    assert advisor("run", script, "--", "true").code == 2
    assert advisor("run", script.with_name("none.sh")).code == 1
