"""Sweeps in the background: they go on alone, tell how far they are, and can be stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.training import progress
from tests.waiting import wait_for

Run = Callable[..., Any]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    kernel = tmp_path / "kernel"
    kernel.write_text("#!/bin/sh\nwhile [ -e hold ]; do sleep 0.05; done\nsleep 0.05\n")
    kernel.chmod(0o755)
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH --exclusive -t 5\nsrun ./kernel one\n")
    return path


def test_a_sweep_goes_on_alone_and_can_be_stopped_and_resumed(
    advisor: Run, script: Path, tmp_path: Path
) -> None:
    root = tmp_path / "state" / "advisor" / "sweeps"
    hold = tmp_path / "hold"
    hold.touch()
    begun = advisor(
        "train",
        script,
        "--scheduler",
        "local",
        "--threads",
        "1",
        "--meter",
        "estimate",
        "--repeat-baseline",
        "1",
        "--yes",
        "--detach",
        "--json",
    )
    assert begun.code == 0, begun.err
    assert "energy" in begun.err  # the plan was shown first
    folder = Path(begun.json()["folder"])
    assert folder.parent == root

    def now() -> progress.Progress:
        return progress.read(folder)

    def log() -> object:
        return now(), progress.log_of(folder)

    wait_for(lambda: now().under_way and now().stage == "design", shown=log)
    assert (now().application, now().workload) == ("kernel", "one")
    assert now().done == 0 and now().planned >= 2
    second = advisor("train", "--resume", begun.json()["id"])
    assert second.code == 1 and "another process" in second.err
    stopped = advisor("train", "--stop", begun.json()["id"])
    assert stopped.code == 0, stopped.err
    wait_for(lambda: not now().alive, shown=log)
    assert now().state == "stopped" and now().resumable
    assert advisor("train", "--stop", begun.json()["id"]).code == 3

    hold.unlink()
    again = advisor("train", "--resume", begun.json()["id"], "--detach", "--json")
    assert again.code == 0, again.err
    wait_for(lambda: not now().alive and now().state in ("fitted", "confirmed"), shown=log)
    ended = now()
    good = [m for m in ended.made if m.ok]
    assert len({m.seq for m in good}) == ended.done >= 2
    assert all(m.time_s and m.energy_j and m.energy_quality == "estimated" for m in good)
    assert ended.spent.runs == len(ended.made) and ended.spent.node_hours > 0
    assert progress.every(root) == [ended]
    assert any("run 1/" in line for line in progress.log_of(folder))


def test_a_damaged_sweep_is_left_out_of_the_list(tmp_path: Path) -> None:
    for name, text in (("a", "{}"), ("b", "not json"), ("c", '{"subject": []}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").write_text(text)
    assert progress.every(tmp_path) == []


def test_a_sweep_on_another_host_is_not_killed_here(tmp_path: Path) -> None:
    import fcntl

    from advisor.errors import RefusedError

    folder = tmp_path / "s"
    folder.mkdir()
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"elsewhere {os.getpid()}\n")
        file.flush()
        with pytest.raises(RefusedError, match="elsewhere"):
            progress.stop(folder)
    with pytest.raises(RefusedError, match="not being run"):
        progress.stop(folder)
