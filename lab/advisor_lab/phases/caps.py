"""The best frequency cap of each phase, and what the whole run would gain by it against one cap.

The caps minimise the whole run's energy among all whose time keeps the slowdown bound, switching
included: each change of phases with different caps costs ``switch_s``, at ``switch_w``. Nothing is
set by this; it says what a change of caps inside of a run would be worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from advisor.core.codec import JsonForm, wire
from advisor.core.units import format_change, format_freq
from advisor.phases.arrays import Floats, Ints

SWITCH_S = 0.0005
"""Seconds that a change of the cap costs, unless something else is given: processors take a new one
at opportunities half a millisecond apart (Hackenberg et al., "An Energy Efficiency Feature Survey
of the Intel Haswell Processor", 2015)."""

_MOST = 2_000_000
"""Combinations of caps that are tried; beyond, the phases that take least share one cap."""

REST = "the rest"

_CONDITION, _UNSURE = 1e9, 0.2
"""Of the normal equations, and standard error against the mean: beyond, a power is not known."""

SLOWDOWN = 0.05
"""How much longer the whole run may take, a fraction, unless something else is given."""

LEAST = 0.05
"""Share of the time below which a part has no power, and no cap, of its own."""

CostByCap = Mapping[int, tuple[float, float]]
"""Seconds and joules of a phase in a whole run, by cap (kHz)."""


@dataclass(frozen=True, slots=True)
class CapChoice(JsonForm):
    """A cap (kHz) for each phase, and the whole run's time (s) and energy (J) with them."""

    caps_khz: Annotated[dict[str, int], "kHz by phase"]
    time_s: float
    energy_j: float
    switches: int

    @property
    def one(self) -> bool:
        """Whether all phases have the same cap."""
        return len(set(self.caps_khz.values())) < 2


@dataclass(frozen=True, slots=True)
class CapsByPhase(JsonForm):
    """The best single cap, and the best caps by phase, under one bound of time."""

    JSON = ("reference_khz", "bound_s", "best_one", "best", "saving", "saving_half", "answer")

    reference_khz: Annotated[int, "the slowdown is against this cap everywhere"]
    bound_s: float
    best_one: CapChoice = field(metadata=wire("one_cap"))
    best: CapChoice = field(metadata=wire("by_phase"))
    saving_half: Annotated[
        float, "90 % half width of the saving, where powers were estimated from readings"
    ] = 0.0
    """90 % half width of the saving that the phases' powers leave, where these were estimated."""

    @property
    def saving(self) -> Annotated[float, "of the energy of one cap, a fraction"]:
        """What the caps by phase save of the best single cap's energy, a fraction."""
        return 1 - self.best.energy_j / self.best_one.energy_j

    @property
    def answer(self) -> str:
        """What they are worth, in a sentence."""
        khz = next(iter(self.best_one.caps_khz.values()))
        if self.best.one:
            return f"the same cap everywhere is best: {format_freq(khz)}"
        longer = format_change(self.best.time_s / self.best_one.time_s - 1)
        half = f" (give or take {100 * self.saving_half:.1f})" if self.saving_half else ""
        return (
            f"caps by phase would save {100 * self.saving:.2f} %{half} of the energy that "
            f"{format_freq(khz)} everywhere takes, time {longer}; nothing is set"
        )


def best_caps(
    costs: Mapping[str, CostByCap],
    changes: Mapping[tuple[str, str], int],
    *,
    slowdown: float,
    switch_s: float = SWITCH_S,
    switch_w: float | None = None,
    reference_khz: int = 0,
) -> CapsByPhase:
    """Return the best caps of phases that are all known at the same caps.

    ``changes`` says how often one phase follows another in the whole run. ``slowdown`` is a
    fraction of the time at ``reference_khz`` (0: the highest). ``switch_w``: None is the mean power
    at the reference. Raises ValueError where no cap is known of all phases.
    """
    costs, changes = dict(costs), dict(changes)
    caps = sorted(set.intersection(*(set(c) for c in costs.values())) if costs else set())
    if not caps:
        raise ValueError("no cap is known of all phases")
    # Every combination is tried: the smallest phases become one until there are few enough.
    while len(caps) ** len(costs) > _MOST:
        costs, changes = _joined(costs, changes, caps)
    names = list(costs)
    time = np.array([[costs[n][c][0] for c in caps] for n in names])
    energy = np.array([[costs[n][c][1] for c in caps] for n in names])
    reference = caps.index(reference_khz) if reference_khz in caps else len(caps) - 1
    bound = float(time[:, reference].sum()) * (1 + slowdown)
    watts = switch_w
    if watts is None:
        watts = float(energy[:, reference].sum() / time[:, reference].sum())
    shape = (len(caps),) * len(names)
    times, energies, switches = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    cap_indices = np.indices(shape, sparse=True)
    for i in range(len(names)):
        times = times + time[i][cap_indices[i]]
        energies = energies + energy[i][cap_indices[i]]
    for (phase, following), count in changes.items():
        differ = cap_indices[names.index(phase)] != cap_indices[names.index(following)]
        switches = switches + count * differ
    times, energies = times + switches * switch_s, energies + switches * switch_s * watts

    def chosen(place: Sequence[int]) -> CapChoice:
        where = tuple(place)
        picked = {n: caps[i] for n, i in zip(names, where, strict=True)}
        return CapChoice(picked, float(times[where]), float(energies[where]), int(switches[where]))

    allowed = np.where(times <= bound * (1 + 1e-12), energies, np.inf)
    best = np.unravel_index(int(np.argmin(allowed)), shape)
    ones = [(i,) * len(names) for i in range(len(caps))]
    best_one = min(ones, key=lambda p: float(allowed[p]))
    return CapsByPhase(caps[reference], bound, chosen(best_one), chosen([int(i) for i in best]))


def _joined(
    costs: Mapping[str, CostByCap], changes: Mapping[tuple[str, str], int], caps: Sequence[int]
) -> tuple[dict[str, CostByCap], dict[tuple[str, str], int]]:
    """Return the phases with the two that take least time as one; what is the rest stays there."""
    least = sorted(costs, key=lambda n: (n != REST, costs[n][caps[-1]][0]))[:2]
    name = {n: REST if n in least else n for n in costs}
    joined: dict[str, CostByCap] = {n: c for n, c in costs.items() if n not in least}
    joined[REST] = {c: _sum([costs[n][c] for n in least]) for c in caps}
    counts: dict[tuple[str, str], int] = {}
    for (phase, following), count in changes.items():
        pair = name[phase], name[following]
        if pair[0] != pair[1]:
            counts[pair] = counts.get(pair, 0) + count
    return joined, counts


def _sum(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return math.fsum(t for t, _ in pairs), math.fsum(e for _, e in pairs)


def changes_of(labels: Ints, names: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return how often one part of a run follows another; ``labels`` number ``names``."""
    former_labels, next_labels = labels[:-1], labels[1:]
    pairs, counts = np.unique(
        np.stack([former_labels, next_labels])[:, former_labels != next_labels],
        axis=1,
        return_counts=True,
    )
    return {(names[a], names[b]): int(n) for (a, b), n in zip(pairs.T, counts, strict=True)}


def powers(
    edges: Floats, labels: Ints, count: int, times: Floats, joules: Floats
) -> tuple[Floats, Floats] | None:
    """Return the mean power (W) of each part of a run, and its standard error (W).

    None where a meter cannot tell the parts apart.

    ``edges`` bound the stretches that ``labels`` number; ``joules`` were spent by ``times``. What
    is spent between two readings is the sum over parts of their power times the seconds they had
    there: least squares, without negative powers. A power with a standard error above a fifth of
    the mean counts as not known; parts of less than 5 % of the time have the mean power.
    """
    from scipy.optimize import nnls

    inside = (times >= edges[0]) & (times <= edges[-1])
    t, j = times[inside], joules[inside]
    if len(t) < 3 * count + 2:
        return None
    spans = np.diff(edges)
    had = np.stack(
        [
            np.diff(np.interp(t, edges, np.concatenate([[0.0], np.cumsum(spans * (labels == i))])))
            for i in range(count)
        ],
        axis=1,
    )
    spent = np.diff(j)
    mean = float(spent.sum() / (t[-1] - t[0]))
    large = had.sum(axis=0) >= LEAST * had.sum()
    if mean <= 0 or not large.any():
        return None
    watts: Floats = np.full(count, mean)
    spent = spent - had[:, ~large].sum(axis=1) * mean
    had = had[:, large]
    watts[large] = nnls(had, spent)[0]
    squares = float(((spent - had @ watts[large]) ** 2).sum()) / (len(spent) - count)
    normal = had.T @ had
    if np.linalg.cond(normal) > _CONDITION:
        return None
    errors = np.sqrt(np.maximum(np.diag(np.linalg.inv(normal)) * squares, 0.0))
    if bool((errors > _UNSURE * mean).any()):
        return None
    all_errors: Floats = np.full(count, mean)
    all_errors[large] = errors
    return watts, all_errors
