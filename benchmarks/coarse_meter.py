"""How often intervals of energy hold where the meter counts in large steps.

    python benchmarks/coarse_meter.py FOLDER... [--steps 0.1,0.3]

Every ``*.csv`` below the folders is a measured grid (columns as for ``advisor import``). Its
energies are read to steps of such shares of the median run's, each run begun at any time of a step,
and the default model is trained on twelve cells. Grids are halved by the SHA-1 of their file's
name: the even ones (``development``) were looked at when the error was made, the odd ones
(``reported``) were not.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.core.observation import Observation
from advisor.errors import AdvisorError
from advisor.models.evaluation import evaluate
from advisor.store.csvfile import Terms, read_csv

_HELD = 0.85
"""Share of a grid's intervals that has to hold."""


def read_coarsely(runs: Sequence[Observation], share: float) -> Iterator[Observation]:
    """Give the runs that such a meter shows at all, as it shows them."""
    energies = [run.energy_j or 0.0 for run in runs]
    step_j = max(1, round(share * float(np.median(energies))))
    rng = np.random.default_rng(1)
    for run, energy_j in zip(runs, energies, strict=True):
        shown_j = float(step_j * ((rng.uniform(0, step_j) + energy_j) // step_j))
        if energy_j and shown_j:
            yield replace(run, energy_j=shown_j)


def main(arguments: list[str]) -> int:
    """Print for each half and step: grids, intervals that hold, grids where enough do, error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--steps", default="0.1,0.3", metavar="SHARE,...")
    args = parser.parse_args(arguments)
    shares = [float(text) for text in args.steps.split(",")]
    rows: defaultdict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    for file in sorted(f for folder in args.folders for f in folder.rglob("*.csv")):
        odd = hashlib.sha1(file.name.encode()).digest()[-1] % 2
        try:
            runs = read_csv(file, Terms("grid", "grid")).observations
            for share in shares:
                score = evaluate(list(read_coarsely(runs, share))).responses["energy"]
                half = "reported" if odd else "development"
                rows[half, share].append((score.interval_coverage, score.total_rmse_pct))
        except AdvisorError as error:
            print(f"{file.name}: {error}", file=sys.stderr)
    for (half, share), scores in sorted(rows.items()):
        held, errors = np.array(scores).T
        print(
            f"{half}, steps of {share:.0%}: {len(scores)} grids, {held.mean():.0%} of intervals "
            f"hold (worst grid {held.min():.0%}), {np.mean(held >= _HELD):.0%} of grids hold "
            f"{_HELD:.0%}, total error {errors.mean():.1f} %"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
