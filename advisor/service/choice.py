"""Choose for one job among its models' options, and remember the choice.

The same job is submitted again and again: a choice depends on the models, the policy and what
bounds the job, so it is kept until the snapshot is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from advisor.core.decision import Alternative
from advisor.core.feasible import Constraints, explain, feasible_rows
from advisor.core.node_type_estimate import similarity_text
from advisor.core.option import Row
from advisor.core.policy import Policy
from advisor.core.reasons import BY_CLASS, ESTIMATED, TRIAL, Reason, like_text, reason
from advisor.core.request import JobRequest
from advisor.core.select import Candidate, Selection, select, weigh
from advisor.core.settings import Pin
from advisor.core.trial_points import TrialPoints, needed_unseen
from advisor.core.units import format_percent
from advisor.service.snapshot import Snapshot
from advisor.store.records import StoredModel
from advisor.store.trials import STOP, keys_seen


@dataclass(frozen=True, slots=True)
class Choice:
    """The option to take (None: none), what else was weighed, and why."""

    chosen: Alternative | None
    alternatives: tuple[Alternative, ...]
    reasons: tuple[Reason, ...]
    pinned: bool = False
    trial: Choice | None = None
    """The trial that a job may run in its place, if any."""


def choose(
    snapshot: Snapshot,
    models: Mapping[str, StoredModel],
    model: StoredModel,
    baseline: Row,
    constraints: Constraints,
    pin: Pin | None,
) -> Choice:
    """Return the choice among the options of all ``models``; ``model`` is the baseline's."""
    if pin is not None:  # which names none of them
        constraints = replace(constraints, axes=())
    longest_s = max(snapshot.longest_s(m, constraints.axes) for m in models.values())
    key = (*[(m.id, m.size) for m in models.values()], constraints.key(longest_s), pin)
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
    candidates: list[Candidate] = []
    dropped: Counter[Reason] = Counter()
    refused: list[str] = []
    for candidate_model in models.values():
        if (
            # an estimated energy and a measured one tell no saving
            candidate_model.state == "suspended"
            or candidate_model.energy_basis != model.energy_quality
        ):
            continue
        # a class model speaks of its own node type's jobs only
        if candidate_model.by_class and candidate_model is not model:
            continue
        if candidate_model.transferred and constraints.policy.estimated_node_types == "refuse":
            refused.append(candidate_model.node_type)
            continue
        axes = constraints.axes if candidate_model is model else ()
        rows, why = feasible_rows(
            candidate_model.node_type, snapshot.rows(candidate_model, axes), constraints
        )
        dropped.update(why)
        # What is weighed differs from the job as written.
        if candidate_model is model and baseline in rows:
            rows.remove(baseline)
        candidates += product((candidate_model.node_type,), rows)  # each row with its node type
    reasons = explain(dropped)
    reasons += constraints.axes_kept
    if refused and constraints.policy.axes.node_type != "keep":
        reasons.append(reason("estimates-refused", ", ".join(refused), "estimated_node_types"))
    if pin is not None:
        obstacles = _obstacles_of(pin, snapshot, models, constraints)
        pinned = _pinned(pin, candidates, baseline, constraints, obstacles)
        if not pinned.pinned:  # another point is not what was asked for: the job stays
            return replace(pinned, reasons=(*reasons, *pinned.reasons))
        return replace(pinned, reasons=(*pinned.reasons, *_estimate_reasons(pinned.chosen, models)))
    policy = constraints.policy
    trial = _trial(snapshot, model, baseline, candidates, policy)
    if trial is not None:
        trial = replace(trial, reasons=(*reasons, *trial.reasons))
    if model.trials:
        selection = _after_trials(model, candidates, baseline, policy)
    else:
        selection = select(candidates, baseline, policy)
        if class_obstacle(model, policy) is None:
            selection = _agreed(snapshot, model, candidates, baseline, policy, selection)
    best = selection.chosen
    chosen = best.alternative() if best else None
    reasons += (*selection.reasons, *_estimate_reasons(chosen, models))
    shown = tuple(w.alternative() for w in selection.alternatives)
    return Choice(chosen, shown, tuple(reasons), trial=trial)


def _trial(
    snapshot: Snapshot,
    model: StoredModel,
    baseline: Row,
    candidates: Sequence[Candidate],
    policy: Policy,
) -> Choice | None:
    """Return the trial that a job at a class model's own point may run, if one is worth it."""
    if policy.mode != "apply" or class_obstacle(model, policy):
        return None
    points = TrialPoints.from_dict(model.cold_start.get("trial_points"))
    cold, number = policy.cold_start, len(model.trials) + 1
    if points is None or number > cold.trials or model.cold_start.get("unlike"):
        return None
    if not _is_own(model, baseline):
        return None
    feasible = [row for name, row in candidates if name == model.node_type]
    row = points.best(snapshot.rows(model), feasible, baseline, policy)
    if row is None:
        return None
    alternative = weigh((model.node_type, row), baseline, policy.goal).alternative()
    estimated = reason(BY_CLASS, *like_text(model.cold_start))
    reasons = (estimated, reason(TRIAL, number, cold.trials))
    return Choice(alternative._replace(estimated=True), (), reasons)


def _agreed(
    snapshot: Snapshot,
    model: StoredModel,
    candidates: Sequence[Candidate],
    baseline: Row,
    policy: Policy,
    selection: Selection,
) -> Selection:
    """Return the selection among options that no method of the prior thinks out of bounds.

    Others may be shown, but only a trial may be the first to run there.
    """
    points = TrialPoints.from_dict(model.cold_start.get("trial_points"))
    if selection.chosen is None or points is None:
        return selection
    doubted = points.doubted(snapshot.rows(model), policy)
    if selection.chosen.row[:4] not in doubted:
        return selection
    agreed = [c for c in candidates if c[0] != model.node_type or c[1][:4] not in doubted]
    waiting = reason("class-doubted", len(candidates) - len(agreed))
    if not agreed:
        return Selection(None, (), (waiting,))
    agreement = select(agreed, baseline, policy)
    return replace(agreement, reasons=(waiting, *agreement.reasons))


def _is_own(model: StoredModel, baseline: Row) -> bool:
    """Tell whether a job asks for the very point that a class model knows a run of."""
    run_point = model.cold_start.get("own")
    return run_point == baseline.configuration(model.node_type).to_dict()


def _after_trials(
    model: StoredModel, candidates: Sequence[Candidate], baseline: Row, policy: Policy
) -> Selection:
    """Return the best point that a trial confirmed, else none.

    A trial's own run kept both bounds there: nothing is left to be sure of at a confidence. Other
    node types, where none ran, keep the policy's.
    """
    confirmed = [c for c in candidates if c[1].confirmed]
    if not any(t.get("state") == "confirmed" for t in model.trials):
        return Selection(None, (), (reason("trials-refuted"),))
    selection = select(confirmed, baseline, policy)
    if _is_own(model, baseline):
        tried_candidates = [c for c in confirmed if c[0] == model.node_type]
        tried, surest = (
            select(tried_candidates, baseline, replace(policy, confidence=0.5)),
            selection.chosen,
        )
        if tried.chosen and (surest is None or tried.chosen.score < surest.score):
            selection = tried
    if selection.chosen is None or selection.chosen.node_type != model.node_type:
        return selection
    reasons = (r for r in selection.reasons if r.code != "confirmed")
    return replace(selection, reasons=(*reasons, reason("trial-confirmed")))


def _estimate_reasons(
    chosen: Alternative | None, models: Mapping[str, StoredModel]
) -> tuple[Reason, ...]:
    """Say that a choice is estimated, and from how similar microbenchmarks."""
    if chosen is None or not chosen.estimated:
        return ()
    name = chosen.configuration.node_type
    if models[name].of_sizes:  # its origin is that of the whole size
        return ()
    if models[name].by_class:
        return (reason(BY_CLASS, *like_text(models[name].cold_start)),)
    return (reason(ESTIMATED, name, similarity_text(models[name].transfer)),)


def trial_of(
    snapshot: Snapshot, model: StoredModel, request: JobRequest, policy: Policy, choice: Choice
) -> Choice:
    """Return the choice to run a trial where this job may run it now, else the choice as it is.

    One place for each model; none for a whole array, nor for a job that starts nobody knows when.
    """
    trial = choice.trial
    if trial is None or request.array or request.held:
        return choice
    name = str(model.cold_start.get("class") or "unknown")
    why = None
    if snapshot.trials.pending.intersection(keys_seen(model)):
        why = reason("trial-pending")
    elif (model.node_type, name) in snapshot.trials.stopped:
        why = reason("trials-stopped", STOP, name)
    if why is not None:
        return replace(choice, reasons=(why, *choice.reasons))
    return replace(trial, alternatives=choice.alternatives)


def cold_start_of(model: StoredModel | None, choice: Choice) -> dict[str, object]:
    """Return what a choice follows from where the application was never swept; else {}."""
    if model is None or not model.by_class:
        return {}
    chosen, intervals = choice.chosen, None
    number = next((r.details for r in choice.reasons if r.code == TRIAL), None)
    trial = None if number is None else {"number": int(number[0]), "of": int(number[1])}
    if chosen is not None:
        time, energy = chosen.time, chosen.energy
        intervals = {"time": [time.lo, time.hi], "energy": [energy.lo, energy.hi]}
    shown_keys = ("class", "strategy", "applications", "like", "method")
    shown = {k: model.cold_start.get(k) for k in shown_keys}
    return {**shown, "trial": trial, "trials": model.trials, "intervals": intervals}


def class_obstacle(
    model: StoredModel, policy: Policy, choice: Choice | None = None
) -> Reason | None:
    """Return why a class model changes no job, None where the policy lets it.

    ``choice`` where nothing ran yet: it needs as many applications as the policy's confidence.
    """
    base, cold = model.cold_start, policy.cold_start
    application_count, name = base.get("applications", 0), base.get("class") or "unknown"
    if application_count < cold.min_applications:
        return reason("class-few", application_count, model.node_type, cold.min_applications)
    if cold.mode != "apply":
        return reason("cold-start-advise")
    if name not in cold.classes:
        return reason("class-not-listed", name)
    unseen = choice is not None and not model.trials
    if unseen and application_count < (least := needed_unseen(policy.confidence)):
        return reason(
            "class-unseen",
            application_count,
            model.node_type,
            format_percent(policy.confidence),
            least,
        )
    return None


def _obstacles_of(
    pin: Pin, snapshot: Snapshot, models: Mapping[str, StoredModel], constraints: Constraints
) -> str:
    """Return in words what rules out the points that fit a pin, "" where nothing does."""
    dropped: Counter[Reason] = Counter()
    for model in models.values():
        name = model.node_type
        rows = [row for row in snapshot.rows(model) if pin.fits(row.configuration(name))]
        dropped.update(feasible_rows(name, rows, constraints)[1])
    return "; ".join(dict.fromkeys(r.text for r in explain(dropped)))


def _pinned(
    pin: Pin,
    candidates: list[Candidate],
    baseline: Row,
    constraints: Constraints,
    obstacles: str,
) -> Choice:
    """Return what the user pinned; a pin need not save anything, but must be possible.

    ``obstacles`` are what rules it out, if it is among the models' points.
    """
    if pin.problems:
        return Choice(None, (), (reason("pin-impossible", ", ".join(pin.problems)),))
    if pin.fits(constraints.baseline):
        return Choice(None, (), (reason("pinned"),), True)
    fitting = [c for c in candidates if pin.fits(c[1].configuration(c[0]))]
    if not fitting:
        why = "it is not among the options left for this job"
        why += f": {obstacles}" if obstacles else ""
        return Choice(None, (), (reason("pin-impossible", why),))
    weighed = [weigh(c, baseline, constraints.policy.goal) for c in fitting]
    best = min(weighed, key=lambda w: w.score)
    return Choice(best.alternative(), (), (reason("pinned"),), True)
