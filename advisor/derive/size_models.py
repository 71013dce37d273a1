"""Models of families of sizes, and what they follow from.

Workloads that differ in their numbers only are sizes of one family (core/parameters.py). A family
with enough sizes on a node type gets a model named ``sizes``, for each group of jobs that may see
its runs: what the options of its largest measured size take at other sizes. Its fit takes seconds;
one that does not follow any more is taken out of use before. Numpy is loaded only where there is
one to make.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from advisor.core.count_laws import CountLaws
from advisor.core.observation import Observation, Quality, Scope
from advisor.core.option import Option
from advisor.core.parameters import ParameterLine
from advisor.core.size_table import FEWEST_SIZES, NODES
from advisor.core.thread_use import filled_by_all
from advisor.derive.change import Change, retire, save
from advisor.errors import AdvisorError
from advisor.store.count_laws import count_laws
from advisor.store.families import PREFIX, line_of
from advisor.store.reader import Reader
from advisor.store.records import SIZES, StoredModel, StoredObservation
from advisor.store.transaction import StoreTransaction

if TYPE_CHECKING:
    from advisor.models.runs import ScopedRuns
    from advisor.scaling.tabled import FamilyTable

_FEWEST_JOBS = 3
"""Finished jobs that show how a size runs."""
_AS_LONG = 0.9
"""A size that takes this share of the longest is as large: the two differ in a seed, perhaps."""
_SharedBy = tuple[str, Scope, str]


@dataclass(frozen=True, slots=True)
class _FitInputs:
    """What a family's model is made from; ``digest`` tells whether that is still so."""

    digest: str
    runs: Sequence[tuple[str, Observation]]
    largest: StoredModel
    options: Sequence[Option]
    laws: CountLaws | None


@dataclass(slots=True)
class FamilyModels:
    """One family of an application: its runs and models on every node type, as a reader sees them.

    ``outdated`` comes first; ``changes`` takes seconds.
    """

    reader: Reader
    application: str
    name: str
    _lacking: dict[_SharedBy, _FitInputs] = field(default_factory=dict)

    def outdated(self) -> list[Change]:
        """Return what takes models out of use that do not follow from the runs any more."""
        old = self._stored_models()
        inputs_by_key = self._all_fit_inputs(old)
        alike = {
            key
            for key, model in old.items()
            if key in inputs_by_key and inputs_by_key[key].digest == _follows_from(model)
        }
        self._lacking = {
            key: fit_inputs for key, fit_inputs in inputs_by_key.items() if key not in alike
        }
        return [
            retire(model.id, "what it followed from changed")
            for key, model in old.items()
            if key not in alike
        ]

    def changes(self) -> list[Change]:
        """Fit the models that there should be and are not; return what stores them."""
        return [
            change
            for key, fit_inputs in self._lacking.items()
            for change in self._fitted_model(key, fit_inputs)
        ]

    def _stored_models(self) -> dict[_SharedBy, StoredModel]:
        return {
            (m.node_type, m.scope, m.owner): m
            for m in self.reader.size_models(self.application)
            if m.workload == PREFIX + self.name
        }

    def _all_fit_inputs(self, old: Collection[_SharedBy]) -> dict[_SharedBy, _FitInputs]:
        """Return what there should be models of, and from what."""
        names = {
            w: line
            for (w,) in self.reader.rows(
                "SELECT name FROM workloads WHERE application = ? AND id IN"
                " (SELECT workload_id FROM observations)",
                (self.application,),
            )
            if (line := line_of(w)) is not None and line.family == self.name
        }
        inputs_by_key: dict[_SharedBy, _FitInputs] = {}
        if names and (old or len(names) >= FEWEST_SIZES or self._many_nodes(names)):
            stored = [s for w in names for s in self.reader.observations(self.application, w)]
            by_type: defaultdict[str, list[StoredObservation]] = defaultdict(list)
            for s in sorted(stored, key=lambda s: s.id):
                by_type[s.observation.configuration.node_type].append(s)
            for node_type, type_runs in by_type.items():
                if _has_enough_values(type_runs, names):
                    inputs_by_key |= self._fit_inputs_on(node_type, type_runs)
        return inputs_by_key

    def _many_nodes(self, names: Iterable[str]) -> bool:
        sql = (
            "SELECT count(DISTINCT o.nodes) FROM observations AS o JOIN workloads AS w"
            " ON w.id = o.workload_id WHERE w.application = ? AND w.name = ?"
        )
        return any(
            self.reader.rows(sql, (self.application, w))[0][0] >= FEWEST_SIZES for w in names
        )

    def _fit_inputs_on(
        self, node_type: str, stored: Sequence[StoredObservation]
    ) -> dict[_SharedBy, _FitInputs]:
        from advisor.models.runs import runs_by_scope

        inputs_by_key: dict[_SharedBy, _FitInputs] = {}
        everybody: list[object] = []
        workload = {id(s.observation): s.workload for s in stored}
        number = {id(s.observation): s.id for s in stored}
        laws = count_laws(self.reader, self.application)
        for group in runs_by_scope([s.observation for s in stored]):
            group_runs = [(workload[id(o)], o) for o in group.observations]
            counted = _counted(group_runs, number)
            # Who sees no more runs than everybody uses everybody's model.
            if counted == everybody:
                continue
            everybody = counted if group.scope == "all" else everybody
            largest_there = self._largest(node_type, group, group_runs)
            if largest_there is None:
                continue
            largest, confirms = largest_there
            options = [
                replace(o, confirmed=o.confirmed and confirms) for o in largest.written_options()
            ]
            key: _SharedBy = (node_type, group.scope, group.owner)
            digest = _digest(counted, largest, options, laws)
            inputs_by_key[key] = _FitInputs(digest, group_runs, largest, options, laws)
        return inputs_by_key

    def _largest(
        self,
        node_type: str,
        group: ScopedRuns,
        runs: Sequence[tuple[str, Observation]],
    ) -> tuple[StoredModel, bool] | None:
        """Return the model of the largest measured size that has one which the group sees.

        The largest takes longest. Where a larger one has no model, nothing is confirmed.
        """
        longest: dict[str, tuple[Any, ...]] = {}
        for w, run in runs:
            if run.source != "job":
                c = run.configuration
                axes = c.nodes, c.threads_per_node, c.ranks_per_node, c.freq_khz, c.extra
                longest[w] = max(longest.get(w, ()), (*axes, run.time_s))
        order = sorted(longest, key=lambda w: longest[w][-1], reverse=True)
        rank = {"own": 2, "account": 1, "all": 0}
        for w in order:
            at_largest = [
                m
                for m in self.reader.find_models(self.application, w, node_type)
                if m.fitted and (m.scope == "all" or (m.scope, m.owner) == _group_key(group))
            ]
            if at_largest:
                alike = longest[w][-1] >= _AS_LONG * longest[order[0]][-1]
                return max(at_largest, key=lambda m: rank[m.scope]), alike
        return None

    def _fitted_model(self, key: _SharedBy, fit_inputs: _FitInputs) -> list[Change]:
        """Fit one model; nothing where its runs do not suffice."""
        from advisor.models.runs import of_one_method

        runs, largest = fit_inputs.runs, fit_inputs.largest
        quality: Quality = largest.energy_quality
        notes: list[str] = []
        usable = {id(o) for o in of_one_method([o for _, o in runs], notes)[0]}
        if quality != "missing":
            usable -= {id(o) for _, o in runs if o.energy_j is None or o.energy_quality != quality}
        if any(o.fom for _, o in runs):  # runs of one size may differ in length
            return []
        usable_runs = [(w, o) for w, o in runs if id(o) in usable]
        try:
            family_table = _table(usable_runs, fit_inputs.options, fit_inputs.laws)
        except AdvisorError:  # too few of them: what they came from is stored nevertheless
            return []
        if family_table is None:
            return []
        node_type, scope, owner = key
        carried = ("method", "error", "program")
        model = {
            "application": self.application,
            "workload": PREFIX + self.name,
            "node_type": node_type,
            "scope": scope,
            "owner": owner,
            "name": SIZES,
            "energy_quality": quality,
            "n_train": len(usable_runs),
            "stats": {
                "sizes": {
                    **family_table.about,
                    "notes": [*notes, *family_table.about["notes"]],
                    "largest": largest.workload,
                    "follows_from": fit_inputs.digest,
                },
                **{k: largest.stats[k] for k in carried if k in largest.stats},
                "options": len(family_table.options),
                "measured": 0,
                "confirmed": sum(o.confirmed for o in family_table.options),
                "zone": 0,
                "front": 0,
                "runs": len(usable_runs),
                "threads_unset": [list(shape) for shape in filled_by_all(usable_runs)],
                "notes": [],
            },
            "options": family_table.options,
            "sizes": b"" if family_table.table is None else family_table.table.pack(),
        }
        return [save(model), self._hide_family]

    def _hide_family(self, writer: StoreTransaction) -> None:
        """Hide a family's name, which is nobody's workload: lists do not show it."""
        writer.change(
            "UPDATE workloads SET hidden = 1 WHERE application = ? AND name = ?",
            (self.application, PREFIX + self.name),
        )


def _table(
    runs: Sequence[tuple[str, Observation]], options: Sequence[Option], laws: CountLaws | None
) -> FamilyTable | None:
    import numpy as np

    from advisor.scaling.family import families
    from advisor.scaling.tabled import family_table

    measured = families([(w, o) for w, o in runs if o.source != "job"])
    jobs = families([(w, o) for w, o in runs if o.source == "job"])
    if not measured:
        return None
    family = next(iter(measured.values()))
    try:
        return family_table(family, jobs.get(family.name), options, laws)
    except np.linalg.LinAlgError:
        return None


def _has_enough_values(
    stored: Sequence[StoredObservation], names: dict[str, ParameterLine]
) -> bool:
    """Tell whether a node type's measured runs have three values of anything that may grow."""
    values: defaultdict[str, set[float]] = defaultdict(set)
    for s in stored:
        if s.observation.source != "job":
            values[NODES].add(s.observation.configuration.nodes)
            for name, value in names[s.workload].values:
                values[name].add(value)
    return any(len(v) >= FEWEST_SIZES for v in values.values())


def _group_key(group: ScopedRuns) -> tuple[Scope, str]:
    return group.scope, group.owner


def _counted(runs: Sequence[tuple[str, Observation]], number: dict[int, int]) -> list[object]:
    """Return the measured runs, and the sizes that enough finished jobs ran.

    So a family is not fitted again for every job.
    """
    jobs = Counter((w, o.configuration) for w, o in runs if o.source == "job")
    measured = [number[id(o)] for _, o in runs if o.source != "job"]
    sizes = {w for w, o in runs if o.source != "job"}
    return [
        *measured,
        *sorted(k for k, n in jobs.items() if n >= _FEWEST_JOBS and k[0] not in sizes),
    ]


def _follows_from(model: StoredModel) -> object:
    return model.about_sizes.get("follows_from")


def _digest(
    runs: Sequence[object], largest: StoredModel, options: Sequence[Option], laws: CountLaws | None
) -> str:
    """Return what differs as soon as a family's model may come out differently."""
    option_keys = [(o.configuration.to_dict(), o.confirmed, o.in_zone) for o in options]
    about = largest.workload, largest.energy_quality, largest.stats.get("program")
    follows_from = (runs, about, option_keys, *([laws] if laws is not None else []))
    return hashlib.sha256(repr(follows_from).encode()).hexdigest()[:16]
