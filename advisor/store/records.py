"""What the store hands out: one frozen record per kind of row. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

from advisor.core.axes import Extra
from advisor.core.codec import JsonForm
from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.decision import FROM_STAMP, Decision, number_or_none, read_configuration
from advisor.core.observation import GPU_ENERGY, Observation, Quality, RunMethod, Scope
from advisor.core.option import (
    Option,
    Row,
    further_axes,
    highest_axes,
    pack_options,
    rows_within,
    unpack_rows,
)
from advisor.core.size_table import SizeTable
from advisor.errors import StoreError

ModelState = Literal["fitted", "suspended", "replaced"]
ConfigKind = Literal["policy", "site"]
StaleKind = Literal["lesson", "transfers", "sizes", "class"]
"""``transfers``: a workload's models by transfer; ``sizes``: those of its family; ``class``: its
class model for one group of jobs; ``lesson``: the class models that its models and signatures
teach, which are marked in turn."""
TrainingState = Literal["requested", "running", "fitted", "confirmed", "failed", "stopped"]
RunRole = Literal["baseline", "design", "confirm"]
RunState = Literal["planned", "running", "done", "failed"]

TRANSFER = "transfer"
"""The name of models that nobody fitted: estimates from another node type's model."""

CLASS = "class"
"""The name of models of applications never swept: estimates from others that are like it."""

SIZES = "sizes"
"""The name of models of a whole family: its sizes never run, predicted from those that were."""

HISTORY = "history"
"""The name of models of one whole job: the sum of its parts. They are in no store."""

PROGRAMS = "programs"
"""The name of such models that are the sum of several programs' own models."""

SCOPES: tuple[Scope, ...] = ("own", "account", "all")
"""Whose jobs a measurement may advise, narrowest first."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One fitted model version with its evaluated options, still packed.

    ``owner`` is the user for scope ``own``, the account for ``account``, empty for ``all``.
    ``updated_at`` changes whenever anything of the model does.
    """

    id: int
    application: str
    workload: str
    node_type: str
    scope: Scope
    owner: str
    version: int
    name: str
    state: ModelState
    state_reason: str
    energy_quality: Quality
    n_train: int
    stats: dict[str, Any]
    options_blob: bytes
    created_at: str
    updated_at: str
    sizes_blob: bytes = b""
    """Of a family's model: what its options take at other sizes (core/size_table.py)."""
    size: tuple[tuple[str, float], ...] = ()
    """Of a family's model in use for a job: the job's size, which its rows are for."""

    @classmethod
    def of_job(
        cls,
        name: str,
        application: str,
        workload: str,
        user: str,
        options: Sequence[Option],
        stats: dict[str, Any],
    ) -> StoredModel:
        """Return a model of one job of a user's, its first option as it is written.

        It is in no store, and its id is of none there.
        """
        packed = pack_options(options)
        digest = blake2b(name.encode() + packed, digest_size=7).digest()
        return cls(
            id=-1 - int.from_bytes(digest, "big"),
            application=application,
            workload=workload,
            node_type=options[0].configuration.node_type,
            scope="own",
            owner=user,
            version=1,
            name=name,
            state="fitted",
            state_reason="",
            energy_quality="measured",
            n_train=0,
            stats=stats,
            options_blob=packed,
            created_at="",
            updated_at="",
        )

    @property
    def transferred(self) -> bool:
        """Whether nothing ran on its node type: it follows from another one's model."""
        return self.name == TRANSFER

    @property
    def by_class(self) -> bool:
        """Whether its application was never swept there: it follows from others like it."""
        return self.name == CLASS

    @property
    def fitted(self) -> bool:
        """Whether it follows from runs of its own application on its own node type."""
        return self.name not in (TRANSFER, CLASS, SIZES, HISTORY, PROGRAMS)

    @property
    def of_history(self) -> bool:
        """Whether it speaks for one whole job, by that job's own earlier ones; it has no id."""
        return self.name == HISTORY

    @property
    def of_one_job(self) -> bool:
        """Whether it is in no store, and has no id there: a sum of what one job runs."""
        return self.name in (HISTORY, PROGRAMS)

    @property
    def of_sizes(self) -> bool:
        """Whether it speaks for a family's sizes that never ran."""
        return self.name == SIZES

    @property
    def about_sizes(self) -> dict[str, Any]:
        """From what a family's model follows: family, axes, answer, notes."""
        about = self.stats.get("sizes")
        return about if isinstance(about, dict) else {}

    def count_laws(self) -> CountLaws | None:
        """Return what the application's profiles say of a family's sizes, if they say anything."""
        return CountLaws.from_dict(self.about_sizes.get("counts"))

    @property
    def cold_start(self) -> dict[str, Any]:
        """From what a class model follows: method, applications, signature, class."""
        base = self.stats.get("cold_start")
        return base if isinstance(base, dict) else {}

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The trials of a class model that are over: state, point, changes in percent."""
        trials = self.cold_start.get("trials")
        return trials if isinstance(trials, list) else []

    @property
    def transfer(self) -> dict[str, Any]:
        """From what a model by transfer follows: ``base``, and the ranking's estimate."""
        base = self.stats.get("transfer")
        return base if isinstance(base, dict) else {}

    @property
    def method(self) -> RunMethod:
        """How the threads of the runs it rests on were set, see :class:`Observation`."""
        method = self.stats.get("method")
        return method if method in ("variables", "request") else ""

    @property
    def gpus(self) -> int:
        """GPUs that each node gave its runs, 0 where they do not say."""
        count = self.stats.get("gpus")
        return count if isinstance(count, int) else 0

    def gpu_j(self) -> dict[Configuration, float]:
        """Return what the GPUs of its runs took on average, J, where all of them tell.

        Those at the highest of further axes are there without these, too, as jobs have them.
        """
        rows = self.stats.get("gpu_j")
        mean_j: dict[Configuration, float] = {}
        for row in rows if isinstance(rows, list) else ():
            place, joules = read_configuration(row), number_or_none(row.get(GPU_ENERGY))
            if place is not None and joules is not None:
                mean_j[place] = joules
                if place.extra == self.highest_axes:
                    mean_j[replace(place, extra=())] = joules
        return mean_j

    @property
    def gpus_metered(self) -> bool:
        """Whether its energies have those of its runs' GPUs in them."""
        return self.stats.get("gpus_metered") is True

    @property
    def energy_basis(self) -> str:
        """The energies its own can be compared with: a model by transfer, with its base's."""
        return str(self.transfer.get("energy_quality") or self.energy_quality)

    def options(self) -> tuple[Option, ...]:
        """Unpack the options. Raises StoreError when they are damaged or in another format."""
        if not self.further_axes:
            return self.written_options()
        with self._naming_the_model():
            return tuple(row.option(self.node_type) for row in unpack_rows(self.options_blob))

    def written_options(self) -> tuple[Option, ...]:
        """Unpack the options that jobs may get: those of :meth:`rows`."""
        return tuple(row.option(self.node_type) for row in self.rows())

    @property
    def further_axes(self) -> tuple[str, ...]:
        """Axes of its options beside the usual ones; jobs get the highest value of each."""
        return further_axes(self.options_blob)

    @property
    def highest_axes(self) -> Extra:
        """The highest value of each of them, at which :meth:`rows` are. Raises StoreError."""
        with self._naming_the_model():
            return highest_axes(self.options_blob)

    def rows(self, axes: Collection[str] = ()) -> list[Row]:
        """Unpack the options that differ from jobs in none but ``axes`` of the further axes.

        Most models have no such axes; at a size that never ran there are none. Raises StoreError
        as :meth:`options` does.
        """
        with self._naming_the_model():
            rows = rows_within(self.options_blob, () if self.size else axes)
        return self.rows_at(rows, self.table()) if self.size else rows

    def rows_at(self, measured: Sequence[Row], table: SizeTable) -> list[Row]:
        """Return the rows at its size. Raises StoreError where the table is of other options."""
        with self._naming_the_model():
            return table.predict(measured, dict(self.size)).rows

    def table(self) -> SizeTable:
        """Return :meth:`size_table`. Raises StoreError as :meth:`options` does."""
        with self._naming_the_model():
            return self.size_table()

    @contextmanager
    def _naming_the_model(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise StoreError(
                f"model {self.id} of {self.application}: {error}",
                hint=f"fit it again: advisor fit {self.application}",
            ) from None

    def size_table(self) -> SizeTable:
        """Return what the options take at other sizes. Raises ValueError where it is damaged."""
        return SizeTable.unpack(self.about_sizes.get("axes"), self.sizes_blob)


@dataclass(frozen=True, slots=True)
class StoredObservation:
    """One measured run as stored."""

    id: int
    application: str
    workload: str
    observation: Observation
    created_at: str


@dataclass(frozen=True, slots=True)
class Workload:
    """One input or problem class of an application, and how many runs of it are stored."""

    id: int
    application: str
    name: str
    observations: int


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """A sweep: asked for, planned (``plan``, free JSON), run and confirmed."""

    id: str
    application: str
    workload: str
    node_type: str
    user: str
    scheduler: str
    state: TrainingState
    detail: str
    plan: dict[str, Any]
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One run of a sweep; ``observation_id`` once it is measured."""

    request_id: str
    seq: int
    role: RunRole
    configuration: Configuration
    state: RunState
    attempts: int = 0
    observation_id: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job came out, from the scheduler's accounting; None where it does not say."""

    job_id: str
    scheduler: str
    cluster: str
    submitted_at: str
    decision_id: str
    user: str
    account: str
    state: str
    nodes: int
    node_list: str
    time_s: float | None
    energy_j: float | None
    energy_quality: Quality
    freq_requested_khz: int | None
    freq_observed_khz: int | None
    verdict: str
    record: dict[str, Any]
    collected_at: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is found by."""
        return self.job_id, self.scheduler, self.cluster, self.submitted_at

    @property
    def failure(self) -> str:
        """How it failed, "" where it did not: what a failed job left unused is not saved."""
        state = (self.state.split() or ["UNKNOWN"])[0]
        if state != "COMPLETED":
            return f"it ended as {state}"
        return "a step of it failed" if (self.record.get("ran") or {}).get("step_failed") else ""

    @property
    def decision(self) -> Decision:
        """What the outcome keeps of its decision: no alternatives, no rewrite.

        The promise is kept as absolute intervals and becomes changes against the baseline again.
        """
        record = self.record
        promise = record.get("promised")
        promise = promise if isinstance(promise, dict) else {}
        return Decision.from_brief(
            record,
            promise,
            id=self.decision_id,
            created_at=str(record.get("decided_at") or ""),
            scheduler=self.scheduler,
            user=self.user,
            account=self.account,
            job_id=self.job_id,
            cluster=self.cluster,
            origin=FROM_STAMP if record.get("trust") != "verified" else "",
        )


@dataclass(frozen=True, slots=True)
class ConfigVersion(JsonForm):
    """One applied version of the policy or the site file: its text and its compiled form."""

    JSON = ("version", "active", "applied_at", "applied_by", "path")

    kind: ConfigKind
    version: int
    path: str
    text: str
    compiled: dict[str, Any]
    applied_by: str
    applied_at: str
    active: bool
