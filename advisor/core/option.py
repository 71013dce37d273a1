"""An option: a configuration with what it is predicted or measured to cost.

Options are evaluated when a model is fitted and stored packed, one fixed-size record each, so
that the hot path only looks them up (``pack_options`` / ``unpack_options``; no numpy needed).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.configuration import Configuration

Z90 = 1.6448536269514722
"""Two-sided 90 % normal quantile: intervals are stored as 90 % intervals in log space."""

_RECORD = struct.Struct("<4i6dI")
_MEASURED, _CONFIRMED, _ZONE, _FRONT = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration with its time (s) and energy (J, all nodes) and 90 % intervals.

    ``energy_j`` is NaN when no energy is known. ``measured``: a run at this very configuration
    is behind the numbers; ``confirmed``: that run lay within the model's predicted interval;
    ``in_zone`` and ``on_front``: place relative to the Pareto front (algorithms 5.1 to 5.4).
    """

    configuration: Configuration
    time_s: float
    time_lo_s: float
    time_hi_s: float
    energy_j: float
    energy_lo_j: float
    energy_hi_j: float
    measured: bool = False
    confirmed: bool = False
    in_zone: bool = False
    on_front: bool = False

    @property
    def time_sigma(self) -> float:
        """Standard error of log time."""
        return math.log(self.time_hi_s / self.time_lo_s) / (2 * Z90)

    @property
    def energy_sigma(self) -> float:
        """Standard error of log energy; NaN when no energy is known."""
        if math.isnan(self.energy_j):
            return math.nan
        return math.log(self.energy_hi_j / self.energy_lo_j) / (2 * Z90)


def pack_options(options: Iterable[Option]) -> bytes:
    """Return options of one node type as little-endian records of 68 bytes."""
    parts = []
    for o in options:
        c = o.configuration
        flags = (
            o.measured * _MEASURED
            + o.confirmed * _CONFIRMED
            + o.in_zone * _ZONE
            + o.on_front * _FRONT
        )
        parts.append(
            _RECORD.pack(
                c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz,
                o.time_s, o.time_lo_s, o.time_hi_s, o.energy_j, o.energy_lo_j, o.energy_hi_j,
                flags,
            )
        )  # fmt: skip
    return b"".join(parts)


def unpack_options(node_type: str, blob: bytes) -> tuple[Option, ...]:
    """Return the options packed by :func:`pack_options`. Raises ValueError on a torn blob."""
    if len(blob) % _RECORD.size:
        raise ValueError(f"options blob of {len(blob)} bytes is not a multiple of {_RECORD.size}")
    return tuple(
        Option(
            Configuration(node_type, nodes, ranks, threads, freq),
            t, t_lo, t_hi, e, e_lo, e_hi,
            bool(flags & _MEASURED), bool(flags & _CONFIRMED),
            bool(flags & _ZONE), bool(flags & _FRONT),
        )
        for nodes, ranks, threads, freq, t, t_lo, t_hi, e, e_lo, e_hi, flags
        in _RECORD.iter_unpack(blob)
    )  # fmt: skip
