"""Fit one model again after a user's runs arrived: that user's, and nobody else's.

Fitting again takes a suspended model into use again, so a delivery must only ever touch the model
its own runs may advise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.core.observation import Scope
from advisor.core.units import format_count
from advisor.errors import InputError
from advisor.store.writer import Writer

if TYPE_CHECKING:
    from advisor.models.fit import FitResult
    from advisor.models.runs import ScopedRuns

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
        model = writer.save_model(
            application,
            workload,
            node_type,
            scope=scope,
            owner=owner,
            name=fit.model,
            energy_quality=fit.energy_quality,
            n_train=fit.n_train,
            stats=fit.stats,
            options=fit.options,
        )
        whose = "" if scope == "all" else f" for {owner}"
        return (
            f"fitted {application} ({workload}) on {node_type}{whose}: model {model.id}, "
            f"{format_count(len(group.observations), 'run')}, "
            f"{format_count(len(fit.options), 'option')}"
        )
    return f"{application} ({workload}) on {node_type}: no runs to fit"


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
