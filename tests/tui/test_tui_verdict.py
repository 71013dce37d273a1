"""What the trade-off page says of options: the verdict, what is not known, what they are worth."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from advisor_tui import points
from advisor_tui.chart import Chart
from advisor_tui.session import Session

from advisor.core.configuration import Configuration
from advisor.core.option import Option
from advisor.store.writer import Writer
from advisor.views.worth import Month
from tests.tui.boards import LBM, boards

Play = Callable[..., Any]


def test_a_suspended_model_and_one_without_energy_say_so(own_store: Session, play: Play) -> None:
    nan = float("nan")
    points = [Configuration("broadwell", 1, 1, t, 2_200_000) for t in (8, 16, 28)]
    options = [
        Option(
            c,
            100 / c.threads_per_node,
            99 / c.threads_per_node,
            101 / c.threads_per_node,
            nan,
            nan,
            nan,
            measured=True,
        )
        for c in points
    ]
    with Writer(own_store.store) as store:
        store.save_model(
            "aaa",
            "default",
            "broadwell",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="missing",
            n_train=3,
            stats={},
            options=options,
        )

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


def test_a_rough_figure_does_not_look_like_a_sharp_one(own_store: Session, play: Play) -> None:
    points_ = [Configuration("broadwell", 1, 1, t, 2_200_000) for t in (8, 16, 28)]
    options = [
        Option(c, 50.0, 50 / f, 50 * f, 9000.0 + c.threads_per_node, 9000 / f, 9000 * f, True)
        for c, f in zip(points_, (1.02, 1.48, 1.02), strict=True)
    ]
    with Writer(own_store.store) as store:
        store.save_model(
            "aaa",
            "default",
            "broadwell",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=3,
            stats={},
            options=options,
        )

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
            page._select_option(number)
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
