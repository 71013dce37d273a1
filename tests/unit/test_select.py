"""Choosing an option: goals, bounds, floors, confirmation, ties."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.option import Z90, Option, Row, pack_options, row_of, unpack_rows
from advisor.core.policy import GOALS, Goal, Policy, Resources
from advisor.core.select import RUN_SIGMA, Candidate, Selection, find_row, one_sided, select, weigh


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
        ("min_energy", 800.0),
        ("power", 800.0),
        ("balanced", 850.0),
        ("edp", 850.0),
        ("performance", 930.0),
        ("min_time", 930.0),
    ],
)
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


@pytest.mark.parametrize("blob", [b"", b"\x07" + b"\0" * 100])
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


# -- exactly at the bounds -----------------------------------------------------------------------

PRODUCTS: dict[Goal, tuple[int, int]] = {
    "min_energy": (1, 0),
    "power": (3, 1),
    "balanced": (1, 1),
    "edp": (1, 1),
    "ed2p": (1, 2),
    "performance": (1, 3),
    "min_time": (0, 1),
}
"""Goal -> exponents of energy and time in the product that it makes least."""
FREE = Policy(max_slowdown=1.0, min_saving=0.0, confidence=0.5, resources="balanced")


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_goal_makes_its_product_least(goal: Goal, factor: float) -> None:
    of_energy, of_time = PRODUCTS[goal]
    for energy, time in ((0.9, 0.95), (0.8, 0.7), (0.7, 0.8)):  # of the baseline's
        other = 0.85  # the second's energy, and the time at which the products are equal
        if of_time:
            equal = (energy**of_energy * time**of_time / other**of_energy) ** (1 / of_time)
            second = option(100 * equal * factor, 1000 * other)
        else:
            second = option(80, 1000 * energy * factor)
        both = candidates(option(100 * time, 1000 * energy), second)
        policy = replace(FREE, goal=goal)
        first = chosen(select(both, row_of(BASE), policy)).energy_j == both[0][1].energy_j
        assert first == (factor > 1)


@pytest.mark.parametrize(("off", "passes"), [(0.0, True), (1e-6, False), (-1e-6, True)])
def test_no_slowdown_at_all_means_as_fast(off: float, passes: bool) -> None:
    policy = replace(FREE, goal="min_energy", max_slowdown=0.0)
    result = select(candidates(option(100 * (1 + off), 900)), row_of(BASE), policy)
    assert (result.chosen is not None) == passes
    assert ("slowdown" in codes(result)) != passes


@pytest.mark.parametrize(("off", "passes"), [(0.0, True), (1e-6, False), (-1e-6, True)])
def test_no_saving_at_all_means_no_more_energy(off: float, passes: bool) -> None:
    policy = replace(FREE, goal="min_time")
    result = select(candidates(option(90, 1000 * (1 + off))), row_of(BASE), policy)
    assert (result.chosen is not None) == passes


def test_what_is_no_better_than_the_job_as_written_changes_nothing() -> None:
    for goal in GOALS:
        result = select(candidates(option(100, 1000)), row_of(BASE), replace(FREE, goal=goal))
        assert result.chosen is None and codes(result) == ["baseline-is-best"]


@pytest.mark.parametrize("energy", [880.0, 999.0])
def test_an_option_of_unknown_energy_is_as_if_it_were_not_there(energy: float) -> None:
    """Whatever its place: what cannot be compared must not disturb the order of the others."""
    usual = [option(100, e) for e in (990.0, energy, 985.0, 950.0, 960.0)]
    rows = candidates(*usual, *(option(t, math.nan) for t in (80, 99, 100)))
    policy = replace(FREE, goal="min_energy")
    rng = random.Random(3)
    for _ in range(40):
        rng.shuffle(rows)
        result = select(rows, row_of(BASE), policy)
        assert chosen(result).energy_j == min(energy, 950.0)
        assert len(result.alternatives) == len(usual)


@pytest.mark.parametrize(
    ("confidence", "errors"),
    [
        (0.0, 0.0),
        (0.4, 0.0),
        (0.5, 0.0),
        (0.9, 1.2816),
        (0.99, 2.3263),
        (0.9999, 3.719),
        (1.0, 3.719),
    ],
)
def test_how_many_standard_errors_a_confidence_is(confidence: float, errors: float) -> None:
    """Never fewer than none: a low confidence lets no bound go."""
    assert one_sided(confidence) == pytest.approx(errors, abs=1e-4)


def test_a_run_is_known_to_two_percent() -> None:
    assert NormalDist().inv_cdf(0.975) * RUN_SIGMA == pytest.approx(0.02, rel=1e-4)


def test_no_more_than_six_are_shown_and_none_twice() -> None:
    policy = replace(FREE, goal="min_energy", min_saving=0.05)
    good = [option(100, 900 - e) for e in range(4)]
    bad = [option(100, 980 - e) for e in range(5)]
    shown = select(candidates(*bad, *good), row_of(BASE), policy).alternatives
    assert [w.row.energy_j for w in shown] == [897, 898, 899, 900, 976, 977]
    many = [option(100, 900 - e) for e in range(8)]
    shown = select(candidates(*many, *bad), row_of(BASE), policy).alternatives
    assert [w.row.energy_j for w in shown] == [893, 894, 895, 896, 897, 898]


def test_what_is_shown_of_an_option_has_intervals_of_both_errors() -> None:
    """At 90 %, each of the option's and the baseline's runs added in squares."""
    a, b = row_of(option(104, 900, error=0.03)), row_of(option(100, 1000, error=0.04))
    shown = weigh(("bdw", a), b, "min_energy").alternative()
    around = math.exp(math.hypot(math.log(0.97), math.log(0.96)))
    for effect, ratio in ((shown.time, 1.04), (shown.energy, 0.9)):
        assert effect.change == pytest.approx(ratio - 1)
        assert effect.lo == pytest.approx(ratio / around - 1)
        assert effect.hi == pytest.approx(ratio * around - 1)


# -- what is said --------------------------------------------------------------------------------


def told(*options: Option, policy: Policy) -> list[tuple[str, tuple[str, ...]]]:
    result = select(candidates(*options), row_of(BASE), policy)
    return [(r.code, r.details) for r in result.reasons]


def test_why_nothing_was_chosen() -> None:
    policy = replace(FREE, goal="min_energy", max_slowdown=0.05, min_saving=0.03)
    assert told(option(100, 980), option(100, 990), policy=policy) == [
        ("saving-too-small", ("2.0 %", "3 %"))
    ]
    assert told(option(100, 1100), policy=policy) == [("saving-too-small", ("0.0 %", "3 %"))]
    slow = option(110, 800)
    assert told(slow, slow, option(100, 990), policy=policy) == [
        ("slowdown", ("2", "5 %", "50 %")),
        ("saving-too-small", ("1.0 %", "3 %")),
    ]
    assert told(slow, policy=policy) == [("slowdown", ("1", "5 %", "50 %")), ("no-candidates", ())]
    hope = option(100, 800, confirmed=False)
    assert told(hope, policy=policy) == [("unconfirmed", ("1",)), ("no-candidates", ())]
    assert told(hope, option(100, 990), policy=policy)[0] == ("unconfirmed", ("1",))


def test_what_a_run_could_confirm() -> None:
    """Not what is too slow, saves too little or is worse for the goal, nor what is confirmed."""
    policy = replace(FREE, goal="min_time", max_slowdown=0.05, min_saving=0.03)
    others = [
        option(110, 800, confirmed=False),
        option(95, 990, confirmed=False),
        option(103, 800, confirmed=False),
        option(103, 800),
        option(95, math.nan, confirmed=False),
    ]
    assert "unconfirmed" not in {code for code, _ in told(*others, policy=policy)}
    hope = option(95, 900, confirmed=False)
    assert ("unconfirmed", ("1",)) in told(*others, hope, policy=policy)


def test_a_hope_lies_within_the_bounds_on_average_and_no_run_was_there() -> None:
    policy = replace(FREE, goal="min_energy", max_slowdown=0.05, min_saving=0.03, confidence=0.9)
    assert told(option(110, 800, confirmed=False), policy=policy) == [
        ("slowdown", ("1", "5 %", "90 %")),
        ("no-candidates", ()),
    ]
    assert told(option(100, 960, error=0.05), policy=policy) == [
        ("saving-too-small", ("4.0 %", "3 %"))
    ]
    faster = replace(FREE, goal="min_time")
    assert ("unconfirmed", ("1",)) in told(option(90, 1000, confirmed=False), policy=faster)
    assert told(option(100, 1000, confirmed=False), policy=faster) == [
        ("baseline-is-best", ("min_time",))
    ]


def test_the_best_saving_is_told() -> None:
    policy = replace(FREE, goal="min_energy", min_saving=0.3)
    assert told(option(100, 765), option(100, 790), policy=policy) == [
        ("saving-too-small", ("23.5 %", "30 %"))
    ]


def test_a_choice_says_what_it_changes() -> None:
    policy = replace(FREE, goal="min_energy")
    assert told(option(98, 900), policy=policy) == [
        ("chosen", ("energy −10.0 %, time −2.0 %",)),
        ("confirmed", ("100 %", "below 1 %", "0 %", "below 1 %")),
    ]


def test_what_is_confirmed_says_how_much_it_could_still_be_wrong() -> None:
    """Beyond 5 % of slowdown are 0.0096 of 1.04's logarithm, whose error is 0.0122: 0.79 of it."""
    policy = replace(FREE, goal="min_energy", max_slowdown=0.05, min_saving=0.03, confidence=0.6)
    assert told(option(104, 950, error=0.02), policy=policy)[-1] == (
        "confirmed",
        ("5 %", "22 %", "3 %", "5 %"),
    )


# -- ties ----------------------------------------------------------------------------------------


def picked(*options: Option, policy: Policy) -> tuple[Row, list[str]]:
    result = select(candidates(*options), row_of(BASE), policy)
    return chosen(result), codes(result)


@pytest.mark.parametrize(
    ("resources", "threads"), [("balanced", 16), ("thrifty", 8), ("greedy", 24)]
)
def test_resources_decide_between_equals(resources: Resources, threads: int) -> None:
    equal = [option(100, e, threads=t) for e, t in ((850, 16), (851, 24), (852, 8))]
    policy = replace(FREE, goal="min_energy", resources=resources)
    row, told_codes = picked(*equal, policy=policy)
    assert row.threads_per_node == threads
    assert ("tie-resources" in told_codes) == (threads != 16)


def test_resources_that_choose_the_best_itself_are_not_named() -> None:
    policy = replace(FREE, goal="min_energy", resources="thrifty")
    row, told_codes = picked(option(100, 850, threads=8), option(100, 851), policy=policy)
    assert row.threads_per_node == 8 and "tie-resources" not in told_codes


def test_cores_are_those_of_all_nodes() -> None:
    wide, small = option(100, 850, threads=16), option(100, 851, threads=12)
    two = replace(small, configuration=Configuration("bdw", 2, 1, 12, 2_000_000))
    policy = replace(FREE, goal="min_energy", resources="thrifty")
    assert picked(wide, two, policy=policy)[0].nodes == 1


@pytest.mark.parametrize(("off", "equal"), [(0.009, True), (0.011, False)])
def test_one_percent_is_a_tie(off: float, equal: bool) -> None:
    best = option(100, 800, threads=16, error=1e-9)
    other = option(100, 800 * math.exp(off), threads=8, error=1e-9)
    policy = replace(FREE, goal="min_energy", resources="thrifty")
    assert (picked(best, other, policy=policy)[0].threads_per_node == 8) == equal


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("share", [0.9, 1.1])
def test_what_the_confidence_cannot_tell_apart_is_a_tie(goal: Goal, share: float) -> None:
    """The errors of both options count, weighed as the goal weighs them; not the baseline's."""
    of_energy, of_time = PRODUCTS[goal]
    w = of_energy / (of_energy + of_time)
    error = 0.02
    sigma = -math.log1p(-error) / Z90
    both = 2**0.5 * math.hypot(w * sigma, (1 - w) * sigma)
    off = NormalDist().inv_cdf(0.9) * both * share
    best = option(60, 600, threads=16, error=error)
    factor = math.exp(off)
    other = option(60 * factor, 600 * factor, threads=8, error=error)
    policy = Policy(goal=goal, max_slowdown=0.0, min_saving=0.0, resources="thrifty")
    assert (picked(best, other, policy=policy)[0].threads_per_node == 8) == (share < 1)


def estimate(time_s: float, energy_j: float, **more: Any) -> Option:
    return replace(option(time_s, energy_j, confirmed=False, **more), estimated=True)


def test_an_estimate_must_surely_beat_what_was_measured() -> None:
    policy = replace(FREE, goal="min_energy", resources="balanced", confidence=0.9)
    measured = option(100, 850, error=0.01)
    better, equal = estimate(100, 700, error=0.01), estimate(100, 849, error=0.01)
    assert picked(measured, equal, policy=policy)[0] == row_of(measured)
    assert picked(measured, better, policy=policy)[0] == row_of(better)
    row, told_codes = picked(equal, policy=policy)
    assert row == row_of(equal) and "confirmed" not in told_codes


def test_of_estimates_that_with_the_least_sure_score_is_taken() -> None:
    policy = replace(FREE, goal="balanced", resources="balanced", confidence=0.9)
    far, near = estimate(90, 780, error=0.08, threads=8), estimate(90, 800, error=0.01)
    assert picked(far, near, policy=policy)[0] == row_of(near)
    assert picked(far, policy=policy)[0] == row_of(far)
    thrifty = replace(policy, resources="thrifty")
    within, beyond = (estimate(90, 800 * f, error=0.01, threads=8) for f in (1.015, 1.025))
    assert picked(near, within, policy=thrifty)[0] == row_of(within)
    assert picked(near, beyond, policy=thrifty)[0] == row_of(near)


def test_only_what_the_goal_weighs_makes_an_estimate_unsure() -> None:
    policy = replace(FREE, goal="min_energy", resources="balanced", confidence=0.9)
    slow, less = estimate(90, 800), replace(estimate(90, 795), time_lo_s=80.0)
    assert picked(slow, less, policy=policy)[0] == row_of(less)


def test_an_estimate_that_beats_what_was_measured_is_taken_however_unsure() -> None:
    policy = replace(FREE, goal="balanced", resources="balanced", confidence=0.9)
    best = estimate(90, 800, error=0.08)
    off = math.exp(0.055)  # more than both errors together, less than their sum
    measured = option(90 * off, 800 * off, error=1e-6)
    assert picked(best, measured, policy=policy)[0] == row_of(best)


# -- the baseline --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "near"), [(100, True), (85, True), (84, False), (117, True), (118, False)]
)
def test_how_near_a_neighbour_is(threads: int, near: bool) -> None:
    row, exact = find_row([row_of(option(1, 1, threads=100))], 1, 1, threads, 2_000_000)
    assert (row is not None) == near and exact == (threads == 100)


def test_a_cap_between_two_steps_has_the_nearer_one_and_ranks_are_not_guessed() -> None:
    rows = [row_of(option(1, 1, freq=f)) for f in (1_200_000, 2_000_000)]
    row, exact = find_row(rows, 1, 1, 16, 1_250_000)
    assert row == rows[0] and not exact
    row, exact = find_row(rows, 1, 1, 16, 1_200_000)
    assert row == rows[0] and exact
    assert find_row(rows, 1, 2, 16, 0) == find_row([], 1, 1, 16, 0) == (None, False)
