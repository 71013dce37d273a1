"""What is known of an application's phases and their memory streams.

Corredor (2011), tables 3.16 and 3.17: a stream is (size, stride, data type, access), a phase has
one or more of them and a time per iteration. Sizes are in KB of 1024 bytes and are those of the
zone in bytes (the thesis' printed sizes are thousands of elements; a comparison only needs
profiles and phases to agree).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from advisor.core.codec import FieldError, JsonForm, Record, wire
from advisor.core.inventory import Inventory
from advisor.core.signature import LINE_B
from advisor.errors import InputError
from advisor.ranking.fields import flag, items, number, number_or_none, one_of, text, whole

AccessPattern = Literal["C", "P"]
ACCESS: tuple[AccessPattern, ...] = ("C", "P")
IoOperation = Literal["read", "write"]
IO_OPERATIONS: tuple[IoOperation, ...] = ("read", "write")

MOST_PHASES, MOST_STREAMS, MOST_IO = 200, 2000, 64
"""What a characterisation of somebody else may have, so that reading it is soon done."""


_UNKNOWN = wire(omit=True, read=number_or_none)
"""Of a number that need not be known."""


@dataclass(frozen=True, slots=True)
class Stream(Record):
    """One flow of memory accesses.

    ``size_kb`` is the zone: of one thread if private (``P``), of all if shared (``C``);
    ``stride_b`` is the bytes from one access to the next, 0 for random access; ``dtype_b`` the
    bytes of an element. ``share`` is its part of the phase's accesses and ``dominance`` the part
    of its strides that are ``stride_b``, where that was measured. ``steps`` says how often an
    iteration of the phase steps along it: once, unless another stream is walked over more often.
    """

    size_kb: float = field(metadata=wire(read=partial(number, least=0, above=True)))
    stride_b: int = field(metadata=wire(read=partial(whole, least=0)))
    dtype_b: int = field(metadata=wire(read=partial(whole, least=1)))
    access: AccessPattern = field(metadata=wire(read=partial(one_of, allowed=ACCESS)))
    writes: bool = field(default=False, metadata=wire(omit=True, read=flag))
    share: float | None = field(default=None, metadata=_UNKNOWN)
    dominance: float | None = field(default=None, metadata=_UNKNOWN)
    steps: float | None = field(default=None, metadata=_UNKNOWN)

    @property
    def random(self) -> bool:
        """Whether it has no common stride."""
        return self.stride_b == 0


@dataclass(frozen=True, slots=True)
class IoStream(Record):
    """Reads or writes of files on one file system, by all calls of a phase.

    ``block_b`` is the mean bytes of a call; ``time_s`` what they took, the mean of the phase's
    threads; ``random`` where most did not begin where the one before ended.
    """

    file_system: str = field(metadata=wire(read=text))
    operation: IoOperation = field(metadata=wire(read=partial(one_of, allowed=IO_OPERATIONS)))
    random: bool = field(metadata=wire(omit=True, read=flag))
    block_b: float = field(metadata=wire(read=partial(number, least=0)))
    calls: int = field(metadata=wire(read=partial(whole, least=0)))
    time_s: float = field(metadata=wire(read=partial(number, least=0)))


@dataclass(frozen=True, slots=True)
class Phase(JsonForm):
    """One phase: its weight in the run, its time, and its streams, the busiest first.

    ``iterations`` are those of one thread over all ``calls``, so that ``time_per_iter_us`` can be
    compared with a microbenchmark's; both are 0 when they are not known. Without streams beyond
    the first-level cache a phase is limited by computing. ``bytes_per_iter`` is the most that
    comes from beyond that cache, ``flops_per_iter`` floating-point operations where counted.
    ``io`` is the part of its time that reads and writes of files take.
    """

    name: str
    weight: float
    time_s: float
    iterations: float = 0.0
    time_per_iter_us: float = 0.0
    streams: tuple[Stream, ...] = ()
    calls: int = 1
    threads: int = 0
    bytes_per_iter: float | None = field(default=None, metadata=_UNKNOWN)
    flops_per_iter: float | None = field(default=None, metadata=_UNKNOWN)
    io: tuple[IoStream, ...] = field(default=(), metadata=wire(omit=True))

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], path: tuple[str | int, ...] = (), run_s: float = 0.0
    ) -> Phase:
        """Read that form; a weight not given is its share of a run of ``run_s`` s.

        Time per iteration and iterations follow from each other.
        """
        time_s = number(data, "time_s", path, least=0)
        share = min(1.0, time_s / run_s) if run_s else 1.0
        iterations = number(data, "iterations", path, least=0, default=0)
        iteration_us = number(data, "time_per_iter_us", path, least=0, default=0)
        if not iteration_us and iterations:
            iteration_us = time_s * 1e6 / iterations
        if not iterations and iteration_us:
            iterations = time_s * 1e6 / iteration_us
        return cls(
            text(data, "name", path),
            number(data, "weight", path, least=0, most=1, default=share),
            time_s,
            iterations,
            iteration_us,
            tuple(
                Stream.from_dict(item, (*path, "streams", n))
                for n, item in enumerate(items(data, "streams", path))
            ),
            whole(data, "calls", path, least=1, default=1),
            whole(data, "threads", path, least=0, default=0),
            number_or_none(data, "bytes_per_iter", path),
            number_or_none(data, "flops_per_iter", path),
            _io_streams(data, path),
        )


@dataclass(frozen=True, slots=True)
class Characterisation(JsonForm):
    """An application's phases, as measured on its base node type.

    ``time_s`` is the whole run; what no phase holds is the remainder, ``io`` the reads and writes
    of files in that. ``method`` says how streams were found.
    """

    application: str
    phases: tuple[Phase, ...] = field(default_factory=tuple)
    workload: str = "default"
    node_type: str = field(default="", metadata=wire(omit=True))
    threads: int = 0
    time_s: float = 0.0
    method: str = field(default="", metadata=wire(omit=True))
    io: tuple[IoStream, ...] = field(default=(), metadata=wire(omit=True))

    @property
    def remainder_s(self) -> float:
        """Seconds of the run outside of all phases."""
        return max(0.0, self.time_s - sum(phase.time_s for phase in self.phases))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Characterisation:
        """Read that form; a time of the run not given follows from weights. Raises FieldError."""
        time_s = number(data, "time_s", (), least=0, default=0)
        phases = tuple(
            Phase.from_dict(item, ("phases", n), time_s)
            for n, item in enumerate(items(data, "phases", ()))
        )
        if not phases:
            raise FieldError(("phases",), "there are none")
        if not time_s:
            largest = max(phases, key=lambda phase: phase.weight)
            time_s = largest.time_s / largest.weight if largest.weight else 0.0
        return cls(
            text(data, "application", ()),
            phases,
            str(data.get("workload") or "default"),
            str(data.get("node_type") or ""),
            whole(data, "threads", (), least=0, default=0),
            time_s,
            str(data.get("method") or ""),
            _io_streams(data, ()),
        )


def effective(streams: Sequence[Stream], threads: int) -> tuple[Stream, ...]:
    """Return streams as large as what ``threads`` touch from one pass over them to the next.

    A zone that would stay in a cache by itself does not when other streams pass through that cache
    meanwhile. Sizes in KB, larger by the others' lines over their own; the private zones of all
    threads lie beside a shared one.
    """
    shares = [threads if s.access == "P" else 1 for s in streams]
    widened = []
    for i, s in enumerate(streams):
        lines = _lines_b(s)
        steps = lines / _line_b(s) / (s.steps or 1.0)
        other_lines_b = math.fsum(
            min(_lines_b(o), steps * (o.steps or 1.0) * _line_b(o)) * share
            for j, (o, share) in enumerate(zip(streams, shares, strict=True))
            if j != i
        )
        more = other_lines_b / (lines * shares[i]) if lines else 0.0
        widened.append(replace(s, size_kb=s.size_kb * (1.0 + more)))
    return tuple(widened)


def _line_b(stream: Stream) -> float:
    """Return bytes of memory that a step along a stream touches for the first time."""
    return float(LINE_B if stream.random else min(LINE_B, max(1, stream.stride_b)))


def _lines_b(stream: Stream) -> float:
    """Return bytes of the lines that one pass over a stream's zone touches."""
    size = stream.size_kb * 1024
    return size if stream.random else size * min(1.0, LINE_B / max(1, stream.stride_b))


def read_sent(data: object) -> Characterisation:
    """Read a characterisation that somebody else sent, and whose word it is.

    At most ``MOST_PHASES`` and ``MOST_STREAMS``, names that can be printed on one line, and a
    node type. Raises FieldError.
    """
    if not isinstance(data, Mapping):
        raise FieldError((), "must have keys and values")
    phases = items(data, "phases", ())
    if len(phases) > MOST_PHASES:
        raise FieldError(
            ("phases",), f"there are {len(phases)}, at most {MOST_PHASES} are accepted"
        )
    streams = sum(len(items(phase, "streams", ("phases", n))) for n, phase in enumerate(phases))
    if streams > MOST_STREAMS:
        raise FieldError(("phases",), f"of {streams} streams, at most {MOST_STREAMS} are accepted")
    characterisation = Characterisation.from_dict(data)
    text(data, "node_type", ())
    for key in ("application", "workload", "node_type", "method"):
        if not getattr(characterisation, key).isprintable():
            raise FieldError((key,), "must be printable")
    for n, phase in enumerate(characterisation.phases):
        if not phase.name.isprintable():
            raise FieldError(("phases", n, "name"), "must be printable")
        if not math.isfinite(phase.iterations * phase.time_per_iter_us):
            raise FieldError(("phases", n), "its time and its time per iteration disagree")
    return characterisation


def _io_streams(data: Mapping[str, Any], path: tuple[str | int, ...]) -> tuple[IoStream, ...]:
    entries = items(data, "io", path)
    if len(entries) > MOST_IO:
        raise FieldError((*path, "io"), f"there are {len(entries)}, at most {MOST_IO} are accepted")
    return tuple(IoStream.from_dict(s, (*path, "io", n)) for n, s in enumerate(entries))


def at_site(characterisation: Characterisation, inventory: Inventory) -> Characterisation:
    """Return phases under the inventory's name of their node type.

    Raises InputError for a node type that the site does not have, if its node types are known.
    """
    node_type = inventory.resolve(characterisation.node_type)
    if node_type is not None:
        return replace(characterisation, node_type=node_type.name)
    if inventory.node_types:
        type_names = ", ".join(sorted(inventory.node_types))
        raise InputError(
            f"the site has no node type {characterisation.node_type} (there are: {type_names})",
            hint="say with --node-type which one it was",
        )
    return characterisation
