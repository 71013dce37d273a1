"""Lines, surfaces and observed-against-predicted, in the terminal and as files."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.configuration import Configuration
from advisor.core.option import Option
from advisor.core.units import format_change
from advisor.plotting.chart import ASCII, short
from advisor.plotting.figure import save
from advisor.plotting.panels import Line, Lines, Observed, Panels, Surface, lines, observed, surface
from advisor.plotting.terminal import draw_panels


def options(caps: int = 11, threads: int = 8) -> list[Option]:
    found = []
    for t in range(1, threads + 1):
        for k in range(caps):
            time, energy = 100 / t + 50 / (k + 1), 1000 + 10.0 * t * k
            c = Configuration("n", 1, 1, t, 1_200_000 + 100_000 * k)
            found.append(
                Option(
                    c,
                    time,
                    time * 0.9,
                    time * 1.1,
                    energy,
                    energy * 0.9,
                    energy * 1.1,
                    measured=k == 0,
                    on_front=t == threads,
                )
            )
    return found


@pytest.fixture
def grid() -> list[Option]:
    return options()


def test_every_cap_has_its_line_and_its_interval(grid: list[Option]) -> None:
    time, energy = lines("title", grid, grid[-1]).panels
    assert isinstance(time, Lines)
    assert isinstance(energy, Lines)
    assert [line.label for line in time.lines] == [
        "1.2 GHz",
        "1.3 GHz",
        "1.4 GHz",
        "1.5 GHz",
        "1.6 GHz",
        "1.7 GHz",
        "1.8 GHz",
        "1.9 GHz",
        "2 GHz",
        "2.1 GHz",
        "2.2 GHz",
    ]
    first = time.lines[0]
    assert isinstance(first, Line)
    assert list(first.x) == list(first.runs) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert first.low[0] == pytest.approx(135) and first.high[0] == pytest.approx(165)
    assert time.lines[1].runs == []
    assert isinstance(energy, Lines) and energy.y_label == "energy (J)"
    big = [replace(o, energy_j=1e3 * o.energy_j, energy_lo_j=9e5, energy_hi_j=2e6) for o in grid]
    assert isinstance(panel := lines("title", big, big[-1]).panels[1], Lines)
    assert panel.y_label == "energy (kJ)" and panel.lines[0].y[0] == pytest.approx(1000)
    assert len(lines("title", options(40), options(40)[-1]).panels[0].lines) == 16  # type: ignore[union-attr]


def test_a_surface_marks_front_and_baseline_and_leaves_gaps(grid: list[Option]) -> None:
    gap = [
        o
        for o in grid
        if o.configuration.threads_per_node != 3 or o.configuration.freq_khz != 1_300_000
    ]
    panel = surface("title", gap, gap[-1]).panels[0]
    assert isinstance(panel, Surface)
    assert math.isnan(panel.z[1][2])
    assert panel.baseline == (10, 7)
    assert panel.marked == {(i, 7) for i in range(11)}
    text = draw_panels(Panels("t", (panel,)), width=60)
    assert "B" in text and "*" in text and "columns not shown" in text


def test_only_what_is_like_the_baseline_is_drawn(grid: list[Option]) -> None:
    other = replace(grid[0], configuration=Configuration("n", 2, 1, 1, 1_200_000))
    picture = lines("title", [*grid, other], grid[-1])
    (panel, _), other_ranks = picture.panels, Configuration("n", 2, 2, 2, 1_200_000)
    assert isinstance(panel, Lines)
    assert len(panel.lines[0].x) == 8
    assert picture.title == "title, on 1 node" and lines("t", grid, grid[-1]).title == "t"
    of_ranks = surface("t", [*grid, replace(other, configuration=other_ranks)], grid[-1])
    assert of_ranks.title == "t, on 1 node of 1 rank"


def test_observed_tells_trained_cells_from_others(grid: list[Option]) -> None:
    truth: dict[object, float] = {o.configuration: o.time_s * 1.05 for o in grid}
    trained = frozenset(o.configuration for o in grid[:5])
    (panel,) = observed("title", grid, {"time": truth}, trained).panels
    assert isinstance(panel, Observed)
    assert {k: len(v) for k, v in panel.groups.items()} == {"predicted": 83, "trained on": 5}
    assert all(x == pytest.approx(1.05 * y) for v in panel.groups.values() for x, y in v)


def test_everything_can_be_drawn(grid: list[Option], tmp_path: Path) -> None:
    unknown = [
        replace(o, energy_j=math.nan, energy_lo_j=math.nan, energy_hi_j=math.nan) for o in grid
    ]
    one = options(1, 1)
    truth: dict[object, float] = {o.configuration: o.time_s for o in grid}
    pictures = [
        make("a title", some, some[-1])
        for make in (lines, surface)
        for some in (grid, unknown, one, options(1, 8), options(4, 1))
    ]
    pictures.append(observed("a title", grid, {"time": truth}, frozenset()))
    for i, picture in enumerate(pictures):
        for width in (60, 80):
            for marks in (None, ASCII):
                drawn = draw_panels(picture, width=width, marks=marks).splitlines()
                assert max(map(len, drawn)) <= width
                assert drawn[0] == "a title"
                assert marks is None or all(line.isascii() for line in drawn)
        path = tmp_path / f"{i}.svg"
        save(picture, path)
        assert "a title" in path.read_text()
    for picture in (pictures[0], pictures[5], pictures[-1]):  # one of each kind
        save(picture, path, dark=True)
        assert "#111418" in path.read_text()
    assert len(pictures[1].panels) == 1


def test_more_than_three_panels_stand_in_two_rows(grid: list[Option], tmp_path: Path) -> None:
    (panel, _) = lines("t", grid, grid[-1]).panels
    sizes = {}
    for count in (3, 4):
        save(Panels("t", (panel,) * count), tmp_path / "p.svg")
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', (tmp_path / "p.svg").read_text())
        assert box is not None
        sizes[count] = float(box[1]), float(box[2])
    assert sizes[3][0] > 2 * sizes[3][1] and sizes[4][0] < 2 * sizes[4][1]


def test_large_numbers_are_written_out() -> None:
    assert [short(v) for v in (131_072, 14_236.4, 9_999.4, 0.12345, 3e9)] == [
        "131072",
        "14236",
        "9999",
        "0.1235",
        "3e+09",
    ]


def test_no_change_has_no_minus() -> None:
    assert [format_change(v) for v in (-0.0, -0.0004, 0.091, -0.091)] == [
        "+0.0 %",
        "+0.0 %",
        "+9.1 %",
        "−9.1 %",
    ]
