"""A whole job's options are the sum of its parts, and never better than these allow."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.job_history import (
    LEAST_JOBS,
    MOST_PARTS,
    JobHistory,
    JobPart,
    PastJob,
    longest_parts,
)
from advisor.core.option import Option, row_of
from advisor.core.whole_job import (
    CapResponse,
    KnownPart,
    at_worst,
    response_of,
    response_under,
    share_words,
    shares_of,
    whole_job,
)

FREE, CAP = 2_400_000, 1_600_000
PLACE = Configuration("bdw", 2, 4, 28, FREE)
WORST = at_worst(FREE, CAP)


def known(time_s: float, power_w: float | None, response: CapResponse | None) -> KnownPart:
    part = JobPart("lbm" if response else "other", 4, 28, 1, time_s)
    named = ("lbm", "default") if response else ("", "")
    return KnownPart(part, power_w, {CAP: response} if response else {}, named)


def past(parts: list[KnownPart], rest_s: float = 0.0) -> PastJob:
    time_s = sum(p.part.time_s for p in parts) + rest_s
    return PastJob("bdw", 2, time_s, 0.01, 4, 28, tuple(p.part for p in parts))


ratios = st.floats(0.5, FREE / CAP)
widths = st.floats(1.0, 1.2)
times = st.floats(1.0, 1e5)
powers = st.one_of(st.none(), st.floats(10.0, 1e4))


@st.composite
def responses(draw: st.DrawFn) -> CapResponse:
    time, energy = draw(ratios), draw(st.floats(0.5, 1.0))
    return CapResponse(time, time * draw(widths), energy, energy * draw(widths))


@st.composite
def parts(draw: st.DrawFn) -> list[KnownPart]:
    count = draw(st.integers(1, 5))
    return [
        known(draw(times), draw(powers), draw(st.one_of(st.none(), responses())))
        for _ in range(count)
    ]


@given(parts(), st.floats(0.0, 1e4))
def test_never_better_than_the_parts_allow(drawn: list[KnownPart], rest_s: float) -> None:
    job = past(drawn, rest_s)
    whole = response_under(CAP, FREE, shares_of(job, drawn))
    exact_s = (
        sum(p.part.time_s * p.responses.get(CAP, WORST).time for p in drawn) + rest_s * WORST.time
    )
    assert whole.time >= exact_s / job.time_s * (1 - 1e-9)
    assert whole.time <= WORST.time * (1 + 1e-9)
    # a saving is one of the known parts: no energy of the others is saved
    most_w = max((p.power_w for p in drawn if p.power_w), default=0.0)
    if most_w:
        before_j = sum((p.power_w or most_w) * p.part.time_s for p in drawn)
        after_j = sum(
            (p.power_w or most_w) * p.part.time_s * p.responses.get(CAP, WORST).energy
            for p in drawn
        )
        assert whole.energy >= after_j / before_j * (1 - 1e-9)
    assert whole.time_hi >= whole.time * (1 - 1e-9)
    assert whole.energy_hi >= whole.energy * (1 - 1e-9)


@given(responses(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_monotone_in_the_known_share(response: CapResponse, one: float, other: float) -> None:
    less, more = sorted((one, other))

    def at(share: float) -> CapResponse:
        drawn = [known(100 * share, 200.0, response), known(100 * (1 - share), 200.0, None)]
        return response_under(CAP, FREE, shares_of(past(drawn), drawn))

    assert at(more).time <= at(less).time * (1 + 1e-9)
    assert at(more).energy <= at(less).energy * (1 + 1e-9)


@given(responses(), times, st.floats(10.0, 1e4))
def test_at_share_one_it_is_the_programs_own_model(
    response: CapResponse, time_s: float, power_w: float
) -> None:
    drawn = [known(time_s, power_w, response)]
    whole = response_under(CAP, FREE, shares_of(past(drawn), drawn))
    assert tuple(whole) == pytest.approx(tuple(response))


@given(st.floats(0.001, 0.05))
def test_a_small_part_costs_its_share_at_most(share: float) -> None:
    response = CapResponse(1.02, 1.03, 0.85, 0.87)
    drawn = [known(1 - share, 300.0, response), known(share, 300.0, None)]
    whole = response_under(CAP, FREE, shares_of(past(drawn), drawn))
    assert whole.time - response.time <= share * (WORST.time - 1)
    assert whole.energy - response.energy <= share


def option(khz: int, time_s: float, energy_j: float) -> Option:
    place = replace(PLACE, freq_khz=khz)
    low, high = 1 / 1.02, 1.02
    return Option(
        place,
        time_s,
        time_s * low,
        time_s * high,
        energy_j,
        energy_j * low,
        energy_j * high,
        True,
        True,
    )


def test_options_of_a_whole_job() -> None:
    baseline, capped = row_of(option(FREE, 90.0, 9000.0)), row_of(option(CAP, 93.0, 7200.0))
    response = response_of(capped, baseline)
    assert response.time == pytest.approx(93 / 90) and response.energy == pytest.approx(0.8)
    assert response.time_hi == pytest.approx(93 / 90 * 1.02 ** math.sqrt(2))
    jobs = []
    for scale in (1.0, 1.02, 0.99):
        drawn = [known(90 * scale, 100.0, response), known(5.0, None, None)]
        jobs.append((past(drawn, 5.0), drawn))
    whole = whole_job(PLACE, jobs)
    assert whole is not None
    assert whole.written.time_s == pytest.approx(95.0)
    assert whole.written.energy_j == pytest.approx(9500.0)
    (cap,) = whole.capped
    assert cap.confirmed and cap.configuration == replace(PLACE, freq_khz=CAP)
    # the job with the least known share says what the next one may be like
    shares = shares_of(*jobs[2])
    expected = response_under(CAP, FREE, shares)
    assert cap.time_s / whole.written.time_s == pytest.approx(expected.time)
    assert cap.energy_j / whole.written.energy_j == pytest.approx(expected.energy)
    # single jobs differ by more than an option from another: only promises leave room for that
    assert whole.spread[0] > 0.03 and row_of(whole.written).time_sigma == 0
    assert cap.time_hi_s > cap.time_s * math.exp(whole.spread[0])
    assert share_words(jobs) == "90 % of its time is lbm, 10 % counted at the worst"


def test_nothing_known_or_no_energy_is_no_model() -> None:
    unknown = [known(90.0, 100.0, None)]
    assert whole_job(PLACE, [(past(unknown), unknown)] * 3) is None
    unmetered = [known(90.0, None, CapResponse(1.0, 1.0, 0.8, 0.8))]
    assert whole_job(PLACE, [(past(unmetered), unmetered)] * 3) is None


def test_a_cap_that_one_job_says_nothing_of_is_not_confirmed() -> None:
    drawn = [known(90.0, 100.0, CapResponse(1.0, 1.0, 0.8, 0.8))]
    unknown = [known(90.0, 100.0, None)]
    whole = whole_job(PLACE, [(past(drawn), drawn), (past(unknown), unknown)] * 2)
    assert whole is not None and not whole.capped[0].confirmed


def test_histories_of_jobs_alike() -> None:
    job = past([known(100.0, 100.0, None)])
    assert JobHistory((job,) * LEAST_JOBS).obstacle == ""
    assert "2 earlier" in JobHistory((job,) * 2).obstacle
    for other in (
        replace(job, nodes=3),
        replace(job, node_type="skl"),
        replace(job, ranks_per_node=2),
        replace(job, time_s=140.0),
    ):
        assert JobHistory((job, job, other, job)).obstacle
    history = JobHistory((job,), "worse")
    assert JobHistory.from_dict(history.to_dict()) == history


def test_many_parts_are_bounded_and_none_is_lost() -> None:
    every = [JobPart(f"p{i}", 1, 1, 2, float(i), 1.0) for i in range(1, 41)]
    kept = longest_parts(every)
    assert len(kept) == MOST_PARTS + 1 and kept[0].program == "p40" and kept[-1].program == ""
    assert sum(p.time_s for p in kept) == sum(p.time_s for p in every)
    assert sum(p.steps for p in kept) == 80
