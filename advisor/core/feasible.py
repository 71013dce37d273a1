"""Which options a job may take: what the user fixed, the policy's axes, room and time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter

from advisor.core.axes import AXES, Extra
from advisor.core.cache_key import key_maker, keyed_as, not_keyed
from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.memory import lack_words
from advisor.core.option import Option, Row, row_of
from advisor.core.policy import AxisRule, Policy
from advisor.core.reasons import Reason, reason
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import UnclearError, configuration_of, threads_stated
from advisor.core.script_use import NO_USE, ScriptUse
from advisor.core.units import format_freq

Shape = tuple[int, int, int]
"""Nodes, ranks per node, threads per node."""

# By place, not by name: each decision does this for every row.
_FREQUENCY: Callable[[Row], int] = itemgetter(3)
TIME_HI: Callable[[Row], float] = itemgetter(6)


class OptionRows(list[Row]):
    """Options of one node type, and what every choice among them asks, worked out once."""

    @cached_property
    def by_shape(self) -> dict[Shape, list[Row]]:
        """The rows of each shape, in their order."""
        groups: dict[Shape, list[Row]] = {}
        for row in self:
            groups.setdefault(row[:3], []).append(row)
        return groups

    @cached_property
    def frequencies(self) -> frozenset[int]:
        """The frequencies that any row has."""
        return frozenset(map(_FREQUENCY, self))


@dataclass(frozen=True, slots=True)
class Constraints:
    """All that bounds the choice for one job."""

    request: JobRequest = field(metadata=keyed_as(key_maker(JobRequest)))
    baseline: Configuration
    policy: Policy
    inventory: Inventory = field(metadata=not_keyed("a new inventory makes a new snapshot"))
    partition: str
    landing: tuple[NodeType, ...] = field(
        default=(), metadata=keyed_as(lambda landing: tuple(t.name for t in landing))
    )
    """The node types the job may run on as it is written."""
    whole: bool = True
    """The job has its nodes for itself: threads, cap and node type may change inside of the
    allocation. Otherwise only the request may become smaller."""
    threads_kept: str = ""
    """Why the variables that set the threads are not written; "" if they may be."""
    threads_unset: str = ""
    """Why variables that the job leaves unset stay so; "" if they may be set, or none is."""
    freq_kept: str = ""
    shared_caps: bool = False
    """Where nodes are shared, a cap is on the job's own cores alone, and these have own clocks."""
    axes: tuple[str, ...] = ()
    """Further axes that may be lowered, of the job's own node type."""
    axes_kept: tuple[Reason, ...] = ()
    """Why others may not."""
    node_type_kept: str = ""
    cores_kept: str = ""
    """Why the request does not become smaller."""
    obstacles: Mapping[str, tuple[str, str]] = field(
        default_factory=dict, metadata=keyed_as(lambda obstacles: tuple(obstacles.items()))
    )
    """What keeps the job off a node type now: a reason's code and detail."""
    freq_cap_khz: int = 0
    """The cap the user asked for; 0 when none."""
    need_mb: float = 0.0
    """MiB that all of its processes need by the application's profiles; 0 where not known."""
    use: ScriptUse = NO_USE
    as_written_s: tuple[float, float] | None = field(
        default=None, metadata=not_keyed("of the model and the baseline, which are in the key")
    )
    """Predicted time of the job as written, and its upper end: where it is not known which time
    limit will hold, nothing may be slower. None where that is not asked."""

    @property
    def limit_s(self) -> float:
        """How long a run of the program may take, as far as that is known; infinity: any time."""
        request, limit_s = self.request, math.inf
        if request.time_limit_s:
            # The runs of one script share its limit, and what asks for a signal wants to be done
            # by then.
            limit_s = (request.time_limit_s - request.signal_before_s) / self.use.runs
        return min(limit_s, self.use.ends_after_s)

    def natural(self, node_type: NodeType) -> Configuration:
        """Return the configuration the job has on a node type if nothing but that changes.

        Raises UnclearError where that is not known.
        """
        if node_type.name == self.baseline.node_type:
            return self.baseline
        return configuration_of(self.request, node_type, self.use)

    def key(self, longest_s: float) -> tuple[object, ...]:
        """Return what a choice depends on, as a dictionary's key.

        ``longest_s``: upper end of the longest predicted time; a longer limit rules nothing out.
        """
        request, limit = self.request, self.limit_s
        if limit >= longest_s:
            limit = math.inf
        slower = self.as_written_s is None or request.time_limit_s is not None
        return *_FIELDS_KEY(self), threads_stated(request), limit, slower


_FIELDS_KEY = key_maker(Constraints)


def feasible(
    options: Iterable[Option], constraints: Constraints
) -> tuple[list[Option], list[Reason]]:
    """Return the options the job may take, and why others may not, each reason once."""
    allowed: list[Option] = []
    dropped: Counter[Reason] = Counter()
    for option in options:
        rows, why = feasible_rows(option.configuration.node_type, [row_of(option)], constraints)
        allowed += [option] * len(rows)
        dropped += why
    return allowed, explain(dropped)


def feasible_rows(
    node_type: str, rows: Sequence[Row], constraints: Constraints
) -> tuple[list[Row], Counter[Reason]]:
    """Return the rows of one node type the job may take, and how often what ruled others out.

    Obstacles are looked up per shape and per frequency, of which there are few, and a shape that is
    ruled out, as most are for most jobs, costs nothing for its rows. The rows come by their shapes.
    """
    x = constraints
    why = _node_type_obstacle(node_type, x)
    if why:
        return [], Counter({why: len(rows)})
    table = rows if isinstance(rows, OptionRows) else OptionRows(rows)
    kind = x.inventory.node_types[node_type]
    top = max(table.frequencies, default=0)
    ruled_out = _shape_obstacles(table.by_shape, x, kind)
    frequencies = {f: _frequency_obstacle(f, x, kind, top) for f in table.frequencies}
    further = {e: _axis_obstacle(e, kind) for e in {row.extra for row in rows}} if x.axes else _NONE
    one_by_one = any(frequencies.values()) or any(further.values())
    allowed, dropped = list[Row](), Counter[Reason]()
    for shape, rows_of_shape in table.by_shape.items():
        why = ruled_out[shape]
        if why:
            dropped[why] += len(rows_of_shape)
        elif not one_by_one:
            # Nothing rules out a frequency or a further axis: a shape is taken whole, without a
            # look at its rows.
            allowed += rows_of_shape
        else:
            for row in rows_of_shape:
                why = frequencies[row[3]] or (further[row.extra] if further else None)
                if why:
                    dropped[why] += 1
                else:
                    allowed.append(row)
    return _in_time(allowed, x, dropped), dropped


def _in_time(rows: list[Row], x: Constraints, dropped: Counter[Reason]) -> list[Row]:
    """Return the rows that surely end within the time limit that will hold.

    Where that is not known, those that are not slower than the job as it is written.
    """
    limit = x.limit_s
    # Most jobs' limits are far off, which one pass tells before any list is made.
    if max(map(TIME_HI, rows), default=limit) > limit:
        # The upper end counts: a job that its limit kills has lost all it computed.
        in_time = [row for row in rows if row.time_hi_s <= limit]
        dropped[reason("time-limit")] += len(rows) - len(in_time)
        rows = in_time
    if x.request.time_limit_s is None and x.as_written_s is not None:
        time_s, hi_s = x.as_written_s
        in_time = [row for row in rows if row.time_s <= time_s and row.time_hi_s <= hi_s]
        if len(in_time) < len(rows):
            dropped[reason("time-limit-unknown")] += len(rows) - len(in_time)
        rows = in_time
    return rows


def _node_type_obstacle(name: str, x: Constraints) -> Reason | None:
    node_type = x.inventory.node_types.get(name)
    if node_type is None:
        return reason("not-in-inventory", name)
    if name in x.obstacles:
        return reason(*x.obstacles[name])
    own_type = name == x.baseline.node_type
    # What it is given by default per node, it gets on its own node type in any case. By default per
    # CPU it may land where there are more of them, and get more.
    if not (own_type and (x.request.default_memory_mb or (0.0,))[0]) and not all(
        _as_much_memory(x.request, landing_type, node_type) for landing_type in x.landing
    ):
        return reason("no-room")
    if not own_type:
        rule = x.policy.axes.node_type
        if not x.whole:
            return reason("shared-nodes", "node type")
        if x.node_type_kept:
            return reason("axis-bound", f"node type is kept: {x.node_type_kept}")
        if why := axis_kept("node_type", rule, x.request, lower=False):
            return why
        if x.partition not in node_type.partitions:
            return reason("no-room")
        if not node_type.feature:
            return reason("not-in-inventory", f"a feature of {name}")
    return None


def _as_much_memory(request: JobRequest, landing_type: NodeType, target: NodeType) -> bool:
    """Tell whether a job with whole nodes has no less memory on another node type than on its own.

    Where it states none, it gets the scheduler's default per node or core, or what the node has.
    Where it is not known which of these, it must have no less by any.
    """
    per_node, per_cpu = request.default_memory_mb or (0.0, 0.0)
    if need := request.memory_per_node_mb or (0.0 if request.memory_per_cpu_mb else per_node):
        return not target.memory_mb or need <= target.memory_mb
    # A job with whole nodes gets its memory per CPU as many times as the node has CPUs.
    fewer_cpus = _cpus(target) < _cpus(landing_type)
    if request.memory_per_cpu_mb:
        return not fewer_cpus
    if per_cpu:
        wanted_mb = per_cpu * _cpus(target)
        return not fewer_cpus and (not target.memory_mb or wanted_mb <= target.memory_mb)
    # All that a node has; where it is not known whether a default holds, as much per CPU, too.
    return target.memory_mb >= landing_type.memory_mb and (
        request.default_memory_mb is not None or not fewer_cpus
    )


def _cpus(node_type: NodeType) -> int:
    return node_type.cores * node_type.threads_per_core


def _shape_obstacles(
    shapes: Iterable[Shape], x: Constraints, node_type: NodeType
) -> dict[Shape, Reason | None]:
    """Return what rules out each (nodes, ranks per node, threads per node); None: nothing does."""
    try:
        natural = x.natural(node_type)
    except UnclearError as error:
        unclear = reason("axis-bound", f"node type is kept: it is not known {error}")
        return dict.fromkeys(shapes, unclear)
    fixed, cores = (natural.nodes, natural.ranks_per_node), natural.threads_per_node
    # On larger or smaller nodes the same request may be given other ranks: not the job as written.
    if math.prod(fixed) != x.baseline.nodes * x.baseline.ranks_per_node:
        return dict.fromkeys(shapes, reason("allocation-kept"))
    if lack := lack_words(x.need_mb / natural.nodes, natural.ranks_per_node, node_type):
        return dict.fromkeys(shapes, reason("lacks-memory", lack))
    room = _most_threads(natural.nodes, x, node_type)
    # Made once: nearly all shapes that are ruled out are so by one of these two.
    other_allocation, no_room = reason("allocation-kept"), reason("no-room")
    obstacles: dict[Shape, Reason | None] = {}
    for shape in shapes:
        if shape[:2] != fixed:
            obstacles[shape] = other_allocation
            continue
        threads = shape[2]
        why = _threads_obstacle(threads, natural, x) if threads != cores else None
        obstacles[shape] = why or (no_room if threads > room else None)
    return obstacles


def _threads_obstacle(threads: int, natural: Configuration, x: Constraints) -> Reason | None:
    # The first that holds is what the user is told; what no policy can lift comes first.
    if threads > natural.threads_per_node:
        return reason("threads-own", "the advisor never sets more of them than the job has")
    if why := axis_kept("threads", x.policy.axes.threads, x.request, lower=True):
        return why
    obstacle = x.threads_kept if x.whole else x.cores_kept
    if obstacle:
        return reason("threads-own" if x.whole else "cores-kept", obstacle)
    if x.threads_unset:
        return reason("threads-unset", x.threads_unset)
    # One variable sets the threads of all ranks, so each rank has as many.
    return reason("no-room") if threads % natural.ranks_per_node else None


def _frequency_obstacle(freq: int, x: Constraints, node_type: NodeType, top: int) -> Reason | None:
    """Return what rules out a frequency; ``top``, the model's highest, stands for no cap."""
    # A cap of the user's own goes with the job to any node type; without one another type has its
    # own default.
    if x.freq_cap_khz or node_type.name == x.baseline.node_type:
        reference = x.baseline.freq_khz
    else:
        reference = node_type.default_freq_khz or top
    if freq == reference:
        return None
    if not (x.whole or x.shared_caps):
        return reason("shared-nodes", "frequency")
    if x.freq_kept:
        return reason("axis-bound", f"frequency is kept: {x.freq_kept}")
    if not node_type.freq_khz:
        return None if freq == top else reason("no-frequency-steps", node_type.name)
    if freq not in node_type.freq_khz:
        return reason("not-in-inventory", f"{format_freq(freq)} on {node_type.name}")
    lower, rule = freq < reference, x.policy.axes.frequency
    # Only a policy that overrides it goes below the user's own lower bound.
    if rule != "override" and freq < (x.request.freq_low_khz or 0):
        return reason("user-set", "frequency")
    return axis_kept("frequency", rule, x.request, lower=lower)


_NONE: Mapping[Extra, Reason | None] = {}


def _axis_obstacle(extra: Extra, node_type: NodeType) -> Reason | None:
    """Return what rules out values of further axes: they cannot be set on these nodes' devices.

    A clock is one of the device's steps, a power limit any number of watts between its ends.
    """
    for name, value in extra:
        steps, axis = node_type.gpus.steps(name), AXES[name]
        if not (steps[0] <= value <= steps[-1] if axis.limits_power else value in steps):
            words = f"{axis.words} {axis.shown(value)} on {node_type.name}"
            return reason("not-in-inventory", words)
    return None


def axis_kept(axis: str, rule: AxisRule, request: JobRequest, *, lower: bool) -> Reason | None:
    """Return the reason why a policy's rule keeps an axis of a request, None if it may change.

    ``lower``: to less than the request has.
    """
    explicit = axis in request.explicit
    if rule == "keep":
        return reason("axis-keep", axis)
    # `cap` only lowers what the user set, `fill` sets only what the user left open.
    if rule == "override" or (rule == "cap" and lower) or (rule == "fill" and not explicit):
        return None
    return reason("user-set", axis)


def _most_threads(nodes: int, x: Constraints, node_type: NodeType) -> float:
    """Return how many threads a node may have at most, by its cores and memory; 0 for no room."""
    available = node_type.nodes_in(x.partition) if x.partition else len(node_type.nodes)
    request, memory = x.request, node_type.memory_mb or math.inf
    if nodes > available or (request.memory_per_node_mb or 0.0) > memory:
        return 0
    most = float(_cpus(node_type))
    return min(most, memory / request.memory_per_cpu_mb) if request.memory_per_cpu_mb else most


_COUNTED = frozenset({"no-room", "time-limit", "time-limit-unknown"})
"""Reasons that say of how many options they hold."""


def explain(dropped: Counter[Reason]) -> list[Reason]:
    """Return the reasons for what :func:`feasible_rows` dropped."""
    return [reason(r.code, count) if r.code in _COUNTED else r for r, count in dropped.items()]
