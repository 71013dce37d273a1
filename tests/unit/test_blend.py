"""Mixing profiles: machines made of numbers, so that the right answer is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from advisor.ranking.blend import NodeTypeTimes, phase_on
from advisor.ranking.rank import rank
from advisor.ranking.similarity import Profile, Thresholds
from advisor.ranking.streams import AccessPattern, Characterisation, Phase, Stream, effective

STEPS = ((0.02, 25.0), (0.2, 5.0))
LIMITS = Thresholds(STEPS, STEPS, STEPS, 25, 25, 0.8)


def profiles(
    name: str, memory: float, compute: float, threads: int = 4, watts: float | None = None
) -> Iterator[Profile]:
    """A machine: a load takes ``memory`` ns times log2 of its size, an addition ``compute``."""

    def profile(family: str, ns: float, streams: tuple[Stream, ...], th: int) -> Profile:
        energy = ns * watts if watts else None
        return Profile(family, name, ns / 1000, streams, energy, th)

    for th in {threads, 1}:
        for family, access in (("mbw1lc", "C"), ("mbw1lp", "P"), ("mbw1rc", "C"), ("mbw1wp", "P")):
            kind: AccessPattern = "C" if access == "C" else "P"
            for size in (16, 256, 4096, 65536):
                for stride in (0,) if "r" in family else (8, 64):
                    ns = memory * math.log2(size) * (1 if stride == 8 else 4)
                    yield profile(family, ns, (Stream(size, stride, 8, kind),), th)
        yield profile("chain", compute, (), th)
        yield profile("fma", compute / 16, (), th)


def phase(ns: float, *streams: Stream, iterations: float = 1e9) -> Phase:
    return Phase("p", 1.0, ns * iterations / 1e9, iterations, ns / 1000, streams)


BIG = Stream(4096, 8, 8, "C")


def ratio(one: Phase, memory: float, compute: float, threads: int = 4) -> float:
    base = NodeTypeTimes(profiles("a", 1.0, 1.0))
    other = NodeTypeTimes(profiles("b", memory, compute, threads))
    found = phase_on(one, base, other, 4)
    assert found is not None
    return found.ratio


def test_a_phase_of_memory_alone_goes_with_memory() -> None:
    assert ratio(phase(12.0, BIG), 3.0, 1.0) == pytest.approx(3.0)
    assert ratio(phase(12.0, BIG), 1.0, 3.0) == pytest.approx(1.0)


def test_a_phase_without_streams_goes_with_arithmetic() -> None:
    assert ratio(phase(12.0), 3.0, 1.5) == pytest.approx(1.5)


def test_both_take_their_part() -> None:
    mixed = phase(24.0, BIG)
    assert 1.0 < ratio(mixed, 2.0, 1.0) < 2.0
    assert ratio(mixed, 1.0, 2.0) > ratio(mixed, 1.0, 1.5) > 1.0
    assert ratio(mixed, 2.0, 2.0) == pytest.approx(2.0)
    assert ratio(mixed, 1.0, 1.0) == pytest.approx(1.0)


def test_every_stream_counts_as_often_as_it_is_stepped_along() -> None:
    once = phase(24.0, BIG)
    twice = phase(24.0, BIG, BIG)
    seldom = phase(24.0, BIG, Stream(4096, 8, 8, "C", steps=0.1))
    assert ratio(once, 2.0, 1.0) < ratio(seldom, 2.0, 1.0) < ratio(twice, 2.0, 1.0)
    assert ratio(twice, 2.0, 1.0) == pytest.approx(2.0)


def test_fewer_threads_take_longer_and_private_zones_grow() -> None:
    assert ratio(phase(12.0), 1.0, 1.0, threads=2) == pytest.approx(2.0)
    shared = ratio(phase(12.0, BIG), 1.0, 1.0, threads=2)
    private = ratio(phase(12.0, Stream(4096, 8, 8, "P")), 1.0, 1.0, threads=2)
    assert shared == pytest.approx(2.0)
    assert private == pytest.approx(2.0 * 13 / 12, rel=0.02)


def test_sizes_and_strides_between_profiles() -> None:
    machine = NodeTypeTimes(profiles("a", 1.0, 1.0))

    def step(size: float, stride: int) -> float:
        return machine.step_us(Stream(size, stride, 8, "C"), 4) or math.nan

    at = [step(s, 8) for s in (256, 500, 1000, 4096)]
    assert at == sorted(at) and at[0] == pytest.approx(0.008) and at[-1] == pytest.approx(0.012)
    strides = [step(256, s) for s in (8, 16, 64, 4096)]
    assert strides == sorted(strides) and strides[-1] == strides[-2]
    assert step(10**7, 8) == pytest.approx(0.016)
    assert machine.step_us(BIG, 3) is None


def test_an_exact_profile_stands_before_its_neighbours() -> None:
    exact = Profile("mbw1lcX", "a", 0.5, (Stream(4000, 8000, 8, "C"),), None, 4)
    machine = NodeTypeTimes([*profiles("a", 1.0, 1.0), exact])
    assert machine.step_us(Stream(4000, 8000, 8, "C"), 4) == pytest.approx(0.5)


def test_intervals_are_wider_where_overlap_is_not_known() -> None:
    base, other = NodeTypeTimes(profiles("a", 1.0, 1.0)), NodeTypeTimes(profiles("b", 3.0, 1.0))
    errors = []
    for ns in (12.0, 24.0, 1200.0):
        found = phase_on(phase(ns, BIG), base, other, 4)
        assert found is not None
        errors.append(found.error)
    assert errors[1] > errors[0] and errors[1] > errors[2]


def test_an_unsure_profile_widens_the_blends_error_and_is_named() -> None:
    here = list(profiles("a", 1.0, 1.0))
    loose = [replace(p, spread=0.3) if p.streams == (BIG,) else p for p in profiles("b", 3.0, 1.0)]
    one = phase(12.0, BIG)
    sure = phase_on(one, NodeTypeTimes(here), NodeTypeTimes(profiles("b", 3.0, 1.0)), 4)
    unsure = phase_on(one, NodeTypeTimes(here), NodeTypeTimes(loose), 4)
    assert sure is not None and unsure is not None
    assert unsure.error == pytest.approx(math.hypot(sure.error, 0.3))
    found = rank(Characterisation("app", (one,), threads=4), [*here, *loose], "a", LIMITS, "blend")
    assert found.unsure == ("mbw1lc (4096 KB, stride 8 B) on b: 30 %",)


def test_the_rest_of_the_run_is_what_one_thread_does() -> None:
    fast = list(profiles("fast", 0.5, 0.5, threads=8))
    base = list(profiles("base", 1.0, 1.0))
    whole = Characterisation("app", (phase(12.0, BIG),), threads=4, time_s=24.0)
    ranking = rank(whole, [*base, *fast], "base", LIMITS, "blend")
    found = {e.node_type: e for e in ranking.estimates}
    assert found["base"].time_s == pytest.approx(24.0)
    # the phase by half the time per load and twice the threads, the rest by half alone
    assert found["fast"].time_s == pytest.approx(12.0 / 4 + 12.0 / 2)
    assert found["fast"].energy_ratio is None


def test_energy_goes_with_power_and_time() -> None:
    base = list(profiles("base", 1.0, 1.0, watts=100.0))
    frugal = list(profiles("frugal", 2.0, 2.0, watts=40.0))
    whole = Characterisation("app", (phase(12.0, BIG),), threads=4)
    ranking = rank(whole, [*base, *frugal], "base", LIMITS, "blend")
    found = {e.node_type: e for e in ranking.estimates}
    assert found["frugal"].energy_ratio == pytest.approx(2.0 * 0.4)


def sizes(threads: int, *streams: Stream) -> list[float]:
    return [s.size_kb for s in effective(streams, threads)]


def test_what_is_touched_between_two_passes_is_the_size_that_counts() -> None:
    long = Stream(10_000, 8, 8, "P")
    assert sizes(2, long) == [10_000]
    assert sizes(2, long, long, long) == pytest.approx([30_000] * 3)
    # a pass over a row takes 2048 steps, in which a line of the other is touched in each
    row, column = Stream(16, 8, 8, "P"), Stream(10_000, 8000, 8, "P")
    assert sizes(2, row, column)[0] == pytest.approx(16 + 10_000 * 64 / 8000)
    # all threads' private zones lie in the cache that a shared one is in
    shared = Stream(10_000, 8, 8, "C")
    assert sizes(4, shared, long) == pytest.approx([50_000, 12_500])
    seldom = Stream(10_000, 8, 8, "P", steps=0.01)
    assert sizes(2, long, seldom) == pytest.approx([10_100, 20_000])
