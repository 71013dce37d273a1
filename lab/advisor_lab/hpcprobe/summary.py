"""Write HPCProbe's results summary: a YAML list of configurations with what was measured there.

Source: Endrei 2019, appendix A.1.5; the statistics are those of ``repeatCount`` in A.1.2.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from advisor.core import student
from advisor.core.configuration import Configuration
from advisor.drafts import write_whole
from advisor.schedulers.base import RunResult

_CONFIDENCE = 0.95
"""Probability that an interval in summary.yml holds."""
RUN_PARAMETERS = ("nodes", "nodePEs", "totalPEs", "threadCount", "cpuFrequency")
"""HPCProbe's parameters of one run, those that differ between the runs of a sweep among them."""


@dataclass(frozen=True, slots=True)
class SummaryRun:
    """One good run: where, its time and energy, and its counters."""

    configuration: Configuration
    result: RunResult
    counters: Mapping[str, float | str]

    def objectives(self) -> dict[str, float | str]:
        """Return what was measured by HPCProbe's names: s, J. Estimated energy has its own."""
        result = self.result
        objectives: dict[str, float | str] = {} if result.rate is None else {"appRate": result.rate}
        if result.time_s is not None:
            objectives["totalTime"] = result.time_s
        if result.energy_j is not None:
            measured = result.energy_quality == "measured"
            objectives["totalEnergy" if measured else "estimatedEnergy"] = result.energy_j
        return {**objectives, **self.counters}


def sample_statistics(values: Sequence[float]) -> dict[str, float]:
    """Return the statistics of repeats; ``confidence`` is half of Student's 95 % interval.

    Means that need positive values are NaN where one is not.
    """
    positive = all(v > 0 for v in values)
    deviation = statistics.stdev(values)
    quantile = student.quantile(len(values) - 1, (1 + _CONFIDENCE) / 2)
    return {
        "samples": len(values),
        "mean": statistics.fmean(values),
        "geometricMean": statistics.geometric_mean(values) if positive else math.nan,
        "harmonicMean": statistics.harmonic_mean(values) if positive else math.nan,
        "maximum": max(values),
        "median": statistics.median(values),
        "minimum": min(values),
        "deviation": deviation,
        "confidence": quantile * deviation / math.sqrt(len(values)),
        "variance": deviation**2,
    }


def write_summary(path: Path, runs: Sequence[SummaryRun], parameters: Mapping[str, object]) -> None:
    """Write the summary of runs, whole or not at all; repeats are one entry with ``stats``."""
    by_place: dict[Configuration, list[SummaryRun]] = {}
    for run in runs:
        by_place.setdefault(run.configuration, []).append(run)
    entries = [_entry(c, repeats, parameters) for c, repeats in by_place.items()]
    write_whole(path, yaml.safe_dump(entries, sort_keys=True) if entries else "")


def run_parameters(c: Configuration) -> dict[str, int]:
    """Return the values of ``RUN_PARAMETERS`` of a run's configuration."""
    ranks = c.nodes * c.ranks_per_node
    values = (c.nodes, c.ranks_per_node, ranks, c.cores, c.freq_khz)
    return dict(zip(RUN_PARAMETERS, values, strict=True))


def _entry(
    c: Configuration, runs: Sequence[SummaryRun], parameters: Mapping[str, object]
) -> dict[str, object]:
    measured = [run.objectives() for run in runs]
    objectives: dict[str, object] = {}
    stats: dict[str, object] = {}
    for name in dict.fromkeys(key for objectives_of_run in measured for key in objectives_of_run):
        values = [
            objectives_of_run[name] for objectives_of_run in measured if name in objectives_of_run
        ]
        numbers = [v for v in values if not isinstance(v, str)]
        if len(numbers) < len(values) or not numbers:
            objectives[name] = values[-1]
            continue
        objectives[name] = statistics.median(numbers)
        if len(numbers) > 1:
            stats[name] = sample_statistics(numbers)
    entry: dict[str, object] = {
        "objectives": objectives,
        "parameters": {**parameters, **run_parameters(c)},
    }
    if stats:
        entry["stats"] = stats
    return entry
