"""Choosing an option: goals, bounds, floors, confirmation, ties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.option import Option, Row, pack_options, row_of, unpack_rows
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


@given(
    st.lists(st.tuples(POSITIVE, POSITIVE, st.floats(0.0001, 0.3), st.booleans()), max_size=30),
    st.sampled_from(GOALS),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
)
def test_whatever_is_chosen_keeps_every_promise(
    values: list[tuple[float, float, float, bool]], goal: Goal, slowdown: float, saving: float
) -> None:
    options = [option(t, e, error=err, confirmed=ok) for t, e, err, ok in values]
    policy = Policy(goal=goal, max_slowdown=slowdown, min_saving=saving)
    result = select(candidates(*options), row_of(BASE), policy)
    assert result.reasons
    if result.chosen is not None:
        row = result.chosen.row
        assert row.confirmed
        assert row.time_s <= BASE.time_s * (1 + slowdown) * (1 + 1e-9)
        assert row.energy_j <= BASE.energy_j * (1 - saving) * (1 + 1e-9)


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
    row, exact = find_row(rows, 1, 1, 18, 0)
    assert not exact and row is not None
    assert (row.threads_per_node, row.freq_khz) == (16, 2_000_000)
    assert find_row(rows, 1, 1, 64, 0) == (None, False)
    assert find_row(rows, 2, 1, 16, 0) == (None, False)
