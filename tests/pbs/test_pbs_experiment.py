"""An experiment file of HPCProbe is swept by jobs of PBS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_pbs_site import POLICY, SITE, Site, site  # noqa: F401

from advisor.schedulers.pbs import scheduler as backend

KERNEL = """#!/bin/sh
echo "$1 $OMP_NUM_THREADS $OMP_PROC_BIND" >> ran
sleep 0.05
echo "rate: $1"
"""
EXPERIMENT = """[Experiment]
expExec = ./kernel $p
expName = my sweep
execParam = 7
nodes = 1
ppn = 28
nodePEs = 1
threadCount = 14,28,14
postExec = wc -l < ran
walltime = 60
outputFolder = out
threadPlacement = C
limits = mem=1gb
queue = workq
env = LIMIT=3
"""


def test_an_experiment_is_swept_and_summed_up(
    site: Site,  # noqa: F811
    advisor: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("ASK_S", 0.1), ("VANISH_S", 1.0)):
        monkeypatch.setattr(backend, name, seconds)
    monkeypatch.setattr(backend.Pbs, "POLL_S", 0.05)
    config, work = tmp_path / "config", tmp_path / "work"
    for folder in (config, work):
        folder.mkdir()
    (config / "site.yaml").write_text(SITE)
    (config / "policy.yaml").write_text(POLICY)
    (work / "kernel").write_text(KERNEL)
    (work / "hpcprobe.yml").write_text(
        "run:\n  all:\n    counters:\n    - {name: appRate, regex: 'rate: (.*)'}\n"
        "post:\n  all:\n    counters:\n    - {name: lines, regex: '(\\d+)'}\n"
    )
    (work / "kernel").chmod(0o755)
    monkeypatch.chdir(work)
    (work / "sweep.ini").write_text(EXPERIMENT)
    for words in (
        ("site", "discover", "--scheduler", "pbs"),
        ("site", "apply"),
        ("policy", "apply"),
    ):
        done = advisor(*words)
        assert done.code == 0, (words, done.err)
    done = advisor("train", "sweep.ini", "--scheduler", "pbs", "--yes", "--meter", "none")
    assert done.code == 0, done.err
    assert "frequency caps are left out" not in done.err  # it names none
    asked = [job["Resource_List"]["select"] for job in site.state()["jobs"].values()]
    base = "1:ncpus=28:mpiprocs=1:ompthreads={}:mem=1gb:node_type=bdw"
    assert asked == [base.format(threads) for threads in (28, 14) * 3]
    assert (work / "ran").read_text().splitlines() == ["7 28 close", "7 14 close"] * 3
    summary = work / "out" / "my sweep" / "summary.yml"
    entries = yaml.safe_load(summary.read_text())
    rates = {e["parameters"]["threadCount"]: e["objectives"]["appRate"] for e in entries}
    assert rates == {28: 7.0, 14: 7.0}
    assert {e["objectives"]["lines"] for e in entries} == {6.0}  # read once the sweep ended
    (work / "sweep.ini").write_text(EXPERIMENT + "reget = True\n")
    again = advisor("train", "sweep.ini", "--scheduler", "pbs", "--yes", "--meter", "none")
    assert again.code == 0 and "6 runs read again" in again.out
    assert len(site.state()["jobs"]) == 6
