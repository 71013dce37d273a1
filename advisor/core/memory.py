"""Which configurations lack the memory that an application's profiles predict for a size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.inventory import NodeType

_MIB, _GIB = 2**20, 2**30
"""Bytes."""


def lacking_memory(
    laws: CountLaws,
    size: Mapping[str, float],
    configurations: Iterable[Configuration],
    node_type: NodeType | None,
) -> dict[Configuration, str]:
    """Return the configurations that need more memory than a node has, and how much they need.

    None where the node's memory or the need is not known.
    """
    lack: dict[Configuration, str] = {}
    shapes: dict[tuple[int, int], str] = {}
    if node_type is None:
        return lack
    for c in configurations:
        shape = c.nodes, c.ranks_per_node
        if shape not in shapes:
            need = need_mb(laws, size, c.nodes * c.ranks_per_node) / c.nodes
            shapes[shape] = lack_words(need, c.ranks_per_node, node_type)
        if shapes[shape]:
            lack[c] = shapes[shape]
    return lack


def need_mb(laws: CountLaws, size: Mapping[str, float], processes: int) -> float:
    """Return the MiB that all processes need together; 0 where that is not known."""
    return (laws.footprint_bytes(size, processes) or 0.0) / _MIB


def lack_words(need_mb: float, ranks_per_node: int, node_type: NodeType) -> str:
    """Say how much memory is lacking on a node; "" where it has enough or that is not known."""
    if not node_type.memory_mb or need_mb <= node_type.memory_mb:
        return ""
    need, has = (f"{mb * _MIB / _GIB:.3g} GiB" for mb in (need_mb, node_type.memory_mb))
    ranks = "1 rank a node needs" if ranks_per_node == 1 else f"{ranks_per_node} ranks a node need"
    return f"{ranks} {need} of memory by the profiles, {node_type.name} has {has}"
