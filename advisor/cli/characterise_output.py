"""How ``advisor lab characterise`` shows what it found: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from advisor.cli.output import print_table
from advisor.core.codec import JsonForm, wire
from advisor.core.units import format_duration
from advisor.instruments.characterise import PhaseResult
from advisor.instruments.characterise_runs import TimedRun, TracedRun
from advisor.instruments.characterise_streams import FoundPhase, FoundStream
from advisor.ranking.streams import Characterisation, IoStream, Phase, Stream

MOST_SHOWN = 12
"""Streams of a phase that are shown; all are stored."""


@dataclass(frozen=True, slots=True)
class Trace(JsonForm):
    """How the streams were found; null where nothing was traced."""

    method: str | None
    time_s: float | None
    stopped: bool
    detail: Annotated[str, "why there is none"]


@dataclass(frozen=True, slots=True)
class ShownPart(JsonForm):
    """A part of a phase, which ends at a barrier."""

    until: str
    calls: int
    time_s: float
    weight: float


@dataclass(frozen=True, slots=True)
class ShownStream(JsonForm):
    """A stream with where it was found."""

    random: bool
    writes: bool
    reads: bool
    stream: Stream = field(metadata=wire(inline=True))
    sites: Sequence[str]


@dataclass(frozen=True, slots=True)
class ShownPhase(JsonForm):
    """A phase with what is only of use to people who look."""

    phase: Phase = field(metadata=wire(inline=True))
    imbalance: float
    note: str
    parts: Sequence[ShownPart]
    streams: Sequence[ShownStream]
    dropped: Annotated[int | None, "streams that are left out"] = field(
        default=None, metadata=wire(omit=True)
    )


@dataclass(frozen=True, slots=True)
class StoredPhases(JsonForm):
    """The phases of a file that was stored."""

    characterisation: Characterisation = field(metadata=wire(inline=True))
    stored: Annotated[str, "where, or why not"]


@dataclass(frozen=True, slots=True)
class CharacteriseAnswer(JsonForm):
    """An application's phases and memory streams, and whether they are stored."""

    characterisation: Characterisation = field(metadata=wire(inline=True))
    trace: Trace
    l1_bytes: int
    remainder_s: float
    phases: Sequence[ShownPhase]
    stored: Annotated[str, "where, or why not"]
    note: str


ANSWERS = (CharacteriseAnswer, StoredPhases)


def timed_line(timed: TimedRun, note: str) -> str:
    """Say how long the timed run took, what was seen of it, and what speaks against it."""
    regions = sum(len(p.phases) for p in timed.processes)
    if regions:
        region_words = f", {regions} parallel regions"
    elif timed.processes:
        region_words = "; no OpenMP regions: the whole program is one phase"
    else:
        region_words = "; statically linked, its regions cannot be seen: it is one phase"
    line = f"timed   {_short(timed.time_s)}{region_words}"
    return f"{line}\n        {note}" if note else line


def traced_line(timed: TimedRun, traced: TracedRun | None, why: str) -> str:
    """Say how the streams were found, or why there are none."""
    if traced is None:
        return f"traced  no: {why}"
    accesses = sum(s.count for p in traced.processes for s in p.sites)
    line = (
        f"traced  {_short(traced.time_s)} with {traced.method}"
        f" ({traced.time_s / timed.time_s:.1f} times as long), {accesses:.3g} accesses"
    )
    return f"{line}; stopped at the limit" if traced.stopped else line


def _print_io(
    timed: TimedRun, phases: Sequence[PhaseResult], remainder_io: Sequence[IoStream]
) -> None:
    """Print the reads and writes of files, if they take a part of the time."""
    named = [(p.name, s) for p in phases for s in p.io] + [("remainder", s) for s in remainder_io]
    if not named:
        return
    print()
    print_table(
        ["reads and writes of", "weight", "time", "file system", "", "KB a call", "MB/s"],
        [
            [
                name,
                f"{s.time_s / timed.time_s:.1%}",
                _short(s.time_s),
                s.file_system,
                f"{s.operation}s{' at random' if s.random else ''}",
                f"{s.block_b / 1024:.4g}",
                f"{s.block_b * s.calls / s.time_s / 1e6:.4g}",
            ]
            for name, s in named
        ],
    )


def print_phases(
    timed: TimedRun, phases: Sequence[PhaseResult], remainder_io: Sequence[IoStream] = ()
) -> None:
    """Print one table of phases and one of each phase's streams; ``remainder_io``: of no phase."""
    rows: list[list[object]] = [
        [
            phase.name,
            f"{phase.weight:.1%}",
            _short(phase.time_s),
            phase.calls,
            phase.threads,
            f"{phase.iterations:.6g}" if phase.iterations else "",
            f"{phase.time_per_iter_us:.4g}" if phase.time_per_iter_us else "",
        ]
        for phase in phases
    ]
    remainder_s = max(0.0, timed.time_s - sum(p.time_s for p in phases))
    rows.append(
        ["remainder", f"{remainder_s / timed.time_s:.1%}", _short(remainder_s), "", "", "", ""]
    )
    print()
    print_table(["phase", "weight", "time", "calls", "threads", "iterations", "µs/iter"], rows)
    _print_io(timed, phases, remainder_io)
    for phase in phases:
        _print_parts(timed, phase)
        if phase.traced is None:
            continue
        print(f"\n{phase.name}{': ' + phase.note if phase.note else ''}")
        if phase.traced.streams:
            print_table(
                ["zone KB", "stride B", "element B", "access", "regular", "share", "", "where"],
                [_stream_row(phase, stream) for stream in phase.traced.streams[:MOST_SHOWN]],
            )
            if len(phase.traced.streams) > MOST_SHOWN:
                print(f"and {len(phase.traced.streams) - MOST_SHOWN} smaller streams")
        else:
            print("no streams beyond the first-level cache: it is limited by computing")
        print(_summary(phase.traced))


def _print_parts(timed: TimedRun, phase: PhaseResult) -> None:
    """Print what a phase's barriers divide it into, if any do."""
    if not phase.parts:
        return
    print(f"\n{phase.name}: its parts, from one barrier to the next")
    print_table(
        ["until the barrier at", "weight", "time", "calls", "ms each"],
        [
            [
                p.place or "(join)",
                f"{p.time_s / timed.time_s:.1%}",
                _short(p.time_s),
                p.calls,
                f"{p.time_s * 1e3 / max(1, p.calls):.3g}",
            ]
            for p in phase.parts
        ],
    )


def _stream_row(phase: PhaseResult, stream: FoundStream) -> list[object]:
    places = _places(phase, stream)
    more = f" +{len(places) - 3}" if len(places) > 3 else ""
    return [
        f"{stream.size_kb:.6g}",
        "random" if stream.random else stream.stride_b,
        stream.dtype_b,
        "C shared" if stream.access == "C" else "P private",
        f"{stream.dominance:.1%}",
        f"{stream.share:.1%}",
        "read and written"
        if stream.reads and stream.writes
        else "written"
        if stream.writes
        else "read",
        ", ".join(places[:3]) + more,
    ]


def _summary(phase: FoundPhase) -> str:
    parts = [f"at most {phase.bytes_per_iter:.3g} B an iteration from beyond the first-level cache"]
    if phase.flops_per_iter is not None:
        parts.append(f"{phase.flops_per_iter:.3g} floating-point operations")
    if phase.dropped:
        cached = sum(1 for s in phase.dropped if s.dropped == "cached")
        dropped_words = (
            [f"{len(phase.dropped) - cached} rare"] if len(phase.dropped) > cached else []
        )
        dropped_words += [f"{cached} that stay in the cache"] if cached else []
        parts.append(f"left out: {' and '.join(dropped_words)}")
    return "; ".join(parts)


def trace_of(traced: TracedRun | None, why: str) -> Trace:
    """Return how the streams were found, or why there are none."""
    if traced is None:
        return Trace(None, None, False, why)
    return Trace(traced.method, traced.time_s, traced.stopped, why)


def shown_phases(
    characterisation: Characterisation, timed: TimedRun, phases: Sequence[PhaseResult]
) -> list[ShownPhase]:
    """Return each stored phase with what is only of use to people who look."""
    return [
        ShownPhase(
            stored,
            phase.imbalance,
            phase.note,
            [
                ShownPart(p.place or "join", p.calls, p.time_s, p.time_s / timed.time_s)
                for p in phase.parts
            ],
            []
            if phase.traced is None
            else [
                ShownStream(
                    stream.random,
                    stream.writes,
                    traced_stream.reads,
                    stream,
                    _places(phase, traced_stream),
                )
                for stream, traced_stream in zip(stored.streams, phase.traced.streams, strict=True)
            ],
            None if phase.traced is None else len(phase.traced.dropped),
        )
        for phase, stored in zip(phases, characterisation.phases, strict=True)
    ]


def _places(phase: PhaseResult, stream: FoundStream) -> list[str]:
    return sorted({phase.places.get(pc, "") for pc in stream.sites} - {""})


def _short(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
