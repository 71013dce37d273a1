"""Sweeps on the cluster's Broadwell nodes: their configurations, jobs and results."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from testbed import NODE_TYPES

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob
from advisor.schedulers.slurm.scheduler import Slurm

POSED = NODE_TYPES["bdw"]
BDW = NodeType(
    "broadwell",
    feature="broadwell",
    partitions=("batch", "broadwell"),
    sockets=2,
    cores=28,
    memory_mb=8000,
    freq_khz=POSED.frequencies_khz,
    default_freq_khz=POSED.max_khz,
    nodes=tuple(POSED.nodes),
    default_partition="batch",
)
TOP = POSED.max_khz


def configuration(
    threads: int = 28, freq: int = TOP, nodes: int = 1, ranks: int = 1
) -> Configuration:
    return Configuration("broadwell", nodes, ranks, threads, freq)


def make_job(folder: Path, text: str, *runs: Configuration, **more: Any) -> SweepJob:
    script = folder / "script"
    script.write_text(f"#!/bin/bash\n{text}\n")
    planned = tuple(PlannedRun(i, "design" if i else "baseline", c) for i, c in enumerate(runs))
    options = {"exclusive": "", "nodes": str(runs[0].nodes), **more.pop("options", {})}
    chosen = {"launcher": "srun", "estimate_s": 3.0, "baseline": runs[0], **more}
    job = SweepJob(
        id=f"t{time.time_ns()}",
        stage="design",
        folder=folder / "design",
        working_folder=folder,
        node_type=BDW,
        runs=planned,
        script=script,
        partition="batch",
        options=options,
        **chosen,
    )
    job.folder.mkdir()
    return job


def finish(slurm: Slurm, job: SweepJob, handle: str) -> list[RunResult]:
    deadline = time.monotonic() + 90
    while (status := slurm.poll(job, handle)).state != "ended":
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    return list(status.results)


def printed(job: SweepJob, result: RunResult) -> list[dict[str, str]]:
    """What the simulated application says it had, one entry per step."""
    text = (job.folder / "output" / f"run-{result.seq}-{result.attempt}.log").read_text()
    return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in text.splitlines() if "watts" in line]
