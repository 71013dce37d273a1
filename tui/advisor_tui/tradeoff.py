"""One workload's options: the picture, the points to step through, and all about one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from advisor.core.configuration import Configuration
from advisor.errors import AdvisorError, RefusedError
from advisor.views import tradeoff as view
from advisor.views.choosing import Wish, save
from advisor.views.narrow import EXAMPLE, Narrowing, narrowing
from advisor.views.tradeoff import Boards, TradeOffView
from advisor_tui import captions
from advisor_tui.background import begin
from advisor_tui.boxes import Below
from advisor_tui.chart import Chart
from advisor_tui.dialogue import Field
from advisor_tui.legend import Legend
from advisor_tui.points import COLUMNS, columns, rows
from advisor_tui.shell import AppShell, Page
from advisor_tui.shown import Shown
from advisor_tui.table import PAGE, LazyTable

_READING = "reading ..."
_BY_TITLE = {
    " N  R   T": "cores",
    "Time": "time",
    "dT %": "time",
    "Energy": "energy",
    "dE %": "energy",
    "Against the job as written": "energy",
}
"""The order of the list that a click on a column's title asks for; a second click takes it back."""


def show_tradeoff(advisor: AppShell, application: str, workload: str) -> None:
    """Go to a workload's options."""
    if advisor.current_mode != TradeOffPage.PLACE:
        advisor.switch_mode(TradeOffPage.PLACE)
    page = advisor.made(TradeOffPage)
    page.look_at(application, workload)
    advisor.push_screen(page)


class TradeOffPage(Page):
    """Scatter, table and detail of a workload; the cursor is one option in all three."""

    TITLE = "Options"
    PLACE = "applications"
    HELP = captions.HELP
    BINDINGS: ClassVar[list[BindingType]] = captions.BINDINGS

    application = workload = ""
    boards: Boards | None = None
    _asked: Configuration | None = None
    _verdict = Content()
    _seen: object = None
    """The session's stamp when the options were read."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = Shown()

    def body(self) -> Iterable[Widget]:
        """Yield picture, legend, table and detail."""
        yield Static("", id="tradeoff-title")
        yield Static("", id="sizes")
        yield Static("", id="verdict")
        with Below(id="tradeoff-body"):
            with Below(id="tradeoff-left"):
                yield Chart(id="chart")
                yield Legend("", id="legend")
            with Below(id="tradeoff-right"):
                yield Field(placeholder=EXAMPLE, id="filter", compact=True)
                yield LazyTable(COLUMNS, id="points", empty=_READING)
                yield Static("", id="tradeoff-side")
        yield Static("", id="detail")

    def look_at(self, application: str, workload: str) -> None:
        """Have the page show a workload."""
        self.application, self.workload = application, workload

    def on_mount(self) -> None:
        """Begin with the picture."""
        self.chart.border_title = "time and energy"
        self.chart.border_subtitle = "← → step · + - 0 zoom · x axes"
        self.table.border_title = "options: green ones save and are no slower"
        self.table.border_subtitle = "v front, zone, all · / filter · s order"
        self.query_one("#tradeoff-side").border_title = "in detail"
        self.begin_at("#chart")

    def blank(self) -> None:
        """Show nobody's options, the front first."""
        self.boards, self.shown, self._asked, self._verdict = None, Shown(), None, Content()
        for name in ("sizes", "verdict", "legend", "tradeoff-side", "detail"):
            self._write(name, "")
        self.query_one("#filter", Field).blank(EXAMPLE)
        self.query_one("#filter", Field).display = self.query_one("#sizes").display = False
        self.chart.blank()
        self.table.blank(COLUMNS, _READING)
        self.set_focus(self.chart)

    async def ahead(self) -> None:
        """Show some options to nobody: the first that are opened are painted sooner then."""
        if self.advisor.looked_at is not None:
            boards = await self.advisor.read_ahead.begin(*self.advisor.looked_at)
            if boards is not None and self.is_new:
                self._show(boards, None)
                await self.rehearse()
                self.blank()

    def opened(self) -> None:
        """Read the options."""
        self._show_name()
        self.load()

    @property
    def chart(self) -> Chart:
        """The picture."""
        return self.query_one("#chart", Chart)

    @property
    def table(self) -> LazyTable:
        """The points to step through."""
        return self.query_one("#points", LazyTable)

    @property
    def board(self) -> TradeOffView | None:
        """The options of the node type that is shown."""
        return self.boards.by_type.get(self.shown.node_type) if self.boards is not None else None

    @property
    def current(self) -> int | None:
        """The option under the cursor."""
        return self.chart.cursor

    # -- reading ---------------------------------------------------------------------------------

    def load(self, *, keep: bool = False) -> None:
        """Read the options again; with ``keep`` the cursor stays on its configuration."""
        self._seen = self.session.stamp()
        cached_boards = self.advisor.read_ahead.known(self.application, self.workload, self._asked)
        if cached_boards is not None:
            self._show(cached_boards, self._configuration() if keep else None, keep=keep)
        else:
            begin(self, self._load, keep, group="boards", exclusive=True)

    async def _load(self, keep: bool) -> None:
        workload_key = self.application, self.workload, self._asked
        try:
            boards = await self.advisor.ask(lambda: self.advisor.read_ahead.read(*workload_key))
        except RefusedError as error:
            self._show_empty(f"{error.message}. Press t to measure it once, Esc to go back.")
            return
        except AdvisorError as error:
            self.advisor.report(error)
            self._show_empty(f"the options cannot be read: {error}")
            return
        self._show(boards, self._configuration() if keep else None, keep=keep)

    def _show(
        self, boards: Boards, current_point: Configuration | None, *, keep: bool = False
    ) -> None:
        self.boards = boards
        if not boards.by_type:
            self._show_empty(
                "No measurements yet, only a ranking of node types (r). "
                "Press t to measure it once, Esc to go back."
            )
            return
        if self.shown.node_type not in boards.by_type or not keep:
            self.shown.node_type = boards.first
        self._arrange(current_point, keep_zoom=keep)

    def _show_name(self) -> None:
        """Say whose options these are, as long as no more is known."""
        self._write("tradeoff-title", f"{self.application} / {self.workload}")

    def _write(self, name: str, text: str) -> None:
        self.query_one(f"#{name}", Static).update(Content(text))

    def _show_empty(self, sentence: str) -> None:
        self._show_name()
        self.chart.show(None, sentence)
        self.table.empty = ""
        self.table.reset(0)

    def _configuration(self) -> Configuration | None:
        board, number = self.board, self.current
        if board is None or number is None or number >= len(board.options):
            return None
        return board.options[number].configuration

    # -- arranging -------------------------------------------------------------------------------

    def _arrange(self, current_point: Configuration | None, *, keep_zoom: bool = False) -> None:
        """Put a board into picture and table."""
        board = self.board
        if board is None:
            return
        picture = self.shown.arrange(board)
        cursor_number = board.find(current_point) if current_point is not None else None
        number = self.shown.begin_at(board, cursor_number)
        self.chart.set_reactive(Chart.cursor, number)
        message = "Its energy is not known, so there is no trade-off to show; times are below."
        self.chart.show(picture, message, keep=keep_zoom)
        self._fill(board, number)
        self._titles(board)
        self._detail(board, number)

    def _fill(self, board: TradeOffView, number: int) -> None:
        table, steps = self.table, self.shown.steps
        table.set_columns(columns(board))
        cursor_row = steps.index(number)
        first = cursor_row // PAGE * PAGE  # the others are asked for once they are seen
        first_rows = rows(board, steps[first : first + PAGE])
        table.reset(len(steps), cursor=cursor_row, first=first, rows=first_rows)

    @on(LazyTable.Wanted, "#points")
    def _rows_wanted(self, event: LazyTable.Wanted) -> None:
        board = self.board
        if board is not None:
            numbers = self.shown.steps[event.first : event.first + event.limit]
            self.table.fill(event.first, rows(board, numbers))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to apply what may be applied."""
        if action == "apply":
            board = self.board
            return board is not None and board.verdict.can_apply and not self.session.foreign
        if action == "parameter":
            return self.boards is not None and len(self.boards.sizes) > 1
        return super().check_action(action, parameters)

    # -- saying ----------------------------------------------------------------------------------

    def _titles(self, board: TradeOffView) -> None:
        assert self.boards is not None
        self._write("tradeoff-title", captions.title(self.boards, board))
        self._write("sizes", captions.sizes(self.boards, self.shown.parameter))
        picture = self.chart.picture
        farther = picture is not None and picture.farther
        self._write("legend", captions.legend(board, self.shown.words(board), farther=farther))
        self.query_one("#sizes", Static).display = bool(self.boards.sizes)
        self.status_changed()

    def status_changed(self) -> None:
        """Say what a job gets, and whether the daemon is there to apply it."""
        if self.board is not None and self.query("#verdict"):  # not while the page is removed
            verdict = captions.verdict(self.board, self.advisor.daemon)
            if verdict != self._verdict:
                self._verdict = verdict
                self.query_one("#verdict", Static).update(verdict)
                self.refresh_bindings()

    def _detail(self, board: TradeOffView, number: int) -> None:
        assert self.boards is not None
        lines = [*view.detail(board, number), *view.worth(board, number, self.boards.month)]
        self._write("detail", "\n".join(lines))
        self._write("tradeoff-side", captions.side(self.boards, lines))

    # -- moving ----------------------------------------------------------------------------------

    def _select_option(self, number: int) -> None:
        board = self.board
        if board is None or number not in self.shown.steps:
            return
        self.chart.cursor = number
        self.table.cursor = self.shown.steps.index(number)
        self._detail(board, number)

    def action_step(self, offset: int) -> None:
        """Go to the next option of those stepped through."""
        if self.shown.steps and self.current is not None:
            position = self.shown.steps.index(self.current) + offset
            self._select_option(self.shown.steps[max(0, min(len(self.shown.steps) - 1, position))])

    def key_up(self) -> None:
        """Go to the previous option, also from the picture."""
        if self.chart.has_focus:
            self.action_step(-1)

    def key_down(self) -> None:
        """Go to the next option, also from the picture."""
        if self.chart.has_focus:
            self.action_step(1)

    @on(LazyTable.Moved, "#points")
    def _cursor_moved(self) -> None:
        row = self.table.cursor  # the message may be older than the last key
        if row < len(self.shown.steps) and self.shown.steps[row] != self.current:
            self._select_option(self.shown.steps[row])

    @on(LazyTable.Opened, "#points")
    def _row_opened(self) -> None:
        self.action_choose()

    @on(Chart.Picked)
    def _point_picked(self, event: Chart.Picked) -> None:
        if event.number in self.shown.steps:
            self._select_option(event.number)
        elif self.board is not None and event.number < len(self.board.options):  # now it is listed
            self.shown.which, self.shown.narrowing = "all", Narrowing()
            self._arrange(self.board.options[event.number].configuration, keep_zoom=True)

    def action_zoom(self, factor: float) -> None:
        """Zoom around the cursor."""
        self.chart.zoom(factor)

    def action_fit(self) -> None:
        """Show what matters, or everything."""
        self.chart.fit()

    # -- what is shown ---------------------------------------------------------------------------

    def action_which(self) -> None:
        """Step through front, zone or everything."""
        self.shown.next_which()
        self._arrange(self._configuration(), keep_zoom=True)

    def action_node_type(self) -> None:
        """Show the next node type, or all of them together."""
        if self.boards is None:
            return
        names = captions.names(self.boards)
        if len(names) < 2:
            notice = f"Only {names[0]} has options" if names else "No node type has options"
            self.advisor.tell(f"{notice}; r says more.")
            return
        current_point = self._configuration()
        self.shown.node_type = names[(names.index(self.shown.node_type) + 1) % len(names)]
        self._arrange(current_point)

    def action_parameter(self) -> None:
        """Have the keys change the next parameter of the size."""
        if self.boards is not None and self.board is not None:
            self.shown.parameter = (self.shown.parameter + 1) % len(self.boards.sizes)
            self._titles(self.board)

    def action_size(self, offset: int) -> None:
        """Go to the next size of the family along the marked parameter, measured or not."""
        sizes = self.boards.sizes if self.boards is not None else ()
        if not sizes:
            self.advisor.tell("Three measured sizes of it are needed to show others.")
        elif (workload := sizes[self.shown.parameter].beside(self.workload, offset)) is not None:
            self.workload = workload
            self.load(keep=True)

    def action_axes(self) -> None:
        """Show the next pair of axes."""
        self.shown.next_axes()
        self._arrange(self._configuration())

    def action_sort(self) -> None:
        """Order the list otherwise."""
        self.shown.next_order()
        self._arrange(self._configuration(), keep_zoom=True)

    @on(LazyTable.Headed, "#points")
    def _heading_clicked(self, event: LazyTable.Headed) -> None:
        order = _BY_TITLE.get(event.title)
        if order is not None:
            self.shown.order = "" if order == self.shown.order else order
            self._arrange(self._configuration(), keep_zoom=True)

    def action_filter(self) -> None:
        """Go to the line of conditions."""
        line = self.query_one("#filter", Input)
        line.display = True
        self.set_focus(line)

    @on(Input.Submitted, "#filter")
    def _filtered(self, event: Input.Submitted) -> None:
        try:
            option_filter = narrowing(event.value)
        except AdvisorError as error:
            self.advisor.report(error)
            return
        event.input.display = bool(option_filter.text)
        self.set_focus(self.chart)
        self.shown.narrowing = option_filter
        self._arrange(self._configuration(), keep_zoom=True)

    def action_baseline(self) -> None:
        """Compare with the option under the cursor from now on."""
        current_point = self._configuration()
        if current_point is not None:
            self._asked = current_point
            self.load(keep=True)

    def action_ranking(self) -> None:
        """Show the node types in order, and how that is known."""
        if self.boards is not None:
            from advisor_tui.ranking import RankingDialogue

            self.app.push_screen(RankingDialogue(self.boards), self._to_type)

    def _to_type(self, node_type: str | None) -> None:
        if not node_type or self.boards is None:
            return
        if node_type not in self.boards.by_type:
            self.advisor.tell(f"There are no options on {node_type} yet; r says what is known.")
            return
        current_point, self.shown.node_type = self._configuration(), node_type
        self._arrange(current_point)

    # -- going on --------------------------------------------------------------------------------

    def action_choose(self) -> None:
        """Choose the option under the cursor, a goal, or to be left alone."""
        from advisor_tui.choose import show_choose

        names = self.application, self.workload
        show_choose(self.advisor, *names, self._configuration(), self._asked)

    def action_apply(self) -> None:
        """Have applied to one's own jobs what the policy only advises."""
        begin(self, self._apply, group="apply", exclusive=True)

    async def _apply(self) -> None:
        wish, path = Wish("apply"), self.session.choices
        application, workload = self.application, self.workload
        edit = await self.ask(lambda: save(path, wish, application, workload))
        if edit is not None:
            self.advisor.changed(wish.words(application, workload), edit)
            self.advisor.tell("Applied from your next submission on; press u to undo.")
            self.load(keep=True)

    def action_train(self) -> None:
        """Measure it."""
        self.advisor.action_go("training", "new")

    def action_export(self) -> None:
        """Write the list or the picture into a file."""
        if self.board is not None:
            from advisor_tui.takeaway import export

            export(self, self.board, self.shown.steps)

    def action_copy(self, row: bool = False) -> None:
        """Copy the command that chooses the option under the cursor, or its row."""
        board, number = self.board, self.current
        if board is None or number is None:
            return
        from advisor_tui.takeaway import copied

        what = "the row" if row else "the command that chooses it"
        self.advisor.copy_to_clipboard(copied(board, number, row=row), what)

    def action_back(self) -> None:
        """Go back to the list; out of the conditions first, and without them."""
        line = self.query_one("#filter", Input)
        if line.display and (line.has_focus or self.shown.narrowing.text):
            line.value, line.display = "", False
            self.set_focus(self.chart)
            self.shown.narrowing = Narrowing()
            self._arrange(self._configuration(), keep_zoom=True)
        else:
            self.app.pop_screen()

    def files_changed(self) -> None:
        """Show what the choices file says now."""
        self.load(keep=True)

    def on_screen_resume(self) -> None:
        """Show what was chosen or measured meanwhile."""
        if self.boards is not None and self._seen != self.session.stamp():
            self.load(keep=True)
