"""What the list promised the last time is shown at once, and only where it still holds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advisor_tui.session import Session

from advisor.store.writer import Writer
from advisor.views import applications as view

Play = Callable[..., Any]


def place(session: Session) -> Path:
    return session.sweeps.parent / "list.json"


def rows_of(lines: list[str]) -> list[str]:
    """Return the list's rows up to what is promised: what was measured is read later."""
    first = next(n for n, line in enumerate(lines) if "Application" in line and "Runs" in line)
    end = lines[first].index("Promised") + len("Promised")
    return [line[:end].rstrip() for line in lines[first + 1 : first + 13]]


@pytest.fixture
def shown_first(monkeypatch: pytest.MonkeyPatch, play: Play) -> Callable[[Session], list[str]]:
    """What is on the screen before anything is decided, and that all comes after it."""

    def shown(session: Session) -> list[str]:
        decided, may_go_on, seen = view.page, threading.Event(), []

        def slow(*args: Any, **more: Any) -> Any:
            assert may_go_on.wait(20)
            return decided(*args, **more)

        async def story(at: Any) -> None:
            await at.until(lambda: "channel 512" in at.text)
            seen.extend(rows_of(at.lines))
            may_go_on.set()
            await at.until(lambda: "workloads of" in at.text)
            await at.settle()

        with monkeypatch.context() as patched:
            patched.setattr(view, "page", slow)
            play(session, story, settle=False)
        return seen

    return shown


def decided_rows(session: Session, play: Play) -> list[str]:
    seen: list[str] = []

    async def story(at: Any) -> None:
        seen.extend(rows_of(at.lines))

    play(session, story)
    return seen


def test_the_second_start_shows_what_is_decided_at_once(
    session: Session, play: Play, shown_first: Callable[[Session], list[str]]
) -> None:
    computed = decided_rows(session, play)
    assert any("% less" in row for row in computed)
    kept = place(session).stat()
    assert kept.st_mode & 0o777 == 0o600
    remembered = shown_first(session)
    training = [n for n, row in enumerate(computed) if "training" in row]
    assert training and all("…" in remembered[n] for n in training)
    for n, row in enumerate(computed):
        if n not in training:
            assert remembered[n] == row
    assert place(session).stat().st_mtime_ns == kept.st_mtime_ns  # nothing new to keep


@pytest.mark.parametrize("written", ["policy", "model", "choices", "user", "environment", "damage"])
def test_it_is_not_shown_once_it_may_not_hold(
    own_store: Session,
    play: Play,
    shown_first: Callable[[Session], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    written: str,
) -> None:
    session = own_store
    decided_rows(session, play)
    assert any("% less" in row for row in shown_first(session))
    if written == "policy":
        base = {"mode": "observe", "goal": "min_energy", "max_slowdown": 0.02}
        with Writer(session.store) as store:
            store.apply_config(
                "policy", path="p", text="p", compiled={"base": base, "rules": []}, by="a test"
            )
    elif written == "model":
        with Writer(session.store) as store, store.transaction() as db:
            db.execute("UPDATE models SET updated_at = '2099-01-01T00:00:00Z' WHERE id = 1")
    elif written == "choices":
        session.choices.parent.mkdir(parents=True, exist_ok=True)
        session.choices.write_text('{"applications": {"lbm": {"off": true}}}')
    elif written == "user":
        session = replace(session, user="ben", uid=session.uid + 1)
    elif written == "environment":
        monkeypatch.setenv("SBATCH_ACCOUNT", "chem")
    else:
        kept = json.loads(place(session).read_text())
        kept["rows"][0][2][1] = {"no": "cell"}
        place(session).write_text(json.dumps(kept))
    first = shown_first(session)
    assert first and not any("% less" in row for row in first)
    again = shown_first(session)
    assert [row for row in decided_rows(session, play) if "% less" in row] == [
        row for row in again if "% less" in row
    ]


def test_nothing_is_kept_of_somebody_else_s_jobs(session: Session, play: Play) -> None:
    decided_rows(replace(session, foreign=True), play)
    assert not place(session).exists()
