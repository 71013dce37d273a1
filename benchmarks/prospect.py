"""Measure advisor prospect: whether its interval holds on years whose truth is known, its speed.

    benchmarks/prospect.py --years 200              in how many drawn years the interval holds
    benchmarks/prospect.py --jobs 1000000           seconds and memory of one large year
    benchmarks/prospect.py --swf ...                the same years in the Standard Workload Format

A year is drawn as prospect's documentation says that sites differ: how much of the power the clock
moves, how programs slow down, nodes' power, meters that are missing, broken or coarse, jobs that
share nodes or run once. It is written as ``sacct -P`` prints it. What it would really save follows
from the drawn programs, with the frequency steps of their nodes, by code of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS = (
    "JobID|JobName|User|Account|Partition|State|End|ElapsedRaw|NNodes|NCPUS|NTasks|NodeList|"
    "ConsumedEnergyRaw|ReqCPUFreqMax|AveCPUFreq|SubmitLine"
)
CORES = 128
STEPS = tuple(round(1.2 + 0.1 * i, 1) for i in range(14))
"""Caps of the nodes, GHz; the last one is the default."""
BOUND, LEAST = 0.05, 0.03
"""The advisor's default bounds: slowdown and saving."""
REPEATED = 20
"""Runs from which on a program is worth a sweep."""
J_PER_KWH = 3.6e6
NAMED = ("gmx_mpi", "lmp", "namd3", "tealeaf", "pot3d")
"""Programs of published classes; all others are unknown to prospect."""


@dataclass(frozen=True)
class Program:
    """A program of a year: how it slows down, the part of the power the clock moves, its load."""

    name: str
    beta: float
    d: float
    load: float
    batch: bool
    """It runs without srun: no step, no energy, known by its job's name."""
    threads: int
    """Threads a node of which it needs no more, 0: it wants all."""


@dataclass
class Year:
    """A drawn site. ``saving_j`` and ``energy_j`` are the truth of the lines written so far."""

    seed: int
    jobs: int
    programs: int = 40
    metered: float | None = None
    """Share of the partitions' jobs that have energy; None: drawn."""

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        self.energy_j = 0.0
        self.by_program: dict[str, tuple[int, float]] = {}
        self.site_d = rng.uniform(0.2, 0.75)
        self.reached = rng.betavariate(13.0, 4.3)
        self.power_w = 400.0 * math.exp(rng.gauss(0, 0.45))
        if self.metered is None:
            self.metered = rng.choice((0.0, 0.3, 0.9, 1.0))
        self.made = [self._program(i) for i in range(self.programs)]
        self.weights = [1 / (i + 1) ** 0.7 for i in range(self.programs)]

    @property
    def saving_j(self) -> float:
        """What the lines written so far would save, J, of programs that are run often enough."""
        return sum(total for count, total in self.by_program.values() if count >= REPEATED)

    def _program(self, number: int) -> Program:
        rng = self.rng
        name = rng.choice(NAMED) + f"_{number}" if rng.random() < 0.2 else f"solver{number}"
        a, b = (0.7, 0.4)
        if name.startswith(NAMED):
            a, b = (3.0, 7.0) if name.startswith(("tealeaf", "pot3d")) else (9.0, 1.0)
        return Program(
            name,
            rng.betavariate(a, b),
            self.site_d * rng.betavariate(3.0, 1.0),
            rng.uniform(0.8, 1.2),
            rng.random() < 0.2,
            64 if rng.random() < 0.15 else 0,
        )

    def capped(self, program: Program) -> float:
        """Return the share of energy that the best of the steps saves, 0 where none may be set."""
        best = 0.0
        for step in STEPS:
            r = step / STEPS[-1]
            slower = 1 + program.beta * (1 / r - 1)
            saved = 1 - slower * (1 - program.d * (1 - r * r))
            if r >= 0.6 and slower <= 1 + BOUND and saved > max(best, LEAST):
                best = saved
        return best

    def lines(self) -> Iterator[str]:
        """Yield the file, job by job."""
        rng = self.rng
        yield COLUMNS
        chosen = rng.choices(self.made, self.weights, k=self.jobs)
        for number, program in enumerate(chosen, 1):
            kind = rng.random()
            shared, once = kind < 0.15, 0.15 <= kind < 0.22
            user = f"user{hash_of(program.name) % 7}"
            nodes = 1 if shared else 1 + (hash_of(program.name) % 3) * 2
            cpus = (16 if shared else CORES) * nodes
            seconds = round(600 + 7000 * rng.random())
            if program.threads:  # one input, so that its counts can be compared
                seconds = round(3000 * math.exp(rng.gauss(0, 0.005)))
            fewer = bool(program.threads) and not shared and rng.random() < 0.3
            power = self.power_w * program.load * (0.8 if fewer else 1.0)
            joules = power * nodes * seconds
            name = f"once{number}" if once else program.name
            step = not program.batch
            metered = step and not shared and rng.random() < (self.metered or 0.0)
            failed = rng.random() < 0.05
            if shared:
                self.energy_j += joules * 16 / CORES
            else:
                self.energy_j += joules
            if not shared and not once:
                saved = self.capped(program) * self.reached
                thread = 0.2 if program.threads and not fewer and step and self.metered else 0.0
                count, total = self.by_program.get(program.name, (0, 0.0))
                total += joules * (1 - (1 - thread) * (1 - saved))
                self.by_program[program.name] = count + 1, total
            energy = "0"
            if metered:
                energy = str(round(joules * math.exp(rng.gauss(0, 0.01))))
                if rng.random() < 0.002:
                    energy = "18446744073709551614"
            state = "FAILED" if failed else "COMPLETED"
            listed = f"n[{number % 400 + 1:04d}-{number % 400 + nodes:04d}]"
            if nodes == 1:
                listed = f"n{number % 400 + 1:04d}"
            line = f"sbatch -N {nodes} {name}.sh"
            ended = 1_735_700_000 + number * 30_000_000 // max(1, self.jobs)
            whose = f"{user}|group{hash_of(name) % 5}|batch|{state}"
            yield (
                f"{number}|{name}|{whose}|{ended}|{seconds}|{nodes}|{cpus}||{listed}|0|Unknown||"
                f"{line}"
            )
            yield (
                f"{number}.batch|batch||group|||{ended}|{seconds}|1|{cpus // nodes}|1|"
                f"{listed}|0|0|0|"
            )
            if step:
                used = program.threads * nodes if fewer else cpus
                yield (
                    f"{number}.0|{name}|||batch|{state}|{ended}|{max(1, seconds - 2)}|{nodes}|"
                    f"{used}|{nodes}|{listed}|{energy}|Unknown|2.4M|srun {name}"
                )


def swf_lines(year: Year) -> Iterator[str]:
    """Yield a year in the Standard Workload Format: no energy, numbers for names."""
    yield "; Version: 2.2"
    yield "; UnixStartTime: 1735700000"
    yield "; MaxNodes: 400"
    yield f"; MaxProcs: {400 * CORES}"
    numbers: dict[str, int] = {}
    for line in year.lines():
        cells = line.split("|")
        if not cells[0].isdecimal():
            continue
        number, name, user, group, partition = (
            cells[0],
            *(numbers.setdefault(cell, len(numbers) + 1) for cell in cells[1:5]),
        )
        submitted = int(cells[6]) - 1_735_700_000 - int(cells[7])
        status = int(cells[5] == "COMPLETED")
        yield (
            f"{number} {submitted} 0 {cells[7]} {cells[9]} -1 -1 {cells[9]} -1 -1 {status} "
            f"{user} {group} {name} -1 {partition} -1 -1"
        )


def hash_of(name: str) -> int:
    """Return a number of a name that is the same in every process."""
    return sum(ord(letter) * (i + 1) for i, letter in enumerate(name))


def asked(path: Path) -> tuple[dict[str, float | list[float]], float, float]:
    """Return what prospect answers for a file, seconds of processor time, and MB that it took.

    Processor time, so that others on the machine do not count.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "prospect", str(path), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), took, used.ru_maxrss / 1024


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--years", type=int, default=0, help="draw so many years")
    parser.add_argument("--jobs", type=int, default=4000, help="of a year")
    parser.add_argument("--programs", type=int, default=40, help="of a site")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--swf", action="store_true", help="in the Standard Workload Format")
    parser.add_argument("--keep", type=Path, help="leave the last year in this file")
    args = parser.parse_args()
    held = energy_held = 0
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "year.txt"
        for seed in range(args.seed, args.seed + max(1, args.years)):
            year = Year(seed, args.jobs, args.programs, 0.0 if args.swf else None)
            with path.open("w", encoding="utf-8") as file:
                lines = swf_lines(year) if args.swf else year.lines()
                file.writelines(f"{line}\n" for line in lines)
            answer, took, megabytes = asked(path)
            lo, hi = answer["saving_interval"]  # type: ignore[misc]
            truth, energy = year.saving_j / J_PER_KWH, year.energy_j / J_PER_KWH
            held += lo <= truth <= hi
            low, high = answer["kwh_interval"]  # type: ignore[misc]
            energy_held += low * 0.98 <= energy <= high * 1.02
            word = "held" if lo <= truth <= hi else "MISSED"
            told = f"{answer['saving_kwh']:.0f} ({lo:.0f} to {hi:.0f}) of {answer['kwh']:.0f}"
            print(
                f"year {seed}: saves {truth:.0f} of {energy:.0f} kWh, told {told}, {word}",
                flush=True,
            )
        size = path.stat().st_size / 1e6
        took_words = f"{took:.1f} s of processor time and {megabytes:.0f} MB"
        print(f"the last: {args.jobs} jobs, {size:.0f} MB, in {took_words}")
    if args.years:
        share = f"{held} of {args.years} years ({100 * held / args.years:.0f} %)"
        print(f"the interval held in {share}, that of all energy in {energy_held}")


if __name__ == "__main__":
    main()
