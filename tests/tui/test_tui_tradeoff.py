"""The trade-off page: picture, table and detail show one option; zoom, axes, node types."""

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
from textual.widgets import Static

from advisor.core.configuration import Configuration
from advisor.core.node_type_estimate import NodeTypeEstimate
from advisor.core.option import Option
from advisor.store.rankings import save_ranking
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views import tradeoff
from advisor.views.preview import Person
from advisor.views.worth import Month

Play = Callable[..., Any]
LBM = 5
"""Row of lbm / channel 512 in the list."""


def boards(session: Session, application: str, workload: str) -> tradeoff.Boards:
    with Reader(session.store) as reader:
        return tradeoff.load(reader, application, workload, Person("ann"))


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


def test_node_types_and_how_their_order_is_known(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(LBM)
        page = at.app.screen
        assert "broadwell  milan  skylake [all]  from 39 runs" in at.lines[1]
        assert page.board.yours.chosen.configuration.node_type == "milan"  # not where it lands
        assert "[★]" in at.text and re.search(r"^▸●★ milan +1 ", at.text, re.MULTILINE)
        names = []
        for _ in range(4):
            names.append(page.shown.node_type)
            await at.press("n")
        assert sorted(names) == ["", "broadwell", "milan", "skylake"]
        assert page.shown.node_type == ""
        await at.press("r")
        ranked = [r.node_type for r in page.boards.ranking]
        shown = [line for line in at.lines if " runs there" in line]
        assert [name for line in shown for name in ranked if name in line] == ranked
        assert "advisor bench" not in at.text  # nothing is missing
        drawn = at.lines[at.lines.index(next(x for x in at.lines if "90 % interval" in x)) :]
        assert [n for line in drawn for n in ranked if f"{n} " in line][: len(ranked)] == ranked
        times = [r.time_s for r in page.boards.ranking]
        assert times == sorted(times)
        await at.press("down", "enter")
        assert page.shown.node_type == ranked[1]
        while page.shown.node_type != "":
            await at.press("n")
        assert {o.configuration.node_type for o in page.board.options} == set(ranked)
        await at.press("v", "v")
        assert len(page.shown.steps) == len(page.board.options)

    play(session, story)


def test_estimated_node_types_are_ranked_and_look_different(own_store: Session, play: Play) -> None:
    """With a model on the base there are options, else only a place in the ranking."""
    with Writer(own_store.store) as store:
        for application, workload in (("cg-solver", "n=4e6"), ("raytrace", "default")):
            save_ranking(
                store, application, workload, "broadwell",
                [
                    NodeTypeEstimate(
                        "broadwell", 66.0, 1.0, 2.0, 118.0, 125.0, 1.0, 2.0, "profiles"
                    ),
                    NodeTypeEstimate(
                        "milan", 41.2, 0.62, 11.0, 104.0, 125.0, 0.71, 14.0, "profiles"
                    ),
                ],
                method="thesis", contributor="ann", scope="all",
            )  # fmt: skip
        store.renew_transfers("cg-solver", "n=4e6")

    async def story(at: Any) -> None:
        await at.open_row(1)
        page = at.app.screen
        assert "[broadwell] milan  all " in at.lines[1]
        await at.press("r")
        assert re.search(r"▸ 1  milan +~4\S+ s +~\S+ k?J  △ estimate, ±11 %", at.text)
        assert re.search(r"2  broadwell +65.8 s +12.6 kJ  ● 12 runs there", at.text)
        how, hint = str(at.one("#how", Static).render()), str(at.one(".hint", Static).render())
        assert "(thesis): 0.62 times the time and 0.71 times the energy of broadwell" in how
        assert "Nothing is known of skylake" in hint and "advisor rank cg-solver" in hint
        await at.press("enter")
        assert "[milan]" in at.lines[1] and "ESTIMATED from broadwell" in at.lines[1]
        assert "△ estimated" in at.text and "●" not in at.text and "○" not in at.text
        assert re.search(r"^▸△◆ .* ~\S+ s +±\d+%\? +~\S+ k?J +±\d+%\?", at.text, re.MULTILINE)
        assert "nothing ran on" in at.text
        await at.press("n", "v", "v")
        signs = {
            (sign, o.configuration.node_type)
            for o, sign in ((o, points.sign(page.board, o)) for o in page.board.options)
        }
        assert signs == {("△", "milan"), ("●", "broadwell")}
        await at.press("escape", "slash")
        await at.write("raytrace")
        await at.press("enter", "enter")
        assert "No measurements yet, only a ranking" in at.text
        await at.press("n", "r")
        assert "No node type has options" in at.notices
        assert re.search(r"1  milan +~41.2 s +not known  △ estimate", at.text)
        await at.press("enter")
        assert "There are no options on milan yet" in at.notices

    play(own_store, story)


def test_an_end_of_the_front_keeps_its_name_under_the_cursor(session: Session, play: Play) -> None:
    """The interval of the point lay over the word: ``stest``."""

    async def story(at: Any) -> None:
        await at.press("enter")  # cg-solver / n=3e7, whose jobs as written are the fastest
        page = at.app.screen
        assert page.current == page.board.baseline and "]fastest" in at.text

    play(session, story)


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


def test_a_suspended_model_and_one_without_energy_say_so(own_store: Session, play: Play) -> None:
    nan = float("nan")
    points = [Configuration("broadwell", 1, 1, t, 2_200_000) for t in (8, 16, 28)]
    options = [
        Option(c, 100 / c.threads_per_node, 99 / c.threads_per_node, 101 / c.threads_per_node,
               nan, nan, nan, measured=True)
        for c in points
    ]  # fmt: skip
    with Writer(own_store.store) as store:
        store.save_model(
            "aaa", "default", "broadwell", scope="all", owner="", name="bspline",
            energy_quality="missing", n_train=3, stats={}, options=options,
        )  # fmt: skip

    async def story(at: Any) -> None:
        assert "aaa" in at.text
        await at.press("enter")
        assert "energy is not known" in at.text and "not known" in at.text
        assert "3.57 s" in at.text
        await at.press("right", "plus", "x", "v", "n")
        assert "Only broadwell" in at.notices
        await at.press("escape")
        await at.open_row(8)
        assert "ocean" in at.text and "SUSPENDED" in at.text
        assert "the model is suspended" in at.text

    play(own_store, story)


def test_an_application_without_a_model_says_how_to_get_one(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(8)
        assert "raytrace" in at.text and "there is no model" in at.text and "Press t" in at.text
        await at.press("left", "v", "n", "r", "x", "b", "plus", "0")
        await at.press("escape")
        assert "workloads" in at.text

    play(session, story)


def test_advice_is_applied_by_one_key(own_store: Session, play: Play) -> None:
    compiled = {"base": {"mode": "advise", "goal": "min_energy", "max_slowdown": 0.08}}
    with Writer(own_store.store) as store:
        store.apply_config("policy", path="p", text="p", compiled=compiled, by="a test")

    async def story(at: Any) -> None:
        await at.open_row(1)
        assert at.lines[2].startswith(" WOULD SAVE 2") and at.lines[2].endswith("16 cores, 1.9 GHz")
        assert at.lines[3] == " NOT APPLIED: the site only advises · a apply it for me"
        await at.press("a")
        assert at.lines[2].startswith(" WILL SAVE 2")
        assert at.lines[3] == " NOT APPLIED: no daemon answers now"
        assert "a apply" not in at.text
        await at.press("u")
        assert at.lines[2].startswith(" WOULD SAVE 2") and "a apply" in at.lines[-1]

    play(own_store, story)


def test_the_verdict_is_never_cut(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(LBM)
        said = at.app.screen.board.verdict
        for size in ((60, 15), (80, 24), (200, 60)):
            await at.pilot.resize_terminal(*size)
            await at.settle()
            shown = " ".join(" ".join(at.lines[2:8]).split())
            assert f"{said.what} {said.applied}" in shown

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
            assert chart.y == table.y and chart.right <= table.x
            rows = [line[table.x :] for line in at.lines[table.y + 1 : table.y + 8]]
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
            f"--threads-per-node {c.threads_per_node} --freq {c.freq_khz / 1e6:g}GHz"
        )
        await at.press("Y")
        assert at.app.clipboard.split("\t")[:2] == ["broadwell", "1"]

    play(session, story)


def test_a_rough_figure_does_not_look_like_a_sharp_one(own_store: Session, play: Play) -> None:
    points_ = [Configuration("broadwell", 1, 1, t, 2_200_000) for t in (8, 16, 28)]
    options = [
        Option(c, 50.0, 50 / f, 50 * f, 9000.0 + c.threads_per_node, 9000 / f, 9000 * f, True)
        for c, f in zip(points_, (1.02, 1.48, 1.02), strict=True)
    ]
    with Writer(own_store.store) as store:
        store.save_model(
            "aaa", "default", "broadwell", scope="all", owner="", name="bspline",
            energy_quality="measured", n_train=3, stats={}, options=options,
        )  # fmt: skip

    async def story(at: Any) -> None:
        await at.press("enter", "v", "v")
        assert "±48%?" in at.text and "±2%" in at.text and "±2%?" not in at.text
        cells = points.rows(at.app.screen.board, range(3))
        assert [row[3][1] for row in cells] == ["", "warn", ""]
        long = [points._figure("8.25 min", m, 13)[0] for m in ("±0.8%", "±48%", "")]
        assert long == ["8.25 min  ±1%", "8.25 min±48%?", "8.25 min     "]  # the column's width
        longer = [points._figure("~12.3 min", m, points._TIME)[0] for m in ("±0.8%", "±48%")]
        assert longer == ["~12.3 min  ±1%", "~12.3 min±48%?"]
        assert [len(text) for text in longer] == [points._TIME] * 2

    play(own_store, story)


@pytest.mark.parametrize("size", [(80, 24), (80, 36), (160, 50)])
def test_an_option_says_what_it_is_worth(
    own_store: Session, play: Play, size: tuple[int, int]
) -> None:
    electricity = {"price_per_kwh": 0.25, "currency": "EUR", "co2_g_per_kwh": 380}
    with Writer(own_store.store) as store:
        store.apply_config(
            "site", path="p", text="p", compiled={"electricity": electricity}, by="test"
        )
        month = Month.of(store, "cg-solver", "n=4e6", "ann")
    assert 0 < (month.own_runs or 0) < (month.all_runs or 0)
    board = boards(own_store, "cg-solver", "n=4e6").by_type["broadwell"]

    async def story(at: Any) -> None:
        await at.open_row(1)
        page = at.app.screen
        for number in (board.policy_at, board.baseline):
            assert number is not None
            page._go(number)
            await at.settle()
            o, base = board.options[number], board.view.baseline
            joules = base.energy_j if number == board.baseline else base.energy_j - o.energy_j
            words = month.tariff.words
            text = re.sub(r"\s+", " ", at.text)
            verb = "takes" if number == board.baseline else "worth"
            assert f"{verb} {words(joules)}, " in text and " a run" in text
            shown = re.sub(r"\s+", "", at.text)
            assert f"your{month.own_runs}runs" in shown and f"all{month.all_runs}runs" in shown
            if size[0] == 80:  # beside the picture a line is wrapped between its lines
                assert re.sub(r"\s", "", words((month.all_runs or 0) * joules)) in shown
        assert at.one("#chart", Chart).size.height >= 6

    play(own_store, story, size)


def test_a_short_screen_keeps_its_picture(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        assert at.one("#chart", Chart).size.height >= 5 and "a run" not in at.text
        assert "16  1.9" in at.text

    play(session, story, (60, 15))
