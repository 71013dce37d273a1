"""What the reader makes of scontrol and sacctmgr, as Slurm 22.05 of the testbed printed them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.availability import Availability, Bounds, JobLimits, PartitionState, Room
from advisor.core.inventory import Inventory, NodeType
from advisor.core.request import JobRequest
from advisor.errors import SchedulerError
from advisor.schedulers.node_state import NodeState, rooms, sized
from advisor.schedulers.slurm import availability as slurm
from advisor.schedulers.slurm.translator import fold

RECORDED = Path(__file__).parent / "slurm_22_05" / "state"
NOW = 1_795_314_840.0
"""When it was recorded."""
MAINT = 1_795_315_362.0
TYPES = Inventory.of(
    [
        NodeType(name, name, ("batch",), cores=cores, memory_mb=8000, nodes=nodes)
        for name, cores, nodes in (
            ("broadwell", 28, ("bdw1", "bdw2", "bdw3", "bdw4")),
            ("skylake", 40, ("skl1", "skl2")),
            ("milan", 64, ("mil1", "mil2")),
        )
    ]
)


def text(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def nodes(now: float = NOW) -> dict[str, NodeState]:
    blocked = slurm.parse_reservations(text("reservation"), now)
    return {n.name: n for n in slurm.parse_nodes(text("node"), blocked, now)}


@pytest.mark.parametrize(
    ("name", "idle", "usable", "until"),
    [
        ("bdw1", True, True, math.inf),
        ("bdw2", False, False, math.inf),  # down
        ("bdw3", False, True, math.inf),  # allocated
        ("bdw4", False, False, math.inf),  # drained, its reason says "State=IDLE Partitions=x"
        ("skl1", True, True, MAINT),  # idle until the maintenance
        ("skl2", False, True, math.inf),  # mixed
        ("mil1", False, True, 1_795_313_562.0),  # reserved now
        ("mil2", False, False, -math.inf),  # reserved without end
    ],
)
def test_nodes(name: str, idle: bool, usable: bool, until: float) -> None:
    node = nodes()[name]
    assert (node.idle, node.usable, node.until) == (idle, usable, until)
    assert node.partitions[0] == "batch" and len(node.features) == 1


def test_a_reservation_that_is_over_is_in_nobodys_way() -> None:
    after = nodes(MAINT + 7200)
    assert after["skl1"].until == math.inf and after["skl1"].idle


@pytest.mark.parametrize(
    ("state", "idle", "usable"),
    [
        ("IDLE", True, True),
        ("IDLE+DYNAMIC_NORM", True, True),
        ("IDLE+CLOUD", True, True),
        ("IDLE+CLOUD+POWERED_DOWN", False, True),
        ("IDLE+PLANNED", False, True),
        ("IDLE+RESERVED", False, True),
        ("IDLE+MAINTENANCE", False, True),
        ("IDLE+COMPLETING", False, True),
        ("IDLE+REBOOT_REQUESTED", False, True),
        ("IDLE+NOT_RESPONDING", False, False),
        ("IDLE*", False, False),
        ("MIXED+DRAIN", False, False),
        ("ALLOCATED+FAIL", False, False),
        ("DOWN", False, False),
        ("UNKNOWN", False, False),
        ("", False, False),
    ],
)
def test_states(state: str, idle: bool, usable: bool) -> None:
    line = f"NodeName=n1 ActiveFeatures=x State={state} Partitions=batch RealMemory=1"
    (node,) = slurm.parse_nodes(line, {}, NOW)
    assert (node.idle, node.usable) == (idle, usable)


def test_rooms_and_sizes() -> None:
    found = rooms(TYPES, nodes().values())
    assert found["broadwell", "batch"] == Room(4, 2, ((math.inf, 1),))
    assert found["skylake", "batch"] == Room(2, 2, ((MAINT, 1),))
    assert found["milan", "batch"] == Room(2, 1)
    assert found["broadwell", "debug"] == Room(2, 1, ((math.inf, 1),))
    settings = slurm.parse_settings(text("config"))
    batch = sized(TYPES, slurm.parse_partitions(text("partition"), settings))["batch"]
    assert (batch.smallest, batch.largest) == ((28, 8000), (64, 8000))


def test_a_node_without_its_types_feature_cannot_be_had() -> None:
    lost = NodeState("bdw1", ("batch",), ("other",), idle=True, usable=True)
    assert rooms(TYPES, [lost])["broadwell", "batch"] == Room(1, 0)


def test_partitions() -> None:
    found = slurm.parse_partitions(text("partition"), slurm.parse_settings(text("config")))
    batch, debug, milan = found["batch"], found["debug"], found["milan"]
    assert batch.up and not batch.whole_nodes and batch.most == (0, 0) and not batch.qos
    assert batch.default_memory_mb == (0, 50)  # DefMemPerCPU of the cluster
    assert batch.time_limit_s == math.inf and batch.default and not debug.default
    assert debug.whole_nodes and debug.default_memory_mb == (1000, 0) and debug.most == (30, 5000)
    assert debug.time_limit_s == 1800
    assert not milan.up and milan.default_memory_mb == (0, 77) and milan.qos == "limited"


@pytest.mark.parametrize(
    ("partition", "settings", "memory_mb"),
    [
        ("DefMemPerNode=UNLIMITED", {}, (0, 0)),
        ("DefMemPerNode=UNLIMITED", {"DefMemPerNode": "900"}, (900, 0)),
        ("DefMemPerNode=UNLIMITED", {"DefMemPerCPU": "900"}, (0, 900)),
        ("DefMemPerNode=900", {"DefMemPerCPU": "800"}, (900, 0)),
        ("DefMemPerCPU=900", {"DefMemPerNode": "800"}, (0, 900)),
        ("DefMemPerNode=900 MaxMemPerCPU=800", {}, (900, 0)),
        ("DefMemPerNode=lots", {}, None),
        ("DefMemPerNode=900", {"SelectTypeParameters": "CR_CORE"}, (0, 0)),  # not handed out
    ],
)
def test_memory_of_a_job_that_states_none(
    partition: str, settings: dict[str, str], memory_mb: tuple[float, float] | None
) -> None:
    settings = {"SelectTypeParameters": "CR_CORE_MEMORY", **settings}
    found = slurm.parse_partitions(f"PartitionName=p State=UP {partition}", settings)
    assert found["p"].default_memory_mb == memory_mb


@pytest.mark.parametrize(
    ("times", "limit_s"),
    [
        ("DefaultTime=00:05:00 MaxTime=01:00:00", 300),
        ("DefaultTime=NONE MaxTime=1-00:00:00", 86400),
        ("DefaultTime=NONE MaxTime=UNLIMITED", math.inf),
        ("DefaultTime=soon MaxTime=01:00:00", None),
    ],
)
def test_time_limit_of_a_job_that_states_none(times: str, limit_s: float | None) -> None:
    found = slurm.parse_partitions(f"PartitionName=p State=UP Default=YES {times}", {})
    assert found["p"].time_limit_s == limit_s and found["p"].default


@pytest.mark.parametrize(
    ("sharing", "binds"),
    [
        ("FORCE:2", {"all": "OverSubscribe=FORCE:2 of partition p"}),
        ("FORCE:10", {"all": "OverSubscribe=FORCE:10 of partition p"}),
        ("FORCE", {"all": "OverSubscribe=FORCE of partition p"}),
        ("FORCE:1", {}),
        ("YES:4", {}),
        ("NO", {}),
        ("EXCLUSIVE", {}),
    ],
)
def test_a_job_whose_cores_others_may_have_runs_as_written(
    sharing: str, binds: dict[str, str]
) -> None:
    lines = (
        f"PartitionName=p State=UP OverSubscribe={sharing}\nPartitionName=q State=UP Default=YES"
    )
    state = Availability("slurm", partitions=slurm.parse_partitions(lines, {}))
    job = JobRequest("slurm", "cli_filter", "ann", 1, exclusive=True)
    assert fold(replace(job, partition="p"), state).binds == binds
    assert fold(replace(job, partition="q,p"), state).binds == binds
    assert not fold(job, state).binds and not fold(replace(job, partition="gone"), state).binds


@pytest.mark.parametrize(
    ("more", "names"),
    [("normal,a,b|", ("normal",)), ("a|", ("a",)), ("a,b|", ("a", "b")), ("normal,a|a", ("a",))],
)
def test_the_qos_of_a_job_that_names_none(more: str, names: tuple[str, ...]) -> None:
    found = slurm.parse_limits(f"lab|ann||{more}|||||||", "")
    assert found.users["ann"]["lab"].qos == names


def test_whose_association_holds_and_how_long_a_job_may_run() -> None:
    assoc = (
        "lab||root|normal||||||||||01:00:00\n"
        "lab|ann||normal|||||||||00:40:00\n"
        "lab|ann||normal||||||||fast|00:02:00\n"
        "other|ann||slow||||||||||\n"
    )
    qos = "normal||||||||||||\nslow||||||||||||2-00:00:00\nparted||||||||||||00:30:00\n"
    limits = slurm.parse_limits(assoc, qos, "ann|lab\nbob|\n")
    places = {
        "batch": PartitionState(time_limit_s=math.inf, default=True),
        "fast": PartitionState(time_limit_s=math.inf),
        "short": PartitionState(time_limit_s=300),
        "part": PartitionState(time_limit_s=math.inf, qos="parted"),
        "odd": PartitionState(time_limit_s=None),
    }
    state = Availability("slurm", partitions=places, limits=limits)
    job = JobRequest("slurm", "cli_filter", "ann", 1)

    def limit_s(state: Availability = state, **request: Any) -> float | None:
        return state.time_limit_s(replace(job, **request))

    assert limit_s() == 2400
    assert limit_s(partition="fast") == 120
    assert limit_s(partition="short") == limit_s(partition="batch,short") == 300
    assert limit_s(partition="part") == 1800
    assert limit_s(account="other") == 2 * 86400
    assert limit_s(account="other", qos="normal") == math.inf
    for unknown in (
        {"user": "bob"},
        {"qos": "gone"},
        {"account": "gone"},
        {"partition": "gone"},
        {"partition": "odd"},
        {"scheduler": "pbs"},
    ):
        assert limit_s(state, **unknown) is None
    assert limit_s(replace(state, limits=None)) is None
    assert limit_s(replace(state, limits=JobLimits(enforced=False)), partition="short") == 300
    assert limit_s(Availability(problem="too old")) is None


def test_select_linear_gives_whole_nodes() -> None:
    found = slurm.parse_partitions("PartitionName=p State=UP", {"SelectType": "select/linear"})
    assert found["p"].whole_nodes


def test_limits() -> None:
    limits = slurm.parse_limits(text("assoc"), text("qos"))
    assert limits.users["daemon"]["proj"] == Bounds(
        most=(
            "GrpTRES=cpu=100 of daemon's association with proj",
            "MaxTRESMins=mem=10000M of daemon's association with proj",
        ),
        qos=("normal",),
    )
    assert limits.users["nobody"]["proj"] == Bounds(qos=("limited",))
    assert limits.qos["limited"] == Bounds(  # nodes, which MaxTRESPU limits, stay the same
        job=(("MaxTRES=cpu=60 of QOS limited", 60.0, math.inf, False),),
        most=("GrpTRESMins=billing=100000 of QOS limited",),
        least=("MinTRES=cpu=2 of QOS limited",),
    )
    request = JobRequest("slurm", "cli_filter", "nobody", 65534)
    found = limits.of(request, "")
    assert found is not None and [b.hit(1, 40, 8000) for b in found] == [
        "",
        "GrpTRESMins=billing=100000 of QOS limited",
    ]
    assert limits.of(JobRequest("slurm", "cli_filter", "stranger", 7), "") is None


def test_limits_of_the_accounts_above() -> None:
    assoc = (
        "root|||normal|||||||\n"
        "lab||root|normal||node=9|||||\n"
        "group||lab|normal||gres/gpu=4,cpu=512,license/x=3||cpu=90||mem=4G|\n"
        "group|ann||a,b|||||||\n"
        "lab|ann||normal|b||||cpu=100,mem=1T||\n"
    )
    limits = slurm.parse_limits(assoc, "normal|||||||||||\na|||||||||||\nb|||||||||||\n")
    group, lab = limits.users["ann"]["group"], limits.users["ann"]["lab"]
    assert group.qos == ("a", "b") and group.most == (
        "GrpTRES=cpu=512 of account group",
        "GrpTRESRunMins=cpu=90 of account group",
    )
    (per_node,) = group.job
    assert per_node == ("MaxTRESPerNode=mem=4G of account group", math.inf, 4096.0, True)
    assert group.hit(1, 1, 5000) == per_node[0]
    assert lab.qos == ("b",) and not lab.most
    assert (lab.hit(2, 50, 4000), lab.hit(3, 50, 4000)) == ("", lab.job[0][0])


def test_what_slurm_hides_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    hiding = {"PrivateData": "jobs,reservations", "SlurmUser": "slurm(64030)"}
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SchedulerError, match="hides reservations from user 1000") as caught:
        slurm._check_seen(hiding)
    assert caught.value.hint == "run the daemon as root or slurm"
    monkeypatch.setattr("os.geteuid", lambda: 64030)
    slurm._check_seen(hiding)


@pytest.mark.parametrize("said", ["garbage", "NodeName", '{"nodes": []}'])
def test_something_else_than_nodes(said: str) -> None:
    with pytest.raises(SchedulerError):
        slurm.parse_nodes(said, {}, NOW)
