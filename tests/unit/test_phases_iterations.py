"""Iterations found in a run's events: the outermost loop, whatever lies inside."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from advisor.phases.sequence import IterationFinder, find_iterations


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
    ids=[
        "inner pair",
        "rotated head",
        "repeats inside",
        "two phases",
        "rare",
        "rare, often",
        "rare pair",
        "phases in turn",
        "one site",
        "too few",
        "none",
    ],
)
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
