"""Fit one model again after a user's runs arrived: that user's, and nobody else's.

Fitting again takes a suspended model into use again, so a delivery must only ever touch the model
its own runs may advise.
"""

from __future__ import annotations

from advisor.core.observation import Scope
from advisor.store.writer import Writer


def refit(
    writer: Writer, application: str, workload: str, node_type: str, scope: Scope, owner: str
) -> str:
    """Fit and store the model of one owner as ``advisor fit`` does; say so in one line.

    Raises InputError when there are too few runs.
    """
    from advisor.models.fit import fit_options
    from advisor.models.runs import runs_by_scope

    stored = writer.observations(application, workload, node_type)
    for group in runs_by_scope([s.observation for s in stored]):
        if (group.scope, group.owner) != (scope, owner):
            continue
        fit = fit_options(group.observations)
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
            f"{len(group.observations)} runs, {len(fit.options)} options"
        )
    return f"{application} ({workload}) on {node_type}: no runs to fit"
