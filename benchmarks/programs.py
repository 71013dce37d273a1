"""Programs with laws of our own, for benchmarks/phases.py: events, meters and the truth of them.

Each law says which classes of work an iteration has and how long they take; a run multiplies every
class by a ratio of its own and lets events and iterations scatter. Nothing here was fitted to
measured runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Stretch = tuple[str, float, int]
"""Site, seconds in the baseline's law, number of the iteration (-1: outside)."""


def _steady(n: int, _: np.random.Generator) -> Iterator[Stretch]:
    for i in range(n):
        yield from (("a", 0.30, i), ("b", 0.15, i), ("c", 0.10, i))


def _growing(n: int, _: np.random.Generator) -> Iterator[Stretch]:
    for i in range(n):
        grown = 0.6 + 1.2 * i / n
        yield from (("a", 0.3 * grown, i), ("b", 0.2 * grown, i), ("c", 0.05, i))


def _warm_up(n: int, _: np.random.Generator) -> Iterator[Stretch]:
    for i in range(n):
        yield from (("a", 0.2 * (1 + 3 * math.exp(-i / 12)), i), ("b", 0.15, i))


def _two_phases(n: int, _: np.random.Generator) -> Iterator[Stretch]:
    for i in range(n // 2):
        yield from (("a", 0.2, i), ("b", 0.2, i))
    for i in range(n // 2, n):
        yield from (("x", 0.35, i), ("y", 0.1, i))


def _rare(n: int, _: np.random.Generator) -> Iterator[Stretch]:
    for i in range(n):
        yield from (("a", 0.25, i), ("b", 0.15, i))
        if i % 20 == 19:
            yield ("io", 2.0, i)


def _inner(n: int, rng: np.random.Generator) -> Iterator[Stretch]:
    for i in range(n):
        yield ("a", 0.1, i)
        for _ in range(int(rng.integers(4, 13))):
            yield ("s", 0.03, i)
        yield ("d", 0.08, i)


def _many_sites(n: int, rng: np.random.Generator) -> Iterator[Stretch]:
    seconds = rng.lognormal(-3.5, 0.8, 15)
    for i in range(n):
        for number, s in enumerate(seconds):
            yield (f"barrier{number}", float(s), i)


def _irregular(n: int, rng: np.random.Generator) -> Iterator[Stretch]:
    for _ in range(n):
        yield (str(rng.choice(["p", "q", "r", "s"])), float(rng.lognormal(-0.8, 0.7)), -1)


LAWS: dict[str, Callable[[int, np.random.Generator], Iterator[Stretch]]] = {
    "steady": _steady,
    "growing": _growing,
    "warm-up": _warm_up,
    "two phases": _two_phases,
    "rare output": _rare,
    "inner loops": _inner,
    "many sites": _many_sites,
    "irregular": _irregular,
}


@dataclass(frozen=True)
class Recorded:
    """A recorded run: events, readings (time, joules), and what it took in truth."""

    times: tuple[float, ...]
    sites: tuple[str, ...]
    readings: list[tuple[float, float]]
    energy_j: float

    @property
    def time_s(self) -> float:
        """The whole run's time."""
        return self.times[-1]


def scatter(
    units: NDArray[np.int64], rng: np.random.Generator, event: float, iteration: float, bouts: float
) -> Floats:
    """Return factors of mean about 1: every event's own, its iteration's, and disturbances."""
    known = int(units.max()) + 2
    per_iteration = rng.normal(0, iteration, known)
    wave, state = np.zeros(known), 0.0
    for i in range(known):
        state = 0.88 * state + rng.normal(0, bouts * math.sqrt(1 - 0.88**2))
        wave[i] = state
    own = rng.normal(0, event, len(units))
    return np.asarray(np.exp(own + (per_iteration + wave)[units]))


def program(
    law: str,
    seed: int,
    *,
    iterations: int = 200,
    runs: int = 2,
    event: float = 0.04,
    iteration: float = 0.02,
    bouts: float = 0.0,
    meter_s: float = 0.1,
    classes_differ: float = 0.18,
    begin_s: float = 6.0,
) -> list[Recorded]:
    """Return a baseline and ``runs`` others of the same sequence, from one seed."""
    rng = np.random.default_rng(seed)
    stretches = [("begin", begin_s, -1), *LAWS[law](iterations, rng), ("tail", 3.0, -1)]
    names = list(dict.fromkeys(s for s, _, _ in stretches))
    which = np.array([names.index(s) for s, _, _ in stretches])
    seconds = np.array([s for _, s, _ in stretches])
    units = np.array([u for _, _, u in stretches])
    made = []
    power = rng.uniform(180, 340, len(names))
    for number in range(runs + 1):
        ratio = np.ones(len(names))
        watts = power
        if number:
            ratio = math.exp(rng.uniform(-0.2, 1.7)) * rng.lognormal(0, classes_differ, len(names))
            watts = power * rng.uniform(0.35, 1.0) * rng.lognormal(0, 0.2, len(names))
        took = seconds * ratio[which] * scatter(units, rng, event, iteration, bouts)
        times = np.concatenate([[0.0], np.cumsum(took)])
        joules = np.concatenate([[0.0], np.cumsum(took * watts[which])])
        ticks = np.arange(0.0, times[-1] + meter_s, meter_s)
        shown = np.floor(np.interp(ticks, times, joules))
        made.append(
            Recorded(
                tuple(times.round(6).tolist()),
                (*(s for s, _, _ in stretches), "end"),
                list(zip(ticks.tolist(), shown.tolist(), strict=True)),
                float(joules[-1]),
            )
        )
    return made
