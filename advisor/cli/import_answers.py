"""What ``advisor import --json`` answers: of runs, of what was counted, of past jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from advisor.core.codec import AtLeast, Count, JsonForm, wire
from advisor.core.observation import Quality, Scope

NextCommand = Annotated[str, "the command to go on with"]
_FROM, _WHERE_SAID = wire("from"), wire(omit=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportAnswer(JsonForm):
    """How many runs of a file are new."""

    file: str
    application: Annotated[str, "empty where there are several"]
    applications: Sequence[str] | None = field(default=None, metadata=_WHERE_SAID)
    workload: str
    node_type: str
    imported: int
    skipped: int
    scope: Scope
    contributor: str
    account: str
    energy: Mapping[Quality, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRuns(ImportAnswer):
    """Of a file of runs."""

    impossible_energies: Annotated[Count, "readings that no node can have used: dropped"]
    extra_columns: Sequence[str]
    workloads: Annotated[Sequence[str], "what got runs: with --parameters one for each size"] = (
        field(default=(), metadata=_WHERE_SAID)
    )
    notes: Sequence[str] = field(default=(), metadata=_WHERE_SAID)
    next: NextCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class EarStepRow(JsonForm):
    """One job's step, its nodes joined."""

    skipped: Annotated[str, "why it is no run of its program"] = field(
        default="", metadata=_WHERE_SAID
    )
    phases_s: Annotated[
        Mapping[str, Annotated[float, AtLeast(0)]],
        "of --events: time in each class, as EAR classified, s",
    ] = field(default_factory=dict, metadata=_WHERE_SAID)
    job: str
    step: str
    application: str
    nodes: Annotated[int, AtLeast(1)]
    cpi: float | None
    tpi: float | None
    gflops: float | None
    gbs: float | None
    io_mbs: float | None
    mpi_percent: float | None
    gpu_util: float | None
    power_w: float | None
    time_s: float | None
    energy_j: float | None
    energy: Literal["measured", "clamped", "missing"]


@dataclass(frozen=True, slots=True)
class CountedRow(JsonForm):
    """What another program counted; what was not measured is not there."""

    application: str
    nodes: Annotated[int, AtLeast(1)]
    measures: Mapping[str, float] = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSignatures(ImportAnswer):
    """Of a file with what another program counted."""

    extra_columns: Sequence[str] = ()
    source: Literal["ear", "perf", "likwid", "papi"] = field(metadata=_FROM)
    new_signatures: int
    signatures: Sequence[EarStepRow | CountedRow]
    next: NextCommand
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedJobs(ImportAnswer):
    """Of a scheduler's accounting."""

    extra_columns: Sequence[str] = ()
    source: Annotated[str, "as --from names it"] = field(metadata=_FROM)
    jobs: Annotated[int, "that ended"]
    left_out: Annotated[Mapping[str, int], "how many of them say nothing, by why"]
    notes: Sequence[str]
    next: NextCommand


ANSWERS = (ImportedRuns, ImportedSignatures, ImportedJobs)
