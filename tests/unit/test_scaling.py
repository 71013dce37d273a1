"""Scaling models: known laws are found, errors grow with distance, lawless families are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.core.configuration import Configuration, largest_of
from advisor.errors import InputError
from advisor.scaling.base import SizedPlaces, SizedRuns
from advisor.scaling.design import sized_design
from advisor.scaling.registry import TriedForecast, create, names, tried_forecast

CELLS = [
    Configuration("n", 1, 1, cores, cap)
    for cores in (4, 8, 12, 16)
    for cap in (1_200_000, 1_800_000, 2_400_000)
]
Row = tuple[dict[str, float], Configuration, float, float | None]


def time_of(n: float, c: Configuration) -> float:
    """Work n^2 on cores and clock, 2 % serial; 3 s of starting."""
    return 3 + 40 * n**2 * (0.02 + 0.98 / c.threads_per_node) / (c.freq_khz / 2_400_000)


def runs(sizes: tuple[float, ...], law: object = time_of, seed: int = 1) -> list[Row]:
    assert callable(law)
    rng = np.random.default_rng(seed)
    design = sized_design({n: CELLS for n in sizes})
    rows: list[Row] = []
    for n, cells in design.items():
        for c in cells:
            t = law(n, c) * math.exp(rng.normal(0, 0.01))
            watts = 80 + c.threads_per_node * (1 + 4 * (c.freq_khz / 2_400_000) ** 3)
            rows.append(({"n": n}, c, t, t * watts))
    return rows


def places(sizes: tuple[float, ...]) -> SizedPlaces:
    return SizedPlaces.of(["n"], [({"n": n}, c) for n in sizes for c in CELLS])


@pytest.fixture(scope="module")
def square() -> TriedForecast:
    return tried_forecast(SizedRuns.of(["n"], runs((2.0, 4.0, 8.0))), places((8.0, 16.0, 32.0)))


def test_the_design_is_twelve_at_the_largest_and_three_of_them_at_each_other() -> None:
    design = sized_design({n: CELLS for n in (2.0, 4.0, 8.0)})
    assert [len(design[n]) for n in (8.0, 4.0, 2.0)] == [12, 3, 3]
    for n in (2.0, 4.0):
        assert set(design[n]) <= set(design[8.0])
        assert largest_of(CELLS) in design[n]


def test_a_square_law_is_found_and_its_interval_holds_the_truth(square: TriedForecast) -> None:
    truth = np.log([time_of(n, c) for n in (8.0, 16.0, 32.0) for c in CELLS])
    time = square.forecast.time
    assert square.model == "physics"
    assert not square.unfit
    assert np.median(np.abs(np.expm1(time.mean - truth))) < 0.08
    assert np.mean(np.abs(time.mean - truth) <= 1.645 * time.sigma) > 0.9
    assert "n^2" in square.forecast.terms[0]


def test_errors_grow_with_distance_and_the_shared_one_cancels(square: TriedForecast) -> None:
    time, k = square.forecast.time, len(CELLS)
    near, far, farther = (time.shared[i * k] for i in range(3))
    assert near < far < farther
    base = CELLS.index(largest_of(CELLS))
    assert time.own[base] == pytest.approx(0, abs=1e-6)
    # Against the baseline an option is known much better than how long the size runs.
    assert np.median(time.own[2 * k :]) < farther


def test_a_family_without_a_law_is_unfit() -> None:
    jumps = {2.0: 1.0, 4.0: 6.0, 8.0: 1.5}
    lawless = runs((2.0, 4.0, 8.0), lambda n, c: jumps[n] * time_of(4, c))
    assert tried_forecast(SizedRuns.of(["n"], lawless), places((16.0,))).unfit


def test_two_sizes_are_too_few() -> None:
    with pytest.raises(InputError, match="2 values of n were measured, a law needs 3") as caught:
        tried_forecast(SizedRuns.of(["n"], runs((2.0, 4.0))), places((8.0,)))
    assert "measure" in caught.value.hint


def test_nodes_are_extrapolated_with_an_overhead_that_grows() -> None:
    rows: list[Row] = []
    for n in (1, 2, 3, 4):
        t = 1000 / n + 20 * math.log2(n)
        rows.append(({}, Configuration("n", n, 16, 16, 0), t, 400.0 * n * t))
    sixteen = Configuration("n", 8, 16, 16, 0)
    found = tried_forecast(SizedRuns.of([], rows), SizedPlaces.of([], [({}, sixteen)]))
    time = found.forecast.time
    assert time.mean[0] == pytest.approx(math.log(1000 / 8 + 60), abs=0.1)
    assert abs(time.mean[0] - math.log(185)) <= 1.645 * time.sigma[0]


@pytest.mark.parametrize("name", ["terms", "pmnf"])
def test_terms_of_an_exact_law_are_selected(name: str) -> None:
    exact = [(s, c, 5 + 0.7 * s["n"] ** 2, None) for s, c, _, _ in runs((2.0, 5.0, 9.0))]
    found = create(name).forecast(SizedRuns.of(["n"], exact), places((64.0,)))
    assert found.terms == ("1", "n^2")
    assert np.exp(found.time.mean[0]) == pytest.approx(5 + 0.7 * 64**2, rel=1e-6)


def test_models_are_found_by_entry_points() -> None:
    assert set(names()) == {"physics", "terms", "pmnf"}
    with pytest.raises(InputError, match="no scaling model is called 'magic'"):
        create("magic")
