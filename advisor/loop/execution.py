"""What a job really ran on and used, as far as the scheduler's accounting tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from advisor.core.axes import AXES
from advisor.core.codec import JsonForm, wire
from advisor.core.configuration import Configuration
from advisor.core.gpus import GpuUse
from advisor.core.inventory import Inventory, NodeType
from advisor.core.nodelist import expand
from advisor.core.power import device_is_possible, is_possible
from advisor.core.units import format_count, format_freq
from advisor.schedulers.base import JobRecord, MeterSees, StepRecord

NO_STEP = "no step was started with srun"
NOT_METERED = "the nodes' energy is not known"
_LEAST_KHZ = 100_000
"""What Slurm's accounting has below it (kHz) is no frequency that a processor runs at."""
_ABOVE = 0.05
"""A mean frequency that exceeds a cap by more of it was not capped."""
IMPOSSIBLE = "the meter's reading is impossible for these nodes and this time"
UNTOLD = "no node told what its GPUs took"
SHARED = "other jobs may have run on its nodes"


@dataclass(frozen=True, slots=True)
class Execution(JsonForm):
    """A finished job's own facts.

    ``time_s`` is comparable with what a sweep measures: the numbered steps one after the other,
    else the whole job; ``resolution_s`` is how finely the accounting tells it. ``energy_j`` is that
    of the same, None when it was not metered or means nothing; ``energy_note`` says why.
    ``whole_nodes`` is None when it is not known. ``ranks_per_node`` and ``threads_per_node`` are 0
    when the accounting does not say, ``freq_khz`` when no cap was requested.
    """

    node_type: str
    nodes: int
    ranks_per_node: int
    threads_per_node: int
    freq_khz: int
    whole_nodes: bool | None
    time_s: float | None
    resolution_s: float
    energy_j: float | None
    energy_note: str = ""
    step_failed: bool = False
    threads_per_rank: int = 0
    """What the request sets, 0 where it sets none: Slurm's does not."""
    uncapped: str = ""
    """Why a cap that the job requests had no effect, "" where it had, or nothing tells."""
    gpus: tuple[GpuUse, ...] = field(default=(), metadata=wire(omit=True))
    """What its GPUs had set and took, as its nodes say; () where they do not."""
    energy_gpu_j: float | None = field(default=None, metadata=wire(omit=True))
    """What its GPUs took together, None where that is not known: of the same time as ``energy_j``
    where its meter sees GPUs alone, else from the job's start to its end."""
    gpu_note: str = field(default="", metadata=wire(omit=True))
    """Why it is not known of a job with GPUs."""
    meter_sees: MeterSees = field(default="", metadata=wire(omit=True))
    """What ``energy_j`` is the energy of, where the job had GPUs and that is known."""

    @property
    def cap_khz(self) -> int:
        """The cap it ran under, kHz; 0 for none."""
        return 0 if self.uncapped else self.freq_khz


_FIELDS = attrgetter(*Execution.__slots__)


def ran(job: JobRecord, inventory: Inventory) -> Execution:
    """Read a job's accounting against the inventory."""
    numbered = [s for s in job.steps if s.numbered]
    node_type = node_type_of(job.node_list, inventory)
    time_s, resolution_s, overlap = _time(job, numbered)
    # Of the same time as time_s: else the energy of one would be weighed with the time of another.
    of_steps = bool(numbered) and not overlap
    energy_j, note = job.energy_j if of_steps else job.whole_energy_j, ""
    whole_nodes = _whole(job, node_type)
    # Of a job that shares its nodes, its own cores are capped where the site accepts it.
    own_cores = node_type is not None and node_type.shared_caps == "accept"
    node_cap = 0 if whole_nodes is False and not own_cores else job.node_cap_khz
    impossible = any(s.energy_impossible for s in numbered) or (
        energy_j is not None and not is_possible(energy_j, time_s, job.nodes, node_type)
    )
    if impossible:
        energy_j, note = None, IMPOSSIBLE
    elif energy_j is None:
        note = SHARED if whole_nodes is False else _unmetered(numbered, overlap)
    elif whole_nodes is False:
        energy_j, note = None, SHARED
    main = max(numbered, key=lambda s: s.elapsed_s or 0.0, default=None)
    ranks = threads = 0
    if main is not None and main.nodes:
        ranks = main.tasks // main.nodes if main.tasks % main.nodes == 0 else 0
        threads = _step_threads(main)
    return Execution(
        node_type.name if node_type else "",
        job.nodes,
        ranks,
        threads,
        _freq(job, numbered, node_cap),
        whole_nodes,
        time_s,
        resolution_s,
        energy_j,
        note,
        any(s.state and s.state.split()[0] != "COMPLETED" for s in numbered),
        main.threads_per_rank if main is not None else 0,
        _uncapped(job, numbered, node_cap),
        job.gpus,
        *_of_gpus(job, energy_j),
        job.meter_sees,
    )


def _of_gpus(job: JobRecord, energy_j: float | None) -> tuple[float | None, str]:
    """Return what a job's GPUs took together, J; None where that is not known, and why.

    Nothing is added up unless every node and every device tells.
    """
    if job.meter_sees == "gpus" and energy_j is not None:
        return energy_j, ""
    if not job.gpus:
        return None, UNTOLD if job.gpu_count else ""
    nodes = len({use.node for use in job.gpus})
    if nodes < job.nodes:
        return None, f"{nodes} of {format_count(job.nodes, 'node')} told what its GPUs took"
    if len(job.gpus) < job.gpu_count:
        return None, f"its nodes told of {len(job.gpus)} of its {job.gpu_count} GPUs"
    total_j = 0.0
    for use in job.gpus:
        if use.energy_j is None:
            return None, f"GPU {use.device} on {use.node} counts no energy"
        if job.elapsed_s is not None and not device_is_possible(use.energy_j, job.elapsed_s):
            return None, f"GPU {use.device} on {use.node} counted what no GPU can use"
        total_j += use.energy_j
    return total_j, ""


def _unmetered(numbered: Sequence[StepRecord], overlap: bool) -> str:
    if overlap:
        return "steps overlapped, so their energies count twice"
    return NOT_METERED if numbered else NO_STEP


def node_type_of(node_list: str, inventory: Inventory) -> NodeType | None:
    """Return the one node type that a job's nodes are of, None when there is no such."""
    # Most jobs have one node, and its name is all of the list.
    if (alone := inventory.type_of_node(node_list)) is not None:
        return alone
    try:
        names = expand(node_list) if node_list else ()
    except ValueError:
        return None
    if not names:
        return None
    node_type = inventory.type_of_node(names[0])
    if node_type is None or any(
        inventory.type_of_node(name) is not node_type for name in names[1:]
    ):
        return None
    return node_type


def _time(job: JobRecord, numbered: Sequence[StepRecord]) -> tuple[float | None, float, bool]:
    """Return (comparable time, its resolution, whether steps overlapped)."""
    parts = [s.elapsed_s for s in numbered if s.elapsed_s is not None]
    if not parts or len(parts) < len(numbered):
        return job.elapsed_s, job.resolution_s, False
    total = sum(parts)
    # Each step's time is rounded by itself, so errors go up and down.
    slack = job.resolution_s * math.sqrt(len(parts))
    if job.elapsed_s is not None and total > job.elapsed_s + slack:
        return job.elapsed_s, job.resolution_s, True
    return total, slack, False


def _whole(job: JobRecord, node_type: NodeType | None) -> bool | None:
    if job.whole_nodes is not None:
        return job.whole_nodes
    if node_type is None or not job.cpus or not job.nodes:
        return None
    return job.cpus >= job.nodes * node_type.cores * node_type.threads_per_core


def _freq(job: JobRecord, numbered: Sequence[StepRecord], node_cap: int) -> int:
    if node_cap or job.freq_requested_khz:
        return node_cap or job.freq_requested_khz or 0
    caps = {s.freq_requested_khz or 0 for s in numbered}
    return caps.pop() if len(caps) == 1 else 0


def _uncapped(job: JobRecord, numbered: Sequence[StepRecord], node_cap: int) -> str:
    """Return why no cap of the job had an effect: no step to cap, or it ran above it.

    A cap of its nodes needs no step.
    """
    if not numbered and not node_cap:
        return NO_STEP if job.steps else ""
    cap, ran_khz = _freq(job, numbered, node_cap), observed_khz(job.freq_observed_khz)
    if cap and ran_khz and ran_khz > cap * (1 + _ABOVE):
        return f"it ran at {format_freq(ran_khz)}"
    return ""


def observed_khz(freq_khz: int | None) -> int | None:
    """Return a frequency that the accounting observed, None where it is none."""
    return freq_khz if freq_khz and freq_khz >= _LEAST_KHZ else None


def _step_threads(step: StepRecord) -> int:
    """Return the cores of a step on each node, 0 where they are not known or differ."""
    return step.cpus // step.nodes if step.cpus % step.nodes == 0 else 0


def differs(configuration: Configuration, execution: Execution, inventory: Inventory) -> str:
    """Return in words how a job differs from the configuration it was meant to run, "" if not.

    What the accounting does not say cannot differ.
    """
    if inventory.node_types and not execution.node_type:
        return "its nodes are of no single known node type"
    if execution.node_type and execution.node_type != configuration.node_type:
        return f"it ran on {execution.node_type}, not {configuration.node_type}"
    if execution.nodes != configuration.nodes:
        return f"it ran on {format_count(execution.nodes, 'node')}, not {configuration.nodes}"
    if execution.ranks_per_node and execution.ranks_per_node != configuration.ranks_per_node:
        return (
            f"it ran {format_count(execution.ranks_per_node, 'rank')} a node, not "
            f"{configuration.ranks_per_node}"
        )
    if 0 < execution.threads_per_node < configuration.threads_per_node:
        return (
            f"it had {format_count(execution.threads_per_node, 'core')} a node, not "
            f"{configuration.threads_per_node}"
        )
    if execution.threads_per_rank and execution.threads_per_rank != configuration.threads_per_rank:
        return (
            f"its ranks had {format_count(execution.threads_per_rank, 'thread')}, not "
            f"{configuration.threads_per_rank}"
        )
    for gpu in execution.gpus:
        for name, value in configuration.extra:
            if (had := gpu.axes.get(name, 0)) != value:
                axis = AXES[name]
                was = f"was {axis.shown(had)}, not" if had else "was not set to"
                what = f"the {axis.words} of GPU {gpu.device} on {gpu.node}"
                return f"{what} {was} {axis.shown(value)}"
    default = _default_freq(inventory.node_types.get(execution.node_type))
    cap = execution.cap_khz or default
    capped = configuration.freq_khz and configuration.freq_khz != default
    if capped and execution.uncapped:
        return (
            f"its cap of {format_freq(configuration.freq_khz)} had no effect: {execution.uncapped}"
        )
    if configuration.freq_khz and cap and cap != configuration.freq_khz:
        return f"its cap was {format_freq(cap)}, not {format_freq(configuration.freq_khz)}"
    return ""


def _default_freq(node_type: NodeType | None) -> int:
    """Return the cap of a job that asks for none, 0 when it is not known."""
    if node_type is None:
        return 0
    return node_type.default_freq_khz or (node_type.freq_khz[-1] if node_type.freq_khz else 0)
