"""Intervals by cross-validation, for models that cannot say how far off they may be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.models.base import folds
from advisor.models.design import random_, uniform
from advisor.models.fit import fit_options

SPACE = SearchSpace(
    "n", (1,), tuple((1, t) for t in range(4, 45, 4)), tuple(range(1_200_000, 2_200_001, 100_000))
)


def drawn(rng: np.random.Generator) -> dict[Configuration, tuple[float, float]]:
    """Time and energy of every configuration by a law drawn at random, without noise."""
    serial, memory = 10 ** rng.uniform(-2.5, -0.7), rng.uniform(0, 0.6)
    ceiling, idle = rng.uniform(10, 50), rng.uniform(60, 250)
    found = {}
    for c in SPACE:
        clock, t = c.freq_khz / 2.2e6, c.threads_per_node
        time = (1 - memory) * (serial + (1 - serial) / t) / clock + memory / min(t, ceiling)
        power = idle + 5 * t * (0.3 + 0.7 * clock**2.2)
        found[c] = 300 * time, 300 * time * power
    return found


@pytest.mark.parametrize("model", ["bspline", "polynomial"])
def test_intervals_hold_about_what_they_promise_over_many_laws(model: str) -> None:
    shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = drawn(rng)

        def run(
            c: Configuration,
            rng: np.random.Generator = rng,
            truth: dict[Configuration, tuple[float, float]] = truth,
        ) -> Observation:
            time, energy = truth[c]
            return Observation(
                c, time * math.exp(0.01 * rng.normal()), energy * math.exp(0.01 * rng.normal())
            )

        design = uniform(SPACE) if seed % 2 else random_(SPACE, 12, seed=seed)
        fitted = fit_options([run(c) for c in design], model=model, space=SPACE)
        new = [(o, run(o.configuration)) for o in fitted.options if not o.measured]
        shares.append(np.mean([o.time_lo_s <= r.time_s <= o.time_hi_s for o, r in new]))
        shares.append(
            np.mean([o.energy_lo_j <= (r.energy_j or 0) <= o.energy_hi_j for o, r in new])
        )
    assert 0.8 < np.mean(shares) < 0.97


@pytest.mark.parametrize("n", [4, 20, 21, 200])
def test_every_run_is_in_one_fold_and_few_are_left_out_one_by_one(n: int) -> None:
    parts = folds(n)
    assert sorted(i for rows in parts for i in rows) == list(range(n))
    assert len(parts) == (n if n <= 20 else 10)
    assert [list(a) for a in parts] == [list(a) for a in folds(n)]
