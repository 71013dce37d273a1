"""Read a Slurm cluster's nodes and partitions.

Nodes come from ``scontrol show nodes --json`` where the release has it (23.02 on), else from
its one-line text. ``sinfo --json`` of 22.05 is not used: unlike the text, it says nothing of
memory set aside for the system.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.errors import SchedulerError
from advisor.schedulers.cluster import Cluster, Node, Partition
from advisor.schedulers.slurm.control import ask, this_cluster

TIMEOUT_S = 60.0
"""Seconds that the controller may take to answer."""
_FREE_TEXT = re.compile(r"\s(?:OS|Reason|Comment|Extra|ResumeAfterTime|AdminComment)=")
_GPU = re.compile(r"(?:^|,)gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?(?=[,(]|$)")
"""Generic resources of type gpu: ``gpu:a100:4(S:0-1)``, ``gpu:2``."""


def read_cluster() -> Cluster:
    """Return the cluster of the local Slurm configuration.

    Raises SchedulerError when Slurm is not there, does not answer, or has no nodes.
    """
    version = _scontrol("--version").strip()
    nodes = _nodes_json() or parse_nodes(_scontrol("--all", "--oneliner", "show", "node"))
    partitions = parse_partitions(_scontrol("--all", "--oneliner", "show", "partition"))
    if not any(n.partitions for n in nodes):
        raise SchedulerError("Slurm has no node in any partition", hint="see: scontrol show node")
    return Cluster(version, tuple(nodes), tuple(partitions), this_cluster())


def _scontrol(*arguments: str) -> str:
    if shutil.which("scontrol") is None:
        raise SchedulerError(
            "scontrol is not in PATH",
            hint="run this where Slurm's commands are; --scheduler local takes this machine alone",
        )
    return ask("scontrol", *arguments, timeout_s=TIMEOUT_S)


def _nodes_json() -> list[Node]:
    """Return the nodes by JSON; none when this release has no JSON or one that reads oddly."""
    try:
        return parse_nodes_json(_scontrol("--all", "--json", "show", "nodes"))
    except (SchedulerError, ValueError):
        return []


# -- text ----------------------------------------------------------------------------------------


def parse_nodes(text: str) -> list[Node]:
    """Return the nodes of ``scontrol --oneliner show node``.

    Raises SchedulerError for text that is something else.
    """
    return [_node(fields) for fields in records(text, "NodeName")]


def parse_partitions(text: str) -> list[Partition]:
    """Return the partitions of ``scontrol --oneliner show partition``."""
    partitions = []
    for fields in records(text, "PartitionName"):
        limit = fields.get("MaxNodes", "")
        partitions.append(
            Partition(
                fields["PartitionName"],
                fields.get("Default") == "YES",
                int(limit) if limit.isdecimal() else None,
            )
        )
    return partitions


def records(text: str, first: str) -> Iterable[dict[str, str]]:
    """Return the fields of each line that ``scontrol --oneliner show`` prints of ``first``.

    Raises SchedulerError for text that is something else.
    """
    for line in text.splitlines():
        if not line.strip() or line.startswith("No "):
            continue
        if not line.startswith(f"{first}="):
            raise SchedulerError(f"scontrol answered something unexpected: {line[:80]!r}")
        fields: dict[str, str] = {}
        for word in _without_free_text(line).split():
            key, equals, value = word.partition("=")
            if equals and key not in fields:
                fields[key] = "" if value in ("(null)", "N/A", "None") else value
        yield fields


def _without_free_text(line: str) -> str:
    """Cut what may hold anything: a comment like "x Partitions=gpu" must not be believed.

    All but OS come last in the line; OS is followed by known keys again.
    """
    match = _FREE_TEXT.search(line)
    while match:
        if match[0].strip() != "OS=":
            return line[: match.start()]
        rest = line[match.end() :]
        known_key = re.search(r"\sRealMemory=", rest)
        line = line[: match.start()] + (rest[known_key.start() :] if known_key else "")
        match = _FREE_TEXT.search(line)
    return line


def _node(fields: Mapping[str, str]) -> Node:
    def number(key: str, default: int) -> int:
        text = fields.get(key, "")
        return int(text) if text.isdecimal() else default

    return _SlurmNode(
        fields["NodeName"],
        features=fields.get("ActiveFeatures", ""),
        sockets=number("Sockets", 1),
        cores_per_socket=number("CoresPerSocket", 1),
        threads=number("ThreadsPerCore", 1),
        cpus=number("CPUTot", 0),
        usable_cpus=number("CPUEfctv", number("CPUTot", 0)),
        memory_mb=number("RealMemory", 0) - number("MemSpecLimit", 0),
        weight=number("Weight", 1),
        partitions=fields.get("Partitions", "").split(","),
        gres=fields.get("Gres", ""),
    ).node()


@dataclass(frozen=True, slots=True)
class _SlurmNode:
    """A node as Slurm states it, in text or as JSON."""

    name: str
    features: str | Sequence[object]
    sockets: int
    cores_per_socket: int
    threads: int
    cpus: int
    usable_cpus: int
    memory_mb: int
    weight: int
    partitions: Iterable[object]
    gres: str

    def node(self) -> Node:
        """Return it; where Slurm counts cores as CPUs, hardware threads do not count."""
        cores, threads = max(1, self.sockets * self.cores_per_socket), self.threads
        if self.cpus and self.cpus <= cores:
            threads = 1
        if self.usable_cpus:
            cores = max(1, min(cores, self.usable_cpus // max(1, threads)))
        features = self.features
        names = features.split(",") if isinstance(features, str) else [str(f) for f in features]
        gpus = _GPU.findall(self.gres)
        return Node(
            self.name,
            tuple(f for f in (n.strip() for n in names) if f),
            sockets=max(1, self.sockets),
            cores=cores,
            threads_per_core=max(1, threads),
            memory_mb=max(0, self.memory_mb),
            weight=self.weight,
            partitions=tuple(str(p) for p in self.partitions if p),
            gpus=sum(int(count or 1) for _, count in gpus),
            gpu_models=tuple(sorted({model for model, _ in gpus if model})),
        )


# -- JSON ----------------------------------------------------------------------------------------


def parse_nodes_json(text: str) -> list[Node]:
    """Return the nodes of ``scontrol --json show nodes`` (or ``sinfo --json`` of 22.05).

    Numbers may be bare or ``{"set", "infinite", "number"}``, features a list or text with
    commas: both differ by release. Raises ValueError for anything else.
    """
    data = json.loads(text)
    nodes = data.get("nodes") if isinstance(data, dict) else None
    if not isinstance(nodes, list):
        raise ValueError("no nodes")
    return [_node_json(n) for n in nodes]


def _node_json(data: Mapping[str, object]) -> Node:
    try:
        cpus = _number(data["cpus"])
        tres = re.search(r"(?:^|,)cpu=(\d+)", str(data.get("tres") or ""))
        # Releases without it count in TRES what CoreSpecCount leaves for jobs.
        usable = _number(data.get("effective_cpus"), int(tres[1]) if tres else cpus)
        features, partitions = data["active_features"], data["partitions"]
        if not isinstance(features, str | list) or not isinstance(partitions, list):
            raise ValueError("features or partitions of an unknown form")
        return _SlurmNode(
            str(data["name"]),
            features=features,
            sockets=_number(data["sockets"]),
            cores_per_socket=_number(data["cores"]),
            threads=_number(data["threads"]),
            cpus=cpus,
            usable_cpus=usable,
            memory_mb=_number(data["real_memory"]) - _number(data.get("specialized_memory"), 0),
            weight=_number(data.get("weight"), 1),
            partitions=partitions,
            gres=str(data.get("gres") or ""),
        ).node()
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a node of an unknown form: {error}") from None


def _number(value: object, default: int | None = None) -> int:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"not a number: {value!r}")
    return int(value)
