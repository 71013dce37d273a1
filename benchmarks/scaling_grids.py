"""Grids drawn from laws of sizes and nodes, others than the model's own among them.

``sized(seed)`` and ``scaled(seed)`` draw a grid with 2 % noise: a program whose work, start-up,
serial part and memory traffic grow with the size in their own ways; or one that runs on 1 to 16
nodes with communication of its own kind. No smooth law holds for ``cache-cliff`` and ``jumps``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation

SIZES = (1.0, 2.0, 4.0, 6.0, 8.0, 16.0, 32.0)
TRAIN_TO = 4.0
CORES, CAPS = (1, 2, 4, 8, 12, 16, 20, 24), tuple(range(1_200_000, 2_401_000, 200_000))
WORK: dict[str, Callable[[float], float]] = {
    "linear": lambda n: n,
    "n-log-n": lambda n: n * (1 + math.log2(n)) / 2,
    "three-halves": lambda n: n**1.5,
    "square": lambda n: n * n,
    "linear-and-square": lambda n: n + 0.15 * n * n,
    "start-up": lambda n: 2.0 + n,
    "root": lambda n: math.sqrt(n),
    "none": lambda n: 1.0,
    "cache-cliff": lambda n: n * (1.0 if n < 5 else 1.9),
    "jumps": lambda n: n * (1, 1.6, 0.7, 1.8, 0.8, 1.5, 0.6)[SIZES.index(n)],
}
COMMUNICATION: dict[str, Callable[[float], float]] = {
    "none": lambda n: 0.0,
    "tree": lambda n: math.log2(n),
    "all-to-all": lambda n: n - 1,
    "halo": lambda n: 2 * (1 - n ** (-1 / 3)),
    "root": lambda n: math.sqrt(n) - 1,
}
_NOISE = 0.02


def sized(law: str, seed: int) -> list[Observation]:
    """Return one node's cores x caps x sizes; the size is the extra column ``n``."""
    rng = np.random.default_rng([seed, list(WORK).index(law)])
    one_core = math.exp(rng.uniform(math.log(200), math.log(2000)))
    serial, clockless = rng.choice([0.002, 0.01, 0.03, 0.1]), rng.choice([0.05, 0.2, 0.5])
    ceiling, follow = rng.choice([6.0, 12.0, 99.0]), rng.choice([0.5, 1.0])
    start = rng.choice([0.0, 1.0, 5.0])
    step = {c: rng.normal(0, rng.choice([0.0, 0.03])) for c in CORES}
    runs = []
    for n in SIZES:
        work = WORK[law](n)
        for c in CORES:
            for cap in CAPS:
                f = cap / CAPS[-1]
                share = serial * work ** (follow - 1)
                clocked = (1 - clockless) * (share + (1 - share) / c) / f
                other = clockless * (share + (1 - share) / min(c, ceiling))
                time = (one_core * work * (clocked + other) + start) * math.exp(step[c])
                runs.append(_run(rng, Configuration("grid", 1, 1, c, cap), time, 1.0, {"n": n}))
    return runs


def scaled(kind: str, seed: int) -> list[Observation]:
    """Return whole nodes of 24 cores at one cap, 1 to 16 of them."""
    rng = np.random.default_rng([seed, 100 + list(COMMUNICATION).index(kind)])
    alone = math.exp(rng.uniform(math.log(500), math.log(5000)))
    undivided = rng.choice([0.0, 0.005, 0.02, 0.05])
    overhead, saved = rng.choice([0.005, 0.015, 0.03]), rng.choice([0.2, 0.5, 0.8])
    runs = []
    for n in range(1, 17):
        share = (1 - undivided) / n + undivided + overhead * COMMUNICATION[kind](n)
        waiting = 1 - 1 / (n * share)
        time = alone * share * math.exp(rng.normal(0, 0.02))
        configuration = Configuration("grid", n, 24, 24, CAPS[-1])
        runs.append(_run(rng, configuration, time, 1 - saved * waiting, {}))
    return runs


def _run(
    rng: np.random.Generator,
    c: Configuration,
    time: float,
    activity: float,
    extra: dict[str, object],
) -> Observation:
    f = c.freq_khz / CAPS[-1]
    busy = c.threads_per_node * (1.0 + 4.0 * f**2.5)
    watts = c.nodes * (80 + busy) * activity
    spent = time * math.exp(rng.normal(0, _NOISE))
    return Observation(c, spent, spent * watts * math.exp(rng.normal(0, _NOISE / 2)), extra=extra)
