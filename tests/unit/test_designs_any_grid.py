"""Every design works on any grid: one core count, two frequencies, gaps, several node counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.core.policy import Policy
from advisor.models.design import DESIGNS, within
from advisor.models.fit import fit_options
from advisor.models.sequential import explore


@st.composite
def grids(draw: st.DrawFn) -> tuple[SearchSpace, list[Configuration]]:
    """A search space of any shape, and the cells of it that exist (baseline always)."""
    nodes = draw(st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True))
    threads = draw(st.lists(st.integers(1, 128), min_size=1, max_size=6, unique=True))
    caps = draw(st.lists(st.integers(8, 40), min_size=1, max_size=5, unique=True))
    space = SearchSpace(
        "n",
        tuple(sorted(nodes)),
        tuple((1, t) for t in sorted(threads)),
        tuple(100_000 * f for f in sorted(caps)),
    )
    cells = list(space)
    missing = draw(st.sets(st.integers(0, len(cells) - 1), max_size=len(cells) // 3))
    kept = [c for i, c in enumerate(cells) if i not in missing or c == cells[-1]]
    return space, kept


@pytest.mark.parametrize("name", list(DESIGNS))
@given(grids(), st.integers(1, 30))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_design_is_distinct_cells_with_the_baseline(
    name: str, grid: tuple[SearchSpace, list[Configuration]], samples: int
) -> None:
    space, cells = grid
    baseline = list(space)[-1]
    found = within(DESIGNS[name](space, samples, baseline), space, cells)
    assert baseline in found
    assert len(found) == len(set(found)) <= min(samples, len(space))
    assert set(found) <= set(cells)


@pytest.mark.slow
@given(grids(), st.integers(5, 12))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_sequential_design_ends_on_any_grid(
    grid: tuple[SearchSpace, list[Configuration]], samples: int
) -> None:
    space, cells = grid
    baseline = list(space)[-1]
    if len(cells) < 5:
        return

    def run(c: Configuration) -> Observation:
        clock = c.freq_khz / 4e6
        time = 100 * (0.05 + 0.95 / c.cores) * (0.6 / clock + 0.4)
        power = c.nodes * (100 + 4 * c.threads_per_node * clock**2)
        return Observation(c, time, time * power)

    made = explore(
        lambda known: fit_options([run(c) for c in known], model="physical", space=space),
        space,
        cells,
        baseline,
        Policy(goal="min_energy"),
        samples,
    )
    assert baseline in made
    assert len(made) == len(set(made)) <= samples
    assert set(made) <= set(cells)
    assert all(math.isfinite(run(c).time_s) for c in made)
