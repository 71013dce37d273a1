"""A PBS job as its hook describes it, on a site of one node type."""

from __future__ import annotations

from typing import Any

from advisor.core.inventory import NodeType
from advisor.core.request import JobRequest
from advisor.schedulers.pbs.translator import parse_request

BDW = NodeType(
    "bdw",
    feature="node_type=bdw",
    partitions=("workq",),
    sockets=2,
    cores=28,
    memory_mb=64000,
    freq_khz=(1_200_000, 1_900_000, 2_200_000),
    default_freq_khz=2_200_000,
    nodes=("n1", "n2"),
)


def request(options: dict[str, str] | None = None, **payload: object) -> JobRequest:
    given_payload: dict[str, Any] = {"options": options or {}, "hook": "queuejob", **payload}
    return parse_request(given_payload, user="alice", uid=1000, choices={})
