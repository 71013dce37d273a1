"""Read nodes and partitions from slurm.conf itself, for when Slurm does not answer yet.

Hooks are often installed before slurmctld is first started. What stands in the file is what the
cluster will have; nodes that register with less are drained by Slurm, not given to jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from advisor.core.cluster_name import cluster_name
from advisor.core.nodelist import expand
from advisor.schedulers.cluster import Cluster, Node, Partition

_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_DEPTH = 5
"""Files that may include one another."""


def read_conf(path: Path) -> Cluster | None:
    """Return the cluster a slurm.conf describes, None when it describes none.

    Follows ``Include`` and ``DEFAULT`` lines. Node sets and nodes without stated sizes are left
    out: what is not known is not offered. Never raises for what the file holds.
    """
    nodes: dict[str, dict[str, str]] = {}
    partitions: dict[str, dict[str, str]] = {}
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    cluster = ""
    for line in _lines(path, _DEPTH):
        pairs = {k.lower(): v.strip('"') for k, v in _PAIR.findall(line)}
        kind = next(iter(pairs), "")
        if kind == "clustername":
            cluster = cluster_name(pairs[kind]).lower()
        if kind not in defaults:
            continue
        name = pairs.pop(kind)
        if name.upper() == "DEFAULT":
            # A DEFAULT line holds for the lines behind it, so that the file's order counts.
            defaults[kind].update(pairs)
        elif kind == "partitionname":
            partitions[name] = {**defaults[kind], **pairs}
        else:
            for node in _expand(name):
                nodes[node] = {**defaults[kind], **pairs}
    places: dict[str, list[str]] = {}
    for name, values in partitions.items():
        listed = values.get("nodes", "")
        for node in nodes if listed.upper() == "ALL" else _expand(listed):
            places.setdefault(node, []).append(name)
    cluster_nodes = tuple(_node(n, v, tuple(places[n])) for n, v in nodes.items() if n in places)
    if not cluster_nodes:
        return None
    stated = tuple(_partition(n, v) for n, v in partitions.items())
    return Cluster("", cluster_nodes, stated, cluster)


def _lines(path: Path, depth: int) -> Iterator[str]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    # A backslash at its end joins a line with the next, before comments are looked for.
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = line.split("#", 1)[0].strip()
        included = re.match(r"include\s+(\S+)", line, re.IGNORECASE)
        if included and depth:
            yield from _lines(path.parent / included[1], depth - 1)
        elif line:
            yield line


def _expand(text: str) -> tuple[str, ...]:
    try:
        return expand(text) if text else ()
    except ValueError:
        return ()


def _number(values: Mapping[str, str], *names: str) -> int:
    for name in names:
        digits = re.match(r"\d+", values.get(name, ""))
        if digits:
            return int(digits[0])
    return 0


def _node(name: str, values: Mapping[str, str], partitions: tuple[str, ...]) -> Node:
    threads = _number(values, "threadspercore") or 1
    sockets = _number(values, "sockets", "boards") or 1
    per_socket = _number(values, "corespersocket")
    cores = sockets * per_socket if per_socket else max(1, _number(values, "cpus", "procs") or 1)
    features = values.get("features", values.get("feature", ""))
    return Node(
        name,
        tuple(f for f in features.split(",") if f),
        sockets=sockets,
        # cores of CoreSpecCount are the system's
        cores=max(1, cores - _number(values, "corespeccount")),
        # CPUs alone are taken for cores: threads of a core would count twice
        threads_per_core=threads if per_socket else 1,
        memory_mb=max(0, _number(values, "realmemory") - _number(values, "memspeclimit")),
        weight=_number(values, "weight") or 1,
        partitions=partitions,
    )


def _partition(name: str, values: Mapping[str, str]) -> Partition:
    return Partition(
        name, values.get("default", "").upper() == "YES", _number(values, "maxnodes") or None
    )
