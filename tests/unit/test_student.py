"""Student's t is scipy's over many degrees of freedom, or closer to what can be written down."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import gammaln, stdtr, stdtrit

from advisor.core import student
from advisor.prior.trials import below

FREEDOMS = (0.3, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 13, 20, 39, 40, 41, 100, 1e3, 1e4, 1e5)
TS = np.concatenate([np.linspace(1e-3, 8, 400), np.geomspace(1e-6, 1e3, 200)])
PROBABILITIES = (0.501, 0.6, 0.75, 0.9, 0.95, 0.975, 0.99, 0.999, 0.99999, 1 - 1e-9)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_both_tails_are_scipys(freedom: float) -> None:
    expected = stdtr(freedom, -TS)
    some = expected > 1e-300
    beyond = np.array([student.beyond(freedom, t) for t in TS.tolist()])
    assert beyond[some] == pytest.approx(expected[some], rel=1e-9)
    assert below(freedom, -TS)[some] == pytest.approx(expected[some], rel=1e-9)
    assert below(freedom, TS) == pytest.approx(stdtr(freedom, TS), rel=1e-9)
    assert student.beyond(freedom, -2.5) == pytest.approx(float(stdtr(freedom, 2.5)), rel=1e-9)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_quantiles_are_scipys_and_undo_the_distribution(freedom: float) -> None:
    for probability in PROBABILITIES:
        t = student.quantile(freedom, probability)
        assert t == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-7, abs=1e-9)
        assert student.beyond(freedom, t) == pytest.approx(1 - probability, rel=1e-9)
        assert student.quantile(freedom, 1 - probability) == pytest.approx(-t, rel=1e-6)
    assert student.quantile(freedom, 0.5) == 0.0


def test_where_it_can_be_written_down_it_is_exact() -> None:
    """Freedoms 1, 2 and 4, also close to 0, where scipy is 1e-9 off."""
    for t in (1e-8, 0.01, 0.7, 1.0, 3.0, 50.0):
        cauchy = math.atan(1 / t) / math.pi
        assert student.beyond(1, t) == pytest.approx(cauchy, rel=1e-13)
        two = (1 - t / math.sqrt(2 + t * t)) / 2
        assert student.beyond(2, t) == pytest.approx(two, rel=1e-11)
    for p in (0.5001, 0.6, 0.95):
        root = math.sqrt(4 * p * (1 - p))
        four = 2 * math.sqrt(math.cos(math.acos(root) / 3) / root - 1)
        assert student.quantile(4, p) == pytest.approx(four, rel=1e-11)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_the_densitys_peak_is_that_of_the_gamma_functions(freedom: float) -> None:
    ratio = gammaln((freedom + 1) / 2) - gammaln(freedom / 2)
    expected = ratio - 0.5 * math.log(freedom * math.pi)
    assert student.log_peak(freedom) == pytest.approx(float(expected), rel=1e-9)
