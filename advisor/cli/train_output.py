"""What ``advisor train`` shows: plan and cost, progress, outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TextIO

from advisor.cli.output import print_table
from advisor.core.codec import AtLeast, JsonForm, wire
from advisor.core.configuration import Configuration
from advisor.core.observation import Quality
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.schedulers.base import Role
from advisor.training.outcome import Confirmation, Event, SweepOutcome
from advisor.training.plan import Cost
from advisor.training.planning import PlannedSweep
from advisor.training.state import SweepState
from advisor.views.training import outcome_lines, outcome_rows, run_line


@dataclass(frozen=True, slots=True)
class PlanAnswer(JsonForm):
    """A sweep as ``--dry-run --json`` prints it."""

    application: str
    workload: str
    node_type: str
    scheduler: str
    baseline: Configuration
    space: PlannedSpace
    runs: list[PlannedRunAnswer]
    by_class: Sequence[Configuration]
    design: str
    most_runs: int
    confirm: int
    cost: Cost
    energy: str
    within: Annotated[float, "Half width at which runs end; 0: all complete."]
    earlier: Annotated[str, "The sweep whose complete run the job as written is paired with."]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class PlannedSpace(JsonForm):
    """Among which configurations a sweep chooses."""

    nodes: Sequence[int]
    threads_per_node: list[int]
    freqs_khz: Sequence[int]
    extra: Mapping[str, Sequence[int]] = field(default_factory=dict, metadata=wire(omit=True))


@dataclass(frozen=True, slots=True)
class PlannedRunAnswer(JsonForm):
    """One run of a plan."""

    seq: int
    role: Role
    configuration: Configuration = field(metadata=wire(inline=True))


def plan_answer(plan: PlannedSweep) -> PlanAnswer:
    """Return the plan as ``--dry-run --json`` prints it."""
    state, subject = plan.state, plan.state.subject
    runs = state.stages["design"].runs
    space = state.space
    return PlanAnswer(
        application=subject.application,
        workload=subject.workload,
        node_type=subject.node_type.name,
        scheduler=state.settings.scheduler,
        baseline=subject.baseline,
        space=PlannedSpace(
            space.nodes, [t for _, t in space.threads], space.freqs_khz, dict(space.extra)
        ),
        runs=[PlannedRunAnswer(r.seq, r.role, r.configuration) for r in runs],
        by_class=plan.by_class,
        design=state.settings.design,
        most_runs=max(state.settings.most_runs, len(runs)),
        confirm=state.settings.confirm,
        cost=plan.cost,
        energy=plan.energy,
        within=state.settings.within,
        earlier=state.settings.earlier,
        notes=plan.notes,
    )


class ProgressLines:
    """Shows events: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bar: Any = None
        self._task: Any = None
        if out.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[spent]}"),
                console=Console(file=out, highlight=False),
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, file=self._out, flush=True)

    def show(self, event: Event) -> None:
        """Show one event."""
        if event.kind == "stage" and self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(
                "confirming" if event.stage.startswith("confirm") else "measuring",
                total=event.total,
                spent=event.spent.words,
            )
        elif event.kind == "run":
            self.say(run_line(event))
            if self._task is not None:
                self._bar.update(self._task, completed=event.index, spent=event.spent.words)
        elif event.text:
            self.say(event.text)


@dataclass(frozen=True, slots=True)
class TrainAnswer(JsonForm):
    """A sweep: planned (--dry-run), started in the background, stopped, or ended."""

    id: str
    state: str
    application: str
    workload: str
    node_type: str
    scheduler: str
    model: str
    model_id: int | None
    energy_quality: Quality
    n_train: int
    stats: Mapping[str, Any]
    baseline: MeasuredOption
    recommended: MeasuredOption | None
    confirmed: bool | None
    confirmation: Confirmation | None
    attempts: Sequence[Confirmation]
    spent: SpentAnswer
    saved_per_run: float | None
    payback_runs: int | None
    runs: list[MadeRunAnswer]
    failed: Sequence[str]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class MeasuredOption(JsonForm):
    """An option's time and energy."""

    configuration: Configuration = field(metadata=wire(inline=True))
    time_s: float | None
    energy_j: float | None
    confirmed: bool

    @classmethod
    def of(cls, option: Option) -> MeasuredOption:
        """Return an option as programs are told of it."""
        return cls(option.configuration, option.time_s, option.energy_j, option.confirmed)


@dataclass(frozen=True, slots=True)
class SpentAnswer(JsonForm):
    """What a sweep has used; no energy where that of a run is not known."""

    runs: int
    node_hours: float | None
    energy_j: float | None


@dataclass(frozen=True, slots=True)
class MadeRunAnswer(JsonForm):
    """One run that was made."""

    seq: int
    role: Role
    configuration: Configuration = field(metadata=wire(inline=True))
    time_s: float | None
    energy_j: float | None
    energy_quality: Quality
    meter: str
    job_id: str
    rate: float | None
    extrapolated: Annotated[
        Mapping[str, float] | None,
        "Of a run ended early: the share it took, relative 90 % half widths; null: complete.",
    ]


@dataclass(frozen=True, slots=True)
class SweepsAnswer(JsonForm):
    """Several sweeps, planned or ended."""

    sweeps: Annotated[Sequence[JsonForm], AtLeast(2)]


@dataclass(frozen=True, slots=True)
class ReadAgainAnswer(JsonForm):
    """What came of reading earlier sweeps' outputs again."""

    read_again: list[SweepReadAgain]


@dataclass(frozen=True, slots=True)
class SweepReadAgain(JsonForm):
    """A sweep whose outputs were read again."""

    id: str
    runs: int
    summary: str
    problems: list[str]


@dataclass(frozen=True, slots=True)
class DetachedAnswer(JsonForm):
    """A sweep that another process runs."""

    id: str
    folder: str
    pid: int


@dataclass(frozen=True, slots=True)
class StoppingAnswer(JsonForm):
    """A sweep that is to stop."""

    id: str
    stopping: Literal[True] = True


ANSWERS = (
    PlanAnswer,
    SweepsAnswer,
    ReadAgainAnswer,
    DetachedAnswer,
    StoppingAnswer,
    TrainAnswer,
)


def outcome_answer(state: SweepState, outcome: SweepOutcome) -> TrainAnswer:
    """Return the outcome as ``--json`` prints it."""
    subject, spent, confirmation = state.subject, outcome.spent, outcome.confirmation
    planned = {r.seq: r for stage in state.stages.values() for r in stage.runs}
    return TrainAnswer(
        id=state.id,
        state=state.state,
        application=subject.application,
        workload=subject.workload,
        node_type=subject.node_type.name,
        scheduler=state.settings.scheduler,
        model=outcome.fit.model,
        model_id=outcome.model_id,
        energy_quality=outcome.fit.energy_quality,
        n_train=outcome.fit.n_train,
        stats=outcome.fit.stats,
        baseline=MeasuredOption.of(outcome.baseline),
        recommended=MeasuredOption.of(outcome.recommended) if outcome.recommended else None,
        confirmed=None if confirmation is None else outcome.recommended is not None,
        confirmation=confirmation,
        attempts=outcome.attempts,
        spent=SpentAnswer(
            spent.runs, spent.node_hours, spent.energy_j if spent.energy_known else None
        ),
        saved_per_run=outcome.saved_per_run,
        payback_runs=outcome.payback,
        runs=[
            MadeRunAnswer(
                seq,
                planned[seq].role,
                planned[seq].configuration,
                r.time_s,
                r.energy_j,
                r.energy_quality,
                r.meter,
                r.job_id,
                r.rate,
                r.extrapolated,
            )
            for seq, r in sorted(outcome.results.items())
        ],
        failed=outcome.failed,
        notes=outcome.notes,
    )


def show_outcome(
    state: SweepState, outcome: SweepOutcome, policy: Policy, out: TextIO, no_law: str = ""
) -> None:
    """Print what the sweep came to: baseline, recommendation, confirmation, payback.

    ``no_law`` says why no law holds over its sizes.
    """
    print(file=out)
    with redirect_stdout(out):
        print_table(["", "configuration", "time", "energy", "change"], outcome_rows(outcome))
        for line in outcome_lines(state, outcome, policy, no_law):
            print(line)
