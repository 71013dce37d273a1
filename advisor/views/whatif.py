"""What another policy would do: every known workload decided again, by the daemon's own rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Literal

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.option import as_written, packed_points, pick_packed
from advisor.core.policy import Goal, PolicySet
from advisor.core.request import JobRequest
from advisor.core.units import format_count
from advisor.core.words import change_words, difference_words
from advisor.core.worth import Tariff
from advisor.service.snapshot import Snapshot
from advisor.store.families import line_of
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.views.options import size
from advisor.views.preview import AskingJob, Person, preview, sample_job, site_for_preview
from advisor.views.worth import Month, Worth, of_decision, runs_of_month

_JobKey = tuple[str, str, str]
"""Application, workload and node type."""
ChangeKind = Literal["same", "gained", "lost", "moved"]


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """What a workload would run at under a policy. Fractions against the baseline."""

    configuration: Configuration
    energy: float
    time: float
    saved_j: float = 0.0
    saved_node_hours: float = 0.0
    """What a run takes less than as written."""


@dataclass(frozen=True, slots=True)
class JobCase:
    """One model's workload, whose jobs it advises, and the job as written.

    ``runs`` is how many of its jobs there were in the last 30 days, None where that is not known.
    """

    application: str
    workload: str
    person: Person
    baseline: Configuration
    model_id: int
    now: PolicyOutcome | None = None
    runs: int | None = None
    request: JobRequest | None = None
    """Such a job, None on a node type that is not in the inventory."""

    @property
    def asks(self) -> AskingJob:
        """What such a job is made of."""
        return AskingJob(self.application, self.workload, self.baseline, self.person)


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """A workload under the applied policy and under the other one."""

    case: JobCase
    then: PolicyOutcome | None

    @property
    def kind(self) -> ChangeKind:
        """How the two differ."""
        present_choice, tried_choice = self.case.now, self.then
        if present_choice is None or tried_choice is None:
            return (
                "same"
                if present_choice is tried_choice
                else "gained"
                if present_choice is None
                else "lost"
            )
        return "same" if present_choice.configuration == tried_choice.configuration else "moved"

    def words(self, choice: PolicyOutcome | None) -> str:
        """Say what a choice does to its jobs."""
        if choice is None:
            return "as submitted"
        return change_words(choice.energy, choice.time, brief=True)

    @property
    def where(self) -> str:
        """Name the point they would run at, "" where nothing would be changed."""
        return self._place_words(self.then)

    @property
    def sentences(self) -> tuple[str, str]:
        """Say whose jobs these are, and where they run today and would then."""
        case = self.case
        user, account = case.person.name, case.person.account
        whose = f", jobs of {user}" if user else f", jobs of account {account}" if account else ""
        today, tried_place = (self._place_words(c) or "as submitted" for c in (case.now, self.then))
        changed = (
            f"today {today}; then {tried_place}"
            if today != tried_place
            else f"today and then {today}"
        )
        return f"{case.application} / {case.workload} on {case.baseline.node_type}{whose}", changed

    def _place_words(self, choice: PolicyOutcome | None) -> str:
        return "" if choice is None else difference_words(self.case.baseline, choice.configuration)


@dataclass(frozen=True, slots=True)
class Sum:
    """All workloads together: how many are changed, and the mean of what it does to them."""

    workloads: int
    advised: int
    energy: float
    time: float


_ORDER: dict[ChangeKind, int] = {"lost": 0, "gained": 1, "moved": 2, "same": 3}


def in_order(changes: Sequence[DecisionChange]) -> list[DecisionChange]:
    """Return changes with what differs first, in the order of their names otherwise."""
    return sorted(changes, key=lambda c: (_ORDER[c.kind], c.case.application, c.case.workload))


def sum_words(total: Sum) -> str:
    """Say what a policy does to all workloads together."""
    if not total.workloads:
        return "no workload has a model yet"
    words = change_words(total.energy, total.time)
    return f"{total.advised} of {total.workloads} models advise; all together {words}"


def worth_words(whatif: WhatIf, changes: Sequence[DecisionChange]) -> str:
    """Say what another policy saves more, or less, in the runs of 30 days; "" without runs."""
    energy_j = hours = 0.0
    runs = 0
    for change in changes:
        number = change.case.runs or 0
        runs += number
        for outcome, sign in ((change.then, 1), (change.case.now, -1)):
            if outcome is not None:
                energy_j += sign * number * outcome.saved_j
                hours += sign * number * outcome.saved_node_hours
    if not runs:
        return ""
    less = energy_j < 0
    worth = Worth(abs(energy_j), -hours if less else hours, Month(whatif.tariff))
    words = worth.sentences()[0].removesuffix(" a run").removesuffix(", the same node-hours")
    return f"{format_count(runs, 'run')} {'take' if less else 'save'} {words} more"


def queues_words(changes: Sequence[DecisionChange]) -> str:
    """Say of how many workloads the other policy's choice holds only as far as queues permit.

    They are decided as if every node were idle; "" where none is on another node type.
    """
    moved_count = sum(
        c.then is not None and c.then.configuration.node_type != c.case.baseline.node_type
        for c in changes
    )
    return f"; {moved_count} change node type, queues permitting" if moved_count else ""


def summed(choices: Sequence[PolicyOutcome | None]) -> Sum:
    """Return the sum of choices: geometric means over all workloads, unchanged ones included."""
    advised_choices = [c for c in choices if c is not None]
    if not choices:
        return Sum(0, 0, 0.0, 0.0)

    def mean(values: Sequence[float]) -> float:
        return math.expm1(math.fsum(math.log1p(v) for v in values) / len(choices))

    return Sum(
        len(choices),
        len(advised_choices),
        mean([c.energy for c in advised_choices]),
        mean([c.time for c in advised_choices]),
    )


@dataclass(slots=True)
class WhatIf:
    """Every known workload, ready to be decided under another goal and slowdown bound."""

    policy: PolicySet
    snapshot: Snapshot
    cases: list[JobCase] = field(default_factory=list)
    tariff: Tariff = field(default_factory=Tariff)

    @classmethod
    def load(cls, reader: Reader, going_on: Callable[[], bool] = lambda: True) -> WhatIf:
        """Read every current model, keep what can be chosen, and decide under today's policy.

        Stops early, with what it has, when ``going_on`` says no.
        """
        snapshot = site_for_preview(reader)
        loaded = cls(snapshot.policy, snapshot, tariff=Tariff.of(reader.site()))
        runs = runs_of_month(reader)
        swept = reader.swept_baselines()
        for model in reader.models():
            if not going_on():
                break
            swept_baseline = swept.get((model.application, model.workload, model.node_type))
            pruned, baseline = prune(model, swept_baseline)
            if pruned is not None and baseline is not None:
                loaded.snapshot.models[model.id] = pruned
                if not model.transferred:  # no job is advised from there
                    loaded.cases.append(_case(pruned, baseline, runs))
        loaded.cases += _cases_of_sizes(loaded.snapshot, reader, runs, swept)
        loaded.snapshot.take(list(loaded.snapshot.models.values()))
        loaded.cases = [
            replace(c, request=sample_job(snapshot, c.asks)) for c in loaded.cases if going_on()
        ]
        choices = loaded._decide(loaded.policy, going_on)
        loaded.cases = [
            replace(c, now=present_choice)
            for c, present_choice in zip(loaded.cases, choices, strict=False)
        ]
        return loaded

    def under(
        self, goal: Goal, max_slowdown: float, going_on: Callable[[], bool] = lambda: True
    ) -> list[DecisionChange]:
        """Return every workload under the applied policy with another goal and bound.

        Rules that set their own keep them. Stops early when ``going_on`` says no.
        """
        base = replace(self.policy.base, goal=goal, max_slowdown=max_slowdown)
        if base == self.policy.base:
            return [DecisionChange(c, c.now) for c in self.cases]
        choices = self._decide(replace(self.policy, base=base), going_on)
        return [
            DecisionChange(c, tried_choice)
            for c, tried_choice in zip(self.cases, choices, strict=False)
        ]

    def _decide(
        self, policy: PolicySet, going_on: Callable[[], bool]
    ) -> list[PolicyOutcome | None]:
        self.snapshot.policy = policy.with_idle_nodes()
        outcomes: list[PolicyOutcome | None] = []
        for case in self.cases:
            if not going_on():
                break
            decision = None
            if case.request is not None:
                decision = preview(self.snapshot, case.asks, request=case.request)
            outcomes.append(None if decision is None else _outcome(decision))
        return outcomes


def _cases_of_sizes(
    snapshot: Snapshot,
    reader: Reader,
    runs: Mapping[_JobKey, int],
    swept: Mapping[_JobKey, Configuration],
) -> list[JobCase]:
    """Return the cases of sizes that were never swept and that jobs of the last 30 days had.

    Their families' models join the snapshot.
    """
    cases = []
    modelled_workloads = {(m.application, m.workload) for m in snapshot.models.values() if m.fitted}
    families: dict[str, list[StoredModel]] = {}
    for application, workload, node_type in sorted(runs):
        line = line_of(workload)
        if line is None or not line.values or (application, workload) in modelled_workloads:
            continue
        if application not in families:
            families[application] = reader.size_models(application)
        for model in families[application]:
            if (model.about_sizes.get("family"), model.node_type) != (line.family, node_type):
                continue
            largest = str(model.about_sizes.get("largest"))
            _, baseline = prune(model, swept.get((application, largest, node_type)))
            if baseline is not None:
                snapshot.models[model.id] = model
                cases.append(_case(replace(model, workload=workload), baseline, runs))
    return cases


def _outcome(decision: Decision) -> PolicyOutcome | None:
    chosen = decision.chosen
    if chosen is None:
        return None
    worth = of_decision(decision, None, "")
    saved = (worth.energy_j, worth.node_hours) if worth is not None else (0.0, 0.0)
    return PolicyOutcome(chosen.configuration, chosen.energy.change, chosen.time.change, *saved)


def _case(model: StoredModel, baseline: Configuration, runs: Mapping[_JobKey, int]) -> JobCase:
    person = Person(
        model.owner if model.scope == "own" else "",
        account=model.owner if model.scope == "account" else "",
    )
    key = model.application, model.workload, model.node_type
    counted = runs.get(key) if model.scope == "all" else None  # each job once
    return JobCase(*key[:2], person, baseline, model.id, runs=counted)


def prune(
    model: StoredModel, swept_baseline: Configuration | None
) -> tuple[StoredModel | None, Configuration | None]:
    """Return a model with nothing but what a decision can choose, and its baseline.

    That is the baseline, the confirmed options, and one at the highest frequency (which stands
    for no cap). (None, None) for a model whose options cannot be read.
    """
    try:
        blob = as_written(model.options_blob)
        points = packed_points(blob)
    except ValueError:
        return None, None
    if not points:
        return None, None
    point = None
    if swept_baseline is not None:
        point = (
            swept_baseline.nodes,
            swept_baseline.ranks_per_node,
            swept_baseline.threads_per_node,
            swept_baseline.freq_khz,
        )
    base = points.index(point if point in points else max(points, key=size))
    top = points.index(max(points, key=itemgetter(3)))
    pruned = pick_packed(blob, (base, top))
    return replace(model, options_blob=pruned), Configuration(model.node_type, *points[base])
