"""The list of applications and workloads: what is known of each, promised and measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from advisor import choices as _choices
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.units import format_count
from advisor.core.words import change_words, difference_words
from advisor.core.worth import J_PER_KWH, Tariff, format_kwh
from advisor.errors import AdvisorError
from advisor.service.snapshot import SWEEP_LASTS, Snapshot
from advisor.store import listing
from advisor.store.listing import ListPage
from advisor.store.reader import Reader
from advisor.store.records import StoredModel, Workload
from advisor.views.decision import why_not
from advisor.views.options import view_of
from advisor.views.preview import AskingJob, Person, preview, site_for_preview
from advisor.views.worth import MONTH_D, runs_of_month

if TYPE_CHECKING:
    from advisor.loop.report import OnOffComparison

ModelStatus = Literal["none", "training", "class", "fitted", "confirmed", "suspended"]
Key = tuple[str, str]
"""Application and workload."""

MOST_SUMMED = 100
"""Workloads, those with most jobs, whose saving is summed up: each costs as much as a row."""
_NARROW = {"own": 2, "account": 1, "all": 0}


@dataclass(frozen=True, slots=True)
class Listed:
    """One workload as the list shows it.

    ``done`` and ``planned`` count the runs of a sweep under way; ``energy`` and ``time`` are the
    promised changes as fractions, None where nothing would be changed, ``saving_j`` is what a run
    would save; ``estimated`` when no meter measured the energy; ``class_name`` is that of an
    application never swept; ``words`` says in a sentence what a job of it would get, or why
    nothing.
    """

    application: str
    workload: str
    runs: int
    state: ModelStatus
    node_types: tuple[str, ...] = ()
    done: int = 0
    planned: int = 0
    energy: float | None = None
    time: float | None = None
    estimated: bool = False
    words: str = ""
    chosen: Literal["", "off", "pin", "goal"] = ""
    class_name: str = ""
    saving_j: float = 0.0

    @property
    def key(self) -> Key:
        """Application and workload."""
        return self.application, self.workload


def page(
    reader: Reader,
    person: Person,
    part: ListPage,
    *,
    sweeps: Mapping[Key, tuple[int, int]] | None = None,
    current_rows: Mapping[Key, Listed] | None = None,
) -> list[Listed]:
    """Return some rows of the list; ``sweeps`` are the person's own under way, done and planned.

    ``current_rows`` hold as they are. Reads the models of the other rows only.
    """
    current_rows = current_rows or {}
    workloads = listing.page_of_workloads(reader, part)
    return _rows(reader, person, workloads, sweeps or {}, current_rows)


def _rows(
    reader: Reader,
    person: Person,
    workloads: Sequence[Workload],
    sweeps: Mapping[Key, tuple[int, int]],
    current_rows: Mapping[Key, Listed],
) -> list[Listed]:
    """Return workloads as rows, of which some may be known."""
    unknown = [w for w in workloads if (w.application, w.name) not in current_rows]
    if not unknown:
        return [current_rows[w.application, w.name] for w in workloads]
    snapshot = site_for_preview(reader)
    snapshot.take(m for m in listing.models_of(reader, unknown) if _visible(m, person))
    since = (datetime.now(UTC) - SWEEP_LASTS).isoformat()
    under_way = {s.workload_id: (s.done, s.planned) for s in listing.sweeping(reader, since)}
    models: dict[Key, list[StoredModel]] = {}
    for model in snapshot.models.values():
        models.setdefault((model.application, model.workload), []).append(model)
    rows = []
    for w in workloads:
        key = w.application, w.name
        if key in current_rows:
            rows.append(current_rows[key])
            continue
        sweep = sweeps.get(key) or under_way.get(w.id)
        rows.append(_listed_row(reader, snapshot, w, models.get(key, []), sweep, person))
    return rows


def _visible(model: StoredModel, person: Person) -> bool:
    return model.scope != "own" or model.owner == person.name


def _listed_row(
    reader: Reader,
    snapshot: Snapshot,
    w: Workload,
    models: Sequence[StoredModel],
    sweep: tuple[int, int] | None,
    person: Person,
) -> Listed:
    done_runs, planned_runs = sweep or (0, 0)
    choice_settings = _choices.chosen(person.choices, w.application, w.name)
    chosen: Literal["", "off", "pin", "goal"] = (
        "off"
        if "off" in choice_settings
        else "pin"
        if "pin" in choice_settings
        else "goal"
        if {"goal", "max_slowdown"} & choice_settings.keys()
        else ""
    )
    row = Listed(
        w.application,
        w.name,
        w.observations,
        "none",
        done=done_runs,
        planned=planned_runs,
        chosen=chosen,
        node_types=tuple(sorted({m.node_type for m in models})),
    )
    if not models:
        words = "no model yet; t measures it once" if not sweep else "a sweep is under way"
        return _with_state(row, "training" if sweep else "none", words)
    model = home(models, person, snapshot.inventory)
    try:
        view = view_of(model, reader.swept_baseline(w.application, w.name, model.node_type))
    except AdvisorError as error:
        return _with_state(row, "suspended", str(error))
    state: ModelStatus = "confirmed" if any(o.confirmed for o in view.options) else "fitted"
    if model.by_class:
        row = replace(row, class_name=str(model.cold_start.get("class") or "unknown"))
        state = "confirmed" if state == "confirmed" else "class"
    if model.state == "suspended":
        state = "suspended"
    whose = replace(person, account=model.owner) if model.scope == "account" else person
    decision = preview(
        snapshot, AskingJob(w.application, w.name, view.baseline.configuration, whose)
    )
    if decision is None:
        return _with_state(row, state, f"node type {model.node_type} is not in the inventory")
    words, point = promise(decision), decision.chosen
    if model.scope == "account":
        words += f" (jobs of account {model.owner})"
    if sweep:
        state = "training"
    if point is None:
        return _with_state(row, state, words)
    energy, time = point.energy.change, point.time.change
    estimated = decision.energy_quality == "estimated"
    saving_j = (decision.baseline_energy_j or point.energy_j) - point.energy_j
    return replace(
        row,
        state=state,
        words=words,
        energy=energy,
        time=time,
        estimated=estimated,
        saving_j=saving_j,
    )


def _with_state(row: Listed, state: ModelStatus, words: str) -> Listed:
    return replace(row, state=state, words=words)


def promise(decision: Decision) -> str:
    """Say what a decision gives its job, or why it changes nothing."""
    chosen = decision.chosen
    if chosen is None:
        return why_not(decision.reasons)
    what = difference_words(decision.baseline, chosen.configuration)
    estimated = decision.energy_quality == "estimated"
    effect = change_words(chosen.energy.change, chosen.time.change, estimated=estimated)
    words = f"{what}: {effect}"
    return words if decision.changed else f"{words}; {why_not(decision.reasons)}"


def home(models: Sequence[StoredModel], person: Person, inventory: Inventory) -> StoredModel:
    """Return the model to show first.

    What was measured before what is estimated; the person's own before the account's before the
    site's; then where a job that asks for no
    node type would land; then the newest.
    """
    first = inventory.in_partition(inventory.default_partition)
    order = {t.name: -i for i, t in enumerate(first)}

    def rank(model: StoredModel) -> tuple[bool, int, int, str, int]:
        foreign = model.scope == "account" and model.owner != person.account
        place = order.get(model.node_type, -len(order) - 1)
        whose = -1 if foreign else _NARROW[model.scope]
        return model.fitted, whose, place, model.updated_at, model.id

    return max(models, key=rank)


@dataclass(frozen=True, slots=True)
class Gains:
    """What the jobs of 30 days would save, in J, by workload; ``jobs`` are those of them."""

    by_key: Mapping[Key, float]
    jobs: int
    tariff: Tariff

    @property
    def first(self) -> Key | None:
        """The workload with most to gain; None where none has."""
        best = max(self.by_key, key=self.by_key.__getitem__, default=None)
        return best if best is not None and self.by_key[best] > 0 else None

    def saved(self, key: Key) -> str:
        """Return a workload's energy, and its price where the site states a price; "" for none."""
        kwh = self.by_key.get(key, 0.0) / J_PER_KWH
        if kwh <= 0:
            return ""
        price = self.tariff.price
        return format_kwh(kwh) + ("" if price is None else f" {self.tariff.money(kwh * price)}")

    def words(self) -> str:
        """Sum them up in a line; "" where there were no jobs."""
        if not self.jobs:
            return ""
        total = self.tariff.words(sum(self.by_key.values()))
        return f"to save in {MONTH_D} days: {total} on {format_count(self.jobs, 'job')}"


def gains(reader: Reader, person: Person, current_rows: Mapping[Key, Listed]) -> Gains:
    """Return what the busiest workloads' jobs of the last 30 days would save as advised now."""
    jobs: Counter[Key] = Counter()
    for (application, workload, _), count in runs_of_month(reader).items():
        jobs[application, workload] += count
    busiest = dict(jobs.most_common(MOST_SUMMED))
    workloads = [w for w in reader.workloads() if (w.application, w.name) in busiest]
    rows = _rows(reader, person, workloads, {}, current_rows)
    by_key = {row.key: row.saving_j * busiest[row.key] for row in rows}
    return Gains(by_key, sum(busiest[key] for key in by_key), Tariff.of(reader.site()))


def measured(reader: Reader, since: str) -> dict[Key, OnOffComparison]:
    """Return what the jobs since a time (ISO 8601) really saved, by workload."""
    from advisor.loop.report import report

    return {(c.application, c.workload): c for c in report(reader, since=since).comparisons}


def measured_words(comparison: OnOffComparison) -> str:
    """Say what a workload's rewritten jobs really saved, and against what; "" when unknown."""
    energy, time = comparison.energy, comparison.time
    if energy is None:
        return ""
    jobs = f"{energy.advised} job{'s' if energy.advised != 1 else ''}"
    basis_words = f"{energy.left} unchanged" if energy.basis == "holdout" else "the prediction"
    words = change_words(energy.change, time.change if time is not None else 0.0)
    return f"measured on {jobs} against {basis_words}: {words}"
