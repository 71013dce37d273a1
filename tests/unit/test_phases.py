"""Iterations, bursts, folding and early stops: hand-derived cases and small laws of our own."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import InputError
from advisor.phases import files
from advisor.phases.arrays import Floats
from advisor.phases.bursts import BurstTable, classify, cluster, dbscan, numbered
from advisor.phases.calmed import bouts_of, repeats
from advisor.phases.extrapolate import Paired, extrapolate
from advisor.phases.fold import KEEPS_STEP, fold
from advisor.phases.metered import Metered
from advisor.phases.pairing import Baseline, EarlyStop, Pairing, RunEvents, replay
from advisor.phases.sequence import IterationFinder, find_iterations
from advisor.phases.signal import find_periods
from advisor.phases.tracking import ClusterStability, TrackedCluster, matched_share, overlap
from tests.pictures import kept

# -- iterations ------------------------------------------------------------------------------------


def found(sites: Sequence[str]) -> list[tuple[int, int, dict[str, int]]]:
    phases = find_iterations([0.01 * i for i in range(len(sites))], sites)
    return [(p.iterations, p.events, p.rare) for p in phases]


def nested(seed: int, inner: str, least: int, most: int) -> list[str]:
    rng = random.Random(seed)
    turns = [["a", *list(inner) * rng.randint(least, most), "d"] for _ in range(40)]
    return ["setup", *(site for turn in turns for site in turn), "write", "end"]


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        (["h1", "h2", *"abbc" * 60, "tail"], [(60, 4, {})]),
        (["c", *"abc" * 30, "end"], [(30, 3, {})]),
        (list("aabab") * 20, [(20, 5, {})]),
        ([*"ab" * 80, *"cdd" * 50, "end"], [(80, 2, {}), (50, 3, {})]),
        ([*(list("ab") * 20 + ["out"]) * 5, "end"], [(100, 2, {"out": 5})]),
        ([*(list("ab") * 20 + ["out"]) * 12, "end"], [(240, 2, {"out": 12})]),
        ([*(list("abc") * 9 + ["o1", "o2"]) * 5], [(45, 3, {"o1": 5, "o2": 5})]),
        ((list("ab") * 20 + list("cdd") * 20) * 3, [(20, 2, {}), (20, 3, {})] * 3),
        (["x", *"a" * 50, "y"], [(50, 1, {})]),
        (["only", "a", "few", "events"], []),
        ([], []),
    ],
    ids=["inner pair", "rotated head", "repeats inside", "two phases", "rare", "rare, often",
         "rare pair", "phases in turn", "one site", "too few", "none"],
)  # fmt: skip
def test_the_outermost_loop_is_the_iteration(
    sites: list[str], expected: list[tuple[int, int, dict[str, int]]]
) -> None:
    assert found(sites) == expected


@pytest.mark.parametrize("inner", ["bc", "s", "bbc"])
def test_inner_loops_of_varying_length_are_not_the_iteration(inner: str) -> None:
    for seed, (least, most) in enumerate([(1, 3), (4, 14), (1, 30)]):
        phases = find_iterations(
            list(range(10**4))[: len(nested(seed, inner, least, most))],
            nested(seed, inner, least, most),
        )
        assert [(p.iterations, p.sites[0], p.sites[-1]) for p in phases] == [(40, "a", "d")]


def test_an_event_that_comes_now_and_then_inside_of_an_iteration_is_rare() -> None:
    rng = random.Random(5)
    sites = [s for _ in range(200) for s in ("a", "b", *(["log"] * (rng.random() < 0.04)), "c")]
    ((iterations, events, rare),) = found([*sites, "end"])
    assert abs(iterations - 200) <= 1 and events == 3 and rare["log"] >= sites.count("log") - 1


def test_no_period_is_invented_in_random_order() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        kinds = rng.randint(4, 9)
        assert found([str(rng.randrange(kinds)) for _ in range(rng.choice([60, 300, 1000]))]) == []


def test_events_are_taken_one_by_one_and_phases_are_known_on_the_way() -> None:
    finder = IterationFinder()
    for i, site in enumerate(["h", *"abc" * 50]):
        finder.feed(float(i), site)
        if i == 60:
            assert [p.iterations for p in finder.phases()] == [20]
    (phase,) = finder.phases()
    assert (phase.begin_s, phase.iterations) == (1.0, 50)
    assert phase.period_s == pytest.approx(3, 0.01)


# -- signals ---------------------------------------------------------------------------------------

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


# -- bursts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "least", "clusters"),
    [
        ([0, 1, 2, 10, 11, 12, 30], 2, [[0, 1, 2], [10, 11, 12]]),
        ([0, 1, 2, 10, 11, 12, 30], 3, [[0, 1, 2], [10, 11, 12]]),
        ([0, 1, 2, 10, 11, 12, 30], 4, []),
        ([0, 1, 2, 3, 4], 3, [[0, 1, 2, 3, 4]]),
        ([0, 0.9, 1.8, 2.8, 3.9], 3, [[0, 0.9, 1.8, 2.8]]),
    ],
)
def test_dbscan(points: list[float], least: int, clusters: list[list[float]]) -> None:
    labels = dbscan(np.array(points, float)[:, None], 1.0, least)
    assert [
        [p for p, label in zip(points, labels, strict=True) if label == n]
        for n in range(labels.max() + 1)
    ] == clusters


def test_the_rest_goes_to_the_nearest_clustered_point() -> None:
    known = np.array([[0.0], [1], [2], [10], [11], [12]])
    rest = np.array([[2.9], [4.0], [4.1], [8.0], [8.6], [13.9], [14.1], [6.0]])
    labels = classify(known, np.array([1, 1, 1, 2, 2, 2]), rest, 2.0)
    assert labels.tolist() == [1, 1, 0, 2, 2, 2, 0, 0]
    assert numbered(np.array([0, 1, -1, 1]), np.array([1.0, 2, 9, 2])).tolist() == [2, 1, 0, 1]


@pytest.mark.parametrize("subset", [1.0, 0.15])
def test_clusters_are_found_without_parameters(subset: float) -> None:
    rng = np.random.default_rng(4)
    truth = np.repeat([1, 2, 3], [500, 300, 200])
    centre = np.array([[0, 0], [8.0, 1.0], [7.0, 1.6], [7.2, 0.5]])[truth]
    axes = centre + rng.normal(0, 0.03, centre.shape)
    bursts = BurstTable(np.arange(1000) % 16, 10 ** axes[:, 0] / 1e9, axes)
    labels = cluster(bursts, subset=subset, seed=1).labels
    by_time = np.argsort(-np.bincount(truth, bursts.duration_s)[1:]).argsort() + 1
    assert (labels == by_time[truth - 1]).mean() > 0.99


def test_boxes_overlap_and_clusterings_become_stable() -> None:
    a = {"instructions": (100.0, 110.0), "ipc": (1.0, 1.1)}
    assert overlap(a, {"instructions": (116, 120), "ipc": (1.0, 1.1)})  # 115.5 >= 110.2
    assert not overlap(a, {"instructions": (122, 130), "ipc": (1.0, 1.1)})  # 115.5 < 115.9
    assert not overlap(a, {"instructions": (100, 110), "ipc": (1.3, 1.4)})  # 1.155 < 1.235
    other = {"instructions": (900.0, 910.0), "ipc": (1.0, 1.1)}
    both = [TrackedCluster(a, 9.0), TrackedCluster(other, 1.0)]
    assert matched_share(both, [TrackedCluster(a, 5.0)]) == 0.9
    for shares, at, required in (
        ([0.90, 0.86, 0.85], 3, 85), ([0.90, 0.84, 0.90, 0.90], 5, 80), ([0.60] * 6, None, 70),
    ):  # fmt: skip
        stability = ClusterStability()
        for share in shares:
            stability.matched(share)
        assert (stability.stable_at, stability.required) == (at, required)


# -- folding ---------------------------------------------------------------------------------------


def readings(every_s: float, iteration_s: float, count: int) -> tuple[Floats, Floats, Floats]:
    """Readings of 80, 140 and 110 W in 0..0.3..0.8..1 of iterations whose lengths scatter."""
    rng = np.random.default_rng(1)
    marks: Floats = np.concatenate([[0.0], np.cumsum(iteration_s * rng.normal(1, 0.02, count))])
    times = np.arange(0.003, marks[-1], every_s) + rng.normal(0, 0.001, 1)
    place = np.interp(times, marks, np.arange(count + 1))
    begun, part = np.floor(place).astype(int).clip(0, count - 1), place - np.floor(place)
    spent = np.interp(part, [0, 0.3, 0.8, 1], [0, 24, 94, 116])
    return times, marks[begun] * 116 + np.diff(marks)[begun] * spent, marks


@pytest.mark.parametrize(("every_s", "iteration_s", "count"), [(0.1, 0.73, 200), (1, 0.73, 600)])
def test_a_slow_meter_shows_the_inside_of_an_iteration(
    every_s: float, iteration_s: float, count: int
) -> None:
    folded = fold(*readings(every_s, iteration_s, count))
    assert folded is not None and len(folded.x) >= 20
    truth = np.array([80, 140, 110])[np.searchsorted([0.3, 0.8], folded.x)]
    assert np.sqrt(np.mean((folded.value - truth) ** 2)) < 0.05 * 116
    assert folded.per_iteration == pytest.approx(116 * iteration_s, rel=0.01)


def test_an_iteration_that_deviates_is_left_out() -> None:
    times, joules, marks = readings(0.1, 0.73, 200)
    marks[100:] += 3.0
    later = times > marks[99]
    folded = fold(np.where(later, times + 3.0, times), np.where(later, joules + 900, joules), marks)
    assert folded is not None and folded.kept == folded.iterations - 1
    assert folded.value.max() < 160


def test_a_meter_that_keeps_step_gives_the_mean_only() -> None:
    rng = np.random.default_rng(1)
    marks: Floats = np.arange(1501.0) * 0.1
    times: Floats = np.add(marks, rng.normal(0.005, 0.001, len(marks)))
    joules: Floats = np.linspace(0.0, 22500.0, len(marks))
    folded = fold(times, joules, marks)
    assert folded is not None and folded.answer == KEEPS_STEP
    assert folded.value == pytest.approx(150, rel=0.01)
    assert fold(times[:3], times[:3], marks[:3]) is None


def test_a_counter_that_wraps_around_or_stops() -> None:
    meter = Metered()
    for i in range(400):
        meter.feed(0.1 * i, (10.0 * i) % 1024)
    assert meter.at([0.0, 39.9])[1] == pytest.approx(3990, rel=0.005) and not meter.stopped
    for i in range(400, 500):
        meter.feed(0.1 * i, (10.0 * 399) % 1024)
    assert meter.stopped and meter.until == pytest.approx(39.9)


# -- early stops -----------------------------------------------------------------------------------


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


# -- files and the verb ----------------------------------------------------------------------------


def test_bursts_cluster_by_counters_of_ones_choice(
    tmp_path: Path, advisor: Callable[..., Any]
) -> None:
    """All have the same instructions and IPC; half of them moves a hundred times the bytes."""
    rows = [
        f"{i % 4},0.001,1000,2000,{10 ** (4 + 2 * (i % 2)) + i},{i % 2 * 500}" for i in range(80)
    ]
    path = tmp_path / "bursts.csv"
    path.write_text("\n".join(["process,duration_s,instructions,cycles,bytes,stalled", *rows, ""]))
    done = advisor(
        "phases", "cluster", path, "--by", "bytes,ipc", "--counters", "stalled", "--json"
    )
    assert done.code == 0, done.err
    one, other = done.json()["clusters"]
    assert {one["bursts"], other["bursts"]} == {40}
    rates = sorted(c["counters"]["bytes"]["per_s"] for c in (one, other))
    assert rates == pytest.approx([1e7, 1e9], rel=0.01)
    stalled = sorted(c["counters"]["stalled"]["per_instruction"] for c in (one, other))
    assert stalled == pytest.approx([0, 0.5], rel=0.01)
    text = advisor("phases", "cluster", path).out
    assert "GB/s" in text and "stalled" not in text
    assert "no column loads" in advisor("phases", "cluster", path, "--by", "loads").err
    assert "process is not a counter" in advisor("phases", "cluster", path, "--by", "process").err


@pytest.mark.parametrize(
    ("text", "read", "place"),
    [
        ("time_s,site\n0,a\nx,b\n", files.read_events, "line 3, column time_s: 'x' is not"),
        ("time_s,site\n1,a\n0,b\n", files.read_events, "line 3, column time_s: 0 is before"),
        ("time_s,site\n0,a\n1,\n", files.read_events, "line 3, column site: it is blank"),
        ('time_s,site\n0,"a\n1,b\n', files.read_events, "line 3: a quote is not closed"),
        ("time_s\n0\n", files.read_events, "line 1: there is no column site"),
        ("time_s,power_w\n0,1\n1,nan\n", files.read_signal, "line 3, column power_w: 'nan'"),
        ("time_s,energy_j\n0,1\n1\n", files.read_readings, "line 3, column energy_j: 1 cells"),
        ("time_s\n0\n0\n", files.read_marks, "line 3, column time_s: an iteration takes no"),
        ("process,duration_s,instructions,cycles\n0,1,0,1\n", files.read_bursts,
         "line 2, column instructions: 0 is not above 0"),
        ("process,duration_s,instructions,cycles\n", files.read_bursts, "there are no bursts"),
    ],
)  # fmt: skip
def test_a_bad_file_names_line_and_column(
    tmp_path: Path, text: str, read: Callable[[Path], object], place: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read(path)
    assert str(path) in str(error.value) and place in str(error.value)


def test_the_verb_prints_what_was_found(
    tmp_path: Path, advisor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i / 10},{'ab'[i % 2]}\n" for i in range(200))
    Path("events.csv").write_text(f"time_s,site\n{rows}")
    assert "1 phase" in advisor("phases", "period", "events.csv").out
    done = advisor("phases", "replay", "events.csv", "events.csv", "--within", "3%")
    assert "known within 3 %" in done.out
    Path("none.csv").write_text("time_s,site\n0,a\n1,b\n")
    answer = json.loads(advisor("phases", "period", "none.csv", "--json").out)
    assert (answer["phases"], answer["answer"]) == ([], "no period")
    refused = advisor("phases", "replay", "events.csv", "events.csv", "--readings", "none.csv")
    assert refused.code == 2 and "--base-readings" in refused.err


def test_a_folded_signal_is_drawn(advisor: Callable[..., Any], tmp_path: Path) -> None:
    times, joules, marks = readings(0.1, 0.73, 200)
    rows = "\n".join(f"{t:.6f},{j:.3f}" for t, j in zip(times, joules, strict=True))
    (tmp_path / "readings.csv").write_text(f"time_s,energy_j\n{rows}\n")
    (tmp_path / "marks.csv").write_text("time_s\n" + "\n".join(f"{m:.6f}" for m in marks) + "\n")
    done = advisor(
        "phases", "fold", tmp_path / "readings.csv", "--marks", tmp_path / "marks.csv",
        "--plot", tmp_path / "fold.svg",
    )  # fmt: skip
    assert done.code == 0 and "J in an iteration of" in done.out, done.err
    kept(tmp_path / "fold.svg", "fold")
