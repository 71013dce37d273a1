"""Plan a sweep: what runs, what it costs, and whether the policy allows it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.core.axes import AXES, AxisWriting
from advisor.core.configuration import Configuration, SearchSpace, thin
from advisor.core.feasible import axis_kept
from advisor.core.policy import Policy
from advisor.core.rate import RateRule
from advisor.core.requested_configuration import gpus_kept
from advisor.core.script import advisor_lines
from advisor.errors import InputError, RefusedError, SchedulerError, UsageError
from advisor.meters.estimate import estimate_j
from advisor.meters.events import not_counted
from advisor.models.adaptive import ADAPTIVE, LEAST_BUDGET
from advisor.scaling.design import AT_LARGEST, sized_design
from advisor.schedulers.base import Scheduler
from advisor.schedulers.choose import create, default
from advisor.schedulers.submission import SCRIPT_ENDINGS, read_script
from advisor.schedulers.translators import writing_of
from advisor.training import state as states
from advisor.training.beside import LEAST_S
from advisor.training.class_start import STARTED, ClassStart, class_start
from advisor.training.earlier_run import earlier_complete
from advisor.training.experiment import Experiment
from advisor.training.plan import Cost, axes, cost, expected_runs, first_runs_of, planned
from advisor.training.site_context import SiteContext, earlier_runs, scatter_before
from advisor.training.state import SeriesSize, SweepState
from advisor.training.table import too_few_for_a_model
from advisor.training.training_job import (
    TrainingJob,
    TrainingSite,
    TrainingSubject,
    current_user,
    named,
    of_experiment,
    script_named,
    understand,
)

MOST_IN_ONE = 7
"""Values beside the job's own that one run goes through: of more each would be visited too seldom
in a run of a few minutes, and the laws of a GPU ask for no more."""


LOWEST_IN_ONE = 0.5
"""Of the job's own value, the lowest that one run goes through: farther below, iterations may take
many times as long, and nobody has seen yet what they do."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a sweep may take, in runs or in node-hours; None leaves it to the policy."""

    runs: int | None = None
    node_hours: float | None = None

    @classmethod
    def read(cls, text: str | None) -> Budget:
        """Read ``8`` runs or ``0.5h`` node-hours. Raises UsageError."""
        if text is None:
            return cls()
        word, hours = text.strip().lower().removesuffix("h"), text.strip().lower().endswith("h")
        try:
            value = float(word) if hours else int(word)
        except ValueError:
            value = 0
        if not 0 < value < math.inf or (not hours and value < LEAST_BUDGET):
            raise UsageError(
                f"--budget {text}: give {LEAST_BUDGET} runs or more, or node-hours",
                hint="like --budget 8, or --budget 0.5h",
            )
        return cls(node_hours=value) if hours else cls(runs=int(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepWish:
    """What ``advisor train`` is asked for; None and () leave it to the policy and the job.

    ``subject`` is a job script's path, or the name of the application that ``command`` is; with a
    script ``command`` holds its arguments.
    """

    subject: str
    command: tuple[str, ...]
    application: str | None
    workload: str | None
    scheduler: str | None
    node_type: str
    nodes: str | None
    samples: int | None
    budget: Budget
    design: str | None
    threads: tuple[int, ...]
    freqs_khz: tuple[int, ...]
    repeat_baseline: int
    estimate_s: float | None
    limit_s: float | None
    model: str
    meter: str
    options: tuple[str, ...]
    experiment: Experiment | None
    rate: RateRule | None = None
    """How the program's own rate is read; None: as the site's rule says."""
    complete: bool = False
    """No run is ended early."""
    size: SeriesSize | None = None
    """Which of several sizes the job is at."""


@dataclass(frozen=True, slots=True)
class PlannedSweep:
    """A sweep of which nothing is on the disk yet.

    ``notes`` say why an axis is not varied, ``warnings`` what of the wish is left out, ``energy``
    where the energy comes from. ``by_class`` are the first runs that a class model chose.
    """

    state: SweepState
    policy: Policy
    cost: Cost
    notes: Sequence[str]
    energy: str
    warnings: Sequence[str]
    by_class: Sequence[Configuration] = ()

    @property
    def due_node_hours(self) -> float:
        """What it surely takes: a design that chooses its runs stops at its budget."""
        cost = self.cost
        if self.state.settings.design != ADAPTIVE or not cost.runs:
            return cost.node_hours or 0.0
        first = len(self.state.stages["design"].runs) + bool(self.state.settings.curve)
        return (cost.node_hours or 0.0) * first / cost.runs

    def check_budget(self) -> None:
        """Raise RefusedError when the sweep costs more than the policy allows."""
        check_series([self])


def check_series(plans: Sequence[PlannedSweep]) -> None:
    """Raise RefusedError when sweeps cost more together than the policy allows."""
    budget = min((p.policy.training.budget_node_hours for p in plans), default=0.0)
    cost = sum(p.due_node_hours for p in plans)
    if cost > budget:
        raise RefusedError(
            f"up to {cost:.3g} node-hours ({plans[0].cost.basis}) exceed the "
            f"policy's training.budget_node_hours of {budget:g}",
            hint="raise that key, state a run's time with --estimate, or use a smaller --budget",
        )


def plan_sweep(wish: SweepWish, context: SiteContext, root: Path, store: Path) -> PlannedSweep:
    """Return the sweep that a wish asks for, to be kept below ``root``.

    Raises UsageError, InputError, SchedulerError and RefusedError.
    """
    scheduler = create(wish.scheduler) if wish.scheduler else default()
    if reason := scheduler.available():
        raise SchedulerError(f"{scheduler.NAME} cannot be used: {reason}")
    job = _job(wish, context, scheduler)
    if wish.experiment is not None:
        job = of_experiment(job)
    if wish.nodes and wish.nodes != str(job.baseline.nodes):
        raise UsageError(
            f"--nodes {wish.nodes}: a sweep keeps the number of nodes that the job asks for",
            hint=f"the job asks for {job.baseline.nodes}; train a script for each number",
        )
    policy = context.policy_for(job)
    if policy.training.mode == "off":
        raise RefusedError("the policy allows no training here: training.mode is off")
    policy = within_budget(policy, wish.budget.node_hours)
    if (wish.samples is not None and wish.samples < 1) or wish.repeat_baseline < 0:
        raise UsageError("--samples must be at least 1, --repeat-baseline at least 0")
    if wish.samples is not None and wish.budget.runs is not None:
        raise UsageError("--samples and --budget both say how many runs", hint="give one of them")
    gpu_axes, gpu_notes = _gpu_axes(wish, job, policy, scheduler, context.site)
    top = tuple((name, job.node_type.gpus.steps(name)[-1]) for name in gpu_axes)
    job = replace(job, baseline=replace(job.baseline, extra=top))
    freqs_khz = wish.freqs_khz
    freq_kept = scheduler.frequency_kept(job.node_type, job.launcher)
    warnings: list[str] = []
    if not freqs_khz and wish.experiment is not None and wish.experiment.freqs_khz:
        if obstacle := freq_kept or job.freq_kept:
            warnings = [f"the experiment's frequency caps are left out: {obstacle}"]
        else:
            freqs_khz, warnings = wish.experiment.frequencies(job.node_type)
    grid = axes(
        job,
        threads=wish.threads,
        freqs_khz=freqs_khz,
        freq_kept=freq_kept,
    )
    confirm = policy.training.confirm if wish.size is None or wish.size.last else 0
    samples = wish.samples or (AT_LARGEST if wish.size else policy.training.samples)
    design_name = wish.design or (ADAPTIVE if samples >= LEAST_BUDGET else "uniform")
    if design_name == ADAPTIVE and (
        wish.size or wish.experiment or too_few_for_a_model(grid.space, LEAST_BUDGET)
    ):
        design_name = "uniform"  # which has all of its runs from the start
    adapts = design_name == ADAPTIVE
    if wish.budget.runs is not None:
        samples = wish.budget.runs if adapts else max(1, wish.budget.runs - confirm)
    if wish.size is None:
        design, most = first_runs_of(design_name, grid.space, samples, job.baseline)
    else:
        design, most = _at_size(wish.size, grid.space, samples, job.baseline), 0
    start = None if wish.size else class_start(store, job)
    notes = [*gpu_notes, *grid.notes, *_measured_only(job, policy, grid.space)]
    by_class: Sequence[Configuration] = ()
    if start is not None and design_name in STARTED and len(design) < len(grid.space):
        design, by_class = start.moved(design, grid.space, policy)
        notes.append(start.note(by_class))
    settings = states.SweepSettings(
        scheduler=scheduler.NAME,
        user=current_user(),
        account=job.request.account,
        run_limit_s=wish.limit_s or job.request.time_limit_s,
        estimate_s=wish.estimate_s,
        meter=wish.meter,
        model=wish.model,
        design=design_name,
        most_runs=most,
        confirm=0 if adapts else confirm,
        budget_node_hours=wish.budget.node_hours,
        working_folder=str(Path.cwd() / job.options.get("chdir", "")),
        extra_options=wish.options,
        size=wish.size,
        elsewhere=scatter_before(store, job, policy),
        axes=gpu_axes,
        **_of_experiment(wish.experiment, job, scheduler, warnings),
    )
    ends_early = not _runs_to_end(wish, job, policy, grid.space)
    curve, why = _curve(gpu_axes, job, scheduler, grid.space)
    if curve and not (adapts and ends_early):
        curve, why = (), "its runs are complete, or were all chosen before"
    if curve:
        settings = replace(settings, curve=curve)
        design, by_class = [job.baseline], ()
    for name in gpu_axes:
        notes.append(_curve_note(name, why))
    runs = planned(
        design,
        job.baseline,
        repeats=wish.experiment.repeats if wish.experiment else 1,
        repeat_baseline=wish.repeat_baseline,
        alone=settings.fits and not adapts,
    )
    if ends_early:
        settings = replace(settings, within=policy.training.within)
    state = states.new(root, job, grid.space, settings, runs)
    energy = scheduler.energy_source(state.job("design"))
    state.settings = replace(state.settings, energy_from=energy)
    earlier = earlier_complete(root, state) if state.settings.within else None
    if earlier is not None:
        state.settings = replace(state.settings, earlier=earlier.id)
    return PlannedSweep(
        state, policy, _cost(state, store, start), notes, energy, warnings, by_class
    )


def within_budget(policy: Policy, node_hours: float | None) -> Policy:
    """Return the policy with a budget of the user's own where that is less."""
    if node_hours is None:
        return policy
    least = min(node_hours, policy.training.budget_node_hours)
    return replace(policy, training=replace(policy.training, budget_node_hours=least))


def _gpu_axes(
    wish: SweepWish, job: TrainingJob, policy: Policy, scheduler: Scheduler, site: TrainingSite
) -> tuple[dict[str, AxisWriting], list[str]]:
    """Return the axes of a job's GPUs that a sweep varies, how runs get them, and why not more.

    It is one: a limit leads to a clock, and of both the clock tells more of fewer runs.
    """
    varied: dict[str, AxisWriting] = {}
    notes = []
    for name, axis in AXES.items() if job.request.gpus is not None else ():
        writing = writing_of(name, scheduler.NAME, site.axes)
        why = gpus_kept(job.request, job.node_type, name)
        if not why and varied:
            why = f"the {AXES[next(iter(varied))].words} is"
        if not why and (wish.size or wish.experiment):
            why = "sizes and experiments are run without it"
        if not why and job.method != "variables":
            why = "the job shares its nodes"
        if not why and (rule := axis_kept(axis.words, policy.axes.gpu, job.request, lower=True)):
            why = rule.text
        if not why and writing is None:
            why = f"neither {scheduler.LABEL} nor axes of site.yaml says how a job gets one"
        if not why and writing is not None:
            why = scheduler.axis_kept(writing, job.launcher, job.baseline.nodes)
        if why or writing is None:
            notes.append(f"{axis.words} is not varied: {why}")
        else:
            varied[name] = writing
    return varied, notes


def _curve(
    gpu_axes: Mapping[str, AxisWriting], job: TrainingJob, scheduler: Scheduler, space: SearchSpace
) -> tuple[tuple[Configuration, ...], str]:
    """Return what one run goes through between its iterations, or why each value has a run."""
    if not gpu_axes:
        return (), ""
    [writing] = gpu_axes.values()
    if why := scheduler.axis_kept_in_a_run(writing, job.baseline.nodes):
        return (), why
    others = {replace(c, extra=()) for c in space}
    if len(others) > 1:
        return (), "cores or the processors' frequency are varied, too"
    return values_in_one(job.baseline, space), ""


def values_in_one(baseline: Configuration, space: SearchSpace) -> tuple[Configuration, ...]:
    """Return what one run of a job goes through in a space of one further axis, highest first."""
    lowest = {name: LOWEST_IN_ONE * value for name, value in baseline.extra}
    values = [
        c
        for c in sorted(space, key=lambda c: c.extra, reverse=True)
        if c != baseline and all(value >= lowest[name] for name, value in c.extra)
    ]
    return tuple(values[i] for i in thin(range(len(values)), MOST_IN_ONE))


def _curve_note(name: str, why: str) -> str:
    """Say how the values of an axis are measured."""
    words = AXES[name].words
    if why:
        return f"{words}: each value has a run of its own: {why}"
    return f"{words}: the second run goes through its values between its iterations"


def _measured_only(job: TrainingJob, policy: Policy, space: SearchSpace) -> list[str]:
    """Return a note for each axis that the sweep varies and the policy keeps in such jobs."""
    varied = {
        "threads": (policy.axes.threads, len({c.threads_per_node for c in space})),
        "frequency": (policy.axes.frequency, len({c.freq_khz for c in space})),
    }
    return [
        f"{'' if rule == 'keep' else f'the job sets its own {axis}, and '}the policy says "
        f"axes.{axis}: {rule}, so jobs keep their {axis}; other values are only measured"
        for axis, (rule, values) in varied.items()
        if values > 1 and axis_kept(axis, rule, job.request, lower=True)
    ]


def _at_size(
    size: SeriesSize, space: SearchSpace, samples: int, baseline: Configuration
) -> list[Configuration]:
    """Return what is run at one of several sizes: most at the largest, a few of it elsewhere."""
    cells = list(space)
    every = sized_design({v: cells for v in size.values}, most=samples, baseline=baseline)
    return every[size.value]


def _runs_to_end(wish: SweepWish, job: TrainingJob, policy: Policy, space: SearchSpace) -> bool:
    """Tell whether no run may be ended early.

    Because that is asked for; because what is printed or written is read after each run; or
    because there are too few configurations for a model, or the runs too short.
    """
    text = "" if job.script is None else read_script(job.script)[0]
    return (
        wish.complete
        or not policy.training.stop_early
        or "complete" in advisor_lines(text)
        or job.rate is not None
        or wish.experiment is not None
        or too_few_for_a_model(space)
        or (wish.estimate_s is not None and wish.estimate_s < LEAST_S)
    )


def _of_experiment(
    experiment: Experiment | None, job: TrainingJob, scheduler: Scheduler, warnings: list[str]
) -> dict[str, Any]:
    """Return the settings that an experiment adds; ``warnings`` take what cannot be done here."""
    if experiment is None:
        return {}
    sockets, stated = job.node_type.sockets, experiment.node_sockets
    if experiment.after["parameters"].get("threadPlacement") and stated not in (0, sockets):
        warnings.append(
            f"nodeSockets is {stated}, but {job.node_type.name} has {sockets}: check it"
        )
    settings: dict[str, Any] = {"after": experiment.after}
    if experiment.attempts:
        settings["attempts"] = experiment.attempts
    if experiment.events and scheduler.this_machine() is None:
        names = ", ".join(experiment.events)
        warnings.append(
            f"{names}: {scheduler.LABEL} counts nothing for a sweep: let the program "
            "print them, and hpcprobe.yml read them"
        )
    elif experiment.events:
        why = not_counted(experiment.events)
        warnings += [f"{name} is not counted: {text}" for name, text in why.items()]
        settings["events"] = tuple(name for name in experiment.events if name not in why)
    return settings


def _job(wish: SweepWish, context: SiteContext, scheduler: Scheduler) -> TrainingJob:
    """Return what is to be run, by a job script or by an application's name and a command."""
    if not wish.subject:
        raise UsageError("nothing to train", hint="advisor train SCRIPT")
    path = Path(wish.subject)
    script = script_named(wish.subject, wish.command)
    application = named(wish.application) if wish.application else ""
    if script is None:
        if "/" in wish.subject or path.suffix in SCRIPT_ENDINGS:
            raise InputError(f"there is no script {wish.subject}")
        if not wish.command:
            raise UsageError(
                f"there is no script {wish.subject}, and no command",
                hint=f"advisor train {wish.subject} -- COMMAND, or give a job script",
            )
        application = application or named(wish.subject)
    subject = TrainingSubject(
        script,
        tuple(wish.command) if script is not None else (),
        () if script is not None else tuple(wish.command),
        application=application,
        workload=named(wish.workload) if wish.workload else "",
        node_type=wish.node_type,
        options=tuple(wish.options),
    )
    job = understand(
        subject,
        scheduler=scheduler.NAME,
        site=context.site,
        this_machine=scheduler.this_machine(),
        gives_whole_nodes=scheduler.gives_whole_nodes,
    )
    return job if wish.rate is None else replace(job, rate=wish.rate)


def _cost(state: SweepState, store: Path, start: ClassStart | None) -> Cost:
    """Return the cost by the estimate given, earlier runs, a class model's job, or the limit."""
    settings, base = state.settings, state.subject.baseline
    runs = expected_runs(
        state.space,
        state.stages["design"].runs,
        most=settings.most_runs,
        confirm=settings.confirm,
    )
    time_s, energy_j, basis = settings.estimate_s, None, "your --estimate"
    if time_s is not None and settings.size is not None:
        basis += f", taken to grow with {settings.size.parameter}"
    if time_s is None:
        earlier = earlier_runs(store, state.subject)
        if earlier is not None:
            time_s, energy_j = earlier.time_s, earlier.energy_j
            basis = f"{earlier.runs} earlier run{'s' if earlier.runs > 1 else ''}"
        elif start is not None:
            time_s, energy_j, basis = start.own.time_s, start.own.energy_j, "the job it knows"
        else:
            basis = "the job's time limit" if settings.run_limit_s else "known after the first run"
    if time_s is not None and energy_j is None:
        energy_j = estimate_j(
            state.subject.node_type,
            nodes=base.nodes,
            busy_cores=base.threads_per_node,
            freq_khz=base.freq_khz,
            time_s=time_s,
        )
        basis += ", energy estimated" if energy_j is not None else ""
    return cost(
        runs,
        base,
        baseline_s=time_s,
        limit_s=settings.run_limit_s,
        basis=basis,
        baseline_j=energy_j,
    )
