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
from advisor.plotting import robust_ends
from advisor.plotting.chart import ASCII, short
from advisor.plotting.figure import save
from advisor.plotting.named import NamedOptions
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


def test_lines_over_the_frequency_are_one_for_each_number_of_cores(grid: list[Option]) -> None:
    time, _ = lines("title", grid, grid[-1], over="frequency").panels
    assert isinstance(time, Lines) and time.x_label == "frequency (GHz)"
    assert [line.label for line in time.lines] == ["1 core", *(f"{n} cores" for n in range(2, 9))]
    assert time.lines[0].x == pytest.approx([1.2 + 0.1 * k for k in range(11)])
    assert time.lines[0].y[:2] == [150, 125]


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


def test_several_node_counts_are_in_one_picture(grid: list[Option]) -> None:
    more = [
        replace(o, configuration=replace(o.configuration, nodes=n))
        for n in range(2, 7)
        for o in grid
    ]
    both = [*grid, *more[: len(grid)]]
    (panel, _) = lines("title", both, grid[-1]).panels
    assert isinstance(panel, Lines)
    assert len(panel.lines) == 16 and {len(line.x) for line in panel.lines} == {8}
    assert [line.label for line in panel.lines][7:9] == ["1 node, 2.2 GHz", "2 nodes, 1.2 GHz"]
    time, other_time, *_ = surface("t", both, grid[-1]).panels
    assert isinstance(time, Surface) and isinstance(other_time, Surface)
    assert (time.z_label, other_time.z_label) == ("time (s), 1 node", "time (s), 2 nodes")
    assert time.scale == other_time.scale and time.baseline and not other_time.baseline
    of_ranks = replace(grid[0], configuration=Configuration("n", 2, 2, 2, 1_200_000))
    labels = [line.label for line in lines("t", [*grid, of_ranks], grid[-1]).panels[0].lines]  # type: ignore[union-attr]
    assert "1 node of 1 rank, 1.2 GHz" in labels and "2 nodes of 2 ranks, 1.2 GHz" in labels
    picture = lines("t", [*grid, *more], grid[-1])
    assert picture.title == "t, 2 more node counts not drawn"
    assert len(surface("t", [*grid, *more], more[-1]).panels) == 2 * 4


def test_what_a_picture_names_and_how_slow_a_job_may_become(
    grid: list[Option], tmp_path: Path
) -> None:
    baseline, fastest = grid[-2], grid[-1]
    thrifty = replace(grid[3], energy_j=900.0)
    options_shown = [*grid[:3], thrifty, *grid[4:]]
    named = NamedOptions.among(options_shown, baseline, fastest, 0.05)
    labels = named.labels(options_shown)
    assert labels == {
        len(grid) - 2: "job as written: 8 threads, 2.1 GHz",
        len(grid) - 1: "recommended, fastest: 8 threads, 2.2 GHz",
        3: "least energy: 1 thread, 1.5 GHz",
    }
    nothing = NamedOptions.among(options_shown, baseline, None, 0.05).labels(options_shown)
    assert nothing[len(grid) - 2].startswith("job as written, recommended: ")
    for make in (lines, surface):
        picture = make("a title", options_shown, baseline, named=named)
        for marks in (None, ASCII):
            text = draw_panels(picture, width=80, marks=marks)
            assert "\nR recommended, fastest: 8" in text or " R recommended, fastest: 8" in text
            assert "B job as written: 8" in text and "E least energy: 1" in text
            assert all(label in text for label in labels.values()) and "5 % slower" in text
        save(picture, tmp_path / "p.svg")
        svg = (tmp_path / "p.svg").read_text()
        assert all(label in svg for label in labels.values()) and "5 % slower" in svg
    (time, energy) = lines("t", options_shown, baseline, named=named).panels
    assert isinstance(time, Lines) and isinstance(energy, Lines)
    assert time.bound == pytest.approx(1.05 * baseline.time_s) and energy.bound is None
    (panel, _) = surface("t", options_shown, baseline, named=named).panels
    assert isinstance(panel, Surface)
    assert panel.named["job as written: 8 threads, 2.1 GHz"] == panel.baseline == (9, 7)
    assert panel.slow[9][7] == pytest.approx(1 / 1.05) and panel.slow[0][0] > 1


def test_axes_of_gpus_are_drawn_as_those_of_processors() -> None:
    def on(khz: int, watts: int) -> Option:
        extra = (("gpu_freq_khz", khz), ("gpu_power_w", watts))
        place = Configuration("n", 1, 1, 8, 2_400_000, extra)
        time_s, energy_j = 1e8 / khz + 3000 / watts, 1e-3 * khz + watts
        return Option(place, time_s, time_s, time_s, energy_j, energy_j, energy_j, measured=True)

    clocks = (900_000, 1_200_000, 1_410_000)
    both = [on(khz, watts) for khz in clocks for watts in (200, 300)]
    (panel, _) = lines("t", both, both[-1]).panels
    assert isinstance(panel, Lines) and panel.x_label == "GPU clock (GHz)"
    labels = ["GPU power limit 200 W", "GPU power limit 300 W"]
    assert [line.label for line in panel.lines] == labels
    assert [list(line.x) for line in panel.lines] == [[0.9, 1.2, 1.41]] * 2
    (map_, _) = surface("t", both, both[-1]).panels
    assert isinstance(map_, Surface)
    assert (map_.x_label, map_.y_label) == ("GPU clock (GHz)", "GPU power limit (W)")
    assert map_.baseline == (1, 2) and map_.z[0][0] == pytest.approx(1e8 / 9e5 + 15)
    one = both[1::2]
    (panel, _) = lines("t", one, one[-1]).panels
    assert isinstance(panel, Lines) and [line.label for line in panel.lines] == ["8 cores"]
    smaller = [replace(o, configuration=replace(o.configuration, threads_per_node=4)) for o in both]
    picture = surface("t", [*smaller, *both], both[-1])
    assert picture.title == "t, at GPU power limit 300 W"
    assert isinstance(of_cores := picture.panels[0], Surface)
    assert (of_cores.x_label, of_cores.y_label) == ("cores per node", "GPU clock (GHz)")


def test_a_disturbed_run_flattens_no_axis(grid: list[Option]) -> None:
    """Two neighbours that were disturbed together are no spike that is left out."""
    usual = surface("t", grid, grid[-1]).panels[0]
    bad = [replace(o, time_s=1e5) if i in (30, 31, 41, 42) else o for i, o in enumerate(grid)]
    panel, (of_lines, _) = surface("t", bad, bad[-1]).panels[0], lines("t", bad, bad[-1]).panels
    assert isinstance(panel, Surface) and isinstance(usual, Surface) and isinstance(of_lines, Lines)
    assert max(v for row in panel.z for v in row) == 1e5
    assert panel.scale[1] <= usual.scale[1] and of_lines.top <= 1.01 * usual.scale[1]
    zero = replace(panel, z=[[0.0, *row[1:]] for row in panel.z])
    assert "0 " in draw_panels(Panels("t", (zero,)), width=100)
    assert robust_ends([5.0] * 9 + [7.0]) == (5.0, 7.0)
    assert robust_ends([-1.0, 0.0, 1.0, 2.0, 90.0]) == (-1.0, 2.0)
    assert robust_ends([math.nan]) == (0.0, 1.0) and robust_ends([3.0, 1.0]) == (1.0, 3.0)


def test_observed_tells_trained_cells_from_others(grid: list[Option]) -> None:
    truth: dict[object, float] = {o.configuration: o.time_s * 1.05 for o in grid}
    trained = frozenset(o.configuration for o in grid[:5])
    (panel,) = observed("title", grid, {"time": truth}, trained).panels
    assert isinstance(panel, Observed)
    assert {k: len(v) for k, v in panel.groups.items()} == {"predicted": 83, "trained on": 5}
    assert all(x == pytest.approx(1.05 * y) for v in panel.groups.values() for x, y in v)


def test_runs_that_were_disturbed_are_counted_beside_the_predictions(
    grid: list[Option], tmp_path: Path
) -> None:
    """Three runs of up to an hour pressed 200 others into a corner; no prediction had a bar."""
    truth: dict[object, float] = {o.configuration: 1e3 * o.energy_j for o in grid}
    for o in grid[:3]:
        truth[o.configuration] *= 100
    larger = [
        replace(o, energy_j=e, energy_lo_j=0.9 * e, energy_hi_j=1.2 * e)
        for o, e in ((o, 1e3 * o.energy_j) for o in grid)
    ]
    picture = observed("title", larger, {"energy": truth}, frozenset())
    (panel,) = picture.panels
    assert isinstance(panel, Observed)
    assert panel.label == "energy (kJ)"
    assert panel.ends[1] < 10 * panel.ends[0] and panel.beyond == 3
    for (_, y), (low, high) in zip(
        panel.groups["predicted"], panel.intervals["predicted"], strict=True
    ):
        assert (low / y, high / y) == pytest.approx((0.9, 1.2))
    assert "3 more outside the picture" in draw_panels(picture)
    save(picture, tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    assert "3 more beyond the picture" in drawn and "90 % interval" in drawn


def test_of_many_lines_those_with_a_name_have_their_intervals(
    grid: list[Option], tmp_path: Path
) -> None:
    """Eleven bands, one over the other, showed none of them."""
    named = NamedOptions({"job as written": grid[-1], "fastest": grid[40]}, 0.05)
    for some, shown in ((grid, 2), (options(3, 8), 0)):
        base = some[-1]
        names = named if shown else NamedOptions({"job as written": base}, 0.05)
        panel = lines("t", some, base, named=names).panels[0]
        assert isinstance(panel, Lines)
        assert not shown or [v.label for v in panel.with_names] == ["1.9 GHz", "2.2 GHz"]
        save(Panels("t", (panel,)), tmp_path / "p.svg")
        drawn = (tmp_path / "p.svg").read_text()
        assert ("90 % intervals of named lines" in drawn) is bool(shown)
        assert ("FillBetweenPolyCollection" in drawn) is not bool(shown)


@pytest.mark.slow
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


def test_a_long_legend_lies_below_its_panel(tmp_path: Path) -> None:
    """Nine power limits and four named options lay over the lines and the next panel."""
    many = tuple(Line(f"limit {watts} W", (1, 2), (3, 4), (2, 3), (4, 5)) for watts in range(9))
    panel = Lines("cores per node", "time (s)", many)
    for lines_shown, below in ((many, True), (many[:3], False)):
        picture = tmp_path / "lines.svg"
        save(Panels("two", (replace(panel, lines=lines_shown),) * 2), picture)
        heights = {
            text: float(y)
            for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]*)<', picture.read_text())
        }
        last = f"limit {len(lines_shown) - 1} W"
        assert (heights[last] > heights["cores per node"]) == below
