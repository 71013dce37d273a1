"""A node's power: what its site states of it, and which energies no node can have used."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor.core.inventory import NodeType
from advisor.core.observation import Observation

LEAST_W = 1.0
"""No node that is on takes less."""
SOCKET_W, ACCELERATORS_W = 1000.0, 12_000.0
"""The most that a socket with its memory takes, and all that else may be in a node (eight
accelerators of 1 kW, fans, losses): an inventory does not say what is in there."""
DEVICE_W = 3000.0
"""More than any one accelerator with its memory takes."""
_DEVICE_STEP_S = 1.0
"""A device's counter may move at once by what it took in so long."""
MOST_SOCKETS = 8
"""Of a node of which nothing is known."""
STATED_FACTOR = 4.0
"""A node's power by what its site states may be so far off: accelerators are not in it."""
IDLE_SHARE = 0.1
"""A meter sees at least so much of the stated power of an idle node: RAPL has no board, no fans."""
NO_VALUE = 16
"""So near below 2^31, 2^32, 2^63 and 2^64 a counter's reading stands for no value."""
DROPPED = "impossible_energy_j"
"""Under this name a run keeps, beside what it is, the reading that was dropped."""


def power_w(
    base_w: float, core_w: float, busy_cores: float, freq_khz: int, max_freq_khz: int
) -> float:
    """Return the estimated power of one node in watts.

    ``base + core * busy_cores * (f / f_max)^3``: dynamic power goes with f V^2 and voltage about
    with f. A frequency of 0 (no cap) counts as the highest.
    """
    ratio = freq_khz / max_freq_khz if freq_khz and max_freq_khz else 1.0
    return base_w + core_w * busy_cores * min(1.0, ratio) ** 3


def stated_power_w(node_type: NodeType, busy_cores: float, freq_khz: int = 0) -> float | None:
    """Return a node's power by what the site states of it, W; None where it states nothing."""
    base, core = node_type.base_power_w, node_type.core_power_w
    if base is None or core is None or base + core <= 0:
        return None
    return power_w(base, core, busy_cores, freq_khz, max(node_type.freq_khz, default=0))


def power_bounds_w(node_type: NodeType | None) -> tuple[float, float]:
    """Return the least and the most power that one node can take over a run, W."""
    sockets = node_type.sockets if node_type is not None else MOST_SOCKETS
    bounds = LEAST_W, ACCELERATORS_W + SOCKET_W * max(1, sockets)
    stated = stated_power_w(node_type, node_type.cores) if node_type is not None else None
    if node_type is None or stated is None:
        return bounds
    idle = IDLE_SHARE * (node_type.base_power_w or 0.0)
    gpus_w = node_type.gpus.count * float(max(node_type.gpus.power_w, default=0))
    return max(LEAST_W, idle), min(bounds[1], STATED_FACTOR * (stated + gpus_w))


def is_possible(
    energy_j: float, time_s: float | None, nodes: int, node_type: NodeType | None = None
) -> bool:
    """Tell whether so many nodes can have used an energy (J) in a time (s).

    A reading that stands for no value is none, whatever the time. Where the time or the number of
    nodes is not known, only that is judged. The limits are :func:`power_bounds_w`'s.
    """
    if not math.isfinite(energy_j) or energy_j <= 0:
        return False
    # Near 2^63 and 2^64 doubles lie farther apart than NO_VALUE.
    below_31, below_32 = 2.0**31 - energy_j, 2.0**32 - energy_j
    if 0 <= below_31 <= NO_VALUE or 0 <= below_32 <= NO_VALUE or energy_j >= 2.0**62:
        return False
    if not time_s or time_s <= 0 or nodes <= 0:
        return True
    least, most = power_bounds_w(node_type)
    return least <= energy_j / time_s / nodes <= most


def device_is_possible(energy_j: float, time_s: float) -> bool:
    """Tell whether one accelerator can have used an energy (J, 0: asleep) in a time (s)."""
    if energy_j == 0:
        return True
    most_j = DEVICE_W * (time_s + _DEVICE_STEP_S)
    return is_possible(energy_j, None, 1) and energy_j <= most_j


def without_impossible(run: Observation, node_type: NodeType | None = None) -> Observation:
    """Return a run without an energy that it cannot have used; the reading is kept as DROPPED."""
    if run.energy_j is None:
        return run
    if is_possible(run.energy_j, run.time_s, run.configuration.nodes, node_type):
        return run
    return replace(
        run,
        energy_j=None,
        energy_quality="missing",
        meter="",
        extra={**run.extra, DROPPED: run.energy_j},
    )
