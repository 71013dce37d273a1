"""Kinds of bursts as ``advisor lab phases cluster`` and ``show`` print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from advisor.cli.output import print_table
from advisor.core.codec import JsonForm
from advisor.core.units import format_duration

if TYPE_CHECKING:
    from advisor_lab.phases.bursts import BurstTable, Clustering


@dataclass(frozen=True, slots=True)
class CounterRates(JsonForm):
    """What else was counted in bursts."""

    per_s: float
    per_instruction: float


@dataclass(frozen=True, slots=True)
class BurstCluster(JsonForm):
    """A kind of bursts; label 0: those of none."""

    label: int
    bursts: int
    time_share: float
    mean_burst_s: float
    ipc: float
    mips: float
    instructions: float
    counters: Annotated[Mapping[str, CounterRates], "what else was counted, by column"]


def described_clusters(bursts: BurstTable, groups: Clustering) -> list[BurstCluster]:
    """Return what each cluster is, the bursts of none (label 0) first."""
    import numpy as np

    extra = _extra_counters(bursts)
    total_s = float(bursts.duration_s.sum())
    clusters: list[BurstCluster] = []
    for label in range(int(groups.labels.max()) + 1):
        members = groups.labels == label
        if not members.any():
            continue
        took = float(bursts.duration_s[members].sum())
        counted = {n: float(v[members].sum()) for n, v in bursts.counters.items()}
        instructions, cycles = counted["instructions"], counted["cycles"]
        clusters.append(
            BurstCluster(
                label,
                int(members.sum()),
                took / total_s,
                took / int(members.sum()),
                instructions / cycles,
                instructions / took / 1e6,
                float(np.median(bursts.counters["instructions"][members])),
                {n: CounterRates(counted[n] / took, counted[n] / instructions) for n in extra},
            )
        )
    return clusters


def print_clusters(bursts: BurstTable, clusters: Sequence[BurstCluster]) -> None:
    """Print a line for each cluster, the bursts of none last."""
    extra = _extra_counters(bursts)
    print_table(
        [
            "cluster",
            "bursts",
            "share of time",
            "mean burst",
            "IPC",
            "MIPS",
            *map(_rate_name, extra),
        ],
        [
            [
                c.label or "none",
                c.bursts,
                f"{c.time_share:.1%}",
                format_duration(c.mean_burst_s),
                f"{c.ipc:.2f}",
                f"{c.mips:.0f}",
                *(_rate(n, c.counters[n]) for n in extra),
            ]
            for c in sorted(clusters, key=lambda c: (not c.label, c.label))
        ],
    )


def _extra_counters(bursts: BurstTable) -> list[str]:
    return [n for n in bursts.counters if n not in ("instructions", "cycles")]


def _rate_name(counter: str) -> str:
    return {"bytes": "GB/s", "flops": "Gflop/s"}.get(counter, f"{counter} an instruction")


def _rate(counter: str, rates: CounterRates) -> str:
    if counter in ("bytes", "flops"):
        return f"{rates.per_s / 1e9:.3g}"
    return f"{rates.per_instruction:.3g}"
