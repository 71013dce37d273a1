"""What pages need of the program: asking in threads, notices, undo, and going to a place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rich.console import RenderableType
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Mount, ScreenSuspend
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widget import Widget

from advisor.edits import Edit
from advisor.errors import AdvisorError
from advisor_tui.background import begin, in_thread
from advisor_tui.bar import Bar
from advisor_tui.keys import Keys, Notice
from advisor_tui.legible import Legible, Plain
from advisor_tui.paint_once import PaintOnce
from advisor_tui.places import PLACES
from advisor_tui.session import Session

if TYPE_CHECKING:
    from advisor_tui.graphics import Graphics
    from advisor_tui.read_ahead import ReadAhead

T = TypeVar("T")
P = TypeVar("P", bound=PaintOnce[None])

SLOW_S = 2.0
"""Seconds after which a wait is shown."""
_SILENT_S = 10.0
"""Seconds in which the same notice is not repeated."""


def by_action(*bindings: BindingType) -> list[BindingType]:
    """Return bindings that a person's settings can give other keys, by the name of their action."""
    return [replace(b, id=b.action) if isinstance(b, Binding) else b for b in bindings]


async def _finished(mounting: Awaitable[None]) -> None:
    await mounting


class AppShell(App[None]):
    """The program as its pages know it."""

    DEFAULT_MODE = "ahead"
    """Never shown: pages are made in it before somebody goes there."""
    graphics: Graphics | None = None
    """What shows images; None where the terminal shows none."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.styled_for = self.theme
        """The theme whose styles hold: Textual parses another one's a moment after it is set."""
        self._terminal: list[LineFilter] = [Legible(self.console.color_system)]
        self.edits: list[tuple[str, Edit]] = []
        self.sweeping: Mapping[tuple[str, str], tuple[int, int]] = {}
        self.daemon: str = ""
        self.keys: Mapping[str, str] = {}
        self.looked_at: tuple[str, str] | None = None
        """Application and workload under the list's cursor."""
        self._noticed: dict[str, float] = {}
        self.ready: dict[type[PaintOnce[None]], PaintOnce[None]] = {}
        self._being_made: asyncio.Future[None] | None = None
        """A page that is made ahead."""
        self.leaving = False

    @cached_property
    def read_ahead(self) -> ReadAhead:
        """The options that somebody may open next."""
        from advisor_tui.read_ahead import ReadAhead

        return ReadAhead(self.session)

    def ascii_only(self) -> None:
        """Paint ASCII from now on."""
        self._terminal.append(Plain())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what every painted line passes: colours that can be read, signs that are known."""
        return [*super().get_line_filters(), *getattr(self, "_terminal", ())]

    async def make_ahead(self, *pages: type[PaintOnce[None]]) -> None:
        """Make pages that somebody may open soon: to mount one takes longer than to show it."""
        for page in pages:
            if page not in self.ready and not self.leaving:
                screen = page()
                # mounted where nobody looks: Textual mounts no screen but in a mode
                mounting = self.push_screen(screen, mode=self.DEFAULT_MODE)
                self._being_made = asyncio.ensure_future(_finished(mounting))
                await self._being_made
                if page in self.ready:  # somebody was faster
                    screen.remove()
                else:
                    self._keep_page(screen)
                    begin(screen, self._rehearse_page, screen, group="look")

    def exit(
        self, result: None = None, return_code: int = 0, message: RenderableType | None = None
    ) -> None:
        """Leave, once a page that is being made is whole: without its widgets it would fail."""
        self.leaving = True
        leave = partial(super().exit, result, return_code, message)
        if self._being_made is None or self._being_made.done():
            leave()
        else:
            self._being_made.add_done_callback(lambda _: leave())

    async def _rehearse_page(self, page: PaintOnce[None]) -> None:
        await page.ahead()
        await page.rehearse()

    def _keep_page(self, screen: PaintOnce[None]) -> None:
        """Have a page stay when it is left: to make another takes longer than any key."""
        self.ready[type(screen)] = screen
        self.install_screen(screen, type(screen).__name__)

    def made(self, page: type[P]) -> P:
        """Return a page to open, as if it were new: the same one, unless it is open elsewhere."""
        ready_page = self.ready.get(page)
        if isinstance(ready_page, page) and not self._is_open(ready_page):
            ready_page.as_new()
            return ready_page
        new = page()
        if ready_page is None:
            self._keep_page(new)
        return new

    def _is_open(self, page: Screen[Any]) -> bool:
        return any(page in stack for stack in self.stacks())

    def has_left(self, page: Screen[Any]) -> bool:
        """Tell whether a page is being taken off the screen for good."""
        return self.leaving or not (self.is_screen_installed(page) or self._is_open(page))

    def stacks(self) -> Iterator[list[Screen[Any]]]:
        """Yield the screens of each place where somebody was, the one on top last."""
        for place in PLACES:
            with suppress(KeyError):
                yield self.get_screen_stack(place.name)

    def refresh_css(self, animate: bool = True) -> None:
        """Give everything the styles of the theme, unless what is shown, if anything, has them.

        Textual asks for it whenever a mode is shown for the first time.
        """
        shown = (s for s in self.screen_stack[-1:] if isinstance(s, PaintOnce))  # none at first
        if self.styled_for != self.theme or any(s.styled_for != self.theme for s in shown):
            super().refresh_css(animate)
            self.styled_for = self.theme

    def delay_update(self, delay: float = 0.05) -> None:
        """Delay nothing when a mode is shown: a page paints once it is whole (``PaintOnce.hold``).

        Until the delay is over, Textual would say of a page that it is painted before it is.
        """

    async def ask(self, work: Callable[[], T]) -> T:
        """Return what ``work``, done in a thread, returns; a notice says when that takes long."""
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
        if now - self._noticed.get(text, -_SILENT_S) >= _SILENT_S:
            self._noticed[text] = now
            for screen in reversed(self.screen_stack):
                for notice in screen.query(Notice):
                    notice.tell(text, severity)
                    return

    def copy_to_clipboard(self, text: str, what: str = "the text") -> None:
        """Put a text on the clipboard, keep it where that surely works, and say where it is."""
        super().copy_to_clipboard(text)
        begin(self, self._copied, text, what, group="copy")

    async def _copied(self, text: str, what: str) -> None:
        from advisor_tui import clipboard

        folder = self.session.sweeps.parent
        try:
            where = await in_thread(lambda: clipboard.keep(text, folder))
        except AdvisorError as error:
            self.report(error)
        else:
            self.tell(f"Copied {what}: {where}")

    def paint_status(self) -> None:
        """Show on the page how the daemon is doing and whose jobs are looked at."""
        if not isinstance(self.screen, Page):
            return
        for bar in self.screen.query(Bar):
            user = f"as {self.session.user}" if self.session.foreign else self.session.user
            bar.status = f"{self.daemon} · {user}" if self.daemon else user
            bar.brief = f"{self.daemon.partition(':')[0]} · {user}"
            bar.trouble = self.daemon not in ("", "daemon answers", "demo data")
        self.screen.status_changed()

    def action_go(self, place: str, action_name: str = "") -> None:
        """Go to a place, or back to its first page; ``action_name`` is an action of that page."""
        if self.current_mode != place:
            self.switch_mode(place)
        else:
            while len(self.screen_stack) > 1:
                self.pop_screen()
        if action_name:  # once the page is there as a whole
            self.screen.call_later(getattr(self.screen, f"action_{action_name}"))

    def paint_files(self) -> None:
        """Show on the page what a file says now that was written."""
        if isinstance(self.screen, Page):  # it may still be mounted
            self.screen.call_later(self.screen.files_changed)

    def changed(self, what: str, edit: Edit) -> None:
        """Note a change of a file that undo takes back."""
        self.edits.append((what, edit))
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer undo only when there is something to take back."""
        return bool(self.edits) if action == "undo" else True

    def action_help_quit(self) -> None:
        """Say how to leave: Ctrl+C, which people try, copies where text is typed."""
        self.tell("q leaves the advisor; while you type, Esc comes first.")

    def action_undo(self) -> None:
        """Undo the last change of a file."""
        if not self.edits:
            return
        what, edit = self.edits.pop()
        try:
            edit.undo()
        except AdvisorError as error:
            self.report(error)
        else:
            self.tell(f"Undone: {what}")
        self.refresh_bindings()
        self.paint_files()


class Page(PaintOnce[None]):
    """A screen of the program: ``HELP`` says what it is for, ``PLACE`` where it belongs."""

    PLACE: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    BLANK = True  # its lines are covered all over
    _ready = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let settings give the page's actions other keys."""
        if "BINDINGS" in cls.__dict__:
            cls.BINDINGS = by_action(*cls.BINDINGS)
        super().__init_subclass__(**kwargs)

    @property
    def advisor(self) -> AppShell:
        """The program."""
        assert isinstance(self.app, AppShell)
        return self.app

    @property
    def session(self) -> Session:
        """Whose jobs are looked at, and where things are."""
        return self.advisor.session

    def compose(self) -> ComposeResult:
        """Lay out the top line, the page's own part, and the keys."""
        yield Bar(self.PLACE)
        yield from self.body()
        yield Notice()
        yield Keys()

    def body(self) -> Iterable[Widget]:
        """Yield the page's own widgets."""
        return ()

    def begin_at(self, selector: str) -> None:
        """Set the focus where the page begins; nowhere if the program ended meanwhile."""
        for widget in self.query(selector):
            self.set_focus(widget)
            return

    @on(Mount)
    async def _first_shown(self) -> None:
        """Show what is known of store and daemon; take keys from now on."""
        await self.first_read()
        self._ready = True
        self.refresh_bindings()
        self.advisor.paint_status()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys typed ahead of a page that is still being laid out do nothing on it."""
        return self._ready

    def on_screen_resume(self) -> None:
        """Show what is known of store and daemon."""
        self.advisor.paint_status()

    @on(ScreenSuspend)
    def _covered(self) -> None:
        """Leave no image below what is shown now."""
        if (graphics := self.advisor.graphics) is not None:
            graphics.clear()

    def status_changed(self) -> None:
        """Repaint what depends on the daemon."""

    def files_changed(self) -> None:
        """Repaint what depends on the choices file."""

    def others_made(self) -> None:
        """Show what takes longer, once the other pages are made."""

    async def ask(self, work: Callable[[], T]) -> T | None:
        """Return what ``work`` returns, done in a thread; None, and a notice, when it fails."""
        try:
            return await self.advisor.ask(work)
        except AdvisorError as error:
            self.advisor.report(error)
            return None
