"""Decide for one job: recognise, look up, weigh, choose, and say why."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.feasible import Constraints
from advisor.core.inventory import NodeType
from advisor.core.option import Row
from advisor.core.policy import JobFacts, Policy
from advisor.core.reading import JobReading
from advisor.core.reasons import TRIAL, Reason, reason
from advisor.core.recognise import Recognised
from advisor.core.request import CannotWriteError, JobRequest
from advisor.core.requested_configuration import (
    UnclearError,
    bound,
    configuration_of,
    cores_kept,
    fills_nodes,
    partition_of,
    partitions_of,
    possible_node_types,
    threads_kept,
    unset_kept,
)
from advisor.core.script_use import NO_USE, ScriptUse
from advisor.core.settings import Pin, Settings, apply_settings
from advisor.core.words import describe
from advisor.schedulers.translators import translator
from advisor.service.choice import Choice, choose, class_obstacle, cold_start_of, trial_of
from advisor.service.families import time_limit_short
from advisor.service.issue import new_id, timestamp
from advisor.service.job_models import JobModels, ModelSearch, how_to_train
from advisor.service.message import effect_line
from advisor.service.place import node_type_obstacles
from advisor.service.read_job import (
    PastAvailability,
    read_job,
    with_obstacles,
    with_use,
    with_whole_nodes,
)
from advisor.service.same_program import reason_against, to_look_at
from advisor.service.snapshot import Snapshot
from advisor.store.records import StoredModel

NO_MODEL = "no-model"
NOTHING = Choice(None, (), ())


@dataclass(slots=True)
class _Case:
    """A decision in the making."""

    request: JobRequest
    snapshot: Snapshot
    trials: bool = False
    policy: Policy = field(default_factory=Policy)
    reading: JobReading | None = None
    settings: Settings = field(default_factory=lambda: Settings({}))
    recognised: Recognised | None = None
    workload: str = ""
    partition: str = ""
    node_types: list[NodeType] = field(default_factory=list)
    use: ScriptUse = NO_USE
    whole: bool = False
    reasons: list[Reason] = field(default_factory=list)
    baseline: Row | None = None
    reference: Configuration | None = None
    asked: Configuration | None = None
    models: Mapping[str, StoredModel] = field(default_factory=dict)
    model: StoredModel | None = None
    choice: Choice = NOTHING
    rewrite: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    binds_node_type: bool = False
    holdout: bool = False

    @property
    def application(self) -> str:
        return self.recognised.application if self.recognised else ""


class _StopError(Exception):
    """The decision is made: nothing changes, for the reason already noted."""


def decide(
    request: JobRequest,
    snapshot: Snapshot,
    *,
    chance: Callable[[], float] = random.random,
    trials: bool = True,
) -> Decision:
    """Return the decision for a request, from memory alone.

    ``chance`` draws the holdout, uniform in [0, 1). The decision's ``rewrite`` is empty unless
    everything is known, allowed and confirmed, or it is a trial; those are only made with
    ``trials``, and whoever lets a job run one must take its place first.
    """
    request = translator(request.scheduler).fold(request, snapshot.availability)
    request = request.with_understood(snapshot.understood_options)
    return _decide(_Case(request, snapshot, trials), chance)


def decide_again(
    request: JobRequest, reading: JobReading, snapshot: Snapshot, *, chance: Callable[[], float]
) -> Decision:
    """Return the decision for a request that was kept with what was read of its job.

    The same as :func:`decide`, and never a trial: what the scheduler completes and binds is in
    the request, and nodes are as free as they were then.
    """
    snapshot = replace(snapshot, availability=PastAvailability(reading=reading))
    threads, counts = reading.threads, reading.counts_threads
    if threads or counts:
        request = replace(request, script_threads=threads, script_counts=counts)
    return _decide(_Case(request, snapshot, reading=reading), chance)


def _decide(case: _Case, chance: Callable[[], float]) -> Decision:
    try:
        _understand(case)
        _locate_baseline(case)
        _choose_what_can_be_written(case, chance)
    except _StopError:
        pass
    return _finish(case)


def _stop(case: _Case, code: str, *details: object) -> _StopError:
    case.reasons.append(reason(code, *details))
    return _StopError()


def _understand(case: _Case) -> None:
    """Work out what runs and which settings hold."""
    request, snapshot = case.request, case.snapshot
    reading = case.reading = case.reading or read_job(request, snapshot.rules)
    case.settings = reading.settings
    case.policy = snapshot.policy.base
    if reading.recognised is None:
        if case.settings.off:
            raise _stop(case, "opted-out", case.settings.off)
        raise _stop(case, "step" if request.kind == "step" else "het-job")
    case.recognised = reading.recognised
    case.reasons += case.recognised.how
    case.workload = case.recognised.workload
    case.reasons += case.settings.notes
    case.partition = partition_of(request, snapshot.inventory)
    request = case.request = with_whole_nodes(request, snapshot)
    node_types = case.node_types = possible_node_types(
        request, snapshot.inventory, snapshot.default_node_types
    )
    policy, _ = snapshot.policy.for_job(
        JobFacts.of(
            request,
            partition=case.partition,
            application=case.application,
            workload=case.workload,
            node_type=node_types[0].name if node_types else "",
        )
    )
    case.policy, notes = apply_settings(policy, case.settings)
    case.reasons += notes
    if case.settings.off:
        raise _stop(case, "opted-out", case.settings.off)
    if case.policy.mode == "off":
        if case.application:
            case.reading = with_use(reading, request, snapshot.availability)  # for another policy
        raise _stop(case, "mode-off")
    if not case.application:
        if request.kind == "allocate":
            raise _stop(case, "interactive", "an interactive job")
        if request.script is None and request.kind == "batch":
            raise _stop(case, "no-script")
        raise _stop(case, "unrecognised")
    _check_whole(case)


def _check_whole(case: _Case) -> None:
    """Leave a job alone of which anything is not understood."""
    request = case.request
    assert case.reading is not None
    if request.not_understood:
        raise _stop(case, "option-not-understood", ", ".join(request.not_understood))
    if "all" in request.binds:
        raise _stop(case, "option-binds", request.binds["all"])
    case.reading = with_use(case.reading, request, case.snapshot.availability)
    case.use = case.reading.use or NO_USE
    code, detail = case.use.obstacle
    if code:
        raise _stop(case, code, *filter(None, (detail,)))
    if case.reading.uncapped:  # a cap of the user's own has no effect either
        case.request = replace(request, freq_khz=None)


def _locate_baseline(case: _Case) -> None:
    """Find the models and the option that stands for what the job asked for."""
    request, snapshot = case.request, case.snapshot
    search = _search(case)
    models = _take(case, search.find())
    if not models:
        raise _to_train(case, _stop(case, NO_MODEL, f"{case.application}/{case.workload}"))
    types = case.node_types
    if not types:
        place = request.constraint or request.node_list or case.partition
        why = "the script names no partition, and site.yaml sets no default_partition"
        if not snapshot.inventory.node_types:
            place, why = "", "the inventory is empty: run advisor site discover"
        raise _stop(case, "no-baseline", f"no node type is known for {place}" if place else why)
    node_type = types[0]
    model = models.get(node_type.name)
    if model is None or model.transferred:  # where a job comes from must have been measured
        raise _stop(case, NO_MODEL, f"{case.application} on {node_type.name}")
    if len(types) > 1:
        names = partitions_of(request, snapshot.inventory)
        if len(names) > 1:
            raise _stop(case, "several-partitions", ", ".join(names))
        case.reasons.append(reason("baseline-node-type", node_type.name, case.partition))
    case.model = model
    try:
        case.asked = configuration_of(request, node_type, case.use)
    except UnclearError as error:
        raise _stop(case, "no-baseline", error) from None
    case.whole = request.exclusive or fills_nodes(request, node_type, case.use)
    if case.whole and model.method == "request":
        stop = _stop(case, "measured-otherwise", f"{case.application} on {node_type.name}")
        raise _to_train(case, stop)
    a = case.asked
    point = a.nodes, a.ranks_per_node, a.threads_per_node, a.freq_khz, not request.freq_khz
    row, exact = snapshot.baseline(model, *point)
    never_ran = row is None and all(r.nodes != a.nodes for r in snapshot.rows(model))
    if never_ran and not model.of_sizes and (scaled := search.of_scales()) is not None:
        model = case.model = _take(case, scaled)[node_type.name]
        row, exact = snapshot.baseline(model, *point)
    if row is None or (row.extrapolated and not row.confirmed):
        raise _stop(case, "baseline-outside-model", describe(a, node_type=True))
    if not exact:
        points = a, row.configuration(node_type.name)
        words = [describe(c, node_type=True) for c in points]
        case.reasons.append(reason("baseline-nearest", *words))
    case.baseline, case.reference = row, row.configuration(node_type.name)
    if model.of_sizes:
        limit_s = min(request.time_limit_s or math.inf, case.use.ends_after_s)
        case.reasons += time_limit_short(row, limit_s)
    if model.state == "suspended":
        raise _stop(case, "suspended", model.state_reason or "its jobs came out worse")
    if model.scope == "own":
        case.reasons.append(reason("scope", model.owner or request.user))
    if model.energy_quality == "missing":
        raise _stop(case, "energy-unknown")
    if model.energy_quality == "estimated":
        case.reasons.append(reason("energy-estimated"))


def _search(case: _Case) -> ModelSearch:
    request, types = case.request, case.node_types

    def nodes() -> int:
        try:
            return configuration_of(request, types[0], case.use).nodes
        except UnclearError:  # which stops the decision in a moment
            return 1

    names = case.application, case.workload, request.user, request.account
    return ModelSearch(case.snapshot, case.policy, *names, types[0].name if types else "", nodes)


def _take(case: _Case, job_models: JobModels) -> Mapping[str, StoredModel]:
    """Keep a job's models; stop where its size cannot be predicted."""
    case.reasons += job_models.reasons
    case.workload, case.models = job_models.workload, job_models.models
    if job_models.stop is not None:
        raise _to_train(case, _stop(case, job_models.stop.code, *job_models.stop.details))
    return job_models.models


def _to_train(case: _Case, stop: _StopError) -> _StopError:
    """Say how what is missing comes to be measured."""
    running = (case.application, case.workload) in case.snapshot.training
    case.reasons += how_to_train(case.request, case.policy, running=running)
    return stop


def _choose_what_can_be_written(case: _Case, chance: Callable[[], float]) -> None:
    """Choose; where one axis of the choice cannot be written, once more with that axis kept."""
    before, once = list(case.reasons), cache(chance)
    while True:
        try:
            _choose(case, once)
            return
        except CannotWriteError as error:
            if error.axis in case.request.binds:
                raise _stop(case, "cannot-write", error) from None
            case.reasons = list(before)
            binds = {**case.request.binds, error.axis: error.binding}
            case.request = replace(case.request, binds=binds)


def _choose(case: _Case, chance: Callable[[], float]) -> None:
    assert case.baseline is not None and case.reference is not None
    assert case.model is not None and case.recognised is not None
    policy, constraints = case.policy, _constraints(case)
    pin = Pin.from_dict(case.settings.pin) if case.settings.pin is not None else None
    choice = choose(case.snapshot, case.models, case.model, case.baseline, constraints, pin)
    if case.trials and case.model.by_class:
        choice = trial_of(case.snapshot, case.model, case.request, policy, choice)
    case.choice = choice
    case.reasons += choice.reasons
    if case.model.by_class:
        _to_train(case, _StopError())
    if choice.chosen is None:
        raise _StopError
    if policy.mode == "observe":
        raise _stop(case, "mode-observe")
    if case.model.of_sizes and policy.extrapolated != "accept":
        raise _stop(case, "extrapolated-advise")
    if not choice.pinned:
        if against := reason_against(case.request, case.recognised, case.model):
            case.reasons.append(against)
            raise _StopError
        if case.model.by_class:
            trial = TRIAL in (r.code for r in choice.reasons)
            if obstacle := class_obstacle(case.model, policy, None if trial else choice):
                case.reasons.append(obstacle)
                raise _StopError
        estimate = case.model.energy_quality == "estimated" and policy.estimated_energy != "apply"
        if policy.mode == "advise" or estimate:
            raise _stop(case, "mode-advise")
        if chance() < policy.holdout:
            case.holdout = True
            raise _stop(case, "holdout")
    _render(case, choice.chosen.configuration, constraints)


def _constraints(case: _Case) -> Constraints:
    """Return all that bounds the choice: what the user, the script and the cluster bind."""
    assert case.baseline and case.reference and case.model and case.recognised is not None
    request, policy, use = case.request, case.policy, case.use
    uncapped = case.reading.uncapped if case.reading else ""
    obstacles = _obstacles(case) if case.whole else {}
    node_type = bound(request, "node_type", "nodes") or use.node_type
    if not request.exclusive:
        node_type = node_type or "the job fills its nodes by its own count of cores"
    if len(case.node_types) > 1 and (policy.axes.node_type == "keep" or node_type):
        raise _stop(case, "mixed-partition", case.partition, node_type or "policy keeps it")
    return Constraints(
        request,
        case.reference,
        policy,
        case.snapshot.inventory,
        case.partition,
        landing=tuple(case.node_types),
        whole=case.whole,
        threads_kept=threads_kept(request, use, case.recognised.threads_from)
        or _without_launcher(case),
        threads_unset=_threads_unset(case),
        freq_kept=bound(request, "frequency") or use.frequency or uncapped,
        node_type_kept=node_type,
        cores_kept="" if case.whole else _cores_kept(case) or _without_launcher(case),
        obstacles=obstacles,
        freq_cap_khz=request.freq_khz or 0,
        need_mb=case.snapshot.families.need_mb(case.model, case.reference),
        use=use,
        as_written_s=(case.baseline.time_s, case.baseline.time_hi_s),
    )


def _without_launcher(case: _Case) -> str:
    """Return why the threads of a rank are kept where the script starts its program by itself.

    It then runs once, and may use all of the job's cores, however many tasks the job has.
    """
    assert case.reference and case.reading and case.reading.use
    ranks = case.reference.ranks_per_node
    if ranks == 1 or case.request.kind == "run" or case.reading.use.launcher:
        return ""
    return f"the script starts its program without a launcher, so once for a node's {ranks} tasks"


def _threads_unset(case: _Case) -> str:
    """Return why variables of threads that the job leaves unset stay so."""
    assert case.recognised and case.model and case.asked and case.reading
    follows = not case.whole and case.reading.counts_threads  # the request alone is changed
    if follows or case.recognised.fills_cores:
        return ""
    by_scheduler = translator(case.request.scheduler).SETS_THREADS
    unset = [name for name in case.recognised.threads_from if name not in by_scheduler]
    return unset_kept(unset, case.asked, case.model.stats.get("threads_unset"))


def _obstacles(case: _Case) -> Mapping[str, tuple[str, str]]:
    """Return what keeps the job off node types now, and keep it for another policy."""
    assert case.reference is not None and case.reading is not None
    where = case.models, case.node_types, case.partition, case.reference.nodes
    several = len(case.models) > 1 or len(case.node_types) > 1
    if several and not case.reading.obstacles:
        case.reading = with_obstacles(case.reading, case.request, case.snapshot, *where)
    if case.policy.axes.node_type == "keep":
        return {}
    change = case.policy.node_type_change
    if case.request.hook == "job_submit":  # which does not see whether a deadline lets it wait
        change = "no-later"
    return node_type_obstacles(case.request, change, case.snapshot, *where)


def _cores_kept(case: _Case) -> str:
    """Return why a request that shares its nodes does not become smaller."""
    assert case.model is not None
    if case.policy.allocation == "keep":
        return "policy says allocation: keep"
    if case.request.hook == "job_submit":
        return "in the controller a request is never made smaller"
    if case.model.method == "variables":
        return "its model was measured with whole nodes"
    return cores_kept(case.request, case.use)


def _render(case: _Case, chosen: Configuration, constraints: Constraints) -> None:
    assert case.reference is not None and case.recognised is not None
    request = case.request
    node_type = case.snapshot.inventory.node_types[chosen.node_type]
    moves = chosen.node_type != case.reference.node_type
    pinned = moves or (len(case.node_types) > 1 and not request.node_list)
    try:
        case.rewrite, case.environment = translator(request.scheduler).render(
            constraints.natural(node_type),
            chosen,
            node_type,
            request,
            pin_node_type=pinned,
            whole=case.whole,
            variables=case.recognised.threads_from,
        )
    except CannotWriteError:
        raise
    except ValueError as error:
        raise _stop(case, "cannot-write", error) from None
    case.binds_node_type = pinned


def _finish(case: _Case) -> Decision:
    request, baseline, choice = case.request, case.baseline, case.choice
    reference = case.reference or case.asked
    quality = case.model.energy_quality if case.model else "missing"
    sized = case.model is not None and case.model.of_sizes  # its energies were metered
    if choice.chosen is not None and choice.chosen.estimated and not sized:
        quality = "estimated"
    message = ""
    if case.policy.message != "never":
        message = effect_line(
            case.application,
            reference,
            choice.chosen,
            case.reasons,
            bool(case.rewrite or case.environment),
            quality,
        )
    return Decision(
        id=new_id(),
        created_at=timestamp(),
        scheduler=request.scheduler,
        hook=request.hook,
        user=request.user,
        account=request.account,
        policy=case.policy,
        application=case.application,
        workload=case.workload,
        baseline=reference,
        chosen=choice.chosen,
        alternatives=choice.alternatives,
        rewrite=case.rewrite,
        environment=case.environment,
        reasons=tuple(case.reasons),
        message=message,
        holdout=case.holdout,
        model_id=case.model.id if case.model else None,
        energy_quality=quality,
        policy_version=case.snapshot.policy.version,
        baseline_time_s=baseline.time_s if baseline else None,
        baseline_energy_j=baseline.energy_j if baseline else None,
        request=request,
        reading=case.reading,
        program=request.program,
        look_at=to_look_at(request, case.recognised, case.model),
        cold_start=cold_start_of(case.model, case.choice),
        binds_node_type=case.binds_node_type,
    )


def unchanged(request: JobRequest, snapshot: Snapshot, why: Reason) -> Decision:
    """Return the decision to change nothing for a reason found outside :func:`decide`."""
    case = _Case(request, snapshot, policy=snapshot.policy.base, reasons=[why])
    return _finish(case)
