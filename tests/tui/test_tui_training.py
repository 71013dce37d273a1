"""Training: a real sweep is planned, started, watched, stopped and gone on with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from advisor_tui.chart import Chart
from advisor_tui.session import Session
from advisor_tui.training import picture_of
from textual.widgets import Button, Input

from advisor import plugins
from advisor.phases.complete import BASE, CompleteRun
from advisor.store.reader import Reader
from advisor.training import progress
from advisor.views import sweeps

Play = Callable[..., Any]

SEEN = CompleteRun(
    [i / 2 for i in range(42)],
    ["begin", *["step"] * 40, "end"],
    [(t / 10, 10 * t + 8 * (t % 5 > 1)) for t in range(206)],
)
"""A complete run of 40 iterations of half a second, whose power differs inside of them."""

KERNEL = """\
#!/bin/sh
echo >> ran
n=$(wc -l < ran)
while [ -e hold ] && [ "$n" -gt "$(cat hold)" ]; do sleep 0.05; done
sleep 0.02
"""


@pytest.fixture
def local(own_store: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session whose sweeps run on this machine; its kernel runs as often as `hold` says."""
    session = replace(own_store, arguments=("--db", str(own_store.store), "--scheduler", "local"))
    monkeypatch.setenv("ADVISOR_DB", str(session.store))
    monkeypatch.setenv("XDG_STATE_HOME", str(session.sweeps.parent.parent))
    kernel = session.folder / "kernel"
    kernel.write_text(KERNEL)
    kernel.chmod(0o755)
    script = session.folder / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --exclusive -t 5\nsrun ./kernel one\n")
    return session


@pytest.mark.slow
def test_a_sweep_is_planned_started_watched_stopped_and_resumed(
    local: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, typed, planned = local.folder / "hold", threading.Event(), sweeps.plan
    long = local.folder / "long.sh"
    long.write_text("#!/bin/bash\n#SBATCH --exclusive -t 24:00:00\nsrun ./kernel one\n")

    async def begin(at: Any) -> None:
        await at.press("t")
        assert "[3 Training]" in at.lines[0]
        await at.press("escape")
        assert "wave2d" in at.text and "7/12" in at.text and "ben" in at.text
        await at.press("x")
        assert "only ben can stop it" in at.notices
        await at.press("n", "enter")
        assert "name a job script first" in at.text
        await at.write("long.sh")
        with monkeypatch.context() as patch:  # typed on while the plan is made
            patch.setattr(sweeps, "plan", lambda *asked: (typed.wait(20), planned(*asked))[1])
            await at.pilot.press("enter")
            at.one("#sweep-options", Input).value = "--samples 9"
            await at.pilot.pause()
            typed.set()
            await at.until(lambda: "the plan of what is typed now" in at.text)
        assert at.one("#start", Button).disabled
        at.one("#sweep-options", Input).value = ""
        await at.press("enter")
        await at.until(lambda: "node-hours" in at.text)
        assert "exceed the policy" in at.text
        assert at.one("#start", Button).disabled
        at.one("#sweep-script", Input).value = "job.sh"
        more = "--threads 1 --repeat-baseline 3 --meter estimate"
        at.one("#sweep-options", Input).value = more
        at.one("#sweep-options", Input).focus()
        await at.press("enter")
        await at.until(lambda: "kernel / one" in at.text)
        assert progress.every(local.sweeps) == []  # a plan runs nothing
        start = at.one("#start", Button)
        assert start.has_focus and not start.disabled
        hold.write_text("0")
        await at.press("enter")
        await at.until(lambda: "has started" in at.notices)
        await at.until(lambda: "running" in at.text and "kernel" in at.text)

    play(local, begin, (100, 30))
    (sweep,) = progress.every(local.sweeps)  # it outlives the program

    async def look_after(at: Any) -> None:
        await at.until(lambda: progress.read(sweep.folder).under_way)
        at.app._begin_check()
        await at.until(lambda: at.app.sweeping == {("kernel", "one"): (0, sweep.planned)})
        await at.press("3")
        await at.until(lambda: "points appear as they end" in at.text)
        hold.write_text("2")
        await at.until(lambda: "2 of " in at.text and "last: " in at.text and "so far" in at.text)
        assert "◆" in at.text
        assert at.one("#sweep-chart", Chart).picture is not None
        await at.press("enter")
        await at.until(lambda: "run 1/" in at.text)
        await at.press("escape", "x")
        assert "Stop the sweep of kernel / one?" in at.text
        await at.press("y")
        await at.until(lambda: "stopped" in at.text)
        assert not progress.read(sweep.folder).alive
        await at.press("x")
        await at.until(lambda: "It is not running" in at.notices)
        hold.unlink()
        await at.press("r")
        await at.until(lambda: progress.read(sweep.folder).state in ("fitted", "confirmed"), 40)
        await at.until(lambda: any(w in at.text for w in (" fitted", " confirmed")))
        await at.press("r")
        assert "It is finished" in at.notices or "It is running" in at.notices
        await at.press("p")
        await at.until(lambda: "No complete run of this sweep was watched" in at.text)
        await at.press("escape")
        (sweep.folder / "watch").mkdir(exist_ok=True)
        SEEN.save(sweep.folder / "watch" / BASE)
        await at.press("p")
        await at.until(lambda: "40 iterations of 0.500 s" in at.text)
        assert "Caps by phase are not known" in at.text and "an iteration, folded" in at.text
        await at.press("escape")
        every = plugins.found
        with monkeypatch.context() as patch:
            patch.setattr(
                "advisor.plugins.found", lambda kind: {} if kind == "panels" else every(kind)
            )
            await at.press("p")
            await at.until(lambda: "pip install hpc-advisor[lab]" in at.notices)
        await at.press("o")
        await at.until(lambda: "kernel / one" in at.lines[1])

    play(local, look_after, (100, 30))
    whole = progress.read(sweep.folder)
    unmetered = replace(whole, made=tuple(replace(m, energy_j=None) for m in whole.made))
    drawn = picture_of(unmetered)
    assert drawn is not None and (drawn.x_axis, drawn.y_axis) == ("threads", "time")
    assert [y for _, y in drawn.points] == [m.time_s for m in whole.made if m.ok]
    assert drawn.points[0][0] == whole.made[0].configuration["threads_per_node"]
    other = local.store.with_name("other.db")  # what is measured for one store is not in another
    assert [s.id for s in sweeps.listed(local.sweeps, local.store, local.user) if s.own] == [
        whole.id
    ]
    assert not sweeps.listed(local.sweeps, other, local.user)
    with Reader(local.store) as reader:
        assert [m.n_train for m in reader.find_models("kernel", "one")]
