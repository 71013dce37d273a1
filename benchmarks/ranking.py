"""How right rankings are: node types posed on this machine, each profiled, estimated and run.

``python benchmarks/ranking.py [--full] [--repeats N] [--keep FOLDER]`` poses four node types: both
cores (the base), one core, both cores beside a memory hog, half of the cores' time by a cgroup
quota (as root). It profiles each with ``advisor lab bench``; then each kernel is characterised on
the base, the microbenchmarks like it are measured on all, and it runs on all for real, in turn, so
that a machine that gets faster or slower does so for all. Both methods' estimates are held against
the real times, by overlap of streams and arithmetic, apart for the kernels that it was chosen with
and those that it was not. ``--keep`` keeps what was measured, and measures only what is not there
yet. What others disturb, by more than 3 % of the cores' time, is measured again, so that a machine
that others use will do; as root it comes before them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

from advisor import paths
from advisor.cli.rank import stored_profiles
from advisor.core.option import Z90
from advisor.instruments.twin import compile_twice
from advisor.ranking import blend
from advisor.ranking.files import read_thresholds
from advisor.ranking.rank import RankingMethod, rank
from advisor.ranking.streams import Characterisation
from advisor.ranking.suite import like, member
from advisor.schedulers.this_machine import local_node_type
from advisor.store.profiles import StoredProfile, latest_bench, save_profiles
from advisor.store.rankings import characterisations
from advisor.store.reader import Reader
from advisor.store.writer import Writer

BASE = "both"
FITTED = {
    "matmul row": ("matmul", "1000", "row"),
    "matmul column": ("matmul", "1400", "column"),
    "nbody": ("nbody", "12000", "6"),
    "stencil": ("stencil", "2000", "600"),
    "spmv": ("spmv", "400000", "16", "200"),
    "table": ("table", "8000000", "120000000"),
    "triad": ("triad", "4000000", "400"),
}
"""The kernels that ``blend.OVERLAP`` was chosen with. The table's look-ups are those of all
threads; the program takes a thread's."""
REPORTED = {
    "fft": ("fft", "16", "64", "12"),
    "sort": ("sort", "8000000", "2"),
    "blocks": ("blocks", "200000", "8", "60"),
}
"""The kernels that nothing was chosen with: what they say of the error is honest."""
KERNELS = FITTED | REPORTED
CONSTANTS = {
    "OVERLAP": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, math.inf),
    "LEAST_ERROR": (0.02, 0.04, 0.06, 0.08, 0.10, 0.12),
}
"""What of ``blend`` was chosen with the seven, and the values to compare."""
ROUNDS = 3
"""Goes of the microbenchmarks like a kernel, on all node types in turn."""
QUIET, TRIES = 0.03, 2
"""Others' share of the cores' time beyond which a measurement is repeated, and goes at most."""
GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Posed:
    """A node type made of this machine: its cores, what a child does first, what runs beside."""

    cores: tuple[int, ...]
    enter: Callable[[], None]
    hog: bool = False
    idle: float = 0.0  # the part of the cores' time that others may have: it is not its own


@contextmanager
def group(name: str, quota: float | None = None) -> Iterator[Path | None]:
    """Make a cgroup that comes before others, with a quota of cores; None where that cannot be."""
    period = 100_000
    one = (GROUP / "cpu").is_dir()
    folder = GROUP / ("cpu" if one else "") / f"advisor-{name}-{os.getpid()}"
    words = {"cpu.shares" if one else "cpu.weight": "262144" if one else "10000"}
    if quota is not None:
        own = str(int(period * quota))
        words |= {"cpu.cfs_quota_us": own} if one else {"cpu.max": f"{own} {period}"}
    try:
        folder.mkdir()
        for file, value in words.items():
            (folder / file).write_text(value)
    except OSError as error:
        print(f"no cgroup for {name}: {error}")
        with suppress(OSError):
            folder.rmdir()
        yield None
        return
    try:
        yield folder
    finally:
        (folder.parent / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()


def pose(half: Path | None) -> dict[str, Posed]:
    """Return the node types, the base first."""
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    if len(cores) < 2:
        sys.exit("two cores are needed")

    def on(*own: int, into: Path | None = None) -> Callable[[], None]:
        def enter() -> None:
            os.sched_setaffinity(0, own)
            if into is not None:
                (into / "cgroup.procs").write_text(str(os.getpid()))

        return enter

    found = {
        BASE: Posed(cores, on(*cores)),
        "one core": Posed(cores[:1], on(cores[0])),
        "beside a hog": Posed(cores, on(*cores), hog=True),
    }
    if half is not None:
        found["half the time"] = Posed(cores, on(*cores, into=half), idle=0.5)
    return found


@contextmanager
def beside(posed: Posed, folder: Path) -> Iterator[int | None]:
    """Keep a memory hog running on the cores while it lasts, if the node type has one: its pid."""
    if not posed.hog:
        yield None
        return
    hog = subprocess.Popen([folder / "hog"], preexec_fn=posed.enter)
    time.sleep(1.5)
    try:
        yield hog.pid
    finally:
        hog.kill()
        hog.wait()


def others_s(cores: tuple[int, ...], hog: int | None) -> float:
    """Return the seconds that others ever took of the cores: neither ours, the hog's nor idle.

    Time that the host took for other virtual machines (steal) is others', too.
    """
    tick = os.sysconf("SC_CLK_TCK")
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    wanted = {f"cpu{core}" for core in cores}
    busy = sum(sum(map(int, (*w[1:4], *w[6:9]))) for w in lines if w[0] in wanted) / tick
    if hog is not None:
        fields = Path(f"/proc/{hog}/stat").read_text().rsplit(")", 1)[1].split()
        busy -= sum(map(int, fields[11:13])) / tick
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        busy -= used.ru_utime + used.ru_stime
    return busy


DISTURBED: list[float] = []
"""Others' share in each measurement that counts."""


def undisturbed(posed: Posed, folder: Path, work: Callable[[], Any]) -> Any:
    """Measure on a node type, again while others disturb; the quietest go's result."""
    goes: list[tuple[float, Any]] = []
    while len(goes) < TRIES and not (goes and goes[-1][0] <= QUIET):
        with beside(posed, folder) as hog:
            begin, before = time.monotonic(), others_s(posed.cores, hog)
            result = work()
            lasted = (time.monotonic() - begin) * len(posed.cores)
            share = (others_s(posed.cores, hog) - before) / lasted - posed.idle
            goes.append((share, result))
    share, result = min(goes, key=lambda go: go[0])
    DISTURBED.append(share)
    return result


def advisor(posed: Posed, *words: object, store: Path) -> dict[str, Any]:
    """Run the command line on a node type; return its JSON."""
    argv = [sys.executable, "-m", "advisor", *map(str, words), "--db", str(store), "--json"]
    if "--" in argv:
        at = argv.index("--")
        argv = [*argv[:at], "--db", str(store), "--json", *argv[at:-3]]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, preexec_fn=posed.enter, check=False
    )
    if done.returncode not in (0, 3) or not done.stdout:
        sys.exit(f"failed: {' '.join(argv)}")
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"schema"')]
    data: dict[str, Any] = json.loads(lines[-1])
    return data


def emitted(posed: Posed, order: dict[str, Any]) -> dict[str, Any]:
    """Run microbenchmarks on a node type as ``advisor lab bench`` does there; return its result."""
    argv = [sys.executable, "-m", "advisor", "lab", "bench", "--emit", json.dumps(order)]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, preexec_fn=posed.enter, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["result"]
    return result


def command(kernel: str, posed: Posed, folder: Path) -> list[str]:
    """Return a kernel's words: the same work whatever number of threads."""
    program, *words = KERNELS[kernel]
    if program == "table":
        words[-1] = str(int(words[-1]) // len(posed.cores))
    return [str(folder / program), *words]


def measured_s(argv: list[str], posed: Posed) -> float:
    """Return the seconds of one real run, with a thread on each core of the node type."""
    environment = os.environ | {"OMP_NUM_THREADS": str(len(posed.cores))}
    begin = time.monotonic()
    subprocess.run(
        argv, env=environment, stdout=subprocess.DEVNULL, preexec_fn=posed.enter, check=True
    )
    return time.monotonic() - begin


def gather(
    folder: Path, types: dict[str, Posed], kernels: list[str], full: bool, repeats: int
) -> dict[str, Any]:
    """Profile, characterise and run what is not yet known; return the real times."""
    store, kept = folder / "store.db", folder / "real.json"
    state: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for source in paths.share("examples/kernels").glob("*.c"):
        if not (folder / source.stem).exists():
            words = ["-O2", "-fopenmp", str(source), "-o", str(folder / source.stem), "-lm"]
            assert compile_twice(words) == (0, "")
    hog = [str(Path(__file__).with_name("hog.c")), "-o", str(folder / "hog")]
    subprocess.run(["cc", "-O2", "-fopenmp", *hog], check=True)
    with Writer(store) as writer:
        here = local_node_type()
        writer.save_node_types(
            [replace(here, name=n, cores=len(p.cores)) for n, p in types.items()], source="site"
        )
    os.environ["OMP_PROC_BIND"] = "true"  # as on a cluster that binds threads to cores

    def once(key: str, work: Callable[[], Any]) -> Any:
        if key not in state:
            begin = time.monotonic()
            state[key] = work()
            kept.write_text(json.dumps(state))
            print(
                f"{key}: {time.monotonic() - begin:.0f} s, others took "
                f"{statistics.mean(DISTURBED):.1%} on average, {max(DISTURBED):.1%} at most",
                flush=True,
            )
            DISTURBED.clear()
        return state[key]

    def bench(name: str, posed: Posed, *words: str) -> int:
        run = partial(
            advisor, posed, "lab", "bench", "--here", "--node-type", name, *words, store=store
        )
        data = undisturbed(posed, folder, run)
        return int(data["node_types"][0].get("profiles", 0))

    def characterise(kernel: str) -> Characterisation:
        base, name = types[BASE], kernel.replace(" ", "-")
        words = ("--application", name, "--workload", "w", "--node-type", BASE, "--repeat", "5")
        run = command(kernel, base, folder)
        undisturbed(
            base,
            folder,
            partial(advisor, base, "lab", "characterise", *words, "--", *run, store=store),
        )
        return characterised(store, kernel)

    def bench_like(found: Characterisation) -> None:
        """Measure what is like its phases on all node types in turn; the medians are kept."""
        alike = [member(name, found.threads) for name in ("chain", "fma")]
        for phase, share in product(
            found.phases, {found.threads / len(p.cores) for p in types.values()}
        ):
            streams = tuple(blend.scaled(s, share) for s in phase.streams)
            alike += like(streams, found.threads)
        requests = [
            {"name": m.name, "streams": [s.to_dict() for s in m.streams]}
            for m in dict.fromkeys(alike)
        ]
        order = {"size": "none", "budget_s": 8.0, "wanted": requests, "meter": "auto"}
        goes: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in types}
        for _ in range(ROUNDS):
            for name, posed in types.items():
                run = partial(emitted, posed, order)
                goes[name].append(undisturbed(posed, folder, run)["profiles"])
        for name, own in goes.items():
            medians = [
                sorted(same, key=lambda p: float(p["time_per_iter_us"]))[len(same) // 2]
                for same in zip(*own, strict=False)
            ]
            kept = [StoredProfile(name, **{**p, "streams": tuple(p["streams"])}) for p in medians]
            with Writer(store) as writer:
                last = latest_bench(writer, name)
                assert last is not None
                save_profiles(writer, last, kept)

    def study(kernel: str) -> dict[str, float]:
        """Return real times; the characterisation that counts is amidst the runs."""
        bench_like(characterise(kernel))
        times: dict[str, list[float]] = {name: [] for name in types}
        for n in range(repeats):
            if n == repeats // 2:
                characterise(kernel)
            for name, posed in types.items():
                run = partial(measured_s, command(kernel, posed, folder), posed)
                times[name].append(undisturbed(posed, folder, run))
        return {name: statistics.median(own) for name, own in times.items()}

    length = () if full else ("--quick",)
    for name, posed in types.items():
        once(f"profile of {name}", partial(bench, name, posed, *length))
    return {kernel: once(kernel, partial(study, kernel)) for kernel in kernels}


def characterised(store: Path, kernel: str) -> Characterisation:
    """Return what is stored of a kernel."""
    with Reader(store) as reader:
        record = characterisations(reader, kernel.replace(" ", "-"))[0].record
    return Characterisation.from_dict(record)


def judge(
    store: Path,
    names: list[str],
    real: dict[str, dict[str, float]],
    method: RankingMethod,
    *,
    table: bool = True,
) -> None:
    """Print one method's estimates against the real times, and what they come to."""
    with Reader(store) as reader:
        known = stored_profiles(reader)
    limits = read_thresholds(paths.share("config/ranking.yaml"))
    if table:
        print(f"\n{method}: seconds estimated / measured, error")
        print(f"{'':15}" + "".join(f"{n:>24}" for n in names))
    errors, apart, stated, right, pairs, covered = [], [], [], 0, 0, 0
    for kernel in real:
        ranking = rank(characterised(store, kernel), known, BASE, limits, method)
        estimates = {e.node_type: e for e in ranking.estimates}
        cells = ""
        for name in names:
            own, there = real[kernel][name], estimates.get(name)
            if there is None:
                cells += f"{'none /':>10}{own:7.2f}{'':7}"
                continue
            off = there.time_s / own - 1
            if name != BASE:
                errors.append(abs(off))
                times = there.time_s / estimates[BASE].time_s
                apart.append(abs(times * real[kernel][BASE] / own - 1))
                stated.append(math.log(own / there.time_s) / (there.error_pct / 100))
                covered += abs(stated[-1]) <= Z90
            cells += f"{there.time_s:8.2f} /{own:6.2f}{off:+8.1%}"
        if table:
            print(f"{kernel:15}{cells}")
        for a, b in combinations([n for n in names if n in estimates], 2):
            x, y = real[kernel][a], real[kernel][b]
            if max(x, y) > 1.1 * min(x, y):
                pairs += 1
                right += (estimates[a].time_s < estimates[b].time_s) == (x < y)
    if errors:
        print(
            f"mean error {statistics.mean(errors):.1%}, worst {max(errors):.1%}, of {len(errors)} "
            f"(against the base's own real runs {statistics.mean(apart):.1%}, {max(apart):.1%}); "
            f"faster of two right in {right} of {pairs} that differ by more than 10 %; "
            f"90 % intervals hold {covered} of {len(errors)}; errors are "
            f"{math.hypot(*stated) / math.sqrt(len(stated)):.2f} times the stated ones"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="full profiles: ten minutes each")
    parser.add_argument(
        "--repeats", type=int, default=5, help="real runs of each, of which the median counts (5)"
    )
    parser.add_argument(
        "--kernel", action="append", choices=list(KERNELS), metavar="KERNEL", help="only this one"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    with group("first") as first, group("half", 1.0) as half:
        if first is not None:
            (first / "cgroup.procs").write_text(str(os.getpid()))
        types = pose(half)
        with tempfile.TemporaryDirectory() as name:
            folder = args.keep or Path(name)
            folder.mkdir(exist_ok=True)
            real = gather(folder, types, args.kernel or list(KERNELS), args.full, args.repeats)
            for method in ("thesis", "blend"):
                judge(folder / "store.db", list(types), real, method)
            for what, own in (("fitted on", FITTED), ("reported on", REPORTED)):
                some = {name: times for name, times in real.items() if name in own}
                print(f"\n{what} {', '.join(some) or 'none'}")
                for constant, values in CONSTANTS.items() if some else ():
                    chosen = getattr(blend, constant)
                    for value in sorted({*values, chosen}):
                        setattr(blend, constant, value)
                        mark = " (the advisor's)" if value == chosen else ""
                        print(f"blend with {constant} {value:g}{mark}: ", end="")
                        judge(folder / "store.db", list(types), some, "blend", table=False)
                    setattr(blend, constant, chosen)


if __name__ == "__main__":
    main()
