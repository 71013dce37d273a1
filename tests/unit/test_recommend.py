"""Which run to make next: expected improvement under the policy's bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.option import Z90, Option
from advisor.core.policy import GOALS, Goal, Policy, Training
from advisor.core.recommend import (
    LEAST_IMPROVEMENT,
    affordable,
    confirmed_choice,
    improvements,
    recommend,
)
from advisor.core.select import WEIGHTS

FREE = Policy(goal="min_energy", max_slowdown=0.05, min_saving=0.0, confidence=0.5)


def option(
    time_s: float,
    energy_j: float,
    *,
    threads: int = 16,
    time_sigma: float = 0.001,
    energy_sigma: float = 0.001,
    confirmed: bool = False,
) -> Option:
    t, e = math.exp(Z90 * time_sigma), math.exp(Z90 * energy_sigma)
    return Option(
        Configuration("bdw", 1, 1, threads, 2_000_000),
        time_s,
        time_s / t,
        time_s * t,
        energy_j,
        energy_j / e,
        energy_j * e,
        confirmed,
        confirmed,
    )


BASE = option(100.0, 1000.0, threads=32, time_sigma=1e-6, energy_sigma=1e-6, confirmed=True)


def test_a_sure_saving_is_worth_itself_and_a_sure_slowdown_nothing() -> None:
    saves, slow, dear = option(101, 900), option(120, 500), option(90, 1010)
    found = improvements([BASE, saves, slow, dear], BASE, FREE)
    assert found[0] == found[2] == found[3] == 0
    assert found[1] == pytest.approx(-math.log(0.9), abs=1e-3)
    assert recommend([BASE, saves, slow, dear], BASE, FREE) == saves


def test_half_a_chance_of_a_large_saving_may_be_worth_more_than_a_small_sure_one() -> None:
    small = option(100, 980, threads=8)
    large = option(105, 700, threads=24, time_sigma=0.05, energy_sigma=0.05)
    assert recommend([BASE, small, large], BASE, FREE) == large
    hopeless = option(140, 700, threads=24, time_sigma=0.05, energy_sigma=0.05)
    assert recommend([BASE, small, hopeless], BASE, FREE) == small


def test_what_is_confirmed_needs_no_run_and_others_must_beat_it() -> None:
    confirmed = option(100, 900, threads=8, confirmed=True)
    worse, better = option(100, 950, threads=16), option(100, 850, threads=24)
    assert recommend([BASE, confirmed, worse], BASE, FREE) is None
    assert recommend([BASE, confirmed, worse, better], BASE, FREE) == better
    assert confirmed_choice([BASE, confirmed, worse, better], BASE, FREE) == confirmed.configuration
    assert confirmed_choice([BASE, worse, better], BASE, FREE) is None
    assert recommend([BASE, worse, better], BASE, FREE, skip={better.configuration}) == worse


def test_the_margin_of_one_run_is_left() -> None:
    strict = replace(FREE, confidence=0.9, min_saving=0.03)
    assert recommend([BASE, option(104.5, 850)], BASE, strict) is None
    assert recommend([BASE, option(100, 962)], BASE, strict) is None
    assert recommend([BASE, option(102.5, 930)], BASE, strict) is not None


def test_without_energy_there_is_nothing_to_recommend() -> None:
    blind = replace(BASE, energy_j=math.nan, energy_lo_j=math.nan, energy_hi_j=math.nan)
    assert recommend([blind, option(90, 900)], blind, FREE) is None
    unknown = replace(option(90, 900), energy_j=math.nan)
    assert recommend([BASE, unknown], BASE, FREE) is None


@pytest.mark.parametrize("goal", ["min_energy", "balanced", "min_time"])
def test_the_expectation_is_that_of_many_draws(goal: Goal) -> None:
    policy = replace(FREE, goal=goal, min_saving=0.02)
    o = option(102, 950, time_sigma=0.03, energy_sigma=0.05)
    rng = np.random.default_rng(0)
    t = math.log(1.02) + 0.03 * rng.normal(size=400_000)
    e = (
        math.log(0.95)
        + (t - math.log(1.02))
        + math.sqrt(0.05**2 - 0.03**2) * rng.normal(size=t.size)
    )
    w = WEIGHTS[goal]
    kept = (t <= math.log(1.05)) & (e <= math.log(0.98))
    drawn = float(np.mean(np.where(kept, np.maximum(0.0, -(w * e + (1 - w) * t)), 0.0)))
    assert improvements([BASE, o], BASE, policy)[1] == pytest.approx(drawn, rel=0.05, abs=3e-4)


@given(
    st.lists(
        st.tuples(
            st.floats(50, 200),
            st.floats(500, 2000),
            st.floats(1e-4, 0.5),
            st.floats(1e-4, 0.5),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.sampled_from(GOALS),
)
def test_whatever_is_recommended_is_open_and_worth_a_run(
    values: list[tuple[float, float, float, float, bool]], goal: Goal
) -> None:
    options = [
        option(t, e, threads=i + 1, time_sigma=ts, energy_sigma=es, confirmed=ok)
        for i, (t, e, ts, es, ok) in enumerate(values)
    ]
    policy = Policy(goal=goal)
    worth = improvements([BASE, *options], BASE, policy)
    assert all(math.isfinite(v) and v >= 0 for v in worth)
    found = recommend([BASE, *options], BASE, policy)
    if found is not None:
        assert not found.confirmed
        assert max(worth) >= LEAST_IMPROVEMENT


def test_a_run_that_is_predicted_beyond_the_bound_by_more_than_its_error_is_not_made() -> None:
    wild = option(600, 500, time_sigma=0.9, energy_sigma=1.2)
    near = option(125, 700, threads=8, time_sigma=0.2, energy_sigma=0.2)
    assert not affordable(wild, BASE, FREE) and affordable(near, BASE, FREE)
    assert improvements([BASE, wild], BASE, FREE)[1] == 0
    assert recommend([BASE, wild], BASE, FREE) is None
    # where the policy allows as much, it may be run
    assert affordable(wild, BASE, replace(FREE, max_slowdown=10.0))


def test_what_a_run_costs_counts_against_what_it_may_find() -> None:
    cheap = option(100, 985)
    dear = option(180, 600, threads=8, time_sigma=0.6, energy_sigma=0.6)
    few = replace(FREE, training=Training(payback_runs=1))
    many = replace(FREE, training=Training(payback_runs=1000))
    assert recommend([BASE, cheap, dear], BASE, many) == dear
    assert recommend([BASE, cheap, dear], BASE, few) == cheap
    wide = replace(dear, configuration=replace(dear.configuration, nodes=4))
    assert improvements([BASE, wide], BASE, many)[1] < improvements([BASE, dear], BASE, many)[1]
