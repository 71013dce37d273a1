"""Savings against jobs left alone: intervals that hold what they promise, honest with few."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
import scipy  # which loads scipy.stats where a test needs it: a second
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.loop.compare import (
    JobSample,
    WorkloadJobs,
    against_prediction,
    log_ratio,
    pooled,
    share_interval,
    variance,
    welch,
)

ratios = st.lists(st.floats(-1, 1), min_size=4, max_size=12)


@given(ratios, ratios)
def test_welch_is_scipys(a: list[float], b: list[float]) -> None:
    if np.var(a) + np.var(b) < 1e-9:
        return
    found = welch(WorkloadJobs(tuple(a), tuple(b)))
    assert found is not None and found.lo is not None and found.hi is not None
    interval = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.90)
    assert math.log1p(found.lo) == pytest.approx(interval.low, abs=1e-6)
    assert math.log1p(found.hi) == pytest.approx(interval.high, abs=1e-6)
    assert (found.advised, found.left, found.basis) == (len(a), len(b), "holdout")


@given(ratios)
def test_against_the_prediction_is_the_one_sample_t(a: list[float]) -> None:
    if np.var(a) < 1e-9:
        return
    found = against_prediction(WorkloadJobs(tuple(a)))
    assert found is not None and found.lo is not None
    assert math.log1p(found.lo) == pytest.approx(
        scipy.stats.ttest_1samp(a, 0).confidence_interval(0.90).low, abs=1e-6
    )


def test_pooled_is_the_regression_with_one_level_per_workload() -> None:
    import statsmodels.api as sm

    rng = random.Random(1)
    groups = [
        WorkloadJobs(
            tuple(rng.gauss(level - 0.1, 0.05) for _ in range(n)),
            tuple(rng.gauss(level, 0.05) for _ in range(m)),
        )
        for level, n, m in ((0.0, 20, 3), (0.3, 7, 2), (-0.2, 11, 1))
    ]
    found = pooled([*groups, WorkloadJobs((0.1, 0.2))])
    y, x = [], []
    for i, g in enumerate(groups):
        for side, values in ((1.0, g.advised), (0.0, g.left)):
            assert not isinstance(values, JobSample)
            for value in values:
                y.append(value)
                x.append([side, *(float(i == j) for j in range(3))])
    fit = sm.OLS(np.array(y), np.array(x)).fit()
    low, high = fit.conf_int(0.10)[0]
    assert found is not None and found.lo is not None and found.hi is not None
    assert math.log1p(found.change) == pytest.approx(fit.params[0])
    assert (math.log1p(found.lo), math.log1p(found.hi)) == pytest.approx((low, high))
    assert (found.advised, found.left) == (38, 6)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(7)
    inside = 0
    for _ in range(400):
        group = WorkloadJobs(
            tuple(rng.gauss(-0.08, 0.10) for _ in range(30)),
            tuple(rng.gauss(0.0, 0.05) for _ in range(6)),
        )
        found = welch(group)
        assert found is not None and found.lo is not None and found.hi is not None
        inside += found.lo <= math.expm1(-0.08) <= found.hi
    assert 0.86 <= inside / 400 <= 0.94


def test_few_jobs_give_a_number_but_no_interval() -> None:
    found = welch(WorkloadJobs((-0.1, -0.1, -0.1, -0.1, -0.1), (0.0, 0.0, 0.0)))
    assert found is not None and found.lo is None and found.hi is None
    assert found.change == pytest.approx(math.expm1(-0.1))
    alone = against_prediction(WorkloadJobs((-0.1, -0.2)))
    assert alone is not None and alone.lo is None and alone.basis == "prediction"
    together = pooled([WorkloadJobs((-0.1, -0.1), (0.0,))])
    assert together is not None and together.lo is None


def test_nothing_to_compare() -> None:
    assert welch(WorkloadJobs((), (1.0,))) is None
    assert welch(WorkloadJobs((1.0,), ())) is None
    assert against_prediction(WorkloadJobs(())) is None
    assert pooled([]) is None
    assert pooled([WorkloadJobs((), (1.0,))]) is None
    assert share_interval(0, 0) is None
    assert log_ratio(0.0, 1.0) is log_ratio(1.0, 0.0) is log_ratio(None, 1.0) is None
    assert log_ratio(-1.0, -1.0) is None


@given(st.lists(st.floats(-1e100, 1e100), min_size=2, max_size=20))
@example([5e-324, 1e100])
def test_the_variance_is_the_librarys_to_the_last_bit(values: list[float]) -> None:
    assert variance(values) == statistics.variance(values)


def test_identical_jobs_have_an_interval_of_no_width() -> None:
    found = welch(WorkloadJobs((-0.1,) * 5, (0.0,) * 5))
    assert found is not None and found.lo == found.hi == pytest.approx(math.expm1(-0.1))


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_shares_interval_holds_the_share(inside: int, total: int) -> None:
    inside = min(inside, total)
    found = share_interval(inside, total)
    assert found is not None
    assert 0 <= found[0] <= inside / total + 1e-9 and inside / total - 1e-9 <= found[1] <= 1


def test_whole_seconds_are_not_taken_for_a_precise_measurement() -> None:
    same = (0.2,) * 6
    for group in (WorkloadJobs(same, (0.0,) * 6, 0.01), WorkloadJobs(same, (), 0.01)):
        found = pooled([group])
        assert found is not None and found.lo is not None and found.hi is not None
        assert found.lo < found.change < found.hi
    two = pooled([WorkloadJobs(same, (0.0,) * 6, 0.01), WorkloadJobs(same, (0.0,) * 6, 0.01)])
    assert two is not None and two.lo is not None and two.lo < two.change
