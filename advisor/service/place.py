"""Where a job could run now: what keeps it off the node types it would have to be bound to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.core.inventory import NodeType
from advisor.core.policy import NodeTypeChange
from advisor.core.request import JobRequest
from advisor.service.snapshot import Snapshot


def node_type_obstacles(
    request: JobRequest,
    change: NodeTypeChange,
    snapshot: Snapshot,
    names: Iterable[str],
    possible: Sequence[NodeType],
    partition: str,
    nodes: int,
) -> dict[str, tuple[str, str]]:
    """Return (reason code, detail) for each of the named node types that is not to be taken.

    ``possible`` are the node types the job may land on as it is written, the likeliest first:
    where it is the only one, the job need not be bound to it. ``nodes`` is how many it takes.
    """
    obstacles: dict[str, tuple[str, str]] = {}
    for name in names:
        other = snapshot.inventory.node_types.get(name)
        if other is None or [other] == list(possible):
            continue
        obstacle = ("", "")
        if request.held:
            obstacle = ("node-type-later", "the job is held and may be altered before it starts")
        elif snapshot.availability is not None:
            obstacle = snapshot.availability.node_type_obstacle(
                request, possible[0], other, partition, nodes, change
            )
        elif change == "no-later":
            obstacle = ("node-type-later", "which nodes are idle is not known")
        if obstacle[0]:
            obstacles[name] = obstacle
    return obstacles
