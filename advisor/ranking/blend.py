"""Estimate a phase by mixing profiles of all of its streams, and of arithmetic.

In place of the one most similar microbenchmark (Corredor 2011): each stream's time per step is
interpolated between profiles of load, write or random access in size and stride, its size being
what is touched between two passes over it (:mod:`advisor.ranking.streams`); what the phase takes
beyond that on its base node is arithmetic. Both parts are taken to the other node type and
overlap there as they do here::

    T^p = C^p + (k M)^p,    M = sum of steps_i t_i,    k = min(1, T / M)

with the phase's time per iteration T and the streams' M on the base node, C the arithmetic that
remains, and p between 1 (one after the other) and infinity (fully at once, a roofline).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from advisor.errors import InputError
from advisor.ranking.similarity import Profile
from advisor.ranking.streams import Characterisation, Phase, Stream, effective

OVERLAP = 4.0
"""The p above; benchmarks/ranking.py compares others."""
LEAST_ERROR = 0.10
"""Root mean square error of estimates for emulated node types (``benchmarks/ranking.py``)."""
_SIZE_MEMORY = 16384.0
"""KB of a zone that is read from memory, beyond all caches."""

SizeAndTime = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Blended:
    """A phase on a node type: its ratio to the base node, relative error, and power's ratio.

    ``memory`` is the part of the phase's time on the base node that its streams take.
    """

    ratio: float
    error: float
    memory: float
    power_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class BlendedRun:
    """A whole run on a node type: seconds of its phases and in all, relative error.

    ``energy_ratio`` is its energy over the base node's, None where no meter measured it.
    """

    node_type: str
    phases_s: float
    time_s: float
    error: float
    energy_ratio: float | None


class NodeTypeTimes:
    """One node type's profiles, interpolated for any size and stride."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self._lines: defaultdict[tuple[str, int], defaultdict[int, list[SizeAndTime]]]
        self._lines = defaultdict(lambda: defaultdict(list))
        self._flat: dict[tuple[str, int], Profile] = {}
        self._power: defaultdict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        self._known: defaultdict[tuple[str, int], list[Profile]] = defaultdict(list)
        self.threads = 0
        for p in profiles:
            self.threads = max(self.threads, p.threads)
            family = _family_of(p.microbenchmark)
            self._known[family, p.threads].append(p)
            if not p.streams:
                self._flat[family, p.threads] = p
            elif len(p.streams) == 1:
                first = p.streams[0]
                self._lines[family, p.threads][first.stride_b].append(
                    (first.size_kb, p.time_per_iter_us)
                )
                if p.energy_per_iter_nj:
                    watts = p.energy_per_iter_nj / p.time_per_iter_us / 1000.0
                    self._power[family, p.threads].append((first.size_kb, watts))
        for strides in self._lines.values():
            for points in strides.values():
                points.sort()

    def arithmetic(self, name: str, threads: int) -> float | None:
        """Return microseconds per iteration of ``fma``, ``chain`` or ``root``."""
        profile = self._flat.get((name, threads))
        return profile.time_per_iter_us if profile else None

    def step_us(self, stream: Stream, threads: int) -> float | None:
        """Return microseconds of one step along a stream, None without profiles of its kind."""
        for family in _families(stream):
            strides = self._lines.get((family, threads))
            if strides:
                return _surface(strides, stream.size_kb, float(stream.stride_b))
        return None

    def doubts(
        self, streams: Sequence[Stream], threads: int, arithmetic: Sequence[str]
    ) -> list[Profile]:
        """Return the unsure ones of the profiles nearest to streams, and of arithmetic."""
        used = []
        for stream in streams:
            families = (self._known.get((f, threads)) for f in _families(stream))
            single_stream = [p for p in next(filter(None, families), []) if len(p.streams) == 1]
            if single_stream:
                used.append(
                    min(single_stream, key=lambda p: _stream_distance(p.streams[0], stream))
                )
        used += [p for n in arithmetic for p in self._known.get((n, threads), [])]
        return [p for p in used if p.doubt]

    def watts(self, memory: bool, threads: int) -> float | None:
        """Return the node's power while it loads from memory, or computes."""
        if memory:
            points = self._power.get(("mbw1lc", threads)) or self._power.get(("mbw1lp", threads))
            # Of the largest zone, which comes from memory.
            return max(points)[1] if points else None
        profile = self._flat.get(("chain", threads))
        if profile is None or not profile.energy_per_iter_nj:
            return None
        return profile.energy_per_iter_nj / profile.time_per_iter_us / 1000.0


def _stream_distance(a: Stream, b: Stream) -> float:
    """Return how far two streams are from one another: logarithms of size and stride."""
    size = math.log(max(a.size_kb, 1e-3) / max(b.size_kb, 1e-3))
    return math.hypot(size, math.log(max(1, a.stride_b) / max(1, b.stride_b)))


def in_doubt(profile: Profile) -> str:
    """Name a profile with its spread, for people."""
    where = ", ".join(f"{s.size_kb:g} KB, stride {s.stride_b} B" for s in profile.streams)
    what = f"{profile.microbenchmark} ({where})" if where else profile.microbenchmark
    return f"{what} on {profile.node_type}: {100 * profile.spread:.0f} %"


def _family_of(name: str) -> str:
    """Return the family a profile counts to: strides and types lie on one surface."""
    return name.rstrip("X").removesuffix("f")


def _families(stream: Stream) -> tuple[str, ...]:
    letter, other_letter = ("c", "p") if stream.access == "C" else ("p", "c")
    if stream.random:
        return (f"mbw1r{letter}", f"mbw1r{other_letter}")
    loads = (f"mbw1l{letter}", f"mbw1l{other_letter}")
    return ("mbw1wp", *loads) if stream.writes else loads


def _surface(strides: Mapping[int, list[SizeAndTime]], size_kb: float, stride_b: float) -> float:
    """Interpolate in the logarithms of time, size and stride; beyond the ends the ends hold."""
    measured_strides = sorted(strides)
    # One size alone does not tell how time grows with it.
    usable_strides = [s for s in measured_strides if len(strides[s]) > 1] or measured_strides
    exact = strides.get(int(stride_b))
    if exact and exact[0][0] * 0.7 <= size_kb <= exact[-1][0] * 1.4:
        return math.exp(_line(exact, size_kb))
    line = [(float(max(1, s)), math.exp(_line(strides[s], size_kb))) for s in usable_strides]
    return math.exp(_line(line, max(1.0, stride_b)))


def _line(points: Sequence[SizeAndTime], x: float) -> float:
    """Return the logarithm of y at x."""
    if x <= points[0][0]:
        return math.log(points[0][1])
    for (a, low_y), (b, high_y) in pairwise(points):
        if x <= b:
            part = math.log(x / a) / math.log(b / a)
            return math.log(low_y) * (1 - part) + math.log(high_y) * part
    return math.log(points[-1][1])


def scaled(stream: Stream, factor: float) -> Stream:
    """Return a stream when the same work is shared by fewer threads: private parts grow."""
    if stream.access == "C" or factor == 1:
        return stream
    return replace(stream, size_kb=stream.size_kb * factor)


def _steps(
    streams: Sequence[Stream], machine: NodeTypeTimes, threads: int
) -> list[tuple[float, float | None]]:
    """Return of each stream how often an iteration steps along it, and microseconds of a step."""
    wide = effective(streams, threads)
    return [(s.steps or 1.0, machine.step_us(s, threads)) for s in wide]


def phase_on(
    phase: Phase, base: NodeTypeTimes, other: NodeTypeTimes, threads: int
) -> Blended | None:
    """Estimate a phase on another node type; None where profiles it needs are missing.

    ``threads`` are those it ran with on the base node; on the other it is taken to run with as
    many as its profiles have.
    """
    if not threads or not other.threads:
        return None
    share = threads / other.threads
    base_steps = _steps(phase.streams, base, threads)
    other_steps = _steps(tuple(scaled(s, share) for s in phase.streams), other, other.threads)
    slower = arithmetic_ratio(phase, base, other, threads)
    if slower is None or any(t is None for _, t in (*base_steps, *other_steps)):
        return None
    compute, doubt = slower[0] * share, slower[1]
    base_us = math.fsum(n * (t or 0.0) for n, t in base_steps)
    other_us = math.fsum(n * (t or 0.0) for n, t in other_steps) * share
    iteration_us = phase.time_per_iter_us
    if not phase.streams or base_us <= 0:
        error = 0.0 if other is base else math.hypot(doubt, LEAST_ERROR)
        return Blended(compute, error, 0.0, _power(base, other, threads, 0.0))
    part = min(1.0, base_us / iteration_us)
    ratio = _mixed(part, other_us / base_us, compute, OVERLAP)
    # Streams and arithmetic that do not overlap (their sum), and that do wholly (the longer).
    apart = [_mixed(part, other_us / base_us, compute, p) for p in (1.0, math.inf)]
    off = math.log(max(*apart, ratio) / min(*apart, ratio)) / 2
    # Streams that alone would take longer than the phase did are not quite those of the profiles.
    over = 0.25 * math.log(max(1.0, base_us / iteration_us))
    loose = [
        max((p.doubt for p in machine.doubts(phase.streams, n, ("chain", "fma"))), default=0.0)
        for machine, n in ((base, threads), (other, other.threads))
    ]
    error = math.sqrt(off**2 + over**2 + (doubt * (1 - part)) ** 2 + LEAST_ERROR**2)
    error = math.hypot(error, *loose)
    error = 0.0 if other is base else error
    return Blended(ratio, error, part, _power(base, other, threads, part))


def _mixed(part: float, memory: float, compute: float, p: float) -> float:
    """Return the ratio of a phase whose streams take ``part`` of its time here."""
    if math.isinf(p):
        rest = 1.0 if part < 1 else 0.0
        return max(rest * compute, part * memory)
    rest = 1 - part**p
    return float((rest * compute**p + (part * memory) ** p) ** (1 / p))


def arithmetic_ratio(
    phase: Phase, base: NodeTypeTimes, other: NodeTypeTimes, threads: int
) -> tuple[float, float] | None:
    """Return how much longer arithmetic takes per operation of a thread, and the doubt of it.

    Between the ratio of dependent operations and that of the peak, by how near the phase comes
    to either on the base node; by their mean where its operations were not counted.
    """
    ratios = {}
    for name in ("chain", "fma"):
        base_us, other_us = base.arithmetic(name, threads), other.arithmetic(name, other.threads)
        if base_us and other_us:
            ratios[name] = other_us / base_us
    if not ratios:
        return None
    logs = [math.log(r) for r in ratios.values()]
    spread = abs(logs[0] - logs[-1]) / 2
    near = 0.5
    chain, peak = base.arithmetic("chain", threads), base.arithmetic("fma", threads)
    if phase.flops_per_iter and chain and peak and phase.time_per_iter_us and chain > peak:
        operation_us = phase.time_per_iter_us / (phase.flops_per_iter / 2)
        near = min(1.0, max(0.0, math.log(chain / operation_us) / math.log(chain / peak)))
    return math.exp(logs[0] * (1 - near) + logs[-1] * near), spread


def remainder_ratio(base: NodeTypeTimes, other: NodeTypeTimes) -> tuple[float, float] | None:
    """Return how much longer one thread alone takes, and the doubt: what phases leave is serial.

    The mean of arithmetic's ratio and that of loading from memory.
    """
    stream = Stream(_SIZE_MEMORY, 8, 8, "C")
    logs = []
    for base_us, other_us in (
        (base.arithmetic("chain", 1), other.arithmetic("chain", 1)),
        (base.step_us(stream, 1), other.step_us(stream, 1)),
    ):
        if base_us and other_us:
            logs.append(math.log(other_us / base_us))
    if not logs:
        return None
    return math.exp(math.fsum(logs) / len(logs)), abs(logs[0] - logs[-1]) / 2


def memory_ratio(profiles: Sequence[Profile], base: str, other: str) -> float:
    """Return how much longer one thread's loads from memory take, 1 where no profile says."""
    stream = Stream(_SIZE_MEMORY, 8, 8, "C")
    base_us, other_us = (
        NodeTypeTimes(p for p in profiles if p.node_type == name).step_us(stream, 1)
        for name in (base, other)
    )
    return other_us / base_us if base_us and other_us else 1.0


def _power(base: NodeTypeTimes, other: NodeTypeTimes, threads: int, memory: float) -> float | None:
    """Return the other node's power over the base node's, in the phase's mix."""
    mixed = []
    for machine, thread_count in ((base, threads), (other, other.threads)):
        loads, computes = machine.watts(True, thread_count), machine.watts(False, thread_count)
        if loads is None or computes is None:
            return None
        mixed.append(memory * loads + (1 - memory) * computes)
    return mixed[1] / mixed[0]


def machines(profiles: Sequence[Profile], base: str) -> dict[str, NodeTypeTimes]:
    """Return every node type's profiles, the base node's first. Raises InputError without any."""
    by_type: defaultdict[str, list[Profile]] = defaultdict(list)
    for p in profiles:
        by_type[p.node_type].append(p)
    if base not in by_type:
        type_names = ", ".join(sorted(by_type)) or "none"
        raise InputError(
            f"there are no profiles of base node {base}", hint=f"there are some of: {type_names}"
        )
    return {
        name: NodeTypeTimes(by_type[name]) for name in (base, *(n for n in by_type if n != base))
    }


def memory_parts(
    app: Characterisation, profiles: Sequence[Profile], base: str
) -> list[float | None]:
    """Return the part of each phase's time on the base node that its streams take."""
    base_times = machines(profiles, base)[base]
    threads = app.threads or base_times.threads
    blended = [phase_on(p, base_times, base_times, threads) for p in app.phases]
    return [None if b is None else b.memory for b in blended]


def doubtful(app: Characterisation, profiles: Sequence[Profile], base: str) -> tuple[str, ...]:
    """Return the unsure profiles that a blend of an application's phases rests on."""
    times_by_type = machines(profiles, base)
    threads = app.threads or times_by_type[base].threads
    doubts = [
        p
        for name, machine in times_by_type.items()
        for phase in app.phases
        for p in machine.doubts(
            phase.streams, threads if name == base else machine.threads, ("chain", "fma")
        )
    ]
    return tuple(dict.fromkeys(map(in_doubt, doubts)))


Fallback = Callable[[int, str], Blended | None]
"""The estimate of a phase, by its number, on a node type, from the most similar profile alone."""


def blend(
    app: Characterisation,
    profiles: Sequence[Profile],
    base: str,
    fallback: Fallback,
    alone: frozenset[int] = frozenset(),
) -> tuple[list[BlendedRun], list[str]]:
    """Estimate the whole run on every node type; return also the types that lack profiles.

    ``fallback`` estimates phases whose streams or arithmetic no profiles cover, and the phases
    ``alone`` (their numbers) wherever it can.
    """
    times_by_type = machines(profiles, base)
    base_times = times_by_type[base]
    threads = app.threads or base_times.threads
    estimates: list[BlendedRun] = []
    missing_types = []
    for name, machine in times_by_type.items():
        parts = [
            (
                p.time_s,
                (fallback(n, name) if n in alone else None)
                or phase_on(p, base_times, machine, threads)
                or fallback(n, name),
            )
            for n, p in enumerate(app.phases)
        ]
        covered = [(s, b) for s, b in parts if b is not None]
        if not covered or len(covered) < len(parts):
            missing_types.append(name)
            continue
        phases_s = math.fsum(s * b.ratio for s, b in covered)
        measured_s = math.fsum(s for s, _ in covered)
        off_s = math.sqrt(math.fsum((s * b.ratio * b.error) ** 2 for s, b in covered))
        total, error = _with_remainder(app, remainder_ratio(base_times, machine), phases_s, off_s)
        energy = None
        if all(b.power_ratio is not None for _, b in covered):
            power = math.fsum(s * b.ratio * (b.power_ratio or 0.0) for s, b in covered) / phases_s
            energy = power * total / (measured_s + app.remainder_s)
        estimates.append(BlendedRun(name, phases_s, total, error, energy))
    return estimates, missing_types


def _with_remainder(
    app: Characterisation, rest: tuple[float, float] | None, phases_s: float, off_s: float
) -> tuple[float, float]:
    """Return the whole run's seconds and relative error; without ``rest`` all of it is scaled."""
    measured_s = math.fsum(p.time_s for p in app.phases)
    if rest is None:
        return phases_s * (measured_s + app.remainder_s) / measured_s, off_s / phases_s
    rest_s = app.remainder_s * rest[0]
    total = phases_s + rest_s
    return total, math.hypot(off_s, rest_s * math.hypot(rest[1], LEAST_ERROR)) / total
