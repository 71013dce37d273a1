"""What repeats say of the measurement: its error, its shape, and runs that stand out."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy  # which loads scipy.stats where a test needs it: a second

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.models.normality import shapiro_wilk
from advisor.models.response import response
from advisor.models.runs import gather
from advisor.models.scatter import Scatter

PLACES = [Configuration("n", 1, 1, t, 2_000_000) for t in (4, 8, 16, 32)]


def repeated(
    count: int, sigma: float, seed: int = 0
) -> tuple[list[tuple[Configuration, float]], np.ndarray]:
    rng = np.random.default_rng(seed)
    logs = sigma * rng.normal(size=(len(PLACES), count))
    values = [
        (c, 100 / c.cores * math.exp(logs[i, k]))
        for i, c in enumerate(PLACES)
        for k in range(count)
    ]
    return values, logs


def test_the_error_of_a_run_is_that_of_equation_4_4() -> None:
    """Five runs at four places: 16 degrees of freedom, t = 2.120 at 95 %."""
    values, logs = repeated(5, 0.03)
    found = response(values, Scatter(0.01))
    pooled = math.sqrt(float(((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum()) / 16)
    assert found.sigma == pytest.approx(pooled)
    assert found.repeats == 16
    told = found.measurement()
    assert told["error_pct"] == pytest.approx(100 * math.expm1(2.120 * pooled), rel=1e-3)
    assert told["assumed"] is False
    json.dumps(told, allow_nan=False)


def test_the_residuals_are_tested_for_normality_and_shown_against_it() -> None:
    values, _ = repeated(6, 0.02)
    found = response(values, Scatter(0.01))
    told = found.measurement()
    expected = scipy.stats.shapiro(np.array(found.residuals))
    assert told["shapiro_wilk"]["w"] == pytest.approx(float(expected.statistic))
    assert told["shapiro_wilk"]["p"] == pytest.approx(float(expected.pvalue))
    assert found.not_normal() is None
    theory, seen = np.array(told["q_q"]).T
    assert len(theory) == 24
    assert (np.diff(theory) > 0).all()
    assert (np.diff(seen) >= 0).all()
    assert np.corrcoef(theory, seen)[0, 1] > 0.95


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 11, 12, 20, 21, 50, 333, 4000])
@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
def test_shapiro_wilk_is_scipys(count: int, draw: str) -> None:
    """scipy's normal quantiles have seven digits, ours sixteen: of 4000 values p shows it."""
    values = getattr(np.random.default_rng(count), draw)(size=count)
    w, p = shapiro_wilk(values)
    expected = scipy.stats.shapiro(values)
    assert w == pytest.approx(float(expected.statistic), rel=1e-8)
    assert p == pytest.approx(float(expected.pvalue), rel=1e-5)


def test_repeats_that_are_not_normal_are_said() -> None:
    rng = np.random.default_rng(1)
    runs = [
        Observation(c, 100 / c.cores * math.exp(0.09 * rng.exponential() ** 4 / 60), 1000.0)
        for c in PLACES
        for _ in range(12)
    ]
    told = " ".join(gather(runs).notes)
    assert "repeats of time are not normally distributed" in told
    assert "of energy" not in told


def test_nothing_repeated_says_nothing_of_shape() -> None:
    found = response([(c, 10.0) for c in PLACES], Scatter(0.01))
    told = found.measurement()
    assert (told["repeats"], told["assumed"], told["shapiro_wilk"], told["q_q"]) == (
        0,
        True,
        None,
        [],
    )
    assert told["error_pct"] == pytest.approx(100 * math.expm1(1.96 * 0.01), rel=1e-3)


def test_few_repeats_neither_make_a_meter_perfect_nor_useless() -> None:
    exact = response([*((c, 10.0) for c in PLACES), (PLACES[0], 10.0)], Scatter(0.01))
    assert exact.run_sigma > 0.008
    far = response([*((c, 10.0) for c in PLACES), (PLACES[0], 30.0)], Scatter(0.01))
    assert far.sigma == far.run_sigma == 0.01
    assert far.half_width(PLACES[1]) < 0.02
    # what is far apart is so at its own place only, and there its interval holds both runs
    assert far.unsteady == {PLACES[0]: pytest.approx(math.log(3) / 2)}
    assert far.half_width(PLACES[0]) > math.log(3) / 2
    assert far.noise(PLACES[0]) > 0.5
    assert exact.agreed == {PLACES[0]}
    assert not far.agreed


def test_a_straggler_among_three_runs_is_left_out_and_said() -> None:
    runs = [Observation(c, t, 50.0 * t) for c in PLACES for t in (10.0, 10.05, 9.98)]
    slow = [*runs, Observation(PLACES[2], 14.0, 700.0)]
    found = gather(slow)
    assert found.time.counts[PLACES[2]] == 3
    assert "a run at 1 node, 16 threads, 2 GHz is +39.7 % off its repeats: left out" in found.notes
    assert not any("left out" in n for n in gather(runs).notes)


def test_two_runs_far_apart_are_said_to_be_unsteady() -> None:
    runs = [Observation(c, 10.0, 500.0) for c in PLACES]
    notes = gather([*runs, Observation(PLACES[0], 13.0, 500.0)]).notes
    assert notes == ("time of the runs at 1 node, 4 threads, 2 GHz differs by +30.0 %: unsteady",)


def test_repeats_of_a_machine_that_scatters_count_for_its_error_and_are_not_unsteady() -> None:
    """Six runs at 5 % are often more than 10 % apart: that is the machine, not a disturbed run."""
    rng = np.random.default_rng(3)
    runs = [(c, 10 * math.exp(0.05 * rng.normal())) for c in PLACES[:2] for _ in range(6)]
    scattered = response(runs, Scatter(0.01))
    assert not scattered.unsteady
    assert scattered.repeats == 10
    assert 0.03 < scattered.run_sigma < 0.08
    assert scattered.noise(PLACES[0]) == pytest.approx(scattered.run_sigma / 6**0.5)
    # on a machine that repeats well two runs as far apart are one disturbed one still
    quiet = [(c, 10 * math.exp(0.005 * rng.normal())) for c in PLACES[1:] for _ in range(3)]
    mixed = response([*quiet, (PLACES[0], 10.0), (PLACES[0], 11.5)], Scatter(0.01))
    assert set(mixed.unsteady) == {PLACES[0]}
    assert mixed.run_sigma < 0.012
