"""How long a fit takes: 12 runs, 121 options, both responses, intervals and zone included.

``python benchmarks/fit.py [--repeat N]`` prints the median of each model after imports, in
milliseconds and as a ratio to the first, and the time the imports themselves take. The target is
one second for one fit.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.models.design import uniform
from advisor.models.fit import fit_options
from advisor.models.registry import names

SPACE = SearchSpace(
    "n", (1,), tuple((1, t) for t in range(4, 45, 4)), tuple(range(1_200_000, 2_200_001, 100_000))
)
TARGET_MS = 1000.0


def measured(c: Configuration) -> Observation:
    clock = c.freq_khz / 2.2e6
    time_s = 30.0 / (c.threads_per_node * clock) + 25.0 / (c.threads_per_node + 4) + 2.0
    watts = 100.0 + c.threads_per_node * (0.8 + 2.4 * clock**2.5)
    return Observation(c, time_s, time_s * watts)


def median_ms(runs: list[Observation], model: str, repeat: int) -> float:
    spent = []
    for _ in range(repeat):
        begin = time.perf_counter()
        fitted = fit_options(runs, model=model, space=SPACE)
        spent.append(time.perf_counter() - begin)
        assert len(fitted.options) == len(SPACE)
    return 1000 * statistics.median(spent)


def import_ms() -> float:
    begin = time.perf_counter()
    code = "import advisor.models.fit, advisor.models.bspline, statsmodels.api"
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1000 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description="time a fit of 12 runs and 121 options")
    parser.add_argument("--repeat", type=int, default=9)
    args = parser.parse_args()
    twelve = [measured(c) for c in uniform(SPACE)]
    whole = [measured(c) for c in SPACE]
    first = 0.0
    print(f"{'model':<12}{'runs':>6}{'options':>9}{'median':>12}{'ratio':>8}")
    for model in names():
        for runs in (twelve, whole):
            spent = median_ms(runs, model, args.repeat)
            first = first or spent
            print(f"{model:<12}{len(runs):>6}{len(SPACE):>9}{spent:>9.0f} ms{spent / first:>8.2f}")
    print(f"12 runs against the target of {TARGET_MS:.0f} ms: {first / TARGET_MS:.2f}")
    print(f"process start and imports, once: {import_ms():.0f} ms")


if __name__ == "__main__":
    main()
