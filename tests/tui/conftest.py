"""A site with a real store and a real daemon, and a driver for the real program's pages."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from advisor_tui import app, demo, shell
from advisor_tui.app import AdvisorApp
from advisor_tui.session import Session
from textual import _wait
from textual.pilot import Pilot
from textual.widget import Widget
from textual.worker import WorkerCancelled

from advisor.core.protocol import call

sys.path.insert(0, str(Path(__file__).resolve().parent / "real"))

W = TypeVar("W", bound=Widget)
USER = "ann"

_wait.SLEEP_GRANULARITY = 1 / 250  # how long a pilot sleeps between looks whether all is done


@dataclass
class Site:
    """Where the shared store and the daemon's socket are; neither is written by a test."""

    store: Path
    socket: Path


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no slow store: its notice would cover the screen.

    The daemon is asked at once, pages are made when somebody goes there, and no variable of who
    runs the tests counts as the job's.
    """
    monkeypatch.setattr(shell, "SLOW_S", 60.0)
    monkeypatch.setattr(app, "PAINTED_S", 0.001)
    monkeypatch.setattr(app, "IDLE_S", 1e6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("TMUX", raising=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The example site as a store of its own, with `advisor serve` on a private socket."""
    folder = tmp_path_factory.mktemp("site")
    found = Site(folder / "advisor.db", folder / "s")
    demo.build(found.store, USER)
    daemon = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "advisor",
            "serve",
            "--watch",
            "0",
            "--db",
            str(found.store),
            "--socket",
            str(found.socket),
            "--refresh",
            "0.1",
        ],
        stderr=subprocess.PIPE,
    )
    try:
        end = time.monotonic() + 20
        while not found.socket.exists():
            assert daemon.poll() is None and time.monotonic() < end, daemon.communicate()
            time.sleep(0.02)
        yield found
    finally:
        daemon.terminate()
        daemon.communicate(timeout=10)


@pytest.fixture
def at_home(site: Site, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who logs in."""
    return {
        "ADVISOR_DB": str(site.store),
        "ADVISOR_SOCKET": str(site.socket),
        "XDG_CONFIG_HOME": str(tmp_path / "home"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture
def session(site: Site, tmp_path: Path) -> Session:
    """Ann's session at the site: her own choices, sweeps and job scripts, all empty."""
    work = tmp_path / "work"
    work.mkdir()
    return replace(
        Session.here(),
        store=site.store,
        socket=site.socket,
        choices=tmp_path / "home" / "advisor" / "choices.json",
        sweeps=tmp_path / "state" / "advisor" / "sweeps",
        settings=tmp_path / "home" / "advisor" / "tui.json",
        folder=work,
        user=USER,
        submitted_with=dict,
        foreign=False,
        arguments=("--db", str(site.store)),
    )


@pytest.fixture
def own_store(session: Session, tmp_path: Path) -> Session:
    """Ann's session with a copy of the store that a test may write, and no daemon."""
    store = tmp_path / "own.db"
    shutil.copy(session.store, store)
    return replace(session, store=store, socket=tmp_path / "none", arguments=("--db", str(store)))


class Driver:
    """Types keys into a running program and reads its screen."""

    def __init__(self, app: AdvisorApp, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        """Type keys and let the program settle."""
        await self.pilot.press(*keys)
        await self.settle()

    async def open_row(self, row: int) -> None:
        """Open what the list has in this row, counted from 0."""
        await self.press("home", *["down"] * row, "enter")

    async def write(self, text: str) -> None:
        """Type a text."""
        await self.press(*text)

    async def settle(self) -> None:
        """Wait until nothing that was asked for is outstanding."""
        await self.pilot.pause()
        while busy := [w for w in self.app.workers if w.group != "look" and not w.is_finished]:
            with suppress(WorkerCancelled):  # a later one took its place
                await asyncio.wait_for(self.app.workers.wait_for_complete(busy[:1]), 20)
        while self.app._batch_count or self.app.screen._layout_required:  # painted as a whole
            await asyncio.sleep(0.001)
        await self.pilot.pause()

    async def until(self, found: Callable[[], object], seconds: float = 20) -> None:
        """Wait until something holds, and look more and more seldom: a look paints the screen."""
        end, pause = time.monotonic() + seconds, 0.02
        while not found():
            assert time.monotonic() < end, self.text
            await self.pilot.pause(pause)
            pause = min(0.3, 1.3 * pause)

    @property
    def lines(self) -> list[str]:
        """The screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        texts = ("".join(segment.text for segment in strip) for strip in strips)
        return [text.replace("\u00a0", " ").rstrip() for text in texts]

    @property
    def text(self) -> str:
        """The screen."""
        return "\n".join(self.lines)

    @property
    def notices(self) -> str:
        """What was noticed so far."""
        return "\n".join(self.app._noticed)

    def one(self, selector: str, kind: type[W]) -> W:
        """Return one widget of the page."""
        return self.app.screen.query_one(selector, kind)


Story = Callable[[Driver], Awaitable[None]]


@pytest.fixture
def play() -> Callable[..., AdvisorApp]:
    """Run the program at a session, without a terminal, and let a story happen in it."""

    def run(
        session: Session, story: Story, size: tuple[int, int] = (80, 24), *, settle: bool = True
    ) -> AdvisorApp:
        running_app = AdvisorApp(session)

        async def act() -> None:
            running: AbstractAsyncContextManager[Pilot[Any]] = running_app.run_test(
                size=size, notifications=True
            )
            async with running as pilot:
                driver = Driver(running_app, pilot)
                if settle:
                    await driver.settle()
                    await driver.press("home")  # stories begin on the first row
                await story(driver)

        asyncio.run(act())
        return running_app

    return run


@pytest.fixture
def decide(site: Site) -> Callable[..., dict[str, Any]]:
    """Ask the daemon what a submission gets, as the filter does."""

    def ask(script: Path, choices: Path) -> dict[str, Any]:
        from advisor.schedulers.slurm.translator import read_directives

        text = script.read_text()
        return call(
            site.socket,
            {
                "v": 1,
                "op": "explain",
                "scheduler": "slurm",
                "type": "sbatch",
                "script": text,
                "script_path": str(script),
                "options": read_directives(text),
                "argv": [],
                "choices": choices.read_text() if choices.exists() else "",
            },
        )

    return ask
