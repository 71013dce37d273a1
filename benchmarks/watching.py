"""Print what watching costs a program that makes 10,000 calls a second, and what stands beside it.

    python benchmarks/watching.py [--rounds N]

All of it is processor time, each mode in turn with the others and the least of N rounds. A burst
and a sample cost too little at their usual rate to be told from a busy machine's scatter, so that
every burst is counted here, and samples are taken fifty times as often.

Events and samples are measured once more among the work of a program, whose data drive the
library's from the caches: watched and unwatched, or sampled and not, in turn within one process, so
that what a busy machine does to one it does to the other. The median of the differences, and its
95 % interval. MPI is what ``mpicc.mpich`` and ``mpicc.openmpi`` are, where they are.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import resource
import subprocess
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from shutil import which

import numpy as np
from programs import program

from advisor.instruments.native import SOURCES
from advisor.phases.pairing import Baseline, Pairing, RunEvents
from advisor.phases.ring import EventRings
from advisor.phases.sequence import find_iterations
from advisor_lab.phases import sampled
from advisor_lab.phases.burst_counters import VARIABLE, BurstsBeside
from advisor_lab.phases.sampled import SampledBeside

PROGRAM = """
#include <stdlib.h>
static volatile double kept;
int main(int argc, char **argv) {
    double x = 1;
    for (long i = 0; i < atol(argv[1]); i++) {
        for (long k = 0; k < atol(argv[2]); k++) x = x * 1.0000001 + 1e-9;
        kept = x;
#pragma omp taskwait
    }
    return 0;
}
"""
AMONG_WORK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double one = 1, sum, *data;
static long doubles, rounds;
#ifdef MPI
#include <mpi.h>
static void watched(void) {
    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
}
static void own(void) { PMPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF); }
#else
void GOMP_taskwait(void);
static void (*taskwait)(void);
static void watched(void) { GOMP_taskwait(); }
static void own(void) { taskwait(); }
#endif
static double at(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static double block(void (*call)(void)) {
    const double begin = at(CLOCK_THREAD_CPUTIME_ID);
    for (int n = 0; n < 4; n++) {
        for (long i = 0; i < doubles; i += 8) data[i] += one;
        for (long i = 0; i < rounds; i++) sum = sum * 1.0000001 + 1e-9;
        call();
    }
    return at(CLOCK_THREAD_CPUTIME_ID) - begin;
}
int main(int argc, char **argv) {
    doubles = atol(argv[2]);
    rounds = atol(argv[3]);
    data = calloc(doubles + 1, sizeof *data);
#ifdef MPI
    MPI_Init(&argc, &argv);
#else
    taskwait = (void (*)(void))dlsym(dlopen("libgomp.so.1", RTLD_LAZY), "GOMP_taskwait");
#pragma omp taskwait
#endif
    for (long n = 0; n < atol(argv[1]); n++) {
        const double first = block(n & 1 ? watched : own), then = block(n & 1 ? own : watched);
        printf("%.9f %.9f %.9f\\n", at(CLOCK_MONOTONIC), n & 1 ? then : first,
               n & 1 ? first : then);
    }
#ifdef MPI
    MPI_Finalize();
#endif
    return 0;
}
"""
RATE, BURSTS, EVERY_S, OFTEN_S = 10_000, 250, sampled._EVERY_S, 2e-4
"""Calls a second, bursts counted of them, and s of processor time between two samples."""
ENABLE, DISABLE = 0x2400, 0x2401  # ioctl on a counter of perf_event
CLOCKS = (
    ("instructions", 1, 1, 1.0),
    ("cycles", 1, 0, 1.0),
    ("bytes", 1, 2, 1.0),
    ("loads", 1, 3, 1.0),
    ("branches", 1, 4, 1.0),
)
"""Counted where the processor counts nothing (virtual machines): the kernel's own."""


def spent(
    argv: list[str], environment: dict[str, str], beside: SampledBeside | None = None
) -> float:
    """Return the processor time (s) of a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(argv, env={**os.environ, **environment})
    while beside is not None and child.poll() is None:
        beside.read()
        time.sleep(0.01)
    child.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def library(folder: Path, *flags: str) -> Path:
    """Return the preloaded library, compiled with further flags."""
    made = folder / f"watch{len(flags)}.so"
    source = SOURCES / "trace" / "phases.c"
    how = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec")
    subprocess.run(["gcc", *how, *flags, source, "-o", made, "-ldl", "-lpthread"], check=True)
    return made


def in_the_program(folder: Path, rounds: int) -> None:
    """Print what an event, a burst and a sample cost, and their sum."""
    (folder / "p.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-fopenmp", folder / "p.c", "-o", folder / "p"], check=True)
    usual, every = library(folder), library(folder, "-DBURSTS_A_WINDOW=1000000000")
    bursts = BurstsBeside()
    counted = bursts.choose()
    if not counted:
        bursts = BurstsBeside(wanted=CLOCKS)
        counted = bursts.choose()
    calls, few = 1_000_000, 50_000
    p = str(folder / "p")

    def watching(lib: Path, **more: str) -> dict[str, str]:
        rings = tempfile.mkdtemp(dir=folder)
        return {"LD_PRELOAD": str(lib), "ADVISOR_WATCH": rings, **more}

    least: dict[str, float] = {}

    def keep(name: str, seconds: float) -> None:
        least[name] = min(seconds, least.get(name, seconds))

    samples = 1
    for _ in range(rounds):
        keep("alone", spent([p, str(calls), "0"], {}))
        keep("events", spent([p, str(calls), "0"], watching(usual)))
        keep("few alone", spent([p, str(few), "0"], watching(usual)))
        if counted:
            keep("bursts", spent([p, str(few), "0"], watching(every, **{VARIABLE: counted})))
        keep("work", spent([p, "10000", "24000"], {}))
        sampled._EVERY_S = sampled._NODE_EVERY_S = OFTEN_S
        with SampledBeside() as beside:
            keep("sampled", spent([p, "10000", "24000"], {}, beside))
            samples = max(samples, len(beside._samples) // 3 + beside.lost)
            why_not = beside.why_not
    event = (least["events"] - least["alone"]) / calls
    burst = (least["bursts"] - least["few alone"]) / few if counted else 0.0
    sample = 0.0 if why_not else (least["sampled"] - least["work"]) / samples
    print("in the program, of its processor time at 10,000 calls a second")
    # A burst among others costs one reading at each end, one alone two, its own begin and end.
    shares = [RATE * event, 2 * BURSTS * burst, sample / EVERY_S]
    print(f"  an event   {1e9 * event:8.0f} ns {shares[0]:8.2%}")
    print(f"  a burst    {1e6 * burst:8.1f} us {shares[1]:8.2%}")
    print(f"  a sample   {1e6 * sample:8.1f} us {shares[2]:8.2%}  {why_not}")
    print(f"  together {'':12} {sum(shares):8.2%}  of 1 %")


def median_within(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the median and its 95 % interval, by the order of the values."""
    ordered, n = np.sort(differences), len(differences)
    half = int(0.98 * n**0.5)
    low, high = max(0, n // 2 - half), min(n - 1, n // 2 + half)
    return float(ordered[n // 2]), float(ordered[low]), float(ordered[high])


def among_work(folder: Path, blocks: int = 3000) -> None:
    """Print what an event and a sample cost in a program that works between its calls."""
    (folder / "a.c").write_text(AMONG_WORK)
    built = {"OpenMP": ["gcc", "-fopenmp"]}
    built |= {m: [f"mpicc.{m}", "-DMPI"] for m in ("mpich", "openmpi") if which(f"mpicc.{m}")}
    print("among work of 100 us between calls, of its processor time at 10,000 calls a second")
    for name, command in built.items():
        subprocess.run([*command, "-O2", folder / "a.c", "-o", folder / "a", "-ldl"], check=True)
        for data_kb, rounds in ((0, 24000), (1024, 12000)):
            environment = {
                "LD_PRELOAD": str(folder / "watch0.so"),
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "ADVISOR_WATCH": tempfile.mkdtemp(dir=folder),
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            }
            rows = lines_of(
                [str(folder / "a"), str(blocks), str(128 * data_kb), str(rounds)], environment
            )
            cost, low, high = (1e9 / 4 * v for v in median_within(rows[:, 2] - rows[:, 1]))
            print(
                f"  an event, {name:<8}{data_kb:5} KB {cost:6.0f} ns ({low:.0f} to {high:.0f})"
                f" {RATE * cost / 1e9:8.2%}"
            )
    for every_s in (EVERY_S, 5e-4):
        share, low, high, why_not = sampled_in_turn(folder, every_s)
        print(
            f"  a sample every {1e3 * every_s:.1f} ms {1e6 * share * every_s:8.1f} us"
            f" {share:8.2%} ({low:.2%} to {high:.2%})  {why_not}"
        )


def lines_of(argv: list[str], environment: dict[str, str]) -> np.ndarray:
    """Return the numbers that a program prints, a row a line."""
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return np.array([line.split() for line in done.stdout.splitlines()], float)


def sampled_in_turn(folder: Path, every_s: float) -> tuple[float, float, float, str]:
    """Return the share of a program's processor time that samples take, and its interval."""
    sampled._EVERY_S = sampled._NODE_EVERY_S = every_s
    subprocess.run(
        ["gcc", "-fopenmp", "-O2", folder / "a.c", "-o", folder / "a", "-ldl"], check=True
    )
    turns, on = [(0.0, True)], True
    with SampledBeside() as beside, (folder / "rows").open("w+") as out:
        child = subprocess.Popen([folder / "a", "15000", "4096", "24000"], stdout=out)
        while child.poll() is None:
            time.sleep(0.1)
            beside.read()
            on = not on
            for descriptor, _ in beside._open:
                fcntl.ioctl(descriptor, ENABLE if on else DISABLE, 0)
            turns.append((time.monotonic(), on))
        if beside.why_not:
            return 0.0, 0.0, 0.0, beside.why_not
    rows = np.loadtxt(folder / "rows")
    took = rows[:, 1] + rows[:, 2]
    whole = [
        took[(rows[:, 0] - 2 * took > a) & (rows[:, 0] < b)] for (a, _), (b, _) in pairwise(turns)
    ]
    mean = np.array([w.mean() if len(w) > 9 else np.nan for w in whole])
    sign = np.array([1 if on else -1 for _, on in turns[:-1]])
    more = sign[1:-1] * (mean[1:-1] - (mean[:-2] + mean[2:]) / 2) / mean[1:-1]
    return (*median_within(more[~np.isnan(more)]), "")


def beside_the_program(folder: Path) -> None:
    """Print what reading events and pairing them takes of one processor."""
    rings, lib = folder / "read", folder / "watch0.so"
    rings.mkdir()
    spent([str(folder / "p"), "4000", "10"], {"LD_PRELOAD": str(lib), "ADVISOR_WATCH": str(rings)})
    took = []
    for _ in range(20):
        reader = EventRings(rings)
        reader.look()
        begin = time.process_time()
        events = len(reader.poll())
        took.append((time.process_time() - begin) / events)
    base, run, _ = program("many sites", 1000, iterations=6600)
    faster = len(run.times) / RATE / run.time_s
    complete = RunEvents(tuple(faster * t for t in base.times), base.sites)
    begin = time.process_time()
    phases = find_iterations(complete.times, complete.sites)
    sought = (time.process_time() - begin) / len(base.times)
    begin = time.process_time()
    whole = Baseline(complete, phases=phases)
    known = (time.process_time() - begin) / len(base.times)
    begin = time.process_time()
    pairing = Pairing(whole, within=1e-9, metered=False, beside=True)
    for time_s, site in zip(run.times, run.sites, strict=True):
        pairing.feed(faster * time_s, site)
    each = (time.process_time() - begin) / len(run.times)
    print(
        f"beside it, of one processor, at 10,000 calls a second for {len(run.times) / RATE:.0f} s"
    )
    for what, seconds in (
        ("reading events", min(took)),
        ("the complete run's iterations, once", sought),
        ("knowing it, once a run", known),
        ("pairing with it, to its end", each),
    ):
        print(f"  {what:<36} {1e6 * seconds:6.2f} us {RATE * seconds:8.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        in_the_program(Path(name), args.rounds)
        among_work(Path(name))
        beside_the_program(Path(name))


if __name__ == "__main__":
    main()
