"""Laws of the front and the trade-off zone, whatever the data."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from advisor.core.pareto import (
    ErrorLimits,
    TradeOff,
    front,
    iterated,
    overlap,
    relaxed,
    trade_off,
)
from advisor.errors import InputError

FAST = settings(deadline=None, max_examples=100)
COARSE = st.integers(1, 12).map(float)
"""Many ties."""
FINE = st.floats(0.1, 1000.0, allow_nan=False)
CLOSE = st.floats(0.9, 1.1)
"""Points about as close as the error is wide."""
SIGNED = st.floats(-100.0, 100.0)


def table(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[float, float]]]:
    return st.lists(st.tuples(values, values), min_size=1, max_size=30)


TABLES = st.one_of(table(COARSE), table(FINE), table(CLOSE), table(SIGNED))
ERRORS = st.floats(0.0, 0.4)


def solve(
    rows: list[tuple[float, float]],
    error: float = 0.05,
    *,
    max_x: bool = True,
    max_y: bool = True,
) -> TradeOff:
    limits = ErrorLimits(error)
    return trade_off(
        [r[0] for r in rows],
        [r[1] for r in rows],
        max_x=max_x,
        max_y=max_y,
        x_limits=limits,
        y_limits=limits,
    )


def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] >= b[0] and a[1] >= b[1] and a != b


@FAST
@given(TABLES)
def test_the_front_is_what_nothing_beats(rows: list[tuple[float, float]]) -> None:
    expected = {i for i, r in enumerate(rows) if not any(beats(q, r) for q in rows)}
    assert set(solve(rows).front) == expected


@FAST
@given(TABLES, ERRORS, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_turning_an_axis_round_changes_nothing(
    rows: list[tuple[float, float]], error: float, mx: bool, my: bool, turn_x: bool, turn_y: bool
) -> None:
    sx, sy = (-1.0 if turn_x else 1.0), (-1.0 if turn_y else 1.0)
    plain = solve(rows, error, max_x=mx, max_y=my)
    turned = solve(
        [(sx * x, sy * y) for x, y in rows], error, max_x=mx != turn_x, max_y=my != turn_y
    )
    assert turned.front == plain.front
    assert turned.zone == plain.zone
    assert turned.extended_front == tuple((sx * x, sy * y) for x, y in plain.extended_front)
    assert turned.polygon == tuple((sx * x, sy * y) for x, y in plain.polygon)


@FAST
@given(table(FINE))
def test_the_front_of_inverted_values_is_the_front_the_other_way_round(
    rows: list[tuple[float, float]],
) -> None:
    inverted = [(1.0 / x, 1.0 / y) for x, y in rows]
    assume(len(set(inverted)) == len(set(rows)))
    assume(len({p[0] for p in inverted}) == len({p[0] for p in rows}))
    assume(len({p[1] for p in inverted}) == len({p[1] for p in rows}))
    assert solve(inverted, max_x=False, max_y=False).front == solve(rows).front


@FAST
@given(table(COARSE))
def test_swapping_the_axes_reverses_the_front(rows: list[tuple[float, float]]) -> None:
    swapped = front([r[1] for r in rows], [r[0] for r in rows])
    assert set(swapped) == set(front([r[0] for r in rows], [r[1] for r in rows]))


@FAST
@given(TABLES, ERRORS, st.randoms(use_true_random=False), st.booleans())
def test_order_and_duplicates_do_not_matter(
    rows: list[tuple[float, float]], error: float, rng: random.Random, minimise: bool
) -> None:
    plain = solve(rows, error, max_y=not minimise)
    order = list(range(len(rows))) + [rng.randrange(len(rows)) for _ in range(3)]
    rng.shuffle(order)
    mixed = solve([rows[i] for i in order], error, max_y=not minimise)
    for name in ("front", "zone"):
        before = set(getattr(plain, name))
        assert {order[i] for i in getattr(mixed, name)} == before
        assert len(getattr(mixed, name)) == sum(i in before for i in order)
    assert mixed.extended_front == plain.extended_front
    assert mixed.polygon == plain.polygon


@FAST
@given(TABLES, ERRORS, st.booleans(), st.booleans())
def test_the_front_is_in_the_zone(
    rows: list[tuple[float, float]], error: float, mx: bool, my: bool
) -> None:
    result = solve(rows, error, max_x=mx, max_y=my)
    assert set(result.front) <= set(result.zone)
    assert {rows[i] for i in result.front} <= set(result.extended_front)


@FAST
@given(TABLES, ERRORS, ERRORS, st.booleans(), st.booleans())
def test_more_error_never_takes_a_row_away(
    rows: list[tuple[float, float]], a: float, b: float, mx: bool, my: bool
) -> None:
    small, large = sorted((a, b))
    assert set(solve(rows, small, max_x=mx, max_y=my).zone) <= set(
        solve(rows, large, max_x=mx, max_y=my).zone
    )


@FAST
@given(TABLES, ERRORS, ERRORS)
def test_more_error_in_one_axis_never_takes_a_row_away(
    rows: list[tuple[float, float]], a: float, b: float
) -> None:
    small, large = sorted((a, b))
    x, y = [r[0] for r in rows], [r[1] for r in rows]
    near = ErrorLimits(small)
    zone = set(trade_off(x, y, x_limits=near, y_limits=near).zone)
    assert zone <= set(trade_off(x, y, x_limits=ErrorLimits(large), y_limits=near).zone)
    assert zone <= set(trade_off(x, y, x_limits=near, y_limits=ErrorLimits(large)).zone)


@FAST
@given(table(COARSE))
def test_without_error_the_zone_is_the_front(rows: list[tuple[float, float]]) -> None:
    result = solve(rows, 0.0)
    assert set(result.zone) == set(result.front)


@FAST
@given(table(FINE), st.floats(0.01, 0.2))
def test_what_is_farther_than_error_from_every_front_point_in_both_is_out(
    rows: list[tuple[float, float]], error: float
) -> None:
    result = solve(rows, error)
    best_x, best_y = max(r[0] for r in rows), max(r[1] for r in rows)
    for i, (x, y) in enumerate(rows):
        if any(
            rows[j][0] > x + 1.01 * error * best_x and rows[j][1] > y + 1.01 * error * best_y
            for j in result.front
        ):
            assert i not in result.zone


@pytest.mark.parametrize("minimise", [False, True])
def test_one_point_and_equal_points(minimise: bool) -> None:
    one = solve([(3.0, 4.0)], max_x=not minimise)
    assert one.front == one.zone == (0,)
    assert one.extended_front == ((3.0, 4.0),)
    same = solve([(3.0, 4.0)] * 5, max_x=not minimise)
    assert same.front == same.zone == (0, 1, 2, 3, 4)
    zero = solve([(0.0, 0.0)] * 2, max_y=not minimise)
    assert zero.zone == (0, 1)


def test_an_outer_limit_moves_the_outer_side_outwards() -> None:
    rows = [(10.0, 1.0), (8.0, 6.0), (1.0, 10.0)]
    x, y = [r[0] for r in rows], [r[1] for r in rows]
    plain = trade_off(x, y)
    wide = trade_off(x, y, x_limits=ErrorLimits(0.05, 0.1), y_limits=ErrorLimits(0.05, 0.1))
    assert max(p[0] for p in wide.polygon) == pytest.approx(11.0)
    assert max(p[1] for p in wide.polygon) == pytest.approx(11.0)
    assert set(plain.zone) <= set(wide.zone)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_no_number_is_refused_by_its_index(bad: float) -> None:
    with pytest.raises(InputError, match="row 2: y is"):
        trade_off([1.0, 2.0, 3.0], [1.0, 2.0, bad])


def test_no_rows_and_wrong_limits_are_refused() -> None:
    with pytest.raises(InputError, match="no row"):
        trade_off([], [])
    with pytest.raises(InputError, match="1 values of x but 2 of y"):
        trade_off([1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="means 5 %"):
        ErrorLimits(5.0)


def box(left: float, low: float, right: float, high: float) -> list[tuple[float, float]]:
    return [(left, low), (left, high), (right, high), (right, low)]


def test_two_zones_share_the_area_that_they_share() -> None:
    square = box(0, 0, 2, 2)
    assert overlap(square, square) == pytest.approx(1.0)
    assert overlap(square, box(1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert overlap(square, box(0.5, 0.5, 1, 1)) == pytest.approx(0.25 / 4)
    assert overlap(square, box(2, 0, 3, 2)) == 0.0
    triangle = [(0.0, 0.0), (2.0, 2.0), (2.0, 0.0)]
    assert overlap(square, triangle) == pytest.approx(0.5)
    assert overlap(triangle, [(0.0, 0.0), (0.0, 2.0), (2.0, 2.0)]) == pytest.approx(0.0)
    assert overlap(triangle, [(0.0, 2.0), (2.0, 2.0), (2.0, 0.0)]) == pytest.approx(1 / 3)
    line = [(0.0, 0.0), (1.0, 1.0)]
    assert overlap(line, line) == 1.0
    assert overlap(line, [(0.0, 0.0), (1.0, 2.0)]) == 0.0


@FAST
@given(table(FINE), table(FINE), st.floats(0.01, 0.3))
def test_the_overlap_of_zones_is_a_share_and_the_same_both_ways(
    rows: list[tuple[float, float]], others: list[tuple[float, float]], error: float
) -> None:
    one, other = solve(rows, error).polygon, solve(others, error).polygon
    share = overlap(one, other)
    assert -1e-9 <= share <= 1 + 1e-9
    assert overlap(other, one) == pytest.approx(share, abs=1e-6)
    assert overlap(one, one) == pytest.approx(1.0)


@FAST
@given(TABLES)
def test_iterated_fronts_are_fronts_of_what_is_left(rows: list[tuple[float, float]]) -> None:
    x, y = [r[0] for r in rows], [r[1] for r in rows]
    fronts = iterated(x, y, iterations=40)
    assert sorted(row for one in fronts for row in one) == list(range(len(rows)))
    assert fronts[0] == front(x, y)
    for earlier, later in itertools.pairwise(fronts):
        for row in later:
            assert any(x[i] >= x[row] and y[i] >= y[row] for i in earlier)
    assert iterated(x, y, iterations=2) == fronts[:2]


def test_a_relaxed_front_holds_what_is_within_error_of_its_rows() -> None:
    x, y = [10.0, 1.0, 9.6, 9.4, 5.0], [1.0, 10.0, 0.96, 0.96, 5.0]
    assert front(x, y) == (0, 4, 1)
    assert relaxed(x, y, front(x, y), 0.05, 0.05) == (0, 1, 2, 4)
    assert relaxed(x, y, front(x, y), 0.07, 0.05) == (0, 1, 2, 3, 4)
    assert relaxed(x, y, front(x, y), 0.0, 0.0) == (0, 1, 4)
