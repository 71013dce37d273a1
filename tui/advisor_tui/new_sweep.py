"""Start a sweep: a job script, what it would do and cost, and yes or no."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from advisor.errors import AdvisorError
from advisor.views import choosing
from advisor.views import sweeps as view
from advisor_tui.background import begin, in_thread
from advisor_tui.boxes import Scrolled, SideBySide
from advisor_tui.dialogue import Dialogue, Field, Push

if TYPE_CHECKING:
    from advisor_tui.session import Session


class NewSweep(Dialogue[str]):
    """The result is the id of the sweep that has begun."""

    KEYS = "Enter shows the plan; nothing runs before Start.  Esc cancels"

    def __init__(self, session: Session) -> None:
        super().__init__("Measure an application once: which job script shows how it is run?")
        self._session = session
        self._planned: tuple[str, ...] = ()
        self._turn = 0
        """How often something was typed: a plan is of what stood there before."""

    def body(self) -> Iterable[Widget]:
        """Yield the fields, the plan and the buttons."""
        with SideBySide(classes="row"):
            yield Static("script", classes="label")
            yield Field(placeholder="job.sh", id="sweep-script", compact=True)
        with SideBySide(classes="row"):
            yield Static("options", classes="label")
            yield Field(
                placeholder="none needed; like --samples 8 --estimate 10m",
                id="sweep-options",
                compact=True,
            )
        with Scrolled():
            yield Static("", id="plan")
        with SideBySide(classes="row"):
            yield Push("Show the plan", id="show", variant="primary")
            yield Push("Start", id="start", disabled=True)
            yield Push("Cancel", id="cancel")

    def on_mount(self) -> None:
        """Look for job scripts."""
        self.set_focus(self.query_one("#sweep-script"))
        begin(self, self._suggest_scripts, group="scripts")

    async def _suggest_scripts(self) -> None:
        folder = self._session.folder
        scripts: list[Path] = []
        with suppress(AdvisorError):  # a help to typing, nothing more
            scripts = await in_thread(lambda: choosing.scripts_in(folder, "\n"))
        self.query_one("#sweep-script", Field).suggest(folder, scripts)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What is asked for, as for ``advisor train``. Raises AdvisorError."""
        script = self.query_one("#sweep-script", Input).value.strip()
        if not script:
            raise AdvisorError("name a job script first")
        try:
            more = shlex.split(self.query_one("#sweep-options", Input).value)
        except ValueError as error:
            raise AdvisorError(f"options: {error}") from None
        return (script, *self._session.arguments, *more)

    @on(Input.Changed)
    def _typed(self) -> None:
        self._turn += 1
        self._planned = ()
        self.query_one("#start", Button).disabled = True

    @on(Input.Submitted)
    def _options_entered(self) -> None:
        begin(self, self._plan, exclusive=True)

    @on(Button.Pressed)
    def _button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "cancel":
            self.dismiss(None)
        elif event.button.id == "show":
            begin(self, self._plan, exclusive=True)
        else:
            begin(self, self._start, exclusive=True)

    def _say(self, text: str) -> None:
        self.query_one("#plan", Static).update(Content(text))

    async def _plan(self) -> None:
        folder, turn, problem = self._session.folder, self._turn, ""
        arguments: tuple[str, ...] = ()
        try:
            arguments = self.arguments
            self._say("planning ...")
            text = await in_thread(lambda: view.plan(arguments, folder))
        except AdvisorError as error:
            problem = str(error)
        if turn != self._turn:
            problem = "Enter shows the plan of what is typed now."
        if problem:
            self._say(problem)
            return
        self._planned = arguments
        self._say(text)
        start = self.query_one("#start", Button)
        start.disabled = False
        self.set_focus(start)

    async def _start(self) -> None:
        arguments, folder = self._planned, self._session.folder
        self.query_one("#start", Button).disabled = True
        try:
            sweep_id = await in_thread(lambda: view.start(arguments, folder))
        except AdvisorError as error:
            self._say(str(error))
            return
        self.dismiss(sweep_id)
