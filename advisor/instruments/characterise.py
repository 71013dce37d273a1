"""Characterise an application: its phases, their weights, and their memory streams.

Corredor (2011), section 3.1.2: a phase is one fork-join of the program; its weight is its part of
the whole run's time; its iterations are those of one thread (the slowest sets the time) over all
its calls, so that its time divided by them can be compared with a microbenchmark's. The program is
run twice: as it is, for the times, and traced, for the streams.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.instruments.characterise_files import TimedPhase, TimedProcess, TracedProcess
from advisor.instruments.characterise_io import io_streams
from advisor.instruments.characterise_runs import TimedRun, TracedRun, twin_of
from advisor.instruments.characterise_streams import FoundPhase, find_phase
from advisor.instruments.elf import demangled
from advisor.ranking.streams import Characterisation, IoStream, Phase, Stream

WHOLE = "whole program"
DEFAULT_L1 = 32 * 1024
"""Bytes of the first-level cache where the kernel does not name it: most processors' size."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """What lies at an address: the linker's name, the function as people write it, the line.

    ``raw`` and ``function`` are "" and ``line`` is 0 where they are not known.
    """

    raw: str = ""
    function: str = ""
    source: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """``file.c:12``, "" when not known."""
        return f"{Path(self.source).name}:{self.line}" if self.line else ""


def symbols_at(file: Path, offsets: Iterable[int]) -> Mapping[int, Symbol]:
    """Return the symbol at each offset of a program, by binutils' addr2line; without it none."""
    sorted_offsets = sorted(set(offsets))
    tool = shutil.which("addr2line")
    if tool is None or not sorted_offsets or not file.is_file():
        return {}
    process = subprocess.run(
        [tool, "-f", "-e", str(file)],
        input="\n".join(map(hex, sorted_offsets)),
        capture_output=True,
        text=True,
        errors="replace",
    )
    lines = process.stdout.splitlines()
    if len(lines) != 2 * len(sorted_offsets):
        return {}
    raws = [name.partition(" ")[0] if name != "??" else "" for name in lines[::2]]
    pretty = demangled(raws)
    symbols = {}
    for offset, raw, function, place in zip(sorted_offsets, raws, pretty, lines[1::2], strict=True):
        source, _, rest = place.rpartition(":")
        number = rest.split(" ")[0]
        has_line = number.isdecimal() and source not in ("", "??")
        place_of = (source, int(number)) if has_line else ("", 0)
        symbols[offset] = Symbol(raw, function, *place_of)
    return symbols


@dataclass(frozen=True, slots=True)
class Part:
    """A phase finer than fork and join: what a region does up to one of its barriers.

    ``place`` is the barrier's source line, "" for what follows the last one; ``calls`` how often it
    was reached, ``time_s`` seconds in all, waiting at the barrier included.
    """

    place: str
    calls: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Timed:
    """One phase of the whole run: where it is, how often it ran, and its wall time.

    ``imbalance`` is the slowest thread's time over the mean one's; ``order`` is the place of its
    first fork among all regions of its program.
    """

    exe: Path
    symbol: Symbol
    order: int
    calls: int
    time_s: float
    threads: int
    imbalance: float
    dynamic: bool
    parts: tuple[Part, ...] = ()
    io: tuple[IoStream, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """A phase with what was found of it; ``traced`` is None when it was not traced.

    ``places`` are the source lines of the streams' sites; ``note`` says what is not as it should.
    """

    name: str
    weight: float
    time_s: float
    calls: int
    threads: int
    imbalance: float
    iterations: float
    traced: FoundPhase | None
    places: Mapping[int, str] = field(default_factory=dict)
    note: str = ""
    parts: tuple[Part, ...] = ()
    io: tuple[IoStream, ...] = ()

    @property
    def time_per_iter_us(self) -> float | None:
        """Microseconds an iteration of the slowest thread takes."""
        return self.time_s * 1e6 / self.iterations if self.iterations else None


def cache_bytes(level: int, root: Path = Path("/sys")) -> int | None:
    """Return the size of this machine's data cache of a level, None where it is not known."""
    for index in sorted((root / "devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level_text = (index / "level").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind in ("Data", "Unified") and level_text == str(level) and size[:-1].isdecimal():
            return int(size[:-1]) * {"K": 1024, "M": 1024**2}.get(size[-1], 1)
    return None


def timed_phases(run: TimedRun) -> list[Timed]:
    """Return the phases of all processes of a run, the longest first.

    Processes of the same program that run at the same time (ranks) count as one, with their mean
    times; those that run one after the other add up.
    """
    gathered: defaultdict[tuple[Path, Path, int], list[tuple[int, TimedPhase, float]]]
    gathered = defaultdict(list)
    together = concurrency(run.processes)
    io = io_streams(run.processes, together, run.time_s)
    for process in run.processes:
        for order, phase in enumerate(process.phases):
            key = (process.exe, phase.file, phase.offset)
            gathered[key].append((order, phase, together[process.exe]))
    offsets: defaultdict[Path, set[int]] = defaultdict(set)
    for (_, file, offset), regions in gathered.items():
        # A part is known by where its barrier returns to, which lies behind the call.
        offsets[file] |= {offset, *(part.offset - 1 for _, p, _ in regions for part in p.parts)}
    symbols = {file: symbols_at(file, file_offsets) for file, file_offsets in offsets.items()}
    timed = []
    for (exe, file, offset), parts in gathered.items():
        time_s = sum(p.time_s / ranks for _, p, ranks in parts)
        busy, slowest = (sum(getattr(p, k) for _, p, _ in parts) for k in ("busy_s", "slowest_s"))
        threads = max(p.threads for _, p, _ in parts)
        timed.append(
            Timed(
                exe,
                symbols[file].get(offset, Symbol()),
                min(order for order, _, _ in parts),
                round(sum(p.calls / ranks for _, p, ranks in parts)),
                time_s,
                threads,
                max(1.0, slowest * threads / busy) if busy else 1.0,
                any(p.dynamic for _, p, _ in parts),
                _divided(parts, time_s, symbols[file]),
                io.get((exe, file, offset), ()),
            )
        )
    return sorted(timed, key=lambda phase: -phase.time_s)


def _divided(
    regions: Sequence[tuple[int, TimedPhase, float]],
    time_s: float,
    symbols: Mapping[int, Symbol],
) -> tuple[Part, ...]:
    """Return the parts of a region that ran in several processes; none without a barrier."""
    calls: defaultdict[int, float] = defaultdict(float)
    seconds: defaultdict[int, float] = defaultdict(float)
    for _, region, ranks in regions:
        for part in region.parts:
            calls[part.offset] += part.calls / ranks
            seconds[part.offset] += part.time_s / ranks
    if not calls:
        return ()
    parts = [
        Part(
            symbols.get(offset - 1, Symbol()).place or hex(offset),
            round(calls[offset]),
            seconds[offset],
        )
        for offset in calls
    ]
    rest_s = max(0.0, time_s - sum(part.time_s for part in parts))
    return (*parts, Part("", round(sum(r.calls / ranks for _, r, ranks in regions)), rest_s))


def concurrency(processes: Sequence[TimedProcess]) -> dict[Path, float]:
    """Return how many processes of each program ran at the same time, in the mean."""
    spans: defaultdict[Path, list[tuple[float, float]]] = defaultdict(list)
    for process in processes:
        if process.phases:
            spans[process.exe].append((process.begin_s, process.begin_s + process.time_s))
    together = {}
    for exe, times in spans.items():
        covered, end = 0.0, float("-inf")
        for begin, stop in sorted(times):
            covered += max(0.0, stop - max(begin, end))
            end = max(end, stop)
        total = sum(stop - begin for begin, stop in times)
        together[exe] = max(1.0, total / covered) if covered else 1.0
    return together


def join(
    timed: TimedRun, traced: TracedRun | None, *, min_weight: float, l1_bytes: int
) -> tuple[PhaseResult, ...]:
    """Put times and streams together; return the phases of at least ``min_weight`` of the time.

    A program without parallel regions of such weight is one phase.
    """
    phases = timed_phases(timed)
    heavy = [p for p in phases if p.time_s >= min_weight * timed.time_s]
    if not heavy:
        process = _busiest(traced)
        phase_streams = find_phase(process, 0, l1_bytes=l1_bytes) if process else None
        threads = phase_streams.threads if phase_streams else 1
        io = io_streams(timed.processes, concurrency(timed.processes), timed.time_s)
        all_io = tuple(s for streams in io.values() for s in streams)
        whole_program = Timed(Path(), Symbol(), 0, 1, timed.time_s, threads, 1, False, io=all_io)
        places = _places(process, phase_streams) if process and phase_streams else {}
        return (_result(WHOLE, whole_program, timed.time_s, phase_streams, places),)
    matched = [_match(phase, phases, traced) for phase in heavy]
    names = _names(
        [symbol or phase.symbol for phase, (_, _, symbol) in zip(heavy, matched, strict=True)]
    )
    results = []
    for phase, name, (process, region, _) in zip(heavy, names, matched, strict=True):
        if process is None or traced is None:
            results.append(_result(name, phase, timed.time_s, None, {}))
            continue
        phase_streams = find_phase(process, region, l1_bytes=l1_bytes)
        note = ""
        if traced.stopped:
            phase_streams, note = _scaled(phase_streams, phase.calls, process.regions[region].calls)
        places = _places(process, phase_streams)
        results.append(_result(name, phase, timed.time_s, phase_streams, places, note))
    return tuple(results)


def _result(
    name: str,
    phase: Timed,
    total_s: float,
    traced: FoundPhase | None,
    places: Mapping[int, str],
    note: str = "",
) -> PhaseResult:
    iterations = 0.0
    if traced is not None and traced.iterations_mean:
        # who had most iterations in the traced run need not be the slowest in the real one
        uneven = 1.0 if phase.dynamic else phase.imbalance
        most = traced.iterations_most / traced.iterations_mean
        iterations = traced.iterations_mean * min(uneven, most)
    return PhaseResult(
        name,
        phase.time_s / total_s,
        phase.time_s,
        phase.calls,
        phase.threads,
        phase.imbalance,
        iterations,
        traced,
        places,
        note,
        phase.parts,
        phase.io,
    )


def _busiest(traced: TracedRun | None, exe: Path | None = None) -> TracedProcess | None:
    """Return the traced process (of one program) with the most accesses."""
    if traced is None:
        return None
    candidates = [p for p in traced.processes if exe is None or p.exe in (exe, twin_of(exe))]
    return max(candidates, key=lambda p: sum(s.count for s in p.sites), default=None)


def _match(
    phase: Timed, phases: Sequence[Timed], traced: TracedRun | None
) -> tuple[TracedProcess | None, int, Symbol | None]:
    """Find a timed phase in the traced run: by the linker's name, else by the order of forks.

    Several regions of one name (static functions of different files) are matched by their order.
    """
    process = _busiest(traced, phase.exe)
    if process is None:
        return None, 0, None
    symbols = _region_symbols(process)
    symbol_name = phase.symbol.raw
    alike = sorted(p.order for p in phases if p.exe == phase.exe and p.symbol.raw == symbol_name)
    named = [n for n, symbol in symbols.items() if symbol_name and symbol.raw == symbol_name]
    position = alike.index(phase.order)
    if position < len(named):
        return process, named[position], symbols[named[position]]
    phase_symbols = {p.symbol.raw for p in phases if p.exe == phase.exe and p.symbol.raw}
    by_order = phase.order + 1
    if by_order in symbols and symbols[by_order].raw not in phase_symbols:
        return process, by_order, symbols[by_order]
    return None, 0, None


def _region_symbols(process: TracedProcess) -> dict[int, Symbol]:
    """Return the symbol of each region of a traced process, by its number."""
    return {
        n: symbol
        for n, symbol in enumerate(_symbols(process, [r.pc for r in process.regions]))
        if n > 0
    }


def _symbols(process: TracedProcess, pcs: Sequence[int], *, back: int = 0) -> list[Symbol]:
    """Return the symbols of addresses in a process; ``back`` is subtracted before looking up."""
    located = [process.locate(pc - back) for pc in pcs]
    offsets_by_file: defaultdict[Path, set[int]] = defaultdict(set)
    for place in located:
        if place is not None:
            offsets_by_file[place[0]].add(place[1])
    symbols_by_file = {file: symbols_at(file, offsets) for file, offsets in offsets_by_file.items()}
    return [
        symbols_by_file[p[0]].get(p[1], Symbol()) if p is not None else Symbol() for p in located
    ]


def _places(process: TracedProcess, traced: FoundPhase) -> dict[int, str]:
    """Return the source line of each site of the streams, where it is known."""
    pcs = sorted({pc for stream in traced.streams for pc in stream.sites})
    symbols = _symbols(process, pcs, back=1)  # a return address lies behind its call
    return {pc: s.place or s.function for pc, s in zip(pcs, symbols, strict=True)}


def _scaled(traced: FoundPhase, calls: int, traced_calls: int) -> tuple[FoundPhase, str]:
    """Scale the iterations of a trace that was cut short to all calls of the timed run."""
    if traced_calls >= calls:
        return traced, ""
    if traced_calls < 2:
        return replace(traced, iterations_mean=0.0, iterations_most=0.0), (
            "its call was cut short, so its iterations are not known"
        )
    # The last call was cut short somewhere: half of it counts.
    factor = calls / (traced_calls - 0.5)
    return replace(
        traced,
        iterations_mean=traced.iterations_mean * factor,
        iterations_most=traced.iterations_most * factor,
    ), f"traced in {traced_calls} of {calls} calls"


def _names(symbols: Sequence[Symbol]) -> list[str]:
    """Name phases by function and line, numbered where two have the same."""
    names = [
        f"{s.function or 'region'} ({s.place})" if s.place else s.function or "region"
        for s in symbols
    ]
    name_counts: Counter[str] = Counter()
    times = Counter(names)
    for n, name in enumerate(names):
        name_counts[name] += 1
        if times[name] > 1 or name == "region":
            names[n] = f"{name} #{name_counts[name]}"
    return names


def characterisation(
    phases: Sequence[PhaseResult],
    timed: TimedRun,
    traced: TracedRun | None,
    application: str,
    workload: str,
    node_type: str,
) -> Characterisation:
    """Return the phases in the stored form, rounded to significant digits."""
    return Characterisation(
        application,
        tuple(_stored_phase(phase) for phase in phases),
        workload,
        node_type,
        max(phase.threads for phase in phases),
        round(timed.time_s, 6),
        traced.method if traced else "",
        _io_outside(phases, timed),
    )


def _io_outside(phases: Sequence[PhaseResult], timed: TimedRun) -> tuple[IoStream, ...]:
    """Return the reads and writes that no phase holds, those of left out phases among them."""
    io_by_phase = io_streams(timed.processes, concurrency(timed.processes), timed.time_s)
    phase_io = {s for phase in phases for s in phase.io}
    return tuple(s for streams in io_by_phase.values() for s in streams if s not in phase_io)


def _stored_phase(phase: PhaseResult) -> Phase:
    traced = phase.traced
    return Phase(
        phase.name,
        round(phase.weight, 6),
        round(phase.time_s, 6),
        phase.iterations,
        float(f"{phase.time_per_iter_us or 0:.6g}"),
        tuple(
            Stream(
                round(s.size_kb, 3),
                s.stride_b,
                s.dtype_b,
                s.access,
                s.writes,
                round(s.share, 4),
                round(s.dominance, 4),
                round(s.steps, 6),
            )
            for s in traced.streams
        )
        if traced
        else (),
        phase.calls,
        phase.threads,
        float(f"{traced.bytes_per_iter:.6g}") if traced else None,
        float(f"{traced.flops_per_iter:.6g}") if traced and traced.flops_per_iter else None,
        phase.io,
    )
