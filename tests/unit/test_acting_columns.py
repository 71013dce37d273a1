"""Which further columns of runs act like an axis, and which only tell runs apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.core.acting_columns import acting_columns
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation

CELLS = [Configuration("n", 1, 1, t, 2_000_000) for t in (4, 8, 16, 32)]
COLUMNS = ("batch", "repetition", "host", "started")


def runs(seed: int, acts: float) -> list[Observation]:
    """Four repetitions of each of three batch sizes; the middle one is the fastest."""
    rng = np.random.default_rng(seed)
    made: list[Observation] = []
    for c in CELLS:
        for batch, factor in ((16, 1.0), (32, 1.0 / (1 + acts)), (64, 1.0)):
            for repetition in range(4):
                time_s = factor * (10 + 400 / c.cores) * math.exp(0.03 * rng.normal())
                extra: dict[str, object] = {
                    "batch": batch,
                    "repetition": repetition,
                    "host": f"n{repetition}",
                    "started": 1000 + len(made),
                }
                made.append(Observation(c, time_s, extra=extra))
    return made


def test_a_column_that_acts_is_found_whatever_its_shape() -> None:
    found = acting_columns(runs(0, 0.4), COLUMNS)
    assert list(found) == ["batch"] and found["batch"] == pytest.approx(1.4, rel=0.05)


def test_columns_that_tell_runs_apart_are_not() -> None:
    assert not [seed for seed in range(100) if acting_columns(runs(seed, 0.0), COLUMNS)]
    assert not acting_columns([], COLUMNS) and not acting_columns(runs(0, 0.4)[:1], COLUMNS)
