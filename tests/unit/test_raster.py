"""Cells of a picture: points, covered areas, lines, zoom, round numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plotting.raster import Frame, ticks

FRAME = Frame((0.0, 10.0), (0.0, 20.0), 11, 21)


def test_corners_and_outside() -> None:
    assert FRAME.cell((0, 0)) == (0, 20)
    assert FRAME.cell((10, 20)) == (10, 0)
    assert FRAME.cell((3.2, 4.9)) == (3, 15)
    assert FRAME.cell((10.1, 5)) is None
    assert FRAME.cell((5, -0.5)) is None


def test_a_point_outside_has_its_place_at_the_edge_and_the_way_there() -> None:
    assert FRAME.edge((12, 5)) == ((10, 15), (1, 0))
    assert FRAME.edge((-1, 5)) == ((0, 15), (-1, 0))
    assert FRAME.edge((3, 25)) == ((3, 0), (0, -1))
    assert FRAME.edge((3, -1)) == ((3, 20), (0, 1))
    assert FRAME.edge((11, 60)) == ((10, 0), (0, -1))  # farther up than to the right


@given(st.integers(0, 10), st.integers(0, 20))
def test_the_middle_of_a_cell_lies_in_it(column: int, row: int) -> None:
    assert FRAME.cell(FRAME.point((column, row))) == (column, row)


def test_a_covered_area_is_the_cells_within() -> None:
    square = [(2.0, 5.0), (6.0, 5.0), (6.0, 9.0), (2.0, 9.0)]
    found = FRAME.covered(square)
    inside = {FRAME.cell((x, y)) for x in (3, 4, 5) for y in (6, 7, 8)}
    assert inside <= found
    assert all(2 <= c <= 6 and 11 <= r <= 15 for c, r in found)
    notch = [(2.0, 5.0), (6.0, 5.0), (6.0, 9.0), (4.0, 6.0), (2.0, 9.0)]
    assert FRAME.cell((4, 8)) not in FRAME.covered(notch)


def test_a_line_is_clipped_and_connected() -> None:
    line = FRAME.traced([(-10, -20), (20, 40)])
    assert FRAME.cell((0, 0)) in line and FRAME.cell((10, 20)) in line
    assert {c for c, _ in line} == set(range(11))
    assert all(0x2800 < ord(mark) <= 0x28FF for mark in line.values())
    assert FRAME.traced([(-5, 3), (-1, 9)]) == {}


def test_zoom_keeps_the_point_in_place_and_the_limits() -> None:
    limits = ((0.0, 10.0), (0.0, 20.0))
    half = FRAME.zoomed(0.5, (2.0, 18.0), limits)
    assert half.x == (1.0, 6.0) and half.y == (9.0, 19.0)
    assert half.zoomed(4.0, (2.0, 18.0), limits).x == (0.0, 10.0)
    moved = half.holding((9.0, 18.0))
    assert moved.cell((9.0, 18.0)) is not None
    assert math.isclose(moved.x[1] - moved.x[0], 5.0)
    assert moved.y == half.y


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 12))
def test_ticks_are_within_and_not_too_many(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    assert len(found) <= most
    slack = 1e-6 * max(abs(low), span)
    assert all(low - slack <= t <= low + span + slack for t in found)
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [(0, 10, 6, [0, 2, 4, 6, 8, 10]), (3.1, 4.05, 4, [3.25, 3.5, 3.75, 4.0]), (1, 1, 5, [])],
)
def test_ticks_are_round(low: float, high: float, most: int, expected: list[float]) -> None:
    assert ticks(low, high, most) == pytest.approx(expected)
