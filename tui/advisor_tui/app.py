"""The program: pages, what they share, and notices."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.notifications import SeverityLevel
from textual.screen import Screen

from advisor.core.configuration import Configuration
from advisor.edits import Edit
from advisor.errors import AdvisorError
from advisor_tui.applications import ApplicationsPage
from advisor_tui.background import begin, in_thread
from advisor_tui.bar import Bar
from advisor_tui.page import Page
from advisor_tui.session import Session

if TYPE_CHECKING:
    from textual.command import Provider

T = TypeVar("T")

SLOW_S = 2.0
"""After so long a wait is told."""
EVERY_S = 5.0
"""How often the daemon and the sweeps are looked at."""
_SILENT_S = 10.0
"""The same notice is not repeated for so long."""


def _jobs() -> Screen[None]:
    from advisor_tui.jobs import JobsPage

    return JobsPage()


def _training() -> Screen[None]:
    from advisor_tui.training import TrainingPage

    return TrainingPage()


def _policy() -> Screen[None]:
    from advisor_tui.policy import PolicyPage

    return PolicyPage()


def _places() -> type[Provider]:
    from advisor_tui.palette import PlacesProvider

    return PlacesProvider


class AdvisorApp(App[None]):
    """``advisor tui`` for one person's desk."""

    TITLE = "advisor"
    COMMANDS = App.COMMANDS | {_places}
    CSS_PATH = "style.tcss"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {
        "applications": ApplicationsPage,
        "jobs": _jobs,
        "training": _training,
        "policy": _policy,
    }
    DEFAULT_MODE = "applications"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (130, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (36, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "go('applications')", "Applications", show=False),
        Binding("2", "go('jobs')", "Jobs", show=False),
        Binding("3", "go('training')", "Training", show=False),
        Binding("4", "go('policy')", "Policy", show=False),
        Binding("u", "undo", "undo"),
        Binding("question_mark,f1", "help", "help"),
        Binding("q", "quit", "quit", show=False),
    ]

    def __init__(self, desk: Session) -> None:
        super().__init__()
        self.desk = desk
        self.animation_level = "none"
        self.edits: list[tuple[str, Edit]] = []
        self.sweeping: Mapping[tuple[str, str], tuple[int, int]] = {}
        self.daemon: str = ""
        self._said: dict[str, float] = {}
        self._looking = False
        with suppress(OSError, ValueError):
            if desk.settings is not None:
                theme = json.loads(desk.settings.read_text()).get("theme")
                if theme in self.available_themes:
                    self.theme = theme

    def on_mount(self) -> None:
        """Begin to look after the daemon."""
        self.theme_changed_signal.subscribe(self, lambda _: self._keep_theme())
        self.set_interval(EVERY_S, self._look)
        self._look()

    # -- asking ----------------------------------------------------------------------------------

    async def ask(self, work: Callable[[], T]) -> T:
        """Return what ``work``, done in a thread, returns; a long wait is told."""
        late = asyncio.get_running_loop().call_later(
            SLOW_S, self.tell, "The store is slow; everything else goes on.", "warning"
        )
        try:
            return await in_thread(work)
        finally:
            late.cancel()

    def report(self, error: AdvisorError) -> None:
        """Show what went wrong and what to do, once."""
        self.tell(str(error), "error")

    def tell(self, text: str, severity: SeverityLevel = "information") -> None:
        """Show a notice, unless it was shown just now."""
        now = time.monotonic()
        if now - self._said.get(text, -_SILENT_S) >= _SILENT_S:
            self._said[text] = now
            self.notify(text, severity=severity, timeout=8, markup=False)

    # -- store and daemon ------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at daemon and sweeps, unless the last look is still under way."""
        if not self._looking:
            self._looking = True
            begin(self, self._looked, group="look")

    async def _looked(self) -> None:
        desk = self.desk

        def work() -> tuple[str, dict[tuple[str, str], tuple[int, int]]]:
            from advisor.core.protocol import call
            from advisor.training import progress

            sweeps = {
                (p.application, p.workload): (p.done, p.planned)
                for p in progress.every(desk.sweeps)
                if p.under_way
            }
            if desk.demo:
                return "demo data", sweeps
            try:
                status = call(desk.socket, {"op": "status"}, timeout_s=2.0)
            except AdvisorError:
                return "no daemon: jobs go through unchanged", sweeps
            if status.get("store_error"):
                return f"daemon cannot read its store: {status['store_error']}", sweeps
            return "daemon answers", sweeps

        try:
            self.daemon, self.sweeping = await in_thread(work)
        except AdvisorError as error:
            self.daemon = str(error)
        finally:
            self._looking = False
        if isinstance(self.screen, Page):
            self.paint_status(self.screen)

    def paint_status(self, page: Page) -> None:
        """Show on a page how the daemon is doing and whose jobs are looked at."""
        for bar in page.query(Bar):
            whose = f"as {self.desk.user}" if self.desk.foreign else self.desk.user
            bar.status = f"{self.daemon} · {whose}" if self.daemon else whose
            bar.brief = f"{self.daemon.partition(':')[0]} · {whose}"
            bar.trouble = self.daemon not in ("", "daemon answers", "demo data")

    # -- going somewhere -------------------------------------------------------------------------

    def action_go(self, place: str) -> None:
        """Go to one of the four places."""
        if self.current_mode != place:
            self.switch_mode(place)
        else:
            while len(self.screen_stack) > 1:
                self.pop_screen()

    def show_tradeoff(self, application: str, workload: str) -> None:
        """Show a workload's options."""
        from advisor_tui.tradeoff import TradeOffPage

        if self.current_mode != "applications":
            self.switch_mode("applications")
        self.push_screen(TradeOffPage(application, workload))

    def show_choose(self, application: str, workload: str, point: Configuration | None) -> None:
        """Show what can be chosen for a workload; ``point`` is what would be pinned."""
        if self.desk.foreign:
            self.tell(f"only {self.desk.user} can choose for {self.desk.user}", "warning")
            return
        from advisor_tui.choose import ChoosePage

        self.push_screen(ChoosePage(application, workload, point))

    def show_new_sweep(self) -> None:
        """Go where a sweep is started."""
        from advisor_tui.training import TrainingPage

        self.action_go("training")
        if isinstance(self.screen, TrainingPage):
            self.screen.action_new()

    def action_help(self) -> None:
        """Say what the page shows and which keys it knows."""
        if isinstance(self.screen, Page):
            from advisor_tui.help import HelpScreen

            self.push_screen(HelpScreen(self.screen))

    # -- changes of files ------------------------------------------------------------------------

    def changed(self, what: str, edit: Edit) -> None:
        """Note a change that can be taken back."""
        self.edits.append((what, edit))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer undo only when there is something to take back."""
        return bool(self.edits) if action == "undo" else True

    def action_undo(self) -> None:
        """Take back the last change of a file."""
        if not self.edits:
            return
        what, edit = self.edits.pop()
        try:
            edit.undo()
        except AdvisorError as error:
            self.report(error)
        else:
            self.tell(f"Taken back: {what}")
        self.refresh_bindings()
        if isinstance(self.screen, Page):
            self.screen.files_changed()

    def _keep_theme(self) -> None:
        from advisor.edits import replace

        if self.desk.settings is not None:
            with suppress(AdvisorError):
                replace(self.desk.settings, json.dumps({"theme": self.theme}).encode() + b"\n")
