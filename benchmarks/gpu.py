"""How well the models predict over GPU clocks and power limits, from a few runs of a whole curve.

    python benchmarks/gpu.py FOLDER... [--runs 4,6,8]

Every ``*.csv`` below the folders has a column ``gpu_freq_khz`` or ``gpu_power_w`` (columns as for
``advisor import``), and measured runs over it. All that differs else (batch sizes in
``threads_per_node``, say) makes a curve of its own. Of each curve so many points, evenly placed and
with both ends, are fitted; the others are predicted. Printed is, as a mean over curves, the error
of time and energy at the others, the share of them inside of the 90 % intervals, the best saving
within 5 % slowdown against the highest value, and what the option chosen by prediction really
saves; then the largest slowdown of any curve.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.models.fit import fit_options
from advisor.models.space import search_space
from advisor.store.csvfile import Terms, read_csv

BOUND = 1.05
"""The most time of an option, against the highest value."""
LEAST_POINTS = 8
"""Curves of fewer points leave too few to predict."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One curve: mean errors, coverage, the best saving, what was saved, and at what slowdown."""

    time: float
    energy: float
    coverage: float
    best: float
    saved: float
    slowdown: float


def curves(folders: Sequence[Path]) -> Iterator[dict[Configuration, Observation]]:
    """Return each curve's runs by configuration, the mean of repeats."""
    for path in sorted(p for folder in folders for p in folder.rglob("*.csv")):
        by_place: dict[Configuration, dict[Configuration, list[Observation]]] = {}
        for o in read_csv(path, Terms("g", "benchmark")).observations:
            curve = by_place.setdefault(replace(o.configuration, extra=()), {})
            curve.setdefault(o.configuration, []).append(o)
        for curve in by_place.values():
            if len(curve) >= LEAST_POINTS:
                yield {
                    c: replace(
                        runs[0],
                        time_s=statistics.mean(r.time_s for r in runs),
                        energy_j=statistics.mean(r.energy_j or 0.0 for r in runs),
                    )
                    for c, runs in sorted(curve.items())
                }


def judge(curve: dict[Configuration, Observation], runs: int) -> Judged:
    """Fit so many points of a curve and compare the others with what was measured."""
    places = list(curve)
    trained = {places[round(i * (len(places) - 1) / (runs - 1))] for i in range(runs)}
    space = search_space(places, None)
    fitted = fit_options([curve[c] for c in places if c in trained], space=space)
    rest = [o for o in fitted.predicted if o.configuration not in trained]
    truth = {c: (o.time_s, o.energy_j or 0.0) for c, o in curve.items()}
    inside = [
        low <= value <= high
        for o in rest
        for low, value, high in (
            (o.time_lo_s, truth[o.configuration][0], o.time_hi_s),
            (o.energy_lo_j, truth[o.configuration][1], o.energy_hi_j),
        )
    ]
    time_s, energy_j = truth[places[-1]]
    options = {o.configuration: o for o in fitted.options}
    allowed = [o for o in options.values() if o.time_s <= BOUND * options[places[-1]].time_s]
    chosen = min(allowed, key=lambda o: o.energy_j).configuration
    best_j = min(e for t, e in truth.values() if t <= BOUND * time_s)
    return Judged(
        statistics.mean(abs(o.time_s / truth[o.configuration][0] - 1) for o in rest),
        statistics.mean(abs(o.energy_j / truth[o.configuration][1] - 1) for o in rest),
        sum(inside) / len(inside),
        1 - best_j / energy_j,
        1 - truth[chosen][1] / energy_j,
        truth[chosen][0] / time_s - 1,
    )


def main() -> None:
    """Print a line for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--runs", default="4,6,8", help="points of a curve that are fitted")
    args = parser.parse_args()
    grids = list(curves(args.folders))
    for runs in map(int, args.runs.split(",")):
        judged = [judge(curve, runs) for curve in grids if len(curve) > runs]
        if not judged:
            print(f"{runs} runs: no curve has more points")
            continue
        mean = {
            name: 100 * statistics.mean(getattr(j, name) for j in judged)
            for name in ("time", "energy", "coverage", "best", "saved")
        }
        print(
            f"{len(judged)} curves, {runs} runs: off by {mean['time']:.1f} % in time and "
            f"{mean['energy']:.1f} % in energy, {mean['coverage']:.0f} % inside; best saving "
            f"{mean['best']:.1f} %, saved {mean['saved']:.1f} %, at most "
            f"{100 * max(j.slowdown for j in judged):.1f} % slower"
        )


if __name__ == "__main__":
    main()
