"""Choosing: what is written, what the next submission gets, the script, the clipboard, undo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from advisor_tui.demo_site import PROGRAMS, script_of
from advisor_tui.picks import Picks
from advisor_tui.session import Session
from advisor_tui.stepper import Stepper
from textual.widgets import Input

from advisor.choices import chosen

Play = Callable[..., Any]
Decide = Callable[..., dict[str, Any]]


@pytest.fixture
def script(session: Session) -> Path:
    """The job script of cg-solver n=4e6, on broadwell nodes."""
    path = session.folder / "cg-solver.sh"
    path.write_text(script_of(next(p for p in PROGRAMS if p.workload == "n=4e6")))
    path.chmod(0o750)
    return path


async def choose_point(at: Any, steps: int) -> Any:
    """Open cg-solver n=4e6, walk along its front, and choose the point there."""
    await at.press("home", "down", "enter", *["right"] * steps)
    point = at.app.screen.board.options[at.app.screen.current].configuration
    await at.press("c")
    return point


def held(session: Session, workload: str = "n=4e6") -> dict[str, Any]:
    return chosen(json.loads(session.choices.read_text()), "cg-solver", workload)


def test_a_pinned_point_holds_from_the_next_submission_on(
    session: Session, script: Path, play: Play, decide: Decide
) -> None:
    before = decide(script, session.choices)
    points = []

    async def story(at: Any) -> None:
        point = await choose_point(at, 3)
        points.append(point)
        assert "Queues, time limits and free nodes are looked at when a job is submitted" in at.text
        await at.press("slash")
        await at.write("cg-solver.sh")
        assert "sbatch cg-solver.sh would get" in at.text
        assert "Queues, time limits and" not in at.text  # the daemon was asked
        assert f"+export OMP_NUM_THREADS={point.threads_per_rank}" in at.text
        assert f"+#SBATCH --cpu-freq=1200000-{point.freq_khz}" in at.text
        assert not session.choices.exists()  # looking changes nothing
        await at.press("escape", "s")
        assert "Saved: a point is pinned for cg-solver / n=4e6" in at.notices
        assert "⚑" in at.text and at.lines[3].startswith(" APPLIED: as you chose")

    play(session, story)
    pin = points[0].to_dict()
    pin.pop("threads_per_rank")
    assert held(session) == {"pin": pin}
    after = decide(script, session.choices)
    assert after["chosen"]["threads_per_node"] == points[0].threads_per_node
    assert after["chosen"]["freq_khz"] == points[0].freq_khz
    assert "pinned" in after["reasons"] and "pinned" not in before["reasons"]
    assert after["rewrite"] != before["rewrite"]
    assert session.choices.stat().st_mode & 0o077 == 0


def test_a_goal_and_a_bound_for_all_of_ones_jobs(
    session: Session, script: Path, play: Play, decide: Decide
) -> None:
    async def story(at: Any) -> None:
        await at.press("down", "c")
        assert at.one("#kind", Picks).key == "goal"
        at.one("#aim", Stepper).focus()
        await at.press("left", "left", "left")
        at.one("#slower", Stepper).focus()
        await at.press("right", "right", "right")
        at.one("#scope", Picks).focus()
        await at.press("right", "right")
        wish = at.app.screen.wish
        assert (wish.kind, wish.scope, wish.max_slowdown) == ("goal", "all", "2%")
        await at.press("s")
        assert f"Saved: goal {wish.goal} for all your jobs" in at.notices

    play(session, story)
    data = json.loads(session.choices.read_text())
    assert data == {"version": 1, "goal": "min_time", "max_slowdown": "2%"}
    got = decide(script, session.choices)
    assert got["goal"] == "min_time"


def test_leave_my_jobs_alone_and_the_policy_again(
    session: Session, script: Path, play: Play, decide: Decide
) -> None:
    session.choices.parent.mkdir(parents=True)
    session.choices.write_text(
        json.dumps({"version": 1, "mine": "kept", "workloads": {"lbm/*": {"goal": "edp"}}})
    )
    assert decide(script, session.choices)["rewrite"]

    async def story(at: Any) -> None:
        await at.press("down", "c", "down")
        assert at.one("#kind", Picks).key == "off"
        assert "you opted out" in at.text
        at.one("#scope", Picks).focus()
        await at.press("right")
        await at.press("s")
        assert "leaves it alone for all of cg-solver" in at.notices
        assert "✗ cg-solver" in at.text
        assert "◇ lbm" in at.text
        got = decide(script, session.choices)
        assert got["rewrite"] == {} and "opted-out" in got["reasons"]

        await at.press("c", "down", "down")
        assert at.one("#kind", Picks).key == "none"
        at.one("#scope", Picks).focus()
        await at.press("right", "s")
        assert "✗ cg-solver" not in at.text

    play(session, story)
    data = json.loads(session.choices.read_text())
    assert data == {"version": 1, "mine": "kept", "workloads": {"lbm/*": {"goal": "edp"}}}
    assert decide(script, session.choices)["rewrite"]


def test_undo_takes_back_one_change_after_the_other(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("down", "c", "down", "s")
        await at.press("c", "down", "down", "s")
        first = session.choices.read_text()
        assert "u undo" in at.text
        await at.press("u")
        assert held(session) == {"off": True} and "✗ cg-solver" in at.text
        assert session.choices.read_text() != first
        await at.press("u")
        assert not session.choices.exists() and "✗ cg-solver" not in at.text
        assert "u undo" not in at.text
        await at.press("u")

        await at.press("c", "down", "s")
        session.choices.write_text('{"version": 1, "goal": "edp"}')
        await at.press("u")
        assert "changed by something else since" in at.notices

    play(session, story)
    assert json.loads(session.choices.read_text()) == {"version": 1, "goal": "edp"}


def test_a_choices_file_broken_by_hand_is_named_and_left(session: Session, play: Play) -> None:
    session.choices.parent.mkdir(parents=True)
    session.choices.write_text("{broken by hand")

    async def story(at: Any) -> None:
        assert str(session.choices) in at.notices
        assert "% less" in at.text  # the list goes on without it, as the hooks do
        await at.press("down", "c")
        assert str(session.choices) in at.text.replace("\n", "").replace(" ", "")
        await at.press("down", "s")
        assert str(session.choices) in at.notices and "mend or remove" in at.notices
        assert at.app.edits == []

    play(session, story)
    assert session.choices.read_text() == "{broken by hand"


def test_the_lines_go_to_the_clipboard(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        point = await choose_point(at, 3)
        await at.press("y")
        assert "Copied 3 lines" in at.notices
        assert at.app.clipboard == (  # its partition has other node types as well
            "#SBATCH --constraint=broadwell\n"
            f"#SBATCH --cpu-freq=1200000-{point.freq_khz}\n"
            f"export OMP_NUM_THREADS={point.threads_per_rank}\n"
        )
        await at.press("down", "down", "y")
        assert "no lines to copy" in at.notices

    play(session, story)


def test_lines_are_those_of_the_form_as_it_is(session: Session, play: Play) -> None:
    """A key pressed before the preview of the last change was there copied the lines before it."""

    async def story(at: Any) -> None:
        await choose_point(at, 3)
        page = at.app.screen
        page.preview = lambda: None  # as slow as can be
        await at.press("down", "down", "y")
        assert "no lines to copy" in at.notices and not at.app.clipboard

    play(session, story)


def test_the_script_is_written_after_a_question_and_taken_back(
    session: Session, script: Path, play: Play, decide: Decide
) -> None:
    old = script.read_bytes()
    points = []

    async def story(at: Any) -> None:
        point = await choose_point(at, 3)
        points.append(point)
        await at.press("w")
        assert "Name a job script first" in at.notices
        await at.write("cg-solver.sh")
        await at.press("escape", "w")
        assert "Write this into" in at.text and "+export OMP_NUM_THREADS" in at.text
        await at.press("n")
        assert script.read_bytes() == old
        await at.press("w", "y")
        assert "Written: cg-solver.sh" in at.notices
        text = script.read_text()
        assert f"#SBATCH --cpu-freq=1200000-{point.freq_khz}\n" in text
        assert f"export OMP_NUM_THREADS={point.threads_per_rank}\n" in text
        assert text.endswith("srun ./cg-solver n=4e6\n")
        assert script.stat().st_mode & 0o777 == 0o750
        backup = script.with_name("cg-solver.sh.before-advisor")
        assert backup.read_bytes() == old

        script.write_text(text + "# more\n")
        await at.press("u")
        assert "changed by something else since" in at.notices
        script.write_text(text)
        at.app._noticed.clear()

    play(session, story)
    got = decide(script, session.choices)
    base = got["baseline"]
    assert base["threads_per_node"] == points[0].threads_per_node
    assert base["freq_khz"] == points[0].freq_khz


def test_a_script_changed_meanwhile_is_not_written(
    session: Session, script: Path, play: Play
) -> None:
    async def story(at: Any) -> None:
        await choose_point(at, 3)
        await at.press("slash")
        await at.write("cg-solver.sh")
        await at.press("escape", "w")
        script.write_text("#!/bin/bash\n# quite another\n")
        await at.press("y")
        assert "was changed meanwhile" in at.notices

    play(session, story)
    assert script.read_text() == "#!/bin/bash\n# quite another\n"


def test_a_script_of_something_else_and_none_at_all(
    session: Session, script: Path, play: Play
) -> None:
    async def story(at: Any) -> None:
        await at.press("home", "c", *["down"] * 4)  # from choice to choice, from field to field
        assert at.one("#script", Input).has_focus
        await at.press("up")
        assert at.one("#scope", Picks).has_focus
        await at.press("slash")
        await at.write("cg-solver.sh")
        assert "This script runs cg-solver / n=4e6" in at.text
        await at.write("x")
        assert "cg-solver.shx" in at.text and "No such file" in at.text
        await at.press("escape", "w")
        assert "nothing to write" in at.notices

    play(session, story)


def test_a_job_that_cannot_be_pinned_says_why(session: Session, script: Path, play: Play) -> None:
    text = script.read_text()
    script.write_text(text.replace("#SBATCH --exclusive\n", "#SBATCH --exclusive\n#SBATCH -c 28\n"))

    async def story(at: Any) -> None:
        await choose_point(at, 3)
        await at.press("slash")
        await at.write("cg-solver.sh")
        assert "this job cannot have your pinned configuration" in at.text

    play(session, story, (100, 40))


def test_an_empty_goal_is_not_saved(session: Session, play: Play) -> None:
    """The line stands beside the fields until one of them is changed."""

    async def story(at: Any) -> None:
        await at.press("down", "c", "s")
        assert at.one("#kind", Picks).key == "goal"
        assert "not saved: choose a goal or the largest slowdown" in at.text
        assert not session.choices.exists()
        at.one("#slower", Stepper).focus()
        await at.press("right")
        assert "not saved" not in at.text
        await at.press("s")
        assert "Saved" in at.notices

    play(session, story)
    assert held(session) == {"max_slowdown": "0%"}


def test_a_point_the_site_no_longer_has_is_not_saved(own_store: Session, play: Play) -> None:
    """The node type is renewed with other frequency steps while the form is open."""
    from dataclasses import replace

    from advisor.store.writer import Writer

    async def story(at: Any) -> None:
        point = await choose_point(at, 3)
        with Writer(own_store.store) as writer:
            there = writer.inventory().node_types[point.node_type]
            writer.save_node_types([replace(there, freq_khz=(3_000_000,))], source="test")
        await at.press("s")
        assert "not saved:" in at.text and "is not a frequency step" in at.text
        assert not own_store.choices.exists()

    play(own_store, story)
