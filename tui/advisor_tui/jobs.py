"""The latest decisions: what was changed, what was promised, what came out, and why."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from advisor.errors import AdvisorError
from advisor.store.records import Outcome
from advisor.views import jobs as view
from advisor.views.decision import decision_lines
from advisor.views.jobs import Job
from advisor_tui.background import begin
from advisor_tui.boxes import Scrolled, SideBySide
from advisor_tui.chart import Chart
from advisor_tui.job_picture import job_picture
from advisor_tui.shell import Page
from advisor_tui.table import Cell, Column, LazyTable

_PAGE = 100
"""Jobs read at once."""
_SCREEN = 20
"""Those that are read and shown before the others of the first page."""
_COLUMNS = (
    Column("When", 10),
    Column("Job", 6, right=True, gap=1, below=130),
    Column("Job", 14, right=True, gap=1, from_width=130),
    Column("User", 8, from_width=110),
    Column("Application", 11, flex=2, gap=1),
    Column("Workload", 10, flex=2, from_width=110),
    Column("Promised energy, time", 23, flex=4),
    Column("Came out", 22, flex=1),
)
_ROLES = {"as-promised": "good", "better": "good", "worse": "bad"}


class JobsPage(Page):
    """The list of decisions, newest first."""

    TITLE = "Jobs"
    PLACE = "jobs"
    HELP = """\
Your latest jobs that the advisor decided about, newest first.

Promised   what the change was to bring, or why there was none
Came out   what the scheduler's accounting measured, against what was
           predicted for the job as you wrote it

Enter opens everything about a job: what was asked for, what was
chosen, and every reason. advisor why JOBID prints the same.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "why", priority=False),
        Binding("a", "everybody", "all users", tooltip="your own jobs, or everybody's"),
        Binding("o", "options", "options", tooltip="the options of its application"),
        Binding("r", "reload", "read again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._everybody = False
        self._jobs: list[Job] = []
        self._all_read = False
        self._reading = False

    def body(self) -> Iterable[Widget]:
        """Yield the list and a sentence on the job under the cursor."""
        yield Static("", id="whose", classes="title")
        yield LazyTable(_COLUMNS, id="jobs", empty="reading ...")
        yield Static("", id="sentence")

    def on_mount(self) -> None:
        """Begin with the list."""
        self.table.border_title = "jobs"
        self.table.border_subtitle = "enter why · a all users · o options"
        self.query_one("#sentence").border_title = "under the cursor"
        self.begin_at("#jobs")

    def opened(self) -> None:
        """Read the first jobs."""
        self.load()

    @property
    def table(self) -> LazyTable:
        """The list."""
        return self.query_one("#jobs", LazyTable)

    @property
    def current(self) -> Job | None:
        """The job under the cursor."""
        row = self.table.cursor
        return self._jobs[row] if row < len(self._jobs) else None

    def load(self) -> None:
        """Read the jobs again: a screenful, and once that is shown what else is in a page."""
        self._all_read = False
        self.workers.cancel_group(self, "jobs-more")
        begin(self, self._load, 0, _SCREEN, group="jobs", exclusive=True)

    def _load_more(self, limit: int) -> None:
        self._reading = True
        begin(self, self._load_next, limit, group="jobs-more", exclusive=True)

    async def _load_next(self, limit: int) -> None:
        await self.painted()
        await self._load(len(self._jobs), limit)

    async def _load(self, offset: int, limit: int) -> None:
        session = self.session
        user = None if self._everybody else session.user
        self._reading = True

        def work() -> list[Job]:
            with session.reader() as reader:
                return view.page(reader, user=user, offset=offset, limit=limit)

        page = await self.ask(work)
        self._reading = False
        table = self.table
        if page is None:
            table.empty = "the store cannot be read; r reads it again"
            table.reset(0)
            return
        self._all_read = len(page) < limit
        self._jobs = [*self._jobs[:offset], *page]
        whose = "everybody's jobs" if self._everybody else f"jobs of {session.user}"
        more = "" if self._all_read else ", more below"
        self.query_one("#whose", Static).update(Content(f"{len(self._jobs)} {whose}{more}"))
        table.empty = f"no {whose} were decided about yet"
        table.reset(
            len(self._jobs),
            cursor=table.cursor if offset else 0,
            keep=bool(offset),
            first=offset,
            rows=[_cells(job) for job in page],
        )
        self._say()
        if not offset and not self._all_read:
            self._load_more(_PAGE - _SCREEN)

    @on(LazyTable.Moved, "#jobs")
    def _cursor_moved(self) -> None:
        self._say()
        near_end = self.table.cursor >= len(self._jobs) - 20
        if near_end and not self._all_read and not self._reading:
            self._load_more(_PAGE)

    def _say(self) -> None:
        job = self.current
        text = ""
        if job is not None:
            d = job.decision
            text = f"{d.application or '(not recognised)'} / {d.workload or '-'}: {job.what}"
            if d.changed:
                text += f"\npromised {job.promised}; came out: {job.outcome}"
        self.query_one("#sentence", Static).update(Content(text))

    @on(LazyTable.Opened, "#jobs")
    def action_open(self) -> None:
        """Show everything about the job under the cursor."""
        job = self.current
        if job is not None:
            self.app.push_screen(WhyPage(job))

    def files_changed(self) -> None:
        """Read the jobs again."""
        self.load()

    def action_everybody(self) -> None:
        """Show everybody's jobs, or one's own again."""
        self._everybody = not self._everybody
        self.load()

    def action_options(self) -> None:
        """Show the options of the job's application."""
        job = self.current
        if job is not None and job.decision.application:
            from advisor_tui.tradeoff import show_tradeoff

            show_tradeoff(self.advisor, job.decision.application, job.decision.workload)

    def action_reload(self) -> None:
        """Read again."""
        self.load()


def _cells(job: Job) -> list[Cell]:
    d = job.decision
    promised: Cell = job.promised if d.changed else (job.what, "dim")
    role = _ROLES.get(job.verdict, "dim" if not job.verdict else "")
    if role == "good" and job.outcome.endswith("slower"):
        role = ""  # green is for what is better in both
    return [
        (ago(d.created_at), "dim"),
        d.job_id or "-",
        d.job_id or "-",
        d.user,
        (d.application or "(unknown)", "strong"),
        d.workload,
        promised,
        (job.outcome, role),
    ]


def ago(when: str) -> str:
    """Return how long ago a time (ISO 8601) was: ``5 min ago``; "" for what is no time."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(when)).total_seconds()
    except (ValueError, TypeError):
        return ""
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{max(0, seconds) / unit:.0f} {name} ago"
    return f"{seconds / 86400:.0f} d ago"


def hanging(line: str, width: int) -> list[str]:
    """Return a line wrapped, what follows below its own text: after ``name   `` or ``  - ``."""
    head = re.match(r"\s*- |\S+(?: \S+)*?\s{2,}|\s+", line)
    indent = head.end() if head else 0
    if indent > width // 2:
        indent = 2
    return textwrap.wrap(line, width, subsequent_indent=" " * indent) or [""]


class WhyPage(Page):
    """Everything known of one job."""

    TITLE = "Why"
    PLACE = "jobs"
    HELP = """\
What was asked for, what was chosen and promised, what the scheduler
measured, and every reason. advisor why JOBID prints the same.

From 120 columns on a picture stands beside it: ◆ the job as written,
★ what was promised, with its interval, ● what was measured, and ○ what
else was weighed.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter", "back", "back"),
        Binding("y", "copy", "copy", tooltip="copy the text to the clipboard"),
        Binding("o", "options", "options", tooltip="the options of its application"),
    ]

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._decision = job.decision
        self._text = ""

    def body(self) -> Iterable[Widget]:
        """Yield the text."""
        d = self._decision
        name = f"job {d.job_id}" if d.job_id else f"decision {d.id}"
        yield Static(Content(f"Why: {name}"), classes="title")
        with SideBySide(id="why-body"):
            with Scrolled(id="why"):
                yield Static("asking ...", id="why-text")
            yield Chart(id="why-chart")

    def on_mount(self) -> None:
        """Ask store and scheduler."""
        self.query_one("#why").border_title = "all that is known"
        chart = self.query_one("#why-chart", Chart)
        chart.can_focus = False
        chart.border_title = "promised and measured"
        self.begin_at("#why")
        begin(self, self._load, exclusive=True)

    async def _load(self) -> None:
        session, d = self.session, self._decision

        def work() -> tuple[list[str], Outcome | None]:
            from advisor.loop.why import why
            from advisor.schedulers.choose import create
            from advisor.schedulers.here import named
            from advisor.views.why import why_lines
            from advisor.views.worth import of_decision

            with session.reader() as reader:
                worth = of_decision(d, reader, session.user)
                if not d.job_id:
                    return decision_lines(d, worth.lines() if worth else ()), None
                scheduler = None if session.demo else create(named(d.scheduler))
                answer = why(d.job_id, reader, scheduler, cluster=d.cluster)
                return why_lines(answer, worth), answer.outcome

        outcome = None
        try:
            lines, outcome = await self.advisor.ask(work)
        except AdvisorError as error:
            lines = [f"note         {error}", *decision_lines(d)]
        self._text = "\n".join(lines)
        self._draw(outcome)
        self._paint()

    def _draw(self, outcome: Outcome | None) -> None:
        """Show the picture, where there is one: the room is the text's otherwise."""
        chart = self.query_one("#why-chart", Chart)
        drawn = job_picture(self._decision, outcome)
        self.query_one("#why-body").set_class(drawn is not None, "-drawn")
        if drawn is not None:
            picture, number = drawn
            chart.set_reactive(Chart.cursor, number)
            chart.show(picture)
            self.call_after_refresh(self._paint)

    def on_resize(self) -> None:
        """Wrap the lines for the new width."""
        self._paint()

    def _paint(self) -> None:
        if self._text:
            width = max(20, self.query_one("#why", Scrolled).scrollable_content_region.width)
            wrapped = [part for line in self._text.split("\n") for part in hanging(line, width)]
            self.query_one("#why-text", Static).update(Content("\n".join(wrapped)))

    def action_copy(self) -> None:
        """Put the text on the clipboard."""
        self.advisor.copy_to_clipboard(self._text)

    def action_options(self) -> None:
        """Show the options of the job's application."""
        if self._decision.application:
            from advisor_tui.tradeoff import show_tradeoff

            show_tradeoff(self.advisor, self._decision.application, self._decision.workload)

    def action_back(self) -> None:
        """Go back to the list."""
        self.dismiss()
