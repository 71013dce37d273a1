"""What every scheduler backend keeps: one suite over this machine, a real Slurm, and PBS."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fake_pbs
import pytest
from posed_sys import PosedSys
from testbed import NODE_TYPES, Testbed

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.schedulers.base import PlannedRun, RunResult, Scheduler, SweepJob
from advisor.schedulers.local.scheduler import Local
from advisor.schedulers.pbs import scheduler as pbs_backend
from advisor.schedulers.pbs.scheduler import Pbs
from advisor.schedulers.slurm.scheduler import Slurm
from advisor.schedulers.this_machine import local_node_type
from tests.waiting import wait_for


@dataclass
class Backend:
    """A scheduler to be tested: how to make it anew, its nodes, how scripts start programs."""

    make: Callable[[], Scheduler]
    node_type: NodeType
    launcher: str
    partition: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    accounts: bool = True
    made: list[tuple[SweepJob, str]] = field(default_factory=list)

    def configuration(self, threads: int) -> Configuration:
        return Configuration(self.node_type.name, 1, 1, threads, self.node_type.default_freq_khz)

    def job(self, folder: Path, text: str, *threads: int, **more: Any) -> SweepJob:
        script = folder / "the script"
        text = text.replace("LAUNCH", self.launcher)
        # the job as written has two threads, and Slurm sets no variable then
        script.write_text(f"#!/bin/bash\nT=${{OMP_NUM_THREADS:-{threads[0]}}}\n{text}\n")
        options = {**self.options, **({"array": more.pop("array")} if "array" in more else {})}
        runs = tuple(
            PlannedRun(i, "design" if i else "baseline", self.configuration(t))
            for i, t in enumerate(threads)
        )
        job = SweepJob(
            id=f"t{time.time_ns()}",
            stage="design",
            folder=folder / "design",
            working_folder=folder,
            node_type=self.node_type,
            runs=runs,
            script=script,
            launcher=self.launcher,
            partition=self.partition,
            baseline=runs[0].configuration,
            estimate_s=2.0,
            meter="none",
            options=options,
            **more,
        )
        job.folder.mkdir()
        return job

    def finish(self, scheduler: Scheduler, job: SweepJob, handle: str) -> list[RunResult]:
        deadline = time.monotonic() + 90
        while (status := scheduler.poll(job, handle)).state != "ended":
            assert time.monotonic() < deadline, status
            time.sleep(min(scheduler.POLL_S, 0.1))
        return list(status.results)


def local_backend() -> Backend:
    return Backend(Local, local_node_type(), "srun", accounts=False)


def slurm_backend(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Backend:
    for name in [n for n in os.environ if n.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, testbed.env()[name])
    posed = NODE_TYPES["bdw"]
    node = NodeType(
        "broadwell",
        feature="broadwell",
        partitions=("batch",),
        sockets=2,
        cores=28,
        memory_mb=8000,
        freq_khz=posed.frequencies_khz,
        default_freq_khz=posed.max_khz,
        nodes=tuple(posed.nodes),
    )
    return Backend(Slurm, node, "srun", "batch", {"exclusive": ""})


def pbs_backend_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
    root = folder / "pbs"
    programs = fake_pbs.install(root)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PBS_CONF_FILE", str(root / "pbs.conf"))
    for name, seconds in (("ASK_S", 0.1), ("VANISH_S", 0.5)):
        monkeypatch.setattr(pbs_backend, name, seconds)
    posed = PosedSys(root, cpus=2)
    node = NodeType(
        "bdw",
        feature="node_type=bdw",
        partitions=("workq",),
        cores=28,
        memory_mb=64000,
        freq_khz=(1_200_000, 2_200_000),
        default_freq_khz=2_200_000,
        nodes=("n1",),
    )
    options = {"select": "1:ncpus=2:ompthreads=2", "place": "excl"}
    return Backend(lambda: Pbs(posed.root), node, "", "workq", options)


@pytest.fixture(params=["local", "slurm", "pbs"])
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Backend:
    if request.param == "local":
        return local_backend()
    if request.param == "pbs":
        return pbs_backend_of(tmp_path, monkeypatch)
    return slurm_backend(request.getfixturevalue("testbed"), monkeypatch)


def test_each_run_is_made_once_as_it_was_planned(backend: Backend, tmp_path: Path) -> None:
    scheduler = backend.make()
    assert scheduler.available() is None
    odd = "$(touch pwned); 'x'\ny"
    job = backend.job(
        tmp_path,
        'printf "%s|%s|%s|%s" "$T" "$ADVISOR" "$1" '
        '"$SLURM_ARRAY_TASK_ID$PBS_ARRAY_INDEX" >> "ran-$T"\nLAUNCH sleep 0.2',
        2,
        1,
        arguments=(odd,),
        array="3-9",
    )
    handle = scheduler.submit_sweep(job)
    results = backend.finish(scheduler, job, handle)
    assert [(r.seq, r.ok, r.attempt) for r in results] == [(0, True, 1), (1, True, 1)], results
    assert all(r.time_s is not None and 0.2 <= r.time_s < 30 for r in results)
    assert all((r.energy_j is None) == (r.energy_quality == "missing") for r in results)
    task = "3" if backend.partition else "33"  # here a script may be of either scheduler
    for threads in (2, 1):
        assert (tmp_path / f"ran-{threads}").read_text() == f"{threads}|off|{odd}|{task}"
    assert not (tmp_path / "pwned").exists()
    # another process, asking again, runs nothing again
    again = backend.make()
    assert not job.open_runs(results)
    assert again.poll(job, handle).state == "ended"
    assert [p.name for p in tmp_path.glob("ran-*")].count("ran-2") == 1
    assert (tmp_path / "ran-2").read_text().count("|off|") == 1
    # what the accounting says of it
    assert (backend.accounts and bool(results[0].job_id)) or not backend.accounts
    if backend.accounts:
        record = scheduler.job(results[-1].job_id)
        assert record is not None
        assert record.user
        assert record.nodes == 1
        assert scheduler.job("999999") is None
    else:
        assert scheduler.finished_jobs("2020-01-01T00:00:00") == []
        assert scheduler.job("1") is None


def test_runs_that_fail_are_tried_again_and_given_up(backend: Backend, tmp_path: Path) -> None:
    scheduler = backend.make()
    job = backend.job(
        tmp_path,
        'echo "try $T" >> tries\n'
        "[ $T = 2 ] && [ ! -e once ] && touch once && LAUNCH false && exit 3\n"
        "[ $T = 2 ] && [ $(grep -c 2 tries) = 1 ] && exit 3\n"
        "[ $T = 1 ] && exec sleep 60\n"
        "LAUNCH sleep 0.1",
        2,
        1,
        attempts=2,
        run_limit_s=1.5,
    )
    handle = scheduler.submit_sweep(job)
    results = backend.finish(scheduler, job, handle)
    told = [(r.seq, r.attempt, r.ok, r.final) for r in results]
    assert told == [(0, 1, False, False), (0, 2, True, False), (1, 1, False, True)], results
    assert "output in" in results[0].detail
    assert "stopped after" in results[2].detail
    assert (tmp_path / "tries").read_text().split("\n")[:-1] == ["try 2", "try 2", "try 1"]


def test_the_job_as_it_is_goes_first_and_alone(backend: Backend, tmp_path: Path) -> None:
    scheduler = backend.make()
    job = backend.job(tmp_path, "echo $T >> tries; exit 5", 2, 1, attempts=2)
    handle = scheduler.submit_sweep(job)
    deadline = time.monotonic() + 60
    status = scheduler.poll(job, handle)
    while not job.given_up(job.runs[0], status.results):
        assert time.monotonic() < deadline, status
        assert status.state != "ended", status
        time.sleep(0.05)
        status = scheduler.poll(job, handle)
    scheduler.cancel(job, handle)
    assert (tmp_path / "tries").read_text() == "2\n2\n"


def test_what_ran_stays_when_a_sweep_is_stopped(backend: Backend, tmp_path: Path) -> None:
    scheduler = backend.make()
    job = backend.job(
        tmp_path,
        "[ $T = 2 ] && { echo 2 >> ran; LAUNCH sleep 0.1; exit; }\n"
        "[ -e go ] || { touch begun; exec sleep 60; }\necho 1 >> ran; LAUNCH sleep 0.1",
        2,
        1,
    )
    handle = scheduler.submit_sweep(job)
    if backend.accounts:  # else a poll makes one run, and returns when it has ended
        wait_for(lambda: scheduler.poll(job, handle).results and (tmp_path / "begun").exists())
    else:
        scheduler.poll(job, handle)
    scheduler.cancel(job, handle)
    (tmp_path / "go").touch()
    again = backend.make()
    results = [r for r in again.poll(job, handle).results if r.ok]
    assert [r.seq for r in results][:1] == [0]
    if backend.accounts:
        wait_for(lambda: again.poll(job, handle).state == "ended")
    fresh = replace(job)
    handle = again.submit_sweep(fresh) if fresh.open_runs(read(job)) else handle
    results = backend.finish(again, fresh, handle)
    assert sorted(r.seq for r in results if r.ok) == [0, 1]
    assert (tmp_path / "ran").read_text() == "2\n1\n"


def read(job: SweepJob) -> list[RunResult]:
    from advisor.schedulers.results import read_results

    return read_results(job.folder / "results.jsonl")
