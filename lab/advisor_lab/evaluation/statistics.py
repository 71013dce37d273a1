"""Statistics of measured runs that people look at (Endrei 2019, 4.2, 4.3.5 and appendix A).

Distributions are of how far repeats of a configuration are from its mean, in units of one run's
standard deviation; where nothing was repeated, of a model's errors instead.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.errors import InputError
from advisor.models.runs import Runs
from advisor.models.scatter import Z95
from advisor.plotting import robust_ends

FEWEST = 3
"""Values that a distribution needs, and configurations that a rank correlation needs."""
CLUSTERS = ("power", "balanced", "performance")
"""Names of the front's clusters, from least power to least time (Michanan et al. 2017)."""


@dataclass(frozen=True, slots=True)
class RepeatSummary:
    """The repeats of one configuration: time in s or energy in J.

    ``deviation`` and ``variance`` are the sample's (n - 1). ``normal`` and ``student`` are the
    mean's 95 % intervals by equations 4.2 and 4.4.
    """

    configuration: Configuration
    response: str
    runs: int
    arithmetic: float
    geometric: float
    harmonic: float
    median: float
    deviation: float
    variance: float
    normal: tuple[float, float]
    student: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "configuration": self.configuration.to_dict()}


def summaries(observations: Sequence[Observation]) -> list[RepeatSummary]:
    """Return what repeats say, of each response of each configuration run twice or more."""
    values: dict[tuple[str, Configuration], list[float]] = defaultdict(list)
    for o in observations:
        values["time", o.configuration].append(o.time_s)
        if o.energy_j is not None:
            values["energy", o.configuration].append(o.energy_j)
    return [_summary(name, c, np.array(v)) for (name, c), v in sorted(values.items()) if len(v) > 1]


def _summary(name: str, configuration: Configuration, values: Any) -> RepeatSummary:
    n, mean, deviation = len(values), float(values.mean()), float(values.std(ddof=1))
    error = deviation / math.sqrt(n)
    wide = float(stats.t.ppf(0.975, n - 1)) * error
    return RepeatSummary(
        configuration,
        name,
        n,
        mean,
        float(stats.gmean(values)),
        float(stats.hmean(values)),
        float(np.median(values)),
        deviation,
        deviation**2,
        (mean - Z95 * error, mean + Z95 * error),
        (mean - wide, mean + wide),
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """Standardised values of one response, and of what: ``repeats`` or ``model errors``."""

    response: str
    kind: str
    values: tuple[float, ...]

    def q_q(self) -> list[tuple[float, float]]:
        """Return (standard normal quantile, value) of each, in order."""
        ordered = np.sort(np.array(self.values))
        places = stats.norm.ppf((np.arange(len(ordered)) + 0.5) / len(ordered))
        return list(zip(places.tolist(), ordered.tolist(), strict=True))

    @property
    def beyond(self) -> int:
        """How many outliers are not drawn: a few would press all others into one bin."""
        return sum(not self.shows(v) for v in self.values)

    def shows(self, value: float) -> bool:
        """Tell whether a value is no outlier."""
        low, high = self._ends
        return low <= value <= high

    @property
    def _ends(self) -> tuple[float, float]:
        return robust_ends(self.values)

    def histogram(self) -> tuple[list[float], list[float]]:
        """Return the edges of the bins and their densities, outliers left out."""
        density, edges = np.histogram(self.values, bins="auto", range=self._ends, density=True)
        return edges.tolist(), density.tolist()

    def estimated(self, points: int = 81) -> list[tuple[float, float]]:
        """Return the density by a Gaussian kernel (Scott's bandwidth), outliers left out."""
        values = np.array([v for v in self.values if self.shows(v)])
        reach = max(3.0, 1.1 * float(np.abs(values).max()))
        x = np.linspace(-reach, reach, points)
        return list(zip(x.tolist(), stats.gaussian_kde(values)(x).tolist(), strict=True))

    def normal(self, points: int = 81) -> list[tuple[float, float]]:
        """Return the standard normal density over the same range."""
        x = np.array([p for p, _ in self.estimated(points)])
        return list(zip(x.tolist(), stats.norm.pdf(x).tolist(), strict=True))


def samples(runs: Runs, errors: Mapping[str, Sequence[float]]) -> list[Sample]:
    """Return a sample of each response: of its repeats, else of the model's log ``errors``.

    Raises InputError where neither has three different values.
    """
    drawn = []
    for name, response in (("time", runs.time), ("energy", runs.energy)):
        if response is None:
            continue
        residuals = np.array(response.residuals) / response.sigma
        off = np.array(errors.get(name, ()))
        if _spread(residuals):
            drawn.append(Sample(name, "repeats", tuple(residuals.tolist())))
        elif _spread(off):
            low, high = robust_ends(off.tolist())
            usual = off[(low <= off) & (off <= high)]  # disturbed runs are no unit of the others
            off = (off - usual.mean()) / usual.std(ddof=1)
            drawn.append(Sample(name, "model errors", tuple(off.tolist())))
    if not drawn:
        raise InputError(
            "there is no distribution to show: no configuration was run three times, and no run is "
            "left that the model was not trained on",
            hint="repeat runs: advisor train --repeat-baseline 4; with a whole grid, advisor "
            "evaluate GRID.csv --samples 12 leaves some out",
        )
    return drawn


def _spread(values: Any) -> bool:
    return len(values) >= FEWEST and float(np.ptp(values)) > 0


def correlations(observations: Sequence[Observation]) -> pd.DataFrame:
    """Return Spearman's rho of every predictor and response that varies, as a square table.

    Repeats of a configuration count by their mean; power is energy over time. Raises InputError
    for fewer than three configurations.
    """
    rows = [
        {
            "nodes": o.configuration.nodes,
            "ranks": o.configuration.ranks_per_node,
            "cores": o.configuration.threads_per_node,
            "frequency": o.configuration.freq_khz,
            "time": o.time_s,
            "energy": o.energy_j,
            "power": None if o.energy_j is None else o.energy_j / o.time_s,
            "rate": o.fom,
        }
        for o in observations
    ]
    axes = ["nodes", "ranks", "cores", "frequency"]
    means = pd.DataFrame(rows).astype(float).groupby(axes, as_index=False).mean()
    if len(means) < FEWEST:
        raise InputError(
            f"too few configurations for a correlation: {len(means)}", hint=f"at least {FEWEST}"
        )
    means = means.loc[:, means.nunique() > 1]
    return means.corr(method="spearman")


@dataclass(frozen=True, slots=True)
class FrontClusters:
    """The front's options, joined step by step (Ward), and the cluster of each.

    ``merges`` are (node, node, height) as scipy's linkage; ``order`` is that of a dendrogram's
    leaves; ``clusters`` holds a name of ``CLUSTERS`` for each option.
    """

    options: tuple[Option, ...]
    merges: tuple[tuple[int, int, float], ...]
    order: tuple[int, ...]
    clusters: tuple[str, ...]


def front_clusters(options: Sequence[Option]) -> FrontClusters:
    """Cluster the options on the front by ln time and ln energy, each standardised.

    Raises InputError where fewer than three options with an energy are on it.
    """
    front = sorted(
        (o for o in options if o.on_front and o.energy_j == o.energy_j), key=lambda o: -o.time_s
    )
    if len(front) < FEWEST:
        raise InputError(
            f"too few options with an energy are on the front for clusters: {len(front)}",
            hint=f"at least {FEWEST}; compare so few one by one, or measure more core counts and "
            "frequency caps, with their energy",
        )
    x = np.log([[o.time_s, o.energy_j] for o in front])
    spread = x.std(axis=0)
    joined = linkage((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0), method="ward")
    labels = fcluster(joined, len(CLUSTERS), criterion="maxclust")
    slowest_first = list(dict.fromkeys(labels.tolist()))
    names = dict(zip(slowest_first, _names(len(slowest_first)), strict=True))
    return FrontClusters(
        tuple(front),
        tuple((int(a), int(b), float(height)) for a, b, height, _ in joined),
        tuple(int(i) for i in leaves_list(joined)),
        tuple(names[label] for label in labels.tolist()),
    )


def _names(count: int) -> tuple[str, ...]:
    return CLUSTERS if count == len(CLUSTERS) else (CLUSTERS[0], CLUSTERS[-1])[:count]
