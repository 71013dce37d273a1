"""What profiles of counts are worth for sizes never run: drawn families, with and without them.

Work is n^a + c n^b on cores and clock, with a part that no size changes; runs are twelve at n = 4
and three each at 1 and 2, off by 1 %. Predicted are n = 8 and 16: without profiles, with profiles
that count the work, and with ones that count something else.

    python benchmarks/count_laws.py [--families 14] [--seed 7]
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws, TermSum
from advisor.scaling.base import SizedPlaces, SizedRuns
from advisor.scaling.design import sized_design
from advisor.scaling.registry import tried_forecast

_CELLS = [
    Configuration("n", 1, 1, cores, cap)
    for cores in (4, 8, 12, 16)
    for cap in (1_200_000, 1_800_000, 2_400_000)
]
_FAR = (8.0, 16.0)
_Z90 = 1.645


def drawn(rng: np.random.Generator) -> tuple[Callable[[float, Configuration], float], TermSum]:
    """Draw a family: its law of time (s) and the law of its instructions."""
    a, b = rng.choice([0.5, 1, 1.5, 2]), rng.choice([1, 1.5, 2, 2.5, 3])
    second, scale = math.exp(rng.uniform(-5, 0)), rng.uniform(20, 80)
    serial, clockless = math.exp(rng.uniform(-6, -3)), rng.uniform(0, 0.8)
    fixed = rng.uniform(0, 4)

    def time(n: float, c: Configuration) -> float:
        inside = (serial + (1 - serial) / c.threads_per_node) * (
            (1 - clockless) * 2.4e6 / c.freq_khz + clockless
        )
        return float(fixed + scale * (n**a + second * n**b) * inside)

    return time, ((1e9, f"n^{a}"), (1e9 * second, f"n^{b}"))


def main() -> None:
    """Print errors, coverage and widths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--families", type=int, default=14)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    scores: defaultdict[tuple[str, float], list[tuple[float, float, float, bool]]]
    scores = defaultdict(list)
    for _ in range(args.families):
        time, work = drawn(rng)
        rows = []
        for n, cells in sized_design({n: _CELLS for n in (1.0, 2.0, 4.0)}).items():
            for c in cells:
                seconds = time(n, c) * math.exp(rng.normal(0, 0.01))
                watts = 80 + c.threads_per_node * (1 + 4 * (c.freq_khz / 2.4e6) ** 3)
                rows.append(({"n": n}, c, seconds, seconds * watts))
        wanted = [({"n": n}, c) for n in _FAR for c in _CELLS]
        truth = np.log([time(size["n"], c) for size, c in wanted])
        for name, law in (("none", ()), ("its work", work), ("else", ((1e9, "n^2.5"),))):
            laws = CountLaws(("n",), instructions=((((1.0, "1"),), law),)) if law else None
            runs = SizedRuns.of(["n"], rows, laws=laws)
            tried = tried_forecast(runs, SizedPlaces.of(["n"], wanted, laws))
            off, sigma = tried.forecast.time.mean - truth, tried.forecast.time.sigma
            for i, n in enumerate(_FAR):
                at = slice(i * len(_CELLS), (i + 1) * len(_CELLS))
                error = math.expm1(float(np.abs(off[at]).mean()))
                holds = float((np.abs(off[at]) <= _Z90 * sigma[at]).mean())
                half = float(np.expm1(_Z90 * sigma[at]).mean())
                scores[name, n].append((error, holds, half, tried.unfit))
    for (name, n), score in scores.items():
        error, holds, half, unfit = np.array(score).T
        print(
            f"profiles of {name:9} n = {n:3g}: median error {np.median(error):5.1%}, worst "
            f"{error.max():5.1%}; 90 % intervals hold {holds.mean():.0%}, half width "
            f"{np.median(half):.0%}; family-unfit {unfit.sum():.0f}"
        )


if __name__ == "__main__":
    main()
