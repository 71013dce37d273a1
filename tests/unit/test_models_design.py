"""Training designs: the thesis's twelve runs exactly, and sense on any other grid."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # which loads scipy.stats where a test needs it: a second
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.core.configuration import Configuration, SearchSpace
from advisor.errors import InputError
from advisor.models.design import hypercube, latin_hypercube, random_, uniform, within

FREQS = tuple(range(1_200_000, 2_200_001, 100_000))
THREADS = tuple((2, t) for t in range(4, 45, 4))
THESIS = SearchSpace("n", (64,), THREADS, FREQS)

FAST = settings(deadline=None, max_examples=60)


def shape(design: list[Configuration]) -> tuple[list[int], list[int], list[int]]:
    return (
        sorted({c.nodes for c in design}),
        sorted({c.threads_per_node for c in design}),
        sorted({c.freq_khz for c in design}),
    )


def test_the_twelve_runs_of_the_thesis() -> None:
    design = uniform(THESIS)
    assert shape(design) == ([64], [8, 20, 32, 44], [1_200_000, 1_900_000, 2_200_000])
    assert len(set(design)) == 12
    assert {c.ranks_per_node for c in design} == {2}


def test_48_runs_over_four_node_counts_are_those_twelve_at_each() -> None:
    design = uniform(SearchSpace("n", (20, 40, 60, 80), THREADS, FREQS), 48)
    assert len(set(design)) == 48
    for nodes in (20, 40, 60, 80):
        here = [c for c in design if c.nodes == nodes]
        assert shape(here) == ([nodes], [8, 20, 32, 44], [1_200_000, 1_900_000, 2_200_000])


@pytest.mark.parametrize(
    ("threads", "freqs", "samples", "expected"),
    [
        (range(4, 45, 4), [2_000_000], 6, ([8, 16, 24, 28, 36, 44], [2_000_000])),
        (
            range(4, 45, 4),
            [1_000_000, 2_000_000],
            12,
            ([8, 16, 24, 28, 36, 44], [1_000_000, 2_000_000]),
        ),
        (
            [1, 2, 4, 8, 16, 32, 64],
            FREQS,
            12,
            ([8, 16, 32, 64], [1_200_000, 1_900_000, 2_200_000]),
        ),
        (
            [1, *range(2, 33, 2)],
            range(1_200_000, 2_300_001, 100_000),
            12,
            ([6, 14, 24, 32], [1_200_000, 2_000_000, 2_300_000]),
        ),
        ([1, 2], [0], 12, ([1, 2], [0])),
        ([1, 2, 3, 4], FREQS, 12, ([1, 2, 3, 4], [1_200_000, 1_900_000, 2_200_000])),
        (range(4, 45, 4), FREQS, 9, ([8, 24, 44], [1_200_000, 1_900_000, 2_200_000])),
    ],
)
def test_the_rule_on_other_grids(
    threads: list[int], freqs: list[int], samples: int, expected: tuple[list[int], list[int]]
) -> None:
    space = SearchSpace("n", (1,), tuple((1, t) for t in threads), tuple(freqs))
    nodes, found_threads, found_freqs = shape(uniform(space, samples))
    assert (found_threads, found_freqs) == expected
    assert nodes == [1]


def axis(low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.sets(st.integers(low, high), min_size=1, max_size=9).map(lambda s: tuple(sorted(s)))


SPACES = st.builds(
    lambda nodes, threads, freqs: SearchSpace("n", nodes, tuple((1, t) for t in threads), freqs),
    axis(1, 100),
    axis(1, 128),
    axis(800_000, 3_000_000),
)


@FAST
@given(SPACES, st.integers(1, 60), st.integers(0, 2))
def test_every_design_has_the_runs_asked_for_out_of_the_space(
    space: SearchSpace, samples: int, kind: int
) -> None:
    design = (uniform, random_, latin_hypercube)[kind](space, samples)
    grid = set(space)
    assert len(design) == len(set(design)) == min(samples, len(grid))
    assert set(design) <= grid


@FAST
@given(SPACES, st.integers(1, 60))
def test_uniform_holds_the_fullest_configuration_so_the_baseline_is_measured(
    space: SearchSpace, samples: int
) -> None:
    full = Configuration("n", space.nodes[-1], 1, space.threads[-1][1], space.freqs_khz[-1])
    assert full in uniform(space, samples)


@FAST
@given(SPACES, st.integers(1, 60), st.integers(0, 2), st.randoms(use_true_random=False))
def test_what_must_be_included_takes_one_place(
    space: SearchSpace, samples: int, kind: int, rng: object
) -> None:
    grid = list(space)
    wanted = grid[len(grid) // 3]
    plain = (uniform, random_, latin_hypercube)[kind](space, samples)
    design = (uniform, random_, latin_hypercube)[kind](space, samples, wanted)
    assert wanted in design
    assert len(design) == len(plain)
    if kind != 2:  # a Latin hypercube is drawn anew around it
        assert len(set(design) - set(plain)) <= 1


def test_what_must_be_included_replaces_the_nearest() -> None:
    wanted = Configuration("n", 64, 2, 40, 2_200_000)
    design = uniform(THESIS, 12, wanted)
    assert set(uniform(THESIS)) - set(design) == {Configuration("n", 64, 2, 44, 2_200_000)}
    assert wanted in design


def test_the_seed_decides_and_nothing_else() -> None:
    for design in (random_, latin_hypercube):
        assert design(THESIS, 12, seed=3) == design(THESIS, 12, seed=3)
        assert design(THESIS, 12, seed=3) != design(THESIS, 12, seed=4)


@pytest.mark.parametrize("seed", [0, 1, 17])
@pytest.mark.parametrize("count", [1, 4, 12, 50])
def test_a_seed_draws_what_it_drew_with_scipy(count: int, seed: int) -> None:
    drawn = scipy.stats.qmc.LatinHypercube(d=3, rng=np.random.default_rng(seed)).random(count)
    assert (hypercube(count, seed) == drawn).all()


def test_a_latin_hypercube_meets_every_row_and_column_once() -> None:
    design = latin_hypercube(THESIS, 11, seed=1)
    assert len({c.threads_per_node for c in design}) == 11
    assert len({c.freq_khz for c in design}) == 11


def test_it_meets_them_with_the_job_as_written_among_its_points() -> None:
    """Of 50 seeds, 42 left a row or a column out when the job took the place of another point."""
    for seed in range(50):
        baseline = list(THESIS)[seed * 7 % len(THESIS)]
        design = latin_hypercube(THESIS, 11, baseline, seed)
        assert baseline in design
        assert len({c.threads_per_node for c in design}) == 11, seed
        assert len({c.freq_khz for c in design}) == 11, seed


def test_a_job_outside_of_the_space_takes_one_place_of_a_hypercube() -> None:
    outside = Configuration("n", 64, 2, 44, 3_000_000)
    design = latin_hypercube(THESIS, 11, outside, seed=2)
    assert outside in design
    assert len(set(design)) == 11
    assert len({c.threads_per_node for c in design}) == 11


def test_points_a_grid_lacks_move_to_their_nearest_neighbour() -> None:
    grid = [c for c in THESIS if c.threads_per_node != 20]
    design = within(uniform(THESIS), THESIS, grid)
    assert len(set(design)) == 12
    assert {c.threads_per_node for c in design} <= {8, 16, 24, 32, 44}


@pytest.mark.parametrize("samples", [0, -3])
def test_no_runs_are_no_design(samples: int) -> None:
    for design in (uniform, random_, latin_hypercube):
        with pytest.raises(InputError, match="needs at least 1 run"):
            design(THESIS, samples)
    with pytest.raises(InputError, match="search space is empty"):
        uniform(SearchSpace("n", (), (), ()))
