"""A node's power from what its site states: an idle node, and what each busy core adds."""

from __future__ import annotations

from advisor.core.inventory import NodeType


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
