"""Peaks of a node on paper: memory channels and vector units, times their clocks."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.classes.files import Peaks

_TRANSFER_B = 8
"""Bytes a memory channel moves with one transfer."""


@dataclass(frozen=True, slots=True)
class Processor:
    """One socket: cores, their highest clock (GHz), floating-point operations of a core's cycle.

    ``channels`` of memory, ``gts`` thousands of millions of transfers per second of each.
    """

    cores: int
    ghz: float
    flops_per_cycle: int
    channels: int
    gts: float

    def peaks(self, sockets: int) -> Peaks:
        """Return GB/s and GFLOP/s (double precision) of a node with so many sockets."""
        return Peaks(
            round(sockets * self.channels * self.gts * _TRANSFER_B, 6),
            round(sockets * self.cores * self.ghz * self.flops_per_cycle, 6),
        )


PROCESSORS = {
    "EPYC 7742": Processor(64, 3.4, 16, 8, 3.2),
    "EPYC 7763": Processor(64, 3.5, 16, 8, 3.2),
    "EPYC 9654": Processor(96, 3.7, 32, 12, 4.8),
    "Xeon Gold 6148": Processor(20, 3.7, 32, 6, 2.666),
    "Xeon Platinum 8360Y": Processor(36, 3.5, 32, 8, 3.2),
    "Xeon Platinum 8480": Processor(56, 3.8, 32, 8, 4.8),
}
"""A few common ones, as their makers state them; others are described by options."""


def known(name: str) -> Processor | None:
    """Return the processor whose number stands in a name, None where there is none such."""
    plain_name = name.upper().replace("(R)", "").replace("+", "")
    for title, processor in PROCESSORS.items():
        if title.upper().split()[-1] in plain_name.split():
            return processor
    return None
