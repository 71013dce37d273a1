"""The program: its places and keys, help, the theme, and a look at the daemon every few seconds."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import termios
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from advisor.errors import AdvisorError
from advisor_tui import settings
from advisor_tui.background import begin, finished, in_thread
from advisor_tui.legible import shows_images, speaks_utf8
from advisor_tui.paint_once import PaintOnce
from advisor_tui.places import PLACES, AppPlace
from advisor_tui.session import Session
from advisor_tui.shell import AppShell, Page, by_action

if TYPE_CHECKING:
    from textual.command import Provider

EVERY_S = 5.0
"""Seconds between two looks at the daemon and the sweeps."""
PAINTED_S = 0.2
"""Seconds after which the first screen is painted and the daemon is asked how it is."""
AHEAD_S = 5.0
"""Seconds in which other pages are surely made."""
GARBAGE = 20_000
"""Objects made and kept since Python's collector looked last, from which on it looks again."""
IDLE_S = 0.5
"""Seconds after which the first screen is painted and other pages are made."""

_MADE_FIRST = ("tradeoff:TradeOffPage", "choose:ChoosePage", "help:HelpScreen")
"""What is opened most, beside the places."""


def _palette() -> type[Provider]:
    from advisor_tui.palette import PlacesProvider

    return PlacesProvider


class AdvisorApp(AppShell):
    """``advisor tui`` for one person's session."""

    TITLE = "advisor"
    COMMANDS = App.COMMANDS | {_palette}
    CSS_PATH = "style.tcss"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-slim"),
        (76, "-narrow"),
        (120, "-wide"),
        (160, "-huge"),
        (190, "-vast"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-usual"), (36, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = by_action(
        *(
            Binding(str(number), f"go('{place.name}')", place.title, show=False)
            for number, place in enumerate(PLACES, 1)
        ),
        Binding("u", "undo", "undo"),
        Binding("question_mark,f1", "help", "help"),
        Binding("q", "quit", "quit", show=False),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, priority=True),
    )

    def __init__(self, session: Session, *, utf8: bool = True, pictures: str = "") -> None:
        super().__init__(session)
        for place in PLACES:
            self.add_mode(place.name, partial(self._place, place))
        self.animation_level = "none"
        self._looking = self.settled = False
        """``settled``: all is made that is made ahead."""
        tui_settings = settings.read(session.settings, self.available_themes)
        self._problems = tui_settings.problems
        if tui_settings.signs == "ascii" or (not utf8 and tui_settings.signs == "auto"):
            self.ascii_only()
        elif shows_images(pictures or tui_settings.pictures):
            from advisor_tui.graphics import ImageDriver

            self.driver_class = ImageDriver
        if tui_settings.theme:
            self.theme = tui_settings.theme
        self.keys = tui_settings.keys
        self.set_keymap(tui_settings.keys)
        self._first = tui_settings.page

    def on_mount(self) -> None:
        """Begin to look after the daemon."""
        gc.disable()  # until the first pages are made: nothing of what is loaded is garbage
        if not self.is_headless:
            self._heed_signals()
        self.theme_changed_signal.subscribe(self, lambda _: self._keep_theme())
        self.switch_mode(self._first)
        for problem in self._problems:
            self.call_after_refresh(self.tell, problem, "warning")
        self.app_resume_signal.subscribe(self, lambda _: self._paint_again())
        self.set_timer(IDLE_S, lambda: begin(self, self._prepare, group="look"))
        self.set_interval(EVERY_S, self._begin_check)
        self.set_timer(PAINTED_S, self._begin_check)

    def _heed_signals(self) -> None:
        """Leave in order on a signal: the terminal would keep its mouse mode and other screen."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self._leave_on_signal, number)

    def _leave_on_signal(self, number: int) -> None:
        if _hung_up():
            os._exit(128 + number)  # to leave in order, Textual would wait to paint
        self.exit(return_code=128 + number)

    def action_suspend_process(self) -> None:
        """Stop, and give the terminal back to the shell; fg goes on.

        Without a shell that could do so the program would stand still for good.
        """
        if _has_shell():
            super().action_suspend_process()
        else:
            self.tell("No shell waits below: Ctrl+Z would stop the program for good.", "warning")

    def _paint_again(self) -> None:
        """Paint all of the screen: after Ctrl+Z and fg the terminal has nothing of it."""
        for widget in (self.screen, *self.screen.query("*")):
            widget.refresh(layout=widget is self.screen)

    def on_unmount(self) -> None:
        """Leave Python's collector as it was."""
        gc.enable()

    def _place(self, place: AppPlace) -> Page:
        kind: type[Page] = place.kind()
        page = self.ready.get(kind)
        return page if isinstance(page, kind) else kind()

    async def _prepare(self) -> None:
        """Make the pages before somebody goes there; what is there by then stays for good.

        Python's collector would look through all of it every few keys, 60 ms at a time.
        """
        await self._first_rows()
        if self.session.demo is not None:
            with suppress(AdvisorError):  # it is only an example
                await in_thread(self.session.demo)
            self.paint_files()
        kinds: list[type[PaintOnce[None]]] = []
        for page in _MADE_FIRST + tuple(place.page for place in PLACES):
            with suppress(AdvisorError):  # whoever goes there learns of it
                kinds.append(await in_thread(partial(resolve_name, f"advisor_tui.{page}")))
        shown = {type(stack[0]) for stack in self.stacks()}
        await self.make_ahead(*(kind for kind in kinds if kind not in shown))
        begun = [w for w in self.workers if w.group == "look" and w.node is not self]
        await finished(begun, AHEAD_S)
        if isinstance(self.screen, Page):
            self.screen.others_made()
        gc.freeze()
        self.settled = True  # from now on it is called while nobody types
        problems = settings.unknown_actions(self.session.settings, self.keys, self._actions())
        if problems:
            self.tell("\n".join(problems), "warning")

    async def _first_rows(self) -> None:
        """Wait for all of the first rows, but not for ever: nothing else is loaded before them."""
        if isinstance(self.screen, Page):
            await self.screen.first_read()  # on a busy machine it is not painted yet
        for group in ("first", "list"):
            await finished([w for w in self.workers if w.group == group], AHEAD_S)

    def _actions(self) -> set[str]:
        """Return what settings can give a key: the actions of the program and of its pages."""
        pages, index = [Page], 0
        while index < len(pages):
            pages += pages[index].__subclasses__()
            index += 1
        every = [*self.BINDINGS, *(b for page in pages for b in page.BINDINGS)]
        return {b.action for b in every if isinstance(b, Binding) and b.description}

    def _begin_check(self) -> None:
        """Look at daemon and sweeps, unless the last look is still under way."""
        if _hung_up():
            os._exit(128 + signal.SIGHUP)  # to leave in order, Textual would wait to paint
        if self.settled and gc.get_count()[0] > GARBAGE:
            gc.collect()
        if not self._looking:
            self._looking = True
            begin(self, self._check_daemon, group="look")

    async def _check_daemon(self) -> None:
        session = self.session

        def work() -> tuple[str, dict[tuple[str, str], tuple[int, int]]]:
            from advisor.core.protocol import call
            from advisor.training import progress

            sweeps = {
                (p.application, p.workload): (p.done, p.planned)
                for p in progress.every(session.sweeps, session.store)
                if p.under_way
            }
            if session.demo is not None:
                return "demo data", sweeps
            try:
                status = call(session.socket, {"op": "status"}, timeout_s=2.0)
            except AdvisorError:
                return "no daemon: jobs run as written", sweeps
            if status.get("store_error"):
                return f"daemon cannot read its store: {status['store_error']}", sweeps
            return "daemon answers", sweeps

        if not self.daemon:  # the first time
            await self._first_rows()
        try:
            self.daemon, self.sweeping = await in_thread(work)
        except AdvisorError as error:
            self.daemon = str(error)
        finally:
            self._looking = False
        self.paint_status()

    def action_help(self) -> None:
        """Show what the page is for and which keys it has."""
        if isinstance(self.screen, Page):
            from advisor_tui.help import HelpScreen

            screen = self.made(HelpScreen)
            screen.explain(self.screen)
            self.push_screen(screen)

    def _keep_theme(self) -> None:
        settings.keep_theme(self.session.settings, self.theme)


def _hung_up() -> bool:
    """Tell whether the terminal is gone: Textual would read its end again and again."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


def _has_shell() -> bool:
    """Tell whether somebody in this session, outside of our process group, waits for us.

    Else the group is an orphan, which the kernel itself never stops from the terminal.
    """
    group, session, pid = os.getpgrp(), os.getsid(0), os.getppid()
    try:
        while os.getpgid(pid) == group:
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            pid = int(after_name[1])
        return os.getsid(pid) == session
    except (OSError, ValueError, IndexError):
        return False


def start(
    *,
    db: str | None = None,
    socket: str | None = None,
    user: str | None = None,
    demo: bool = False,
    pictures: str = "",
) -> int:
    """Run until the user leaves; return the exit code. Raises AdvisorError for an unknown user."""
    if demo:
        from advisor_tui.demo import demonstration
    with (
        demonstration() if demo else nullcontext(Session.here(db=db, socket=socket, user=user)) as s
    ):
        served = "TEXTUAL_DRIVER" in os.environ  # to a browser
        app = AdvisorApp(s, utf8=served or speaks_utf8(), pictures=pictures)
        app.run()
        return app.return_code or 0
