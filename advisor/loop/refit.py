"""Fit models again: one after a user's runs arrived, that user's and nobody else's; or all.

Fitting again takes a suspended model into use again, so a delivery must only ever touch the model
its own runs may advise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from advisor.core.observation import Observation, Scope
from advisor.core.units import format_count
from advisor.errors import InputError
from advisor.store.records import StoredModel
from advisor.store.writer import Writer

if TYPE_CHECKING:
    from advisor.models.fit import FitResult
    from advisor.models.runs import ScopedRuns
    from advisor.models.scatter import Elsewhere
    from advisor.workers.base import Workers

MOST_REFITS = 20
"""Models that one collection fits again for the jobs it found; the others' turn comes later."""


def refit_with_jobs(
    writer: Writer, application: str, workload: str, node_type: str, scope: Scope, owner: str
) -> str:
    """Fit a model again with its owner's new jobs, if that helps; say so in one line, else "".

    It helps where the jobs agree with the measured runs (:mod:`advisor.models.job_runs`) and all
    that was confirmed stays so. A suspended model stays suspended, and none is made of jobs alone.
    """
    from advisor.models.runs import JOBS_BESIDE, runs_by_scope

    models = writer.find_models(application, workload, node_type)
    model = next((m for m in models if (m.scope, m.owner) == (scope, owner)), None)
    if model is None or not model.fitted or model.state != "fitted":
        return ""
    stored = writer.observations(application, workload, node_type)
    groups = runs_by_scope([s.observation for s in stored])
    group = next((g for g in groups if (g.scope, g.owner) == (scope, owner)), None)
    if group is None:
        return ""
    try:
        fit = _fit(writer, application, workload, node_type, group)
    except InputError:  # its measured runs are no longer there
        return ""
    confirmed = {o.configuration for o in model.options() if o.confirmed}
    still_confirmed = confirmed <= {o.configuration for o in fit.options if o.confirmed}
    if not still_confirmed or not any(JOBS_BESIDE in note for note in fit.notes):
        return ""
    return refit(writer, application, workload, node_type, scope, owner)


def refit(
    writer: Writer, application: str, workload: str, node_type: str, scope: Scope, owner: str
) -> str:
    """Fit and store the model of one owner as ``advisor fit`` does; say so in one line.

    Raises InputError when there are too few runs.
    """
    from advisor.models.runs import runs_by_scope

    stored = writer.observations(application, workload, node_type)
    for group in runs_by_scope([s.observation for s in stored]):
        if (group.scope, group.owner) != (scope, owner):
            continue
        fit = _fit(writer, application, workload, node_type, group)
        model = _save(writer, (application, workload, node_type), scope, owner, fit)
        whose = "" if scope == "all" else f" for {owner}"
        return (
            f"fitted {application} ({workload}) on {node_type}{whose}: model {model.id}, "
            f"{format_count(len(group.observations), 'run')}, "
            f"{format_count(len(fit.options), 'option')}"
        )
    return f"{application} ({workload}) on {node_type}: no runs to fit"


class Refitted(NamedTuple):
    """How many models were fitted again, and why others were not, a line each."""

    fitted: int
    left: tuple[str, ...]


def refit_all(writer: Writer, workers: Workers, *, step: Callable[[int, int], object]) -> Refitted:
    """Fit every model in use again, the longest unchanged first, where ``workers`` work.

    Each is stored as it comes, unless it was fitted, suspended or retired meanwhile. Whatever is
    wrong with one keeps no other from its own, and it stays as it is. ``step`` is called with how
    many are done, and of how many. Raises AdvisorError where the engine cannot begin.
    """
    from advisor.models.fit_task import fit_of, fit_task

    models = _in_use(writer)
    inventory = writer.inventory().node_types
    tasks = [
        fit_task(group.observations, inventory.get(model.node_type), _elsewhere(writer, model))
        for model, group in models
    ]
    fitted, left = 0, []
    for count, done in enumerate(workers.run(tasks), 1):
        model, _ = models[done.number]
        problem = done.problem
        if not problem:
            with writer.transaction():
                current = writer.find_models(model.application, model.workload, model.node_type)
                if any((m.id, m.updated_at) == (model.id, model.updated_at) for m in current):
                    place = model.application, model.workload, model.node_type
                    _save(writer, place, model.scope, model.owner, fit_of(done.text))
                    fitted += 1
                else:
                    problem = "it was changed meanwhile"
        if problem:
            whose = "" if model.scope == "all" else f" for {model.owner}"
            left.append(
                f"{model.application} ({model.workload}) on {model.node_type}{whose}: {problem}"
            )
        step(count, len(tasks))
    return Refitted(fitted, tuple(left))


def _in_use(writer: Writer) -> list[tuple[StoredModel, ScopedRuns]]:
    """Return the fitted models in use with their runs, the longest unchanged first."""
    from advisor.models.runs import runs_by_scope

    pairs = []
    for application in dict.fromkeys(w.application for w in writer.workloads()):
        models = [m for m in writer.find_models(application) if m.fitted and m.state == "fitted"]
        by_place: dict[tuple[str, str], list[Observation]] = {}
        for run in writer.observations(application) if models else ():
            place = run.workload, run.observation.configuration.node_type
            by_place.setdefault(place, []).append(run.observation)
        for m in models:
            groups = runs_by_scope(by_place.get((m.workload, m.node_type), []))
            pairs += [(m, g) for g in groups if (g.scope, g.owner) == (m.scope, m.owner)]
    return sorted(pairs, key=lambda pair: (pair[0].updated_at, pair[0].id))


def _save(
    writer: Writer, place: tuple[str, str, str], scope: Scope, owner: str, fit: FitResult
) -> StoredModel:
    return writer.save_model(
        *place,
        scope=scope,
        owner=owner,
        name=fit.model,
        energy_quality=fit.energy_quality,
        n_train=fit.n_train,
        stats=fit.stats,
        options=fit.options,
    )


def _elsewhere(writer: Writer, model: StoredModel) -> Elsewhere:
    from advisor.models.scatter import repeats_elsewhere

    place = model.application, model.workload, model.node_type
    return repeats_elsewhere(writer, *place, model.scope, model.owner)


def _fit(
    writer: Writer, application: str, workload: str, node_type: str, group: ScopedRuns
) -> FitResult:
    """Fit a group's runs, with what the store has of their node type."""
    from advisor.models.fit import fit_options
    from advisor.models.scatter import repeats_elsewhere

    return fit_options(
        group.observations,
        node_type=writer.inventory().node_types.get(node_type),
        elsewhere=repeats_elsewhere(
            writer, application, workload, node_type, group.scope, group.owner
        ),
    )
