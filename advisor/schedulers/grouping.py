"""Group a cluster's equal nodes into node types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.inventory import HARDWARE, Gpus, NodeType
from advisor.core.nodelist import expand
from advisor.schedulers.cluster import Cluster, Node

_CONSTRAINT = re.compile(r"[A-Za-z0-9_.:+-]+(?:=[A-Za-z0-9_.+-]+)?")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z_.-]*")


@dataclass(frozen=True, slots=True)
class Claim:
    """A hand-written node type's say in the grouping: nodes by name, else by feature."""

    name: str
    nodes: frozenset[str] = frozenset()
    feature: str = ""

    def holds(self, node: Node) -> bool:
        """Tell whether the claim names this node."""
        return node.name in self.nodes if self.nodes else self.feature in node.features


def claims_of(node_types: Mapping[str, object]) -> tuple[Claim, ...]:
    """Return what a site file's ``node_types`` say about which nodes belong together."""
    claims = []
    for name, entry in node_types.items():
        if not isinstance(entry, Mapping):
            continue
        nodes, feature = entry.get("nodes"), str(entry.get("feature") or "")
        if nodes:
            names = expand(nodes) if isinstance(nodes, str) else [str(n) for n in nodes]
            claims.append(Claim(name, frozenset(names)))
        elif feature:
            claims.append(Claim(name, feature=feature))
    return tuple(claims)


def group(cluster: Cluster, claims: Sequence[Claim] = ()) -> tuple[list[NodeType], list[str]]:
    """Return the node types of a cluster, and notes on what was left out or is doubtful.

    Nodes that a claim names come together under its name; the others by equal features and
    hardware. A type is named after the first feature that only its nodes have, which then is
    the constraint that selects it; else after its nodes' common prefix, and selects by none.
    """
    usable = [n for n in cluster.nodes if n.partitions]
    notes: list[str] = []
    left_out = len(cluster.nodes) - len(usable)
    if left_out:
        names = ", ".join([n.name for n in cluster.nodes if not n.partitions][:5])
        notes.append(
            f"{left_out} node{'s' if left_out > 1 else ''} in no partition left out: {names}"
        )
    claimed: dict[str, list[Node]] = {}
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in usable:
        claim = next((c for c in claims if c.holds(node)), None)
        if claim:
            claimed.setdefault(claim.name, []).append(node)
        else:
            groups.setdefault((frozenset(node.features), *node.hardware), []).append(node)
    used_names = set(claimed)
    types = []
    for name, nodes in claimed.items():
        if len({n.hardware for n in nodes}) > 1:
            notes.append(f"the nodes of {name} differ in hardware: the smallest counts")
        types.append(_node_type(name, nodes, usable, cluster))
    clashes = _clashing_prefixes(groups.values(), usable)
    for nodes in groups.values():
        name = _name_of(own_feature(nodes, usable)) or _prefix(nodes)
        if name in clashes or name in used_names:
            name = f"{name}-{nodes[0].cores}c-{round(nodes[0].memory_mb / 1024)}g"
        base, count = name, 2
        while name in used_names:
            name, count = f"{base}-{count}", count + 1
        used_names.add(name)
        types.append(_node_type(name, nodes, usable, cluster))
    notes += _lookalikes(types, list(groups.values()), usable)
    notes += _unequal_gpus(types, usable)
    return sorted(types, key=lambda t: t.name), notes


def own_feature(nodes: Sequence[Node], everyone: Sequence[Node]) -> str:
    """Return the first feature that all these nodes have and no other node has, or ""."""
    inside = {n.name for n in nodes}
    foreign = {f for n in everyone if n.name not in inside for f in n.features}
    for feature in nodes[0].features:
        shared = all(feature in n.features for n in nodes)
        if shared and feature not in foreign and _CONSTRAINT.fullmatch(feature):
            return feature
    return ""


def _name_of(feature: str) -> str:
    """Return what to call nodes with a feature; PBS's ``kind=bdw`` is bdw, ``big=True`` big."""
    name, _, value = feature.partition("=")
    return name if value in ("", "True") else value


def _prefix(nodes: Sequence[Node]) -> str:
    """Return the letters most of the nodes' names begin with."""
    heads = [m[0] for m in (_PREFIX.match(n.name) for n in nodes) if m]
    if not heads:
        return "nodes"
    # Sorted, so that of equally frequent ones the same is taken each time.
    return max(sorted(set(heads)), key=heads.count).rstrip("-_.") or "nodes"


def _clashing_prefixes(groups: Iterable[Sequence[Node]], everyone: Sequence[Node]) -> set[str]:
    names = [_name_of(own_feature(g, everyone)) or _prefix(g) for g in groups]
    return {n for n in names if names.count(n) > 1}


def _node_type(
    name: str, nodes: Sequence[Node], everyone: Sequence[Node], cluster: Cluster
) -> NodeType:
    limits = {p.name: p.max_nodes for p in cluster.partitions}
    partitions = tuple(dict.fromkeys(p for n in nodes for p in n.partitions))
    counts = []
    for partition in partitions:
        inside = sum(partition in n.partitions for n in nodes)
        limit = limits.get(partition)
        count = inside if limit is None else min(inside, limit)
        if count < len(nodes):
            counts.append((partition, count))
    default = next((p.name for p in cluster.partitions if p.default), "")
    return NodeType(
        name,
        feature=own_feature(nodes, everyone),
        partitions=partitions,
        **{name: min(getattr(n, name) for n in nodes) for name in HARDWARE},
        nodes=tuple(n.name for n in nodes),
        weight=min(n.weight for n in nodes),
        partition_nodes=tuple(counts),
        default_partition=default if default in partitions else "",
        gpus=_gpus(nodes),
    )


def _gpus(nodes: Sequence[Node]) -> Gpus:
    """Return what all of these nodes have of GPUs: the fewest, and their model where it is one."""
    models = {model for n in nodes for model in n.gpu_models}
    count = min(n.gpus for n in nodes)
    return Gpus(models.pop() if len(models) == 1 else "", count) if count else Gpus()


def _unequal_gpus(types: Sequence[NodeType], everyone: Sequence[Node]) -> list[str]:
    """Return a note for each node type whose nodes differ in their GPUs."""
    by_name = {n.name: n for n in everyone}
    notes = []
    for t in types:
        members = [by_name[name] for name in t.nodes]
        if len({n.gpus for n in members}) > 1:
            notes.append(f"the nodes of {t.name} differ in their number of GPUs: the fewest count")
        models = sorted({model for n in members for model in n.gpu_models})
        if len(models) > 1:
            notes.append(f"the nodes of {t.name} have several models of GPUs: {', '.join(models)}")
    return notes


def _lookalikes(
    types: Sequence[NodeType], groups: Sequence[Sequence[Node]], everyone: Sequence[Node]
) -> list[str]:
    """Return a note for unclaimed types of equal hardware that share a feature of their own."""
    notes = []
    by_node = {node: t.name for t in types for node in t.nodes}
    noted: set[str] = set()
    for feature in dict.fromkeys(f for nodes in groups for f in nodes[0].features):
        alike = [nodes for nodes in groups if feature in nodes[0].features]
        names = sorted(by_node[nodes[0].name] for nodes in alike)
        members = [n for nodes in alike for n in nodes]
        foreign = {n.name for n in everyone if feature in n.features} - {n.name for n in members}
        if len(alike) < 2 or foreign or len({n.hardware for n in members}) > 1:
            continue
        if not noted.isdisjoint(names) or not _CONSTRAINT.fullmatch(feature):
            continue
        noted.update(names)
        notes.append(
            f"{', '.join(names)} are equal but for features; if they have the same processor, make "
            f"them one in the site file: node_types: {{{feature}: {{feature: {feature}}}}}"
        )
    return notes
