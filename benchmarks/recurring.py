"""What a script that runs again and again saves by trying caps itself, one job at a time.

Each grid below the folders that has at least five clocks at one shape (its node type, nodes, ranks
and threads) is a script whose jobs take what was measured there, with noise. The first three run as
written; each later one asks :func:`~advisor.core.cap_trials.tried_caps` for a cap to try, and
without one runs under the cap that the built-in policy would choose among those that were tried.
Between two measured clocks (grids have few, processors a step each 100 MHz) time is taken as linear
in the clock's period, and energy's logarithm as well. ``--posed`` draws scripts from laws: up to
60 % of their time waits for the clock, 30 to 70 % of their power does not.

``captured`` is the saving after the last job, as a share of the best one within the bound; ``over``
counts jobs whose true time is beyond the bound, ``worst`` is the longest of them. Grids whose path
has an even SHA-1 stand apart from the others. Those of GPUs are left out: their clocks are no caps
of cores.

    python benchmarks/recurring.py [FOLDER...] [--posed 300] [--first 0] [--max-slowdown 0.05]
        [--jobs 20] [--noise 0.01,0.02] [--seeds 5] [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from advisor.core.cap_trials import tried_caps
from advisor.core.job_history import JobPart, PastJob
from advisor.core.policy import Policy
from advisor.errors import AdvisorError
from advisor.store.csvfile import Terms, read_csv

AS_WRITTEN = 3
"""Jobs that a history needs before anything is tried."""
LEAST_CLOCKS = 5
STEP_KHZ, LOWEST_KHZ = 100_000, 1_200_000
TIME_S = 600.0
"""What a job takes as written: the accounting's second is small against it."""


@dataclass(frozen=True)
class Script:
    """What a script's jobs take at each clock, the highest first, against the job as written."""

    name: str
    even: bool
    clocks_khz: tuple[int, ...]
    times: tuple[float, ...]
    energies: tuple[float, ...]

    def best(self, policy: Policy) -> float:
        """Return the share of energy that the best cap within the bound saves."""
        pairs = zip(self.times, self.energies, strict=True)
        return 1 - min(e for t, e in pairs if t <= 1 + policy.max_slowdown)


def scripts_below(folders: Sequence[Path]) -> Iterator[Script]:
    """Yield the scripts that the grids below folders make."""
    for path in sorted(p for folder in folders for p in folder.rglob("*.csv")):
        try:
            runs = read_csv(path, Terms("grid", "benchmark")).observations
        except (AdvisorError, ValueError):
            continue
        curves: defaultdict[tuple[str, int, int, int], dict[int, list[tuple[float, float]]]]
        curves = defaultdict(lambda: defaultdict(list))
        for run in runs:
            place = run.configuration
            if run.energy_j and place.freq_khz and not place.extra:
                shape = place.node_type, place.nodes, place.ranks_per_node, place.threads_per_node
                curves[shape][place.freq_khz].append((run.time_s, run.energy_j))
        even = hashlib.sha1(str(path.name).encode()).digest()[-1] % 2 == 0
        for shape, points in curves.items():
            if len(points) >= LEAST_CLOCKS:
                yield _script(f"{path.stem} {shape[-1]}", even, points)


def _script(name: str, even: bool, points: dict[int, list[tuple[float, float]]]) -> Script:
    measured = sorted(points, reverse=True)
    means = np.array([[fmean(column) for column in zip(*points[c], strict=True)] for c in measured])
    clocks = range(measured[0], measured[-1] - 1, -STEP_KHZ)
    periods, wanted = 1 / np.array(measured), 1 / np.array(clocks)
    times = np.interp(wanted, periods, means[:, 0])
    energies = np.exp(np.interp(wanted, periods, np.log(means[:, 1])))
    return Script(name, even, tuple(clocks), tuple(times / times[0]), tuple(energies / energies[0]))


def posed_script(number: int) -> Script:
    """Return a script drawn from laws of time and power over the clock."""
    rng = random.Random(number)
    waiting, resting = rng.uniform(0, 0.6), rng.uniform(0.3, 0.7)
    top_khz, exponent = rng.randrange(2_200_000, 3_700_000, STEP_KHZ), rng.uniform(2, 3)
    clocks = tuple(range(top_khz, LOWEST_KHZ - 1, -STEP_KHZ))
    times = tuple(1 - waiting + waiting * top_khz / khz for khz in clocks)
    powers = (resting + (1 - resting) * (khz / top_khz) ** exponent for khz in clocks)
    energies = tuple(time * power for time, power in zip(times, powers, strict=True))
    return Script(f"posed {number}", number % 2 == 0, clocks, times, energies)


def saved(
    script: Script, jobs: int, noise: float, policy: Policy, rng: random.Random
) -> tuple[float, list[float]]:
    """Return the share of energy saved by the last job, and each job's true time."""
    ran: list[PastJob] = []
    times, place = [], 0
    for number in range(jobs):
        cap_khz = 0 if number < AS_WRITTEN else _cap(script, ran, policy)
        place = script.clocks_khz.index(cap_khz) if cap_khz else 0
        times.append(script.times[place])
        time_s = TIME_S * script.times[place] * math.exp(rng.gauss(0, noise))
        energy_j = 1e5 * script.energies[place] * math.exp(rng.gauss(0, noise))
        part = JobPart("app", 1, 28, 1, time_s, energy_j)
        ran.append(PastJob("bdw", 1, time_s, 1.0, 1, 28, (part,), cap_khz))
    last_khz = _cap(script, ran, policy, trials=False)
    place = script.clocks_khz.index(last_khz) if last_khz else 0
    return 1 - script.energies[place], times


def _cap(script: Script, ran: Sequence[PastJob], policy: Policy, *, trials: bool = True) -> int:
    """Return the cap of the next job: one to try, else the best that keeps the policy, else 0."""
    written = [job for job in ran if not job.freq_khz]
    capped = [job for job in ran if job.freq_khz]
    tried = tried_caps(written, capped, script.clocks_khz[0], script.clocks_khz, policy)
    if tried is None:
        return 0
    if trials and tried.next_khz:
        return tried.next_khz
    within = {
        khz: r.energy
        for khz, r in tried.responses.items()
        if _upper(r.time, r.time_hi) <= 1 + policy.max_slowdown
        and _upper(r.energy, r.energy_hi) <= 1 - policy.min_saving
    }
    return min(within, key=within.__getitem__, default=0)


def _upper(mean: float, hi: float) -> float:
    """Return the one-sided 90 % end of what has this mean and this 95 % end."""
    return float(mean * (hi / mean) ** (1.2816 / 1.6449))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--posed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first of the scripts drawn")
    parser.add_argument("--max-slowdown", type=float, default=0.05)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--noise", default="0.01,0.02")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    policy = replace(Policy(), max_slowdown=args.max_slowdown)
    drawn = range(args.first, args.first + args.posed)
    every = [*scripts_below(args.folders), *map(posed_script, drawn)]
    scripts = [s for s in every if s.best(policy) >= policy.min_saving]
    rows = []
    for noise in map(float, args.noise.split(",")):
        for even in (True, False):
            results = [
                (s, *saved(s, args.jobs, noise, policy, random.Random(f"{s.name} {seed}")))
                for s in scripts
                if s.even == even
                for seed in range(args.seeds)
            ]
            if not results:
                continue
            bound = 1 + policy.max_slowdown + 1e-9
            all_times = [t for _, _, times in results for t in times]
            row = {
                "noise": noise,
                "grids": "even" if even else "odd",
                "scripts": sum(s.even == even for s in scripts),
                "captured": round(
                    sum(got for _, got, _ in results) / sum(s.best(policy) for s, *_ in results), 3
                ),
                "jobs": len(all_times),
                "over": sum(t > bound for t in all_times),
                "worst": round(max(all_times), 3),
            }
            rows.append(row)
            if not args.json:
                print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    if args.json:
        print(json.dumps({"schema": "advisor/recurring/1", "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
