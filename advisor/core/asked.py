"""What a job asks for: the node type it will land on, and its configuration there."""

from __future__ import annotations

import math
from collections.abc import Mapping

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.request import JobRequest
from advisor.core.script import threads_of


def partition_of(request: JobRequest, inventory: Inventory) -> str:
    """Return the partition a job goes to: what it names first, else the scheduler's default."""
    return request.partition.split(",")[0] or inventory.default_partition


def possible_node_types(
    request: JobRequest, inventory: Inventory, preferred: Mapping[str, str]
) -> list[NodeType]:
    """Return the node types a job may land on, the likeliest first.

    ``preferred`` names the site's default node type of a partition. Empty when nothing fits: a
    constraint the inventory does not know, a partition without known nodes.
    """
    partition = partition_of(request, inventory)
    if partition:
        found = list(inventory.in_partition(partition))
    else:
        found = list(inventory.node_types.values()) if len(inventory.node_types) == 1 else []
    found.sort(key=lambda t: t.name != preferred.get(partition))
    if request.constraint:
        selected = {t.name for t in inventory.by_feature(request.constraint)}
        found = [t for t in found if t.name in selected]
    if request.node_list:
        first = request.node_list.split("[")[0].split(",")[0]
        found = [t for t in found if any(_same_host(n, first) for n in t.nodes)]
    return found


def _same_host(node: str, asked: str) -> bool:
    return node == asked or (node.startswith(asked) and node[len(asked) :].isdecimal())


def default_freq(node_type: NodeType) -> int:
    """Return the frequency a job gets without asking, kHz; 0 when the inventory has none."""
    return node_type.default_freq_khz or (node_type.freq_khz[-1] if node_type.freq_khz else 0)


def shape(request: JobRequest, cores: int) -> tuple[int, int]:
    """Return (nodes, ranks per node) of a request on nodes with ``cores`` cores."""
    per_node = request.ntasks_per_node
    if request.nodes is not None:
        nodes = request.nodes
    elif request.ntasks is not None:
        cpus = request.cpus_per_task or 1
        fit = per_node or max(1, cores // cpus)
        nodes = math.ceil(request.ntasks / fit)
    else:
        nodes = 1
    if per_node is None:
        per_node = math.ceil((request.ntasks or nodes) / nodes)
    return nodes, max(1, per_node)


def configuration_of(request: JobRequest, node_type: NodeType) -> Configuration:
    """Return the configuration a job asks for, at the default frequency unless it set one.

    Threads come from a literal OMP_NUM_THREADS in the script, else ``-c``, else the submitting
    environment's OMP_NUM_THREADS, else all cores of an exclusive job with at most one rank a
    socket, else one a rank.
    """
    nodes, ranks = shape(request, node_type.cores)
    threads = threads_of(request.script or "", request.command[1:]).count or request.cpus_per_task
    if threads is None:
        stated = request.environment.get("OMP_NUM_THREADS", "")
        if stated.isdecimal() and stated.isascii() and int(stated) > 0:
            threads = int(stated)
        elif request.exclusive and ranks <= node_type.sockets:
            threads = max(1, node_type.cores // ranks)
        else:
            threads = 1
    freq = request.freq_khz or default_freq(node_type)
    return Configuration(node_type.name, nodes, ranks, ranks * threads, freq)


def threads_kept(request: JobRequest) -> str:
    """Return why a job's threads may not be written, "" if they may."""
    script = threads_of(request.script or "", request.command[1:])
    if script.why:
        return script.why
    if request.environment.get("OMP_NUM_THREADS") and not script.from_scheduler:
        return "your environment sets OMP_NUM_THREADS"
    if not request.environment_exported and not script.from_scheduler:
        return "the job's environment is not exported"
    return ""
