"""What characterising costs: the timing library's overhead, and how much slower traces are.

``python benchmarks/characterise.py [--threads N] [--repeats N]`` compiles the kernels, runs each
without and with the timing library in turn, then traced in both ways, and prints the ratios side
by side. The last program only forks and joins, as nothing useful does: the time per region.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from advisor import paths
from advisor.instruments import valgrind
from advisor.instruments.characterise import timed_phases
from advisor.instruments.characterise_files import read_phases
from advisor.instruments.characterise_runs import (
    TimedRun,
    TracedCommand,
    timing_library,
    twin_run,
    valgrind_run,
)
from advisor.instruments.twin import compile_twice

RUNS = {
    "matmul row": ("matmul", "900", "row"),
    "matmul column": ("matmul", "1100", "column"),
    "nbody": ("nbody", "8000", "2"),
    "stencil": ("stencil", "2000", "150"),
    "spmv": ("spmv", "200000", "16", "60"),
    "table": ("table", "8000000", "15000000"),
    "triad": ("triad", "4000000", "60"),
    "small regions": ("stencil", "130", "40000"),
    "empty regions": ("forks", "200000"),
}
FORKS = r"""
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    const long n = argc > 1 ? atol(argv[1]) : 1;
    const double begin = omp_get_wtime();
    for (long i = 0; i < n; i++) {
#pragma omp parallel
        __asm__ volatile("");
    }
    printf("seconds %.9f\n", omp_get_wtime() - begin);
    return 0;
}
"""
SECONDS = re.compile(r"^seconds (\S+)$", re.MULTILINE)


def seconds(argv: list[str], environment: dict[str, str]) -> float:
    """Return the seconds a kernel says its main loop took."""
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    found = SECONDS.search(done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-trace", action="store_true", help="the timing library only")
    args = parser.parse_args()
    base = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    header = f"{'':15}{'alone s':>10}{'timed s':>10}{'ratio':>8}{'measured':>10}"
    print(f"{args.threads} threads, the best of {args.repeats} runs in turn")
    print(header + f"{'regions':>9}{'ns/region':>10}{'cc':>7}{'valgrind':>10}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "forks.c").write_text(FORKS)
        for source in (*paths.share("examples/kernels").glob("*.c"), folder / "forks.c"):
            words = ["-O2", "-fopenmp", str(source), "-o", str(folder / source.stem), "-lm"]
            assert compile_twice(words) == (0, "")
        for label, (program, *arguments) in RUNS.items():
            argv = [str(folder / program), *arguments]
            alone, timed, seen = [], [], []
            for _ in range(args.repeats):
                left = Path(tempfile.mkdtemp(dir=folder))
                alone.append(seconds(argv, base))
                extra = {"LD_PRELOAD": str(timing_library()), "ADVISOR_PHASES": str(left)}
                timed.append(seconds(argv, base | extra))
                phases = timed_phases(TimedRun(0, 1.0, tuple(read_phases(left))))
                seen.append(phases)
            one, other = min(alone), min(timed)
            calls = sum(p.calls for p in seen[0] if p.order != 0 or len(seen[0]) == 1)
            # the first region of every kernel but nbody fills its arrays, before the clock starts
            inside = statistics.median(
                sum(p.time_s for p in phases if len(phases) == 1 or program == "nbody" or p.order)
                / measured
                for phases, measured in zip(seen, timed, strict=True)
            )
            line = f"{label:15}{one:10.4f}{other:10.4f}{other / one:8.4f}{inside:10.4f}"
            each = f"{(other - one) / calls * 1e9:.0f}" if calls >= 1000 else ""
            line += f"{calls:9}{each:>10}"
            if not args.no_trace and label != "empty regions":
                command = TracedCommand(tuple(argv), args.threads, quiet=True)
                line += f"{twin_run(command, limit_s=60).time_s / one:7.1f}"
                if valgrind.installed():
                    traced = valgrind_run(command, outside=False, limit_s=60)
                    line += f"{'>' if traced.stopped else ''}{traced.time_s / one:9.1f}"
            print(line, flush=True)
    print("measured: the phases' times over the kernel's own; cc, valgrind: times as long, traced")
    print("a ratio of a program with few regions is the noise between two of its runs")


if __name__ == "__main__":
    main()
