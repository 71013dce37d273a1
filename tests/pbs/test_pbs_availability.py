"""What the reader makes of a complex: free hosts, queues, what they ask and count."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import fake_pbs
import pytest

from advisor.core.availability import NodeKind, Queue, Room
from advisor.core.inventory import Inventory, NodeType
from advisor.errors import SchedulerError
from advisor.schedulers.node_state import rooms
from advisor.schedulers.pbs import availability as pbs
from advisor.schedulers.pbs import installed

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


def test_as_a_real_server_says_it() -> None:
    ((name, server),) = recorded("server")["Server"].items()
    found = pbs.reading_of(name, server, recorded("nodes"), recorded("queues")["Queue"])
    (node,) = found.nodes
    assert (node.idle, node.usable, node.until) == (True, True, math.inf)
    assert node.partitions == ("workq",) and "node_type=broadwell" in node.features
    assert found.queues[""] == Queue(
        "", default={"ncpus": "1"}, default_chunk={"ncpus": "1"}, destinations=("workq",)
    )
    assert found.queues["workq"] == Queue("workq")
    place = found.partitions["workq"]
    assert place.up and not place.whole_nodes and place.default_memory_mb is None
    assert place.time_limit_s == math.inf


def vnode(host: str, state: str = "free", **more: Any) -> dict[str, Any]:
    has = {"host": host, "ncpus": 28, "mem": "1gb", "vnode": host, "kind": "bdw"}
    return {"state": state, "resources_available": has, **more}


@pytest.mark.parametrize(
    ("attributes", "idle", "usable"),
    [
        (vnode("a"), True, True),
        (vnode("a", resources_assigned={"ncpus": 0}), True, True),
        (vnode("a", resources_assigned={"ncpus": 4}), False, True),
        (vnode("a", jobs=["7.pbs1"]), False, True),
        (vnode("a", resv=["R8.pbs1"]), False, True),
        (vnode("a", "job-busy"), False, True),
        (vnode("a", "job-exclusive"), False, True),
        (vnode("a", "resv-exclusive"), False, True),
        (vnode("a", "provisioning"), False, True),
        (vnode("a", "offline"), False, False),
        (vnode("a", "job-busy,offline"), False, False),
        (vnode("a", "state-unknown,down"), False, False),
        (vnode("a", "Stale"), False, False),
    ],
)
def test_states(attributes: dict[str, Any], idle: bool, usable: bool) -> None:
    found = pbs.reading_of("pbs1", {}, {"nodes": {"a": attributes}}, {"workq": {}})
    (node,) = found.nodes
    assert (node.idle, node.usable) == (idle, usable)


def test_a_host_is_as_free_as_its_busiest_vnode() -> None:
    nodes = {
        "a[0]": vnode("a"),
        "a[1]": vnode("a", "job-exclusive"),
        "b": vnode("b"),
        "c": vnode("c"),
    }
    kind = NodeType("bdw", "kind=bdw", ("workq",), nodes=("a", "b", "c", "d"))
    found = pbs.reading_of("pbs1", {}, {"nodes": nodes}, {"workq": {}})
    shared = ("default_shared",)
    kinds = frozenset(
        NodeKind(frozenset({"kind=bdw"}), cores, shared, parted=cores > 28) for cores in (28, 56)
    )
    assert rooms(Inventory.of([kind]), found.nodes) == {
        ("bdw", "workq"): Room(3, 3, ((math.inf, 2),), kinds)
    }


def test_queues() -> None:
    queues = {
        "route": {
            "queue_type": "Route",
            "enabled": "True",
            "started": "True",
            "route_destinations": "small@pbs1,far@pbs2",
            "resources_min": {"ncpus": 8},
        },
        "small": {
            "queue_type": "Execution",
            "enabled": "True",
            "started": "False",
            "resources_default": {"place": "scatter", "walltime": "01:00:00", "mem": "2gb"},
            "default_chunk": {"ncpus": 4},
            "resources_max": {"ncpus": 56, "nodect": 2},
            "resources_available": {"ncpus": 400},
            "max_run_res": {"mem": "[u:PBS_GENERIC=20gb]"},
            "max_run_res_soft": {"ngpus": "[o:PBS_ALL=4]"},
            "max_queued_res": {"vmem": "[o:PBS_ALL=4gb]"},
            "max_run": "[u:PBS_GENERIC=4]",
        },
    }
    server = {"scheduling": "True", "resources_max": {"walltime": "24:00:00"}}
    found = pbs.reading_of("pbs1", server, {"nodes": {"a": vnode("a")}}, queues)
    assert found.queues["route"] == Queue(
        "route", least={"ncpus": "8"}, destinations=("small", "far@pbs2")
    )
    assert found.queues["small"] == Queue(
        "small",
        started=False,
        default={"place": "scatter", "walltime": "01:00:00", "mem": "2gb"},
        default_chunk={"ncpus": "4"},
        most={"ncpus": "56", "nodect": "2"},
        limited=frozenset({"ncpus", "mem", "ngpus", "vmem"}),
    )
    assert found.nodes[0].partitions == ("route", "small")
    route, small = found.partitions["route"], found.partitions["small"]
    assert (route.up, route.time_limit_s) == (True, 86400)
    assert (small.up, small.time_limit_s) == (False, 3600)
    stopped = pbs.reading_of("pbs1", {"scheduling": "False"}, {"nodes": {}}, queues)
    assert not stopped.partitions["route"].up


def test_a_complex_by_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("PBS_CONF_FILE", str(tmp_path / "none"))
    assert not installed()
    nodes = {"n1": {"ncpus": 28, "mem": "1gb", "node_type": "bdw"}}
    programs = fake_pbs.install(tmp_path / "pbs", nodes=nodes)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin:/bin")
    assert installed()
    found = pbs.read()
    assert [n.name for n in found.nodes] == ["n1"] and found.nodes[0].idle
    assert found.queues["workq"].enabled and not pbs.read_limits().enforced
    (programs / "qstat").write_text("#!/bin/sh\necho garbage\n")
    with pytest.raises(SchedulerError, match="no JSON"):
        pbs.read()
