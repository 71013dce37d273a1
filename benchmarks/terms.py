"""How often intervals of ``advisor lab profile fit --table`` hold at four times the largest run.

    python benchmarks/terms.py [manual] [--draws N]

Seven laws of one parameter, 3 to 8 runs at doubling sizes, 1 and 5 % of noise, N draws each (20).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np

from advisor.phases.arrays import Floats
from advisor_lab.profile.setup import built_in_setup
from advisor_lab.profile.table import MetricTable, fit_table, predictions

_FAR = 4.0
"""Times the largest run, where the prediction is looked at."""
LAWS: dict[str, Callable[[Floats], Floats]] = {
    "5 + 1.3 sqrt p": lambda p: 5 + 1.3 * np.sqrt(p),
    "10 + 3 log2 p": lambda p: 10 + 3 * np.log2(p),
    "20 + .05 p": lambda p: 20 + 0.05 * p,
    "3 + 500 / p": lambda p: 3 + 500 / p,
    "30 + .02 p log2 p": lambda p: 30 + 0.02 * p * np.log2(p),
    "1 + .8 p^2/3": lambda p: 1 + 0.8 * p ** (2 / 3),
    "40": lambda p: 40 + 0 * p,
}


def main(arguments: list[str]) -> int:
    """Print for each law, number of runs and noise: intervals that hold, median error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", nargs="?", choices=("strict", "manual"), default="strict")
    parser.add_argument("--draws", type=int, default=20, metavar="N")
    args = parser.parse_args(arguments)
    draw, shares = np.random.default_rng(1), []
    for runs in (3, 4, 5, 6, 8):
        places = np.exp2(np.arange(3, 3 + runs, dtype=np.float64))
        at = {"p": _FAR * float(places[-1])}
        for noise in (0.01, 0.05):
            for name, law in LAWS.items():
                truth, held, errors = float(law(np.array(at["p"]))), 0, []
                for _ in range(args.draws):
                    y = law(places) * (1 + noise * draw.standard_normal(runs))
                    table = MetricTable("drawn", {"p": places}, {"t": y})
                    models = fit_table(table, built_in_setup(), args.method)
                    (one,) = predictions(models, [at])
                    low, high = one.interval or (np.nan, np.nan)
                    held += low <= truth <= high
                    errors.append(abs(one.value / truth - 1))
                shares.append(held / args.draws)
                print(
                    f"{runs} runs, {noise:.0%}, {name:18} holds {shares[-1]:4.0%}, "
                    f"median error {np.median(errors):.0%}"
                )
    print(f"on average {np.mean(shares):.0%} hold")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
