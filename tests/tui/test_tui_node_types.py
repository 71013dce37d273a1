"""Node types on the trade-off page: their order, how it is known, and estimates."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from advisor_tui import points
from advisor_tui.session import Session
from textual.widgets import Static

from advisor.core.node_type_estimate import NodeTypeEstimate
from advisor.derive.worker import derive
from advisor.store.rankings import save_ranking
from advisor.store.writer import Writer
from tests.tui.boards import LBM

Play = Callable[..., Any]


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
        assert "advisor lab bench" not in at.text  # nothing is missing
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
                store,
                application,
                workload,
                "broadwell",
                [
                    NodeTypeEstimate(
                        "broadwell", 66.0, 1.0, 2.0, 118.0, 125.0, 1.0, 2.0, "profiles"
                    ),
                    NodeTypeEstimate(
                        "milan", 41.2, 0.62, 11.0, 104.0, 125.0, 0.71, 14.0, "profiles"
                    ),
                ],
                method="thesis",
                contributor="ann",
                scope="all",
            )
        derive(store)

    async def story(at: Any) -> None:
        await at.open_row(1)
        page = at.app.screen
        assert "[broadwell] milan  all " in at.lines[1]
        await at.press("r")
        assert re.search(r"▸ 1  milan +~4\S+ s +~\S+ k?J  △ estimate, ±17 %", at.text)
        assert re.search(r"2  broadwell +65.8 s +12.6 kJ  ● 12 runs there", at.text)
        how, hint = str(at.one("#how", Static).render()), str(at.one(".hint", Static).render())
        assert "(thesis): 0.62 times the time and 0.71 times the energy of broadwell" in how
        assert "Nothing is known of skylake" in hint and "advisor lab rank cg-solver" in hint
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
