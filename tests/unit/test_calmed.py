"""A complete run without its own scatter, and what its stretches spent by a slow meter."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.phases.apportion import energies
from advisor.phases.arrays import Floats, Ints
from advisor.phases.calmed import Calmed
from advisor.phases.metered import Metered

ALL = [np.arange(201)]


def calmed(values: Floats) -> Calmed:
    return Calmed.of(values, np.zeros(len(values), np.int64), ALL)


def scattered(truth: Floats, seed: int = 1) -> Floats:
    return truth * np.random.default_rng(seed).normal(1, 0.04, len(truth))


@pytest.mark.parametrize("law", ["even", "growing", "warming up"])
def test_scatter_goes_and_what_iterations_do_stays(law: str) -> None:
    i = np.arange(200.0)
    truth = {
        "even": np.ones(200),
        "growing": 0.6 + 0.006 * i,
        "warming up": 1 + 3 * np.exp(-i / 12),
    }[law]
    values = scattered(truth)
    curve = calmed(values).curve
    assert np.std(curve / truth) < 0.5 * np.std(values / truth)
    assert curve.sum() == pytest.approx(values.sum(), rel=0.01)


def test_a_long_iteration_stays_as_it_was() -> None:
    values = scattered(np.ones(200))
    values[19::20] += 1.0
    calm = calmed(values)
    assert calm.curve[19::20] == pytest.approx(values[19::20])
    assert np.delete(calm.curve, np.arange(19, 200, 20)).mean() == pytest.approx(1, abs=0.01)


def test_what_the_run_repeats_is_no_scatter() -> None:
    turns: Floats = 1 + 0.2 * np.sin(np.arange(200.0) * 0.4 * np.pi)
    calm, classes = calmed(turns), np.zeros(200, np.int64)
    assert calm.curve == pytest.approx(1, abs=0.1)
    assert calm.beside(2 * turns[:16], classes) == pytest.approx(turns, abs=0.02)
    apart = calmed(scattered(np.ones(200), 2))
    beside = apart.beside(scattered(np.full(12, 2.0), 3), classes)
    assert np.std(beside) < 0.7 * np.std(apart.values)


def test_few_events_and_what_lies_outside_of_phases_stay() -> None:
    values = np.random.default_rng(1).uniform(1, 2, 30)
    classes: Ints = np.array([0] * 20 + [1] * 10)
    calm = Calmed.of(values, classes, [np.arange(4, 31)])
    assert (calm.curve[:4] == values[:4]).all() and (calm.curve[20:] == values[20:]).all()
    assert (calm.curve[4:20] != values[4:20]).any()


def test_classes_shorter_than_a_reading_keep_their_own_power() -> None:
    rng = np.random.default_rng(1)
    classes: Ints = np.resize(np.array([0, 1]), 600)
    spans: Floats = np.where(classes == 0, 0.05, 0.03) * rng.normal(1, 0.05, 600)
    spent = spans * np.where(classes == 0, 300.0, 100.0)
    edges: Floats = np.concatenate([[0.0], np.cumsum(spans)])
    joules: Floats = np.concatenate([[0.0], np.cumsum(spent)])
    meter = Metered()
    for t in np.arange(0.0, edges[-1] + 0.1, 0.1).tolist():
        meter.feed(t, float(np.floor(np.interp(t, edges, joules))))
    mine = energies(meter, edges, classes)
    even = np.diff(meter.at(edges))
    truth = float(spent[classes == 0].sum())
    assert mine[classes == 0].sum() == pytest.approx(truth, rel=0.02)
    assert even[classes == 0].sum() < 0.95 * truth
    assert mine.sum() == pytest.approx(even.sum())


def test_a_meter_that_keeps_step_says_nothing_of_classes() -> None:
    edges: Floats = np.linspace(0.0, 20.0, 401)
    meter = Metered()
    for i in range(201):
        meter.feed(0.1 * i, 20.0 * i)
    mine = energies(meter, edges, np.arange(400) % 2)
    assert mine == pytest.approx(np.full(400, 10.0), rel=1e-6)
