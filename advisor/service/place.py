"""Where a job could run now: what keeps it off the node types it would have to be bound to."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.core.inventory import NodeType
from advisor.core.policy import NodeTypeChange
from advisor.core.request import JobRequest
from advisor.service.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job runs as it is written, and the node types (``names``) it might be moved to.

    ``possible`` are the node types it may land on, the likeliest first: where one is the only one,
    the job need not be bound to it. ``nodes`` is how many it takes.
    """

    names: tuple[str, ...]
    possible: tuple[NodeType, ...]
    partition: str
    nodes: int


def node_type_obstacles(
    request: JobRequest, change: NodeTypeChange, snapshot: Snapshot, place: JobPlace
) -> dict[str, tuple[str, str]]:
    """Return (reason code, detail) for each of the named node types that is not to be taken."""
    obstacles: dict[str, tuple[str, str]] = {}
    for name in place.names:
        target = snapshot.inventory.node_types.get(name)
        if target is None or (target,) == place.possible:
            continue
        obstacle = ("", "")
        if request.held:
            obstacle = ("node-type-later", "the job is held and may be altered before it starts")
        elif snapshot.availability is not None:
            obstacle = snapshot.availability.node_type_obstacle(
                request, place.possible[0], target, place.partition, place.nodes, change
            )
        elif change == "no-later":
            obstacle = ("node-type-later", "which nodes are idle is not known")
        if obstacle[0]:
            obstacles[name] = obstacle
    return obstacles


def obstacles_now_and_later(
    request: JobRequest, snapshot: Snapshot, place: JobPlace
) -> dict[str, tuple[str, str]]:
    """Return for each node type what keeps the job off it: if it must not wait, and if it may.

    These are reason codes, "" where nothing does; see :class:`advisor.core.reading.JobReading`.
    """
    now = node_type_obstacles(request, "no-later", snapshot, place)
    waiting = node_type_obstacles(request, "allow", snapshot, place)
    free = ("", "")
    return {n: (now.get(n, free)[0], waiting.get(n, free)[0]) for n in place.names}
