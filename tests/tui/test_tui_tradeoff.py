"""The trade-off page: picture, table and detail show one option; zoom and axes."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from typing import Any

import pytest
from advisor_tui import points
from advisor_tui.chart import Chart
from advisor_tui.session import Session
from advisor_tui.table import LazyTable

from advisor.views import tradeoff
from tests.tui.boards import LBM, boards

Play = Callable[..., Any]


def test_rows_of_the_list_are_made_once(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def rows(board: tradeoff.TradeOffView, numbers: Any) -> Any:
        made.extend(numbers)
        return points.rows(board, numbers)

    monkeypatch.setattr("advisor_tui.tradeoff.rows", rows)

    async def story(at: Any) -> None:
        await at.open_row(1)
        assert made and len(made) == len(set(made))

    play(session, story)


def test_the_arrows_walk_the_front_and_the_table_follows(session: Session, play: Play) -> None:
    board = boards(session, "cg-solver", "n=4e6").by_type["broadwell"]
    place = board.place("time", "energy")

    async def story(at: Any) -> None:
        await at.open_row(1)
        page = at.app.screen
        assert page.current == board.policy_at
        assert "★" in at.text and "◆" in at.text and "░" in at.text
        seen = []
        for _ in range(40):
            seen.append(page.current)
            detail = at.lines[-6:-3]
            o = board.options[page.current]
            assert f"{o.configuration.threads_per_node} threads" in detail[0]
            assert board.words(page.current) in detail[2]
            assert at.one("#points", LazyTable).cursor == page.shown.steps.index(page.current)
            await at.press("left")
            if page.current == seen[-1]:
                break
        times = [board.options[n].time_s for n in seen]
        assert times == sorted(times, reverse=True)
        assert set(seen) <= {*place.front, board.baseline, board.policy_at}
        assert page.current == page.shown.steps[0]
        await at.press("right", "down", "up", "right")
        assert page.current == page.shown.steps[2]
        await at.press("tab", "end")
        assert page.current == page.shown.steps[-1]
        assert re.search(r"\[.\]", at.text)

    play(session, story)


def test_the_table_says_all_about_an_option(session: Session, play: Play) -> None:
    board = boards(session, "cg-solver", "n=4e6").by_type["broadwell"]

    async def story(at: Any) -> None:
        await at.open_row(1)
        header = next(line for line in at.lines if " N  R   T" in line)
        assert [w in header for w in ("GHz", "Time", "Energy", "Against")] == [True] * 4
        row = next(line for line in at.lines if "▸●★" in line)
        c = board.options[board.policy_at or 0].configuration
        assert f"{c.freq_khz / 1e6:g}" in row and str(c.threads_per_node) in row
        assert "±" in row and "% less energy" in row and "slower" in row
        assert "Node types, fastest first" in at.text

    play(session, story, (160, 50))


def test_measured_predicted_and_estimated_look_different(own_store: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        await at.press("v")
        picture = at.one("#chart", Chart).picture
        marks = {(m.char, m.role) for m in picture.marks}
        assert {c for c, _ in marks} == {"●"}  # a fully measured grid
        await at.press("escape")
        await at.open_row(5)
        picture = at.one("#chart", Chart).picture
        marks = {(m.char, m.role) for m in picture.marks}
        assert {"●", "○"} == {c for c, _ in marks}
        chart = at.one("#chart", Chart)
        styles = [chart._style(role) for role in ("measured", "predicted", "outside", "zone")]
        assert len({(s.color, s.dim) for s in styles}) == 4
        await at.press("escape")
        await at.open_row(9)
        assert "render / frame" in at.text and "energy ESTIMATED" in at.lines[1]
        assert "◌" in at.text and "◍" in at.text and "○" not in at.text
        assert "~" in next(line for line in at.lines if line.startswith("▸"))
        assert "energy about" in at.text and "energy estimated" in at.text

    play(own_store, story)


def test_an_end_of_the_front_keeps_its_name_under_the_cursor(session: Session, play: Play) -> None:
    """The interval of the point lay over the word: ``stest``."""

    async def story(at: Any) -> None:
        await at.press("enter")  # cg-solver / n=3e7, whose jobs as written are the fastest
        page = at.app.screen
        assert page.current == page.board.baseline and "]─fastest, as written " in at.text

    play(session, story)


def test_points_beyond_the_window_are_arrows_at_its_edge_until_all_is_shown(
    session: Session, play: Play
) -> None:
    async def story(at: Any) -> None:
        await at.press("home", "down", "enter")
        chart, page = at.one("#chart", Chart), at.app.screen
        (left, right), (low, high) = chart.window
        beyond = [
            p
            for n, p in enumerate(chart.picture.points)
            if not (left <= p[0] <= right and low <= p[1] <= high) and n not in page.board.disturbed
        ]
        picture = at.lines[4 : 4 + chart.size.height - 2]
        assert beyond and all(x > right for x, _ in beyond)
        edge = chart._gutter + chart._frame.columns - 1
        assert {line[edge : edge + 1] for line in picture} >= {"→"} and "→ farther" in at.text
        await at.press("0")
        assert chart.window == chart.picture.limits
        assert not any("→" in line for line in at.lines[4 : 4 + chart.size.height - 2])

    play(session, story)


def test_the_point_under_the_cursor_has_its_name_beside_it(session: Session, play: Play) -> None:
    """Where nothing is drawn: no sign, no other word and no line is covered by it."""

    async def story(at: Any) -> None:
        await at.press("home", "down", "enter")
        chart, page = at.one("#chart", Chart), at.app.screen
        named, missing = 0, 0
        for _ in range(12):
            await at.press("left")
            if page.current in chart.picture.labels:
                continue
            words = chart.picture.name(page.current)
            number, cells = chart._cursors
            assert number == page.current
            drawn = {cell for cell, mark in chart._cells.items() if mark.role != "bound"}
            assert not cells.keys() & (drawn | chart._texts.keys())
            missing += not cells
            if cells:
                named += 1
                rows = {row for _, row in cells}
                assert len(rows) == 1 and abs(rows.pop() - frame_row(chart, number)) <= 2
                assert any(words in line for line in at.lines[4 : 4 + chart.size.height])
        assert named >= 8 and not missing, (named, missing)

    def frame_row(chart: Any, number: int) -> int:
        _, row = chart._frame.cell(chart.picture.points[number])
        return int(row)

    play(session, story, (200, 60))


def test_zoom_by_keys_and_wheel_and_click(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(LBM)
        chart, page = at.one("#chart", Chart), at.app.screen
        home = chart.window
        await at.press("plus")
        near = chart.window
        assert near[0][1] - near[0][0] < home[0][1] - home[0][0]
        point = chart.picture.points[page.current]
        assert near[0][0] <= point[0] <= near[0][1]
        await at.press("plus", "plus", "plus", *["right"] * 40)
        last = chart.picture.points[page.current]
        assert chart.window[0][0] <= last[0] <= chart.window[0][1]  # the window follows
        await at.press("0")
        assert chart.window == home
        await at.press("0")
        assert chart.window == chart.picture.limits != home
        await at.press("minus")
        assert chart.window == chart.picture.limits
        await at.press("0")
        from textual.events import MouseScrollUp

        chart.post_message(MouseScrollUp(chart, 40, 4, 0, -1, 0, False, False, False, 40, 4, None))
        await at.settle()
        assert chart.window[0][1] - chart.window[0][0] < home[0][1] - home[0][0]
        await at.press("0")
        cell = chart._frame.cell(chart.picture.points[page.shown.steps[3]])
        await at.pilot.click("#chart", offset=(cell[0] + chart._gutter, cell[1]))
        await at.settle()
        assert page.current in page.shown.steps
        assert chart._frame.cell(chart.picture.points[page.current]) == cell

    play(session, story)


def test_axes_and_baseline(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(LBM)
        page, chart = at.app.screen, at.one("#chart", Chart)
        assert "time (min)" in at.text and "energy (kJ)" in at.text
        await at.press("x", "x")
        assert "performance %" in at.text and "efficiency %" in at.text
        base = chart.picture.points[page.board.baseline]
        assert base == (100.0, 100.0)
        best = max(p[1] for p in chart.picture.points)
        assert best > 100
        xs = [chart.picture.points[n][0] for n in page.shown.steps]
        assert xs == sorted(xs)
        await at.press("x")
        assert "time (min)" in at.text and "efficiency %" in at.text
        await at.press("x", "end")
        chosen = page.board.options[page.current].configuration
        await at.press("b")
        assert page.board.options[page.board.baseline].configuration == chosen
        assert "the job as written" in at.lines[-4]

    play(session, story)


def test_other_axes_stay_when_the_baseline_changes(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(LBM)
        chart = at.one("#chart", Chart)
        await at.press("x", "x", "right", "b")
        assert "performance %" in at.text and "efficiency %" in at.text
        (x_low, x_high), (y_low, y_high) = chart.window
        x, y = chart.picture.points[at.app.screen.board.baseline]
        assert (x, y) == (100.0, 100.0)
        assert x_low < x < x_high and y_low < y < y_high  # of the new numbers, not the old
        assert chart.window == chart.picture.window

    play(session, story)


def test_every_drawn_dot_can_be_clicked(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        page, chart = at.app.screen, at.one("#chart", Chart)
        frame, picture = chart._frame, chart.picture
        cells = [frame.cell(p) for p in picture.points]
        listed = {cells[n] for n in page.shown.steps}
        other = next(n for n, c in enumerate(cells) if c and c not in listed and c[1] > 2)
        at_x, at_y = cells[other]
        await at.pilot.click("#chart", offset=(at_x + chart._gutter, at_y))
        await at.settle()
        assert page.shown.which == "all" and cells[page.current] == cells[other]

    play(session, story)


def test_a_notice_covers_nothing_and_help_and_ctrl_c_name_what_is(
    session: Session, play: Play
) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        await at.press("end", "n")
        assert "Only broadwell" in at.text
        assert any(line.startswith("▸") for line in at.lines)
        await at.press("question_mark")
        assert "Help: Options" in at.text
        await at.press("escape", "ctrl+c")
        assert "q leaves the advisor" in at.text
        await at.press("c", "question_mark")
        assert "Help: Choose" in at.text

    play(session, story)


def test_the_list_stands_beside_the_picture_and_its_decimals_are_aligned(
    session: Session, play: Play
) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        for width, height in ((120, 40), (160, 50), (200, 60)):
            await at.pilot.resize_terminal(width, height)
            await at.settle()
            chart, table = at.one("#chart", Chart).region, at.one("#points", LazyTable).region
            if width < 190:
                assert chart.y == table.y and chart.right <= table.x
            else:  # the details stand beside the list, below a picture as wide as the terminal
                side = at.app.screen.query_one("#tradeoff-side").region
                assert chart.bottom <= table.y == side.y and table.right <= side.x
                assert chart.width == width and side.bottom == height - 1
            inside = at.one("#points", LazyTable).content_region  # of its frame, where it has one
            rows = [line[inside.x :] for line in at.lines[inside.y + 1 : inside.y + 8]]
            for unit in (" s ", " kJ ", "%"):
                assert len({row.index(unit) for row in rows}) == 1, (width, unit)
        await at.pilot.resize_terminal(119, 40)
        await at.settle()
        assert at.one("#chart", Chart).region.bottom <= at.one("#points", LazyTable).region.y

    play(session, story)


def test_conditions_narrow_list_and_picture(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        page, chart = at.app.screen, at.one("#chart", Chart)
        await at.press("slash")
        await at.write("cores<=16")
        await at.press("enter")
        options, base = page.board.options, page.board.baseline
        listed = {n for n, o in enumerate(options) if o.configuration.cores <= 16}
        assert set(page.shown.steps) == {*listed, base}
        assert f"cores<=16 {len(listed) + 1}/77" in at.text
        assert not listed & set(chart.picture.hidden) and chart.picture.hidden
        await at.press("s")
        energies = [options[n].energy_j for n in page.shown.steps]
        assert energies == sorted(energies) and " by energy" in at.text
        await at.press("slash")
        await at.write(" fast")
        await at.press("enter")
        assert "'fast' is not a condition" in at.notices and "cores<=16" in at.text
        await at.press("escape")
        assert page.shown.narrowing.text == "" and at.app.screen is page
        await at.press("escape")
        assert at.app.screen is not page

    play(session, story)


def test_options_are_taken_away(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        page, shown = at.app.screen, at.app.screen.shown
        await at.press("e", "enter")
        path = session.folder / "cg-solver-n=4e6.csv"
        rows = list(csv.DictReader(path.open()))
        assert [int(r["threads_per_node"]) for r in rows] == [
            page.board.options[n].configuration.threads_per_node for n in shown.steps
        ]
        assert [r["baseline"] for r in rows].count("True") == 1
        await at.press("e", "enter")
        assert "is there already" in at.notices
        for ending, begins in ((".json", '{\n  "application": "cg-solver"'), (".svg", "<")):
            await at.press("e", *["backspace"] * 4)
            await at.write(ending)
            await at.press("enter")
            assert path.with_suffix(ending).read_text().startswith(begins)
        await at.press("u")
        assert not path.with_suffix(".svg").exists() and path.exists()
        await at.press("y")
        c = page.board.options[page.current].configuration
        assert at.app.clipboard == (
            "advisor choose cg-solver --workload n=4e6 --node-type broadwell "
            f"--threads {c.threads_per_node} --freq {c.freq_khz / 1e6:g}GHz"
        )
        await at.press("Y")
        assert at.app.clipboard.split("\t")[:2] == ["broadwell", "1"]

    play(session, story)


def test_a_short_screen_keeps_its_picture(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        assert at.one("#chart", Chart).size.height >= 5 and "a run" not in at.text
        assert "16  1.9" in at.text

    play(session, story, (60, 15))
