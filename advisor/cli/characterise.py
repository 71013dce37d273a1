"""``advisor characterise``: find an application's phases and their memory streams."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.ranking.characterise import PhaseResult
    from advisor.ranking.characterise_runs import Command, TimedRun, TracedRun
    from advisor.ranking.characterise_streams import FoundPhase, FoundStream

METHODS = ("auto", "cc", "valgrind", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.usage = "advisor characterise [options] -- COMMAND [ARG ...]"
    parser.epilog = (
        "COMMAND runs twice: as it is, for its times, and traced, for its memory streams. Build "
        "it with advisor cc for the second, or have valgrind installed."
    )
    parser.add_argument("--application", metavar="A", help="what it is (default: recognised)")
    parser.add_argument("--workload", metavar="W", help="its input or problem class")
    parser.add_argument("--node-type", metavar="T", help="the node type this machine is")
    parser.add_argument("--threads", type=int, metavar="N", help="cores to use (default: all)")
    parser.add_argument(
        "--trace", choices=METHODS, default="auto", help="how to find streams (default: auto)"
    )
    parser.add_argument(
        "--min-weight", default="5%", metavar="P", help="phases that count (default: 5%%)"
    )
    parser.add_argument(
        "--limit", metavar="TIME", help="end the traced run after so long, like 10m"
    )
    parser.add_argument("--output", metavar="FILE", help="write the phases as YAML")
    parser.set_defaults(takes_tail=True)


def run(args: argparse.Namespace) -> int:
    """Characterise the command; its own exit code is ours if it fails, 128 + N for a signal."""
    from advisor.cli.output import print_json
    from advisor.core.units import parse_duration_s, parse_fraction
    from advisor.errors import UsageError
    from advisor.meters.process import exit_text
    from advisor.ranking.characterise import DEFAULT_L1, cache_bytes, join
    from advisor.ranking.characterise_runs import Command, input_file, timed_run

    if not args.tail:
        raise UsageError("nothing to run", hint="advisor characterise [options] -- COMMAND")
    if args.threads is not None and args.threads < 1:
        raise UsageError("--threads must be at least 1")
    try:
        min_weight = parse_fraction(args.min_weight)
        limit_s = parse_duration_s(args.limit) if args.limit else None
    except ValueError as error:
        raise UsageError(str(error)) from error
    stdin, start = input_file()
    command = Command(tuple(args.tail), args.threads or 0, stdin, start, args.json)
    timed = timed_run(command)
    if timed.exit_code:
        print(
            f"advisor: {args.tail[0]}: {exit_text(timed.exit_code)}; nothing is stored",
            file=sys.stderr,
        )
        return timed.exit_code if timed.exit_code > 0 else 128 - timed.exit_code
    if not args.json:
        print(_timed_line(command, timed), flush=True)
    traced, why = _trace(command, timed, args.trace, limit_s)
    l1_bytes = cache_bytes(1) or DEFAULT_L1
    phases = join(timed, traced, min_weight=min_weight, l1_bytes=l1_bytes)
    if args.json:
        print_json("characterise", _json(timed, traced, why, phases, l1_bytes))
        return 0
    print(_traced_line(timed, traced, why))
    _print(timed, phases)
    return 0


def _trace(
    command: Command, timed: TimedRun, method: str, limit_s: float | None
) -> tuple[TracedRun | None, str]:
    """Run traced in the way asked for; without a run, say why."""
    from advisor.errors import InputError
    from advisor.ranking import valgrind
    from advisor.ranking.characterise_runs import twin_of, twin_run, valgrind_run

    programs = {p.exe for p in timed.processes if p.phases} or {p.exe for p in timed.processes}
    twins = [twin_of(exe) for exe in programs if twin_of(exe).is_file()]
    old = [t for t in twins if t.stat().st_mtime < t.with_suffix("").stat().st_mtime]
    if method == "none":
        return None, "no trace was asked for"
    if method == "cc" and not twins:
        raise InputError(
            f"there is no traced twin of {command.argv[0]}", hint="build it with advisor cc"
        )
    if twins and method in ("auto", "cc"):
        if old:
            raise InputError(
                f"{old[0]} is older than its program", hint="build both with advisor cc"
            )
        return twin_run(command, limit_s=limit_s), ""
    if method == "valgrind" or valgrind.installed():
        outside = not any(p.phases for p in timed.processes)
        return valgrind_run(command, outside=outside, limit_s=limit_s), ""
    return None, (
        f"no streams: build {command.argv[0]} with advisor cc, or install valgrind, to find them"
    )


def _timed_line(command: Command, timed: TimedRun) -> str:
    from advisor.core.units import format_duration

    regions = sum(len(p.phases) for p in timed.processes)
    line = f"timed   {format_duration(timed.time_s)}"
    if regions:
        return f"{line}, {regions} parallel regions"
    if not timed.processes:
        return f"{line}; a statically linked program cannot be looked into: it is one phase"
    return f"{line}; no OpenMP regions: the whole program is one phase"


def _traced_line(timed: TimedRun, traced: TracedRun | None, why: str) -> str:
    from advisor.core.units import format_duration

    if traced is None:
        return f"traced  no: {why}"
    accesses = sum(s.count for p in traced.processes for s in p.sites)
    line = (
        f"traced  {format_duration(traced.time_s)} with {traced.method}"
        f" ({traced.time_s / timed.time_s:.1f} times as long), {accesses:.3g} accesses"
    )
    return f"{line}; stopped at the limit" if traced.stopped else line


def _print(timed: TimedRun, phases: Sequence[PhaseResult]) -> None:
    from advisor.cli.output import print_table
    from advisor.core.units import format_duration

    rows: list[list[object]] = [
        [
            phase.name,
            f"{phase.weight:.1%}",
            format_duration(phase.time_s),
            phase.calls,
            phase.threads,
            f"{phase.iterations:.6g}" if phase.iterations else "",
            f"{phase.time_per_iter_us:.4g}" if phase.time_per_iter_us else "",
        ]
        for phase in phases
    ]
    rest = max(0.0, timed.time_s - sum(p.time_s for p in phases))
    rows.append(["remainder", f"{rest / timed.time_s:.1%}", format_duration(rest), "", "", "", ""])
    print()
    print_table(["phase", "weight", "time", "calls", "threads", "iterations", "µs/iter"], rows)
    for phase in phases:
        if phase.found is None:
            continue
        print(f"\n{phase.name}{': ' + phase.note if phase.note else ''}")
        if phase.found.streams:
            print_table(
                ["zone KB", "stride B", "element B", "access", "regular", "share", "", "where"],
                [_stream_row(phase, stream) for stream in phase.found.streams],
            )
        else:
            print("no streams beyond the first-level cache: it is limited by computing")
        print(_summary(phase.found))


def _stream_row(phase: PhaseResult, stream: FoundStream) -> list[object]:
    places = sorted({phase.places[pc] for pc in stream.sites if phase.places.get(pc)})
    more = f" +{len(places) - 3}" if len(places) > 3 else ""
    return [
        f"{stream.size_kb:.6g}",
        "random" if stream.random else stream.stride_b,
        stream.dtype_b,
        "C shared" if stream.access == "C" else "P private",
        f"{stream.dominance:.1%}",
        f"{stream.share:.1%}",
        "read and written" if stream.reads and stream.writes else
        "written" if stream.writes else "read",
        ", ".join(places[:3]) + more,
    ]  # fmt: skip


def _summary(found: FoundPhase) -> str:
    parts = [f"at most {found.bytes_per_iter:.3g} B an iteration from beyond the first-level cache"]
    if found.flops_per_iter is not None:
        parts.append(f"{found.flops_per_iter:.3g} floating-point operations")
    if found.dropped:
        cached = sum(1 for s in found.dropped if s.dropped == "cached")
        left = [f"{len(found.dropped) - cached} rare"] if len(found.dropped) > cached else []
        left += [f"{cached} that stay in the cache"] if cached else []
        parts.append(f"left out: {' and '.join(left)}")
    return "; ".join(parts)


def _json(
    timed: TimedRun,
    traced: TracedRun | None,
    why: str,
    phases: Sequence[PhaseResult],
    l1_bytes: int,
) -> dict[str, object]:
    return {
        "time_s": timed.time_s,
        "trace": {
            "method": traced.method if traced else None,
            "time_s": traced.time_s if traced else None,
            "stopped": bool(traced and traced.stopped),
            "detail": why,
        },
        "l1_bytes": l1_bytes,
        "remainder_s": max(0.0, timed.time_s - sum(p.time_s for p in phases)),
        "phases": [_phase_json(phase) for phase in phases],
    }


def _phase_json(phase: PhaseResult) -> dict[str, object]:
    found = phase.found
    names = ("name", "weight", "time_s", "calls", "threads", "imbalance", "iterations",
             "time_per_iter_us", "note")  # fmt: skip
    data: dict[str, object] = {name: getattr(phase, name) for name in names}
    if found is None:
        return data
    shown = ("size_kb", "stride_b", "dtype_b", "access", "random", "dominance", "share", "reads",
             "writes")  # fmt: skip
    data["streams"] = [
        {
            **{name: getattr(stream, name) for name in shown},
            "sites": sorted({phase.places.get(pc, "") for pc in stream.sites} - {""}),
        }
        for stream in found.streams
    ]
    return data | {
        "dropped": len(found.dropped),
        "bytes_per_iter": found.bytes_per_iter,
        "flops_per_iter": found.flops_per_iter,
    }
