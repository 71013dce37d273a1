"""A job whose script is not understood, known by what its own earlier jobs did.

Nothing of such a job changes but its frequency cap: that alters no resource, no step and no thread,
so that only its time and energy need be known, and these follow from its parts
(:mod:`advisor.core.whole_job`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.core.configuration import Configuration
from advisor.core.decision import Effect
from advisor.core.inventory import NodeType
from advisor.core.job_history import JobHistory, JobPart, PastJob
from advisor.core.option import Row, row_of
from advisor.core.reading import JobReading
from advisor.core.reasons import (
    CAP_TRIALS_STOPPED,
    NOT_UNDERSTOOD,
    PROGRAM_ENDED,
    WHOLE_JOB,
    reason,
)
from advisor.core.recognise import StepProgram, programs_of, recognise
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import (
    default_freq,
    partition_of,
    possible_node_types,
    threads_stated,
)
from advisor.core.script import threads_of
from advisor.core.script_limits import ends_programs, limits_steps
from advisor.core.script_use import NO_USE, ScriptUse, reads_cap
from advisor.core.whole_job import (
    CapResponse,
    KnownPart,
    WholeJob,
    response_of,
    share_words,
    shares_of,
    whole_job,
    worst_of,
)
from advisor.schedulers.translators import translator
from advisor.service.baseline import NO_MODEL, JobBaseline
from advisor.service.cap_trials import caps_of
from advisor.service.choice import Choice
from advisor.service.conclusion import Conclusion
from advisor.service.job_models import JobModels, ModelSearch
from advisor.service.read_job import with_whole_nodes
from advisor.service.snapshot import Snapshot
from advisor.service.understand import UnderstoodJob
from advisor.store.records import HISTORY, StoredModel

_WHOLE_ONLY = frozenset({"option-binds", "nested-submit"})
"""Why a job is left alone whose history may tell that of all that it runs."""
_PASSED_OVER = NOT_UNDERSTOOD | _WHOLE_ONLY | {NO_MODEL}
AS_MEASURED = 0.15
"""A model speaks for a part only where that took what the model says, within this share of it."""
_SEVERAL = "the job is known on its own node type only"
_STEPS, _WHOLE = ScriptUse(launcher="srun"), ScriptUse()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What there is to know the parts of a job's earlier jobs by."""

    snapshot: Snapshot
    job: UnderstoodJob
    node_type: NodeType
    nodes: int
    freq_khz: int

    def known(self, job: PastJob) -> tuple[PastJob, tuple[KnownPart, ...]]:
        """Return a past job with what is known of each of its parts."""
        return job, tuple(self._known(part, job.resolution_s) for part in job.parts)

    def _known(self, part: JobPart, resolution_s: float) -> KnownPart:
        models = [self._model(part, program) for program in self._programs(part)]
        rows = [
            pair for model in models if model and (pair := self._row(part, resolution_s, model))
        ]
        power_w = part.energy_j / part.time_s if part.energy_j and part.time_s else None
        if not models or len(rows) < len(models):
            return KnownPart(part, power_w, {})
        # A part that may have been several programs is as bad as the worst of them at each cap, and
        # nothing is said of a cap that one of them has no run of.
        by_cap: dict[int, list[CapResponse]] = {}
        for model, baseline in rows:
            for row in self.snapshot.rows(model):
                if row[:3] == baseline[:3] and row.confirmed and 0 < row.freq_khz < self.freq_khz:
                    by_cap.setdefault(row.freq_khz, []).append(response_of(row, baseline))
        responses = {c: worst_of(r) for c, r in by_cap.items() if len(r) == len(rows)}
        model, baseline = rows[0]
        named = model.application, model.workload
        return KnownPart(part, power_w or baseline.energy_j / baseline.time_s, responses, named)

    def _programs(self, part: JobPart) -> Sequence[StepProgram]:
        """Return what a part may have been: what the script starts by its name, else its name."""
        if not part.program:
            return ()
        programs = [p for p in self.job.reading.programs or () if p.name == part.program]
        if programs:
            return programs
        named = recognise(None, command=(part.program,), rules=self.snapshot.rules)
        return [StepProgram(part.program, named.application, named.workload)]

    def _model(self, part: JobPart, program: StepProgram) -> StoredModel | None:
        request = self.job.request
        names = program.application, program.workload, request.user, request.account
        search = ModelSearch(
            self.snapshot, self.job.policy, *names, self.node_type.name, lambda: self.nodes
        )
        model = search.find().by_node_type.get(self.node_type.name)
        if model is None or not model.fitted or model.state != "fitted":
            return None
        measured = model.energy_quality == "measured" and model.method != "request"
        return model if measured else None

    def _row(
        self, part: JobPart, resolution_s: float, model: StoredModel
    ) -> tuple[StoredModel, Row] | None:
        """Return a model with the option that stands for a part, if that took what it says."""
        ranks = part.ranks_per_node
        stated = threads_stated(self.job.request) or self.job.request.cpus_per_task
        threads = ranks * stated if stated else part.cpus_per_node
        if not ranks or not threads:
            return None
        place = self.nodes, ranks, max(ranks, min(threads, self.node_type.cores)), self.freq_khz
        row, _ = self.snapshot.baseline(model, *place, True)
        if row is None or not row.confirmed or math.isnan(row.energy_j):
            return None
        near = 1 + AS_MEASURED  # beside what the accounting rounds
        low_s, high_s = row.time_lo_s / near - resolution_s, row.time_hi_s * near + resolution_s
        as_measured = low_s <= part.step_s <= high_s
        return (model, row) if as_measured else None


def by_history(conclusion: Conclusion) -> tuple[UnderstoodJob, JobBaseline] | Conclusion:
    """Return a job that was to be left alone with the baseline that its own earlier jobs give it.

    The conclusion stays where these do not tell what a cap would do to the next one.
    """
    submission = conclusion.submission
    request, snapshot, reading = submission.request, submission.snapshot, submission.reading
    if reading is None or reading.recognised is None or not reading.identity:
        return conclusion
    history = snapshot.history(reading.identity)
    if history is None or not _may_have_history(conclusion, history):
        return conclusion
    request = with_whole_nodes(request, snapshot)
    reading = _with_programs(reading, request, snapshot, history)
    node_types = possible_node_types(request, snapshot.inventory, snapshot.default_node_types)
    if reading is None or not _may_be_capped(request, history, node_types):
        return conclusion
    ends = reading.use.ends if reading.use else ""
    if ends or history.worse:
        worse = reason("whole-job-worse", history.worse)
        why = reason(PROGRAM_ENDED, ends) if ends else worse
        unchanged = replace(submission, reading=reading)
        return replace(conclusion, submission=unchanged, reasons=(*conclusion.reasons, why))
    job = _job(conclusion, request, reading, node_types)
    model_in_words = _model_of(job, history)
    if model_in_words is None and history.stopped and job.policy.cold_start.cap_trials:
        why = reason(CAP_TRIALS_STOPPED, history.stopped)
        return replace(conclusion, reasons=(*conclusion.reasons, why))
    if model_in_words is None:
        return conclusion
    model, words = model_in_words
    baseline_row = model.rows()[0]
    configuration = baseline_row.configuration(model.node_type)
    models = JobModels({model.node_type: model}, model.workload)
    reasons = (*job.reasons, reason(WHOLE_JOB, words))
    return job, JobBaseline(
        configuration, baseline_row, configuration, True, model, models, reasons
    )


def _may_have_history(conclusion: Conclusion, history: JobHistory) -> bool:
    """Tell whether a job was left alone for what its own earlier jobs may tell."""
    codes = [r.code for r in conclusion.reasons]
    if NO_MODEL in codes:  # what to do about it is said behind
        return conclusion.submission.policy.cold_start.cap_trials > 0
    known_codes = NOT_UNDERSTOOD | _WHOLE_ONLY if history.whole else NOT_UNDERSTOOD
    return not known_codes.isdisjoint(codes[-1:])


def applications_of(request: JobRequest, snapshot: Snapshot, identity: str) -> set[str]:
    """Return the applications whose models may speak for parts of a job; none without a history."""
    history = snapshot.history(identity)
    if history is None:
        return set()
    rules, script = snapshot.rules, request.script or ""
    programs = programs_of(script, request.command[1:], request.job_name, rules) or ()
    steps = {part.program for job in history.jobs for part in job.parts if part.program}
    named = [recognise(None, command=(step,), rules=rules) for step in sorted(steps)]
    return {p.application for p in programs} | {n.application for n in named}


def _with_programs(
    reading: JobReading, request: JobRequest, snapshot: Snapshot, history: JobHistory
) -> JobReading | None:
    """Return the reading with what the script starts, nothing where its jobs are known as wholes.

    None where that or its threads are open, or a whole job gets no cap that holds for all it runs.
    """
    if reading.programs is not None:  # of a decision that is made again
        return reading
    script, arguments = request.script, tuple(request.command[1:])
    if script is None:
        return None
    programs: Sequence[StepProgram] | None = ()
    if not history.whole:
        unclear = threads_of(script, arguments).unclear
        rules = snapshot.rules
        programs = None if unclear else programs_of(script, arguments, request.job_name, rules)
    if programs is None:
        return None
    settings = snapshot.availability.settings if snapshot.availability else {}
    read, language = reading.use or NO_USE, translator(request.scheduler)
    frequency = read.frequency or reads_cap(script)
    # what is known of a job's parts is of steps that srun started
    use = _WHOLE if history.whole else _STEPS
    obstacle = language.cap_obstacle(request, use, settings)
    node_cap = history.whole and bool(obstacle) and language.caps_on_nodes(request, settings)
    if history.whole and obstacle and not node_cap:
        return None
    return replace(
        reading,
        use=replace(
            read,
            frequency=frequency,
            node_type=read.node_type or _SEVERAL,
            ends=ends_programs(script, arguments) or limits_steps(script, arguments),
        ),
        programs=tuple(programs),
        threads=threads_stated(request),
        uncapped=obstacle,
        node_cap=node_cap,
    )


def _may_be_capped(
    request: JobRequest, history: JobHistory, node_types: Sequence[NodeType]
) -> bool:
    """Tell whether a job is one that a cap may be looked for, like those before it."""
    if request.kind != "batch" or not request.exclusive or history.obstacle:
        return False
    if request.not_understood or "all" in request.binds or len(node_types) != 1:
        return False
    if "shape" in request.binds and not history.whole:
        return False
    past, node_type = history.jobs[0], node_types[0]
    khz = default_freq(node_type)
    if not khz or request.freq_khz not in (None, 0, khz):  # its user's own cap
        return False
    same_shape = past.node_type == node_type.name and request.nodes in (None, past.nodes)
    return same_shape and (history.whole or (past.ranks_per_node > 0 and past.cpus_per_node > 0))


def _job(
    conclusion: Conclusion,
    request: JobRequest,
    reading: JobReading,
    node_types: Sequence[NodeType],
) -> UnderstoodJob:
    submission, recognised, use = conclusion.submission, reading.recognised, reading.use
    assert recognised is not None and use is not None
    return UnderstoodJob(
        request,
        submission.snapshot,
        submission.policy,
        reading,
        recognised,
        use,
        partition_of(request, submission.snapshot.inventory),
        tuple(node_types),
        tuple(r for r in conclusion.reasons if r.code not in _PASSED_OVER),
    )


def _model_of(job: UnderstoodJob, history: JobHistory) -> tuple[StoredModel, str] | None:
    """Return the model of a whole job, and in words what it is made of; None without one.

    It is remembered, as choices are: the same job is submitted again and again.
    """
    request, reading = job.request, job.reading
    size = request.cpus_per_task, threads_stated(request)
    key = (WHOLE_JOB, reading.identity, reading.programs, request.user, request.account)
    model_in_words: tuple[StoredModel, str] | str = job.snapshot.choice(
        (*key, size, job.node_types[0].name, job.policy), lambda: _sum_of_parts(job, history) or ""
    )
    return model_in_words if isinstance(model_in_words, tuple) else None


def _sum_of_parts(job: UnderstoodJob, history: JobHistory) -> tuple[StoredModel, str] | None:
    node_type, latest = job.node_types[0], history.jobs[0]
    free_khz = default_freq(node_type)
    parts = _Parts(job.snapshot, job, node_type, latest.nodes, free_khz)
    past = [parts.known(past_job) for past_job in history.jobs]
    # of a whole job that the accounting does not tell, and nothing depends on
    ranks, cpus = latest.ranks_per_node or 1, latest.cpus_per_node or node_type.cores
    place = Configuration(node_type.name, latest.nodes, ranks, cpus, free_khz)
    tried = caps_of(history, node_type, job.policy)
    models_tell = any(p.responses for _, job_parts in past for p in job_parts)
    if models_tell or tried.worst is None:  # what a model tells need not be tried
        job_options = whole_job(place, past, tried.responses)
    else:
        job_options = whole_job(place, past, tried.responses, (tried.next_khz, tried.worst))
    if job_options is None:
        return None
    words = share_words(past) if models_tell else f"{history.trials} of them tried a cap"
    model = _model(job, job_options, [*_part_records(past[0])])
    model.stats["tried"] = history.trials
    model.stats["stopped"] = history.stopped or tried.surprise
    return model, words


def _part_records(past: tuple[PastJob, Sequence[KnownPart]]) -> Iterator[dict[str, object]]:
    """Yield the parts of a past job, the rest last, as a decision keeps them."""
    job, parts = past
    *shares, rest = shares_of(job, parts)
    for known_part, share in zip(parts, shares, strict=True):
        yield {
            "program": known_part.part.program,
            "application": known_part.named[0],
            "workload": known_part.named[1],
            "time_share": round(share.time, 4),
            "energy_share": round(share.energy, 4),
            "known": bool(share.response),
        }
    yield {
        "program": "",
        "application": "",
        "workload": "",
        "time_share": round(rest.time, 4),
        "energy_share": round(rest.energy, 4),
        "known": False,
    }


def _model(
    job: UnderstoodJob, job_options: WholeJob, parts: list[dict[str, object]]
) -> StoredModel:
    """Return the model of one job that decisions take as any other."""
    known = (str(p["application"]) for p in parts if p["known"])
    return StoredModel.of_job(
        HISTORY,
        next(known, job.recognised.application),
        WHOLE_JOB,
        job.request.user,
        (job_options.written, *job_options.capped),
        {
            "parts": parts,
            "spread": job_options.spread,
            "trial": None if job_options.trial is None else row_of(job_options.trial),
        },
    )


def with_spread(model: StoredModel, choice: Choice) -> Choice:
    """Return a choice whose promises leave room for how single jobs of a history differ."""
    if choice.chosen is None:
        return choice
    spread_t, spread_e = model.stats["spread"]
    chosen = choice.chosen._replace(
        time=_widened(choice.chosen.time, spread_t), energy=_widened(choice.chosen.energy, spread_e)
    )
    return replace(choice, chosen=chosen)


def _widened(effect: Effect, spread: float) -> Effect:
    middle = math.log1p(effect.change)
    low, high = (math.log1p(end) - middle for end in (effect.lo, effect.hi))
    return Effect(
        effect.change,
        math.expm1(middle - math.hypot(low, spread)),
        math.expm1(middle + math.hypot(high, spread)),
    )
