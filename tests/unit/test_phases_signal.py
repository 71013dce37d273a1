"""Periods found in a power signal, and none where there are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.phases.arrays import Floats
from advisor_lab.phases.signal import find_periods

T: Floats = np.arange(2400.0) * 0.1


def square(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(x % 1 < 0.4, 1.0, -1.0)


def test_the_period_of_a_signal_is_exact_within_one_percent() -> None:
    rng = np.random.default_rng(2)
    for period in (1.31, 2.37, 4.7):
        for wave in (square, lambda x: x % 1, lambda x: np.sin(6.283185 * x) + np.sin(12.57 * x)):
            power = 240 + 12 * wave(T / period) + rng.normal(0, 5, len(T)) + 0.1 * T
            (stretch,) = find_periods(T, power)
            assert stretch.period_s == pytest.approx(period, rel=0.01)


def test_every_tenth_iteration_that_differs_shows_as_a_longer_pattern() -> None:
    power = 240 + 10 * square(T / 1.9) + 25 * ((T // 1.9) % 10 == 9)
    (stretch,) = find_periods(T, power)
    assert stretch.period_s == pytest.approx(1.9, rel=0.01)
    assert stretch.outer_period_s == pytest.approx(19, rel=0.01)


def test_each_segment_has_its_own_period() -> None:
    rng = np.random.default_rng(7)
    power = 240 + 10 * np.where(T < 100, square(T / 2.3), square(T / 3.9)) + rng.normal(0, 3, 2400)
    first, second = find_periods(T, power)
    assert first.period_s == pytest.approx(2.3, rel=0.02)
    assert second.period_s == pytest.approx(3.9, rel=0.02)
    assert first.end_s == second.begin_s == pytest.approx(100, abs=4.4)


def test_noise_and_random_walks_have_no_period() -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        steps: Floats = rng.normal(0, 1, len(T))
        walk: Floats = np.cumsum(steps)
        assert find_periods(T, 230 + steps) == [] == find_periods(T, 230 + walk)
    assert find_periods(T, np.full(len(T), 5.0)) == [] == find_periods(T[:5], T[:5])
