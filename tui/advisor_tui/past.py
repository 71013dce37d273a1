"""A policy file tried on the jobs of the past, as ``advisor policy simulate`` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from advisor.errors import AdvisorError, InputError
from advisor.paths import config_dir
from advisor_tui.background import begin
from advisor_tui.boxes import Below, Scrolled, SideBySide
from advisor_tui.dialogue import Field
from advisor_tui.session import Session
from advisor_tui.shell import Page


class PastJobs(Below):
    """A file, since when, and what that policy would have done; Enter tries it."""

    def __init__(self, page: Page) -> None:
        super().__init__(id="past")
        self._page = page
        self._turn = 0

    def compose(self) -> Iterable[Widget]:
        """Yield the two fields and the result."""
        file = Field(
            str(config_dir() / "policy.yaml"),
            id="past-file",
            compact=True,
            placeholder="a policy file",
        )
        since = Field("30d", id="past-since", compact=True, placeholder="30d or 2026-01-31")
        yield SideBySide(
            Static("policy file\nsince", classes="wide-label"), Below(file, since), id="past-ask"
        )
        yield Scrolled(
            Static(
                "Enter tries the file on the jobs of the past; nothing is changed.", id="past-text"
            ),
            id="past-result",
        )

    @on(Input.Submitted)
    def _trial_submitted(self) -> None:
        self._turn += 1
        self._say("deciding again ...")
        begin(self, self._try_policy, self._turn, group="past", exclusive=True)

    async def _try_policy(self, turn: int) -> None:
        file = self.query_one("#past-file", Input).value.strip()
        since = self.query_one("#past-since", Input).value.strip()
        session = self._page.session
        width = self.query_one("#past-result").scrollable_content_region.width

        def going_on() -> bool:
            return self.app.is_running and self._turn == turn

        try:
            text = await self._page.advisor.ask(
                lambda: _trial_text(session, file, since, width, going_on)
            )
        except AdvisorError as error:
            text = str(error)
        if turn == self._turn:
            self._say(text)

    def _say(self, text: str) -> None:
        self.query_one("#past-text", Static).update(Content(text))


def _trial_text(
    session: Session, file: str, since: str, width: int, going_on: Callable[[], bool]
) -> str:
    """Return what a policy file would have done, ``width`` columns wide. Raises AdvisorError."""
    from advisor.loop import clock
    from advisor.policy.load import check_text, read_file
    from advisor.views import simulated_words as words
    from advisor.views.simulation import simulate
    from advisor.views.tables import table

    path = Path(file).expanduser()
    text, problems = read_file(path, "policy")
    compiled = None
    if not problems:
        compiled, problems = check_text(text, str(path), "policy")
    if compiled is None:
        raise InputError("\n".join(map(str, problems)))
    with session.reader() as reader:
        user = None if session.admin else session.user
        simulation = simulate(reader, compiled, clock.since(since), user=user, going_on=going_on)
    headers, rows, more = words.table(simulation, 200)
    lines = words.sentences(simulation, path.name)
    if rows:
        shown = table(headers, rows)
        if max(map(len, shown)) > width:  # the intervals of the sums are above
            interval_column = headers.index("90 %")
            narrow_rows = [
                [*row[:interval_column], *row[interval_column + 1 :]] for row in (headers, *rows)
            ]
            shown = table(narrow_rows[0], narrow_rows[1:])
        lines += ["", *shown]
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])
