"""What ``advisor lab bench --json`` answers: what was measured or is known, what it changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from advisor.core.codec import JsonForm, wire
from advisor.core.observation import Scope

_WHERE_SAID = wire(omit=True)
_PEAK = "0 where not measured"


@dataclass(frozen=True, slots=True)
class UnmeasuredType(JsonForm):
    """A node type that could not be measured."""

    node_type: str
    stored: Annotated[str, "why not"]


@dataclass(frozen=True, slots=True)
class MeasuredType(JsonForm):
    """What one go measured of a node type."""

    node_type: str
    stored: Annotated[str, "where"]
    profiles: Annotated[int, "how many"]
    machine: Mapping[str, object]
    host: str
    kernel: str
    compiler: str
    meter: str
    seconds: float
    sure: Annotated[int, "how many are precise enough"]
    wanted: Annotated[int, "how many the suite has"]
    bandwidth_gb_s: Annotated[float, _PEAK]
    gflop_s: Annotated[float, _PEAK]


@dataclass(frozen=True, slots=True)
class ShownIo(JsonForm):
    """Microseconds of one operation on a file system."""

    operation: str
    random: bool
    block_b: int
    time_per_op_us: float
    direct: bool
    spread: float
    repeats: int
    cached_us: float | None


@dataclass(frozen=True, slots=True)
class MeasuredFiles(JsonForm):
    """What one go measured of a node type's file system."""

    node_type: str
    stored: Annotated[str, "where"]
    machine: Mapping[str, object]
    host: str
    kernel: str
    compiler: str
    file_system: str
    kind: str
    file_mb: int
    seconds: float
    io: Sequence[ShownIo]


@dataclass(frozen=True, slots=True)
class ForgottenKernel(JsonForm):
    """A kernel that a user brought, whose profiles of a node type are deleted."""

    node_type: str
    forgotten: str
    contributor: str


@dataclass(frozen=True, slots=True)
class ShownProfile(JsonForm):
    """One microbenchmark's profile."""

    microbenchmark: str
    streams: Sequence[Mapping[str, object]]
    threads: int
    time_per_iter_us: float
    spread_pct: float
    repeats: int
    energy_per_iter_nj: float | None
    meter: str
    contributor: Annotated[str, "who brought the kernel; empty for the suite's own"]
    scope: Scope


@dataclass(frozen=True, slots=True)
class FileSystemProfile(JsonForm):
    """What one operation takes on a file system."""

    file_system: str
    kind: str
    io: ShownIo = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class ShownFiles(JsonForm):
    """A node type of which only file systems are known."""

    node_type: str
    io: Sequence[FileSystemProfile]


@dataclass(frozen=True, slots=True)
class ProfiledType(JsonForm):
    """What is known of a node type."""

    node_type: str
    machine: Mapping[str, object]
    host: str
    kernel: str
    compiler: str
    measured_by: str
    measured_at: str
    threads: int
    bandwidth_gb_s: Annotated[float, _PEAK]
    gflop_s: Annotated[float, _PEAK]
    profiles: Sequence[ShownProfile]
    io: Sequence[FileSystemProfile]


@dataclass(frozen=True, slots=True)
class RankedAgain(JsonForm):
    """The rankings with the new profiles; nothing of it where none were made."""

    rankings: Annotated[str | None, "what came of them"] = field(default=None, metadata=_WHERE_SAID)
    applications_ranked: int | None = field(default=None, metadata=_WHERE_SAID)
    changed_fastest: Annotated[int | None, "how many have another fastest node type"] = field(
        default=None, metadata=_WHERE_SAID
    )
    not_ranked: Sequence[str] | None = field(default=None, metadata=_WHERE_SAID)


@dataclass(frozen=True, slots=True)
class BenchAnswer(JsonForm):
    """The node types' profiles (show), or what one go measured; a ranking that was renewed."""

    node_types: Sequence[
        MeasuredType | UnmeasuredType | MeasuredFiles | ForgottenKernel | ProfiledType | ShownFiles
    ]
    ranked: RankedAgain = field(default=RankedAgain(), metadata=wire(inline=True))
