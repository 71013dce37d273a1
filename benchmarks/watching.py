"""Print what watching costs a program that makes 10,000 calls a second, and what stands beside it.

    python benchmarks/watching.py [--rounds N]

All of it is processor time, each mode in turn with the others and the least of N rounds. A burst
and a sample cost too little at their usual rate to be told from a busy machine's scatter, so that
every burst is counted here, and samples are taken fifty times as often.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from programs import program

from advisor.lab import sampled
from advisor.lab.burst_counters import VARIABLE, BurstsBeside
from advisor.lab.native import SOURCES
from advisor.lab.sampled import SampledBeside
from advisor.phases.pairing import Baseline, Pairing, RunEvents
from advisor.phases.ring import EventRings
from advisor.phases.sequence import find_iterations

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
RATE, BURSTS, EVERY_S, OFTEN_S = 10_000, 250, sampled._EVERY_S, 2e-4
"""Calls a second, bursts counted of them, and s of processor time between two samples."""
CLOCKS = (
    ("instructions", 1, 1, 1.0), ("cycles", 1, 0, 1.0), ("bytes", 1, 2, 1.0),
    ("loads", 1, 3, 1.0), ("branches", 1, 4, 1.0),
)  # fmt: skip
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
        ("reading events", min(took)), ("the complete run's iterations, once", sought),
        ("knowing it, once a run", known),
        ("pairing with it, to its end", each),
    ):  # fmt: skip
        print(f"  {what:<36} {1e6 * seconds:6.2f} us {RATE * seconds:8.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        in_the_program(Path(name), args.rounds)
        beside_the_program(Path(name))


if __name__ == "__main__":
    main()
