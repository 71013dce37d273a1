"""What jobs tell of caps they tried: no step goes beyond the bound, even at the worst."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.cap_trials import HARM, MOST_RUNS, TriedCaps, tried_caps
from advisor.core.job_history import JobPart, PastJob
from advisor.core.policy import Policy

FREE = 2_400_000
STEPS = tuple(range(1_200_000, FREE + 1, 100_000))
POLICY = Policy()


def job(khz: int, time_s: float, energy_j: float | None, resolution_s: float = 0.01) -> PastJob:
    parts = (JobPart("app", 1, 28, 1, time_s, energy_j),)
    return PastJob("bdw", 1, time_s + 1, resolution_s, 1, 28, parts, khz)


WRITTEN = tuple(job(0, 100.0 + n / 10, 20_000.0) for n in (-5, 0, 5))


def tried(
    *capped: PastJob, policy: Policy = POLICY, written: Sequence[PastJob] = WRITTEN
) -> TriedCaps:
    result = tried_caps(written, capped, FREE, STEPS, policy)
    assert result is not None
    return result


def test_the_first_trial_is_one_step_and_bounded_by_the_clock() -> None:
    first = tried()
    assert (first.responses, first.next_khz, first.surprise) == ({}, 2_300_000, "")
    assert first.worst is not None
    assert first.worst.time < FREE / 2_300_000 <= first.worst.time_hi + 1e-12
    assert tried(policy=replace(POLICY, max_slowdown=0.04)).next_khz == 0  # a step is 4.3 %


def test_each_trial_is_a_step_below_the_lowest() -> None:
    done = [job(2_300_000, 100.0, 19_500.0), job(2_200_000, 100.2, 19_000.0)]
    assert tried(done[0]).next_khz == 2_200_000
    known = tried(*done)
    assert known.next_khz == 2_100_000
    assert known.responses[2_200_000].energy == pytest.approx(0.95, abs=1e-3)
    assert known.responses[2_200_000].energy_hi > 0.95


def test_a_cap_that_may_keep_the_bounds_is_tried_again_and_then_left() -> None:
    """Below it a job may take 4.2 % + 4.5 % longer: no further step, and not known well enough."""
    slower = job(2_300_000, 104.2, 19_000.0)
    for count in range(1, MOST_RUNS):
        assert tried(*[slower] * count).next_khz == 2_300_000
    assert tried(*[slower] * MOST_RUNS).next_khz == 0


@pytest.mark.parametrize(
    ("surprise", "words"),
    [
        (job(2_300_000, 100 * (1.05 + HARM) + 1, 19_000.0), "8 % longer"),
        (job(2_300_000, 101.0, 20_000 * (1 + HARM) + 80), "2 % more energy"),
    ],
)
def test_nothing_is_tried_after_a_surprise(surprise: PastJob, words: str) -> None:
    stopped = tried(surprise)
    assert stopped.next_khz == 0 and stopped.worst is None
    assert stopped.surprise.startswith("at 2.3 GHz a job took") and words in stopped.surprise


def test_what_was_not_metered_tells_nothing() -> None:
    blind = [replace(j, parts=(replace(j.parts[0], energy_j=None),)) for j in WRITTEN]
    assert tried_caps(blind, (), FREE, STEPS, POLICY) is None
    assert tried_caps(WRITTEN[:1], (), FREE, STEPS, POLICY) is None
    assert tried(job(2_300_000, 100.0, None)).next_khz == 2_300_000


def test_times_that_fall_are_averaged_and_do_not_lead_deeper() -> None:
    """By chance the lower cap looks faster: together they are slower, and the step is too far."""
    together = tried(job(2_300_000, 103.0, 19_600.0), job(2_200_000, 99.0, 19_000.0))
    assert together.responses[2_300_000].time == together.responses[2_200_000].time
    assert together.responses[2_200_000].time == pytest.approx(1.01, abs=0.001)


@given(
    waiting=st.floats(0, 1),
    bound=st.floats(0.01, 0.3),
    top=st.integers(15, 40),
    noise=st.floats(0, 0.005),
    seed=st.integers(0, 2**32),
)
def test_no_job_is_slower_than_its_bound_beyond_noise(
    waiting: float, bound: float, top: int, noise: float, seed: int
) -> None:
    """Whatever part of a job waits for the clock; 15 more jobs each."""
    draw = random.Random(seed)
    free = top * 100_000
    policy = replace(POLICY, max_slowdown=bound)
    ran: list[PastJob] = []
    for number in range(18):
        written, capped = [j for j in ran if not j.freq_khz], [j for j in ran if j.freq_khz]
        known = tried_caps(written, capped, free, range(1_000_000, free, 100_000), policy)
        khz = known.next_khz if known and number >= 3 else 0
        time = 1 - waiting + waiting * free / (khz or free)
        assert time <= (1 + bound) * math.exp(4 * noise) + 1e-9
        power = 0.4 + 0.6 * ((khz or free) / free) ** 2.5
        noises = (math.exp(draw.gauss(0, noise)) for _ in range(2))
        ran.append(job(khz, 100 * time * next(noises), 100 * time * power * next(noises)))
