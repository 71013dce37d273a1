"""The line of sizes on the trade-off page: measured ones marked, others drawn apart."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advisor_tui import captions
from advisor_tui.session import Session
from textual.widgets import Static

from advisor.store.reader import Reader
from advisor.store.records import SIZES
from advisor.store.writer import Writer
from advisor.views import tradeoff
from advisor.views.preview import Person
from advisor.views.size_line import SizeLine, SizeStep, size_lines
from advisor.views.tradeoff import Boards
from tests.unit.sizes.stencil import make_store

Play = Callable[..., Any]


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sized") / "advisor.db"
    with make_store(path) as writer:
        writer.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def at_sizes(session: Session, sized: Path, tmp_path: Path) -> Session:
    """Ann's session where a stencil was measured at three sizes, the largest swept."""
    store = tmp_path / "sized.db"
    shutil.copy(sized, store)
    arguments = ("--db", str(store))
    return replace(session, store=store, socket=tmp_path / "none", arguments=arguments)


def test_keys_go_to_other_sizes_and_those_never_run_are_drawn_apart(
    at_sizes: Session, play: Play
) -> None:
    async def story(at: Any) -> None:
        await at.press("home", "enter")
        assert "size n: [1e6•]  2e6•  4e6•  5.66e6  8e6" in at.text
        assert "predicted between sizes" in at.text and "○ predicted" in at.text
        await at.press(*["right_square_bracket"] * 2)
        assert "[4e6•]" in at.text and "● measured" in at.text
        assert "▽" not in at.text
        await at.press(*["right_square_bracket"] * 2)
        assert "[8e6]" in at.text and at.app.screen.workload == "-n 8000000"
        assert "EXTRAPOLATED" in at.text and "▽ extrapolated" in at.text
        assert "●" not in at.text and "measured and confirmed" not in at.text
        assert at.one("#tradeoff-side", Static).display  # its lines may break anywhere
        assert "extrapolated from smaller sizes" in str(at.one("#tradeoff-side", Static).content)
        assert "NOT APPLIED: the policy only shows extrapolated options" in at.text
        await at.press("left_square_bracket")
        assert "[5.66e6]" in at.text

    play(at_sizes, story, (120, 40))


def test_a_family_decides_what_the_page_says(at_sizes: Session) -> None:
    with Reader(at_sizes.store) as reader:
        boards = tradeoff.load(reader, "stencil", "-n 8000000", Person("ann"))
        (board,) = boards.by_type.values()
        assert board.yours is not None and "extrapolated" in board.yours.codes
        assert board.extrapolated and board.options
        (line,) = boards.sizes
        assert line.steps[line.at].value == 8e6
        asked = board.options[0].configuration
        other = tradeoff.load(reader, "stencil", "-n 8000000", Person("ann"), asked)
        assert other.by_type[board.node_type].view.baseline.configuration == asked


def test_a_size_of_several_parameters_has_a_line_for_each(tmp_path: Path) -> None:
    measured = {"m": [1.0, 2.0, 4.0], "n": [1e3, 2e3, 4e3, 8e3], "k": [5.0, 6.0]}
    about = {"family": "-n {} -m {} -k {}", "answer": "ok", "measured": measured}
    with Writer(tmp_path / "two.db") as writer:
        writer.save_model(
            "mesh",
            "{sizes} -n {} -m {} -k {}",
            "a",
            scope="all",
            owner="",
            name=SIZES,
            energy_quality="measured",
            n_train=12,
            stats={"sizes": about},
            options=(),
        )
        lines = size_lines(writer, "mesh", "-n 4000 -m 2 -k 5", "ann", 2.0)
    first, second, third = lines
    assert (first.parameter, second.parameter, third.parameter) == ("n", "m", "k")
    assert second.text == "size m: 1•  [2•]  4•  5.66  8   • measured"
    assert second.beside("-n 4000 -m 2 -k 5", 1) == "-n 4000 -m 4 -k 5"
    assert first.beside("-n 4000 -m 2 -k 5", -1) == "-n 2000 -m 2 -k 5"
    shown = captions.sizes(Boards("mesh", "", 0, {}, sizes=lines), 2).splitlines()
    assert [line.startswith("▸ ") for line in shown] == [False, False, True]
    assert shown[2].endswith("[ ] smaller, larger, p next") and shown[0].endswith("• measured")


def test_one_key_goes_to_the_next_of_three_parameters_that_two_keys_change(
    at_sizes: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    went = []

    def three(*_: object) -> tuple[SizeLine, ...]:
        """Stand in for a family of three parameters; the stencil's has one."""
        steps = (SizeStep(1.0, "-n 1000000", True), SizeStep(2.0, "-n 2000000", True))
        return tuple(SizeLine(name, steps, 0) for name in ("n", "m", "k"))

    def beside(line: SizeLine, workload: str, by: int) -> None:
        went.append((line.parameter, by))

    monkeypatch.setattr(tradeoff, "size_lines", three)
    monkeypatch.setattr(SizeLine, "beside", beside)

    async def story(at: Any) -> None:
        await at.press("home", "enter")
        await at.press("right_square_bracket")  # once the options are read: they have the sizes
        assert "▸ size n:" in at.text and "p size of" in at.lines[-1]
        await at.press("p", "right_square_bracket", "p", "left_square_bracket")
        assert "▸ size k:" in at.text and "  size m:" in at.text
        await at.press("p", "left_square_bracket")
        assert went == [("n", 1), ("m", 1), ("k", -1), ("n", -1)]
        await at.press("question_mark")
        await at.until(lambda: "Help: Options" in at.text)

    play(at_sizes, story, (120, 40))


def test_a_size_of_one_parameter_offers_no_key_for_the_next(at_sizes: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("home", "enter")
        assert "size n:" in at.text and "▸ size" not in at.text
        assert "size of" not in at.lines[-1]
        await at.press("p")
        assert "size n:" in at.text

    play(at_sizes, story, (120, 40))
