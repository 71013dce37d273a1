"""Find the model of a job, and in it the option that stands for the job as it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

from advisor.core.axes import AXES
from advisor.core.configuration import Configuration
from advisor.core.option import Row
from advisor.core.reasons import Reason, reason
from advisor.core.requested_configuration import (
    UnclearError,
    configuration_of,
    fills_nodes,
    partitions_of,
)
from advisor.core.words import describe
from advisor.service.axes import other_gpus
from advisor.service.choice import Choice
from advisor.service.conclusion import NO_CHOICE, NO_REWRITE, Conclusion, Rewrite, Submission
from advisor.service.families import time_limit_short
from advisor.service.job_models import JobModels, ModelSearch, how_to_train
from advisor.service.understand import UnderstoodJob, understand
from advisor.store.records import StoredModel

NO_MODEL = "no-model"


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What a job asks for on the node type it will land on, and the model of that node type.

    ``models`` has those of the others. ``whole``: the job has its nodes for itself.
    """

    configuration: Configuration
    whole: bool
    model: StoredModel
    models: JobModels
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class JobBaseline:
    """What a job gets as it is written: a measured configuration, and what its model says of it.

    ``asked`` is what the job asks for, which may lie beside what was measured.
    """

    configuration: Configuration
    row: Row
    asked: Configuration
    whole: bool
    model: StoredModel
    models: JobModels
    reasons: tuple[Reason, ...]

    def conclude(
        self,
        job: UnderstoodJob,
        *reasons: Reason,
        choice: Choice = NO_CHOICE,
        rewrite: Rewrite = NO_REWRITE,
    ) -> Conclusion:
        """Return the end of the decision, for these reasons besides those that it has."""
        return Conclusion(
            job,
            (*self.reasons, *reasons),
            self.models.workload,
            self.model,
            self.configuration,
            self.row,
            choice,
            rewrite,
        )


def job_and_baseline(submission: Submission) -> tuple[UnderstoodJob, JobBaseline] | Conclusion:
    """Return what a job runs, and the measured point that stands for it as it is written."""
    # what runs, where, under which policy; of the script, what it does with its cores
    job = understand(submission)
    if isinstance(job, Conclusion):
        return job
    # of its workload, its family of sizes, or the application
    models = find_models(job)
    if isinstance(models, Conclusion):
        return models
    # its configuration on its own node type, which must have a model
    demand = asked_of(job, models)
    if isinstance(demand, Conclusion):
        return demand
    # the measured point that stands for it
    baseline = locate_baseline(job, demand)
    return baseline if isinstance(baseline, Conclusion) else (job, baseline)


def find_models(job: UnderstoodJob) -> JobModels | Conclusion:
    """Return the models of what the job runs, by node type."""
    models = _search(job).find()
    why = models.stop
    if why is None and not models.by_node_type:
        why = reason(NO_MODEL, f"{job.recognised.application}/{models.workload}")
    if why is None:
        return models
    reasons = (*job.reasons, *models.reasons, why, *to_train(job, models.workload))
    return Conclusion(job, reasons, models.workload)


def asked_of(job: UnderstoodJob, models: JobModels) -> AskedFor | Conclusion:
    """Return what the job asks for on its own node type, which must have a measured model."""
    reasons = (*job.reasons, *models.reasons)

    def left(code: str, *details: object, model: StoredModel | None = None) -> Conclusion:
        return Conclusion(job, (*reasons, reason(code, *details)), models.workload, model)

    if not job.node_types:
        return left("no-baseline", _why_no_node_type(job))
    node_type, application = job.node_types[0], job.recognised.application
    model = models.by_node_type.get(node_type.name)
    if model is None or model.transferred:  # where a job comes from must have been measured
        return left(NO_MODEL, f"{application} on {node_type.name}")
    if len(job.node_types) > 1:
        partitions = partitions_of(job.request, job.snapshot.inventory)
        if len(partitions) > 1:
            return left("several-partitions", ", ".join(partitions))
        reasons = (*reasons, reason("baseline-node-type", node_type.name, job.partition))
    try:
        configuration = configuration_of(job.request, node_type, job.use)
    except UnclearError as error:
        return left("no-baseline", error, model=model)
    whole_nodes = job.request.exclusive or fills_nodes(job.request, node_type, job.use)
    if whole_nodes and model.method == "request":
        why = reason("measured-otherwise", f"{application} on {node_type.name}")
        reasons = (*reasons, why, *to_train(job, models.workload))
        return Conclusion(job, reasons, models.workload, model, configuration)
    return AskedFor(configuration, whole_nodes, model, models, reasons)


def locate_baseline(job: UnderstoodJob, demand: AskedFor) -> JobBaseline | Conclusion:
    """Return the option of the model that stands for what the job asks for."""
    models, model, configuration = demand.models, demand.model, demand.configuration
    reasons, node_type = demand.reasons, configuration.node_type
    row, exact = _row(job, model, configuration)
    if row is None and not model.of_sizes and _never_ran(job, model, configuration.nodes):
        scaled = _search(job).of_scales()
        if scaled is not None:
            reasons = (*reasons, *scaled.reasons)
            if scaled.stop is not None:
                reasons = (*reasons, scaled.stop, *to_train(job, scaled.workload))
                return Conclusion(job, reasons, scaled.workload, model, configuration)
            models, model = scaled, scaled.by_node_type[node_type]
            row, exact = _row(job, model, configuration)
    if row is None or (row.extrapolated and not row.confirmed):
        why = reason("baseline-outside-model", describe(configuration, node_type=True))
        return Conclusion(job, (*reasons, why), models.workload, model, configuration)
    if why_not := _axis_elsewhere(job, model) or other_gpus(job, model, configuration):
        why = reason("baseline-outside-model", why_not)
        return Conclusion(job, (*reasons, why), models.workload, model, configuration)
    measured = row.configuration(node_type)
    notes: list[Reason] = []
    if not exact:
        words = [describe(c, node_type=True) for c in (configuration, measured)]
        notes.append(reason("baseline-nearest", *words))
    if model.of_sizes:
        limit_s = (job.request.time_limit_s or math.inf) / job.use.runs
        limit_s = min(limit_s, job.use.ends_after_s)
        notes += time_limit_short(row, limit_s)
    standing, usable = _standing(model, job.request.user)
    baseline = JobBaseline(
        measured, row, configuration, demand.whole, model, models, (*reasons, *notes, *standing)
    )
    return baseline if usable else baseline.conclude(job)


def _axis_elsewhere(job: UnderstoodJob, model: StoredModel) -> str:
    """Return on which further axis a job is not where the model's options are, "" where on none.

    They are at the highest value that ran: a job may set its own, or get a higher one.
    """
    if not model.further_axes:
        return ""
    gpus = job.snapshot.inventory.node_types[model.node_type].gpus
    for name, highest in model.highest_axes:
        if name in job.request.binds:
            return f"{AXES[name].words} by {job.request.binds[name]}"
        if (top := max(gpus.steps(name), default=0)) > highest:
            return f"{AXES[name].words} {AXES[name].shown(top)}"
    return ""


def to_train(job: UnderstoodJob, workload: str) -> list[Reason]:
    """Say how what is missing comes to be measured."""
    running = (job.recognised.application, workload) in job.snapshot.training
    return how_to_train(job.request, job.policy, running=running)


def _search(job: UnderstoodJob) -> ModelSearch:
    request, recognised, types = job.request, job.recognised, job.node_types

    def nodes() -> int:
        try:
            return configuration_of(request, types[0], job.use).nodes
        except UnclearError:  # which ends the decision in a moment
            return 1

    names = recognised.application, recognised.workload, request.user, request.account
    return ModelSearch(job.snapshot, job.policy, *names, types[0].name if types else "", nodes)


def _why_no_node_type(job: UnderstoodJob) -> str:
    request = job.request
    if not job.snapshot.inventory.node_types:
        return "the inventory is empty: run advisor site discover"
    if place := request.constraint or request.node_list or job.partition:
        return f"no node type is known for {place}"
    return "the script names no partition, and site.yaml sets no default_partition"


def _row(
    job: UnderstoodJob, model: StoredModel, configuration: Configuration
) -> tuple[Row | None, bool]:
    """Return the row that stands for a configuration, and whether it is that very one."""
    by_default = not job.request.freq_khz
    return job.snapshot.baseline(
        model,
        configuration.nodes,
        configuration.ranks_per_node,
        configuration.threads_per_node,
        configuration.freq_khz,
        by_default,
    )


def _never_ran(job: UnderstoodJob, model: StoredModel, nodes: int) -> bool:
    return all(row.nodes != nodes for row in job.snapshot.rows(model))


def _standing(model: StoredModel, user: str) -> tuple[list[Reason], bool]:
    """Return what is to be said of the model that a job comes from, and whether it may be used."""
    if model.state == "suspended":
        return [reason("suspended", model.state_reason or "its jobs came out worse")], False
    reasons = [reason("scope", model.owner or user)] if model.scope == "own" else []
    if model.energy_quality == "missing":
        return [*reasons, reason("energy-unknown")], False
    if model.energy_quality == "estimated":
        reasons.append(reason("energy-estimated"))
    return reasons, True
