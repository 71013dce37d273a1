"""Jobs and their reasons; the policy, its rules, and what another one would do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from advisor_tui import demo_site, jobs
from advisor_tui.app import AdvisorApp
from advisor_tui.job_picture import job_picture
from advisor_tui.jobs import hanging
from advisor_tui.session import Session
from advisor_tui.stepper import Stepper
from advisor_tui.table import LazyTable
from textual.widgets import Input

from advisor.core.decision import Decision
from advisor.core.policy import GOALS, Policy
from advisor.policy.load import check_text
from advisor.store import opening
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views import jobs as job_view
from advisor.views.preview import AskingJob, Person, preview
from advisor.views.whatif import WhatIf

Play = Callable[..., Any]


def test_long_ids_of_jobs_are_told_apart(own_store: Session, play: Play) -> None:
    with Writer(own_store.store) as store:
        (decision,) = store.decisions(limit=1)
        for number in "12":
            job_id = f"local-b6e957c{number}"
            store.save_decision(replace(decision, id=number * 16, user="ann"), job_id=job_id)

    async def story(at: Any) -> None:
        await at.press("2")
        assert "…957c1" in at.text and "…957c2" in at.text
        await at.pilot.resize_terminal(140, 24)
        await at.settle()
        assert "local-b6e957c1" in at.text

    play(own_store, story)


def test_the_latest_jobs_with_promise_and_outcome(
    session: Session, play: Play, advisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "caller", lambda: "ann")
    with Reader(session.store) as reader:
        mine = [d for d in reader.decisions(user="ann") if d.job_id]
    changed = next(d for d in mine if d.rewrite and reader_outcome(session, d.job_id))
    shown = advisor("why", changed.job_id, "--db", session.store).out

    async def story(at: Any) -> None:
        await at.press("2")
        assert f"{len(mine)} jobs of ann" in at.text
        row = next(n for n, d in enumerate(mine) if d.id == changed.id)
        await at.press(*["down"] * row)
        line = next(li for li in at.lines if li.startswith("▸"))
        assert changed.job_id in line and changed.application in line
        assert line.count("% less") == 2  # promised, and measured
        assert "promised " in at.text and "came out: " in at.text
        await at.press("enter")
        assert shown.splitlines()[0] in at.text and "promised" in at.text
        assert at.app.screen._text == shown.rstrip("\n")
        await at.press("y")
        assert at.app.clipboard.startswith("job ")
        await at.press("escape", "a")
        assert "everybody's jobs" in at.text
        assert len(at.app.screen._jobs) > len(mine)
        await at.press("home", "o")
        assert "from " in at.lines[1]

    play(session, story)


@pytest.mark.parametrize(("width", "drawn"), [(100, False), (120, True)])
def test_why_has_the_picture_where_there_is_room(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch, width: int, drawn: bool
) -> None:
    """As written, promised and measured, each with its word; the text is whole beside it."""
    monkeypatch.setattr(opening, "caller", lambda: "ann")
    with Reader(session.store) as reader:
        mine = [d for d in reader.decisions(user="ann") if d.job_id]
    row = next(n for n, d in enumerate(mine) if d.rewrite and reader_outcome(session, d.job_id))

    async def story(at: Any) -> None:
        await at.press("2", *["down"] * row, "enter")
        assert ("promised and measured" in at.text) is drawn
        for sign, word in (("◆", "as written"), ("[★]", "promised"), ("●", "measured")):
            assert (sign in at.text) is drawn
            assert word in at.text or not drawn
        parts = [line.split("│")[1] if "│" in line else line for line in at.lines]
        words = " ".join(parts)
        for line in at.app.screen._text.splitlines():
            assert "".join(line.split()) in "".join(words.split()), line

    play(session, story, (width, 50))


def test_a_job_of_which_little_is_known_has_no_picture() -> None:
    decision = Decision("d", "", "slurm", "sbatch", "ann", "", Policy(), "app", "", None, None)
    assert job_picture(decision, None) is None
    alone = replace(decision, baseline_time_s=10.0, baseline_energy_j=100.0)
    assert job_picture(alone, None) is None


def test_long_lines_of_the_reasons_are_wrapped_below_their_own_text() -> None:
    line = "promised     energy −35.3 % (−36.3 % to −34.3 %), time +4.9 %"
    assert hanging(line, 50) == [line[:49].rstrip(), " " * 13 + line[49:].strip()]
    assert hanging("  - nothing changed: no option is left", 24) == [
        "  - nothing changed: no",
        "    option is left",
    ]
    assert hanging("", 40) == [""]
    assert hanging("x" * 30 + "  " + "y" * 30, 40)[1] == "  " + "y" * 30


def reader_outcome(session: Session, job_id: str) -> object:
    with Reader(session.store) as reader:
        return reader.outcome(job_id)


def test_more_jobs_are_read_on_the_way_down(own_store: Session, play: Play) -> None:
    with Writer(own_store.store) as store:
        (decision,) = store.decisions(limit=1)
        with store.batch():
            for n in range(150):
                store.save_decision(replace(decision, id=f"{n:016x}", user="ann"))

    async def story(at: Any) -> None:
        await at.press("2")
        assert "100 jobs of ann, more below" in at.text
        await at.press("end")
        await at.until(lambda: "more below" not in at.text)
        assert len(at.app.screen._jobs) > 150
        await at.press("enter")
        assert "Why: decision" in at.text and "asked for" in at.text and "policy  " in at.text

    play(own_store, story)


def test_a_screenful_of_jobs_is_shown_before_the_others_are_read(
    own_store: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(own_store.store) as store:
        (decision,) = store.decisions(limit=1)
        with store.batch():
            for n in range(150):
                store.save_decision(replace(decision, id=f"{n:016x}", user="ann"))
    asked: list[tuple[int, int]] = []
    painted: list[bool] = []
    page = job_view.page

    events: list[str] = []
    display = AdvisorApp._display

    def displayed(app: AdvisorApp, screen: Any, update: Any) -> None:
        if not app._batch_count:  # else Textual keeps it back
            events.append(f"painted {screen.TITLE}")
        display(app, screen, update)

    def counted(*arguments: Any, offset: int = 0, limit: int = 100, **more: Any) -> Any:
        asked.append((offset, limit))
        events.append(f"read {offset}")
        return page(*arguments, offset=offset, limit=limit, **more)

    monkeypatch.setattr(AdvisorApp, "_display", displayed)
    monkeypatch.setattr(job_view, "page", counted)
    whole = jobs.JobsPage._load_next

    async def more(screen: jobs.JobsPage, limit: int) -> None:
        await screen.painted()
        painted.append("20 jobs of ann, more below" in where[0].text)
        await whole(screen, limit)

    monkeypatch.setattr(jobs.JobsPage, "_load_next", more)
    where: list[Any] = []

    async def story(at: Any) -> None:
        where.append(at)
        await at.press("2")
        assert asked == [(0, 20), (20, 80)] and painted == [True]
        assert "painted Jobs" in events[events.index("read 0") : events.index("read 20")]
        assert "100 jobs of ann, more below" in at.text
        asked.clear()
        await at.press("a")
        assert asked == [(0, 20), (20, 80)]
        assert len({job.decision.id for job in at.app.screen._jobs}) == 100

    play(own_store, story)


def test_the_applied_policy_and_the_rule_that_holds(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("4")
        assert "version 1, applied" in at.text and "goal: min_energy" in at.text
        await at.press("w")
        assert "no rule matches" in at.text
        await at.write("md-water")
        assert "rule 2 of 2 holds (application: md*)" in at.text
        assert "performance   (else min_energy)" in at.text
        at.one("#fact-partition", Input).value = "debug"
        await at.settle()
        assert "rule 1 of 2 holds (partition: debug)" in at.text
        await at.press("escape", "a")
        assert "version 1, applied" in at.text

    play(session, story)


def test_a_part_is_made_when_it_is_first_shown(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("4")
        assert not at.app.screen.query("#rule, #whatif")
        await at.pilot.press("w", "escape", "right", "left", "i", "w")  # not waiting for any
        await at.settle()
        assert len(at.app.screen.query("#rule")) == len(at.app.screen.query("#whatif")) == 1
        assert "no rule matches" in at.text and at.one("#fact-user", Input).value == "ann"

    play(session, story)


def test_a_policy_that_is_read_while_a_part_is_being_made(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the policy came when a part's first widgets were there, not its last."""

    async def story(at: Any) -> None:
        await at.press("4")
        page = at.app.screen
        policy = page._applied

        async def at_once(_work: Any) -> Any:
            return policy

        with monkeypatch.context() as patch:
            patch.setattr(page, "ask", at_once)
            for part in ("rule", "whatif"):
                making = asyncio.ensure_future(page._mount_part(part))
                while not making.done():
                    await page._load()
                    await asyncio.sleep(0)
        await at.press("w")
        assert "no rule matches" in at.text
        await at.press("escape", "i")
        assert "models advise" in at.text

    play(session, story)


def test_a_policy_file_is_tried_on_the_past(
    session: Session, play: Play, advisor: Any, tmp_path: Any
) -> None:
    """The page says what the command does, and what is wrong with a file or a time."""
    file = tmp_path / "new.yaml"
    file.write_text("version: 1\nmode: advise\n")
    shown = advisor("policy", "simulate", file, "--db", session.store).out.splitlines()

    async def story(at: Any) -> None:
        await at.press("4", "p")
        at.one("#past-file", Input).value = str(file)
        await at.press("enter")
        await at.until(lambda: "made again under new.yaml" in at.text)
        assert shown[1].split(":")[0].strip() in at.text  # how many are different
        at.one("#past-since", Input).value = "soon"
        await at.press("enter")
        await at.until(lambda: "--since soon: not a time" in at.text)
        file.write_text("mod: x\n")
        await at.press("enter")
        await at.until(lambda: "mod: unknown key" in at.text)

    play(session, story)


def test_the_example_policy_is_what_its_text_says() -> None:
    compiled, problems = check_text(demo_site.POLICY, "policy.yaml", "policy")
    assert problems == []
    assert compiled == demo_site.COMPILED


def test_the_slider_shows_what_applying_another_policy_would_do(
    own_store: Session, play: Play
) -> None:
    rows = []

    async def story(at: Any) -> None:
        await at.press("4", "i")
        table = at.one("#changes", LazyTable)
        await at.until(lambda: table.count)
        assert "0 new, 0 elsewhere, 0 no more" in at.text
        assert "cg-solver / n=3e7 on broadwell\n today and then as submitted" in at.text
        at.one("#slowdown", Stepper).focus()
        await at.press("home")
        await at.until(lambda: "- gone" in at.text)
        await at.press(*["right"] * 3, "end", *["left"] * 3)
        at.one("#goal", Stepper).at = GOALS.index("balanced")
        value = at.one("#slowdown", Stepper).value
        assert value == "12 %"
        await at.until(lambda: "~ other" in at.text or "+ new" in at.text)
        await at.pilot.pause(0.3)
        await at.settle()
        rows.extend(at.app.screen._changes)
        assert "then: " in at.text and "models advise" in at.text

    play(own_store, story, (140, 40))
    compiled = demo_site.COMPILED | {
        "base": {**demo_site.COMPILED["base"], "goal": "balanced", "max_slowdown": 0.12}  # type: ignore[dict-item]
    }
    with Writer(own_store.store) as store:
        store.apply_config("policy", path="p", text="p", compiled=compiled, by="test")
        applied = WhatIf.load(store)
    now = {c.model_id: c.now for c in applied.cases}
    assert {c.case.model_id: c.then for c in rows} == now
    assert any(c.kind != "same" for c in rows)


def test_a_whatif_decides_as_the_daemon_does(session: Session) -> None:
    """Pruned models give the same choice as whole ones."""
    from advisor.service.snapshot import StoreSource

    source = StoreSource(session.store)
    source.refresh()
    with Reader(session.store) as reader:
        whatif = WhatIf.load(reader)
    fitted = [m for m in source.snapshot.models.values() if not m.transferred]
    assert len(whatif.cases) == len(fitted) == len(source.snapshot.models) - 1
    for case in whatif.cases:
        whole = preview(
            source.snapshot,
            AskingJob(case.application, case.workload, case.baseline, Person("")),
        )
        assert whole is not None
        chosen = whole.chosen.configuration if whole.chosen else None
        assert (case.now.configuration if case.now else None) == chosen
    source.close()


def test_only_admins_decide_for_everybody(session: Session, play: Play, monkeypatch: Any) -> None:
    monkeypatch.setattr(Session, "admin", property(lambda _: False))

    async def story(at: Any) -> None:
        await at.press("4", "i")
        assert "Only admins can use this page" in at.text
        assert "max_slowdown" not in at.text and "Today" not in at.text
        await at.press("right")  # the choice of parts has the keys
        assert "version" in at.text and at.one("#changes", LazyTable).count == 0

    play(replace(session), story)
