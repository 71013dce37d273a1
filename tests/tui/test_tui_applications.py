"""The first page: what is listed, searching, sorting, paging, and where it leads."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from advisor_tui import app
from advisor_tui.choose import ChoosePage
from advisor_tui.help import keys_of
from advisor_tui.points import rows
from advisor_tui.policy import PolicyPage
from advisor_tui.session import Session
from advisor_tui.table import LazyTable
from advisor_tui.tradeoff import TradeOffPage
from textual.widgets import Input

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.worth import format_kwh
from advisor.store.writer import Writer
from advisor.views import applications as view

Play = Callable[..., Any]


def row_of(lines: list[str], *words: str) -> str:
    return next(line for line in lines if all(w in line for w in words))


def test_every_state_is_listed_with_promise_and_measurement(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        assert "12 workloads of 10 applications" in at.text
        assert "○ fitted" in row_of(at.lines, "cg-solver", "n=3e7")
        assert "● confirmed" in row_of(at.lines, "lbm", "channel 512")
        assert "training 7/12" in row_of(at.lines, "wave2d")
        assert "✗ suspended" in row_of(at.lines, "ocean")
        assert "· not measured" in row_of(at.lines, "raytrace")
        promised, measured = row_of(at.lines, "lbm", "channel 512").split("% less")[:2]
        assert abs(int(promised.split()[-1]) - int(measured.split()[-1])) <= 3
        assert "ann" in at.lines[0] and "daemon answers" in at.lines[0]

    play(session, story)


def test_names_are_there_before_what_is_decided_of_them(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided, may_go_on = view.page, threading.Event()

    def slow(*args: Any, **more: Any) -> Any:
        assert may_go_on.wait(20)
        return decided(*args, **more)

    monkeypatch.setattr(view, "page", slow)

    async def story(at: Any) -> None:
        await at.until(lambda: "channel 512" in at.text)
        assert "…" in row_of(at.lines, "cg-solver", "n=3e7")
        assert "workloads of" not in at.text
        await at.pilot.press("down", "enter")
        await at.until(lambda: isinstance(at.app.screen, TradeOffPage))
        await at.until(lambda: "cg-solver / n=4e6" in at.text)
        await at.pilot.press("escape")
        may_go_on.set()
        await at.until(lambda: "○ fitted" in row_of(at.lines, "cg-solver", "n=3e7"))
        await at.settle()
        assert at.one("#applications", LazyTable).cursor == 1
        assert "cg-solver / n=4e6" in at.text and "12 workloads of 10 applications" in at.text

    play(session, story, settle=False)


def test_nothing_that_decides_is_loaded_before_the_names() -> None:
    code = """if True:
        import sys
        from advisor_tui import app, applications
        from advisor_tui.session import Session
        Session.here().connection
        print(*[m for m in sys.modules if m.startswith(("advisor.service", "advisor.schedulers."))])
    """
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded == ["advisor.schedulers.submission"]


def test_the_sentence_follows_the_cursor(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        assert "not confirmed by a run yet" in at.text
        await at.press("down")
        assert "cg-solver / n=4e6" in at.text
        assert "less energy" in at.lines[-3] and "measured on" in at.lines[-2]
        await at.press("end")
        assert "wave2d / default" in at.text and "a sweep is under way" in at.text
        await at.press("home", "pagedown")
        assert at.one("#applications", LazyTable).cursor == 11

    play(session, story)


def test_search_narrows_as_one_types(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("slash")
        await at.write("lb")
        assert "2 workloads of 1 application," in at.text
        await at.write("m 512")
        assert "1 workload of 1 application," in at.text
        assert "channel 1024" not in at.text
        await at.press("enter")
        assert at.one("#applications", LazyTable).has_focus
        await at.press("escape")
        assert "12 workloads" in at.text
        await at.press("slash")
        await at.write("no such thing")
        assert "nothing has “no such thing” in its name" in at.text
        await at.press("escape")
        await at.press("slash", "down")
        assert at.one("#applications", LazyTable).has_focus
        assert at.one("#search", Input).value == ""

    play(session, story)


def test_sorting(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        assert "by name" in at.text
        await at.press("s")
        assert "most runs first" in at.text
        runs = [int(line.split("  ")[-1]) for line in _runs(at.lines)]
        assert runs == sorted(runs, reverse=True) and runs[0] > runs[-1]
        await at.press("s")
        assert "newest model first" in at.text

    play(session, story)


def test_it_opens_on_the_row_with_most_to_gain_and_sums_up(session: Session, play: Play) -> None:
    """The second time nothing moves: the cursor is where somebody put it."""
    with session.reader() as reader:
        gains = view.gains(reader, session.person(), {})
    first = ("lbm", "channel 1024")
    assert gains.first == first and gains.jobs > 50

    async def story(at: Any) -> None:
        await at.settle()
        assert at.app.screen.current.key == first
        saved = f"to save in 30 days: {gains.tariff.words(sum(gains.by_key.values()))} on "
        assert saved in at.text
        await at.press("home", "r")
        assert at.app.screen.table.cursor == 0
        await at.pilot.resize_terminal(120, 40)
        await at.settle()
        row = next(line for line in at.lines if "channel 1024" in line)
        assert format_kwh(gains.by_key[first] / 3.6e6) in row

    play(session, story, settle=False)


def test_a_click_on_a_title_sorts(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        for size in ((80, 24), (120, 40)):  # without and with a frame
            await at.pilot.resize_terminal(*size)
            await at.settle()
            for title, order in (("Runs", "most runs first"), ("Application", "by name")):
                y, line = next((y, t) for y, t in enumerate(at.lines) if "Workload" in t)
                await at.pilot.click(offset=(line.index(title) + 1, y))
                await at.settle()
                assert order in at.text, (size, title)
        await at.open_row(1)
        y, line = next((y, t) for y, t in enumerate(at.lines) if "GHz" in t and "Time" in t)
        page = at.app.screen
        for title, order in (("Energy", "energy"), ("Time", "time"), ("Time", "")):
            await at.pilot.click(offset=(line.index(title) + 1, y))
            await at.settle()
            assert page.shown.order == order
        energies = [page.board.options[n].energy_j for n in page.shown.steps]
        assert energies != sorted(energies)

    play(session, story)


def test_what_is_slower_is_not_green(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.open_row(1)
        board = at.app.screen.board
        base = board.view.baseline
        for number, cells in enumerate(rows(board, range(len(board.options)))):
            o = board.options[number]
            green = {cells[5][1], cells[7][1]} == {"good"}
            assert green == (o.energy_j < 0.995 * base.energy_j and o.time_s < 1.005 * base.time_s)

    play(session, story)


def _runs(lines: list[str]) -> list[str]:
    """The part of each row up to the number of runs."""
    header = next(line for line in lines if "Runs" in line)
    end = header.index("Runs") + 4
    rows = lines[lines.index(header) + 1 : -5]
    return [f"{row[:end].rstrip()[-6:]}" for row in rows if row.strip()]


def test_only_what_is_shown_is_read(own_store: Session, play: Play) -> None:
    run = Observation(Configuration("broadwell", 1, 1, 28, 2_200_000), 9.0, None)
    with Writer(own_store.store) as store, store.batch():
        for n in range(700):
            store.add_observations(f"zz{n:04}", "default", [run])

    async def story(at: Any) -> None:
        page = at.app.screen
        assert "712 workloads" in at.text
        assert at.lines[2].endswith("  Measured")  # all of it, beside the scrollbar
        assert len(page._listed) <= 100
        await at.press("down", "down")
        here = page.current.key
        with Writer(own_store.store) as store:
            store.add_observations("a[/red]", "[bold", [run])
        await at.press("r")
        assert page.current.key == here and page.table.cursor == 3
        await at.press("home", "enter")  # names are text, whatever is in them
        assert "there is no model of a[/red] [bold yet" in at.text
        await at.press("c")
        assert "nothing is measured of a[/red] / [bold" in at.text
        await at.press("escape", "escape")
        await at.press("end")
        assert "zz0699" in at.text
        assert 0 in page._listed and 712 in page._listed and 300 not in page._listed
        table = at.one("#applications", LazyTable)
        table.scroll_to(y=320, animate=False)
        await at.settle()
        assert "zz03" in at.text and "…" not in at.lines[5]

    play(own_store, story)


def test_the_mouse_chooses_and_opens(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        table = at.one("#applications", LazyTable)
        await at.pilot.click("#applications", offset=(10, 3))
        await at.settle()
        assert table.cursor == 2
        await at.pilot.click("#applications", offset=(10, 6), times=2)
        await at.settle()
        assert "lbm / channel 512" in at.lines[1]
        await at.press("escape")
        assert table.cursor == 5
        await at.pilot.click("Bar", offset=(32, 0))
        await at.settle()
        assert "[2 Jobs]" in at.lines[0]

    play(session, story)


def test_keys_lead_to_every_place_and_help_is_everywhere(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        for key, title in (("2", "2 Jobs"), ("3", "3 Training"), ("4", "4 Policy"), ("1", "1 App")):
            await at.press(key)
            assert f"[{title}" in at.lines[0]
            await at.press("question_mark")
            assert "Esc closes" in at.text
            assert max(map(len, at.lines)) <= 80
            await at.press("escape")
            assert "Esc closes" not in at.text
        await at.press("enter", "question_mark")
        assert "what the site's policy chooses" in at.text
        await at.press("escape", "c", "question_mark")
        assert "your own jobs only" in at.text

    play(session, story)


def test_the_palette_finds_a_workload_by_name(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("ctrl+p")
        await at.write("stencil")
        await at.until(lambda: "stencil3d / --size 800" in at.text)
        await at.press("enter")
        await at.until(lambda: "stencil3d / --size 800" in at.lines[1])

    play(session, story)


def test_a_theme_is_kept(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        at.app.theme = "nord"
        await at.settle()

    play(session, story)
    assert play(session, lambda at: at.settle()).theme == "nord"
    assert session.settings is not None
    session.settings.write_text("{broken")
    assert play(session, lambda at: at.settle()).theme != "nord"


def test_it_fits_any_size(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        for width, height, keys in (
            (160, 50, ("enter", "c")),
            (40, 12, ("escape", "escape", "2", "3", "4")),
            (20, 6, ("1", "enter", "c", "escape", "escape")),
            (80, 24, ()),
        ):
            await at.pilot.resize_terminal(width, height)
            for key in ("", *keys):
                await at.press(*([key] if key else []))
                assert max(map(len, at.lines)) <= width
        assert "lbm" in at.text

    play(session, story)


def test_what_lies_under_a_dialogue_fits_a_new_size(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("enter")
        assert "Under the cursor" not in at.text
        await at.press("e")
        await at.pilot.resize_terminal(160, 40)
        await at.press("escape")
        assert "Under the cursor" in at.text

    play(session, story)


def test_another_users_view_chooses_nothing(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        assert "as bob" in at.lines[0]
        await at.press("c")
        assert "Only bob can choose for bob" in at.notices

    play(replace(session, user="bob", foreign=True), story)


def test_settings_are_kept_and_hold(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session.settings
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"theme": "nord", "page": "jobs", "keys": {"export": "o", "undo": "z"}, "signs": "ascii"}
    path.write_text(json.dumps(said))

    async def story(at: Any) -> None:
        assert at.app.theme == "nord" and "[2 Jobs]" in at.lines[0] and at.text.isascii()
        await at.press("1", "down", "enter")
        await at.press("e")
        assert "Export the listed" not in at.text
        await at.press("o")
        assert "Export the listed" in at.text
        await at.press("escape")
        assert "o        write the list" in keys_of(at.app.screen)
        at.app.theme = "gruvbox"
        await at.settle()

    play(session, story)
    assert json.loads(path.read_text()) == {**said, "theme": "gruvbox"}

    path.write_text('{"theme": "no such", "colour": 1, "keys": {"export": 3}}')

    async def warned(at: Any) -> None:
        assert "[1 Applications]" in at.lines[0]
        for problem in ("theme 'no such'", "colour is no setting", "export: 3 is not a key"):
            assert problem in at.notices

    play(session, warned)

    path.write_text('{"keys": {"exprt": "o", "undo": "z"}}')
    monkeypatch.setattr(app, "IDLE_S", 0.01)

    async def unknown(at: Any) -> None:
        await at.until(lambda: "no action" in at.notices)
        assert f"{path}: keys: 'exprt' (for 'o') is no action; did you mean export?" in at.notices
        assert "undo" not in at.notices
        # pages that were made ahead, for another theme and another size
        made = dict(at.app.ready)
        names = {"Options", "Choose", "Jobs", "Training", "Policy", None}  # None: the help
        assert {page.TITLE for page in made} == names
        at.app.theme = "textual-light"
        await at.pilot.resize_terminal(160, 40)
        await at.press("down", "enter")
        assert at.app.screen is made[TradeOffPage] and "Under the cursor" in at.text
        assert at.app.screen.rich_style.bgcolor.get_truecolor() > (200, 200, 200)
        await at.press("c")
        assert at.app.screen is made[ChoosePage] and "(•) pin " in at.text
        await at.press("4", "w")
        assert at.app.screen is made[PolicyPage] and at.one("#fact-user", Input).value == "ann"

    play(session, unknown)


def test_a_sweep_that_begins_is_shown_without_a_key(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        assert "training" not in row_of(at.lines, "raytrace")
        at.app.sweeping = {("raytrace", "default"): (3, 14)}
        at.app.paint_status()
        await at.until(lambda: "training 3/14" in row_of(at.lines, "raytrace"))

    play(session, story)


def test_where_there_is_room_the_options_under_the_cursor_are_drawn(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "IDLE_S", 0.01)

    async def story(at: Any) -> None:
        drawn = ("as written", "time (min) →", "Node types, fastest first")
        await at.until(lambda: at.app.settled and all(words in at.text for words in drawn))
        height = at.app.screen.query_one("#applications").size.height
        assert height == 13, "as high as the title and the rows"
        await at.press("home", *["down"] * 8)
        await at.until(lambda: "No options yet: t measures it once." in at.text)
        assert "raytrace / default" in at.text and "as written" not in at.text
        await at.pilot.resize_terminal(80, 24)
        await at.until(lambda: "No options yet" not in at.text)

    play(session, story, (120, 40))
