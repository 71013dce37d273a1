"""What every screen has: the top line, the keys at the bottom, help, and asking in the back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer

from advisor.errors import AdvisorError
from advisor_tui.bar import Bar

if TYPE_CHECKING:
    from advisor_tui.app import AdvisorApp
    from advisor_tui.session import Session

T = TypeVar("T")


class Page(Screen[None]):
    """A screen of the advisor; ``HELP`` says what it is for, ``PLACE`` where it belongs."""

    PLACE: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    _ready = False

    @property
    def advisor(self) -> AdvisorApp:
        """The program."""
        from advisor_tui.app import AdvisorApp

        assert isinstance(self.app, AdvisorApp)
        return self.app

    @property
    def desk(self) -> Session:
        """Who sits here and where things are."""
        return self.advisor.desk

    def compose(self) -> ComposeResult:
        """Lay out the top line, the page's own part, and the keys."""
        yield Bar(self.PLACE)
        yield from self.body()
        yield Footer(compact=True)

    def body(self) -> Iterable[Widget]:
        """Yield the page's own widgets."""
        return ()

    def on_mount(self) -> None:
        """Show what is known of store and daemon; take keys from now on."""
        self._ready = True
        self.refresh_bindings()
        self.advisor.paint_status(self)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys typed ahead of a page that is still being laid out do nothing on it."""
        return self._ready

    def on_screen_resume(self) -> None:
        """Show what is known of store and daemon."""
        self.advisor.paint_status(self)

    def files_changed(self) -> None:
        """Show anew what depends on the choices file."""

    async def ask(self, work: Callable[[], T]) -> T | None:
        """Return what ``work`` returns, done in a thread; None, and a notice, when it fails."""
        try:
            return await self.advisor.ask(work)
        except AdvisorError as error:
            self.advisor.report(error)
            return None
