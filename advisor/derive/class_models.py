"""Models of applications never swept, and what they follow from.

A workload with a signature on a node type, and no model there, gets one named ``class``, for each
group of jobs that may see the signature: by the prior that follows from the models which the group
sees on that node type. With 100 swept applications a prior takes 0.7 s to learn. Numpy is loaded
only where there is one to make.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.observation import Quality
from advisor.core.option import Option, Row, pack_options
from advisor.core.signature import Signature
from advisor.derive.change import Change, retire, save
from advisor.derive.node_classes import classifier
from advisor.errors import AdvisorError
from advisor.prior import FEWEST_APPLICATIONS
from advisor.store.reader import Reader, of_job
from advisor.store.records import CLASS, StoredModel
from advisor.store.signature_groups import (
    RECENT,
    JobGroup,
    Named,
    WorkloadGroup,
    group_of,
    mean_signature,
    seen_by,
    tpi_release,
)
from advisor.store.signatures import StoredSignature, signatures
from advisor.store.trials import StoredTrial, trials_of

if TYPE_CHECKING:
    from advisor.classes.classify import Classification, Classifier
    from advisor.prior.fit import Learned
    from advisor.prior.predicted_options import TriedPoint
    from advisor.prior.surface import WorkloadSurface

log = logging.getLogger("advisor.store")

POINTS = 100
"""At most so many points are predicted."""
_CURRENT = """
    SELECT m.id, m.name, m.node_type, w.application, w.name FROM models AS m
    JOIN workloads AS w ON w.id = m.workload_id
    WHERE m.state <> 'replaced' AND m.name <> 'sizes' ORDER BY m.id"""
_NODE_TYPES = """
    SELECT m.node_type, CASE m.name WHEN 'class' THEN 0 ELSE 1 END FROM models AS m
    JOIN workloads AS w ON w.id = m.workload_id
    WHERE w.application = ? AND w.name = ? AND m.name <> 'transfer'
    UNION SELECT s.node_type, 0 FROM signatures AS s JOIN workloads AS w ON w.id = s.workload_id
    WHERE w.application = ? AND w.name = ?"""
_SIGNED = """
    SELECT DISTINCT s.node_type, w.application, w.name, s.scope,
        CASE s.scope WHEN 'all' THEN '' WHEN 'account' THEN s.account ELSE s.contributor END
    FROM signatures AS s JOIN workloads AS w ON w.id = s.workload_id
    UNION SELECT m.node_type, w.application, w.name, m.scope, m.owner
    FROM models AS m JOIN workloads AS w ON w.id = m.workload_id
    WHERE m.name = 'class' AND m.state <> 'replaced' ORDER BY 2, 3, 4, 5"""
_NOT_INTENSIVE = ("time_s", "memory_mb")


def taught(reader: Reader, lessons: Collection[Named]) -> list[WorkloadGroup]:
    """Return the class models that may follow from workloads, whose models or signatures changed.

    A swept workload teaches all others on its node types; any other one only its own models.
    """
    signed = reader.rows(_SIGNED)
    if not signed:
        return []
    inventory = reader.inventory()
    pupils: defaultdict[NodeType | None, set[WorkloadGroup]] = defaultdict(set)
    for node_type, application, workload, *whose in signed:
        pupils[inventory.resolve(node_type)].add(((application, workload), (whose[0], whose[1])))
    groups: set[WorkloadGroup] = set()
    for named in lessons:
        for name, swept in reader.rows(_NODE_TYPES, (*named, *named)):
            if (node_type := inventory.resolve(name)) is None:
                continue
            if swept:
                groups |= pupils.pop(node_type, set())
            else:
                groups |= {group for group in pupils.get(node_type, ()) if group[0] == named}
    return sorted(groups)


class ModelsByClass:
    """The class models of some workloads on all node types, as a reader sees them now."""

    def __init__(self, reader: Reader, workloads: Collection[Named]) -> None:
        self._reader = reader
        self._workloads = frozenset(workloads)
        self._inventory = reader.inventory()
        self._places: dict[str, _NodeType] = {}

    def changes(self, group: WorkloadGroup) -> list[Change]:
        """Return what makes, renews or retires a workload's class models for a group of jobs."""
        named, _ = group
        names = {name for name, _ in self._reader.rows(_NODE_TYPES, (*named, *named))}
        types = {t.name: t for name in names if (t := self._inventory.resolve(name)) is not None}
        return [
            change for name, t in sorted(types.items()) for change in self._place(t).changes(group)
        ]

    def _place(self, node_type: NodeType) -> _NodeType:
        if node_type.name not in self._places:
            place = _NodeType(self._reader, node_type, self._inventory)
            place.look(self._workloads)
            self._places[node_type.name] = place
        return self._places[node_type.name]


@dataclass(slots=True)
class _NodeType:
    """All that is known on one node type, and its class models."""

    reader: Reader
    node_type: NodeType
    inventory: Inventory
    models: list[StoredModel] = field(default_factory=list)
    signatures: dict[Named, list[StoredSignature]] = field(default_factory=dict)
    learned: dict[object, Learned] = field(default_factory=dict)
    known: dict[JobGroup, list[StoredModel]] = field(default_factory=dict)
    rows: dict[int, list[Row]] = field(default_factory=dict)
    grids: dict[JobGroup, frozenset[tuple[int, int]]] = field(default_factory=dict)
    surfaces: dict[object, list[tuple[WorkloadSurface, int]]] = field(default_factory=dict)
    shapes: dict[int, tuple[WorkloadSurface, int] | None] = field(default_factory=dict)
    classes: tuple[Classifier | None] | None = None
    broken: str = ""
    """What is wrong with the files of classes."""

    def changes(self, group: WorkloadGroup) -> list[Change]:
        """Return what brings one class model in step."""
        named, whose = group
        old = next((m for key, m in self._by_class() if key == group), None)
        stored = [s.signature for s in self.signatures.get(named, ())]
        if stored and not self._is_swept(named, whose):
            model = self._class_model(group, stored, old)
            if model is not None:
                return [save(model)] if model else []
        return [] if old is None else [retire(old.id)]

    def look(self, only: Collection[Named]) -> None:
        """Read what class models of some workloads follow from."""
        type_name = self.node_type.name
        current = self.reader.rows(_CURRENT)
        type_names = {name for name in {row[2] for row in current} if self._name(name) == type_name}
        ids = [
            i
            for i, name, node_type, *key in current
            if node_type in type_names and (name != CLASS or tuple(key) in only)
        ]
        self.models = list(self.reader.models(ids))
        swept = {(m.application, m.workload) for m in self.models if m.fitted}
        by_workload: defaultdict[Named, list[StoredSignature]] = defaultdict(list)
        for s in (s for named in {*only, *swept} for s in signatures(self.reader, *named)):
            place = s.signature.configuration
            if place is not None and self._name(place.node_type) == type_name:
                by_workload[s.application, s.workload].append(s)
        self.signatures = dict(by_workload)

    def _by_class(self) -> Iterable[tuple[WorkloadGroup, StoredModel]]:
        for m in self.models:
            if m.by_class:
                yield ((m.application, m.workload), (m.scope, m.owner)), m

    def _name(self, node_type: str) -> str:
        resolved_type = self.inventory.resolve(node_type)
        return resolved_type.name if resolved_type else node_type

    def _is_swept(self, key: Named, group: JobGroup) -> bool:
        return any(
            (m.application, m.workload) == key and _is_visible(m, group)
            for m in self.models
            if m.fitted
        )

    def _class_model(
        self,
        key: WorkloadGroup,
        stored: Sequence[Signature],
        old: StoredModel | None,
    ) -> Mapping[str, Any] | None:
        """Return a workload's class model to store, {} where it is stored, None where none is."""
        (application, workload), (scope, owner) = key
        visible_signatures = self._as_written(
            [s for s in stored if seen_by(group_of(s), (scope, owner))]
        )
        if not any(group_of(s) == (scope, owner) for s in visible_signatures):
            return None  # what all may use makes the model for all
        measures = mean_signature(visible_signatures)
        configuration = visible_signatures[0].configuration
        if measures is None or configuration is None or not {"time_s", "power_w"} <= set(measures):
            return None
        # Learning would say so, too, but load numpy for it.
        if len({m.application for m in self._swept_models((scope, owner))}) < FEWEST_APPLICATIONS:
            return None
        try:
            learned = self._learn(
                configuration, measures, tpi_release(visible_signatures), (scope, owner)
            )
            tried = trials_of(
                self.reader, (application, workload, self.node_type.name, scope, owner)
            )
            options, stats = self._options(
                learned, configuration, measures, visible_signatures[0], tried, old
            )
            cold = stats["cold_start"]
            taught = self.surfaces[(scope, owner), tpi_release(visible_signatures)]
            cold["of_class"] = len({s.application for s, _ in taught if s.label == cold["class"]})
        except (ValueError, ArithmeticError, AdvisorError):  # nothing can be predicted of it
            return None
        if old is not None and (
            old.state == "suspended"
            or (old.cold_start == stats["cold_start"] and old.options_blob == pack_options(options))
        ):
            return {}
        return {
            "application": application,
            "workload": workload,
            "node_type": self.node_type.name,
            "scope": scope,
            "owner": owner,
            "name": CLASS,
            "energy_quality": self._quality((scope, owner)),
            "n_train": 0,
            "stats": stats,
            "options": options,
        }

    def _as_written(self, stored: Sequence[Signature]) -> list[Signature]:
        """Return the newest signatures of jobs that no decision changed."""
        recent: list[Signature] = []
        for s in stored:
            job = s.job_id.split(".")[0]
            condition, values = of_job(job, s.cluster)
            sql = f"SELECT 1 FROM decisions WHERE {condition} AND job_id <> '' AND changed = 1"
            if not (job and self.reader.rows(sql, values)):
                recent.append(s)
            if len(recent) == RECENT:
                break
        return recent

    def _classify(self, newest: Signature, measures: Mapping[str, Any]) -> Classification | None:
        if self.classes is None:
            classifier_there = classifier(self.reader, self.node_type.name, self.inventory)
            if classifier_there is not None and classifier_there.setup.files.problems:
                self.broken = "; ".join(classifier_there.setup.files.problems)
                log.warning(
                    "event=class-files-broken node_type=%s error=%r; classes stay as they were",
                    self.node_type.name,
                    self.broken,
                )
            self.classes = (classifier_there,)
        type_classifier = self.classes[0]
        return type_classifier.classify(replace(newest, **measures)) if type_classifier else None

    def _label(self, stored: Sequence[Signature], measures: Mapping[str, float]) -> str:
        """Return the class of a signature for the prior, "" where it is not known."""
        classification = self._classify(stored[0], measures) if stored else None
        if self.broken:
            return ""
        return classification.name if classification and classification.name != "unknown" else ""

    def _quality(self, group: JobGroup) -> Quality:
        """Return ``measured`` where the energies of all that was swept are."""
        qualities = {m.energy_quality for m in self._swept_models(group)}
        return "measured" if qualities <= {"measured"} else "estimated"

    def _learn(
        self,
        configuration: Configuration,
        measures: Mapping[str, float],
        release: str | None,
        group: JobGroup,
    ) -> Learned:
        """Return what the swept applications teach of an own point. Raises PriorError."""
        import numpy as np

        from advisor.prior.fit import MOST, learn, like_and_others

        names = frozenset(measures) - set(_NOT_INTENSIVE)
        key: tuple[object, ...] = (
            configuration.ranks_per_node,
            configuration.threads_per_node,
            configuration.freq_khz,
            names,
            release,
            group,
            # of so many only those like the signature teach, so each signature learns something
            # else
            *(sorted(measures.items()) if len(self._swept_models(group)) > MOST else ()),
        )
        if key not in self.learned:
            own_point = np.array(self.place(configuration.threads_per_node, configuration.freq_khz))
            every_surface = list(self._surfaces(group, own_point, release))
            surfaces = like_and_others(every_surface, names, measures)
            points = np.array([self.place(t, f) for t, f in self._points(configuration, group)])
            self.learned[key] = learn(surfaces, names, points.reshape(-1, 2), own_point)
        return self.learned[key]

    def place(self, threads: int, freq_khz: int) -> tuple[float, float]:
        """Return the logarithms of the shares of the cores and of the nominal frequency."""
        t = self.node_type
        nominal = t.default_freq_khz or max(t.freq_khz, default=0) or freq_khz or 1
        return math.log(threads / t.cores), math.log((freq_khz or nominal) / nominal)

    def _swept_models(self, group: JobGroup) -> Sequence[StoredModel]:
        """Return the models a group sees that were fitted here, its own ones first."""
        if group not in self.known:
            self.known[group] = list(self._find_swept_models(group))
        return self.known[group]

    def _find_swept_models(self, group: JobGroup) -> Iterable[StoredModel]:
        order = sorted(self.models, key=lambda m: m.scope == "all")
        workloads: set[Named] = set()
        for m in order:
            workload = (m.application, m.workload)
            if (
                m.fitted
                and m.state == "fitted"
                and _is_visible(m, group)
                and workload not in workloads
            ):
                workloads.add(workload)
                yield m

    def _points(self, configuration: Configuration, group: JobGroup) -> list[tuple[int, int]]:
        """Return threads and frequencies with the job's ranks that swept models know."""
        some = self._grid(group)
        ranks, most = configuration.ranks_per_node, configuration.threads_per_node
        thread_steps = sorted(
            {t for t, _ in some if ranks <= t <= most and t % ranks == 0} | {most}
        )
        freq_steps = sorted({f for _, f in some} | {configuration.freq_khz})
        while len(thread_steps) * len(freq_steps) > POINTS:
            longer = thread_steps if len(thread_steps) >= len(freq_steps) else freq_steps
            # Every second one goes, but the ends stay.
            del longer[1:-1:2]
        return sorted(
            {(t, f) for t in thread_steps for f in freq_steps} | {(most, configuration.freq_khz)}
        )

    def _grid(self, group: JobGroup) -> frozenset[tuple[int, int]]:
        """Return the threads and frequencies of all that is known to a group."""
        if group not in self.grids:
            rows = (row for model in self._swept_models(group) for row in self._rows(model))
            self.grids[group] = frozenset((r.threads_per_node, r.freq_khz) for r in rows)
        return self.grids[group]

    def _rows(self, model: StoredModel) -> list[Row]:
        if model.id not in self.rows:
            self.rows[model.id] = model.rows()
        return self.rows[model.id]

    def _surfaces(
        self, group: JobGroup, own_point: Any, release: str | None
    ) -> Iterable[WorkloadSurface]:
        """Return the surfaces of what was swept; a power that no run tells is the surface's own."""
        import numpy as np

        key = group, release
        if key not in self.surfaces:
            self.surfaces[key] = list(self._find_surfaces(group, release))
        for surface, nodes in self.surfaces[key]:
            if "power_w" in surface.signature:
                yield surface
                continue
            near = int(np.argmin(np.abs(surface.points - own_point).sum(axis=1)))
            power_w = float(np.exp(surface.ln_energy[near] - surface.ln_time[near]) / nodes)
            yield surface.known_by({**surface.signature, "power_w": power_w})

    def _find_surfaces(
        self, group: JobGroup, release: str | None
    ) -> Iterable[tuple[WorkloadSurface, int]]:
        """Return the surfaces of what was swept, with the signatures known, and their nodes."""
        from advisor.prior.surface import surface_of

        for m in self._swept_models(group):
            if m.id not in self.shapes:
                self.shapes[m.id] = surface_of(m.application, self._rows(m), self.place)
            shape = self.shapes[m.id]
            if shape is None:
                continue
            surface, least = shape
            stored = self.signatures.get((m.application, m.workload), [])
            visible = [s.signature for s in stored if seen_by(group_of(s.signature), group)]
            measures = dict(mean_signature(visible) or {})
            if tpi_release(visible) != release:
                measures.pop("tpi", None)
            label = self._label(visible, measures)
            yield surface.known_by(measures, label), least

    def _options(
        self,
        learned: Learned,
        configuration: Configuration,
        measures: Mapping[str, float],
        newest: Signature,
        trials: Sequence[StoredTrial],
        old: StoredModel | None,
    ) -> tuple[tuple[Option, ...], dict[str, Any]]:
        """Return the options of a workload, and what its model says of itself."""
        from advisor.prior.predicted_options import options

        classification = self._classify(newest, measures)
        name, strategy = (
            (classification.name, classification.strategy) if classification else ("unknown", "")
        )
        if self.broken and old is not None:  # the last good state
            name, strategy = (str(old.cold_start.get(k) or "") for k in ("class", "strategy"))
        intensive = {k: v for k, v in measures.items() if k not in _NOT_INTENSIVE}
        prior = learned.prior(intensive, "" if name == "unknown" else name)
        tried = [
            _tried_point(t, configuration) for t in trials if _same_place(t.own, configuration)
        ]
        predicted = options(
            prior, configuration, self.node_type, measures["time_s"], measures["power_w"], tried
        )
        class_options = predicted.options
        cold = {
            "class": name,
            "strategy": strategy,
            "method": prior.way.method,
            "applications": prior.applications,
            "like": list(prior.like),
            "kernels": prior.kernels,
            "own": configuration.to_dict(),
            "signature": {k: round(v, 6) for k, v in sorted(measures.items())},
            "scores": {k: round(v, 4) for k, v in prior.scores.items()},
            "trials": [t.summary() for t in trials],
            "unlike": predicted.unlike,
            "trial_points": predicted.trial_points.to_dict(),
        }
        return class_options, {
            "cold_start": cold,
            "method": "",
            "error": 0.05,
            "options": len(class_options),
            "measured": sum(o.measured for o in class_options),
            "confirmed": sum(o.confirmed for o in class_options),
            "zone": sum(o.in_zone for o in class_options),
            "front": sum(o.on_front for o in class_options),
            "runs": 0,
            "notes": [],
        }


def _is_visible(model: StoredModel, group: JobGroup) -> bool:
    return seen_by((model.scope, model.owner), group)


def _same_place(one: Configuration, other: Configuration) -> bool:
    return replace(one, node_type=other.node_type) == other


def _tried_point(trial: StoredTrial, configuration: Configuration) -> TriedPoint:
    """Return what a trial against the same own point says."""
    from advisor.prior.predicted_options import TriedPoint

    measured = None
    if trial.time_s and trial.energy_j:
        time, energy = trial.time_s / trial.own_time_s, trial.energy_j / trial.own_energy_j
        measured = math.log(time), math.log(energy), trial.error
    where = replace(trial.point, node_type=configuration.node_type)
    return TriedPoint(where, measured, trial.state == "confirmed")
