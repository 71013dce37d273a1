"""The site's policy: what holds, which rule a job would meet, and what another policy would do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import AwaitMount, Widget
from textual.widgets import Input, Static

from advisor.core.policy import GOALS, MATCH_FIELDS, Goal
from advisor.errors import AdvisorError
from advisor.views import policy as view
from advisor.views.policy import AppliedPolicy
from advisor.views.whatif import (
    DecisionChange,
    WhatIf,
    in_order,
    queues_words,
    sum_words,
    summed,
    worth_words,
)
from advisor_tui.background import begin
from advisor_tui.boxes import Below, OneOf, Scrolled, SideBySide
from advisor_tui.dialogue import Field
from advisor_tui.past import PastJobs
from advisor_tui.picks import Picks
from advisor_tui.shell import Page
from advisor_tui.stepper import Stepper
from advisor_tui.table import Cell, Column, LazyTable

_SLOWDOWNS = tuple(f"{n} %" for n in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25))
_FIELDS = (
    "application",
    "workload",
    *(n for n in MATCH_FIELDS if n not in ("application", "workload")),
)
_PAUSE_S = 0.15
"""So long the slider must rest before everything is decided again."""
_COLUMNS = (
    Column("Application", 12, flex=2),
    Column("Workload", 9, flex=2),
    Column("Node type", 9, from_width=110),
    Column("", 7, gap=1),
    Column("Today", 22, flex=1),
    Column("Then", 22, flex=1),
    Column("At", 20, flex=3, from_width=130),
)
_FRAMED = {
    "rule": ("#holding", "what holds for such a job"),
    "whatif": ("#changes", "every workload, today and then"),
    "past": ("#past-result", "what the file would have done"),
}
"""By part, what of it has a frame where there is room, and the frame's title."""
_KINDS: dict[str, Cell] = {
    "gained": ("+ new", "good"),
    "lost": ("- gone", "bad"),
    "moved": ("~ other", "warn"),
    "same": ("", "dim"),
}


class PolicyPage(Page):
    """What is applied, which rule holds, what another policy would do, or would have done."""

    TITLE = "Policy"
    PLACE = "policy"
    HELP = """\
applied      the policy file as the admins applied it
which rule   type what a job is: the first rule that matches it, and
             every setting that follows
what if      for admins: move goal and largest slowdown, and see what
             every known workload would get. Looking changes nothing;
             advisor policy apply changes the policy.
past         try a policy file on the jobs of the past: what it would have
             changed; users see their own jobs, admins all

Percentages are the predicted energy and time against the job as written;
month is what the jobs of the last 30 days would save more than today, or
take, with money and CO2 where the site states them.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "part('applied')", "applied"),
        Binding("w", "part('rule')", "which rule"),
        Binding("i", "part('whatif')", "what if"),
        Binding("p", "part('past')", "past jobs"),
        Binding("r", "reload", "read again", show=False),
        Binding("escape", "leave", "leave field"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._applied: AppliedPolicy | None = None
        self._whatif: WhatIf | None = None
        self._loading = False
        self._changes: list[DecisionChange] = []
        self._turn = 0
        self._parts: dict[str, AwaitMount] = {}
        """The parts that are made, or being made: all but the first."""
        self._made: set[str] = set()
        """Those of them that are there as a whole."""

    def body(self) -> Iterable[Widget]:
        """Yield the parts, one of which is shown."""
        yield Picks(
            [
                ("applied", "applied"),
                ("rule", "which rule"),
                ("past", "past"),
                ("whatif", "what if"),
            ],
            row=True,
            id="part",
        )
        with OneOf(initial="applied", id="parts"), SideBySide(id="applied"):
            yield Scrolled(Static("reading ...", id="applied-text"), id="applied-file")
            yield Scrolled(Static("", id="settled-text"), id="settled")

    def _rule_part(self) -> Widget:
        """Return the part that asks what a job is."""
        given = self.session.submitted_with()
        session_facts = {
            "user": self.session.user,
            "account": given.get("account", ""),
            "qos": given.get("qos", ""),
        }
        facts = [
            Field(session_facts.get(name, ""), id=f"fact-{name}", compact=True, placeholder="any")
            for name in _FIELDS
        ]
        return Below(
            SideBySide(Static("\n".join(_FIELDS), classes="wide-label"), Below(*facts), id="facts"),
            Scrolled(Static("", id="holding-text"), id="holding"),
            id="rule",
        )

    def _what_if_part(self) -> Widget:
        """Return the part with the sliders."""
        return Below(
            Stepper("goal        ", GOALS, id="goal"),
            Stepper("max_slowdown", _SLOWDOWNS, slider=True, id="slowdown"),
            Static("", id="sums"),
            LazyTable(_COLUMNS, id="changes"),
            Static("", id="change"),
            id="whatif",
        )

    def _past_part(self) -> Widget:
        """Return the part that tries a policy file on the past."""
        return PastJobs(self)

    def on_mount(self) -> None:
        """Begin with the choice of parts."""
        self.query_one("#applied-file").border_title = "the policy that is applied"
        self.query_one("#settled").border_title = "all settings of a job that no rule matches"
        self.begin_at("#part")

    async def ahead(self) -> None:
        """Make the parts that are not shown first."""
        for part in ("rule", "whatif", "past"):
            await self._mount_part(part)
        if not self.is_new:  # somebody went there meanwhile: what is shown is their choice
            return
        parts = self.query_one("#parts", OneOf)
        for part in self._parts:
            parts.current = part
            await self.rehearse()
        parts.current = "applied"

    def opened(self) -> None:
        """Read the policy."""
        self.action_reload()

    def action_reload(self) -> None:
        """Read the policy again."""
        self._whatif = None
        begin(self, self._load, group="policy", exclusive=True)

    async def _load(self) -> None:
        session = self.session

        def work() -> AppliedPolicy:
            with session.reader() as reader:
                return view.applied(reader)

        policy = await self.ask(work)
        text = self.query_one("#applied-text", Static)
        if policy is None:
            text.update("The policy cannot be read; r reads it again.")
            return
        self._applied = policy
        if policy.version:
            head = f"version {policy.version}, applied {policy.since[:16]} by {policy.by}"
        else:
            head = "no policy is applied; this is the built-in one"
        text.update(Content.assemble((head, "bold"), "\n\n", policy.text))
        settings = view.holding(policy.policy, {})[1:]
        self.query_one("#settled-text", Static).update(Content("\n".join(settings).strip("\n")))
        for part in self._made:
            self._fill_part(part)
        if self.query_one("#part", Picks).key == "whatif" and "whatif" in self._made:
            self._begin()

    # -- parts -----------------------------------------------------------------------------------

    async def _mount_part(self, part: str) -> None:
        """Mount a part when it is shown for the first time."""
        builds = {"rule": self._rule_part, "whatif": self._what_if_part, "past": self._past_part}
        if part in builds and part not in self._parts:
            widget = builds[part]()
            widget.display = False
            self._parts[part] = self.query_one("#parts").mount(widget)
            await self._parts[part]
            self._made.add(part)
            inner, title = _FRAMED[part]
            self.query_one(inner).border_title = title
            if part == "rule":
                self.query_one("#facts").border_title = "a job that is"
            self._fill_part(part)
        elif part in self._parts:
            await self._parts[part]

    def _fill_part(self, part: str) -> None:
        """Fill a part with the policy that was read."""
        if part == "rule":
            self._show_rule()
        elif part == "whatif" and self._applied is not None:
            base = self._applied.policy.base
            self.query_one("#goal", Stepper).begin_at(base.goal)
            nearest = min(_SLOWDOWNS, key=lambda s: abs(_fraction(s) - base.max_slowdown))
            self.query_one("#slowdown", Stepper).begin_at(nearest)

    async def action_part(self, part: str) -> None:
        """Show a part."""
        await self._mount_part(part)
        self.query_one("#part", Picks).choose(part)
        first = {
            "applied": "#applied-file",
            "rule": "#fact-application",
            "whatif": "#slowdown",
            "past": "#past-file",
        }
        self.set_focus(self.query_one(first[part]))
        self.hold()

    def action_leave(self) -> None:
        """Go back to the choice of parts."""
        self.set_focus(self.query_one("#part", Picks))

    @on(Picks.Changed, "#part")
    async def _part(self) -> None:
        part = self.query_one("#part", Picks).key
        await self._mount_part(part)
        self.query_one("#parts", OneOf).current = part
        if part == "whatif":
            self._begin()
        self.hold()

    @on(Input.Changed, "#facts Input")
    def _typed(self) -> None:
        self._show_rule()

    def _show_rule(self) -> None:
        if self._applied is None or "rule" not in self._made:
            return
        facts = {n: self.query_one(f"#fact-{n}", Input).value.strip() for n in _FIELDS}
        lines = view.holding(self._applied.policy, facts)
        text = Content.assemble((lines[0], "bold"), "\n", "\n".join(lines[1:]))
        self.query_one("#holding-text", Static).update(text)

    # -- what if ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Read every workload, once."""
        if not self.session.admin:
            for name in ("goal", "slowdown", "changes", "change"):
                self.query_one(f"#{name}").display = False
            self._say("Only admins can use this page: the policy holds for everybody.")
            self.set_focus(self.query_one("#part", Picks))
            return
        if self._whatif is None and not self._loading:
            self._loading = True
            self._say("reading every known workload ...")
            begin(self, self._read_all, group="whatif-load", exclusive=True)
        elif self._whatif is not None:
            self._decide()

    async def _read_all(self) -> None:
        session = self.session
        await self.painted()  # what can be set can be seen before

        def work() -> WhatIf:
            with session.reader() as reader:
                return WhatIf.load(reader, lambda: self.app.is_running)

        try:
            self._whatif = await self.advisor.ask(work)
        except AdvisorError as error:
            self.advisor.report(error)
            self._say(f"The workloads cannot be read: {error}")
            return
        finally:
            self._loading = False
        self._decide()

    @on(Stepper.Changed)
    def _stepper_moved(self) -> None:
        if self._whatif is not None:
            self._turn += 1
            self.set_timer(_PAUSE_S, self._decide)

    def _decide(self) -> None:
        begin(self, self._sum_changes, self._turn, group="whatif", exclusive=True)
        self.hold()

    async def _sum_changes(self, turn: int) -> None:
        whatif = self._whatif
        if whatif is None or turn != self._turn:
            return
        name = self.query_one("#goal", Stepper).value
        goal: Goal = next((g for g in GOALS if g == name), "balanced")
        bound = _fraction(self.query_one("#slowdown", Stepper).value)

        def work() -> list[DecisionChange]:
            return whatif.under(goal, bound, lambda: self.app.is_running and self._turn == turn)

        changes = await self.ask(work)
        if changes is None or turn != self._turn:
            return
        self._changes = in_order(changes)
        present_sum, tried_sum = (
            summed([c.case.now for c in changes]),
            summed([c.then for c in changes]),
        )
        kinds = [c.kind for c in changes]
        counts = ", ".join(
            f"{kinds.count(kind)} {word}"  # type: ignore[arg-type]
            for kind, word in (("gained", "new"), ("moved", "elsewhere"), ("lost", "no more"))
        )
        lines = [
            f"today: {sum_words(present_sum)}",
            f"then:  {sum_words(tried_sum)}",
            f"       {counts}{queues_words(changes)}",
        ]
        if worth := worth_words(whatif, changes):
            lines.append(f"month: {worth}")
        self._say("\n".join(lines))
        table = self.query_one("#changes", LazyTable)
        table.empty = "no workload has a model yet"
        table.snug = True
        table.reset(len(self._changes))
        self._show_change()

    @on(LazyTable.Moved, "#changes")
    def _show_change(self) -> None:
        row, text = self.query_one("#changes", LazyTable).cursor, ""
        if row < len(self._changes):
            text = "\n".join(self._changes[row].sentences)
        self.query_one("#change", Static).update(Content(text))

    def _say(self, text: str) -> None:
        self.query_one("#sums", Static).update(Content(text))

    @on(LazyTable.Wanted, "#changes")
    def _rows_wanted(self, event: LazyTable.Wanted) -> None:
        rows = self._changes[event.first : event.first + event.limit]
        event.table.fill(event.first, [_cells(change) for change in rows])

    @on(LazyTable.Opened, "#changes")
    def _row_opened(self, event: LazyTable.Opened) -> None:
        from advisor_tui.tradeoff import show_tradeoff

        if event.row < len(self._changes):  # the list may be another one by now
            case = self._changes[event.row].case
            show_tradeoff(self.advisor, case.application, case.workload)


def _cells(change: DecisionChange) -> list[Cell]:
    case = change.case
    return [
        (case.application, "strong"),
        case.workload,
        case.baseline.node_type,
        _KINDS[change.kind],
        change.words(case.now),
        change.words(change.then),
        (change.where, "dim"),
    ]


def _fraction(text: str) -> float:
    return float(text.removesuffix("%")) / 100
