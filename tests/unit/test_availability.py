"""Whether a job may go to another node type: by what is idle, by reservations, by limits."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from typing import Any

import pytest

from advisor.core.availability import (
    Availability,
    Bounds,
    JobLimits,
    PartitionState,
    Queue,
    Room,
    account_in,
)
from advisor.core.inventory import NodeType
from advisor.core.policy import NodeTypeChange
from advisor.core.request import JobRequest
from advisor.service.handover import pack, pack_limits, unpack, unpack_limits

BDW = NodeType("broadwell", "broadwell", ("batch",), cores=28, memory_mb=8000)
SKL = NodeType("skylake", "skylake", ("batch",), cores=40, memory_mb=8000)
SAME = replace(SKL, name="icelake", feature="icelake", cores=28)
SMALL = replace(SKL, name="small", feature="small", cores=8)
JOB = JobRequest("slurm", "cli_filter", "ann", 1000, time_limit_s=3600, constraint="broadwell")
BATCH = PartitionState(smallest=(8, 8000), largest=(40, 8000))
INF = math.inf
FREE = Availability(
    "slurm",
    rooms={
        ("broadwell", "batch"): Room(4, 4, ((INF, 4),)),
        ("skylake", "batch"): Room(4, 4, ((INF, 4),)),
        ("icelake", "batch"): Room(4, 4, ((INF, 4),)),
        ("small", "batch"): Room(4, 4, ((INF, 4),)),
    },
    partitions={"batch": BATCH},
    limits=JobLimits(enforced=False),
)


def obstacle(
    state: Availability = FREE,
    request: JobRequest = JOB,
    own: NodeType = BDW,
    other: NodeType = SKL,
    nodes: int = 2,
    change: NodeTypeChange = "no-later",
) -> tuple[str, str]:
    return state.node_type_obstacle(request, own, other, "batch", nodes, change)


def with_room(room: Room, **more: Any) -> Availability:
    return replace(FREE, rooms={**FREE.rooms, ("skylake", "batch"): room}, **more)


def test_nothing_in_the_way() -> None:
    assert obstacle() == ("", "")
    assert obstacle(change="allow") == ("", "")


@pytest.mark.parametrize(
    ("room", "detail"),
    [
        (Room(4, 4), "0 of 4 skylake nodes are idle now"),
        (Room(4, 4, ((INF, 1),)), "1 of 4 skylake nodes is idle now"),
        (Room(4, 1, ((INF, 1),)), "1 of 4 skylake nodes is usable"),
        (Room(1, 0), "0 of 1 skylake nodes are usable"),
    ],
)
def test_too_few_nodes(room: Room, detail: str) -> None:
    assert obstacle(with_room(room)) == ("node-type-later", detail)


def test_where_it_may_start_later_nodes_must_still_be_there() -> None:
    assert obstacle(with_room(Room(4, 2)), change="allow") == ("", "")
    assert obstacle(with_room(Room(4, 1)), change="allow")[0] == "node-type-later"


def test_a_reservation_ahead() -> None:
    soon = with_room(Room(2, 2, ((time.time() + 1800, 1), (INF, 1))))
    code, detail = obstacle(soon)
    assert code == "node-type-later"
    assert detail == "1 of 2 skylake nodes is idle until the job ends: a reservation"
    assert obstacle(soon, nodes=1) == ("", "")
    assert obstacle(soon, replace(JOB, time_limit_s=600)) == ("", "")
    assert not soon.timeless and FREE.timeless


def test_a_job_without_a_time_limit_has_its_partitions() -> None:
    ahead = Room(2, 2, ((time.time() + 7200, 2),))
    open_end = replace(JOB, time_limit_s=None)
    assert obstacle(with_room(ahead), open_end)[0] == "node-type-later"
    short = {"batch": replace(BATCH, time_limit_s=3600.0)}
    assert obstacle(with_room(ahead, partitions=short), open_end) == ("", "")


def test_nodes_promised_to_others_are_not_idle() -> None:
    taken = replace(FREE, promised={"skylake": 3, "broadwell": 9})
    assert obstacle(taken) == ("node-type-later", "1 of 4 skylake nodes is idle now")
    assert obstacle(taken, nodes=1) == ("", "")


@pytest.mark.parametrize("change", ["no-later", "allow"])
def test_a_held_job_keeps_its_node_type(change: NodeTypeChange) -> None:
    assert obstacle(request=replace(JOB, held=True), change=change)[0] == "node-type-later"


def test_an_array_and_a_partition_that_is_down() -> None:
    assert obstacle(request=replace(JOB, array=True))[0] == "node-type-later"
    assert obstacle(request=replace(JOB, array=True), change="allow") == ("", "")
    down = replace(FREE, partitions={"batch": replace(BATCH, up=False)})
    assert obstacle(down) == ("node-type-later", "the partition starts no jobs now")


@pytest.mark.parametrize("change", ["no-later", "allow"])
def test_what_is_not_known_changes_nothing(change: NodeTypeChange) -> None:
    unknown = Availability(problem="scontrol gave no answer within 10 s")
    assert obstacle(unknown, change=change) == (
        "node-type-later",
        "nothing is known of the cluster's nodes: scontrol gave no answer within 10 s",
    )
    assert obstacle(request=replace(JOB, scheduler="pbs"), change=change)[0] == "node-type-later"
    elsewhere = FREE.node_type_obstacle(JOB, BDW, SKL, "debug", 1, change)
    assert elsewhere == ("node-type-later", "there is no skylake node in debug")
    assert obstacle(replace(FREE, limits=None), change=change)[0] == "node-type-limit"
    assert obstacle(replace(FREE, limits=None), other=SAME, change=change) == ("", "")


# -- limits --------------------------------------------------------------------------------------

CPU60 = Bounds(job=(("MaxTRES=cpu=60 of QOS q", 60.0, INF, False),))
SHARED = Bounds(most=("GrpTRES=cpu=99 of account lab",))
PARTITION = (
    "its nodes are larger, and a limit holds: MaxCPUsPerNode or MaxMemPerNode of partition batch"
)
LEAST = Bounds(least=("MinTRES=cpu=50 of QOS q",))


def limited(
    association: Bounds = Bounds(qos=("q",)),  # noqa: B008
    qos: Bounds = Bounds(),  # noqa: B008
    **place: Any,
) -> Availability:
    known = JobLimits(
        {"ann": {"lab": association, "other": Bounds(qos=("free",))}}, {"q": qos, "free": Bounds()}
    )
    return replace(FREE, limits=known, partitions={"batch": replace(BATCH, **place)})


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        (limited(), ""),
        (
            limited(qos=CPU60),
            "its nodes are larger, and a limit holds: MaxTRES=cpu=60 of QOS q",
        ),
        (
            limited(SHARED),
            "its nodes are larger, and a limit holds: GrpTRES=cpu=99 of account lab",
        ),
        (limited(qos=LEAST), ""),
        (limited(most=(39, 0)), PARTITION),
        (limited(most=(40, 8000)), ""),
        (
            limited(most=(0, 7999)),
            PARTITION,
        ),
        (limited(Bounds(qos=("gone",))), "the limits of ann are not known"),
    ],
)
def test_limits_on_a_larger_node(state: Availability, detail: str) -> None:
    code = "node-type-limit" if detail else ""
    assert obstacle(state) == (code, detail)
    assert obstacle(state, change="allow") == (code, detail)
    assert obstacle(state, other=SAME) == ("", "")  # of the same size


def test_a_limit_of_a_single_job_is_counted() -> None:
    assert obstacle(limited(qos=CPU60), nodes=1) == ("", "")
    per_node = Bounds(job=(("MaxTRESPerNode=cpu=39 of QOS q", 39.0, INF, True),))
    assert obstacle(limited(qos=per_node), nodes=1)[0] == "node-type-limit"


def test_a_smaller_node_may_be_too_small() -> None:
    assert obstacle(limited(qos=LEAST), other=SMALL) == (
        "node-type-limit",
        "its nodes are smaller, and a limit holds: MinTRES=cpu=50 of QOS q",
    )
    assert obstacle(limited(SHARED), other=SMALL) == ("", "")


def test_a_job_that_names_no_nodes_may_get_the_smallest_as_it_is_written() -> None:
    open_ = replace(JOB, constraint="")
    assert obstacle(limited(SHARED), open_, own=SKL, other=SKL)[0] == "node-type-limit"
    assert obstacle(limited(SHARED), replace(JOB, constraint="skylake"), own=SKL) == ("", "")
    alike = limited(SHARED, smallest=(40, 8000))
    assert obstacle(alike, open_, own=SKL, other=SKL) == ("", "")


@pytest.mark.parametrize(
    ("account", "qos", "hit"),
    [
        ("lab", "", True),
        ("other", "", False),
        ("", "", True),  # any of its user's accounts, where the default is not known
        ("lab", "free", False),
        ("other", "q", True),
        ("unknown", "", True),
        ("lab", "unknown", True),
    ],
)
def test_whose_limits_hold(account: str, qos: str, hit: bool) -> None:
    request = replace(JOB, account=account, qos=qos)
    assert (obstacle(limited(qos=CPU60), request)[0] == "node-type-limit") is hit


@pytest.mark.parametrize(("default", "hit"), [("lab", True), ("other", False), ("gone", True)])
def test_a_job_that_names_no_account_has_its_users_default(default: str, hit: bool) -> None:
    state = limited(qos=CPU60)
    assert state.limits is not None
    limits = replace(state.limits, default_accounts={"ann": default})
    found = obstacle(replace(state, limits=limits), replace(JOB, account=""))
    assert (found[0] == "node-type-limit") is hit


def test_an_association_with_a_partition_holds_there() -> None:
    state = limited(qos=CPU60)
    assert state.limits is not None
    accounts = {"lab": Bounds(qos=("q",)), account_in("lab", "batch"): Bounds(qos=("free",))}
    limits = replace(state.limits, users={"ann": accounts}, default_accounts={"ann": "lab"})
    assert obstacle(replace(state, limits=limits)) == ("", "")


def test_the_limits_of_a_partitions_qos_hold_too() -> None:
    free = limited(Bounds(qos=("free",)), CPU60)
    assert obstacle(free) == ("", "")
    partition = {"batch": replace(BATCH, qos="q")}
    assert obstacle(replace(free, partitions=partition))[0] == "node-type-limit"


def test_limits_of_pbs_queues() -> None:
    request = replace(JOB, scheduler="pbs")
    queues = {
        "": Queue(""),
        "batch": Queue("batch", destinations=("small", "batch")),
        "small": Queue("small", limited=frozenset({"ncpus", "licence"})),
    }
    state = replace(FREE, scheduler="pbs", queues=queues)
    assert obstacle(state, request) == (
        "node-type-limit",
        "its nodes are larger, and a limit holds: ncpus of queue small",
    )
    free = {**queues, "small": Queue("small", limited=frozenset({"licence"}))}
    assert obstacle(replace(state, queues=free), request) == ("", "")
    server = {**free, "": Queue("", limited=frozenset({"mem"}))}
    assert "mem of the server" in obstacle(replace(state, queues=server), request)[1]


# -- what the child hands over -------------------------------------------------------------------


def test_a_state_survives_the_way_from_the_child() -> None:
    queues = {"": Queue("", least={"ncpus": "4"}, destinations=("a", "b"), limited=frozenset("xy"))}
    settings = {"TaskPlugin": "task/none"}
    state = replace(limited(SHARED, CPU60, most=(3, 4)), queues=queues, settings=settings)
    assert state.limits is not None
    limits = unpack_limits(json.loads(json.dumps(pack_limits(state.limits))))
    assert unpack(json.loads(json.dumps(pack(state))), limits) == state


def test_whole_nodes_and_memory() -> None:
    state = limited(whole_nodes=True, default_memory_mb=(900.0, 0.0))
    assert state.gives_whole_nodes("batch") and not state.gives_whole_nodes("debug")
    job, debug = replace(JOB, partition="batch"), replace(JOB, partition="debug")
    assert state.default_memory_mb(job) == (900, 0) and state.default_memory_mb(debug) is None
    both = replace(JOB, partition="batch,debug")
    assert state.default_memory_mb(both) is None
