"""What ``advisor run --json`` answers: a command's measured runs, or a job script's run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NotRequired, TypedDict

from advisor.core.codec import AtLeast, Count, JsonForm, wire
from advisor.core.configuration import Configuration
from advisor.core.observation import Quality

_WHERE_SAID = wire(omit=True)


@dataclass(frozen=True, slots=True)
class ShownRun(JsonForm):
    """One measured run of a command."""

    time_s: float
    energy_j: float | None
    energy_quality: Quality
    meter: str
    detail: str
    energy_parts_j: Annotated[
        Mapping[str, Annotated[float, AtLeast(0)]],
        "the joules by part of the node, where the meter knows them apart",
    ] = field(default_factory=dict, metadata=_WHERE_SAID)
    notes: Annotated[Sequence[str], "why it is worth less than it looks"] = field(
        default=(), metadata=_WHERE_SAID
    )


@dataclass(frozen=True, slots=True)
class CountedRun(JsonForm):
    """What was counted in one run; what was not measured is not there."""

    measures: Mapping[str, float] = field(metadata=wire(inline=True))
    cpus: Annotated[int | None, AtLeast(1)]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class RunAnswer(JsonForm):
    """A command's measured runs, or a job script's run with its decision."""

    ok: bool
    exit_code: int
    application: str
    workload: str
    configuration: Configuration
    meter: str
    runs: Sequence[ShownRun]
    observations: Annotated[Sequence[Count], "the runs' numbers in the store"]
    rates: Annotated[
        Sequence[float] | None,
        "the program's own rate in each run, where --rate or the site reads it",
    ] = field(default=None, metadata=_WHERE_SAID)
    rate_unit: str | None = field(default=None, metadata=_WHERE_SAID)
    signatures: Annotated[Sequence[CountedRun], "of --counters, one per run"] = field(
        default=(), metadata=_WHERE_SAID
    )


@dataclass(frozen=True, slots=True)
class FailedRun(JsonForm):
    """A command of which one run failed."""

    ok: bool
    exit_code: int
    error: str


class MeasuredRate(TypedDict):
    """The program's own rate, where --rate or the site reads it; null where it said none."""

    rate: NotRequired[float | None]
    rate_unit: NotRequired[str]


@dataclass(frozen=True, slots=True)
class ScriptRun(JsonForm):
    """A job script's run, as it was decided."""

    ok: bool
    job: str | None
    exit_code: int
    configuration: Configuration
    rewrite: Mapping[str, str]
    environment: Mapping[str, str]
    reasons: Sequence[str]
    time_s: float | None
    energy_j: float | None
    energy_quality: Quality
    meter: str
    rate: MeasuredRate = field(metadata=wire(inline=True))


ANSWERS = (RunAnswer, FailedRun, ScriptRun)
