"""The parts of a run that could have a frequency cap of their own: sites of its phases.

A part is what follows one call site in one phase. The few that take most of the time stand for
themselves, all others are the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.phases.arrays import Ints
from advisor.phases.metered import Metered
from advisor.phases.pairing import WatchedBeside
from advisor.phases.sequence import IteratedPhase
from advisor_lab.phases.caps import LEAST, REST, powers

_MOST = 5
"""Parts that stand for themselves, at most."""


@dataclass(frozen=True, slots=True)
class RunParts:
    """Names of parts, and the part of each stretch between two events."""

    names: tuple[str, ...]
    labels: Ints = field(repr=False)


@dataclass(frozen=True, slots=True)
class PartCost:
    """What a run took for a part against the baseline, and its power (W; None: not known).

    ``error_w`` is the power's standard error.
    """

    ratio: float
    power_w: float | None
    error_w: float = 0.0


def parts_of(
    times: Sequence[float], sites: Sequence[str], phases: Sequence[IteratedPhase]
) -> RunParts:
    """Return the parts of a complete run, those that take longest first, the rest last."""
    spans = np.diff(np.array(times))
    phase = np.zeros(len(spans), np.int64)
    for number, p in enumerate(phases, 1):
        phase[int(p.bounds[0]) : int(p.bounds[-1])] = number
    site_numbers = {s: i for i, s in enumerate(dict.fromkeys(sites))}
    site = np.array([site_numbers[s] for s in sites[:-1]], np.int64)
    code = np.where(phase > 0, phase * len(site_numbers) + site, 0)
    codes, label = np.unique(code, return_inverse=True)
    took = np.bincount(label, spans)
    order = [int(i) for i in np.argsort(-took, kind="stable") if codes[i] > 0]
    part_indices = [i for i in order if took[i] >= LEAST * spans.sum()][:_MOST]
    names = []
    which = list(site_numbers)
    for i in part_indices:
        number, site_index = divmod(int(codes[i]), len(site_numbers))
        names.append(
            which[site_index] if len(phases) == 1 else f"phase {number}: {which[site_index]}"
        )
    new = np.full(len(codes), len(part_indices))
    new[part_indices] = np.arange(len(part_indices))
    labels = new[label]
    if (labels == len(part_indices)).any():
        names.append(REST)
    return RunParts(tuple(names), labels.astype(np.int64))


def costs_of(
    parts: RunParts, base: Sequence[float], run: Sequence[float], meter: Metered | None
) -> dict[str, PartCost]:
    """Return what the seen beginning of a run took, part by part.

    ``base`` and ``run`` are the times of events that are paired, the baseline's and the run's;
    parts not seen yet are left out.
    """
    k = min(len(run), len(base)) - 1
    labels = parts.labels[:k]
    base_s = np.bincount(labels, np.diff(np.array(base[: k + 1])), len(parts.names))
    edges = np.array(run[: k + 1])
    run_s = np.bincount(labels, np.diff(edges), len(parts.names))
    seen_parts = [i for i in range(len(parts.names)) if base_s[i] > 0 and run_s[i] > 0]
    watts = None
    if meter is not None and seen_parts:
        dense = np.zeros(len(parts.names), np.int64)
        dense[seen_parts] = np.arange(len(seen_parts))
        watts = powers(edges, dense[labels], len(seen_parts), *meter.readings)
    return {
        parts.names[i]: PartCost(
            float(run_s[i] / base_s[i]),
            None if watts is None else float(watts[0][number]),
            0.0 if watts is None else float(watts[1][number]),
        )
        for number, i in enumerate(seen_parts)
    }


def parts_of_stop(watched: WatchedBeside) -> dict[str, tuple[float, float | None, float]]:
    """Return ratio, power (W) and its standard error (W) of each part of a run that is ended."""
    base = watched.base
    parts = parts_of(base.times, base.sites, watched.phases)
    costs = costs_of(parts, base.times, watched.times, watched.meter)
    return {name: (cost.ratio, cost.power_w, cost.error_w) for name, cost in costs.items()}
