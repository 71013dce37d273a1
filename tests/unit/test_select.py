"""Choosing an option: goals, bounds, floors, confirmation, ties."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.option import Z90, Option, Row, pack_options, row_of, unpack_rows
from advisor.core.policy import GOALS, Goal, Policy
from advisor.core.select import Candidate, Selection, find_row, select


def option(
    time_s: float,
    energy_j: float,
    *,
    threads: int = 16,
    freq: int = 2_000_000,
    error: float = 0.001,
    confirmed: bool = True,
) -> Option:
    return Option(
        Configuration("bdw", 1, 1, threads, freq),
        time_s,
        time_s * (1 - error),
        time_s * (1 + error),
        energy_j,
        energy_j * (1 - error),
        energy_j * (1 + error),
        True,
        confirmed,
        True,
        False,
    )


BASE = option(100.0, 1000.0, threads=32, freq=2_200_000)


def candidates(*options: Option) -> list[Candidate]:
    return [("bdw", row_of(o)) for o in options]


def chosen(selection: Selection) -> Row:
    assert selection.chosen is not None
    return selection.chosen.row


def codes(selection: Selection) -> list[str]:
    return [r.code for r in selection.reasons]


def test_least_energy_within_the_slowdown() -> None:
    result = select(
        candidates(option(104, 900), option(103, 880), option(120, 500), option(99, 990)),
        row_of(BASE),
        Policy(goal="min_energy"),
    )
    assert chosen(result).energy_j == 880
    assert "slowdown" in codes(result)


def test_the_bound_holds_at_the_confidence_not_on_average() -> None:
    noisy = candidates(option(104.5, 800, error=0.02))
    assert select(noisy, row_of(BASE), Policy(goal="min_energy")).chosen is None
    sure = candidates(option(104.5, 800, error=0.001))
    assert select(sure, row_of(BASE), Policy(goal="min_energy")).chosen is not None


def test_a_saving_below_the_floor_changes_nothing() -> None:
    result = select(candidates(option(100, 980)), row_of(BASE), Policy())
    assert result.chosen is None
    assert "saving-too-small" in codes(result)
    assert result.alternatives


def test_unconfirmed_options_are_named_and_not_taken() -> None:
    result = select(
        candidates(option(100, 700, confirmed=False), option(101, 900)),
        row_of(BASE),
        Policy(goal="min_energy"),
    )
    assert chosen(result).energy_j == 900
    alone = select(candidates(option(100, 700, confirmed=False)), row_of(BASE), Policy())
    assert alone.chosen is None
    assert "unconfirmed" in codes(alone)


@pytest.mark.parametrize(
    ("goal", "energy"),
    [
        ("min_energy", 800.0), ("power", 800.0), ("balanced", 850.0), ("edp", 850.0),
        ("performance", 930.0), ("min_time", 930.0),
    ],
)  # fmt: skip
def test_goals_order_the_front(goal: Goal, energy: float) -> None:
    front = candidates(option(97, 930), option(100, 850), option(109, 800))
    assert chosen(select(front, row_of(BASE), Policy(goal=goal, max_slowdown=0.2))).energy_j == (
        energy
    )


def test_what_was_asked_for_can_be_best() -> None:
    slower = candidates(option(103, 960))
    result = select(slower, row_of(BASE), Policy(goal="min_time", min_saving=0.01))
    assert result.chosen is None
    assert "baseline-is-best" in codes(result)


def test_ties_go_to_the_resource_policy() -> None:
    equal = candidates(
        option(100, 850.0, threads=24), option(100, 852.0, threads=16), option(100, 900, threads=8)
    )
    base = row_of(BASE)
    goal: Goal = "min_energy"
    thrifty = select(equal, base, Policy(goal=goal, resources="thrifty"))
    assert chosen(thrifty).threads_per_node == 16
    assert "tie-resources" in codes(thrifty)
    assert chosen(select(equal, base, Policy(goal=goal, resources="greedy"))).threads_per_node == 24
    best = select(equal, base, Policy(goal=goal, resources="balanced"))
    assert chosen(best).energy_j == 850


def test_what_cannot_be_told_apart_goes_to_the_resource_policy_too() -> None:
    def pick(error: float) -> int:
        near = candidates(
            option(100, 850.0, threads=24, error=error), option(100, 870.0, threads=16, error=error)
        )
        return chosen(select(near, row_of(BASE), Policy(goal="min_energy"))).threads_per_node

    assert pick(0.001) == 24
    assert pick(0.03) == 16


def test_no_energy_known_or_no_candidates() -> None:
    unknown = option(100, math.nan)
    assert codes(select(candidates(unknown), row_of(unknown), Policy())) == ["energy-unknown"]
    assert codes(select([], row_of(BASE), Policy())) == ["no-candidates"]


POSITIVE = st.floats(1.0, 1e6)


UNSURE = option(100.0, 1000.0, threads=32, freq=2_200_000, error=0.04)
"""A baseline of which little is known: its error counts as much as an option's own."""


@dataclass(frozen=True)
class Near:
    """An option near both bounds: by how much (logarithms) it misses each at the confidence."""

    over_slowdown: float
    over_saving: float
    error: float
    confirmed: bool

    def under(self, policy: Policy) -> Option:
        """The option, where its error and the baseline's join as standard errors."""
        z = NormalDist().inv_cdf(policy.confidence)
        off = -math.log1p(-self.error) / Z90
        sigma = math.hypot(off, row_of(UNSURE).time_sigma)
        t = math.log1p(policy.max_slowdown) + self.over_slowdown - z * sigma
        e = math.log1p(-policy.min_saving) + self.over_saving - z * sigma
        own = UNSURE.time_s * math.exp(t), UNSURE.energy_j * math.exp(e)
        return option(*own, error=self.error, confirmed=self.confirmed)

    @property
    def passes(self) -> bool:
        """Both bounds hold, clearly of rounding."""
        return max(self.over_slowdown, self.over_saving) < 0


OVER = st.sampled_from([-0.2, -0.02, -0.0005, 0.0005, 0.02])
NEAR_BOTH = st.builds(Near, OVER, OVER, st.floats(0.001, 0.2), st.booleans())
BOUNDS = st.builds(
    Policy,
    goal=st.sampled_from(GOALS),
    max_slowdown=st.floats(0, 0.3),
    min_saving=st.floats(0, 0.3),
    confidence=st.sampled_from([0.5, 0.75, 0.9, 0.99]),
)
FEW = st.lists(NEAR_BOTH, max_size=4)
"""So few that the only one within both bounds is often there alone."""


@given(FEW, BOUNDS)
def test_whatever_is_chosen_keeps_every_promise(values: list[Near], policy: Policy) -> None:
    made = {row_of(v.under(policy)): v for v in values}
    result = select([("bdw", row) for row in made], row_of(UNSURE), policy)
    assert result.reasons
    if result.chosen is not None:
        taken = made[result.chosen.row]
        assert taken.passes and taken.confirmed
        both = math.hypot(result.chosen.row.time_sigma, row_of(UNSURE).time_sigma)
        assert result.chosen.t_sigma == pytest.approx(both)
    elif policy.goal == "min_energy" and policy.min_saving > 0.001:
        assert not any(v.passes and v.confirmed for v in made.values())


def test_half_of_the_drawn_requests_have_a_choice() -> None:
    """Else the property above would hold of a choice that lets every bound go, too."""
    rng = random.Random(1)
    made = 0
    for _ in range(400):
        over = [-0.2, -0.02, -0.0005, 0.0005, 0.02]
        near = Near(rng.choice(over), rng.choice(over), rng.uniform(0.001, 0.2), True)
        policy = Policy(goal="min_energy", max_slowdown=0.1, min_saving=0.03, confidence=0.9)
        result = select(candidates(near.under(policy)), row_of(UNSURE), policy)
        assert (result.chosen is not None) == near.passes
        made += near.passes
    assert 100 < made < 300


def test_a_saving_as_unsure_as_it_is_large_passes_no_floor() -> None:
    """2 % less, give or take 2 %, is no 3 %."""
    policy = Policy(goal="min_energy", min_saving=0.03)
    unsure = candidates(option(99, 980, error=0.02))
    assert select(unsure, row_of(BASE), policy).chosen is None
    assert select(candidates(option(99, 980)), row_of(BASE), policy).chosen is None
    assert select(candidates(option(99, 960)), row_of(BASE), policy).chosen is not None


@given(st.lists(st.tuples(POSITIVE, POSITIVE, st.floats(0.0001, 0.3), st.booleans()), max_size=20))
def test_packing_keeps_options(values: list[tuple[float, float, float, bool]]) -> None:
    options = tuple(option(t, e, error=err, confirmed=ok) for t, e, err, ok in values)
    rows = unpack_rows(pack_options(options))
    assert tuple(row.option("bdw") for row in rows) == options


def test_a_torn_blob_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"damaged \(100 bytes\)"):
        unpack_rows(pack_options([BASE])[:-1])


@pytest.mark.parametrize("blob", [b"", b"\x02" + b"\0" * 100])
def test_options_packed_in_another_format_are_an_error(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"packed in format (none|\d+), not 1"):
        unpack_rows(blob)


def test_a_baseline_is_found_or_its_neighbour_but_never_guessed() -> None:
    rows = [
        row_of(option(1, 1, threads=t, freq=f)) for t in (8, 16, 24) for f in (1_200_000, 2_000_000)
    ]
    row, exact = find_row(rows, 1, 1, 16, 1_200_000)
    assert exact and row is not None and row.threads_per_node == 16
    row, exact = find_row(rows, 1, 1, 16, 0)  # no cap is the grid's highest
    assert exact and row is not None and row.freq_khz == 2_000_000
    row, exact = find_row(rows, 1, 1, 16, 1_900_000)  # a cap beside it is not
    assert not exact and row is not None and row.freq_khz == 2_000_000
    row, exact = find_row(rows, 1, 1, 18, 0)
    assert not exact and row is not None
    assert (row.threads_per_node, row.freq_khz) == (16, 2_000_000)
    assert find_row(rows, 1, 1, 64, 0) == (None, False)
    assert find_row(rows, 2, 1, 16, 0) == (None, False)
