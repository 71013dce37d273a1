"""Any terminal: sizes, themes, 16 colours, and no UTF-8."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import terminal
from advisor_tui.help import joined
from advisor_tui.legible import CONTRAST, XTERM, Legible, contrast, legible, plain, speaks_utf8
from advisor_tui.session import Session
from advisor_tui.table import LazyTable
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

Play = Callable[..., Any]


@pytest.mark.parametrize(
    ("env", "utf8"),
    [
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "C.utf8"}, True),
        ({}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "en_US.ISO-8859-1"}, False),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8@euro"}, True),
        ({"LC_ALL": "", "LANG": "POSIX"}, False),
    ],
)
def test_the_codeset_is_read_from_the_environment(env: dict[str, str], utf8: bool) -> None:
    assert speaks_utf8(env) is utf8


def test_ascii_is_as_wide_as_what_it_stands_for() -> None:
    for text in ("69.3 s ±2%  ", "●★ ░░[◆]", "▸…⠉⠑", "a · b", "漢字", "‹ 5 % ›", "ASCII"):
        found = plain(text)
        assert found.isascii() and len(found) == cell_len(text), text
    assert plain("69.3 s ±2%") == "69.3 s+-2%"
    signs = "●○◍◌△◆★⚑┊"
    assert len({plain(sign) for sign in signs}) == len(signs)  # each still says another thing


def test_text_is_never_lost_on_its_ground() -> None:
    for depth in (ColorSystem.STANDARD, ColorSystem.EIGHT_BIT, ColorSystem.TRUECOLOR):
        for text in ("#fea62b", "#888888", "#000000", "#ffffff", "#004578", "yellow"):
            for ground in ("#e0e0e0", "#121212", "#808080", "#004578", "#005f5f", "#0178d4"):
                for more in ("", " dim", " reverse"):
                    style = legible(Style.parse(f"{text} on {ground}{more}"), depth)
                    assert style.color is not None and style.bgcolor is not None
                    pair = style.color.get_truecolor(XTERM), style.bgcolor.get_truecolor(XTERM)
                    assert contrast(*pair) >= CONTRAST, (text, ground, more, depth)


def test_the_end_of_a_scrollbar_has_the_colour_of_the_bar() -> None:
    bar = Style.parse("#7a93ac on #e0e0e0")
    end, text = Legible(None).apply(
        [Segment("▅", bar), Segment("text", bar)], Color.parse("#e0e0e0")
    )
    assert end.style == bar and text.style != bar


def test_every_theme_can_be_read(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("down", "enter")
        for theme in [t for t in at.app.available_themes if not t.startswith("ansi")]:
            at.app.theme = theme
            await at.settle()
            for strip in at.app.screen._compositor.render_strips():
                for text, style, _ in strip:
                    if not any(c.isalnum() for c in text):
                        continue
                    pair = style.color.get_truecolor(), style.bgcolor.get_truecolor()
                    assert contrast(*pair) >= CONTRAST, (theme, text)

    play(session, story)


@pytest.mark.terminal
def test_the_real_program_writes_ascii_where_the_locale_knows_no_more(
    at_home: dict[str, str],
) -> None:
    locale = {"LC_ALL": "", "LC_CTYPE": "", "LANG": "C"}
    places = {**at_home, **locale, "TERM": "linux", "COLORTERM": ""}
    screen = terminal.Pty([sys.executable, "-m", "advisor", "tui"], places, 80, 24)
    try:
        assert terminal.until(screen, lambda t: "12 workloads" in t and "% less" in t).isascii()
        screen.key("Down")
        screen.key("Enter")
        text = terminal.until(screen, lambda t: "time (s)" in t or "time (min)" in t)
        assert text.isascii() and "[P]" in text and "B as written" in text
        painted = [c for row in screen._screen.buffer.values() for c in row.values()]
        colours = {(c.fg, c.bg) for c in painted if c.data.isalnum()}
        assert colours and all(fg != bg for fg, bg in colours)
        assert {colour.removeprefix("bright") for pair in colours for colour in pair} <= {
            "default",
            "black",
            "red",
            "green",
            "brown",
            "yellow",
            "blue",
            "magenta",
            "cyan",
            "white",
        }
        screen.type("?")
        assert terminal.until(screen, lambda t: "Help: Options" in t).isascii()
        screen.type("q")
        terminal.until(screen, lambda t: "Help: Options" not in t)
        screen.type("q")
        terminal.until_left(screen)
    finally:
        screen.close()


def test_help_flows_where_its_lines_do_not_fit(session: Session, play: Play) -> None:
    text = "One sentence that\ngoes on.\n\nname   a line of a list\n  and more of it\nThe end.\n"
    assert joined(text) == text.replace("that\ngoes", "that goes")

    async def story(at: Any) -> None:
        await at.press("down", "enter", "question_mark")
        inside = [line for line in at.lines if "│" in line]
        assert inside and all(line.rstrip().endswith("│") for line in inside)
        assert "Each sign is an option: threads and a frequency cap" in at.text
        assert "to run the job with. Left is faster" in at.text

    play(session, story, (60, 15))


def test_no_figure_of_a_table_is_cut_without_saying_so(session: Session, play: Play) -> None:
    """At 60 columns "21 % less" was shown as "2", and at 80 "62 % faster" as "62 % faste"."""
    known: dict[str, set[str]] = {}

    async def story(at: Any) -> None:
        for key in ("1", "2", "3", "4"):
            await at.press(key, *(["i"] if key == "4" else []))
            for table in at.app.screen.query(LazyTable):
                shown = table._widths()
                room = sum(width for _, width in shown) + sum(
                    table.columns[i].gap for i, _ in shown[1:]
                )
                assert shown and room <= table.room - 1
                for row in table._rows.values():
                    line = table._strip(" ", row, Style(), roles=False).text[1:]
                    for number, (i, width) in enumerate(shown):
                        line = line[table.columns[i].gap if number else 0 :]
                        cell = row[i] if isinstance(row[i], str) else row[i][0]
                        part, line = line[:width].strip(), line[width:]
                        assert part == cell.strip() or part.endswith("…"), (key, part, cell)
                        known.setdefault(key, set()).add(part)

    for size in ((60, 15), (80, 24), (100, 24), (200, 60)):
        play(session, story, size)
    assert "21 % less" in known["1"] and any("faster" in text for text in known["2"])


def test_a_goal_can_be_chosen_on_a_slim_terminal(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("home", "down", "enter")
        await at.press("c", "down")  # the options are read by now, one of them can be pinned
        assert at.text.count("‹ as the site says ›") == 2

    play(session, story, (60, 15))
    play(session, story)


def test_the_status_keeps_away_from_the_places(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("4")
        at.app.daemon = "no daemon: jobs run as written"
        at.app.paint_status()
        await at.settle()
        assert at.lines[0].split("[4 Policy]")[1].split() == ["!"]
        at.app.daemon = "daemon answers"
        at.app.paint_status()
        await at.settle()
        assert at.lines[0].rstrip().endswith("[4 Policy]")

    play(session, story, (60, 15))
