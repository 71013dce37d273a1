"""Runs ended early beside a complete one: hand-derived cases and small laws of our own."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from advisor.phases.arrays import Floats
from advisor.phases.calmed import bouts_of, repeats
from advisor.phases.extrapolate import Paired, extrapolate
from advisor.phases.metered import Metered
from advisor.phases.pairing import Baseline, EarlyStop, Pairing, RunEvents, replay


def run_of(
    stretches: Sequence[tuple[str, float]], scatter: float = 0.0, seed: int = 0
) -> RunEvents:
    """A run of (site, seconds), whose every stretch scatters."""
    rng = np.random.default_rng(seed)
    took = np.array([s for _, s in stretches]) * np.exp(rng.normal(0, scatter, len(stretches)))
    return RunEvents(
        tuple(np.concatenate([[0.0], np.cumsum(took)]).tolist()),
        (*(site for site, _ in stretches), "end"),
    )


def test_two_classes_and_a_tail() -> None:
    base = run_of([("h", 10), *[("a", 0.6), ("b", 0.4)] * 100, ("t", 5)])
    run = run_of([("h", 15), *[("a", 1.2), ("b", 0.6)] * 100, ("t", 5)])
    plan = Baseline(base).exact
    total = extrapolate(
        Paired(plan.time.values, np.diff(run.times[:22]), plan.classes, plan.units), 33.0
    )
    assert total is not None
    assert total.total == pytest.approx(203.25)  # 33 + 90 * 1.8 + 5 * 1.65
    assert total.unseen_share == pytest.approx(5 / 115)
    assert total.half >= 2.475  # 30 % of 8.25
    stop = replay(Baseline(base), run)
    assert stop.stopped and stop.time.total == pytest.approx(203.25, rel=1e-3)
    assert stop.stop_s < 0.2 * run.times[-1] and stop.iterations >= 8


def test_iterations_that_grow_alike_are_paired_not_averaged() -> None:
    def growing(ratio: float) -> RunEvents:
        return run_of([("a", ratio * (1 + 0.01 * i)) for i in range(1, 101)])

    assert replay(Baseline(growing(1.0)), growing(1.2)).time.total == pytest.approx(180.6)


def test_a_second_phase_is_waited_for() -> None:
    base = run_of([("a", 1.0)] * 50 + [("x", 2.0)] * 50)
    run = run_of([("a", 1.3)] * 50 + [("x", 1.8)] * 50)
    plan = Baseline(base).exact
    early = extrapolate(Paired(plan.time.values, np.full(20, 1.3), plan.classes, plan.units), 26.0)
    assert early is not None and early.unseen_share == pytest.approx(0.667, abs=0.001)
    assert early.half / early.total >= 0.2
    stop = replay(Baseline(base), run)
    assert stop.stopped and stop.iterations >= 58
    assert stop.time.total == pytest.approx(155.0)
    assert stop.stop_s / run.times[-1] < 0.65


def metered(run: RunEvents, watts: Callable[[float], float], every_s: float = 0.1) -> list[Any]:
    ticks = np.arange(0, run.times[-1] + every_s, every_s)
    joules = np.cumsum([watts(t) * every_s for t in ticks])
    return list(zip(ticks.tolist(), np.floor(joules).tolist(), strict=True))


def fed(pairs: Sequence[tuple[float, float]]) -> Metered:
    meter = Metered()
    for pair in pairs:
        meter.feed(*pair)
    return meter


def test_energy_is_metered_from_boundary_to_boundary() -> None:
    base, run = (run_of([("a", s)] * 100) for s in (1.0, 1.5))
    baseline = Baseline(base, fed(metered(base, lambda t: 300.0)))
    pairs = metered(run, lambda t: 220.0)
    stop = replay(baseline, run, pairs)
    assert stop.stopped and stop.energy is not None
    assert stop.time.total == pytest.approx(150)
    assert stop.energy.total == pytest.approx(33000, rel=0.01)
    slow = [pairs[i] for i in range(0, len(pairs), 20)]  # a reading in 2 s: 50 take 100 s
    assert replay(baseline, run, slow).stop_s >= 98
    stopped = replay(baseline, run, pairs[:100])
    assert not stopped.stopped and "last reading" in stopped.reason
    assert "baseline was not metered" in replay(Baseline(base), run, pairs).reason


def test_a_phase_speaks_for_its_energy_after_eight_metered_iterations() -> None:
    """The meter's last reading lies before the boundary, and a slow one spans iterations."""
    base, run = (run_of([("a", r)] * 100 + [("x", 1.2 * r)] * 100, 0.02, r) for r in (1, 2))
    for every_s in (0.03, 0.5):
        baseline = Baseline(base, fed(metered(base, lambda t: 300.0, every_s)))
        stop = replay(baseline, run, metered(run, lambda t: 220.0, every_s))
        assert stop.stopped and stop.energy is not None
        assert stop.iterations >= 109
        assert stop.energy.iteration_scatter > 0  # what moves whole iterations is known


@pytest.mark.parametrize("kinds", [2, 3, 5, 15])
def test_the_energy_of_what_was_never_seen_lies_in_its_interval(kinds: int) -> None:
    """Its class is drawn as those that were seen, and the interval is one of 90 %."""
    rng, inside = np.random.default_rng(kinds), 0
    for _ in range(1000):
        seen = rng.dirichlet(np.full(kinds, 3.0)) * 100
        ratio = np.exp(rng.normal(0, 0.27, kinds + 1))
        each = np.arange(kinds + 1)
        pair = Paired(np.array([*seen, 50.0]), seen * ratio[:-1], each, each)
        total = extrapolate(pair, 0.0, energy=True)
        assert total is not None
        inside += abs(total.total - 50 * ratio[-1]) <= total.half
    assert 0.86 <= inside / 1000 <= 0.97


def test_looks_beside_a_run_take_a_hundredth_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 0.2 s here; one on a file may take as long as it likes."""
    base, run = (run_of([("a", s)] * 400, 0.02, 7) for s in (1.0, 1.5))
    clock = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: 0.2 * next(clock))
    looks = []
    for beside in (False, True):
        looking = Pairing(Baseline(base), within=1e-9, metered=False, beside=beside)
        clock = itertools.count()
        for event in zip(run.times, run.sites, strict=True):
            looking.feed(*event)
        looks.append(next(clock) // 2)
    assert looks[0] > 150
    assert 0.2 * (looks[1] - 1) <= 0.5 + 0.01 * run.times[-1] and looks[1] >= 30


def test_another_sequence_runs_to_its_end_and_names_where_it_parts() -> None:
    base = run_of([("h", 1), *[("a", 1), ("b", 1)] * 50])
    for sites, named in (
        ([("h", 1), *[("x", 1), ("y", 1)] * 50], "event 2 is 'x', the baseline's is 'a'"),
        ([("h", 1), *[("a", 1), ("b", 1)] * 3, *[("b", 1), ("c", 1)] * 40], "event 8 is 'b'"),
        ([("h", 1), *[("a", 1), ("b", 1)] * 2], "event 6 is 'end'"),
    ):
        stop = replay(Baseline(base), run_of(sites))
        assert not stop.stopped and named in stop.reason
        assert stop.time.interval == (stop.stop_s, stop.stop_s)


def test_sequences_that_differ_are_aligned_by_iteration() -> None:
    def solver(seed: int, ratio: float) -> RunEvents:
        rng = random.Random(seed)
        turns = [[("a", 0.5), *[("s", 0.01)] * rng.randint(5, 9), ("d", 0.5)] for _ in range(150)]
        return run_of([(site, ratio * s) for turn in turns for site, s in turn])

    run = solver(2, 1.7)
    stop = replay(Baseline(solver(1, 1.0)), run)
    assert stop.stopped and stop.stop_s < 0.3 * run.times[-1]
    assert stop.time.total == pytest.approx(run.times[-1], rel=0.02)
    assert stop.time.half > 0.019 * stop.time.total  # their number may differ


def test_the_number_of_iterations_is_part_of_the_error() -> None:
    base, run = (run_of([("a", s)] * 100) for s in (1.0, 1.5))
    stop = replay(Baseline(base, other_counts=[98, 103]), run, within=0.05)
    assert stop.stopped and stop.time.total == pytest.approx(150)
    assert stop.time.interval[0] <= 147.1 and stop.time.interval[1] >= 153.9


def stops(scatter: float, bouts: float) -> list[tuple[EarlyStop, float]]:
    law = [("h", 6.0), *[("a", 0.3), ("b", 0.15), ("c", 0.1)] * 200, ("t", 3.0)]
    results = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        wave = np.zeros(602)
        for i in range(1, 602):
            wave[i] = 0.96 * wave[i - 1] + rng.normal(0, 0.28 * bouts)
        ratio = {site: 2 * np.exp(rng.normal(0, 0.15)) for site, _ in law}
        slow = [(s, d * ratio[s] * np.exp(w)) for (s, d), w in zip(law, wave, strict=True)]
        run = run_of(slow, scatter, seed + 100)
        results.append((replay(Baseline(run_of(law, scatter, seed)), run), run.times[-1]))
    return results


def test_a_tenth_of_a_run_is_enough_and_disturbed_runs_go_on() -> None:
    calm = stops(0.04, 0.0)
    assert all(stop.stopped for stop, _ in calm)
    assert np.median([stop.stop_s / whole for stop, whole in calm]) <= 0.13
    assert max(abs(stop.time.total / whole - 1) for stop, whole in calm) <= 0.03
    assert sum(abs(s.time.total - whole) <= s.time.half for s, whole in calm) >= 6
    disturbed = stops(0.04, 0.2)
    assert np.median([stop.stop_s / whole for stop, whole in disturbed]) > 0.5
    assert sum(abs(s.time.total - w) <= s.time.half + 1e-9 for s, w in disturbed) >= 7


def waves(strength: float, seed: int) -> Floats:
    """How much longer each of 200 iterations takes, in bouts of some ten of them."""
    rng, wave = np.random.default_rng(seed), np.zeros(200)
    for i in range(1, 200):
        wave[i] = 0.88 * wave[i - 1] + rng.normal(0, 0.47 * strength)
    return np.exp(wave)


def test_bouts_are_what_neighbouring_iterations_have_in_common() -> None:
    rng = np.random.default_rng(3)
    assert all(0.03 < bouts_of(waves(0.2, seed)) < 1.5 for seed in range(10))
    i = np.arange(200)
    trends = 1 + i / 100, 1.0 + (i % 20 == 19), rng.uniform(0.5, 1.5, 200)
    assert all(bouts_of(1.0 * trend) < 1e-3 for trend in trends)
    assert bouts_of(np.ones(15)) == 0.0 and bouts_of(np.ones(200)) == 0.0


def test_only_what_goes_up_and_down_alike_repeats_the_complete_run() -> None:
    rng, i = np.random.default_rng(3), np.arange(40)
    noise, warm_up = rng.normal(1, 0.02, (2, 40)), 1 + 3 * np.exp(-i / 12)
    assert repeats(2 * warm_up * noise[0], warm_up * noise[1])
    assert not repeats(noise[0], noise[1])
    assert not repeats((1 + 5 * (i % 20 == 9)) * noise[0], (1 + 5 * (i % 20 == 9)) * noise[1])


@pytest.mark.parametrize("seed", range(4))
def test_beside_a_complete_run_with_bouts_only_one_that_repeats_them_is_ended(seed: int) -> None:
    def run(wave: Floats, times: int) -> RunEvents:
        return run_of([("h", 5.0), *[("a", 0.5 * w) for w in wave]], 0.01, seed + times)

    complete = Baseline(run(waves(0.3, seed), 0))
    alone = replay(complete, run(waves(0.3, seed + 50), 1))
    assert not alone.stopped and "longer for a while, in bouts" in alone.reason
    again = run(waves(0.3, seed), 2)
    stop = replay(complete, again)
    assert stop.stopped and stop.stop_s < 0.5 * again.times[-1]
    assert abs(stop.time.total - again.times[-1]) <= stop.time.half
