"""Measured data that others published, as runs: what pictures of the pages are drawn from."""

from __future__ import annotations

import csv
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation

STENCIL = Path(__file__).with_name("stencil64_bspline.csv")
_WORK_MFLOP = 1e9
"""Of a run of the stencil: the table has rates only."""


def stencil64(node_type: str = "haswell") -> list[Observation]:
    """Return the stencil kernel on 64 nodes, 11 thread counts x 11 caps (Endrei 2019, A.2.1)."""
    return [
        Observation(
            Configuration(node_type, 64, 2, int(row["threads_per_node"]), int(row["freq_khz"])),
            _WORK_MFLOP / float(row["mflops_per_second"]),
            _WORK_MFLOP / float(row["mflops_per_joule"]),
        )
        for row in csv.DictReader(STENCIL.open())
    ]


def as_csv(runs: list[Observation]) -> str:
    """Return runs in the columns of ``advisor import``."""
    lines = ["nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j"]
    for run in runs:
        c = run.configuration
        place = f"{c.nodes},{c.ranks_per_node},{c.threads_per_node},{c.freq_khz}"
        lines.append(f"{place},{run.time_s:.4f},{run.energy_j:.1f}")
    return "\n".join([*lines, ""])
