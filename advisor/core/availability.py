"""What of a cluster can be had now: idle nodes and limits, at most 30 s old. Standard library only.

A child process of the daemon asks the scheduler; decisions only look it up here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.core.inventory import NodeType
from advisor.core.policy import NodeTypeChange
from advisor.core.request import JobRequest


@dataclass(frozen=True, slots=True)
class Queue:
    """A PBS queue (or, named "", the server) as far as it bears on what may be written.

    Resources by name, values as PBS shows them. ``destinations``: of a routing queue, in order.
    """

    name: str
    enabled: bool = True
    started: bool = True
    default: Mapping[str, str] = field(default_factory=dict)
    """``resources_default``: applied after the hook to what the job leaves open."""
    default_chunk: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, str] = field(default_factory=dict)
    """``resources_min``."""
    most: Mapping[str, str] = field(default_factory=dict)
    """``resources_max``."""
    destinations: tuple[str, ...] = ()
    limited: frozenset[str] = frozenset()
    """Resources that any other limit counts (``max_run_res.ncpus``, ``max_queued_res``, ...)."""


@dataclass(frozen=True, slots=True)
class Availability:
    """The state of a cluster when it was last read."""

    queues: Mapping[str, Queue] = field(default_factory=dict)

    def node_type_obstacle(
        self,
        request: JobRequest,
        own: NodeType,
        other: NodeType,
        partition: str,
        nodes: int,
        change: NodeTypeChange,
    ) -> tuple[str, str]:
        """Return (reason code, detail) of what keeps a job off a node type, ("", "") if nothing.

        ``own`` is the node type the job would run on as it is written; the two may be the same
        where a partition holds several and the job would be bound to one. ``nodes``: how many it
        takes. The code is ``node-type-later`` or ``node-type-limit``.
        """
        raise NotImplementedError

    def gives_whole_nodes(self, partition: str) -> bool:
        """Tell whether every job of a partition has its nodes for itself."""
        raise NotImplementedError
