"""A meter's step, as the runs themselves show it: energies that are all multiples of one number.

A wall meter that counts in hundredths of a watt-hour shows every run as a multiple of 36 J, one
that counts in tenths as one of 360 J. Of short runs that is much, and no repeat shows it: two runs
read alike are no proof that they took alike. A run's energy is the difference of two readings, each
cut off to the step, so its error has the variance step^2 / 6 (that of a triangle from minus to plus
one step).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Z90
from advisor.models.ended_runs import ended_early
from advisor.models.response import Response

_FEWEST = 5
"""Fewer energies share a large divisor by chance."""
_PARTS = 1000
"""Parts of a joule in which the step is looked for."""
_MOST_APART = 0.9
"""Of a run's energy, what a step may make wrong: a meter that shows nothing measures nothing."""
_MATTERS = 0.3
"""Of one run's error: what a step has to make wrong in the shortest run to count."""


def meter_step_j(runs: Sequence[Observation]) -> float:
    """Return the largest number that all measured energies are multiples of, J; 0 for none.

    Where all are alike there is no telling: the step may be anything that divides them. Runs that
    were ended early do not count: what is extrapolated is no reading.
    """
    energies = [r.energy_j for r in runs if r.energy_j is not None and not ended_early(r)]
    steps = {round(e * _PARTS) for e in energies}
    if len(energies) < _FEWEST or len(steps) < 2 or max(steps) >= 2**53:
        return 0.0
    return math.gcd(*steps) / _PARTS


def with_step(
    energy: Response, power: Response, time: Response, step_j: float
) -> tuple[Response, Response]:
    """Return energy (J) and power (W) with what a meter's step makes wrong in them.

    As they were where that is everywhere less than a third of one run's error.
    """
    means = [(c, time.log_mean[c], v) for c, v in energy.log_mean.items()]
    # What runs take on average, not what each is read to: of two that took alike the one that was
    # read as less would weigh less, and predictions would come out too high.
    usual_w = sum(math.exp(v) for _, _, v in means) / sum(math.exp(t) for _, t, _ in means)
    errors = {c: read_error(step_j, c, t + math.log(usual_w)) for c, t, _ in means}
    if max(errors.values(), default=0.0) < _MATTERS * energy.run_sigma:
        return energy, power
    energy, power = (replace(r, step_j=step_j, read_error=errors) for r in (energy, power))
    return energy, power


def read_error(step_j: float, configuration: Configuration, log_energy: float) -> float:
    """Return the standard deviation (log) of a run's reading where it takes so much.

    Downwards, where a step is more in logarithms. The nodes of a run have a meter each.
    """
    apart = Z90 * step_j * math.sqrt(configuration.nodes / 6) / math.exp(log_energy)
    return -math.log1p(-min(apart, _MOST_APART)) / Z90


def in_words(energy: Response) -> str:
    """Say what the meter's step makes of the energies; "" where that is little."""
    if not energy.step_j:
        return ""
    typical, worst = (100 * float(f(list(energy.read_error.values()))) for f in (np.median, np.max))
    return (
        f"energies are multiples of {energy.step_j:g} J, the meter's step: one run's may be off by "
        f"{typical:.0f} % (median; {worst:.0f} % where least is taken); longer runs show more"
    )
