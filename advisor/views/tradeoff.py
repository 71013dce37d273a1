"""One workload's trade-off to look at: options, front, zone, what is chosen, on which node type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.disturbed import disturbed
from advisor.core.option import Option
from advisor.core.pareto import ErrorLimits, TradeOff, trade_off
from advisor.core.units import duration_like, format_energy
from advisor.core.words import change_words, describe, with_interval
from advisor.errors import RefusedError
from advisor.plotting import PlotPoint
from advisor.service.snapshot import Snapshot
from advisor.store.rankings import rankings
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.views.applications import home
from advisor.views.options import View, view_of
from advisor.views.preview import AskingJob, Person, preview, site_for_preview
from advisor.views.ranking import RankedRow, ranked
from advisor.views.size_line import SizeLine, size_lines, sized_views_of
from advisor.views.sized_options import beyond
from advisor.views.verdict import JobVerdict, verdict
from advisor.views.worth import Month, of_option

Across = Literal["time", "performance"]
Up = Literal["energy", "efficiency"]
EVERY = ""
"""The node type that stands for all of them together."""


@dataclass(frozen=True, slots=True)
class TradeOffView:
    """A trade-off: the options of one node type, or of all, beside the job as written.

    ``policy`` and ``yours`` are the decisions for such a job without and with what the person has
    chosen, None where the node type is not in the inventory. ``baseline``, ``policy_at`` and
    ``yours_at`` are numbers of options: the job as written, the policy's choice (None: it changes
    nothing) and the person's own (None where that is the policy's).
    """

    view: View
    node_type: str
    policy: Decision | None
    yours: Decision | None
    baseline: int
    policy_at: int | None
    yours_at: int | None
    disturbed: frozenset[int] = frozenset()
    """Options that show a disturbed run: neither drawn nor listed."""
    foreign: frozenset[str] = frozenset()
    """Its node types whose options are estimated from another one's."""
    extrapolated: bool = False
    """Whether it is of a size beyond those measured."""

    @property
    def options(self) -> tuple[Option, ...]:
        """The options, in the order of every number here."""
        return self.view.options

    @property
    def estimated(self) -> bool:
        """Whether its energy is an estimate, not a measurement."""
        return self.view.model.energy_basis == "estimated"

    def guessed(self, option: Option) -> bool:
        """Whether an option follows from runs on another node type, or of other applications."""
        by_class = self.view.model.by_class and option.estimated
        return by_class or option.configuration.node_type in self.foreign

    @property
    def verdict(self) -> JobVerdict:
        """Say what a job like the baseline gets and whether it is applied, or why nothing."""
        if self.view.source and self.policy_at is None and self.yours_at is None:
            if self.view.model.of_sizes:
                return self._decided
            what = f"AN ESTIMATE {self.view.source.removeprefix('estimated ')}"
            if not self.view.model.by_class:
                return JobVerdict(what, "NOT APPLIED: jobs are not sent there")
            return replace(self._decided, what=what)
        return self._decided

    @property
    def _decided(self) -> JobVerdict:
        node_type = self.view.baseline.configuration.node_type
        return verdict(self.policy, self.yours, f"{node_type} is not in the inventory")

    def points(self, across: Across, up: Up) -> list[PlotPoint]:
        """Return every option's place: s and J, or performance and efficiency in % of the baseline.

        Efficiency is work per energy. NaN where no energy is known.
        """
        base = self.view.baseline

        def place(o: Option) -> PlotPoint:
            x = o.time_s if across == "time" else 100.0 * base.time_s / o.time_s
            y = o.energy_j if up == "energy" else 100.0 * base.energy_j / o.energy_j
            return x, y

        return [place(o) for o in self.options]

    def spreads(self, across: Across, up: Up) -> list[tuple[PlotPoint, PlotPoint] | None]:
        """Return (low, high) of every option's place on each axis; None where it is not known."""
        base = self.view.baseline

        def ends(low: float, high: float, base: float, *, plain: bool) -> PlotPoint:
            return (low, high) if plain else (100.0 * base / high, 100.0 * base / low)

        return [
            (
                ends(o.time_lo_s, o.time_hi_s, base.time_s, plain=across == "time"),
                ends(o.energy_lo_j, o.energy_hi_j, base.energy_j, plain=up == "energy"),
            )
            if o.energy_lo_j > 0 and o.time_lo_s > 0
            else None
            for o in self.options
        ]

    def bound(self, across: Across) -> float | None:
        """Return where the slowdown bound lies that holds for such a job; None without a policy."""
        if self.yours is None:
            return None
        slowest = 1.0 + self.yours.policy.max_slowdown
        return self.view.baseline.time_s * slowest if across == "time" else 100.0 / slowest

    def place(self, across: Across, up: Up) -> TradeOff:
        """Return front and zone with these axes. Raises RefusedError when no energy is known."""
        if not self.view.energy_known:
            raise RefusedError(f"{self.view.title}: energy is not known, so there is no trade-off")
        points = self.points(across, up)
        limits = ErrorLimits(float(self.view.model.stats.get("error", 0.05)))
        return trade_off(
            [p[0] for p in points],
            [p[1] for p in points],
            max_x=across != "time",
            max_y=up != "energy",
            x_limits=limits,
            y_limits=limits,
        )

    def find(self, configuration: Configuration) -> int | None:
        """Return the number of a configuration, None when it is not here."""
        numbers = (i for i, o in enumerate(self.options) if o.configuration == configuration)
        return next(numbers, None)

    def words(self, number: int, *, brief: bool = False, marked: bool = False) -> str:
        """Say what an option changes against the job as written.

        ``marked``: the figures beside say which of them are estimates.
        """
        if number == self.baseline:
            return "the job as written"
        energy, time = self.view.change(self.options[number])
        guessed = self.estimated or self.guessed(self.options[number])
        return change_words(energy, time, estimated=guessed and not marked, brief=brief)

    def window(self, points: Sequence[PlotPoint], marked: TradeOff) -> tuple[PlotPoint, PlotPoint]:
        """Return (low, high) of each axis around front, zone, and what is special."""
        special = (self.baseline, self.policy_at, self.yours_at)
        focus = {*marked.front, *marked.zone, *(n for n in special if n is not None)}
        edges = []
        for axis in (0, 1):
            values = [points[i][axis] for i in focus]
            margin = 0.06 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
            edges.append((min(values) - margin, max(values) + margin))
        return edges[0], edges[1]


def board_of(
    view: View,
    node_type: str,
    policy: Decision | None,
    yours: Decision | None,
    foreign: frozenset[str] = frozenset(),
) -> TradeOffView:
    """Return a board, everything special found among its options."""
    numbers = {o.configuration: i for i, o in enumerate(view.options)}

    def option_number(decision: Decision | None) -> int | None:
        chosen = decision.chosen if decision is not None else None
        return None if chosen is None else numbers.get(chosen.configuration)

    baseline = numbers[view.baseline.configuration]
    policy_at, yours_at = option_number(policy), option_number(yours)
    if yours is not None and any(r.code == "pinned" for r in yours.reasons):
        yours_at = baseline if yours_at is None else yours_at
    elif yours_at == policy_at:
        yours_at = None
    special = {baseline, policy_at, yours_at}
    spikes = frozenset(n for n in disturbed(view.options) if n not in special)
    extrapolated = view.model.of_sizes and bool(beyond(view.model))
    return TradeOffView(
        view, node_type, policy, yours, baseline, policy_at, yours_at, spikes, foreign, extrapolated
    )


def axis_title(axis: Across | Up) -> str:
    """Return what an axis says."""
    return {
        "time": "time",
        "energy": "energy",
        "performance": "performance %",
        "efficiency": "efficiency %",
    }[axis]


@dataclass(frozen=True, slots=True)
class Boards:
    """A workload's trade-offs by node type; ``EVERY`` holds them all where there are several."""

    application: str
    workload: str
    runs: int
    by_type: Mapping[str, TradeOffView]
    ranking: tuple[RankedRow, ...] = ()
    unranked: tuple[str, ...] = ()
    """Node types of the inventory of which nothing is known."""
    month: Month = field(default_factory=Month)
    sizes: tuple[SizeLine, ...] = ()
    """The sizes of its family along each parameter, where it has one."""

    @property
    def first(self) -> str:
        """What to show first: where a job would land, or all where it would be sent elsewhere."""
        name = next(iter(self.by_type))
        board, every = self.by_type[name], self.by_type.get(EVERY)
        if every is None or board.yours is None or board.yours.chosen is None:
            return name
        destination = board.yours.chosen.configuration
        moves_away = destination.node_type != name and every.find(destination) is not None
        return EVERY if moves_away else name


@dataclass(frozen=True, slots=True)
class SeenModels:
    """The models of a workload that a person's jobs may be advised by.

    ``snapshot`` is that of a look ahead and holds them; ``sized`` are the views of those of a size
    that was not swept, by model.
    """

    snapshot: Snapshot
    shown: Sequence[StoredModel]
    sized: Mapping[int, View]

    def view_on(
        self,
        reader: Reader,
        node_type: str,
        person: Person,
        requested_baseline: Configuration | None = None,
    ) -> tuple[View, Person]:
        """Return the view of the model on a node type, and the person as whose jobs it advises.

        The baseline is ``requested_baseline``, if it is one of its options, else the job as a sweep
        measured it, else the largest option.
        """
        type_models = [m for m in self.shown if m.node_type == node_type]
        model = home(type_models, person, self.snapshot.inventory)
        whose = replace(person, account=model.owner) if model.scope == "account" else person
        base = (
            requested_baseline
            if requested_baseline and requested_baseline.node_type == node_type
            else None
        )
        if model.id in self.sized:
            return self.sized[model.id].beside(base), whose
        swept = reader.swept_baseline(model.application, model.workload, node_type)
        return view_of(model, base or swept, further=False), whose


def seen_models(reader: Reader, application: str, workload: str, person: Person) -> SeenModels:
    """Return the models of a workload that a person's jobs may be advised by, maybe none."""
    models = [
        m
        for m in reader.find_models(application, workload)
        if m.scope != "own" or m.owner == person.name
    ]
    sized = {} if models else sized_views_of(reader, application, workload, person.name)
    models += [v.model for v in sized.values()]
    snapshot = site_for_preview(reader)
    if models:
        snapshot.take(reader.size_models(application) if sized else models)
    numbers = {m.id for m in models}
    shown = tuple(m for m in snapshot.models.values() if m.id in numbers)
    return SeenModels(snapshot, shown, sized)


def load(
    reader: Reader,
    application: str,
    workload: str,
    person: Person,
    requested_baseline: Configuration | None = None,
) -> Boards:
    """Return a workload's trade-offs for a person, and the ranking of its node types.

    ``requested_baseline`` is the baseline of its node type, see :meth:`SeenModels.view_on`. With a
    ranking but no model there are no trade-offs. Raises RefusedError when there is neither.
    """
    stored = rankings(reader, application, workload, user=person.name)
    visible_models = seen_models(reader, application, workload, person)
    if not visible_models.shown and stored:
        return Boards(application, workload, 0, {}, ranked({}, stored))
    if not visible_models.shown:
        raise RefusedError(f"there is no model of {application} {workload} yet", hint="measure it")
    snapshot = visible_models.snapshot
    boards: dict[str, TradeOffView] = {}
    first_one = home(visible_models.shown, person, snapshot.inventory).node_type
    names = sorted({m.node_type for m in visible_models.shown}, key=lambda n: (n != first_one, n))
    for name in names:
        view, whose = visible_models.view_on(reader, name, person, requested_baseline)
        boards[name] = _board(snapshot, view, whose, name, boards.get(first_one))
    if len(names) > 1:
        first = boards[
            requested_baseline.node_type
            if requested_baseline and requested_baseline.node_type in boards
            else names[0]
        ]
        every = tuple(
            o
            for b in boards.values()
            for o in b.options
            if b.view.model.energy_basis == first.view.model.energy_basis
        )
        view = replace(first.view, options=every)
        foreign = frozenset[str]().union(*(b.foreign for b in boards.values()))
        boards[EVERY] = board_of(view, EVERY, first.policy, first.yours, foreign)
    runs = sum(w.observations for w in reader.workloads(application) if w.name == workload)
    ranking = ranked({n: b.view for n, b in boards.items() if n}, stored)
    ranked_types = {r.node_type for r in ranking}
    unranked = tuple(n for n in snapshot.inventory.node_types if n not in ranked_types)
    month = Month.of(reader, application, workload, person.name)
    most = snapshot.policy.base.max_extrapolation
    sizes = size_lines(reader, application, workload, person.name, most)
    return Boards(application, workload, runs, boards, ranking, unranked, month, sizes)


def _board(
    snapshot: Snapshot, view: View, person: Person, node_type: str, home_board: TradeOffView | None
) -> TradeOffView:
    m, base = view.model, view.baseline.configuration
    if m.transferred:  # a job's own node type must have been measured: it may be sent here
        policy, yours = (home_board.policy, home_board.yours) if home_board else (None, None)
        return board_of(view, node_type, policy, yours, frozenset([node_type]))
    person_without_choices = replace(person, choices={})
    policy = preview(snapshot, AskingJob(m.application, m.workload, base, person_without_choices))
    yours = (
        preview(snapshot, AskingJob(m.application, m.workload, base, person))
        if person.choices
        else policy
    )
    return board_of(view, node_type, policy, yours)


def spread(low: float, value: float, high: float) -> str:
    """Return an interval as one figure: ``±2 %``; "" where it is not known or none."""
    if not (low > 0 and math.isfinite(value) and high > low):
        return ""
    half = 100 * (math.sqrt(high / low) - 1)
    return f"±{half:.1f}%" if half < 0.95 else f"±{half:.0f}%"


def detail(board: TradeOffView, number: int) -> list[str]:
    """Return everything about one option: where, what it takes, what it changes."""
    o = board.options[number]
    about = "about " if board.guessed(o) else ""
    as_time = duration_like(board.view.baseline.time_s)
    time = f"time {about}{with_interval(o.time_s, o.time_lo_s, o.time_hi_s, as_time)}"
    energy = "energy not known"
    if not math.isnan(o.energy_j):
        interval = with_interval(o.energy_j, o.energy_lo_j, o.energy_hi_j, format_energy)
        energy = f"energy {'about ' if board.estimated else about}{interval}"
    gpu_j = board.view.model.gpu_j().get(o.configuration)
    if gpu_j is not None:
        energy += f", of which GPUs took {format_energy(gpu_j)}"
    words = [board.words(number), known(board, o)]
    if number == board.policy_at:
        words.append("the policy's choice")
    if number == board.yours_at:
        words.append("your choice")
    where = describe(o.configuration, node_type=True)
    return [where, f"{time}, {energy}", "; ".join(words)]


def worth(board: TradeOffView, number: int, month: Month) -> list[str]:
    """Say what an option saves in kWh, money, CO2 and node-hours; nothing without its energy."""
    option = board.options[number]
    if math.isnan(option.energy_j):
        return []
    verb = "takes" if number == board.baseline else "worth"
    about = "about " if board.estimated or board.guessed(option) else ""
    run, *month_sentences = of_option(board.view, option, month).sentences()
    return [f"{verb} {about}{run}", *month_sentences]


def known(board: TradeOffView, option: Option) -> str:
    """Say how an option's numbers are known: measured, predicted, estimated."""
    if board.guessed(option) and board.view.model.by_class:
        time, energy = (text.strip(" ()") for text in board.view.intervals(option))
        return f"estimated from applications like it: 90 % energy {energy}, time {time}"
    if board.guessed(option):
        return "estimated from microbenchmarks: nothing ran on this node type"
    how = "extrapolated from smaller sizes" if board.extrapolated else "predicted"
    if option.extrapolated:
        how = "extrapolated: outside of what was run"
    if option.measured:
        how = "measured and confirmed" if option.confirmed else "measured"
    return f"{how}, energy estimated" if board.estimated else how


def walk(
    board: TradeOffView,
    points: Sequence[PlotPoint],
    place: TradeOff | None,
    which: Literal["front", "zone", "all"],
) -> list[int]:
    """Return the options to step through, in the order of the picture's x axis.

    The job as written and what is chosen are always among them.
    """
    special = (board.baseline, board.policy_at, board.yours_at)
    if which == "all" or place is None:
        numbers = set(range(len(board.options)))
    else:
        numbers = set(place.front if which == "front" else place.zone)
    chosen = {*numbers, *(n for n in special if n is not None)} - board.disturbed
    return sorted(chosen, key=lambda i: (points[i][0], points[i][1], i))
