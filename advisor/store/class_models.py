"""Keep models of applications never swept in step with what they follow from.

A workload with a signature on a node type, and no model there, gets one named ``class``, for each
group of jobs that may see the signature: by the prior that follows from the models which the group
sees on that node type. They are renewed in the transaction that changes one of these. Numpy is
loaded only where there is one to make.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.observation import Quality, Scope
from advisor.core.option import Option, Row, pack_options
from advisor.core.signature import Signature
from advisor.errors import AdvisorError
from advisor.store.reader import Reader
from advisor.store.records import CLASS, StoredModel
from advisor.store.signatures import StoredSignature, signatures
from advisor.store.transaction import StoreTransaction
from advisor.store.trials import StoredTrial, trials_of

if TYPE_CHECKING:
    from advisor.classes.classify import Classification, Classifier
    from advisor.prior.fit import Learned
    from advisor.prior.predicted_options import TriedPoint
    from advisor.prior.surface import WorkloadSurface

log = logging.getLogger("advisor.store")

RECENT = 10
"""So many of the newest runs make a signature."""
POINTS = 100
"""At most so many points are predicted."""
_NODE_TYPES = """
    SELECT m.node_type, 1 FROM models AS m JOIN workloads AS w ON w.id = m.workload_id
    WHERE w.application = ? AND w.name = ? AND m.name NOT IN ('class', 'transfer')
    UNION SELECT s.node_type, 0 FROM signatures AS s JOIN workloads AS w ON w.id = s.workload_id
    WHERE w.application = ? AND w.name = ?"""
_NOT_INTENSIVE = ("time_s", "memory_mb")

_Named = tuple[str, str]
_Group = tuple[Scope, str]


def renew(writer: StoreTransaction, touched: Collection[_Named]) -> None:
    """Make, renew or retire the class models that follow from what was touched.

    A swept workload teaches all others on its node types; any other one only its own model.
    """
    if not writer.rows("SELECT 1 FROM signatures LIMIT 1"):
        return
    inventory = writer.inventory()
    there: defaultdict[NodeType, dict[_Named, bool]] = defaultdict(dict)
    for key in touched:
        for name, swept in writer.rows(_NODE_TYPES, (*key, *key)):
            if node_type := inventory.resolve(name):
                there[node_type][key] = there[node_type].get(key, False) or bool(swept)
    for node_type, some in sorted(there.items(), key=lambda item: item[0].name):
        only = None if any(some.values()) else frozenset(some)
        _NodeType(writer, node_type, inventory).renew(only)


def classifier(reader: Reader, node_type: str, inventory: Inventory) -> Classifier | None:
    """Return what tells the classes of a node type, None where its files cannot be read."""
    from advisor.classes.classify import Classifier
    from advisor.classes.earconf import find_ear_conf, read_ear_conf
    from advisor.classes.setup import setup_of

    try:
        path = find_ear_conf()
        ear = read_ear_conf(path) if path else None
        return Classifier(
            setup_of(
                node_type, site=reader.site(), inventory=inventory, base=paths.config_dir(), ear=ear
            )
        )
    except (AdvisorError, OSError):
        return None


@dataclass(slots=True)
class _NodeType:
    """All that is known on one node type, and its class models."""

    writer: StoreTransaction
    node_type: NodeType
    inventory: Inventory
    models: list[StoredModel] = field(default_factory=list)
    signatures: dict[_Named, list[StoredSignature]] = field(default_factory=dict)
    learned: dict[object, Learned] = field(default_factory=dict)
    known: dict[_Group, list[StoredModel]] = field(default_factory=dict)
    rows: dict[int, list[Row]] = field(default_factory=dict)
    grids: dict[_Group, frozenset[tuple[int, int]]] = field(default_factory=dict)
    surfaces: dict[object, list[tuple[WorkloadSurface, int]]] = field(default_factory=dict)
    classes: tuple[Classifier | None] | None = None
    broken: str = ""
    """What is wrong with the files of classes."""

    def renew(self, only: Collection[_Named] | None) -> None:
        """Bring the class models of some workloads in step, of all for None."""
        mine = self.node_type.name
        for model in self.writer.models():
            if self._name(model.node_type) == mine:
                self.models.append(model)
        found: defaultdict[_Named, list[StoredSignature]] = defaultdict(list)
        for s in signatures(self.writer):
            place = s.signature.configuration
            if place is not None and self._name(place.node_type) == mine:
                found[s.application, s.workload].append(s)
        self.signatures = dict(found)
        old = {
            (m.application, m.workload, m.scope, m.owner): m
            for m in self.models
            if m.by_class and (only is None or (m.application, m.workload) in only)
        }
        kept = set()
        for (application, workload), stored in sorted(found.items()):
            if only is not None and (application, workload) not in only:
                continue
            for group in sorted({_group(s.signature) for s in stored}):
                if self._swept(application, workload, group):
                    continue
                key = (application, workload, *group)
                if self._make(key, [s.signature for s in stored], old.get(key)):
                    kept.add(key)
        for key, model in old.items():
            if key not in kept:
                self.writer.set_model_state(model.id, "replaced", "what it followed from is gone")

    def _name(self, node_type: str) -> str:
        known = self.inventory.resolve(node_type)
        return known.name if known else node_type

    def _swept(self, application: str, workload: str, group: _Group) -> bool:
        return any(
            (m.application, m.workload) == (application, workload) and _seen(m, group)
            for m in self.models
            if m.fitted
        )

    def _make(
        self,
        key: tuple[str, str, Scope, str],
        stored: Sequence[Signature],
        old: StoredModel | None,
    ) -> bool:
        """Save a workload's class model where it changed; tell whether there is one."""
        application, workload, scope, owner = key
        mine = self._as_written([s for s in stored if _seen_by(_group(s), (scope, owner))])
        if not any(_group(s) == (scope, owner) for s in mine):
            return False  # what all may use makes the model for all
        measures = mean_signature(mine)
        own = mine[0].configuration
        if measures is None or own is None or not {"time_s", "power_w"} <= set(measures):
            return False
        if len({m.application for m in self._known((scope, owner))}) < 3:
            return False
        try:
            learned = self._learn(own, measures, tpi_release(mine), (scope, owner))
            tried = trials_of(
                self.writer, (application, workload, self.node_type.name, scope, owner)
            )
            options, stats = self._options(learned, own, measures, mine[0], tried, old)
        except (ValueError, ArithmeticError, AdvisorError):  # nothing can be predicted of it
            return False
        if (
            old is not None
            and old.cold_start == stats["cold_start"]
            and old.options_blob == pack_options(options)
        ):
            return True
        if old is not None and old.state == "suspended":
            return True
        self.writer.save_model(
            application, workload, self.node_type.name, scope=scope, owner=owner, name=CLASS,
            energy_quality=self._quality((scope, owner)), n_train=0, stats=stats, options=options,
        )  # fmt: skip
        return True

    def _as_written(self, stored: Sequence[Signature]) -> list[Signature]:
        """Return the newest signatures of jobs that no decision changed."""
        found: list[Signature] = []
        for s in stored:
            job = s.job_id.split(".")[0]
            sql = "SELECT 1 FROM decisions WHERE job_id = ? AND job_id <> '' AND changed = 1"
            if not (job and self.writer.rows(sql, (job,))):
                found.append(s)
            if len(found) == RECENT:
                break
        return found

    def _classify(self, newest: Signature, measures: Mapping[str, Any]) -> Classification | None:
        if self.classes is None:
            found = classifier(self.writer, self.node_type.name, self.inventory)
            if found is not None and found.setup.files.problems:
                self.broken = "; ".join(found.setup.files.problems)
                log.warning("event=class-files-broken node_type=%s error=%r; classes stay as "
                            "they were", self.node_type.name, self.broken)  # fmt: skip
            self.classes = (found,)
        known = self.classes[0]
        return known.classify(replace(newest, **measures)) if known else None

    def _label(self, stored: Sequence[Signature], measures: Mapping[str, float]) -> str:
        """Return the class of a signature for the prior, "" where it is not known."""
        known = self._classify(stored[0], measures) if stored else None
        if self.broken:
            return ""
        return known.name if known and known.name != "unknown" else ""

    def _quality(self, group: _Group) -> Quality:
        """Return ``measured`` where the energies of all that was swept are."""
        known = {m.energy_quality for m in self._known(group)}
        return "measured" if known <= {"measured"} else "estimated"

    def _learn(
        self, own: Configuration, measures: Mapping[str, float], release: str | None, group: _Group
    ) -> Learned:
        """Return what the swept applications teach of an own point. Raises PriorError."""
        import numpy as np

        from advisor.prior.fit import learn

        names = frozenset(measures) - set(_NOT_INTENSIVE)
        key = (own.ranks_per_node, own.threads_per_node, own.freq_khz, names, release, group)
        if key not in self.learned:
            at = np.array(self.place(own.threads_per_node, own.freq_khz))
            known = list(self._surfaces(group, at, release))
            points = np.array([self.place(t, f) for t, f in self._points(own, group)])
            self.learned[key] = learn(known, names, points.reshape(-1, 2), at)
        return self.learned[key]

    def place(self, threads: int, freq_khz: int) -> tuple[float, float]:
        """Return the logarithms of the shares of the cores and of the nominal frequency."""
        t = self.node_type
        nominal = t.default_freq_khz or max(t.freq_khz, default=0) or freq_khz or 1
        return math.log(threads / t.cores), math.log((freq_khz or nominal) / nominal)

    def _known(self, group: _Group) -> Sequence[StoredModel]:
        """Return the models a group sees that were fitted here, its own ones first."""
        if group not in self.known:
            self.known[group] = list(self._find_known(group))
        return self.known[group]

    def _find_known(self, group: _Group) -> Iterable[StoredModel]:
        order = sorted(self.models, key=lambda m: m.scope == "all")
        seen: set[_Named] = set()
        for m in order:
            workload = (m.application, m.workload)
            if m.fitted and m.state == "fitted" and _seen(m, group) and workload not in seen:
                seen.add(workload)
                yield m

    def _points(self, own: Configuration, group: _Group) -> list[tuple[int, int]]:
        """Return threads and frequencies with the job's ranks that swept models know."""
        some = self._grid(group)
        ranks, most = own.ranks_per_node, own.threads_per_node
        each = sorted({t for t, _ in some if ranks <= t <= most and t % ranks == 0} | {most})
        steps = sorted({f for _, f in some} | {own.freq_khz})
        while len(each) * len(steps) > POINTS:
            longer = each if len(each) >= len(steps) else steps
            del longer[1:-1:2]
        return sorted({(t, f) for t in each for f in steps} | {(most, own.freq_khz)})

    def _grid(self, group: _Group) -> frozenset[tuple[int, int]]:
        """Return the threads and frequencies of all that is known to a group."""
        if group not in self.grids:
            rows = (row for model in self._known(group) for row in self._rows(model))
            self.grids[group] = frozenset((r.threads_per_node, r.freq_khz) for r in rows)
        return self.grids[group]

    def _rows(self, model: StoredModel) -> list[Row]:
        if model.id not in self.rows:
            self.rows[model.id] = model.rows()
        return self.rows[model.id]

    def _surfaces(self, group: _Group, at: Any, release: str | None) -> Iterable[WorkloadSurface]:
        """Return the surfaces of what was swept; a power that no run tells is the surface's own."""
        import numpy as np

        key = group, release
        if key not in self.surfaces:
            self.surfaces[key] = list(self._find_surfaces(group, release))
        for surface, nodes in self.surfaces[key]:
            if "power_w" in surface.signature:
                yield surface
                continue
            near = int(np.argmin(np.abs(surface.points - at).sum(axis=1)))
            power_w = float(np.exp(surface.ln_energy[near] - surface.ln_time[near]) / nodes)
            yield surface.known_by({**surface.signature, "power_w": power_w})

    def _find_surfaces(
        self, group: _Group, release: str | None
    ) -> Iterable[tuple[WorkloadSurface, int]]:
        """Return the surfaces of what was swept, with the signatures known, and their nodes."""
        import numpy as np

        from advisor.prior.surface import WorkloadSurface

        for m in self._known(group):
            rows = self._rows(m)
            least = min((r.nodes for r in rows), default=1)
            best: dict[tuple[int, int], Row] = {}
            for r in rows:
                key = r.threads_per_node, r.freq_khz
                if r.nodes == least and not math.isnan(r.energy_j):
                    best[key] = min(best.get(key, r), r, key=lambda x: x.time_s)
            if not best:
                continue
            points = np.array([self.place(*key) for key in best])
            time = np.array([r.log_time for r in best.values()])
            energy = np.array([r.log_energy for r in best.values()])
            stored = self.signatures.get((m.application, m.workload), [])
            visible = [s.signature for s in stored if _seen_by(_group(s.signature), group)]
            measures = dict(mean_signature(visible) or {})
            if tpi_release(visible) != release:
                measures.pop("tpi", None)
            label = self._label(visible, measures)
            surface = WorkloadSurface(m.application, measures, points, time, energy, label)
            yield surface, least

    def _options(
        self,
        learned: Learned,
        own: Configuration,
        measures: Mapping[str, float],
        newest: Signature,
        trials: Sequence[StoredTrial],
        old: StoredModel | None,
    ) -> tuple[tuple[Option, ...], dict[str, Any]]:
        """Return the options of a workload, and what its model says of itself."""
        from advisor.prior.predicted_options import options

        known = self._classify(newest, measures)
        name, strategy = (known.name, known.strategy) if known else ("unknown", "")
        if self.broken and old is not None:  # the last good state
            name, strategy = (str(old.cold_start.get(k) or "") for k in ("class", "strategy"))
        intensive = {k: v for k, v in measures.items() if k not in _NOT_INTENSIVE}
        prior = learned.prior(intensive, "" if name == "unknown" else name)
        tried = [_tried(t, own) for t in trials if _same_place(t.own, own)]
        predicted = options(
            prior, own, self.node_type, measures["time_s"], measures["power_w"], tried
        )
        made = predicted.options
        cold = {
            "class": name,
            "strategy": strategy,
            "method": prior.way.method,
            "applications": prior.applications,
            "like": list(prior.like),
            "kernels": prior.kernels,
            "own": own.to_dict(),
            "signature": {k: round(v, 6) for k, v in sorted(measures.items())},
            "scores": {k: round(v, 4) for k, v in prior.scores.items()},
            "trials": [_outcome(t) for t in trials],
            "unlike": predicted.unlike,
            "trial_points": predicted.trial_points.to_dict(),
        }
        return made, {
            "cold_start": cold,
            "method": "",
            "error": 0.05,
            "options": len(made),
            "measured": sum(o.measured for o in made),
            "confirmed": sum(o.confirmed for o in made),
            "zone": sum(o.in_zone for o in made),
            "front": sum(o.on_front for o in made),
            "runs": 0,
            "notes": [],
        }


def mean_signature(stored: Sequence[Signature]) -> dict[str, float] | None:
    """Return the mean measures of the newest runs at the newest one's configuration, if any."""
    if not stored:
        return None
    same = [s for s in stored if s.configuration == stored[0].configuration][:RECENT]
    values: defaultdict[str, list[float]] = defaultdict(list)
    for s in same:
        for name, value in s.measures().items():
            if name != "tpi" or s.release == tpi_release(same):
                values[name].append(value)
    return {name: sum(some) / len(some) for name, some in values.items()}


def tpi_release(stored: Sequence[Signature]) -> str | None:
    """Return whose TPI counts, the newest's: it is not on one scale between EAR's releases."""
    return next((s.release for s in stored if s.tpi is not None), None)


def _group(signature: Signature) -> _Group:
    """Return whose jobs a signature advises: scope and owner of the model that follows from it."""
    owners = {"all": "", "account": signature.account, "own": signature.contributor}
    return signature.scope, owners[signature.scope]


def _seen_by(whose: _Group, group: _Group) -> bool:
    return whose[0] == "all" or whose == group


def _seen(model: StoredModel, group: _Group) -> bool:
    return _seen_by((model.scope, model.owner), group)


def _same_place(one: Configuration, other: Configuration) -> bool:
    return replace(one, node_type=other.node_type) == other


def _tried(trial: StoredTrial, own: Configuration) -> TriedPoint:
    """Return what a trial against the same own point says."""
    from advisor.prior.predicted_options import TriedPoint

    measured = None
    if trial.time_s and trial.energy_j:
        time, energy = trial.time_s / trial.own_time_s, trial.energy_j / trial.own_energy_j
        measured = math.log(time), math.log(energy), trial.error
    where = replace(trial.point, node_type=own.node_type)
    return TriedPoint(where, measured, trial.state == "confirmed")


def _outcome(trial: StoredTrial) -> dict[str, object]:
    """Return what is kept of a trial with its model: where, how it came out, in percent."""
    changes = {
        "time_pct": (trial.time_s, trial.own_time_s),
        "energy_pct": (trial.energy_j, trial.own_energy_j),
    }
    shown = {k: round(100 * (a / b - 1), 2) for k, (a, b) in changes.items() if a}
    return {"state": trial.state, "point": trial.point.to_dict(), **shown}
