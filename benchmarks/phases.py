"""Print how well iterations are found and how early runs can be ended, against what is asked.

    python benchmarks/phases.py [CASES] [--grids FOLDER] [--seeds N] [--first-seed N]
                                [--room CHARACTERS] [--margin SHARE] [--disturbed]

CASES is a folder with phases_cases.yaml and the CSV files that it names: their bars are printed
with what is reached. Then programs with laws of our own (benchmarks/programs.py), and sweeps whose
times and energies are those of the grids in FOLDER, one CSV file per workload with the columns of
``advisor import``: each run of a sweep is a program that takes what the grid says. With --room
complete runs are condensed before others are paired with them, as those above 64 KB are. --margin
is how much of the half width scatter may take when a run is ended, in place of the product's. With
--disturbed only programs are drawn whose iterations are longer for a while, in four strengths.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from accuracy import measured
from programs import LAWS, Recorded, program
from sweeps import Replay
from sweeps import replay as replay_sweep

from advisor.core.configuration import Configuration, largest_of
from advisor.core.observation import Observation
from advisor.core.policy import Policy, Training
from advisor.phases import pairing
from advisor.phases.metered import Metered
from advisor.phases.pairing import LEAST_READINGS, Baseline, RunEvents, replay
from advisor.phases.record import condensed, expanded
from advisor.phases.sequence import find_iterations
from advisor.phases.stretches import LEAST_ITERATIONS
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob, SweepStatus
from advisor_lab.phases.burst_tree import cluster_nodes
from advisor_lab.phases.bursts import BurstTable, cluster
from advisor_lab.phases.files import (
    read_bursts,
    read_events,
    read_marks,
    read_readings,
    read_signal,
)
from advisor_lab.phases.fold import fold
from advisor_lab.phases.signal import find_periods

ROOM = 0
"""Characters that complete runs are condensed to, 0 for none."""


def line(name: str, reached: str, asked: str, *, holds: bool) -> None:
    print(f"  {name:<38} {reached:<34} {asked:<26} {'' if holds else 'MISSED'}".rstrip())


def rand_index(one: Sequence[int], other: Sequence[int]) -> float:
    """Return the adjusted Rand index (Hubert and Arabie 1985)."""

    def pairs(counts: Iterable[int]) -> float:
        return sum(n * (n - 1) / 2 for n in counts)

    both = pairs(Counter(zip(one, other, strict=True)).values())
    a, b = pairs(Counter(one).values()), pairs(Counter(other).values())
    expected = a * b / pairs([len(one)])
    most = (a + b) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


# -- recorded cases --------------------------------------------------------------------------------


def bursts(folder: Path, cases: list[dict[str, Any]]) -> None:
    print("bursts: adjusted Rand index; with 15 % clustered, the least of ten draws")
    for case in cases:
        path = folder / case["file"]
        with path.open() as text:
            truth = [int(row["truth"]) for row in csv.DictReader(text)]
        table = read_bursts(path)
        whole = rand_index(cluster(table).labels.tolist(), truth)
        part = min(
            rand_index(cluster(table, subset=0.15, seed=s).labels.tolist(), truth)
            for s in range(10)
        )
        reach = case["reach"]
        asked = (reach["adjusted_rand_index"], reach["with_subset_15_percent"])
        line(
            path.stem,
            f"{whole:.3f}  {part:.3f}",
            f"{asked[0]}  {asked[1]}",
            holds=whole >= asked[0] and part >= asked[1],
        )
        whole, part = (
            min(rand_index(in_a_tree(table, 8, s, share), truth) for s in range(10))
            for share in (1.0, 0.15)
        )
        line(
            "  of 8 nodes in a tree",
            f"{whole:.3f}  {part:.3f}",
            f"{asked[0]}  {asked[1]}",
            holds=whole >= asked[0] and part >= asked[1],
        )


def in_a_tree(table: BurstTable, nodes: int, seed: int, share: float) -> list[int]:
    """Return the labels of bursts that are dealt out to so many nodes."""
    where = np.random.default_rng(seed).integers(0, nodes, table.size)
    dealt = [
        BurstTable(table.process[mine], table.duration_s[mine], table.axes[mine])
        for mine in (where == node for node in range(nodes))
    ]
    labels = np.zeros(table.size, np.int64)
    for node, groups in enumerate(cluster_nodes(dealt, subset=share, seed=seed)):
        labels[where == node] = groups.labels
    return labels.tolist()


def many_bursts() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(1, 6, 40_000)
    centre = rng.uniform([5, 0.4], [9, 2.4], (5, 2))[truth - 1]
    axes = centre + rng.normal(0, 0.02, (40_000, 2))
    table = BurstTable(rng.integers(0, 64, 40_000), 10 ** axes[:, 0] / 2e9, axes)
    begin = time.process_time()
    cluster(table)
    took = time.process_time() - begin
    line("40,000 bursts, CPU", f"{took:.1f} s", "below 10 s", holds=took < 10)


def sequences(folder: Path, cases: list[dict[str, Any]]) -> None:
    print("sequences: iterations of each phase")
    for case in cases:
        events = read_events(folder / case["file"])
        phases = find_iterations(events.times, events.sites)
        got = [p.iterations for p in phases]
        wanted = case["iterations"]
        wanted = [] if wanted is None else wanted if isinstance(wanted, list) else [wanted]
        rare = {s: n for p in phases for s, n in p.rare.items()}
        fits = got == wanted and rare == case.get("rare", {})
        if "period_events" in case:
            asked = case["period_events"]
            fits &= [p.events for p in phases] == (asked if isinstance(asked, list) else [asked])
        line(Path(case["file"]).stem, f"{got} {rare or ''}", f"{wanted}", holds=fits)


def signals(folder: Path, cases: list[dict[str, Any]]) -> None:
    print("signals: periods (s)")
    for case in cases:
        signal = read_signal(folder / case["file"])
        got = find_periods(signal.times, signal.values)
        wanted = case.get("period_s", [])
        wanted = wanted if isinstance(wanted, list) else [wanted]
        within = case.get("within", 0.01)
        within = within if isinstance(within, list) else [within] * len(wanted)
        fits = len(got) == len(wanted) and all(
            abs(s.period_s / w - 1) <= e for s, w, e in zip(got, wanted, within, strict=True)
        )
        if "change_s" in case and len(got) == 2:
            fits &= abs(got[0].end_s - case["change_s"]) <= case["change_within_s"]
        shown = ", ".join(f"{s.period_s:.3f}" for s in got) or "no period"
        line(Path(case["file"]).stem, shown, f"{wanted or 'no period'}", holds=fits)


def folding(folder: Path, cases: list[dict[str, Any]]) -> None:
    print("folding: relative RMS, and away from steps")
    for case in cases:
        readings = read_readings(folder / case["readings"])
        meter = fed(list(zip(readings.times.tolist(), readings.values.tolist(), strict=True)))
        folded = fold(readings.times, meter.at(readings.times), read_marks(folder / case["marks"]))
        assert folded is not None
        name, reach = Path(case["readings"]).stem, case["reach"]
        if "says_so" in reach:
            line(name, folded.answer[:34], "keeps step", holds="keeps step" in folded.answer)
            continue
        edges = np.array(case["edges"])
        power = np.array(case["power_w"])
        truth = power[np.searchsorted(edges, folded.x, side="right") - 1]
        off = (folded.value - truth) / truth.mean()
        away = np.abs((folded.x[:, None] - edges + 0.5) % 1 - 0.5).min(axis=1) > 0.05
        rms = [float(np.sqrt((e**2).mean())) for e in (off, off[away])]
        bars = (reach["relative_rms"], reach["away_from_steps"])
        holds = rms[0] <= bars[0] and rms[1] <= bars[1]
        line(name, f"{rms[0]:.4f}  {rms[1]:.4f}", f"{bars[0]}  {bars[1]}", holds=holds)


# -- early stops -----------------------------------------------------------------------------------


@dataclass
class Stops:
    """What early stops reached: one entry for each run."""

    shares: list[float] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    complete: int = 0

    def add(self, base: Recorded, run: Recorded) -> None:
        """Replay a run beside its baseline."""
        stop = replay(baseline(base), RunEvents(run.times, run.sites), run.readings)
        if not stop.stopped:
            self.complete += 1
            return
        assert stop.energy is not None
        self.shares.append(stop.stop_s / run.time_s)
        for total, truth, errors in (
            (stop.time, run.time_s, self.time),
            (stop.energy, run.energy_j, self.energy),
        ):
            errors.append(abs(total.total / truth - 1))
            self.inside.append(abs(total.total - truth) <= total.half)

    def print(self, name: str, share: float | None = None) -> None:
        """Print shares, errors and coverage beside their bars."""
        ran = f", {self.complete} complete" if self.complete else ""
        if not self.shares:
            line(name, f"none ended early{ran}", "", holds=True)
            return
        median = float(np.median(self.shares))
        line(
            f"{name}: median share{ran}",
            f"{median:.3f}",
            f"{share or ''}",
            holds=share is None or median <= share,
        )
        for what, errors, bars in (
            ("time", self.time, (0.01, 0.03)),
            ("energy", self.energy, (0.02, 0.05)),
        ):
            got = float(np.median(errors)), max(errors)
            line(
                f"  {what}: error, median and worst",
                f"{got[0]:.2%}  {got[1]:.2%}",
                f"{bars[0]:.0%}  {bars[1]:.0%}",
                holds=got[0] <= bars[0] and got[1] <= bars[1],
            )
        held = float(np.mean(self.inside))
        line(
            "  intervals that hold",
            f"{held:.0%} of {len(self.inside)}",
            "85 to 95 %",
            holds=0.85 <= held <= 0.95 or len(self.inside) < 40,
        )


def fed(readings: Sequence[tuple[float, float]]) -> Metered:
    meter = Metered()
    for reading in readings:
        meter.feed(*reading)
    return meter


def baseline(base: Recorded) -> Baseline:
    times, phases = base.times, None
    if ROOM:
        tokens = np.unique(base.sites, return_inverse=True)[1]
        phases = find_iterations(times, base.sites)
        kept = condensed(np.array(times), tokens, phases, ROOM)
        assert kept is not None, "there is too little room"
        times = tuple(expanded(kept)[0].tolist())
    return Baseline(RunEvents(times, base.sites), fed(base.readings), phases=phases)


def recorded(folder: Path, stem: str, energy_j: float) -> Recorded:
    events = read_events(folder / stem)
    readings = read_readings(folder / stem.replace(".csv", "_power.csv"))
    pairs = list(zip(readings.times.tolist(), readings.values.tolist(), strict=True))
    return Recorded(events.times, events.sites, pairs, energy_j)


def recorded_stops(folder: Path, cases: list[dict[str, Any]]) -> None:
    print("early stops of recorded runs")
    for calm in (True, False):
        stops = Stops()
        for case in cases:
            if (case["iteration_scatter"] < 0.1) is calm and case["kind"] != "irregular":
                base = recorded(folder, case["baseline"], case["energy_j"])
                for run in case["runs"]:
                    stops.add(base, recorded(folder, run["file"], run["energy_j"]))
        stops.print("2 % scatter" if calm else "20 % scatter")


def drawn_stops(seeds: int, first: int) -> None:
    print(f"early stops of programs with laws of our own, {2 * seeds} runs each")
    together = Stops()
    for law in LAWS:
        stops = Stops()
        for seed in range(seeds):
            base, *runs = program(law, first + 1000 + seed)
            for run in runs:
                stops.add(base, run)
        stops.print(law, 0.65 if law == "two phases" else None)
        if law not in ("irregular", "two phases"):
            together.shares += stops.shares
        together.time += stops.time
        together.energy += stops.energy
        together.inside += stops.inside
        together.complete += stops.complete
    together.print("all (shares of one phase)", 0.13)
    disturbed_stops(seeds, first, (0.2,))
    slow = Stops()
    for seed in range(seeds):
        base, *runs = program("steady", first + 3000 + seed, meter_s=1.0)
        for run in runs:
            slow.add(base, run)
    slow.print("steady, a meter of 1 s")


def disturbed_stops(
    seeds: int, first: int, strengths: Sequence[float], *, alone: bool = False
) -> None:
    """Draw programs that bouts disturb; ``alone``: not the complete run."""
    for bouts in strengths:
        stops = Stops()
        for seed in range(first + 2000, first + 2000 + seeds):
            base, *runs = program("steady", seed, bouts=bouts)
            if alone:
                base = program("steady", seed)[0]
            for run in runs:
                stops.add(base, run)
        stops.print(f"steady, {'only runs ' if alone else ''}disturbed by {bouts:.0%}")


# -- sweeps ----------------------------------------------------------------------------------------


class Shortened(Replay):
    """Runs that come out as a grid says: all but the baseline and what confirms ended early.

    With ``borrowed`` the baseline is ended too, beside an earlier sweep's complete run.
    """

    def __init__(
        self,
        grid: Sequence[Observation],
        law: str,
        seed: int,
        *,
        borrowed: bool = False,
        iterations: int = 200,
        begin_s: float = 6.0,
    ) -> None:
        super().__init__(grid)
        self._law, self._seed, self._borrowed = law, seed, borrowed
        self._iterations, self._begin_s = iterations, begin_s
        self._base = largest_of(self._cells)
        self.whole_s = self.spent_s = 0.0
        self.parts_s = {"first": 0.0, "confirm": 0.0, "begins": 0.0, "least": 0.0}
        """What a sweep spends whatever is decided: its complete runs, the begin of those that are
        ended, and their least of iterations (or of readings, where these take longer)."""

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        """Return what each run said when it was ended."""
        return SweepStatus("ended", tuple(self._result(run) for run in job.runs))

    def _result(self, run: PlannedRun) -> RunResult:
        cell, base = self._cells[run.configuration], self._cells[self._base]
        time_s, energy_j, took = cell.time_s, cell.energy_j, cell.time_s
        ends = run.role != "confirm" and (cell is not base or self._borrowed)
        if ends and energy_j and base.energy_j:
            first, other = program(
                self._law,
                self._seed + run.seq,
                runs=1,
                iterations=self._iterations,
                begin_s=self._begin_s,
            )
            complete = scaled(first, base.time_s, base.energy_j)
            mine = scaled(other, time_s, energy_j)
            beside = baseline(complete)
            stop = replay(beside, RunEvents(mine.times, mine.sites), mine.readings)
            bounds = beside.phases[0].bounds
            begun, least = (mine.times[bounds[i]] for i in (0, LEAST_ITERATIONS))
            self.parts_s["begins"] += begun
            self.parts_s["least"] += max(least, mine.readings[LEAST_READINGS][0]) - begun
            took, time_s = stop.stop_s, stop.time.total
            energy_j = stop.energy.total if stop.energy else energy_j
        else:
            self.parts_s["confirm" if run.role == "confirm" else "first"] += took
        self.whole_s += cell.time_s
        self.spent_s += took
        return RunResult(run.seq, 1, True, time_s, energy_j, "measured", "grid")


def scaled(run: Recorded, time_s: float, energy_j: float) -> Recorded:
    """Return a run of this time and energy, stretched as a whole; a meter of 20 ms reads it."""
    t, e = time_s / run.time_s, energy_j / run.energy_j
    ticks = np.arange(0.0, time_s + 0.02, 0.02)
    joules = np.interp(ticks / t, *np.array(run.readings).T) * e
    pairs = list(zip(ticks.tolist(), np.floor(1e3 * joules).tolist(), strict=True))
    pairs = [(at, j / 1e3) for at, j in pairs]
    return Recorded(tuple(x * t for x in run.times), run.sites, pairs, energy_j)


def sweeps(folder: Path, first_seed: int) -> None:
    """Draw sweeps of 12 runs, complete and shortened, and compare what they choose.

    The least is what the rules leave: complete runs whole, of the others their begin and 8
    iterations.
    """
    print("sweeps of 12 runs and a confirmation")
    policy = Policy(training=Training(trust="all", budget_node_hours=1e9))
    complete: dict[str, float] = {}
    ways = (
        (False, 200, 6.0),
        (True, 200, 6.0),
        (False, 200, 1.0),
        (False, 1000, 6.0),
        (True, 1000, 6.0),
    )
    for borrowed, iterations, begin_s in ways:
        beside = "; the baseline paired with an earlier sweep's complete run" if borrowed else ""
        share = begin_s / (begin_s + 0.55 * iterations + 3.0)
        print(f" programs of {iterations} iterations, whose begin takes {share:.1%}{beside}")
        shares, lost, parts = [], [], []
        for number, (name, grid) in enumerate(measured(folder)):
            truth = {o.configuration: o.energy_j or 0.0 for o in grid}

            def chosen(
                scheduler: Replay | None,
                grid: Sequence[Observation] = grid,
                truth: Mapping[Configuration, float] = truth,
            ) -> float:
                outcome, _ = replay_sweep(grid, "auto", "uniform", 12, policy, scheduler)
                return truth[(outcome.recommended or outcome.baseline).configuration]

            if name not in complete:
                complete[name] = chosen(None)
            short = Shortened(
                grid,
                "steady",
                first_seed + 100 * number,
                borrowed=borrowed,
                iterations=iterations,
                begin_s=begin_s,
            )
            lost.append(chosen(short) / complete[name] - 1)
            shares.append(short.spent_s / short.whole_s)
            parts.append(np.array(list(short.parts_s.values())) / short.whole_s)
            shown = " + ".join(f"{p:.3f}" for p in parts[-1])
            print(
                f"  {name:<16} {shares[-1]:.3f} of the time, energy {lost[-1]:+.2%}; "
                f"at least {shown} = {parts[-1].sum():.3f}"
            )
        mean = float(np.mean(shares))
        line("mean share of the complete sweep", f"{mean:.3f}", "0.15", holds=mean <= 0.15)
        least = np.mean(parts, axis=0)
        shown = ", ".join(f"{k} {p:.3f}" for k, p in zip(short.parts_s, least, strict=True))
        print(f"  the rules leave {least.sum():.3f} at least: {shown}")
        line("worst chosen point, energy", f"{max(lost):+.2%}", "+1 %", holds=max(lost) <= 0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="?", type=Path, metavar="CASES")
    parser.add_argument("--grids", type=Path, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=10, metavar="N")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N")
    parser.add_argument("--room", type=int, default=0, metavar="CHARACTERS")
    parser.add_argument("--margin", type=float, default=pairing.MARGIN, metavar="SHARE")
    parser.add_argument("--disturbed", action="store_true")
    args = parser.parse_args()
    globals()["ROOM"] = args.room
    pairing.MARGIN = args.margin
    if args.disturbed:
        for alone in (False, True):
            disturbed_stops(args.seeds, args.first_seed, (0.02, 0.05, 0.1, 0.2), alone=alone)
        return
    if args.cases:
        cases = yaml.safe_load((args.cases / "phases_cases.yaml").read_text())
        bursts(args.cases, cases["bursts"])
        sequences(args.cases, cases["sequences"])
        signals(args.cases, cases["signals"])
        folding(args.cases, cases["folding"])
        recorded_stops(args.cases, cases["stops"])
    many_bursts()
    drawn_stops(args.seeds, args.first_seed)
    if args.grids:
        sweeps(args.grids, args.first_seed)


if __name__ == "__main__":
    main()
