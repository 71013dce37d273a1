"""Bring the site file and what a scheduler says together into the inventory.

What is written by hand wins, value by value; but never so that a scheduler would refuse a job:
a feature no node has, more cores than a node has, or nodes that do not exist stay as the
scheduler says and are reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from advisor.core.codec import JsonForm, wire
from advisor.core.inventory import Gpus, NodeType
from advisor.core.keys import ByHand, Written, marked
from advisor.core.units import format_freq

SITE_SOURCE = "site"
"""Source of node types that only the site file knows."""
HAND_ONLY = tuple(marked(ByHand, NodeType))
"""What no scheduler tells, and what no scheduler refuses."""
_WRITTEN = marked(Written, NodeType)
_FIELDS = tuple(f.name for f in fields(NodeType))
_DEFAULT = NodeType("")

Given = Mapping[str, Mapping[str, object]]
"""Hand-written values by node type and field."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Node types the scheduler knows, those only the site file knows, and what to tell."""

    known: tuple[NodeType, ...]
    extra: tuple[NodeType, ...]
    notes: tuple[str, ...]


def given_types(site: Mapping[str, object]) -> Given:
    """Return the hand-written node types of a compiled site file."""
    node_types = site.get("node_types")
    if not isinstance(node_types, Mapping):
        return {}
    return {str(k): v for k, v in node_types.items() if isinstance(v, Mapping)}


def merge_discovered(
    discovered: Sequence[NodeType],
    site: Mapping[str, object],
    *,
    features: Collection[str] | None = None,
) -> Merged:
    """Return a scheduler's node types with the site file's values laid over them.

    ``features`` are all that nodes have; None where constraints mean nothing.
    """
    site_types = given_types(site)
    notes: list[str] = []
    nodes = {n for t in discovered for n in t.nodes}
    scheduler_types = []
    for node_type in discovered:
        values, refused = _acceptable_values(
            node_type, site_types.get(node_type.name, {}), features, nodes
        )
        scheduler_types.append(_overlaid(node_type, values))
        notes += [f"{node_type.name}: {text}" for text in refused]
    names = {t.name for t in discovered}
    extra = []
    for name, type_values in site_types.items():
        if name in names:
            continue
        site_type = hand_written(name, type_values)
        if site_type is None:
            notes.append(
                f"{name} of the site file is not a node type of this cluster; known are "
                f"{', '.join(sorted(names)) or 'none'}"
            )
        elif features is not None and site_type.feature and site_type.feature not in features:
            notes.append(
                f"{name}: no node has the feature {site_type.feature!r}, so it is not asked for"
            )
            extra.append(replace(site_type, feature=""))
        else:
            extra.append(site_type)
    everyone = [*scheduler_types, *extra]
    return Merged(
        _in_default(scheduler_types, site, everyone),
        _in_default(extra, site, everyone),
        tuple(notes),
    )


def _in_default(
    node_types: Sequence[NodeType], site: Mapping[str, object], everyone: Iterable[NodeType]
) -> tuple[NodeType, ...]:
    """Note in node types the partition the site file names as default, if there is such a one."""
    default = str(site.get("default_partition") or "")
    if not any(default in t.partitions for t in everyone):
        return tuple(node_types)
    return tuple(
        replace(t, default_partition=default if default in t.partitions else "") for t in node_types
    )


def hand_written(name: str, values: Mapping[str, object]) -> NodeType | None:
    """Return a node type only the site file knows; None if it does not say how many cores."""
    if "cores" not in values:
        return None
    return _overlaid(NodeType(name), values)


def merge_applied(
    inventory: Sequence[NodeType],
    sources: Mapping[str, str],
    site: Mapping[str, object],
    former: Mapping[str, object],
) -> tuple[dict[str, list[NodeType]], list[str]]:
    """Return the inventory, by source, after a site file took the place of a former one.

    Without any type of a scheduler the site file alone says everything. Else what only people
    know (frequencies, power) is taken over at once; the rest is compared with the scheduler
    first and waits for the next discovery. The second value says what waits.
    """
    site_types, former_types = given_types(site), given_types(former)
    waiting: list[str] = []
    by_source: dict[str, list[NodeType]] = {SITE_SOURCE: []}
    discovered = any(sources.get(t.name) != SITE_SOURCE for t in inventory)
    if not discovered:
        for name, type_values in site_types.items():
            site_type = hand_written(name, type_values)
            if site_type is None:
                waiting.append(name)
            else:
                by_source[SITE_SOURCE].append(site_type)
        alone = by_source[SITE_SOURCE]
        return {SITE_SOURCE: list(_in_default(alone, site, alone))}, waiting
    for node_type in inventory:
        source = sources.get(node_type.name, "")
        if source == SITE_SOURCE and node_type.name not in site_types:
            continue
        new: Mapping[str, object] = site_types.get(node_type.name, {})
        old: Mapping[str, object] = former_types.get(node_type.name, {})
        values = {k: new.get(k, getattr(_DEFAULT, k)) for k in HAND_ONLY if k in new or k in old}
        if "freq_khz" in values and "default_freq_khz" not in new:
            values["default_freq_khz"] = 0
        if "gpus" in values:  # how many there are the scheduler says
            gpus = new.get("gpus")
            parts = dict(gpus) if isinstance(gpus, Mapping) else {}
            if source != SITE_SOURCE:
                parts["count"] = node_type.gpus.count or parts.get("count", 0)
            values["gpus"] = parts
        by_source.setdefault(source, []).append(_overlaid(node_type, values))
        for key in dict.fromkeys((*new, *old)):
            taken_over = key == "classes" or (key in HAND_ONLY and key in new)
            if not taken_over and new.get(key) != old.get(key):
                waiting.append(f"{node_type.name}.{key}")
    names = {t.name for t in inventory}
    waiting += [name for name in site_types if name not in names]
    if former.get("default_partition") and not site.get("default_partition"):
        waiting.append("default_partition")
    everyone = [t for types in by_source.values() for t in types]
    with_defaults = {
        source: list(_in_default(types, site, everyone)) for source, types in by_source.items()
    }
    return with_defaults, waiting


@dataclass(frozen=True, slots=True)
class Missing(JsonForm):
    """What the inventory does not know of some node types, and lines that would add it."""

    node_types: tuple[str, ...]
    message: str
    lines: tuple[str, ...] = field(default=(), metadata=wire("add"))


def missing(node_types: Iterable[NodeType], *, by_feature: bool) -> list[Missing]:
    """Return what the inventory lacks; ``by_feature``: constraints select node types."""
    types, lacking = list(node_types), []
    without_steps = tuple(t.name for t in types if not t.freq_khz)
    if without_steps:
        step = "{freq_khz: {min: 1.2 GHz, max: 2.4 GHz, step: 100 MHz}}"
        message = "no frequency steps known, so frequency is never capped"
        lacking.append(
            Missing(without_steps, message, tuple(f"{name}: {step}" for name in without_steps))
        )
    bare = tuple(t.name for t in types if t.gpus.count and not (t.gpus.freq_khz or t.gpus.power_w))
    if bare:
        message = (
            "clocks and power limits of the GPUs are not known; on such a node "
            "`advisor site discover --scheduler local --dry-run` tells NVIDIA's"
        )
        lacking.append(Missing(bare, message))
    unselected = tuple(t.name for t in types if not t.feature)
    if by_feature and unselected and len(types) > 1:
        message = "no feature selects these nodes alone, so jobs are never moved to them"
        lacking.append(Missing(unselected, message))
    return lacking


def doubts(site: Mapping[str, object], inventory: Iterable[NodeType]) -> list[str]:
    """Return what a site file says of partitions and node types that the inventory denies."""
    types = {t.name: t for t in inventory}
    if not types:
        return []
    partitions = {p for t in types.values() for p in t.partitions}
    notes = []
    default = site.get("default_partition")
    if default and default not in partitions:
        notes.append(f"default_partition is ignored: no node type is in {default!r}")
    default_types = site.get("default_node_types")
    for partition, name in (default_types if isinstance(default_types, Mapping) else {}).items():
        where = f"default_node_types.{partition}"
        if name not in types:
            type_names = ", ".join(sorted(types))
            notes.append(f"{where}: {name!r} is not in the inventory (known: {type_names})")
        elif partition not in types[name].partitions:
            notes.append(f"{where}: {name} is not in that partition")
    return notes


def changes(old: NodeType | None, new: NodeType) -> list[str]:
    """Return what differs between two states of a node type, as short texts."""
    if old is None:
        return []
    return [
        f"{name} {_short(name, getattr(old, name))} -> {_short(name, getattr(new, name))}"
        for name in _FIELDS
        if getattr(old, name) != getattr(new, name)
    ]


def _short(name: str, value: object) -> str:
    how = _WRITTEN.get(name)
    if how is Written.FREQUENCIES and isinstance(value, tuple):
        return freq_text(value)
    if how is Written.FREQUENCY and isinstance(value, int):
        return format_freq(value)
    if how is Written.NODES and isinstance(value, tuple):
        return str(len(value))
    if isinstance(value, Gpus):
        return gpus_text(value)
    if isinstance(value, tuple):
        return ",".join(str(v[0]) if isinstance(v, tuple) else str(v) for v in value) or "none"
    return "none" if value in (None, "") else str(value)


def freq_text(steps: Sequence[int]) -> str:
    """Return frequency steps in short: ``1.2-2.4 GHz (13)``."""
    if not steps:
        return "-"
    if len(steps) == 1:
        return format_freq(steps[0])
    return f"{steps[0] / 1e6:g}-{format_freq(steps[-1])} ({len(steps)})"


def gpus_text(gpus: Gpus) -> str:
    """Return a node's GPUs in short: ``4 x A100, 0.21-1.41 GHz (81), 100-400 W, idle 52 W``."""
    if not gpus.count:
        return "none"
    parts = [f"{gpus.count} x {gpus.model or 'GPU'}"]
    if gpus.freq_khz:
        parts.append(freq_text(gpus.freq_khz))
    if gpus.power_w:
        parts.append(
            "-".join(str(w) for w in dict.fromkeys((gpus.power_w[0], gpus.power_w[-1]))) + " W"
        )
    if gpus.idle_w is not None:
        parts.append(f"idle {gpus.idle_w:g} W")
    return ", ".join(parts)


def _acceptable_values(
    node_type: NodeType,
    site_values: Mapping[str, object],
    features: Collection[str] | None,
    nodes: Collection[str],
) -> tuple[dict[str, object], list[str]]:
    values, refused = dict(site_values), []
    feature = values.get("feature")
    if features is not None and feature and feature not in features:
        refused.append(f"no node has the feature {feature!r}, so it is not asked for")
        del values["feature"]
    for key in ("cores", "threads_per_core"):
        stated_count, has = values.get(key), getattr(node_type, key)
        if isinstance(stated_count, int) and stated_count > has:
            refused.append(f"{key}: {stated_count} is more than the {has} the scheduler gives")
            del values[key]
    gpus, gpu_count = values.get("gpus"), node_type.gpus.count
    if isinstance(gpus, Mapping) and gpu_count and int(gpus.get("count", gpu_count)) > gpu_count:
        refused.append(
            f"gpus.count: {gpus['count']} is more than the {gpu_count} the scheduler gives"
        )
        values["gpus"] = {**gpus, "count": gpu_count}
    wanted_nodes = values.get("nodes")
    if isinstance(wanted_nodes, list):
        unknown = [n for n in wanted_nodes if n not in nodes]
        if unknown:
            refused.append(f"the scheduler does not know {', '.join(unknown[:5])}")
        values["nodes"] = [n for n in wanted_nodes if n in nodes]
    wanted_partitions = values.get("partitions")
    if isinstance(wanted_partitions, list):
        unknown = [p for p in wanted_partitions if p not in node_type.partitions]
        if unknown:
            refused.append(f"the scheduler has it not in {', '.join(unknown[:5])}")
        values["partitions"] = [p for p in wanted_partitions if p in node_type.partitions]
    return values, refused


def _overlaid(node_type: NodeType, values: Mapping[str, object]) -> NodeType:
    """Lay values over a node type; frequencies without a default get their highest."""
    field_values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in _FIELDS
    }
    if isinstance(gpus := field_values.get("gpus"), Mapping):
        of_scheduler = {"model": node_type.gpus.model, "count": node_type.gpus.count or 1}
        field_values["gpus"] = Gpus.from_dict({**of_scheduler, **gpus})
    merged = replace(node_type, **field_values)
    if merged.freq_khz and merged.default_freq_khz not in merged.freq_khz:
        merged = replace(merged, default_freq_khz=merged.freq_khz[-1])
    if not merged.freq_khz:
        merged = replace(merged, default_freq_khz=0)
    return merged
