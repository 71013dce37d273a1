"""On a real Slurm: what the daemon's child reads of nodes, reservations and limits, and what
that keeps a job from; where it lets a job go, Slurm starts it at once."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from advised import AdvisedSite
from testbed import NODE_TYPES, Testbed

from advisor.core.availability import Availability
from advisor.core.inventory import Inventory
from advisor.core.policy import NodeTypeChange
from advisor.core.request import JobRequest
from advisor.schedulers.grouping import group
from advisor.schedulers.slurm.inventory import read_cluster
from advisor.service.handover import unpack, unpack_limits
from advisor.service.watcher import Watcher
from advisor.store.writer import Writer

SKL = NODE_TYPES["skl"]
Read = Callable[[], Availability]


WATCH_S = 0.5


@pytest.fixture
def cluster(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    """The shared cluster, which this process's own commands ask; put back as it was."""
    for name, value in testbed.env().items():
        if name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, value)
    yield testbed
    run = testbed.run
    for line in run(["scontrol", "-o", "show", "reservation"]).stdout.splitlines():
        if line.startswith("ReservationName="):
            run(["scontrol", "delete", line.split()[0]])
    run(["scontrol", "update", f"NodeName={','.join(SKL.nodes)}", "State=UNDRAIN"], check=False)
    run(["scontrol", "delete", "PartitionName=own"], check=False)
    testbed.empty()


@pytest.fixture
def read(cluster: Testbed, tmp_path: Path) -> Read:
    """Read the cluster as the daemon's child does, and unpack what that hands over."""
    store = tmp_path / "a.db"
    with Writer(store) as writer:
        writer.save_node_types(group(read_cluster())[0], source="test")

    def look() -> Availability:
        out = io.StringIO()
        Watcher(store, out).look()
        state, limits = (json.loads(line) for line in out.getvalue().splitlines())
        return unpack(state["state"], unpack_limits(limits["limits"]))

    return look


def inventory() -> Inventory:
    return Inventory.of(group(read_cluster())[0])


def obstacle(
    state: Availability,
    *,
    nodes: int = 1,
    minutes: int = 60,
    change: NodeTypeChange = "no-later",
    user: str = "nobody",
    other: str = "skylake",
    partition: str = "batch",
    **more: Any,
) -> tuple[str, str]:
    """Return what keeps a job on broadwell off another node type."""
    types = inventory().node_types
    request = JobRequest(
        "slurm", "cli_filter", user, 0, constraint="broadwell", time_limit_s=60 * minutes, **more
    )
    return state.node_type_obstacle(
        request, types["broadwell"], types[other], partition, nodes, change
    )


def state_of(cluster: Testbed, job: int, seconds: float = 8) -> str:
    """Return RUNNING once a job runs, else why it waits."""
    end = time.monotonic() + seconds
    while True:
        found = cluster.scontrol_job(job)
        if found["JobState"] != "PENDING" or time.monotonic() > end:
            return found["JobState"] if found["JobState"] != "PENDING" else found["Reason"]
        time.sleep(0.1)


def sleep_on_skylake(cluster: Testbed, *options: str) -> int:
    words = ["--exclusive", "-C", "skylake", "-o", "/dev/null", *options]
    return cluster.sbatch(*words, script="sleep 300").job_id


def test_idle_nodes_are_counted_and_start_a_job_at_once(cluster: Testbed, read: Read) -> None:
    assert obstacle(read(), nodes=2) == ("", "")
    assert obstacle(read(), nodes=2, other="milan") == ("", "")
    job = sleep_on_skylake(cluster, "-N1", "-t", "60")
    assert state_of(cluster, job) == "RUNNING"
    state = read()
    assert obstacle(state) == ("", "")
    assert obstacle(state, nodes=2) == ("node-type-later", "1 of 2 skylake nodes is idle now")
    assert obstacle(state, nodes=2, change="allow") == ("", "")
    assert state_of(cluster, sleep_on_skylake(cluster, "-N2", "-t", "60"), 1) != "RUNNING"


def test_drained_nodes(cluster: Testbed, read: Read) -> None:
    for node in SKL.nodes:
        cluster.run(
            ["scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=a State=IDLE"]
        )
    state = read()
    changes: tuple[NodeTypeChange, ...] = ("no-later", "allow")
    for change in changes:
        assert obstacle(state, change=change) == (
            "node-type-later",
            "0 of 2 skylake nodes are usable",
        )


@pytest.mark.parametrize(
    ("reservation", "minutes", "found"),
    [
        (["StartTime=now+30minutes", "Duration=60", "Flags=MAINT"], 60, "node-type-later"),
        (["StartTime=now+30minutes", "Duration=60", "Flags=MAINT"], 20, ""),
        (["StartTime=now", "Duration=60"], 5, "node-type-later"),
        (["StartTime=now", "Duration=infinite", "Flags=MAINT"], 5, "node-type-later"),
    ],
)
def test_reservations(
    cluster: Testbed, read: Read, reservation: list[str], minutes: int, found: str
) -> None:
    cluster.run(
        [
            "scontrol",
            "create",
            "reservation",
            "ReservationName=r",
            "Users=root",
            f"Nodes={','.join(SKL.nodes)}",
            *reservation,
        ]
    )
    state = read()
    assert obstacle(state, minutes=minutes)[0] == found
    assert (obstacle(state, minutes=minutes, change="allow")[0] == "") is (
        "Duration=infinite" not in reservation
    )
    job = sleep_on_skylake(cluster, "-N1", "-t", str(minutes))
    assert (state_of(cluster, job, 8 if not found else 2) == "RUNNING") is (found == "")


def test_partitions(cluster: Testbed, read: Read) -> None:
    state = read()
    place = state.partitions["batch"]
    assert not place.whole_nodes and place.default_memory_mb == (0, 50) and place.default
    own = ["PartitionName=own", "Nodes=bdw[1-4],skl[1-2]"]
    limits = ["OverSubscribe=EXCLUSIVE", "DefMemPerNode=900", "MaxCPUsPerNode=30"]
    cluster.run(["scontrol", "create", *own, *limits])
    state = read()
    own_place = state.partitions["own"]
    assert own_place.whole_nodes and own_place.default_memory_mb == (900, 0)
    assert obstacle(state, partition="own")[0] == "node-type-limit"
    cluster.run(["scontrol", "update", "PartitionName=own", "MaxCPUsPerNode=UNLIMITED"])
    assert obstacle(read(), partition="own") == ("", "")
    cluster.run(["scontrol", "update", "PartitionName=own", "State=DOWN"])
    assert obstacle(read(), partition="own")[1] == "the partition starts no jobs now"


# -- limits --------------------------------------------------------------------------------------


@pytest.fixture
def enforced(cluster: Testbed) -> Iterator[Testbed]:
    """The cluster as it is while accounting's limits hold."""
    conf = cluster.conf_dir / "slurm.conf"
    before = conf.read_text()
    conf.write_text(f"{before}AccountingStorageEnforce=associations,limits,qos\n")
    cluster.restart_slurmctld()
    try:
        yield cluster
    finally:
        for words in (
            ["modify", "user", "nobody", "set", "GrpTRES=cpu=-1", "qos=normal", "defaultqos="],
            ["modify", "account", "proj", "set", "GrpTRESMins=cpu=-1"],
            ["delete", "qos", "tight"],
        ):
            cluster.run(["sacctmgr", "-i", *words], check=False)
        conf.write_text(before)
        cluster.restart_slurmctld()


def accounting(cluster: Testbed, *words: str) -> None:
    cluster.run(["sacctmgr", "-i", *words])


def test_limits(enforced: Testbed, read: Read) -> None:
    assert obstacle(read(), nodes=2) == ("", "")
    accounting(enforced, "modify", "user", "nobody", "set", "GrpTRES=cpu=200")
    assert obstacle(read()) == (
        "node-type-limit",
        "its nodes are larger, and a limit holds: "
        "GrpTRES=cpu=200 of nobody's association with proj",
    )
    assert obstacle(read(), user="daemon") == ("", "")
    accounting(enforced, "modify", "user", "nobody", "set", "GrpTRES=cpu=-1")
    accounting(enforced, "modify", "account", "proj", "set", "GrpTRESMins=cpu=100000")
    assert "GrpTRESMins=cpu=100000 of account proj" in obstacle(read(), user="daemon")[1]
    accounting(enforced, "modify", "account", "proj", "set", "GrpTRESMins=cpu=-1")
    assert obstacle(read(), user="daemon") == ("", "")
    assert obstacle(read(), user="bin")[0] == "node-type-limit"  # without an association


def test_limits_of_a_qos(enforced: Testbed, read: Read) -> None:
    accounting(
        enforced, "add", "qos", "tight", "set", "MaxTRESPerJob=cpu=60", "MaxTRESPerUser=node=9"
    )
    accounting(enforced, "modify", "user", "nobody", "set", "qos=normal,tight")
    assert obstacle(read(), nodes=2, qos="normal") == ("", "")
    assert obstacle(read(), nodes=1, qos="tight") == ("", "")
    code, why = obstacle(read(), nodes=2, qos="tight")  # 2 x 40 cores, 2 x 28 as it is written
    assert code == "node-type-limit" and "MaxTRES=cpu=60 of QOS tight" in why
    held = enforced.sbatch("--hold", "-o", "/dev/null", script="true", user="nobody")
    assert enforced.scontrol_job(held.job_id)["QOS"] == "normal"  # of several without a default
    assert obstacle(read(), nodes=2) == ("", "")
    accounting(enforced, "modify", "user", "nobody", "set", "defaultqos=tight")
    assert "QOS tight" in obstacle(read(), nodes=2)[1]
    accounting(enforced, "modify", "user", "nobody", "set", "defaultqos=normal")
    assert obstacle(read(), nodes=2) == ("", "")
    enforced.run(
        ["scontrol", "create", "PartitionName=own", "Nodes=bdw[1-4],skl[1-2]", "QOS=tight"]
    )
    assert "QOS tight" in obstacle(read(), nodes=2, partition="own")[1]
    # and that is what Slurm does
    for feature, runs in (("broadwell", True), ("skylake", False)):
        words = ["-N2", "--exclusive", "-C", feature, "--qos=tight", "-t", "5", "-o", "/dev/null"]
        job = enforced.sbatch(*words, script="sleep 300", user="nobody")
        assert (state_of(enforced, job.job_id, 8 if runs else 2) == "RUNNING") is runs


# -- in a daemon ---------------------------------------------------------------------------------


def test_the_daemon_is_at_most_a_read_behind(site: AdvisedSite, cluster: Testbed) -> None:
    status = site.watched()
    assert status["scheduler"] == "slurm" and status["age_s"] < 5 and status["error"] == ""
    assert site.watched()["pid"] == status["pid"]
    checks = json.loads(site.advisor("doctor", "--json", check=False).stdout)["checks"]
    assert [c["state"] for c in checks if c["name"] == "watch"] == ["ok"], checks
