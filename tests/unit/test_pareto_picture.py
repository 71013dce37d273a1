"""The terminal picture: within its width, whatever the points."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.plotting import Scene, figure
from advisor.plotting.chart import ASCII
from advisor.plotting.terminal import draw

VALUES = st.floats(-1e9, 1e9, allow_nan=False)


def scene(points: list[tuple[float, float]]) -> Scene:
    return Scene("t", "energy (J)", "time (s)", points, [0], [0], len(points) - 1)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20), st.integers(1, 300))
def test_any_points_make_a_picture_of_the_width_asked_for(
    points: list[tuple[float, float]], width: int
) -> None:
    lines = draw(scene(points), width=width, height=8, marks=ASCII).splitlines()
    assert max(map(len, lines)) <= max(30, min(width, 100))
    assert "\n".join(lines).isascii()
    legend = next(i for i, line in enumerate(lines) if line.startswith("# front"))
    drawn = "".join(line.partition("|")[2] for line in lines[:legend])
    assert "B" in drawn


def test_marks_cover_one_another_by_importance_and_far_points_are_counted() -> None:
    points = [(1.0, 10.0), (2.0, 5.0), (2.2, 6.0), (3.0, 9.0), (1e6, 1e6)]
    picture = draw(Scene("t", "x", "y", points, [0, 1], [0, 1, 2], 3), width=60)
    body, front, legend = picture.partition("● front")
    assert front
    assert [body.count(mark) for mark in "●○◆"] == [2, 1, 1]
    assert "1 more outside the picture" in legend


def test_no_mark_of_a_file_is_cut_at_its_edge() -> None:
    points = [(1.0, 10.0), (2.0, 5.0), (2.2, 6.0), (3.8, 9.0), (3.8, 5.0), (40.0, 9.0)]
    spreads = [((x - 0.4, x + 0.4), (y - 3, y + 3)) for x, y in points]
    from matplotlib.figure import Figure  # here: it takes a second

    axes: Any = Figure().subplots()
    figure._draw(axes, Scene("t", "x", "y", points, [0, 1], [0, 1, 2], 3, spreads=spreads))
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    marks = [tuple(map(float, p)) for c in axes.collections for p in c.get_offsets()]
    lines = [p for line in axes.lines for p in zip(*line.get_data(), strict=True)]
    assert len(marks) == 5 and len(lines) == 2 + 8  # the far point is not drawn
    assert all(left < x < right and low < y < high for x, y in [*marks, *lines])
