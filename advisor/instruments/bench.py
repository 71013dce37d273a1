"""Run microbenchmarks here, each until its mean is sure enough or the budget ends.

Corredor 2011, section 3.4, repeats each 30 times; here each gets a visit of a few
repetitions, then those whose mean is not sure get more: a profile improves with its time.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from advisor.errors import AdvisorError, MeterError
from advisor.instruments.machine import circumstances, fingerprint, memory_b, processor
from advisor.instruments.native import SOURCES, built
from advisor.meters.base import Load, Meter
from advisor.meters.choose import best_meter
from advisor.ranking.kernels import Kernel
from advisor.ranking.similarity import SURE
from advisor.ranking.streams import Stream
from advisor.ranking.suite import FLOPS, Microbenchmark, plan
from advisor.schedulers.this_machine import local_node_type

RUN_S = 0.1
"""What one repetition aims at: much less, and a scheduler's favour for who just slept shows."""
VISIT = 2
"""Repetitions of one visit."""
_METERED_S = 0.4
"""With a meter a visit takes so long, so that its resolution does not count."""


@dataclass(slots=True)
class Repetitions:
    """The repetitions of one microbenchmark: seconds and iterations (of one thread) of each.

    ``energy_j`` is what the visits with a meter took, over ``energy_iterations``.
    """

    microbenchmark: Microbenchmark
    seconds: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    energy_j: float = 0.0
    energy_iterations: int = 0
    meter: str = ""

    @property
    def time_per_iter_us(self) -> float:
        """Microseconds per iteration, over all repetitions."""
        return sum(self.seconds) * 1e6 / sum(self.iterations)

    @property
    def spread(self) -> float:
        """Half of the 95 % interval of the mean, as a share of it; infinite after one run."""
        return spread_of([s / n for s, n in zip(self.seconds, self.iterations, strict=True)])

    @property
    def energy_per_iter_nj(self) -> float | None:
        """Nanojoules of the node per iteration, None where nothing measured it."""
        if not self.energy_iterations or self.energy_j <= 0:
            return None
        return self.energy_j * 1e9 / self.energy_iterations


_T95 = {2: 12.7, 3: 4.3, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t (two-sided, 95 %) by the number of repetitions; beyond ten it is about 2."""


def spread_of(seconds: Sequence[float]) -> float:
    """Return half of the 95 % interval of a mean, as a share of it; infinite for one value."""
    if len(seconds) < 2:
        return math.inf
    return _T95.get(len(seconds), 2.0) * stdev(seconds) / math.sqrt(len(seconds)) / fmean(seconds)


Show = Callable[[int, int, float], None]
"""Called with how many are sure, of how many, and the seconds so far."""


def environment() -> dict[str, str]:
    """Return the environment without a site's OpenMP settings: the program places its threads.

    A runtime that binds would leave it one core before its main begins.
    """
    openmp = ("OMP_", "GOMP_", "KMP_", "LIBOMP_")
    return {k: v for k, v in os.environ.items() if not k.startswith(openmp)}


class BenchSession:
    """The C program, which runs one microbenchmark after the other."""

    def __init__(self, program: Path, process: subprocess.Popen[str]) -> None:
        self.program = program
        self.pid = process.pid
        self._process = process

    def ask(self, line: str) -> tuple[float, int]:
        """Return seconds and iterations. Raises AdvisorError with what the program says."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            words = self._process.stdout.readline().split()
        except OSError:
            words = []
        match words:
            case ["ok", seconds, iterations]:
                return float(seconds), int(iterations)
            case ["error", *why]:
                raise AdvisorError(f"microbenchmark {line}: {' '.join(why)}")
        code = self._process.wait()
        raise AdvisorError(f"the microbenchmarks ended with {code} in: {line}")


_OWN_TABLE = """#include "walks.h"
#include <stddef.h>
extern kernel own_kernel;
const struct operation operations[] = {{"own", %d, %d, %g, {own_kernel, own_kernel}},
                                       {NULL, 0, 0, 0, NULL, NULL}};
"""
"""The table of operations of a user's own kernel: its streams, whether the first is written, and
what an iteration adds."""


def _own_operation(kernel: Kernel, folder: Path, common: Sequence[str]) -> list[Path]:
    """Compile a user's own kernel and its table, in place of the suite's."""
    include = f"-I{folder}"
    table = _OWN_TABLE % (len(kernel.streams), kernel.streams[0].writes, kernel.adds or -1)
    with tempfile.TemporaryDirectory() as work:
        source, entry = Path(work) / Path(kernel.file).name, Path(work) / "advisor-table.c"
        source.write_text(kernel.source)
        entry.write_text(table)
        header = [folder / "walks.h"]
        return [
            built("own.o", [source], (*common, include, "-xc"), headers=header),
            built("table.o", [entry], (*common, include), headers=header),
        ]


@contextmanager
def session(
    folder: Path = SOURCES / "microbench", kernel: Kernel | None = None
) -> Iterator[BenchSession]:
    """Compile the microbenchmarks if need be, or a user's own kernel, and have them ready."""
    header = [folder / "walks.h"]
    common = ("-O2", "-g0", "-fopenmp", "-c")
    if kernel is None:
        operations = [built("kernels.o", [folder / "kernels.c"], common, headers=header)]
    else:
        operations = _own_operation(kernel, folder, common)
    fast = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-c")
    kind = hashlib.sha256(processor().encode()).hexdigest()[:8]
    peaks = built(f"peaks-{kind}.o", [folder / "peaks.c"], fast, headers=header)
    program = built(
        "mbw",
        [folder / "mbw.c", *operations, peaks],
        ("-O2", "-fopenmp"),
        headers=header,
        libraries=("-lm",),
    )
    process = subprocess.Popen(
        [str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=environment(),
        process_group=0,  # an interrupt is for us: what was measured is kept
    )
    try:
        yield BenchSession(program, process)
    finally:
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


def measure(
    microbenchmarks: Sequence[Microbenchmark],
    *,
    budget_s: float,
    repetitions: int = 0,
    meter: Meter | None = None,
    show: Show = lambda sure, of, seconds: None,
    kernel: Kernel | None = None,
) -> list[Repetitions]:
    """Measure each once; then those that are not sure again and again, until the time is over.

    Each is repeated ``repetitions`` times at least, if there is time, however sure it is. With a
    ``kernel`` of a user's own all of them are that kernel's.
    Returns those that were measured: what the budget left no time for is not among them, nor what
    an interrupt came before. Raises AdvisorError when one cannot run or its result is wrong.
    """
    begin = time.monotonic()
    results = [Repetitions(m) for m in microbenchmarks]
    with session(kernel=kernel) as running, suppress(KeyboardInterrupt):
        for n, timing in enumerate(results):
            if n and _elapsed_s(begin) > budget_s:
                break
            _visit(running, timing, meter)
            show(sum(m.spread <= SURE for m in results[: n + 1]), len(results), _elapsed_s(begin))
        measured = [m for m in results if m.seconds]
        while _elapsed_s(begin) < budget_s:
            unsure = due(measured, repetitions)
            if not unsure:
                break
            for timing in unsure:
                if _elapsed_s(begin) > budget_s:
                    break
                _visit(running, timing, meter)
                show(sum(m.spread <= SURE for m in measured), len(results), _elapsed_s(begin))
    if not any(m.seconds for m in results):
        raise KeyboardInterrupt
    return [m for m in results if m.seconds]


def due(measured: Sequence[Repetitions], repetitions: int = 0) -> list[Repetitions]:
    """Return those to repeat, the least sure first: not sure, or not repeated so often yet."""
    unsure = (m for m in measured if m.spread > SURE or len(m.seconds) < repetitions)
    return sorted(unsure, key=lambda m: -m.spread)


def _elapsed_s(begin: float) -> float:
    return time.monotonic() - begin


def _visit(running: BenchSession, timing: Repetitions, meter: Meter | None) -> None:
    """Make some repetitions; the first of a visit warms up the machine and counts as well."""
    operation, dtype, *zones = timing.microbenchmark.request().split()
    threads = timing.microbenchmark.threads
    run_s = _METERED_S / VISIT if meter else RUN_S
    seconds, iterations = running.ask(
        " ".join(("run", operation, dtype, str(threads), f"{run_s:g}", *zones))
    )
    timing.seconds.append(seconds)
    timing.iterations.append(iterations)
    if meter:
        # Not before the first repetition, which warms the machine up.
        meter.start(Load(threads))
    for _ in range(VISIT - 1):
        seconds, iterations = running.ask("again")
        timing.seconds.append(seconds)
        timing.iterations.append(iterations)
    if meter:
        try:
            reading = meter.stop()
        except MeterError:
            return
        if reading.quality == "measured":
            timing.energy_j += reading.energy_j
            timing.energy_iterations += sum(timing.iterations[-(VISIT - 1) :])
            timing.meter = reading.meter


def measure_here(order: dict[str, Any], show: Callable[[int, int, float], None]) -> dict[str, Any]:
    """Run what an order says; return machine, profiles and peaks in the form of JSON.

    ``order``: size (quick, full, none), budget_s, wanted (name and streams each), meter, and
    perhaps repetitions, and kernels of users' own, which share the budget.
    """
    node = local_node_type()
    threads = node.cores
    meter = best_meter(node, name=order["meter"])
    metered = meter.meter if meter.meter is not None and meter.meter.NAME != "estimate" else None
    microbenchmarks = [
        Microbenchmark(w["name"], threads, tuple(Stream.from_dict(s) for s in w["streams"]))
        for w in order["wanted"]
    ]
    if order["size"] != "none":
        microbenchmarks += plan(order["size"], threads, memory_b())
    microbenchmarks = list(dict.fromkeys(microbenchmarks))
    kernels = [Kernel.from_dict(k) for k in order.get("kernels", ())]
    goes: list[tuple[list[Microbenchmark], Kernel | None]] = (
        [(microbenchmarks, None)] if microbenchmarks else []
    )
    goes += [([Microbenchmark(k.name, threads, k.streams, own=True)], k) for k in kernels]
    begin = time.monotonic()
    results: list[Repetitions] = []
    for some, kernel in goes:
        results += measure(
            some,
            budget_s=order["budget_s"] / len(goes),
            repetitions=order.get("repetitions", 0),
            meter=metered,
            show=show,
            kernel=kernel,
        )
    return {
        "machine": fingerprint(node),
        **circumstances(),
        "threads": threads,
        "meter": f"energy measured by {metered.NAME}" if metered else "no energy: no meter here",
        "seconds": time.monotonic() - begin,
        "wanted": len(microbenchmarks) + len(kernels),
        "sure": sum(m.spread <= SURE for m in results),
        "profiles": [_profile(m) for m in results],
        "peaks": peaks(results, threads),
    }


def _profile(m: Repetitions) -> dict[str, Any]:
    """Return a result in the form of ``advisor.store.profiles.StoredProfile``, less its node."""
    microbenchmark = m.microbenchmark
    return {
        "microbenchmark": microbenchmark.name,
        "streams": [s.to_dict() for s in microbenchmark.streams],
        "threads": microbenchmark.threads,
        "time_per_iter_us": m.time_per_iter_us,
        "spread": min(m.spread, 10.0),
        "repeats": len(m.seconds),
        "energy_per_iter_nj": m.energy_per_iter_nj,
        "meter": m.meter,
    }


def peaks(results: list[Repetitions], threads: int) -> dict[str, float]:
    """Return the roofline of the node: GB/s from memory by the triad, GFlop/s by the peak.

    The triad counts 24 bytes an iteration, as STREAM does; zeros where they were not measured.
    """
    triads = [m for m in results if m.microbenchmark.name == "triad"]
    largest = max(triads, key=lambda m: m.microbenchmark.streams[0].size_kb, default=None)
    peak = next(
        (
            m
            for m in results
            if m.microbenchmark.name == "fma" and m.microbenchmark.threads == threads
        ),
        None,
    )
    return {
        "bandwidth_gb_s": 24e-3 * threads / largest.time_per_iter_us if largest else 0.0,
        "gflop_s": FLOPS["fma"] * 1e-3 * threads / peak.time_per_iter_us if peak else 0.0,
    }
