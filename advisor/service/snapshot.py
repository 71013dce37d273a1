"""What the daemon holds in memory: policy, site, inventory and an index of all models."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from advisor.core.availability import Availability
from advisor.core.axes import AxisWriting, writings_of
from advisor.core.cluster_name import same_cluster
from advisor.core.feasible import TIME_HI, OptionRows
from advisor.core.inventory import Inventory
from advisor.core.job_history import JobHistory
from advisor.core.option import Row
from advisor.core.policy import PolicySet
from advisor.core.recognise import ApplicationRule
from advisor.core.remembered import Remembered
from advisor.core.request import environment_files_of, understood_of
from advisor.core.select import find_row
from advisor.core.size_table import SizeTable
from advisor.database import DatabaseAddress
from advisor.service.answered import Answered
from advisor.service.families import Families, narrowest
from advisor.store.cap_trials import pending_cap_trials
from advisor.store.histories import history_records, history_stamps
from advisor.store.reader import Reader, inventory_of
from advisor.store.records import StoredModel
from advisor.store.trials import TrialsUnderWay, under_way

_DECODED = 1024
"""Models whose options are kept decoded; the others stay packed (100 bytes an option)."""
_FAMILIES = 256
"""Families whose tables are kept unpacked."""
_SIZED = 32
"""Sizes whose predicted options are kept: a new one is rarely asked for twice."""
SWEEP_LASTS = timedelta(days=1)
"""A sweep of which nothing was heard for so long is taken to be over."""

_BASELINES, _CHOICES = 20_000, 4000
"""How many are kept; the same jobs are submitted again and again."""
_ANSWERED = 64 << 20
_OF_ANSWER = 12_000, 8
"""Bytes of whole answers kept; what one takes, and what each byte of its request adds."""


@dataclass(slots=True)
class Snapshot:
    """Everything a decision needs. Replaced as a whole or updated between decisions."""

    policy: PolicySet = field(default_factory=PolicySet)
    inventory: Inventory = field(default_factory=Inventory)
    """Of the cluster that is decided for, of all in the daemon's own snapshot."""
    rules: tuple[ApplicationRule, ...] = ()
    default_node_types: dict[str, str] = field(default_factory=dict)
    understood_options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    axes: dict[str, AxisWriting] = field(default_factory=dict)
    """How the site has further axes written, where that is not as the scheduler does."""
    environment_files: tuple[str, ...] = ()
    """Files that scripts may source, as patterns: they only set variables."""
    availability: Availability | None = None
    """What can be had now; None where nobody looks."""
    inventories: dict[str, Inventory] = field(default_factory=dict)
    """By cluster, "" of none; empty in a snapshot of one cluster."""
    models: dict[int, StoredModel] = field(default_factory=dict)
    training: frozenset[tuple[str, str]] = frozenset()
    trials: TrialsUnderWay = field(default_factory=TrialsUnderWay)
    cap_trials: set[str] = field(default_factory=set)
    """Identities of scripts one job of which is trying a cap."""
    choices: dict[object, Any] = field(default_factory=dict)
    baselines: dict[object, tuple[Row | None, bool]] = field(default_factory=dict)
    answered: Remembered[Answered] = field(default_factory=lambda: Remembered(_ANSWERED))
    families: Families = field(default_factory=Families)
    histories: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of a job's identity: when its history changed, and the history as JSON text."""
    _clusters: dict[str, Snapshot] = field(default_factory=dict)
    _index: dict[tuple[str, str], list[StoredModel]] = field(default_factory=dict)
    _workloads: dict[str, list[str]] = field(default_factory=dict)
    _own: dict[str, list[str]] = field(default_factory=dict)
    _decoded: OrderedDict[object, tuple[str, OptionRows]] = field(default_factory=OrderedDict)
    _sized: OrderedDict[object, tuple[str, OptionRows]] = field(default_factory=OrderedDict)
    _longest: dict[object, tuple[str, float]] = field(default_factory=dict)
    _tables: OrderedDict[int, tuple[str, list[Row], SizeTable]] = field(default_factory=OrderedDict)

    def of_cluster(self, cluster: str) -> Snapshot:
        """Return what decisions for a cluster's jobs need, itself where the site has one cluster.

        Models are the same everywhere; which node types there are, and which are free, is not. Who
        does not say is taken to be on the cluster that is looked at here.
        """
        looks = self.availability
        cluster = cluster or (looks.cluster if looks else "")
        if sum(map(bool, self.inventories)) < 2:
            return self
        snapshot = self._clusters.get(cluster)
        if snapshot is None:
            inventory = inventory_of(self.inventories, cluster)
            snapshot = replace(self, inventory=inventory, inventories={}, choices={}, _clusters={})
            if cluster in self.inventories:  # a name of nobody's is not worth keeping
                self._clusters[cluster] = snapshot
        # what changes while the snapshot holds
        if looks is not None and not (looks.cluster and same_cluster(looks.cluster, cluster)):
            looks = Availability(looks.scheduler, problem=f"nobody looks at cluster {cluster}")
        snapshot.availability, snapshot.answered = looks, self.answered
        snapshot.trials, snapshot.cap_trials = self.trials, self.cap_trials
        return snapshot

    def take(self, models: Iterable[StoredModel]) -> None:
        """Add models, under the inventory's names for their node types."""
        names: dict[str, str] = {}
        for model in models:
            if model.node_type not in names:
                node_type = self.inventory.resolve(model.node_type)
                names[model.node_type] = node_type.name if node_type else model.node_type
            self.models[model.id] = replace(model, node_type=names[model.node_type])
        self.index()

    def index(self) -> None:
        """Rebuild the index after ``models`` changed."""
        index: defaultdict[tuple[str, str], list[StoredModel]] = defaultdict(list)
        for model in self.models.values():
            index[model.application, model.workload].append(model)
        self._index = dict(index)
        workloads: defaultdict[str, list[str]] = defaultdict(list)
        for application, workload in self._index:
            workloads[application].append(workload)
        self._workloads = dict(workloads)
        # dictionaries in place of sets: they keep the order, the latest first
        measured_by: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for model in sorted(self.models.values(), key=lambda m: m.updated_at, reverse=True):
            if model.scope == "own" and model.fitted:
                measured_by[model.owner][model.application] = None
        self._own = {user: list(applications) for user, applications in measured_by.items()}
        self.families = Families.of(self.models.values())

    def find(
        self, application: str, workload: str, user: str, account: str
    ) -> dict[str, StoredModel]:
        """Return the model to use per node type: the user's own, the account's, the site's.

        One that was fitted there goes before any that is estimated, and one of the application's
        own signature before one from another node type.
        """
        return narrowest(self._index.get((application, workload), ()), user, account)

    def workloads_of(self, application: str) -> Sequence[str]:
        """Return the workloads of an application that have models, anybody's."""
        return self._workloads.get(application, ())

    def own_applications(self, user: str) -> Sequence[str]:
        """Return the applications that a user's own runs measured, the latest first."""
        return self._own.get(user, ())

    def rows(self, model: StoredModel, axes: tuple[str, ...] = ()) -> OptionRows:
        """Return a model's options (:meth:`StoredModel.rows`), decoded once while it is in use."""
        cache, most = (self._sized, _SIZED) if model.size else (self._decoded, _DECODED)
        key = (model.id, model.size, axes)
        entry = cache.get(key)
        if entry is not None and entry[0] == model.updated_at:
            cache.move_to_end(key)
            return entry[1]
        rows = OptionRows(self._at_size(model) if model.size else model.rows(axes))
        cache[key] = (model.updated_at, rows)
        if len(cache) > most:
            cache.popitem(last=False)
        return rows

    def longest_s(self, model: StoredModel, axes: tuple[str, ...] = ()) -> float:
        """Return the upper end of the longest time among :meth:`rows`, 0 without any."""
        key = (model.id, model.size, axes)
        entry = self._longest.get(key)
        if entry is None or entry[0] != model.updated_at:
            if len(self._longest) >= _BASELINES:
                self._longest.clear()
            longest_s = max(map(TIME_HI, self.rows(model, axes)), default=0.0)
            entry = self._longest[key] = (model.updated_at, longest_s)
        return entry[1]

    def _at_size(self, model: StoredModel) -> list[Row]:
        """Return a family's options at a size; its table is unpacked once while it is in use."""
        entry = self._tables.get(model.id)
        if entry is None or entry[0] != model.updated_at:
            measured, table = replace(model, size=()).rows(), model.table()
            entry = self._tables[model.id] = (model.updated_at, measured, table)
            if len(self._tables) > _FAMILIES:
                self._tables.popitem(last=False)
        return model.rows_at(*entry[1:])

    def baseline(
        self, model: StoredModel, nodes: int, ranks: int, threads: int, freq_khz: int, default: bool
    ) -> tuple[Row | None, bool]:
        """Return the row that stands for what a job asks for; see :func:`find_row`.

        ``default``: the frequency is the node type's default, and where the model does not hold
        it, its highest stands for it.
        """
        key = (model.id, model.size, nodes, ranks, threads, freq_khz, default)
        baseline = self.baselines.get(key)
        if baseline is None:
            rows = self.rows(model)
            if default and not any(r.freq_khz == freq_khz for r in rows):
                freq_khz = 0
            baseline = find_row(rows, nodes, ranks, threads, freq_khz)
            if len(self.baselines) >= _BASELINES:
                self.baselines.clear()
            self.baselines[key] = baseline
        return baseline

    def history(self, identity: str) -> JobHistory | None:
        """Return what earlier jobs of an identity did, None where nothing is known of them."""
        _, record = self.histories.get(identity, ("", ""))
        if not record:
            return None
        history: JobHistory = self.choice(("history", identity), lambda: _history(record))
        return history

    def remember(self, key: tuple[int, bytes], answered: Answered) -> None:
        """Keep an answer for as long as this snapshot holds."""
        self.answered.put(key, answered, _OF_ANSWER[0] + _OF_ANSWER[1] * len(key[1]))

    def choice(self, key: object, make: Callable[[], Any]) -> Any:
        """Return what was chosen for ``key`` before, else make and remember it."""
        choice = self.choices.get(key)
        if choice is None:
            if len(self.choices) >= _CHOICES:
                self.choices.clear()
            choice = self.choices[key] = make()
        return choice


def _history(record: str) -> JobHistory:
    try:
        return JobHistory.from_dict(json.loads(record))
    except ValueError:  # FieldError is one
        return JobHistory()


class StoreSource:
    """Keeps a :class:`Snapshot` in step with a store file that others write or replace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.snapshot = Snapshot()
        self.error = ""
        self.hangs = False
        """Whether the store's file system does not answer at present."""
        self.loaded = False
        self.published_at: float | None = None
        """When the copy that is read was published, in seconds of the epoch; None: it is live."""
        self._size_bytes: int | None = None
        self._availability: Availability | None = None
        self._marks: tuple[object, ...] = ()
        self._reader: Reader | None = None
        self._lock = threading.Lock()
        """Held by who reads the store: a thread, and for as long as its file system hangs."""
        self._swap = threading.Lock()
        """Held while snapshot and availability become one, which never takes long: the loop does
        it, too."""

    def refresh(self, *, force: bool = False) -> bool:
        """Load what changed since the last call; return whether anything did.

        Raises StoreError when the store cannot be read; the snapshot then stays as it was.
        """
        with self._lock:
            first = self._reader is None
            if self._reader is None:
                self._reader = Reader(self.path)
            try:
                if not (first or force or self._reader.changed()):
                    return False
                frozen = self._reader.published
                if not isinstance(self.path, DatabaseAddress):
                    status = self.path.stat()
                    self.published_at = status.st_mtime if frozen else None
                    self._size_bytes = status.st_size
                marks = self._reader.marks()
                if self.loaded and not force and marks == self._marks:
                    return False
                fresh = self._load(self._reader)
                with self._swap:
                    fresh.availability = self._availability
                    self.snapshot = fresh
                self.loaded, self._marks = True, marks
            except Exception:
                self._reader.close()
                self._reader = None
                raise
            return True

    def age_s(self) -> float | None:
        """Return how old the copy is that is read, in seconds; None for a live store."""
        published_at = self.published_at
        return None if published_at is None else round(max(0.0, time.time() - published_at), 1)

    def size_bytes(self) -> float | None:
        """Return the size of the store's file; None where it cannot be seen."""
        if self.hangs or self.published_at is not None or isinstance(self.path, DatabaseAddress):
            return self._size_bytes
        try:
            return self.path.stat().st_size
        except OSError:
            return None

    def take(self, availability: Availability) -> None:
        """Take over what nodes can be had now, and forget the answers that it may change.

        An answer also changes as time goes by where a reservation comes nearer. Choices are kept
        by what was in the way of each node type, so they last.
        """
        with self._swap:
            self._availability = availability
            snapshot = self.snapshot
            previous, snapshot.availability = snapshot.availability, availability
        if previous != availability or not availability.timeless:
            snapshot.answered = Remembered(_ANSWERED)

    def _load(self, reader: Reader) -> Snapshot:
        old = self.snapshot
        stamps = reader.model_stamps()
        snapshot = site_of(reader)
        # models stand under the inventory's names for node types: with another one they may change
        same_inventory = snapshot.inventories == old.inventories
        snapshot.models = {
            i: m for i, m in old.models.items() if same_inventory and stamps.get(i) == m.updated_at
        }
        snapshot.take(_chunked(reader, [i for i in stamps if i not in snapshot.models]))
        snapshot._decoded = old._decoded
        changed = history_stamps(reader)
        snapshot.histories = {
            name: old.histories[name]
            for name, stamp in changed.items()
            if old.histories.get(name, ("",))[0] == stamp
        }
        snapshot.histories |= history_records(reader, changed.keys() - snapshot.histories.keys())
        return snapshot

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None


def site_of(reader: Reader) -> Snapshot:
    """Return what a decision needs but for the models: policy, inventory, site, sweeps."""
    site, inventories = reader.site(), reader.inventories()
    rules, defaults = site.get("applications"), site.get("default_node_types")
    recent = (datetime.now(UTC) - SWEEP_LASTS).isoformat()
    return Snapshot(
        reader.policy(),
        Inventory.joined(inventories.values()),
        tuple(ApplicationRule.from_dict(r) for r in rules) if isinstance(rules, list) else (),
        {str(k): str(v) for k, v in defaults.items()} if isinstance(defaults, dict) else {},
        understood_of(site),
        writings_of(site),
        environment_files_of(site),
        training=frozenset(
            (r.application, r.workload)
            for state in ("requested", "running")
            for r in reader.training_requests(state=state)
            if r.updated_at > recent
        ),
        inventories=inventories,
        trials=under_way(reader),
        cap_trials={trial.identity for trial in pending_cap_trials(reader)},
    )


def _chunked(reader: Reader, ids: list[int]) -> Iterator[StoredModel]:
    for start in range(0, len(ids), 500):
        yield from reader.models(ids[start : start + 500])
