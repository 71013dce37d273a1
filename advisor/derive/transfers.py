"""Models by transfer, and what they follow from. Standard library only.

A node type without a model of its own gets one from a ranking and the base node type's model, for
each group of jobs that may see both. They follow from base models, rankings, the inventory and
models of the node type's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from advisor.core.axes import AXES
from advisor.core.inventory import Inventory
from advisor.core.observation import Scope
from advisor.core.option import Option, pack_options
from advisor.core.transfer import TransferError, transfer
from advisor.derive.change import Change, retire, save
from advisor.errors import AdvisorError
from advisor.store.rankings import StoredRanking, rankings
from advisor.store.reader import Reader
from advisor.store.records import TRANSFER, StoredModel

_Key = tuple[str, Scope, str]
"""Node type, scope and owner of a model."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What follows of one node type of a ranking: a model, or why there is none.

    ``made`` is what to store where ``model``, the stored one, is none or not that.
    """

    node_type: str
    scope: Scope
    owner: str
    model: StoredModel | None = None
    problem: str = ""
    made: Mapping[str, Any] | None = None


def transfers(reader: Reader, application: str, workload: str) -> list[Transfer]:
    """Return what follows from a workload's rankings now.

    A suspended model rests until the ranking says something else of its node type.
    """
    ranked = rankings(reader, application, workload)
    if not ranked:
        return []
    models = reader.find_models(application, workload)
    old = {(m.node_type, m.scope, m.owner): m for m in models if m.transferred}
    fitted_models = [m for m in models if m.fitted]
    inventory = reader.inventory()
    return [
        _transfer(key, ranking, base, old.get(key), inventory)
        for key, (ranking, base) in _sources(ranked, fitted_models, inventory).items()
        if not _has_fitted_model(key, fitted_models, inventory)
    ]


def changes(reader: Reader, application: str, workload: str) -> list[Change]:
    """Return what makes, renews or retires a workload's models by transfer.

    What would not change is left as it is.
    """
    following = transfers(reader, application, workload)
    current = {(t.node_type, t.scope, t.owner) for t in following if t.model or t.made}
    return [
        *(save(t.made) for t in following if t.made),
        *(
            retire(m.id)
            for m in reader.find_models(application, workload)
            if m.transferred and (m.node_type, m.scope, m.owner) not in current
        ),
    ]


def unadvised(reader: Reader) -> list[tuple[StoredRanking, str]]:
    """Return the rankings that advise nobody although a model could follow from them, and why."""
    problems = []
    inventory = reader.inventory()
    sql = "SELECT DISTINCT application FROM workloads JOIN rankings ON workload_id = workloads.id"
    for (application,) in reader.rows(sql):
        models = reader.find_models(application)
        modelled_pairs = {(m.workload, m.node_type) for m in models}
        for r in rankings(reader, application):
            name = _name(inventory, r.estimate.node_type)
            if name == _name(inventory, r.base) or (r.workload, name) in modelled_pairs:
                continue
            base = [
                m
                for m in models
                if m.workload == r.workload and _is_fitted_on(m, r.base, inventory)
            ]
            try:
                if not base:
                    raise TransferError(f"there is no model on {r.base}")
                _options(base[0], r, inventory)
            except (TransferError, AdvisorError) as error:
                problems.append((r, str(error)))
    return problems


def _sources(
    ranked: Sequence[StoredRanking], fitted_models: Sequence[StoredModel], inventory: Inventory
) -> dict[_Key, tuple[StoredRanking, StoredModel]]:
    """Return the ranking and the base model for every model by transfer there can be.

    A user's own ranking goes before everybody's, then the surer one, then the newer one.
    """
    by_key: dict[_Key, list[tuple[StoredRanking, StoredModel]]] = {}
    for r in ranked:
        target = _name(inventory, r.estimate.node_type)
        if target == _name(inventory, r.base):
            continue
        bases = [
            m for m in fitted_models if m.state == "fitted" and _is_fitted_on(m, r.base, inventory)
        ]
        if r.scope == "all":
            for base in bases:
                by_key.setdefault((target, base.scope, base.owner), []).append((r, base))
            continue
        visible_bases = [
            m for m in bases if m.scope == "all" or (m.scope, m.owner) == ("own", r.contributor)
        ]
        if visible_bases:
            base = min(visible_bases, key=lambda m: m.scope == "all")
            by_key.setdefault((target, "own", r.contributor), []).append((r, base))
    return {
        key: min(pairs, key=lambda pair: (pair[0].scope == "all", pair[0].estimate.error_pct))
        for key, pairs in by_key.items()
    }


def _name(inventory: Inventory, node_type: str) -> str:
    resolved_type = inventory.resolve(node_type)
    return resolved_type.name if resolved_type else node_type


def _is_fitted_on(model: StoredModel, node_type: str, inventory: Inventory) -> bool:
    return model.fitted and (_name(inventory, model.node_type) == _name(inventory, node_type))


def _has_fitted_model(
    key: _Key, fitted_models: Iterable[StoredModel], inventory: Inventory
) -> bool:
    """Tell whether all of a group's jobs see a model that was fitted on the node type itself."""
    node_type, scope, owner = key
    return any(
        _is_fitted_on(m, node_type, inventory)
        and (m.scope == "all" or (m.scope, m.owner) == (scope, owner))
        for m in fitted_models
    )


def _options(base: StoredModel, ranking: StoredRanking, inventory: Inventory) -> tuple[Option, ...]:
    base_type = inventory.resolve(base.node_type)
    target_type = inventory.resolve(ranking.estimate.node_type)
    if base_type is None or target_type is None:
        unknown_type = base.node_type if base_type is None else ranking.estimate.node_type
        raise TransferError(f"{unknown_type} is not in the inventory")
    error = float(base.stats.get("error", 0.05))
    if base.further_axes:
        measured_over = " and ".join(AXES[name].words for name in base.further_axes)
        raise TransferError(f"it was measured over {measured_over}: rankings are of processors")
    return transfer(base.written_options(), base_type, target_type, ranking.estimate, error=error)


def _transfer(
    key: _Key,
    ranking: StoredRanking,
    base: StoredModel,
    old: StoredModel | None,
    inventory: Inventory,
) -> Transfer:
    node_type, scope, owner = key
    follows_from = {
        "base": base.node_type,
        "method": ranking.method,
        "energy_quality": base.energy_quality,
        **asdict(ranking.estimate),
    }
    if old is not None and old.state == "suspended" and old.transfer == follows_from:
        return Transfer(node_type, scope, owner, old, "suspended until a ranking says otherwise")
    try:
        options = _options(base, ranking, inventory)
    except (TransferError, AdvisorError) as error:  # what it follows from is stored nevertheless
        return Transfer(node_type, scope, owner, None, str(error))
    content = follows_from, base.method, pack_options(options)
    if old is not None and (old.transfer, old.method, old.options_blob) == content:
        return Transfer(node_type, scope, owner, old)
    model = {
        "application": base.application,
        "workload": base.workload,
        "node_type": node_type,
        "scope": scope,
        "owner": owner,
        "name": TRANSFER,
        "energy_quality": "estimated",
        "n_train": 0,
        "stats": {
            "transfer": follows_from,
            "method": base.method,
            "error": base.stats.get("error", 0.05),
            "options": len(options),
            "measured": 0,
            "confirmed": 0,
            "zone": sum(o.in_zone for o in options),
            "front": sum(o.on_front for o in options),
            "runs": 0,
            "notes": [],
        },
        "options": options,
    }
    return Transfer(node_type, scope, owner, made=model)
