"""What is done while nobody types: pages painted, options read, garbage collected."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from advisor_tui import app, applications
from advisor_tui.dialogue import Push
from advisor_tui.policy import PolicyPage
from advisor_tui.session import Session
from advisor_tui.tradeoff import TradeOffPage

from advisor.store.writer import Writer
from advisor.views import tradeoff

Play = Callable[..., None]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], bool]:
    """Pages are made ahead at once; tells whether all of them are."""
    monkeypatch.setattr(app, "IDLE_S", 0.01)
    monkeypatch.setattr(applications, "RESTS_S", 0.01)
    return lambda at: bool(at.app.settled)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The applications whose options were read from the store, one after the other."""
    load, read = tradeoff.load, list[str]()

    def noted(reader: Any, application: str, *others: Any) -> Any:
        read.append(application)
        return load(reader, application, *others)

    monkeypatch.setattr(tradeoff, "load", noted)
    return read


def test_options_of_the_row_under_the_cursor_are_read_before(
    own_store: Session, play: Play, made: Callable[[Any], bool], reads: list[str]
) -> None:
    async def story(at: Any) -> None:
        await at.until(lambda: made(at) and "cg-solver" in reads)
        assert set(reads) <= {"lbm", "cg-solver"}  # where it opened, and where the story begins
        before = len(reads)
        await at.press("down", "down")
        await at.until(lambda: len(reads) > before)
        resting = at.app.looked_at
        await at.press("enter")
        page = at.app.screen
        assert isinstance(page, TradeOffPage) and (page.application, page.workload) == resting
        assert page.boards is not None and page.board is not None and "★" in at.text
        assert reads.count(resting[0]) == 1  # by the list; the page had nothing to read
        await at.press("escape", "enter")
        assert reads.count(resting[0]) == 1
        await at.press("escape")
        with Writer(own_store.store) as store:  # whatever is written may change them
            store.apply_config("site", path="s", text="s", compiled={}, by="ann")
        await at.press("enter")
        await at.until(lambda: reads.count(resting[0]) > 1)

    play(own_store, story)


def test_pages_are_painted_before_somebody_opens_them(
    session: Session, play: Play, made: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, paint = list[str](), Push.render_line

    def noted(self: Push, y: int) -> Any:
        lines.append(str(self.label))
        return paint(self, y)

    monkeypatch.setattr(Push, "render_line", noted)

    async def story(at: Any) -> None:
        await at.until(lambda: made(at))
        assert any("Save" in line for line in lines)
        lines.clear()
        await at.press("c")
        assert "Save (s)" in at.text and not lines

    play(session, story)


def test_what_is_made_ahead_takes_no_page_from_whoever_is_on_it(
    session: Session, play: Play, made: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine somebody is on the policy page before its last part is made ahead."""
    mounted, making, chosen = PolicyPage._mount_part, list[str](), asyncio.Event()

    async def late(self: PolicyPage, part: str) -> None:
        await mounted(self, part)
        making.append(part)
        if part == "past":
            await chosen.wait()

    monkeypatch.setattr(PolicyPage, "_mount_part", late)

    async def story(at: Any) -> None:
        await at.until(lambda: making[-1:] == ["past"])
        await at.press("4", "w")
        assert "no rule matches" in at.text
        chosen.set()
        await at.until(lambda: made(at))
        assert "(•) which rule" in at.text and "no rule matches" in at.text

    play(session, story)


def test_garbage_is_collected_while_nobody_types(
    session: Session, play: Play, made: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(app, "EVERY_S", 0.01)
    monkeypatch.setattr(gc, "collect", lambda: looks.append(1))

    async def story(at: Any) -> None:
        await at.until(lambda: made(at))
        kept = [[n] for n in range(app.GARBAGE + 1)]
        await at.until(lambda: looks)
        assert len(kept) > app.GARBAGE

    play(session, story)
    assert gc.isenabled()
