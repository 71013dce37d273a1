"""Choose for one job among its models' options, and remember the choice.

The same job is submitted again and again: a choice depends on the models, the policy and what
bounds the job, so it is kept until the snapshot is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from advisor.core.decision import Alternative
from advisor.core.feasible import Constraints, explain, feasible_rows
from advisor.core.node_type_estimate import similarity_text
from advisor.core.option import Row
from advisor.core.policy import ColdStart
from advisor.core.reasons import BY_CLASS, ESTIMATED, Reason, reason
from advisor.core.select import Candidate, select, weigh
from advisor.core.settings import Pin
from advisor.service.snapshot import Snapshot
from advisor.store.records import StoredModel


@dataclass(frozen=True, slots=True)
class Choice:
    """The option to take (None: none), what else was weighed, and why."""

    chosen: Alternative | None
    alternatives: tuple[Alternative, ...]
    reasons: tuple[Reason, ...]
    pinned: bool = False


def choose(
    snapshot: Snapshot,
    models: Mapping[str, StoredModel],
    model: StoredModel,
    baseline: Row,
    constraints: Constraints,
    pin: Pin | None,
) -> Choice:
    """Return the choice among the options of all ``models``; ``model`` is the baseline's."""
    key = (*(m.id for m in models.values()), constraints.key(), pin)
    choice: Choice = snapshot.choice(
        key, lambda: _choose(snapshot, models, model, baseline, constraints, pin)
    )
    return choice


def _choose(
    snapshot: Snapshot,
    models: Mapping[str, StoredModel],
    model: StoredModel,
    baseline: Row,
    constraints: Constraints,
    pin: Pin | None,
) -> Choice:
    others: list[Candidate] = []
    dropped: Counter[str] = Counter()
    refused: list[str] = []
    for other in models.values():
        if other.state == "suspended" or other.energy_basis != model.energy_quality:
            continue
        if other.by_class and other is not model:  # only its own node type's jobs
            continue
        if other.transferred and constraints.policy.estimated_node_types == "refuse":
            refused.append(other.node_type)
            continue
        rows, why = feasible_rows(other.node_type, snapshot.rows(other), constraints)
        dropped.update(why)
        if other is model and baseline in rows:
            rows.remove(baseline)
        others += zip(repeat(other.node_type), rows, strict=False)
    reasons = explain(dropped)
    if refused and constraints.policy.axes.node_type != "keep":
        reasons.append(reason("estimates-refused", ", ".join(refused), "estimated_node_types"))
    if pin is not None:
        pinned = _pinned(pin, others, baseline, constraints)
        if not pinned.pinned:  # another point is not what was asked for: the job stays
            return replace(pinned, reasons=(*reasons, *pinned.reasons))
        return replace(pinned, reasons=(*pinned.reasons, *_estimated(pinned.chosen, models)))
    selection = select(others, baseline, constraints.policy)
    chosen = selection.chosen.alternative() if selection.chosen else None
    reasons += (*selection.reasons, *_estimated(chosen, models))
    return Choice(chosen, tuple(w.alternative() for w in selection.alternatives), tuple(reasons))


def _estimated(chosen: Alternative | None, models: Mapping[str, StoredModel]) -> tuple[Reason, ...]:
    """Say that a choice is estimated, and from how similar microbenchmarks."""
    if chosen is None or not chosen.estimated:
        return ()
    name = chosen.configuration.node_type
    if models[name].by_class:
        return (reason(BY_CLASS, *like_text(models[name].cold_start)),)
    return (reason(ESTIMATED, name, similarity_text(models[name].transfer)),)


def like_text(cold: Mapping[str, Any]) -> tuple[str, str]:
    """Return whom a class model follows from, and by what, in words."""
    count, name = cold.get("applications", 0), cold.get("class") or ""
    others = f"{count} applications" if name in ("", "unknown") else f"{count} {name} applications"
    names = cold.get("like") or ()
    near = f" ({', '.join(map(str, names))} most like it)" if names else ""
    counters = set(cold.get("signature") or ()) - {"power_w", "time_s", "memory_mb", "cpu_util"}
    return others + near, "one job's counters" if counters else "one job's power and time"


def cold_start_of(model: StoredModel | None, chosen: Alternative | None) -> dict[str, object]:
    """Return what a choice follows from where the application was never swept; else {}."""
    if model is None or not model.by_class:
        return {}
    intervals = None
    if chosen is not None:
        time, energy = chosen.time, chosen.energy
        intervals = {"time": [time.lo, time.hi], "energy": [energy.lo, energy.hi]}
    kept = ("class", "strategy", "applications", "like", "method")
    return {**{k: model.cold_start.get(k) for k in kept}, "trial": None, "intervals": intervals}


def class_obstacle(model: StoredModel, cold: ColdStart) -> Reason | None:
    """Return why a class model changes no job, None where the policy lets it."""
    base = model.cold_start
    known, name = base.get("applications", 0), base.get("class") or "unknown"
    if known < cold.min_applications:
        return reason("class-few", known, model.node_type, cold.min_applications)
    if cold.mode != "apply":
        return reason("cold-start-advise")
    if name not in cold.classes:
        return reason("class-not-listed", name)
    return None


def _pinned(
    pin: Pin, candidates: list[Candidate], baseline: Row, constraints: Constraints
) -> Choice:
    """Return what the user pinned; a pin need not save anything, but must be possible."""
    if pin.problems:
        return Choice(None, (), (reason("pin-impossible", ", ".join(pin.problems)),))
    if pin.fits(constraints.baseline):
        return Choice(None, (), (reason("pinned"),), True)
    fitting = [c for c in candidates if pin.fits(c[1].configuration(c[0]))]
    if not fitting:
        why = "it is not among the options left for this job"
        return Choice(None, (), (reason("pin-impossible", why),))
    weighed = [weigh(c, baseline, constraints.policy.goal) for c in fitting]
    best = min(weighed, key=lambda w: w.score)
    return Choice(best.alternative(), (), (reason("pinned"),), True)
