"""One workload's options: the picture, the points to step through, and all about one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from advisor.core.configuration import Configuration
from advisor.core.pareto import TradeOff
from advisor.errors import AdvisorError, RefusedError
from advisor.plotting import PlotPoint
from advisor.views import tradeoff as view
from advisor.views.choosing import Wish, save
from advisor.views.tradeoff import Across, Boards, TradeOffView, Up
from advisor_tui import captions, points
from advisor_tui.background import begin
from advisor_tui.chart import Chart
from advisor_tui.points import COLUMNS, COLUMNS_OF_EVERY, cells
from advisor_tui.shell import AppShell, Page
from advisor_tui.table import LazyTable

Which = Literal["front", "zone", "all"]
_WHICH: tuple[Which, ...] = ("front", "zone", "all")


def show_tradeoff(advisor: AppShell, application: str, workload: str) -> None:
    """Go to a workload's options."""
    if advisor.current_mode != TradeOffPage.PLACE:
        advisor.switch_mode(TradeOffPage.PLACE)
    advisor.push_screen(TradeOffPage(application, workload))


class TradeOffPage(Page):
    """Scatter, table and detail of a workload; the cursor is one option in all three."""

    TITLE = "Options"
    PLACE = "applications"
    HELP = """\
Each sign is an option: threads and a frequency cap to run the job
with. Left is faster, lower takes less energy; the best lie along
the line, the front.

●  measured: a run was made there   ○  predicted from other runs
◍  measured, energy is estimated    ◌  predicted, energy is estimated
△  estimated from microbenchmarks: nothing ran on this node type
◆  the job as written               ★  what the site's policy chooses
⚑  your own choice                  ░  trade-off zone: as good within
[ ] the cursor                         error; faint signs lie outside

The table lists what the arrows step through (v: front, zone, or every
option): nodes (N), ranks a node (R), threads a node (T), frequency
cap, time and energy, and the change against ◆. b makes the option
under the cursor the new ◆. ± is half of the interval that holds the
value with 90 % confidence.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("a", "apply", "apply", tooltip="apply to my jobs what the site only advises"),
        Binding("c,enter", "choose", "choose", priority=False),
        Binding("left,h", "step(-1)", "previous", show=False),
        Binding("right,l", "step(1)", "next", show=False),
        Binding("v", "which", "front/all", tooltip="step through front, zone, or every option"),
        Binding("n", "node_type", "node", tooltip="the next node type, then all together"),
        Binding("r", "ranking", "rank", tooltip="node types ranked, and how that is known"),
        Binding("plus,equals_sign", "zoom(0.7)", "zoom", tooltip="zoom in, around the cursor"),
        Binding("minus", "zoom(1.43)", "zoom out", show=False),
        Binding("0", "fit", "fit", show=False, tooltip="show what matters, or everything"),
        Binding("x", "across", "axes", show=False, tooltip="time or performance across"),
        Binding("y", "up", "energy or efficiency upwards", show=False),
        Binding("b", "baseline", "compare", show=False, tooltip="compare with this option"),
        Binding("t", "train", "measure", show=False, tooltip="measure it (again)"),
    ]

    def __init__(self, application: str, workload: str) -> None:
        super().__init__()
        self.application, self.workload = application, workload
        self.boards: Boards | None = None
        self.node_type = view.EVERY
        self.which: Which = "front"
        self.across: Across = "time"
        self.up: Up = "energy"
        self.steps: list[int] = []
        self._points: Sequence[PlotPoint] = ()
        self._place: TradeOff | None = None
        self._asked: Configuration | None = None

    def body(self) -> Iterable[Widget]:
        """Yield picture, legend, table and detail."""
        yield Static("", id="tradeoff-title")
        yield Static("", id="verdict")
        with Vertical(id="tradeoff-body"):
            with Vertical(id="tradeoff-left"):
                yield Chart(id="chart")
                yield Static("", id="legend")
            yield Static("", id="tradeoff-side")
        yield LazyTable(COLUMNS, id="points", empty="reading ...")
        yield Static("", id="detail")

    def on_mount(self) -> None:
        """Read the options."""
        self.set_focus(self.chart)
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
        if self.boards is None:
            return None
        return self.boards.by_type.get(self.node_type)

    @property
    def current(self) -> int | None:
        """The option under the cursor."""
        return self.chart.cursor

    # -- reading ---------------------------------------------------------------------------------

    def load(self, *, keep: bool = False) -> None:
        """Read the options again; with ``keep`` the cursor stays on its configuration."""
        begin(self, self._load, keep, group="boards", exclusive=True)

    async def _load(self, keep: bool) -> None:
        session, asked = self.session, self._asked
        application, workload = self.application, self.workload

        def work() -> Boards:
            with session.reader() as reader:
                return view.load(reader, application, workload, session.person(), asked)

        try:
            boards = await self.advisor.ask(work)
        except RefusedError as error:
            self._nothing(f"{error.message}. Press t to measure it once, Esc to go back.")
            return
        except AdvisorError as error:
            self.advisor.report(error)
            self._nothing(f"the options cannot be read: {error}")
            return
        here = self._configuration() if keep else None
        self.boards = boards
        if not boards.by_type:
            self._nothing(
                "No measurements yet, only a ranking of node types (r). "
                "Press t to measure it once, Esc to go back."
            )
            return
        if self.node_type not in boards.by_type or not keep:
            self.node_type = boards.first
        self._arrange(here, keep_zoom=keep)

    def _nothing(self, sentence: str) -> None:
        self.query_one("#tradeoff-title", Static).update(
            Content(f"{self.application} / {self.workload}")
        )
        self.chart.show(None, sentence)
        self.table.empty = ""
        self.table.reset(0)

    def _configuration(self) -> Configuration | None:
        board, number = self.board, self.current
        if board is None or number is None or number >= len(board.options):
            return None
        return board.options[number].configuration

    # -- arranging -------------------------------------------------------------------------------

    def _arrange(self, here: Configuration | None, *, keep_zoom: bool = False) -> None:
        """Put a board into picture and table."""
        board = self.board
        if board is None:
            return
        picture = None
        if board.view.energy_known:
            self._points = board.points(self.across, self.up)
            self._place = board.place(self.across, self.up)
        else:
            self._place, self._points = None, [(o.time_s, 0.0) for o in board.options]
        self.steps = view.walk(board, self._points, self._place, self.which)
        if self._place is not None:
            picture = points.picture(
                board, self._points, self._place, self.steps, self.across, self.up
            )
        number = board.find(here) if here is not None else None
        if number is None:
            number = next(
                n for n in (board.yours_at, board.policy_at, board.baseline) if n is not None
            )
        if number not in self.steps:
            number = min(
                self.steps, key=lambda i: abs(self._points[i][0] - self._points[number][0])
            )
        self.chart.set_reactive(Chart.cursor, number)
        message = "Its energy is not known, so there is no trade-off to show; times are below."
        self.chart.show(picture, message, keep=keep_zoom)
        self._fill(board, number)
        self._titles(board)
        self._detail(board, number)

    def _fill(self, board: TradeOffView, number: int) -> None:
        table = self.table
        table.set_columns(COLUMNS_OF_EVERY if board.node_type == view.EVERY else COLUMNS)
        table.reset(len(self.steps), cursor=self.steps.index(number))

    @on(LazyTable.Wanted, "#points")
    def _wanted(self, event: LazyTable.Wanted) -> None:
        board = self.board
        if board is not None:
            numbers = self.steps[event.first : event.first + event.limit]
            self.table.fill(event.first, [cells(board, n) for n in numbers])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to apply what may be applied."""
        if action == "apply":
            board = self.board
            return board is not None and board.verdict.can_apply and not self.session.foreign
        return super().check_action(action, parameters)

    # -- saying ----------------------------------------------------------------------------------

    def _titles(self, board: TradeOffView) -> None:
        assert self.boards is not None
        shown = f"{self.which} {len(self.steps)}/{len(board.options)}"
        for name, text in (
            ("tradeoff-title", captions.title(self.boards, board)),
            ("legend", captions.legend(board, shown)),
        ):
            self.query_one(f"#{name}", Static).update(Content(text))
        self.status_changed()

    def status_changed(self) -> None:
        """Say what a job gets, and whether the daemon is there to apply it."""
        if self.board is not None:
            said = captions.verdict(self.board, self.advisor.daemon)
            self.query_one("#verdict", Static).update(said)
            self.refresh_bindings()

    def _detail(self, board: TradeOffView, number: int) -> None:
        assert self.boards is not None
        lines = view.detail(board, number)
        self.query_one("#detail", Static).update(Content("\n".join(lines)))
        side = captions.side(self.boards, lines)
        self.query_one("#tradeoff-side", Static).update(Content(side))

    # -- moving ----------------------------------------------------------------------------------

    def _go(self, number: int) -> None:
        board = self.board
        if board is None or number not in self.steps:
            return
        self.chart.cursor = number
        self.table.cursor = self.steps.index(number)
        self._detail(board, number)

    def action_step(self, by: int) -> None:
        """Go to the next option of those stepped through."""
        if self.steps and self.current is not None:
            at = self.steps.index(self.current) + by
            self._go(self.steps[max(0, min(len(self.steps) - 1, at))])

    def key_up(self) -> None:
        """Go to the previous option, also from the picture."""
        if self.chart.has_focus:
            self.action_step(-1)

    def key_down(self) -> None:
        """Go to the next option, also from the picture."""
        if self.chart.has_focus:
            self.action_step(1)

    @on(LazyTable.Moved, "#points")
    def _moved(self) -> None:
        row = self.table.cursor  # the message may be older than the last key
        if row < len(self.steps) and self.steps[row] != self.current:
            self._go(self.steps[row])

    @on(LazyTable.Opened, "#points")
    def _opened(self) -> None:
        self.action_choose()

    @on(Chart.Picked)
    def _picked(self, event: Chart.Picked) -> None:
        if event.number in self.steps:
            self._go(event.number)
        elif self.board is not None:  # drawn, but not listed: now it is
            self.which = "all"
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
        self.which = _WHICH[(_WHICH.index(self.which) + 1) % len(_WHICH)]
        self._arrange(self._configuration(), keep_zoom=True)

    def action_node_type(self) -> None:
        """Show the next node type, or all of them together."""
        if self.boards is None:
            return
        names = captions.names(self.boards)
        if len(names) < 2:
            only = f"Only {names[0]} has options" if names else "No node type has options"
            self.advisor.tell(f"{only}; r says more.")
            return
        here = self._configuration()
        self.node_type = names[(names.index(self.node_type) + 1) % len(names)]
        self._arrange(here)

    def action_across(self) -> None:
        """Show time or performance across."""
        self.across = "performance" if self.across == "time" else "time"
        self._arrange(self._configuration())

    def action_up(self) -> None:
        """Show energy or efficiency upwards."""
        self.up = "efficiency" if self.up == "energy" else "energy"
        self._arrange(self._configuration())

    def action_baseline(self) -> None:
        """Compare with the option under the cursor from now on."""
        here = self._configuration()
        if here is not None:
            self._asked = here
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
        here, self.node_type = self._configuration(), node_type
        self._arrange(here)

    # -- going on --------------------------------------------------------------------------------

    def action_choose(self) -> None:
        """Choose the option under the cursor, a goal, or to be left alone."""
        from advisor_tui.choose import show_choose

        show_choose(self.advisor, self.application, self.workload, self._configuration())

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

    def action_back(self) -> None:
        """Go back to the list."""
        self.app.pop_screen()

    def files_changed(self) -> None:
        """Show what the choices file says now."""
        self.load(keep=True)

    def on_screen_resume(self) -> None:
        """Show what was chosen meanwhile."""
        if self.boards is not None:
            self.load(keep=True)
