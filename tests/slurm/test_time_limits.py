"""On a real Slurm: the time limit that a job gets which states none, and what is made of it."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advised import POLICY, AdvisedSite, advised_site
from testbed import NODE_TYPES, Testbed, predict

from advisor.core.availability import Availability
from advisor.core.request import JobRequest
from advisor.schedulers.grouping import group
from advisor.schedulers.slurm.inventory import read_cluster
from advisor.schedulers.slurm.table import parse_limit
from advisor.service.handover import unpack, unpack_limits
from advisor.service.watcher import Watcher
from advisor.store.writer import Writer

BDW = NODE_TYPES["bdw"]
WRITTEN_S = 54.0
"""How long the job takes as it is written: it ends within a limit of a minute."""


@pytest.fixture(scope="module")
def patient(testbed: Testbed) -> Iterator[AdvisedSite]:
    """A site that accepts much slowdown, with a model of a job of 54 s, and watches the cluster.

    Its partition gives a job a minute that states no limit. Energy is what the cores take, so that
    the least is at few threads and a low frequency.
    """
    partition = ["PartitionName=brief", "Nodes=bdw[1-4]", "DefaultTime=1", "OverSubscribe=NO"]
    testbed.run(["scontrol", "create", *partition])
    policy = POLICY.replace("max_slowdown: 10%", "max_slowdown: 90%")
    with advised_site(testbed, policy, watch_s=0.5) as site:
        scale = WRITTEN_S / predict("stencil", "bdw", 1, BDW.cores, BDW.max_khz)[0]
        rows = ["nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j"]
        for threads in range(4, BDW.cores + 1, 4):
            for freq in BDW.frequencies_khz:
                time_s, watts = predict("stencil", "bdw", 1, threads, freq, scale)
                energy_j = time_s * (watts - BDW.idle_w)
                rows.append(f"1,1,{threads},{freq},{time_s:.4f},{energy_j:.2f}")
        grid = site.folder / "grid.csv"
        grid.write_text("\n".join(rows) + "\n")
        site.advisor("import", grid, "--application", "stencil", "--node-type", BDW.feature)
        site.counted()
        site.advisor("fit", "stencil")
        site.settle()
        site.script(
            "job.sh",
            f"srun simapp --kernel stencil --scale {scale:.4f}",
            "-N 1",
            "--exclusive",
            "-p brief",
            "-o /dev/null",
        )
        yield site
    testbed.empty()
    testbed.run(["scontrol", "delete", "PartitionName=brief"], check=False)


NAMED = {"ADVISOR_APPLICATION": "stencil", "ADVISOR_WORKLOAD": "default"}


def test_a_job_without_a_limit_is_not_advised_into_its_partitions(patient: AdvisedSite) -> None:
    site, script = patient, patient.folder / "job.sh"

    def explained(*options: str) -> float:
        """Return how long the job is expected to take."""
        found = json.loads(
            site.advisor("explain", script, "--json", "--", *options, env=NAMED).stdout
        )
        assert found["chosen"] is not None, found["explanation"]
        time_s: float = found["predicted"]["time_s"]
        return time_s

    assert explained("-t", "10") > 75  # far beyond the minute, and allowed where it fits
    assert explained() <= 60

    # A limit is a minute at least, and so long each of them runs: on a node of its own.
    scale = WRITTEN_S / predict("stencil", "bdw", 1, BDW.cores, BDW.max_khz)[0]
    srun = ["srun", "simapp", "--kernel", "stencil", "--scale", f"{scale:.4f}"]
    options = ["-N1", "--exclusive", "-p", "brief"]
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(site.testbed.run, words, env=NAMED, check=False, timeout=180)
            for words in (["srun", *options, *srun[1:]], ["salloc", *options, *srun])
        ]
        job = site.testbed.sbatch(str(script), env=NAMED)
        assert "expected" in job.stderr  # it is advised, only not so much
        assert site.testbed.scontrol_job(job.job_id)["TimeLimit"] == "00:01:00"
        assert site.testbed.wait(job.job_id, 180) == "COMPLETED"
        for done in (future.result() for future in both):
            assert done.returncode == 0, done.stderr


# -- what the daemon's child reads, held against what Slurm gives a job --------------------------


@pytest.fixture
def limits(testbed: Testbed) -> Iterator[Testbed]:
    """The cluster with partitions and QOS that limit a job's time, which accounting enforces."""
    conf = testbed.conf_dir / "slurm.conf"
    before = conf.read_text()
    conf.write_text(f"{before}AccountingStorageEnforce=associations,limits,qos\n")
    testbed.restart_slurmctld()
    partitions = {
        "free": [],
        "standard": ["DefaultTime=5"],
        "most": ["MaxTime=7"],
        "both": ["DefaultTime=2", "MaxTime=10"],
        "tight": ["QOS=tight"],
        "tightmost": ["QOS=tight", "MaxTime=7"],
    }
    accounting = [
        ["add", "qos", "tight", "set", "MaxWall=00:03:00"],
        ["add", "account", "other", "cluster=testbed"],
        ["add", "user", "nobody", "account=other"],
        ["modify", "user", "nobody", "set", "defaultaccount=other"],
        ["modify", "user", "nobody", "set", "qos=normal,tight"],
        ["modify", "account", "proj", "set", "MaxWall=00:04:00"],
    ]
    try:
        for words in accounting:
            testbed.run(["sacctmgr", "-i", *words])
        for name, more in partitions.items():
            testbed.run(["scontrol", "create", f"PartitionName={name}", "Nodes=bdw[1-4]", *more])
        yield testbed
    finally:
        for words in (
            ["modify", "user", "nobody", "set", "defaultqos=-1"],
            ["modify", "user", "nobody", "set", "qos=normal"],
            ["modify", "user", "nobody", "set", "defaultaccount=proj"],
            ["modify", "account", "proj", "set", "MaxWall=-1"],
            ["delete", "user", "nobody", "account=other"],
            ["delete", "account", "other"],
        ):
            testbed.run(["sacctmgr", "-i", *words], check=False)
        testbed.empty()
        for name in partitions:
            testbed.run(["scontrol", "delete", f"PartitionName={name}"], check=False)
        testbed.run(["sacctmgr", "-i", "delete", "qos", "tight"], check=False)
        conf.write_text(before)
        testbed.restart_slurmctld()


def read(testbed: Testbed, store: Path) -> Availability:
    """Read the cluster as the daemon's child does, and unpack what that hands over."""
    with Writer(store) as writer:
        writer.save_node_types(group(read_cluster())[0], source="test")
    out = io.StringIO()
    Watcher(store, out).look()
    state, limits = (json.loads(line) for line in out.getvalue().splitlines())
    return unpack(state["state"], unpack_limits(limits["limits"]))


def test_it_is_known_as_slurm_gives_it(
    limits: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, limits.env()[name])

    def compare(state: Availability, *options: str, user: str = "nobody", **request: Any) -> float:
        """Return the limit that Slurm gives a job; it must be the one that is known."""
        words = [f"--{name}={value}" for name, value in request.items()]
        job = limits.sbatch(
            "--hold", "-o", "/dev/null", *words, *options, script="true\n", user=user
        )
        found = limits.scontrol_job(job.job_id)
        limit = parse_limit(found["TimeLimit"])
        given = math.inf if limit is None else float(limit)
        asked = replace(JobRequest("slurm", "cli_filter", user, 1), **request)
        assert state.time_limit_s(asked) == given, (request, found)
        return given

    state = read(limits, tmp_path / "a.db")
    seen = {
        name: compare(state, partition=name)
        for name in ("free", "standard", "most", "both", "tight", "tightmost", "batch", "debug")
    }
    assert seen == {
        "free": math.inf,
        "standard": 300,
        "most": 420,
        "both": 120,
        "tight": 180,
        "tightmost": 180,
        "batch": math.inf,
        "debug": 1800,
    }
    assert compare(state) == math.inf  # the default partition, account and QOS
    assert compare(state, partition="free", qos="tight") == 180
    assert compare(state, partition="free", account="proj") == 240
    assert compare(state, partition="free", user="daemon") == 240
    # of several partitions Slurm takes the first one's; the shortest holds wherever it starts
    several = JobRequest("slurm", "cli_filter", "nobody", 1, partition="standard,both")
    assert state.time_limit_s(several) == 120
    limits.run(["sacctmgr", "-i", "modify", "user", "nobody", "set", "defaultqos=tight"])
    state = read(limits, tmp_path / "a.db")
    assert compare(state, partition="free") == 180
    assert compare(state, partition="free", qos="normal") == math.inf
