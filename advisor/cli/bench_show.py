"""``advisor lab bench show``: profiles as a table and a picture (Corredor, fig. 3.11)."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from advisor import paths
from advisor.cli.bench_answers import (
    BenchAnswer,
    FileSystemProfile,
    ProfiledType,
    ShownFiles,
    ShownIo,
    ShownProfile,
)
from advisor.cli.bench_io import print_io
from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import check_plot, print_picture, save_plot
from advisor.errors import RefusedError, UsageError
from advisor.store.file_systems import StoredIo, io_profiles
from advisor.store.profiles import Bench, StoredProfile, latest_bench, profiled_types, profiles
from advisor.store.reader import Reader

if TYPE_CHECKING:
    from advisor.plotting.panels import Line, Panels


def show(args: argparse.Namespace) -> int:
    """Print what is known of the node types, of one family time per iteration over size."""
    check_plot(args.plot)
    path = paths.whole_store(args.db)
    benches: list[tuple[Bench, list[StoredProfile]]] = []
    files: list[StoredIo] = []
    with Reader(path) as reader:
        for name in args.node_type or profiled_types(reader):
            bench = latest_bench(reader, name)
            if bench is None:
                raise RefusedError(
                    f"{name} has no profiles", hint=f"advisor lab bench --node-type {name}"
                )
            files += io_profiles(reader, name)
            if measured := profiles(reader, name):
                benches.append((bench, measured))
    if not benches and not files:
        raise RefusedError("no node type has profiles", hint="advisor lab bench")
    if not benches:
        return _show_files(args, files)
    names = dict.fromkeys(
        p.microbenchmark.rstrip("X") for _, type_profiles in benches for p in type_profiles
    )
    shown = [n.rstrip("X") for n in args.microbenchmark or ()]
    shown = shown or ["mbw1c" if "mbw1c" in names else next(iter(names))]
    if unknown := [n for n in shown if n not in names]:
        raise UsageError(
            f"no profile is called {unknown[0]}", hint=f"there are: {', '.join(sorted(names))}"
        )
    chosen = [
        [p for p in type_profiles if p.microbenchmark.rstrip("X") in shown]
        for _, type_profiles in benches
    ]
    picture = _picture(shown, benches, chosen, across=args.across)
    if args.plot is not None:
        save_plot(picture, args.plot)
    if args.json:
        print_json("bench", BenchAnswer([_profiled_type(*b, files) for b in benches]))
        return 0
    print_table(
        ["node type", "microbenchmarks", "threads", "GB/s", "GFlop/s", "host", "measured"],
        [_row(*b) for b in benches],
    )
    own_kernels = {
        f"{p.microbenchmark} by {p.contributor}, for "
        + ("everybody's jobs" if p.scope == "all" else f"{p.contributor}'s jobs")
        for _, type_profiles in benches
        for p in type_profiles
        if p.contributor
    }
    for line in sorted(own_kernels):
        print(f"kernel {line}")
    if files:
        print()
        print_io(files)
    print()
    if picture.panels:
        print_picture(picture)
    else:
        print_table(
            [
                "node type",
                "microbenchmark",
                "size and stride",
                "threads",
                "ns per iteration",
                "within",
            ],
            [
                [
                    p.node_type,
                    p.microbenchmark,
                    _size(p),
                    p.threads,
                    f"{p.time_per_iter_us * 1e3:.4g}",
                    f"{p.spread:.1%}",
                ]
                for type_profiles in chosen
                for p in type_profiles
            ],
        )
    return 0


def _show_files(args: argparse.Namespace, files: Sequence[StoredIo]) -> int:
    """Print profiles of file systems, where there are no others."""
    if args.json:
        types = dict.fromkeys(p.node_type for p in files)
        shown = [ShownFiles(name, _file_systems(files, name)) for name in types]
        print_json("bench", BenchAnswer(shown))
    else:
        print_io(files)
    return 0


def _file_systems(files: Sequence[StoredIo], node_type: str) -> list[FileSystemProfile]:
    return [
        FileSystemProfile(
            p.file_system,
            p.kind,
            ShownIo(
                p.operation,
                p.random,
                p.block_b,
                p.time_per_op_us,
                p.direct,
                p.spread,
                p.repeats,
                p.cached_us,
            ),
        )
        for p in files
        if p.node_type == node_type
    ]


def _size(profile: StoredProfile) -> str:
    return ", ".join(f"{s['size_kb']:g} KB / {s['stride_b']} B" for s in profile.streams) or "-"


def roofline_of(type_profiles: Sequence[StoredProfile]) -> tuple[int, float, float]:
    """Return threads, GB/s of the largest triad, and GFlop/s of the peak; zeros if not measured."""
    threads = max(p.threads for p in type_profiles)
    triads = [p for p in type_profiles if p.microbenchmark == "triad"]
    triad = max(triads, key=lambda p: float(p.streams[0]["size_kb"]), default=None)
    peak = next(
        (p for p in type_profiles if p.microbenchmark == "fma" and p.threads == threads), None
    )
    return (
        threads,
        24e-3 * triad.threads / triad.time_per_iter_us if triad else 0.0,
        2e-3 * threads / peak.time_per_iter_us if peak else 0.0,
    )


def _row(bench: Bench, type_profiles: Sequence[StoredProfile]) -> list[str]:
    threads, bandwidth, peak = roofline_of(type_profiles)
    return [
        bench.node_type,
        str(len(type_profiles)),
        str(threads),
        *(f"{value:.1f}" if value else "-" for value in (bandwidth, peak)),
        bench.host,
        bench.measured_at[:16].replace("T", " "),
    ]


def _profiled_type(
    bench: Bench, type_profiles: Sequence[StoredProfile], files: Sequence[StoredIo]
) -> ProfiledType:
    threads, bandwidth_gb_s, peak_gflop_s = roofline_of(type_profiles)
    return ProfiledType(
        node_type=bench.node_type,
        machine=bench.machine,
        host=bench.host,
        kernel=bench.kernel,
        compiler=bench.compiler,
        measured_by=bench.measured_by,
        measured_at=bench.measured_at,
        threads=threads,
        bandwidth_gb_s=bandwidth_gb_s,
        gflop_s=peak_gflop_s,
        profiles=[
            ShownProfile(
                microbenchmark=p.microbenchmark,
                streams=p.streams,
                threads=p.threads,
                time_per_iter_us=p.time_per_iter_us,
                spread_pct=100 * p.spread,
                repeats=p.repeats,
                energy_per_iter_nj=p.energy_per_iter_nj,
                meter=p.meter,
                contributor=p.contributor,
                scope=p.scope,
            )
            for p in type_profiles
        ],
        io=_file_systems(files, bench.node_type),
    )


def _picture(
    names: Sequence[str],
    benches: Sequence[tuple[Bench, Sequence[StoredProfile]]],
    chosen: Sequence[Sequence[StoredProfile]],
    *,
    across: bool,
) -> Panels:
    """Return time per iteration over size: a panel for each node type, a line for each stride.

    With ``across`` a panel for each stride, a line for each node type (Corredor, fig. 3.12); with
    several names a line for each of them, too (fig. 3.4 and 3.5).
    """
    from advisor.plotting.panels import Lines, Panels

    by_panel: defaultdict[str, list[Line]] = defaultdict(list)
    for (bench, _), type_profiles in zip(benches, chosen, strict=True):
        by_line: defaultdict[tuple[int, str], dict[float, StoredProfile]] = defaultdict(dict)
        for p in sorted(type_profiles, key=lambda p: p.threads):
            if p.streams:
                stride, name = p.streams[0]["stride_b"], p.microbenchmark.rstrip("X")
                by_line[stride, name][p.streams[0]["size_kb"]] = p
        for (stride, name), points in sorted(by_line.items()):
            stride_label = f"stride {stride} B" if stride else "at random"
            panel, label = (
                (stride_label, bench.node_type) if across else (bench.node_type, stride_label)
            )
            by_panel[panel].append(_line(f"{name}, {label}" if len(names) > 1 else label, points))
    panels = [
        Lines(f"size (KB), {panel}", "ns per iteration", tuple(lines), True)
        for panel, lines in by_panel.items()
        if any(len(line.x) > 1 for line in lines)
    ]
    return Panels(f"{', '.join(names)}: time per iteration over size", tuple(panels))


def _line(label: str, points: Mapping[float, StoredProfile]) -> Line:
    """Return time per iteration over size, ns, with what the repeats leave open."""
    from advisor.plotting.panels import Line

    sizes = sorted(points)
    sized_profiles = [points[s] for s in sizes]
    y = [p.time_per_iter_us * 1e3 for p in sized_profiles]
    return Line(
        label,
        sizes,
        y,
        [v * (1 - min(1.0, p.spread)) for v, p in zip(y, sized_profiles, strict=True)],
        [v * (1 + p.spread) for v, p in zip(y, sized_profiles, strict=True)],
        sizes,
    )
