"""Which options a job may take: what the user fixed, the policy's axes, room and time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.option import Option, Row, row_of
from advisor.core.policy import AxisRule, Policy
from advisor.core.reasons import Reason, reason
from advisor.core.request import JobRequest


@dataclass(frozen=True, slots=True)
class Constraints:
    """All that bounds the choice for one job."""

    request: JobRequest
    baseline: Configuration
    policy: Policy
    inventory: Inventory
    partition: str
    ranks_free: bool = False
    threads_kept: str = ""
    """Why threads may not be written (the script sets them itself, ...); "" if they may."""
    freq_cap_khz: int = 0
    """The cap the user asked for; 0 when none."""


def feasible(
    options: Iterable[Option], constraints: Constraints
) -> tuple[list[Option], list[Reason]]:
    """Return the options the job may take, and why others may not, each reason once."""
    kept: list[Option] = []
    dropped: Counter[str] = Counter()
    for option in options:
        rows, why = feasible_rows(option.configuration.node_type, [row_of(option)], constraints)
        kept += [option] * len(rows)
        dropped += why
    return kept, explain(dropped)


def feasible_rows(
    node_type: str, rows: Sequence[Row], constraints: Constraints
) -> tuple[list[Row], Counter[str]]:
    """Return the rows of one node type the job may take, and how often what ruled others out.

    Obstacles are looked up per shape and per frequency, of which there are few, not per row.
    """
    x = constraints
    why = _node_type_obstacle(node_type, x)
    if why:
        return [], Counter({why: len(rows)})
    kind = x.inventory.node_types[node_type]
    limit = x.request.time_limit_s or math.inf
    top = max((row[3] for row in rows), default=0)
    shapes = {row[:3]: row for row in rows}
    ruled_out = {s: _shape_obstacle(r.configuration(node_type), x, kind) for s, r in shapes.items()}
    frequencies = {f: _frequency_obstacle(f, x, kind, top) for f in {row[3] for row in rows}}
    if any(ruled_out.values()) or any(frequencies.values()):
        kept: list[Row] = []
        dropped: Counter[str] = Counter()
        for row in rows:
            why = ruled_out[row[:3]] or frequencies[row[3]]
            if why:
                dropped[why] += 1
            else:
                kept.append(row)
    else:
        kept, dropped = list(rows), Counter()
    in_time = [row for row in kept if row.time_hi_s <= limit]
    if len(in_time) < len(kept):
        dropped["time-limit"] += len(kept) - len(in_time)
    return in_time, dropped


def _node_type_obstacle(name: str, x: Constraints) -> str:
    node_type = x.inventory.node_types.get(name)
    if node_type is None:
        return f"not-in-inventory:{name}"
    if name != x.baseline.node_type:
        rule = x.policy.axes.node_type
        if not _may_change(rule, "node_type" in x.request.explicit, lower=False):
            return _who("node_type", rule)
        if x.partition not in node_type.partitions:
            return "no-room"
        if not node_type.feature:
            return f"not-in-inventory:a feature of {name}"
    return ""


def _shape_obstacle(new: Configuration, x: Constraints, node_type: NodeType) -> str:
    """Return what rules out the nodes, ranks and threads of an option, "" if nothing does."""
    old, axes, explicit = x.baseline, x.policy.axes, x.request.explicit
    if (new.nodes, new.ranks_per_node) != (old.nodes, old.ranks_per_node):
        return "allocation-kept"
    if new.threads_per_node != old.threads_per_node:
        fewer = new.threads_per_node < old.threads_per_node
        if not _may_change(axes.threads, "threads" in explicit, lower=fewer):
            return _who("threads", axes.threads)
        if x.threads_kept:
            return f"threads-own:{x.threads_kept}"
        if fewer and not x.request.exclusive and x.request.memory_per_node_mb is None:
            return "threads-own:memory is per core, and fewer cores would mean less of it"
        if new.threads_per_node % new.ranks_per_node:
            return "no-room"
    return "" if _fits(new, x, node_type) else "no-room"


def _frequency_obstacle(freq: int, x: Constraints, node_type: NodeType, top: int) -> str:
    """Return what rules out a frequency; ``top``, the model's highest, stands for no cap."""
    if x.freq_cap_khz or node_type.name == x.baseline.node_type:
        reference = x.baseline.freq_khz
    else:
        reference = node_type.default_freq_khz or top
    if freq == reference:
        return ""
    if not node_type.freq_khz:
        return "" if freq == top else f"no-frequency-steps:{node_type.name}"
    if freq not in node_type.freq_khz:
        return f"not-in-inventory:{freq} kHz on {node_type.name}"
    rule, lower = x.policy.axes.frequency, freq < reference
    if not _may_change(rule, "frequency" in x.request.explicit, lower=lower):
        return _who("frequency", rule)
    return ""


def _may_change(rule: AxisRule, explicit: bool, *, lower: bool) -> bool:
    if rule == "keep":
        return False
    if rule == "override":
        return True
    if rule == "cap":
        return lower
    return not explicit


def _who(axis: str, rule: AxisRule) -> str:
    return f"axis-keep:{axis}" if rule == "keep" else f"user-set:{axis}"


def _fits(new: Configuration, x: Constraints, node_type: NodeType) -> bool:
    if new.threads_per_node > node_type.cores * node_type.threads_per_core:
        return False
    available = node_type.nodes_in(x.partition) if x.partition else len(node_type.nodes)
    if new.nodes > available:
        return False
    memory = x.request.memory_per_node_mb or 0.0
    if x.request.memory_per_cpu_mb:
        memory = max(memory, x.request.memory_per_cpu_mb * new.threads_per_node)
    return not node_type.memory_mb or memory <= node_type.memory_mb


def explain(dropped: Counter[str]) -> list[Reason]:
    """Return the reasons for what :func:`feasible_rows` dropped."""
    reasons = []
    for why, count in dropped.items():
        code, _, detail = why.partition(":")
        if code in ("no-room", "time-limit"):
            reasons.append(reason(code, count))
        else:
            reasons.append(reason(code, detail) if detail else reason(code))
    return reasons
