"""The driver of a sweep's allocation, by itself: what it does when the allocation is ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.slurm.driver import read_log, write_files

NODE = NodeType("posed", cores=2, nodes=("n1",))
ENDED_FIRST = """\
echo begun >> ran
until [ -s driver ]; do :; done
( while kill -0 $$; do :; done; kill -TERM $(cat driver) ) 2> /dev/null &
kill -TERM $$
"""
"""A run that gets the signal of its allocation's end before the driver does."""


def test_a_run_is_not_tried_again_while_its_allocation_is_ended(tmp_path: Path) -> None:
    run = PlannedRun(0, "baseline", Configuration(NODE.name, 1, 1, 2, 0))
    job = SweepJob(
        "t1",
        "design",
        tmp_path / "design",
        tmp_path,
        NODE,
        (run,),
        command=("bash", "-c", ENDED_FIRST),
        launcher="mpirun",
        baseline=run.configuration,
    )
    job.folder.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "srun").write_text("#!/bin/sh\n")
    (programs / "srun").chmod(0o755)
    driver = subprocess.Popen(
        [str(write_files(job, [(run, 1)]))],
        cwd=tmp_path,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"},
    )
    (tmp_path / "driver").write_text(str(driver.pid))
    assert driver.wait(timeout=60) == -signal.SIGTERM
    assert (tmp_path / "ran").read_text() == "begun\n"
    log = read_log(job.folder)
    assert (log.job_ids, log.attempts, log.ended) == (["7"], [], set())
