"""The job that a process runs in: what each scheduler's variables and commands say of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from advisor.schedulers import choose

NAMES = ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "PBS_NODEFILE")


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_outside_of_jobs_there_is_none() -> None:
    assert choose.job_here() is None


def test_slurm_says_its_nodes_and_signals_its_numbered_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    squeue = "#!/bin/sh\necho 7.batch; echo 7.0; echo 7.extern; echo 7.3\n"
    calls = tmp_path / "calls"
    for name, text in (("squeue", squeue), ("scancel", f'#!/bin/sh\necho "$@" >> {calls}\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "4")
    job = choose.job_here()
    assert job is not None
    assert job.nodes() == 4
    assert job.steps() == ["7.0", "7.3"]
    job.signal("7.3", signal.SIGTERM)
    assert calls.read_text() == "--signal=TERM 7.3\n"
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert job.steps() == []


def test_pbs_counts_the_hosts_of_its_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n1\nn1\nn2\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    job = choose.job_here()
    assert job is not None
    assert (job.nodes(), job.steps()) == (2, [])
    (tmp_path / "nodes").unlink()
    assert job.nodes() == 1
