"""The plan for the steps of a job whose script leaves open what they are.

For each program that the job may start, in each shape that it may have, the same stages decide as
for a job of that program alone (:mod:`advisor.service.decide`); what comes of it holds for a step
that turns out to be that one (:mod:`advisor.core.step_plan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from advisor.core import program
from advisor.core.configuration import Configuration
from advisor.core.feasible import Constraints
from advisor.core.inventory import NodeType
from advisor.core.job_history import JobHistory
from advisor.core.reading import JobReading
from advisor.core.reasons import (
    CAP_TRIAL,
    NOT_UNDERSTOOD,
    PROGRAM_ENDED,
    STEP_PLAN,
    WHOLE_JOB,
    reason,
)
from advisor.core.recognise import ApplicationRule, Recognised, names_job
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import (
    UnclearError,
    cap_asked_for,
    configuration_of,
    fills_nodes,
    possible_node_types,
    shape,
)
from advisor.core.script import advisor_lines
from advisor.core.script_use import NO_USE, THREAD_VARIABLES, ScriptUse
from advisor.core.select import TIE, WEIGHTS
from advisor.core.settings import Settings, stated, with_choices
from advisor.core.step_commands import JobSteps, StepCommand, job_steps, named_step, step_names
from advisor.core.step_plan import ANY, PlannedStep, StepPlan
from advisor.core.whole_job import KnownPart, longest_s, shares_of
from advisor.schedulers.translators import translator
from advisor.service.applying import why_only_shown
from advisor.service.baseline import (
    NO_MODEL,
    JobBaseline,
    asked_of,
    find_models,
    locate_baseline,
)
from advisor.service.bounds import bounds_of, threads_unset
from advisor.service.choice import choose
from advisor.service.conclusion import NO_CHOICE, NO_REWRITE, Conclusion, Submission
from advisor.service.job_models import JobModels
from advisor.service.read_job import with_whole_nodes
from advisor.service.snapshot import Snapshot
from advisor.service.understand import UnderstoodJob, understand
from advisor.store.records import StoredModel

_PROGRAMS_OPEN = frozenset({"script-not-understood", "unrecognised", "interactive", "no-script"})
"""Of which jobs it is not read what they start."""
_STATED = frozenset({"user-set", "threads-own"})
"""Why threads are kept that the job states."""
_LEFT_OPEN = NOT_UNDERSTOOD | _PROGRAMS_OPEN | _STATED | {NO_MODEL, WHOLE_JOB}
"""Why a job is left as it is written whose steps may still tell what they are."""
_OF_A_CHOICE = frozenset({"chosen", "confirmed", "tie-resources"})
"""Reasons of a choice that a plan takes the place of."""
_MOST_SHAPES, _MOST_WORKLOADS, _MOST_BUILDS = 12, 24, 2
"""Of one program: shapes and workloads that are looked at, and builds of a model, the newest."""
_LOOKED_AT = 200
"""Workloads of an application, anybody's, that are looked through."""
_MOST_OWN = 4
"""Programs of the user's own that are looked at, the latest measured."""
_STEPS = ScriptUse(launcher="srun")
_AS_IT_IS = (0.0, 0.0, 0.0)
"""Of a step that gets nothing: change, in percent, with its ends."""
_NODES_KEPT = "a step stays on its job's nodes"
_OWN_COUNT = "the step states another number than it has cores"


@dataclass(frozen=True, slots=True)
class _Planned:
    """A job of which steps are planned."""

    submission: Submission
    request: JobRequest
    steps: JobSteps
    node_type: NodeType
    nodes: int
    history: JobHistory | None
    uncapped: str
    asked: Configuration | None
    """What a job of one known program asks for: its step has that shape, and the job's limit."""
    own: tuple[str, ...]
    """What its user measured, of a job whose programs are not read."""

    @property
    def snapshot(self) -> Snapshot:
        return self.submission.snapshot

    @property
    def cpus(self) -> int:
        """CPUs of each node."""
        return self.node_type.cores * self.node_type.threads_per_core

    @property
    def runs(self) -> int:
        """How often a job of one known program runs it, which share its limit."""
        reading = self.submission.reading
        return reading.use.runs if self.asked and reading and reading.use else 1

    @property
    def room(self) -> float:
        """How many times as long as its earlier jobs the job may take.

        1 where that is not known: then its steps are those of a job whose limit is not known, and
        none may be predicted slower than as it is written.
        """
        limit_s = self.request.time_limit_s
        if self.history is None or limit_s is None or self.steps.ends:
            return 1.0
        usable_s = limit_s - self.request.signal_before_s if limit_s else math.inf
        return max(1.0, usable_s / longest_s(self.history.jobs))

    @property
    def limit_s(self) -> int | None:
        """The time limit of a step, 0 for none. None: it may not be predicted slower."""
        if self.steps.ends:
            return None
        return self.request.time_limit_s if self.asked else 0 if self.room > 1 else None

    def plan(self) -> StepPlan | None:
        """Return the plan for the job's steps, None where it would change none."""
        steps: dict[object, PlannedStep] = {}
        for command in self._commands():
            for step in self._steps_of(command):
                e = step.entry
                steps.setdefault((e.key, e.ranks, e.threads, e.unset, e.variable, e.build), step)
        plan = StepPlan(self.request.uid, self.nodes, self.cpus, tuple(steps.values())).bounded()
        return plan if any(step.changes for step in plan.steps) else None

    def effect(self, plan: StepPlan) -> tuple[float, float]:
        """Return how a plan changes time and energy of a job like its latest one, as shares.

        Of the entries that a part's steps may have, the least favourable counts.
        """
        time = energy = 0.0
        past = self.history.jobs[0] if self.history else None
        if past is None or not all(part.energy_j for part in past.parts):
            return time, energy
        powers = [(part.energy_j or 0.0) / part.time_s for part in past.parts]
        parts = [KnownPart(p, w, {}) for p, w in zip(past.parts, powers, strict=True)]
        shares = shares_of(past, parts)[:-1]  # but for what no step took
        for part, share in zip(past.parts, shares, strict=True):
            ranks = part.ranks_per_node * self.nodes
            steps = [s for s in plan.steps if (s.program, s.ranks) == (part.program, ranks)]
            time += share.time * max((s.time_pct or _AS_IT_IS for s in steps), default=_AS_IT_IS)[0]
            energies = (s.energy_pct or _AS_IT_IS for s in steps)
            energy += share.energy * max(energies, default=_AS_IT_IS)[0]
        return time / 100, energy / 100

    def _commands(self) -> Iterator[StepCommand]:
        """Yield what the script is read to start, what its earlier jobs started, what is left."""
        yield from self.steps.commands
        named = {command.program for command in self.steps.commands}
        parts = self.history.jobs[0].parts if self.history else ()
        started = (part.program for part in parts if part.program)
        for name in dict.fromkeys((*started, *self.own)):
            if name not in named:
                step = named_step(name, None, self.request.job_name, self.snapshot.rules)
                if step is not None:
                    yield step

    def _steps_of(self, command: StepCommand) -> list[PlannedStep]:
        """Return what steps of a program get; of unknown arguments, those of known workloads too.

        Where some hold whatever the arguments are, all known workloads come before them.
        """
        if command.arguments != ANY:
            return list(self._of_workload(command))
        steps: list[PlannedStep] = []
        any_steps = list(self._of_workload(command)) if self._default_serves(command) else []
        for workload, known in self._workloads(command):
            of_workload = list(self._of_workload(replace(known, ranks=command.ranks)))
            surely = {(s.ranks, s.threads) for s in of_workload if s.unset and not s.build}
            left = [replace(s, arguments=known.arguments, workload=workload) for s in any_steps]
            steps += of_workload
            steps += [_left(s) for s in left if (s.ranks, s.threads) not in surely]
        return steps + any_steps

    def _workloads(self, command: StepCommand) -> Iterator[tuple[str, StepCommand]]:
        """Yield the workloads that are known of a program and told by its arguments alone."""
        rules = self.snapshot.rules
        for workload in self._visible(command.application)[:_MOST_WORKLOADS]:
            words = [] if workload == "default" else workload.split()
            known = named_step(command.program, words, self.request.job_name, rules)
            if known and (known.application, known.workload) == (command.application, workload):
                yield workload, known

    def _default_serves(self, command: StepCommand) -> bool:
        """Tell whether a model may speak for a program whatever its arguments are."""
        application = command.application
        few = len(self.snapshot.workloads_of(application)) <= _LOOKED_AT
        few = few and len(self._visible(application)) <= _MOST_WORKLOADS
        return few and not self.snapshot.families.has(application)

    def _visible(self, application: str) -> list[str]:
        """Return the workloads of an application whose models this user's jobs get."""
        request, workloads = self.request, self.snapshot.workloads_of(application)
        job_of = request.user, request.account
        return [w for w in workloads[:_LOOKED_AT] if self.snapshot.find(application, w, *job_of)]

    def _of_workload(self, command: StepCommand) -> Iterator[PlannedStep]:
        """Yield what steps of a program get in each shape, those that fill the nodes first."""
        if not self.snapshot.workloads_of(command.application):
            return
        job = self._job(command)
        models = None if job is None else find_models(job)
        if job is None or models is None or isinstance(models, Conclusion):
            return
        of_any = command.arguments == ANY and command.workload == "default"
        if of_any and job.policy.unknown_workload != "default":
            return
        own = self.node_type.name
        model = models.by_node_type.get(own)
        if model is None:
            return
        models = replace(models, by_node_type={own: model})
        for ranks, threads in self._shapes(command, model):
            yield from self._of_shape(job, models, command, ranks, threads)

    def _shapes(self, command: StepCommand, model: StoredModel) -> list[tuple[int, int]]:
        """Return ranks of all nodes and threads of each that a step may have."""
        if (c := self.asked) is not None:
            return [(c.nodes * c.ranks_per_node, c.threads_per_rank)]
        of_model: set[tuple[int, int]] = self.snapshot.choice(
            ("shapes", model.id, model.size, model.updated_at, self.nodes),
            lambda: {r[1:3] for r in self.snapshot.rows(model) if r.nodes == self.nodes},
        )
        stated = self.request.ntasks or (self.request.ntasks_per_node or 0) * self.nodes
        ranks = stated if command.ranks is None else command.ranks
        a_node = {ranks // self.nodes} if ranks else {r for r, _ in of_model}
        if ranks % self.nodes:
            return []
        shapes = {(r, self.cpus // r) for r in a_node if r and self.cpus % r == 0}
        stated_threads = self._threads(command)
        if stated_threads is None:
            shapes |= {(r, threads // r) for r, threads in of_model if r in a_node}
        else:
            shapes |= set(product(a_node, stated_threads))
        ordered = sorted(shapes, key=lambda s: (s[0] * s[1] != self.cpus, -s[0] * s[1], s[0]))
        return [(r * self.nodes, threads) for r, threads in ordered[:_MOST_SHAPES] if threads]

    def _threads(self, command: StepCommand) -> set[int] | None:
        """Return the threads that a rank may be given if not its share; None: any number."""
        if self.steps.threads is None or (command.variable,) != THREAD_VARIABLES:
            return None
        stated = self.request.environment.get(command.variable, "")
        of_user = int(stated) if stated.isascii() and stated.isdecimal() else 0
        given = {*self.steps.threads, self.request.cpus_per_task or 0, of_user}
        return given - {0}

    def _job(self, command: StepCommand) -> UnderstoodJob | None:
        """Return a job that is one step of a program, None where it is to be left."""
        submission, request = self.submission, self.request
        settings = self._settings(command)
        if settings.pin is not None:
            return None
        alone = replace(
            request,
            kind="run",
            script=None,
            command=(command.program,),
            launcher="srun",
            nodes=self.nodes,
            ntasks=self.nodes,
            ntasks_per_node=None,
            tasks_together=1,
            exclusive=True,
            explicit=request.explicit - {"threads"},
            environment={n: v for n, v in request.environment.items() if n != command.variable},
            program={},
            time_limit_s=self.limit_s,
            signal_before_s=request.signal_before_s if self.asked else 0,
            script_threads=None,
            script_counts=False,
        )
        rule = ApplicationRule(
            command.application,
            threads_from=() if (command.variable,) == THREAD_VARIABLES else (command.variable,),
            threads_unset="all-cores" if command.fills_cores else "",
        )
        use = ScriptUse(
            threads=command.threads_kept or self.steps.threads_kept,
            frequency=self.steps.frequency_kept,
            node_type=_NODES_KEPT,
            runs=self.runs,
        )
        recognised = Recognised(command.application, command.workload, None, (), rule)
        reading = JobReading(recognised, settings, use=use, uncapped=self.uncapped)
        job = understand(Submission(alone, submission.snapshot, submission.policy, reading))
        return None if isinstance(job, Conclusion) else job

    def _settings(self, command: StepCommand) -> Settings:
        """Return the user's wishes for a program."""
        request, reading = self.request, self.submission.reading
        assert reading is not None
        if not request.choices:
            return reading.settings
        lines = advisor_lines(request.script or "")
        names = command.application, command.workload
        return with_choices(stated(request.environment, lines), request.choices, *names)

    def _of_shape(
        self,
        job: UnderstoodJob,
        models: JobModels,
        command: StepCommand,
        ranks: int,
        threads: int,
    ) -> Iterator[PlannedStep]:
        """Yield what a step of a shape gets: where its variable is set, and where it is not."""
        job = replace(job, request=replace(job.request, ntasks=ranks, cpus_per_task=threads))
        demand = asked_of(job, models)
        baseline = demand if isinstance(demand, Conclusion) else locate_baseline(job, demand)
        bounds = baseline if isinstance(baseline, Conclusion) else bounds_of(job, baseline)
        if isinstance(baseline, Conclusion) or isinstance(bounds, Conclusion):
            return
        if self.room > 1 and self.asked is None:
            ends_s = self.room * baseline.row.time_s
            bounds = replace(bounds, use=replace(bounds.use, ends_after_s=ends_s))
        blank = PlannedStep(
            command.program,
            command.arguments,
            command.application,
            models.workload,
            ranks,
            threads,
            unset=False,
            variable=command.variable,
        )
        if ranks * threads != self.nodes * self.cpus:
            bounds = replace(bounds, threads_kept=bounds.threads_kept or _OWN_COUNT)
            yield from self._chosen(job, baseline, bounds, blank)
            return
        if_set = list(self._chosen(job, baseline, replace(bounds, threads_unset=""), blank))
        # the job's request, not the shape's, is what a step finds in its environment
        unset = threads_unset(job, baseline, states_cores=self.request.cpus_per_task is not None)
        bounds = replace(bounds, threads_unset=unset)
        if_unset = list(self._chosen(job, baseline, bounds, replace(blank, unset=True)))
        if [replace(s, unset=True) for s in if_set] != if_unset:
            yield from if_set
        yield from if_unset

    def _chosen(
        self,
        job: UnderstoodJob,
        baseline: JobBaseline,
        bounds: Constraints,
        blank: PlannedStep,
    ) -> Iterator[PlannedStep]:
        """Yield a step as the choice within bounds makes it, once for each build of its program."""
        model, bounds = baseline.model, replace(bounds, axes=())  # a plan names none
        choice = choose(
            job.snapshot, baseline.models.by_node_type, model, baseline.row, bounds, None
        )
        if choice.chosen is None or why_only_shown(job, baseline, choice, _no_holdout):
            return
        chosen: Configuration = choice.chosen.configuration
        fewer = chosen.threads_per_node != baseline.configuration.threads_per_node
        step = replace(
            blank,
            threads_new=chosen.threads_per_rank if fewer else 0,
            cap_khz=cap_asked_for(job.request, chosen, self.node_type),
            time_pct=_percent(choice.chosen.time.to_list()),
            energy_pct=_percent(choice.chosen.energy.to_list()),
        )
        if not step.changes or step.threads_new >= step.threads:
            return
        programs = program.known(model.stats.get("program"))
        builds = [str(facts["build"]) for facts in reversed(programs)][:_MOST_BUILDS]
        for build in builds or [""]:
            yield replace(step, build=build)


def with_plan(conclusion: Conclusion, chance: Callable[[], float]) -> Conclusion:
    """Return the conclusion, with a plan where the job is left for what its script leaves open.

    ``chance`` draws the holdout, where there is something to hold out.
    """
    capped = bool(conclusion.rewrite.options)
    job = _to_plan(conclusion)
    if job is None:
        return conclusion
    plan, submission = job.plan(), job.submission
    assert submission.reading is not None
    submission = replace(submission, reading=replace(submission.reading, steps=job.steps))
    if job.steps.ends and PROGRAM_ENDED not in [r.code for r in conclusion.reasons]:
        why = reason(PROGRAM_ENDED, job.steps.ends)
        conclusion = replace(conclusion, submission=submission, reasons=(*conclusion.reasons, why))
    if plan is None or (capped and not _is_better(plan, job, conclusion)):
        return conclusion
    if capped:  # its holdout is drawn
        left = tuple(r for r in conclusion.reasons if r.code not in _OF_A_CHOICE)
        conclusion = replace(conclusion, reasons=left, choice=NO_CHOICE, rewrite=NO_REWRITE)
    elif chance() < submission.policy.holdout:
        why = reason("holdout")
        return replace(conclusion, submission=submission, reasons=(*conclusion.reasons, why))
    names = ", ".join(dict.fromkeys(step.program for step in plan.steps if step.changes))
    reasons = (*conclusion.reasons, reason(STEP_PLAN, names))
    return replace(conclusion, submission=submission, reasons=reasons, plan=plan)


def planned_applications(request: JobRequest, snapshot: Snapshot, identity: str) -> set[str]:
    """Return the applications whose models may speak for steps of a job."""
    named = [*job_steps(request, snapshot.rules).commands]
    history = snapshot.history(identity)
    jobs = history.timed.jobs[:1] if history else ()
    for part in jobs[0].parts if jobs else ():
        step = named_step(part.program, None, request.job_name, snapshot.rules)
        named += [step] if step else []
    return {command.application for command in named}


def _to_plan(conclusion: Conclusion) -> _Planned | None:
    """Return the job of a conclusion as one whose steps may be planned, None if they may not."""
    submission = conclusion.submission
    request, snapshot, reading = submission.request, submission.snapshot, submission.reading
    codes = [r.code for r in conclusion.reasons]
    if _LEFT_OPEN.isdisjoint(codes):
        return None
    chosen = conclusion.choice.chosen is not None
    if (chosen and not _may_do_better(conclusion)) or submission.policy.mode != "apply":
        return None
    if reading is None or reading.recognised is None or reading.settings.off:
        return None
    if any(map(names_job, reading.settings.values)) or request.not_understood:
        return None
    language = translator(request.scheduler)
    if not {"all", "shape"}.isdisjoint(request.binds) or not language.plans_steps(request):
        return None
    history = snapshot.history(reading.identity)
    if history is not None and history.worse:
        return None
    history = history and history.timed
    own: Sequence[str] = ()
    if not _PROGRAMS_OPEN.isdisjoint(codes):
        own = snapshot.own_applications(request.user)[:_MOST_OWN]
    known = reading.steps is not None or history is not None or own
    if not (known or _knows_any(request, snapshot)):
        return None
    steps = reading.steps if reading.steps is not None else job_steps(request, snapshot.rules)
    request = with_whole_nodes(request, snapshot)
    node_types = possible_node_types(request, snapshot.inventory, snapshot.default_node_types)
    if len(node_types) != 1:
        return None
    node_type = node_types[0]
    model, asked = conclusion.model, None
    try:
        nodes, _ = shape(request, node_type.cores)
        if conclusion.row is not None and model is not None and not model.of_one_job:
            asked = configuration_of(request, node_type, reading.use or NO_USE)
    except UnclearError:
        return None
    if not (request.exclusive or fills_nodes(request, node_type, _STEPS)):
        return None
    if history is not None and not _is_like(history, node_type, nodes):
        history = None
    settings = snapshot.availability.settings if snapshot.availability else {}
    uncapped = language.cap_obstacle(request, _STEPS, settings)
    job = _Planned(
        submission, request, steps, node_type, nodes, history, uncapped, asked, tuple(own)
    )
    return None if asked is not None and asked.threads_per_node != job.cpus else job


def _may_do_better(conclusion: Conclusion) -> bool:
    """Tell whether a job gets a cap for its steps of srun whose threads may be worth more.

    It is known by its earlier jobs, or keeps the threads that it states: at its steps it is seen
    whether these fill its nodes.
    """
    rewrite, reading = conclusion.rewrite, conclusion.submission.reading
    if rewrite.options.keys() != {"cpu-freq"} or rewrite.environment or rewrite.node_cap_khz:
        return False
    codes = {r.code for r in conclusion.reasons}
    if WHOLE_JOB in codes:
        return CAP_TRIAL not in codes
    if _STATED.isdisjoint(codes) or conclusion.choice.pinned:
        return False
    return reading is not None and reading.use is not None and reading.use.launcher == "srun"


def _is_better(plan: StepPlan, job: _Planned, conclusion: Conclusion) -> bool:
    """Tell whether a job is better off by a plan, for the policy's goal, than by its cap.

    A job that is known by its earlier ones is compared as a whole, another by its one step.
    """
    chosen, weight = conclusion.choice.chosen, WEIGHTS[conclusion.submission.policy.goal]
    assert chosen is not None

    def score(time: float, energy: float) -> float:
        return weight * math.log1p(energy) + (1 - weight) * math.log1p(time)

    written = score(chosen.time.change, chosen.energy.change) - TIE
    if job.asked is None:
        fewer = any(step.threads_new for step in plan.steps)  # caps alone are promised better
        return fewer and score(*job.effect(plan)) < written
    return any(
        step.threads_new
        and step.time_pct
        and step.energy_pct
        and score(step.time_pct[0] / 100, step.energy_pct[0] / 100) < written
        for step in plan.steps
    )


def _knows_any(request: JobRequest, snapshot: Snapshot) -> bool:
    """Tell whether anything may be known of a program that a job's script starts as a step."""
    names = step_names(request)
    return bool(names) and (bool(snapshot.rules) or any(map(snapshot.workloads_of, names)))


def _is_like(history: JobHistory, node_type: NodeType, nodes: int) -> bool:
    """Tell whether a job may take what its earlier ones did."""
    if history.obstacle:
        return False
    past = history.jobs[0]
    return (past.node_type, past.nodes) == (node_type.name, nodes)


def _left(step: PlannedStep) -> PlannedStep:
    """Return an entry that leaves such steps as they are written, whatever their build."""
    return replace(
        step,
        unset=True,
        threads_new=0,
        cap_khz=0,
        build="",
        time_pct=None,
        energy_pct=None,
    )


def _percent(values: list[float]) -> tuple[float, float, float]:
    change, low, high = values
    return change, low, high


def _no_holdout() -> float:
    return 1.0
