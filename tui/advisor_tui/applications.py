"""The first page: every application and workload, what is known of it, and what it would save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from advisor.store.listing import (
    ORDERS,
    ListPage,
    Order,
    count_workloads,
    names_of_workloads,
    place_by_name,
)
from advisor_tui import remembered
from advisor_tui.background import begin
from advisor_tui.boxes import Below, SideBySide
from advisor_tui.shell import Page
from advisor_tui.table import PAGE, Cell, Column, LazyTable

if TYPE_CHECKING:
    from advisor.loop.report import OnOffComparison
    from advisor.store.reader import Reader
    from advisor.views import applications as view
    from advisor.views.applications import Listed
    from advisor.views.tradeoff import Boards

SINCE = "90d"
"""How far back measured savings go."""
RESTS_S = 0.15
"""Seconds that the cursor rests on a row until its options are read."""
_ROOMY = ("-wide", "-huge", "-vast")
"""Widths of the terminal at which they are shown below the list, where it is tall."""

_STATES: dict[str, tuple[str, str]] = {
    "none": ("· not measured", "dim"),
    "class": ("◌ by class", ""),
    "fitted": ("○ fitted", ""),
    "confirmed": ("● confirmed", "good"),
    "suspended": ("✗ suspended", "bad"),
}
_CHOSEN = {"off": "✗ ", "pin": "⚑ ", "goal": "◇ ", "": ""}

_COLUMNS = (
    Column("Application", 16, flex=3),
    Column("Workload", 14, flex=4),
    Column("Node types", 12, flex=2, from_width=120),
    Column("Class", 12, from_width=140),
    Column("Runs", 4, right=True),
    Column("Model", 14),
    Column("Promised", 10, right=True),
    Column("Measured", 9, right=True),
    Column("To save in 30 days", 20, right=True, from_width=110),
)
_BY_TITLE: dict[str, Order] = {"Application": "name", "Runs": "runs", "Model": "newest"}
"""The order that a click on a column's title asks for."""
_REMEMBERED = 7
"""Columns that are kept until the next start: what was measured may be other by then."""
_RUNS = 4
"""The column whose number is read anew, however a row is remembered."""
_AROUND = 8
"""Lines of the page beside the rows."""
_ORDER_WORDS = {"name": "by name", "runs": "most runs first", "newest": "newest model first"}


def percent(change: float | None, *, estimated: bool = False) -> Cell:
    """Return a saving as people say it: ``16 % less``, with ``~`` before an estimate."""
    if change is None:
        return ("-", "dim")
    number = f"{abs(change) * 100:.0f}"
    if number == "0":
        return "same"
    number = f"~{number}" if estimated else number
    return (f"{number} % less", "good") if change < 0 else (f"{number} % more", "warn")


def _bare_cells(application: str, workload: str, runs: int) -> list[Cell]:
    """Return a row of which no more was read yet."""
    unread = ("…", "dim")
    return [(application, "strong"), workload, unread, "", str(runs), unread, unread]


class ApplicationsPage(Page):
    """The list, its search line, and a sentence on the row under the cursor."""

    TITLE = "Applications"
    PLACE = "applications"
    HELP = """\
Every application the advisor knows, a line for each
workload (an input or problem class).

Runs      measured runs of it that are stored
Model     · not measured   nothing is known; t measures it once
          training 7/12    a sweep is under way
          ◌ by class       never swept: estimated from those like it
          ○ fitted         options are predicted, none applied yet
          ● confirmed      a run confirmed one: it can be applied
          ✗ suspended      jobs came out worse than promised
Promised  the energy a job would save under the site's policy and
          your own choices; ~ where the energy is estimated
Measured  what the jobs of the last 90 days really saved
To save   what the jobs of the last 30 days would save as promised;
          the page opens on the row with most of it
Signs     ⚑ you pinned a point   ◇ you chose a goal
          ✗ you switched the advisor off for it

From 120 columns and 36 lines on the options of the row under the
cursor are drawn below the list, as Enter shows them.

Type / and some words; every word must be in the name.
class:memory lists those never swept that are memory-bound.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search"),
        Binding("enter", "open", "options", priority=False),
        Binding("c", "choose", "choose"),
        Binding("t", "train", "measure"),
        Binding("s", "sort", "sort"),
        Binding("r", "reload", "read again", show=False),
        Binding("escape", "clear", "clear search", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._order: Order = "name"
        self._search = ""
        self._names: dict[int, view.Key] = {}
        """The rows of which no more was read yet."""
        self._listed: dict[int, Listed] = {}
        self._known: dict[view.Key, Listed] = {}
        """Rows that hold as long as the session's stamp, and the sweeps, are what they were."""
        self._known_at: tuple[object, Mapping[view.Key, tuple[int, int]]] | None = None
        self._measured: dict[view.Key, OnOffComparison] = {}
        self._gains: view.Gains | None = None
        self._remembered: remembered.CellsByKey = {}
        """The rows of the last time."""
        self._at_first = True
        """Nobody has moved the cursor yet."""
        self._generation = 0
        self._measuring = False
        self._rest: Timer | None = None
        self._beside: tuple[view.Key, str] | None = None
        """Whose options the picture shows, and what is said beside it."""

    def body(self) -> Iterable[Widget]:
        """Yield search line, list and sentence."""
        with SideBySide(id="search-line"):
            yield Input(placeholder="press / to search", id="search", compact=True)
            yield Static("", id="count")
        yield LazyTable(_COLUMNS, id="applications", empty="reading ...")
        yield Static("", id="saved")
        with SideBySide(id="under"):
            yield Static("", id="sentence")

    def on_mount(self) -> None:
        """Read the names of the first rows."""
        self.table.border_title = "applications"
        self.table.border_subtitle = "enter options · / search · s order, or a click on a title"
        self.query_one("#sentence").border_title = "under the cursor"
        self.begin_at("#applications")
        begin(self, self._load_names, group="names")

    def opened(self) -> None:
        """Read the rest of the first rows."""
        begin(self, self._load_first, group="first")

    @property
    def table(self) -> LazyTable:
        """The list."""
        return self.query_one("#applications", LazyTable)

    async def _load_names(self) -> None:
        """Show what can be read without what decides, which takes longer to load than all else.

        That is what was promised the last time, too, where it holds.
        """
        rows = -(-max(PAGE, self.size.height) // PAGE) * PAGE  # whole pages: no more is wanted

        def work() -> tuple[
            tuple[int, int], list[tuple[int, str, str, int]], remembered.CellsByKey
        ]:
            with self.session.connection() as store:
                names = names_of_workloads(store, ListPage(limit=rows))
                return count_workloads(store), names, remembered.remembered(self.session, store)

        listing = await self.ask(work)
        if listing is None or not self.is_new_list:
            return
        (workloads, _), names, self._remembered = listing
        self._names = {n: (name[1], name[2]) for n, name in enumerate(names)}
        self.table.reset(workloads, rows=[self._first_cells(*name[1:]) for name in names])

    def _first_cells(self, application: str, workload: str, runs: int) -> list[Cell]:
        """Return a row of which no more was read yet, with what is remembered of it."""
        cells = _bare_cells(application, workload, runs)
        known = self._remembered.get((application, workload), ())
        if len(known) != len(cells):
            return cells
        return [*known[:_RUNS], cells[_RUNS], *known[_RUNS + 1 :]]

    async def _load_first(self) -> None:
        """Read all of the first rows, once their names can be seen."""
        await self.painted()
        if self.is_new_list:
            self.load(keep=True)

    @property
    def is_new_list(self) -> bool:
        """Whether nobody has asked for rows yet: the search line takes words from the first."""
        return self._generation == 0

    def load(self, *, keep: bool = False) -> None:
        """Read count and first rows for what is searched."""
        self._generation += 1
        begin(self, self._load, self._generation, keep, group="list", exclusive=True)

    def _state(self) -> tuple[object, Mapping[view.Key, tuple[int, int]]]:
        """Return what the rows depend on."""
        return self.session.stamp(), dict(self.advisor.sweeping)

    def _rows(self, reader: Reader, first: int, limit: int) -> list[Listed]:
        from advisor.views import applications as view

        state = self._state()
        if state != self._known_at:
            self._known, self._known_at = {}, state
        current_rows = self._known
        rows = view.page(
            reader,
            self.session.person(),
            ListPage(self._search, self._order, first, limit),
            sweeps=self.advisor.sweeping,
            current_rows=current_rows,
        )
        current_rows.update((row.key, row) for row in rows)
        return rows

    async def _load(self, generation: int, keep: bool) -> None:
        session, search, order = self.session, self._search, self._order
        cursor = self.table.cursor if keep else 0
        first, limit = 0, max(10, self.size.height - _AROUND)  # what is seen; more is wanted
        if keep and self.table.shown_rows:
            first, limit = self.table.shown_rows.start, len(self.table.shown_rows)

        def work() -> tuple[tuple[int, int], list[Listed]]:
            with session.reader() as reader:
                was = remembered.stamp(session, reader)
                counts, rows = count_workloads(reader, search), self._rows(reader, first, limit)
            if not first and not search and order == "name":  # as the page opens
                self._remember(was, rows)
            return counts, rows

        listing = await self.ask(work)
        await self.ask(session.chosen)  # shows a broken choices file; the list goes on
        table = self.table
        if listing is None:
            table.empty = "the store cannot be read; r reads it again"
            table.reset(0)
            return
        (workloads, applications), rows = listing
        if keep:  # the cursor may have moved meanwhile, and so may the row it is on
            cursor, current_row = table.cursor, self.current
            moved = (
                n for n, row in enumerate(rows, first) if current_row and row.key == current_row.key
            )
            cursor = next(moved, cursor)
        self._listed, self._names = {**self._listed} if keep else {}, {}
        self._add_rows(first, rows)
        self.query_one("#count", Static).update(
            f"{workloads:,} workload{'s' * (workloads != 1)} of {applications:,} "
            f"application{'s' * (applications != 1)}, {_ORDER_WORDS[order]}"
        )
        table.empty = (
            f"nothing has “{search.strip()}” in its name"
            if search.strip()
            else "nothing is known yet: t measures an application once"
        )
        table.reset(workloads, cursor=cursor, keep=keep)
        table.fill(first, [self._cells(row) for row in rows])
        self._say()
        if not self._measuring:  # what takes longest, once the first rows can be read
            self._measuring = True
            self.call_after_refresh(self._begin_measured)

    def _remember(self, was: str, rows: list[Listed]) -> None:
        """Keep what was decided for the next start, where it is not what is kept."""
        current_cells = {
            row.key: tuple(self._cells(row)[:_REMEMBERED])
            for row in rows
            if row.state != "training"
        }
        if current_cells.keys() != self._remembered.keys() or any(
            cells[:_RUNS] + cells[_RUNS + 1 :] != was_cells[:_RUNS] + was_cells[_RUNS + 1 :]
            for cells, was_cells in (
                (current_cells[key], self._remembered[key]) for key in current_cells
            )
        ):
            remembered.remember(
                self.session, was, ((*key, cells) for key, cells in current_cells.items())
            )

    def _begin_measured(self) -> None:
        begin(self, self._load_measured, group="measured", exclusive=True)

    @on(LazyTable.Wanted, "#applications")
    def _rows_wanted(self, event: LazyTable.Wanted) -> None:
        last = event.first + event.limit
        if any(n not in self._listed for n in range(event.first, last)):
            begin(self, self._load_page, self._generation, event.first, event.limit, group="page")

    async def _load_page(self, generation: int, first: int, limit: int) -> None:
        def work() -> list[Listed]:
            with self.session.reader() as reader:
                return self._rows(reader, first, limit)

        rows = await self.ask(work)
        if rows is not None and generation == self._generation:
            self._add_rows(first, rows)
            self.table.fill(first, [self._cells(row) for row in rows])
            self._say()

    async def _load_measured(self) -> None:
        from advisor.loop import clock
        from advisor.views import applications as view

        session = self.session

        def work() -> dict[view.Key, OnOffComparison]:
            with session.reader() as reader:
                return view.measured(reader, clock.form(clock.since(SINCE)))

        measured = await self.ask(work)
        if measured:
            self._measured = measured
            for number, row in self._listed.items():
                self.table.fill(number, [self._cells(row)])
            self._say()

        await self._load_gains()

    async def _load_gains(self) -> None:
        """Sum up what there is to save, and go to the row with most of it."""
        from advisor.views import applications as view

        session, current_rows = self.session, dict(self._known)

        def work() -> tuple[view.Gains, int | None]:
            with session.reader() as reader:
                gains = view.gains(reader, session.person(), current_rows)
                first = gains.first
                return gains, None if first is None else place_by_name(reader, *first)

        answer = await self.ask(work)
        if answer is None:
            return
        self._gains, place = answer
        for number, row in self._listed.items():
            self.table.fill(number, [self._cells(row)])
        self.query_one("#saved", Static).update(self._gains.words())
        if place is not None and self._at_first and self._order == "name" and not self._search:
            self._at_first, self.table.cursor = False, place

    def _add_rows(self, first: int, rows: list[Listed]) -> None:
        self._listed.update(enumerate(rows, first))

    def _cells(self, row: Listed) -> list[Cell]:
        if row.state == "training":
            state: Cell = (f"training {row.done}/{row.planned}", "warn")
        else:
            state = _STATES[row.state]
        comparison = self._measured.get(row.key)
        energy = comparison.energy if comparison is not None else None
        return [
            (f"{_CHOSEN[row.chosen]}{row.application}", "strong"),
            row.workload,
            (", ".join(row.node_types), "dim"),
            row.class_name,
            str(row.runs),
            state,
            percent(row.energy, estimated=row.estimated),
            percent(energy.change if energy is not None else None),
            self._worth(row),
        ]

    def _worth(self, row: Listed) -> Cell:
        """Return what the jobs of 30 days would save, with its price where the site states one."""
        text = self._gains.saved(row.key) if self._gains is not None else ""
        return text or ("-", "dim")

    # -- the row under the cursor ----------------------------------------------------------------

    @property
    def current(self) -> Listed | None:
        """The row under the cursor."""
        return self._listed.get(self.table.cursor)

    @property
    def current_key(self) -> view.Key | None:
        """Application and workload under the cursor."""
        row = self.current
        return row.key if row is not None else self._names.get(self.table.cursor)

    @on(LazyTable.Moved, "#applications")
    def _cursor_moved(self) -> None:
        self._at_first = self._at_first and self.table.cursor == 0
        self._say()

    def others_made(self) -> None:
        """Show the options of the row under the cursor."""
        self._cursor_rested()

    def _cursor_rested(self) -> None:
        """Read the options of a row on which the cursor rests, once their page is made."""
        if self.advisor.ready and self.is_current and self.advisor.looked_at is not None:
            begin(self, self._read_ahead, *self.advisor.looked_at, group="ahead")

    async def _read_ahead(self, application: str, workload: str) -> None:
        """Read a row's options, and show them where there is room."""
        boards = await self.advisor.read_ahead.begin(application, workload)
        if (application, workload) != self.current_key or not self._has_room:
            return
        if boards is None and self.advisor.read_ahead.is_reading:  # those of another row
            self._rest = self.set_timer(RESTS_S, self._cursor_rested)
            return
        await self._draw((application, workload), boards)

    @property
    def _has_room(self) -> bool:
        return self.has_class("-tall") and any(self.has_class(width) for width in _ROOMY)

    async def _draw(self, key: view.Key, boards: Boards | None) -> None:
        """Show a row's options as a picture."""
        from advisor.views import tradeoff
        from advisor_tui import captions
        from advisor_tui.chart import Chart
        from advisor_tui.legend import Legend
        from advisor_tui.shown import Shown

        if not self.query("#glance"):
            chart, legend = Chart(id="glance"), Legend("", id="glance-legend")
            chart.can_focus = False
            chart.border_title, chart.border_subtitle = "time and energy", "enter options"
            picture_side = Below(chart, legend, id="glance-side")
            await self.query_one("#under").mount(picture_side, before="#sentence")
            self.query_one("#under").add_class("-drawn")
            self.table.snug = True
            self.table.fit()
        chart, shown = self.query_one("#glance", Chart), Shown()
        board = boards.by_type.get(boards.first) if boards is not None else None
        self._beside, signs = None, ""
        if boards is None or board is None:
            chart.show(None, "No options yet: t measures it once.")
        else:
            picture, number = shown.arrange(board), shown.begin_at(board)
            farther = picture is not None and bool(picture.farther)
            signs = captions.legend(board, shown.words(board), farther=farther)
            lines = [*tradeoff.detail(board, number), *tradeoff.worth(board, number, boards.month)]
            self._beside = key, "\n".join([*lines, "", *captions.node_types(boards)])
            chart.set_reactive(Chart.cursor, number)
            chart.show(picture, "Its energy is not known; enter shows the times.")
        self.query_one("#glance-legend", Legend).update(Content(signs))
        self._write_sentence()

    def _say(self) -> None:
        self.advisor.looked_at = self.current_key
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(RESTS_S, self._cursor_rested)
        self._write_sentence()

    def _write_sentence(self) -> None:
        """Say what is known of the row under the cursor."""
        row = self.current
        if row is None:
            self.query_one("#sentence", Static).update("")
            return
        text = f"{row.application} / {row.workload}\n{row.words}"
        comparison = self._measured.get(row.key)
        if comparison is not None:
            from advisor.views import applications as view

            text += f"\n{view.measured_words(comparison)}"
        if self._beside is not None and self._beside[0] == row.key:
            text += f"\n\n{self._beside[1]}"
        self.query_one("#sentence", Static).update(Content(text))

    @on(LazyTable.Opened, "#applications")
    def action_open(self) -> None:
        """Show the options of the row under the cursor."""
        if key := self.current_key:
            from advisor_tui.tradeoff import show_tradeoff

            show_tradeoff(self.advisor, *key)

    def action_choose(self) -> None:
        """Choose for the row under the cursor, a goal or to be left alone."""
        if key := self.current_key:
            from advisor_tui.choose import show_choose

            show_choose(self.advisor, *key, None)

    def action_train(self) -> None:
        """Measure an application."""
        self.advisor.action_go("training", "new")

    # -- searching and sorting -------------------------------------------------------------------

    def action_search(self) -> None:
        """Go to the search line."""
        self.set_focus(self.query_one("#search", Input))

    def action_clear(self) -> None:
        """Forget what was searched."""
        self.query_one("#search", Input).value = ""
        self.set_focus(self.table)

    @on(LazyTable.Headed, "#applications")
    def _heading_clicked(self, event: LazyTable.Headed) -> None:
        order = _BY_TITLE.get(event.title)
        if order is not None and order != self._order:
            self._order = order
            self.load()

    def action_sort(self) -> None:
        """Take the next order."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self.load()

    def action_reload(self) -> None:
        """Read everything again."""
        self._known_at = None
        self.load(keep=True)
        self._begin_measured()

    @on(Input.Changed, "#search")
    def _typed(self, event: Input.Changed) -> None:
        if event.value != self._search:
            self._search = event.value
            self.load()

    @on(Input.Submitted, "#search")
    def _search_submitted(self) -> None:
        self.set_focus(self.table)

    def key_down(self) -> None:
        """Go from the search line to the list."""
        if self.query_one("#search", Input).has_focus:
            self.set_focus(self.table)

    def files_changed(self) -> None:
        """Show the rows under other choices."""
        self.action_reload()

    def status_changed(self) -> None:
        """Show which sweeps are under way now."""
        if self._known_at is not None and dict(self.advisor.sweeping) != self._known_at[1]:
            self.load(keep=True)

    def on_screen_resume(self) -> None:
        """Read again what was chosen or measured meanwhile."""
        if self._generation and self._state() != self._known_at:
            self.load(keep=True)
        else:
            self._cursor_rested()
