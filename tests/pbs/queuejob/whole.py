"""A job that has its node for itself, its rewrite, and whether a job stayed as submitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fake_qstat
from hooked import STAMP, Outcome

from advisor.schedulers.pbs.inventory import HookInventory, hook_inventory

HOOK = "advisor_queuejob.py"
WHOLE = {"select": "1:ncpus=28:mpiprocs=1:node_type=bdw", "place": "excl", "walltime": "1:00:00"}
REWRITE = {"select": WHOLE["select"] + ":ompthreads=20", "cpu_freq_mhz": "1900"}


def untouched(outcome: Outcome, event: Mapping[str, Any]) -> bool:
    """Whether the job was accepted just as it was submitted."""
    given = event["job"]
    return (
        outcome["answer"] == ["accept", ""]
        and outcome["failure"] is None
        and outcome["exit"] == "0"
        and outcome["resources"] == {k: str(v) for k, v in given["Resource_List"].items()}
        and outcome["variables"] == given["Variable_List"]
    )


def inventory(sharing: str = "default_shared", ngpus: int = 0, **queue: object) -> HookInventory:
    """Return what is installed of a complex with two kinds of hosts.

    Queue workq has both, queue bdw the smaller ones, which its default says.
    """
    bdw = {"ncpus": 28, "mem": "64gb", "node_type": "bdw", "sharing": sharing}
    skl = {"ncpus": 64, "mem": "256gb", "node_type": "skl", "sharing": sharing}
    if ngpus:
        bdw["ngpus"] = ngpus
    nodes = {"n1": bdw, "n2": bdw, "k1": skl}
    server = {
        "name": "pbs1",
        "default_queue": "workq",
        "resources_default": {"ncpus": 1},
        "default_chunk": {"ncpus": 1},
    }
    listed = fake_qstat.nodes_of({"nodes": nodes, "jobs": {}})
    execution = {"queue_type": "Execution"}
    queues = {
        "workq": {**execution, **queue},
        "bdw": {**execution, "default_chunk": {"node_type": "bdw"}},
    }
    return hook_inventory(server, listed, queues)


def stamped(
    given: Mapping[str, object], rewrite: Mapping[str, str], stamp: str = STAMP
) -> dict[str, str]:
    """Return what a rewritten job asks for: with the stamp, and what it says was written."""
    asks = {**{name: str(value) for name, value in given.items()}, **rewrite}
    shape = ("select", "place", "nodes", "ncpus", "mpiprocs", "ompthreads")
    looked_at = (*shape, "cpu_freq_mhz", "gpu_freq_mhz", "gpu_power_w")
    left = {name: asks[name] for name in looked_at if name in asks}
    before = {name: str(given.get(name, "")) for name in rewrite}
    words = json.dumps({"left": left, "before": before}, separators=(",", ":"), sort_keys=True)
    return {**asks, "advisor_stamp": f"{stamp}+wrote:{words}"}
