"""Sweeps: start one, watch it, stop it, resume it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from advisor import laboratory
from advisor.core.configuration import Configuration
from advisor.core.units import format_duration, format_energy
from advisor.core.words import describe
from advisor.errors import AdvisorError
from advisor.plotting import PlotPoint
from advisor.training import progress
from advisor.training.progress import Made, Progress
from advisor.views import sweeps as view
from advisor.views.sweeps import SweepRow
from advisor_tui import signs
from advisor_tui.background import begin
from advisor_tui.boxes import Scrolled
from advisor_tui.chart import Chart
from advisor_tui.dialogue import Confirm
from advisor_tui.jobs import ago
from advisor_tui.points import padded
from advisor_tui.shell import Page
from advisor_tui.signs import ChartMarks, Mark
from advisor_tui.table import Cell, Column, LazyTable

EVERY_S = 1.0
"""Seconds between two looks at running sweeps."""
_BAR = 24
"""Columns of a progress bar."""
_COLUMNS = (
    Column("Begun", 12),
    Column("User", 8, from_width=110),
    Column("Application", 12, flex=2),
    Column("Workload", 12, flex=2),
    Column("Node type", 10, flex=1),
    Column("Runs", 7, right=True),
    Column("State", 11),
)
_ROLES = {"confirmed": "good", "running": "warn", "failed": "bad", "interrupted": "warn"}


class TrainingPage(Page):
    """The list of sweeps, and the points of one of them as they arrive."""

    TITLE = "Training"
    PLACE = "training"
    HELP = """\
A sweep measures an application once: about a dozen short runs with
fewer threads and lower clocks, then one more that confirms the best.
From then on its jobs are advised.

A sweep runs by itself, also when you leave or log out. What it has
measured is kept whatever happens; one that was stopped or interrupted
can be resumed.

In the picture:  ◆ the job as written   ★ the confirming run
                 ● a run   ◍ a run whose energy is estimated
Where no energy is known it shows time against threads.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "new", tooltip="start a sweep of a job script"),
        Binding("x", "stop", "stop", tooltip="stop the sweep; what was measured stays"),
        Binding("r", "resume", "resume", tooltip="resume the sweep"),
        Binding("enter", "log", "log", priority=False, tooltip="what it has printed"),
        Binding("o", "options", "options", tooltip="the options of its application"),
        Binding("p", "phases", "phases", tooltip="what its program repeats, and where power goes"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._sweeps: list[SweepRow] = []
        self._reading = False
        self._begun = ""

    def body(self) -> Iterable[Widget]:
        """Yield list, picture and sentence."""
        yield LazyTable(_COLUMNS, id="sweeps", empty="reading ...")
        yield Chart(id="sweep-chart")
        yield Static("", id="sweep-detail")

    def on_mount(self) -> None:
        """Begin with the list."""
        sweeps = self.query_one("#sweeps", LazyTable)
        sweeps.border_title = "sweeps"
        sweeps.border_subtitle = "n new · enter log · x stop · r resume"
        sweeps.snug = True  # most often there are few: the room is the picture's
        self.query_one("#sweep-chart").border_title = "what it has measured"
        self.begin_at("#sweeps")

    def opened(self) -> None:
        """Begin to look at the sweeps."""
        self.set_interval(EVERY_S, self.load)
        self.load()

    @property
    def table(self) -> LazyTable:
        """The list."""
        return self.query_one("#sweeps", LazyTable)

    @property
    def current(self) -> SweepRow | None:
        """The sweep under the cursor."""
        row = self.table.cursor
        return self._sweeps[row] if row < len(self._sweeps) else None

    def load(self) -> None:
        """Look at the sweeps, unless that is being done or nobody sees it."""
        if not self._reading and self.is_current:
            self._reading = True
            begin(self, self._load, group="sweeps")

    async def _load(self) -> None:
        session = self.session
        try:
            sweeps = await self.ask(
                lambda: view.listed(session.sweeps, session.store, session.user)
            )
        finally:
            self._reading = False
        if sweeps is None or not self.is_attached:
            return
        if sweeps == self._sweeps and sweeps:
            return
        current_id = self.current.id if self.current is not None else ""
        self._sweeps = sweeps
        ids = [s.id for s in sweeps]
        if self._begun in ids:
            current_id, self._begun = self._begun, ""
        cursor = ids.index(current_id) if current_id in ids else 0
        self.table.empty = "no sweep yet: n measures an application once"
        self.table.reset(len(sweeps), cursor=cursor, keep=True)
        self.table.fill(0, [_cells(s) for s in sweeps])
        self._show()

    @on(LazyTable.Moved, "#sweeps")
    def _cursor_moved(self) -> None:
        self._show()

    def _show(self) -> None:
        sweep = self.current
        picture = self.query_one("#sweep-chart", Chart)
        if sweep is None:
            picture.show(None)
            self.query_one("#sweep-detail", Static).update("")
            return
        if sweep.own is None:
            picture.show(
                None, f"This is {sweep.user}'s sweep; you see its options once it is fitted."
            )
        else:
            shown = picture_of(sweep.own)
            message = "None of its runs succeeded."
            if sweep.own.under_way:
                message = "Its first runs are under way; points appear as they end."
            picture.cursor = None
            picture.show(shown, message)
            if shown is not None and sweep.own.under_way:
                picture.cursor = len(shown.points) - 1
        self.query_one("#sweep-detail", Static).update(Content("\n".join(_detail(sweep))))

    # -- doing -----------------------------------------------------------------------------------

    def action_new(self) -> None:
        """Ask for a job script, show the plan, start."""
        from advisor_tui.new_sweep import NewSweep

        if self.session.foreign:
            self.advisor.tell(
                f"Only {self.session.user} can measure for {self.session.user}", "warning"
            )
            return
        self.app.push_screen(NewSweep(self.session), self._started)

    def _started(self, sweep_id: str | None) -> None:
        if sweep_id:
            self._begun = sweep_id
            self.advisor.tell(f"Sweep {sweep_id} has started; it continues when you leave.")
            self.load()

    def _own_sweep(self, what: str) -> Progress | None:
        sweep = self.current
        if sweep is None:
            return None
        if sweep.own is None:
            self.advisor.tell(f"This sweep is {sweep.user}'s: only {sweep.user} can {what} it.")
        return sweep.own

    def action_stop(self) -> None:
        """Ask, then stop the sweep."""
        sweep = self._own_sweep("stop")
        if sweep is None:
            return
        if not sweep.alive:
            self.advisor.tell("It is not running.", "warning")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                begin(self, self._change_sweep, lambda: progress.stop(sweep.folder), group="do")

        text = Content("What was measured so far is kept; r resumes it later.")
        self.app.push_screen(
            Confirm(f"Stop the sweep of {sweep.application} / {sweep.workload}?", text, "Stop"),
            answered,
        )

    def action_resume(self) -> None:
        """Go on with the sweep."""
        sweep = self._own_sweep("resume")
        if sweep is None:
            return
        if sweep.alive:
            self.advisor.tell("It is running.", "warning")
        elif not sweep.resumable:
            self.advisor.tell("It is finished; n starts a new one.", "warning")
        else:
            arguments = self.session.arguments
            begin(self, self._change_sweep, lambda: view.resume(sweep, arguments), group="do")

    async def _change_sweep(self, work: object) -> None:
        assert callable(work)
        await self.ask(work)
        self.load()

    def action_log(self) -> None:
        """Show what the sweep has printed."""
        sweep = self._own_sweep("read the log of")
        if sweep is not None:
            self.app.push_screen(LogPage(sweep))

    def action_phases(self) -> None:
        """Show what was seen of the program's phases."""
        sweep = self._own_sweep("see the phases of")
        if sweep is not None:
            try:
                page = laboratory.load("panels", "phases", "phases")
            except AdvisorError as error:
                self.advisor.tell(f"{error}.", "warning")
                return
            self.app.push_screen(page(sweep))

    @on(LazyTable.Opened, "#sweeps")
    def _row_opened(self) -> None:
        self.action_log()

    def action_options(self) -> None:
        """Show the options of the sweep's application."""
        sweep = self.current
        if sweep is not None:
            from advisor_tui.tradeoff import show_tradeoff

            show_tradeoff(self.advisor, sweep.application, sweep.workload)


def _cells(s: SweepRow) -> list[Cell]:
    return [
        (ago(s.created_at), "dim"),
        s.user,
        (s.application, "strong"),
        s.workload,
        s.node_type,
        f"{s.done}/{s.planned}",
        (s.words, _ROLES.get(s.words, "")),
    ]


def _detail(s: SweepRow) -> list[str]:
    full = round(_BAR * s.done / s.planned) if s.planned else 0
    bar = f"{'█' * full}{'░' * (_BAR - full)} {s.done} of {s.planned} runs"
    if s.own is None:
        return [bar, f"{s.words} {s.detail}".strip()]
    folder_progress = s.own
    if folder_progress.spent.runs:
        bar += f"; {folder_progress.spent.words} so far"
    lines = [
        bar,
        f"{s.words}: {folder_progress.detail or folder_progress.note}"
        if folder_progress.detail or folder_progress.note
        else s.words,
    ]
    if folder_progress.made:
        lines.append(_last(folder_progress.made[-1]))
    return lines


def _last(run: Made) -> str:
    where = describe(Configuration.from_dict(run.configuration))
    if not run.ok:
        return f"last: {where} failed: {run.detail}"
    energy = "energy missing" if run.energy_j is None else format_energy(run.energy_j)
    about = "~" if run.energy_quality == "estimated" else ""
    return f"last: {where}: {format_duration(run.time_s or 0.0)}, {about}{energy}"


def picture_of(sweep: Progress) -> ChartMarks | None:
    """Return the good runs as a picture, None without any: energy against time.

    Where no energy is known, time against threads.
    """
    timed = [m for m in sweep.made if m.ok and m.time_s]
    metered = [m for m in timed if m.energy_j]
    good = metered or timed
    if not good:
        return None
    axes = ("time", "energy") if metered else ("threads", "time")
    points: list[PlotPoint] = [
        (float(m.time_s or 0), float(m.energy_j or 0))
        if metered
        else (float(m.configuration["threads_per_node"]), float(m.time_s or 0))
        for m in good
    ]
    marks, special = [], {}
    for number, run in enumerate(good):
        estimated = run.energy_quality == "estimated"
        marks.append(Mark(signs.MEASURED_ESTIMATE if estimated else signs.MEASURED, "measured"))
        if run.role == "baseline":
            special[number] = Mark(signs.BASELINE, "baseline")
        elif run.role == "confirm":
            special[number] = Mark(signs.POLICY, "policy")
    xs, ys = zip(*points, strict=True)
    window = padded(min(xs), max(xs), 0.1), padded(min(ys), max(ys), 0.1)
    return ChartMarks(points, marks, special, (), (), window, window, *axes)


class LogPage(Page):
    """What a sweep in the background has printed, line by line."""

    TITLE = "Log of the sweep"
    PLACE = "training"
    HELP = "What the sweep has printed so far; new lines appear by themselves.\n"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "back", "back")]

    def __init__(self, sweep: Progress) -> None:
        super().__init__()
        self._sweep = sweep

    def body(self) -> Iterable[Widget]:
        """Yield the lines."""
        yield Static(
            Content(f"Sweep {self._sweep.id} of {self._sweep.application}"), classes="title"
        )
        with Scrolled(id="log"):
            yield Static("", id="log-text")

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#log").border_title = "what it has printed"
        self.begin_at("#log")
        self.set_interval(EVERY_S, self._read)
        self._read()

    def _read(self) -> None:
        begin(self, self._load, group="log", exclusive=True)

    async def _load(self) -> None:
        folder = self._sweep.folder
        lines = await self.ask(lambda: progress.log_of(folder))
        if lines is not None:
            text = (
                "\n".join(lines) or "There is no log: the sweep was not started in the background."
            )
            self.query_one("#log-text", Static).update(Content(text))

    def action_back(self) -> None:
        """Go back to the list."""
        self.dismiss()
