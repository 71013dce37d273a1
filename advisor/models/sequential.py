"""The sequential design: start small, then make each run where it improves the decision most.

The first runs are the uniform design's, the baseline among them. Every further run goes to the
option whose expected improvement of the decision is greatest (:mod:`advisor.core.recommend`). When
no run is expected to improve it, runs go where it is most uncertain whether an option is on the
front: it is not beaten beyond error by any other, its own error is the largest, and its predicted
time keeps the policy's slowdown bound up to its error. The design
ends when the decision is settled and the last run changed the trade-off zone little, or at the
number of runs that is allowed. It only looks at what has been run, so it goes on after a kill as
if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.recommend import affordable, recommend
from advisor.core.select import RUN_SIGMA
from advisor.models.design import uniform, within
from advisor.models.fit import FitResult

SEQUENTIAL = "sequential"
"""The design's name on the command line."""

FIRST_RUNS, _LEAST_RUNS = 5, 7
"""Runs of the uniform design to begin with; fewer than seven never end the design."""
_SAME_ZONE, _KNOWN = 0.8, 1.5
"""The design ends when two zones share this much, or the error is this many times one run's."""


def first_runs(
    space: SearchSpace, samples: int, must_include: Configuration | None = None
) -> list[Configuration]:
    """Return the runs to begin with: those of a small uniform design."""
    return uniform(space, min(FIRST_RUNS, samples), must_include)


def next_run(
    fitted: FitResult,
    former: FitResult | None,
    baseline: Configuration,
    policy: Policy,
    allowed: Collection[Configuration],
) -> Configuration | None:
    """Return the configuration to run next, None when the decision and the zone are settled.

    ``former`` is the fit without the last run. Only ``allowed`` configurations without a run are
    proposed.
    """
    options = [o for o in fitted.options if o.measured or o.configuration in allowed]
    start = next(o for o in fitted.options if o.configuration == baseline)
    measured = {o.configuration for o in options if o.measured}
    best = recommend(options, start, policy, skip=measured)
    if best is not None:
        return best.configuration
    open_options = [
        o for o in _maybe_on_front(options) if not o.measured and affordable(o, start, policy)
    ]
    uncertain = max(open_options, key=_error, default=None)
    if uncertain is None:
        return None
    settled = _error(uncertain) < _KNOWN * RUN_SIGMA or _overlap(fitted, former) >= _SAME_ZONE
    if settled and fitted.n_train >= _LEAST_RUNS:
        return None
    return uncertain.configuration


def explore(
    fit: Callable[[Collection[Configuration]], FitResult],
    space: SearchSpace,
    cells: Sequence[Configuration],
    baseline: Configuration,
    policy: Policy,
    samples: int,
) -> list[Configuration]:
    """Return the runs that the design makes on a grid of ``cells``, in order."""
    points = within(first_runs(space, samples, baseline), space, cells)
    former = None
    while len(points) < samples:
        fitted = fit(points)
        chosen = next_run(fitted, former, baseline, policy, set(cells))
        if chosen is None:
            break
        points.append(chosen)
        former = fitted
    return points


def _error(option: Option) -> float:
    return float(np.hypot(option.time_sigma, option.energy_sigma))


def _maybe_on_front(options: Sequence[Option]) -> list[Option]:
    """Return the options that no other beats in both responses beyond one standard error."""
    # NaN, which stands for no energy, does not equal itself.
    metered = [o for o in options if o.energy_j == o.energy_j]
    values = np.log([[o.time_s, o.energy_j] for o in metered]).reshape(-1, 2)
    errors = np.array([[o.time_sigma, o.energy_sigma] for o in metered]).reshape(-1, 2)
    best, worst = values - errors, values + errors
    return [o for o, low in zip(metered, best, strict=True) if not (worst < low).all(axis=1).any()]


def _overlap(fitted: FitResult, former: FitResult | None) -> float:
    """Return how much of both zones is common to them."""
    if former is None:
        return 0.0
    a, b = ({o.configuration for o in f.options if o.in_zone} for f in (fitted, former))
    return len(a & b) / len(a | b)
