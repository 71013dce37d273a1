"""What may be chosen: values as the policy reads them, names and points that the site has.

Both ``advisor choose`` and the TUI check here before anything is written. Choices are kept as
text people read, so a slowdown stays as it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from advisor.core.inventory import Inventory, NodeType
from advisor.core.nearest import suggestion
from advisor.core.policy import ESTIMATES, GOALS
from advisor.core.units import format_freq
from advisor.errors import StoreError, UsageError
from advisor.policy import fields
from advisor.policy.fields import Reads
from advisor.store.reader import Reader

_MOST = 1 << 20
"""Of what the inventory does not bound."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What choices are checked against. ``unknown`` says why nothing is, where no store is read.

    ``workloads`` are by application, and so are the ``node_types`` a model is for; ``ruled`` are
    the applications that only the site file names, whose workloads are not known yet.
    """

    workloads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ruled: frozenset[str] = frozenset()
    node_types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    inventory: Inventory = field(default_factory=Inventory)
    unknown: StoreError | None = None

    @classmethod
    def of(cls, reader: Reader) -> Ground:
        """Read it from a store. Raises StoreError."""
        workloads: dict[str, set[str]] = {}
        for workload in reader.workloads():
            workloads.setdefault(workload.application, set()).add(workload.name)
        node_types: dict[str, set[str]] = {}
        for application, node_type in reader.modelled():
            node_types.setdefault(application, set()).add(node_type)
        rules = reader.site().get("applications")
        named = (
            [r.get("name") for r in rules if isinstance(r, Mapping)]
            if isinstance(rules, list)
            else []
        )
        return cls(
            {k: frozenset(v) for k, v in workloads.items()},
            frozenset(str(name) for name in named if name),
            {k: frozenset(v) for k, v in node_types.items()},
            reader.inventory(),
        )

    @classmethod
    def at(cls, store: Path) -> Ground:
        """Read it from the store at a path; nothing can be checked where none can be read."""
        try:
            with Reader(store) as reader:
                return cls.of(reader)
        except StoreError as error:
            return cls(unknown=error)


def check_names(ground: Ground, application: str | None, workload: str | None) -> None:
    """Raise UsageError for an application or workload that neither store nor site file names."""
    if application is None:
        if workload:
            raise UsageError("--workload needs an application")
        return
    for what, name in (("application", application), ("workload", workload)):
        if name is not None and not name.strip():
            raise UsageError(f"the {what} has no name")
    if ground.unknown is not None:
        return
    known_names = set(ground.workloads) | ground.ruled
    if application not in known_names:
        raise UsageError(
            f"application {application!r} is not known", hint=suggestion(application, known_names)
        )
    measured = ground.workloads.get(application, frozenset())
    if workload is not None and workload not in measured:
        raise UsageError(
            f"{application} has no workload {workload!r}", hint=suggestion(workload, measured)
        )


def aims(requested_aims: Mapping[str, str | None]) -> dict[str, str]:
    """Return ``goal``, ``max_slowdown`` and ``estimated_node_types`` as far as they are wanted.

    Raises UsageError for a value the policy would not take either.
    """
    readings = {
        "goal": fields.choice(GOALS),
        "max_slowdown": fields.SLOWDOWN,
        "estimated_node_types": fields.choice(ESTIMATES),
    }
    checked = {}
    for name, reading in readings.items():
        text = requested_aims.get(name)
        if text is not None:
            read = _read(name, reading, text)
            checked[name] = text.strip() if name == "max_slowdown" else str(read)
    return checked


def pin(
    ground: Ground, application: str | None, requested_axes: Mapping[str, str | int | None]
) -> dict[str, Any]:
    """Return a pin from texts or numbers, each axis as far as it is wanted; {} without any.

    Nodes and ranks are never changed by the advisor: in a pin they say which jobs it is for.
    Raises UsageError for what no node of the site can be.
    """
    texts = {name: str(value) for name, value in requested_axes.items() if value is not None}
    if not texts:
        return {}
    if not texts.keys() & {"node_type", "threads_per_node", "freq_khz"}:
        raise UsageError(
            "a pin needs threads, a frequency or a node type",
            hint="--nodes only limits a pin to jobs of that many nodes",
        )
    pin: dict[str, Any] = {}
    types = _node_types(ground, application, texts.get("node_type"))
    if "node_type" in texts:
        pin["node_type"] = types[0].name if types else texts["node_type"].strip()
    most_nodes = max((len(t.nodes) for t in types), default=0) or _MOST
    most_cores = max((t.cores for t in types), default=_MOST)
    for name, most in (
        ("nodes", most_nodes),
        ("ranks_per_node", most_cores),
        ("threads_per_node", most_cores),
    ):
        if name in texts:
            pin[name] = _read(name, fields.integer(1, most), texts[name])
    if "freq_khz" in texts and texts["freq_khz"] != "0":
        pin["freq_khz"] = _read("freq_khz", fields.FREQ, texts["freq_khz"])
        _check_cap(types, pin["freq_khz"])
    return pin


def never(ground: Ground, application: str, chosen: Mapping[str, Any]) -> bool:
    """Tell whether an application has models, and none on the node type of a pin."""
    modelled = ground.node_types.get(application, frozenset())
    return bool(modelled) and chosen.get("node_type", next(iter(modelled))) not in modelled


def _node_types(ground: Ground, application: str | None, name: str | None) -> list[NodeType]:
    """Return the node types a pin may be about, from the inventory."""
    types_by_name = ground.inventory.node_types
    if name is not None:
        node_type = ground.inventory.resolve(name.strip())
        if node_type is None and ground.unknown is None:
            raise UsageError(
                f"node type {name!r} is not known", hint=suggestion(name, types_by_name)
            )
        return [node_type] if node_type is not None else []
    modelled = ground.node_types.get(application or "", frozenset())
    return [t for t in types_by_name.values() if t.name in modelled] or list(types_by_name.values())


def _check_cap(types: list[NodeType], freq_khz: int) -> None:
    steps = sorted({step for t in types for step in t.freq_khz})
    if not types or freq_khz in steps:
        return
    names = ", ".join(t.name for t in types)
    if not steps:
        raise UsageError(f"no frequency cap can be set on {names}", hint="leave --freq out")
    shown = ", ".join(format_freq(s) for s in steps)
    raise UsageError(f"{format_freq(freq_khz)} is not a frequency step of {names}", hint=shown)


def _read(name: str, reading: Reads, text: str) -> Any:
    try:
        return reading.check(text)
    except PydanticCustomError as error:
        context = error.context or {}
        notes = [context.get("hint") or ""]
        if context.get("allowed"):
            notes.append("allowed: " + ", ".join(context["allowed"]))
        raise UsageError(
            f"{_LABELS[name]}: {context.get('message', error)}",
            hint="; ".join(note for note in notes if note),
        ) from None


_LABELS = {
    "goal": "goal",
    "max_slowdown": "slowdown",
    "estimated_node_types": "estimated node types",
    "nodes": "nodes",
    "ranks_per_node": "ranks per node",
    "threads_per_node": "threads per node",
    "freq_khz": "frequency",
}
