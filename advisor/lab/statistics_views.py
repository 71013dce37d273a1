"""Views of statistics: what ``--view`` shows of runs and of the model fitted to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.words import describe
from advisor.errors import InputError
from advisor.lab.statistics import correlations, front_clusters, samples, summaries
from advisor.models.base import matrix
from advisor.models.neural import Neural
from advisor.models.registry import create
from advisor.models.runs import gather
from advisor.plotting.panels import Line, Lines, Panels
from advisor.plotting.statistics import (
    HistogramPanel,
    IntervalPanel,
    MatrixPanel,
    ScatterPanel,
    TreePanel,
)

_MOST_ROWS = 24
"""Configurations that a picture of repeats has room for: the least steady are shown."""


@dataclass(frozen=True, slots=True)
class StatisticsView:
    """A view as a picture, and as plain JSON."""

    picture: Panels
    data: Any


def statistics_view(
    view: str,
    title: str,
    observations: Sequence[Observation],
    options: Sequence[Option],
    trained: Sequence[Observation],
    model_options: Mapping[str, str] | None = None,
) -> StatisticsView:
    """Return one view: qq, histogram, spearman, clusters, loss or repeats.

    ``options`` are the model's for all configurations of ``observations``, ``trained`` the runs it
    was fitted to. ``loss`` trains the neural model on these, with ``model_options``. Raises
    InputError where there is too little to show.
    """
    if view in ("qq", "histogram"):
        return _distribution(view, title, observations, options, trained)
    if view == "spearman":
        return _spearman(title, observations)
    if view == "clusters":
        return _clusters(title, options)
    if view == "loss":
        return _loss(title, trained, model_options or {})
    return _repeats(title, observations)


def _errors(
    observations: Sequence[Observation],
    options: Sequence[Option],
    trained: Sequence[Observation],
) -> dict[str, list[float]]:
    """Return ln(measured / predicted) by response, at configurations not trained on."""
    known = {o.configuration for o in trained}
    by_configuration = {o.configuration: o for o in options}
    off: dict[str, list[float]] = {"time": [], "energy": []}
    for run in observations:
        option = by_configuration.get(run.configuration)
        if option is None or run.configuration in known:
            continue
        off["time"].append(math.log(run.time_s / option.time_s))
        if run.energy_j and option.energy_j > 0:
            off["energy"].append(math.log(run.energy_j / option.energy_j))
    return off


def _distribution(
    view: str,
    title: str,
    observations: Sequence[Observation],
    options: Sequence[Option],
    trained: Sequence[Observation],
) -> StatisticsView:
    drawn = samples(gather(observations), _errors(observations, options, trained))
    panels: list[ScatterPanel | HistogramPanel] = []
    data = []
    for sample in drawn:
        label = f"{sample.response}, {sample.kind}, standardised"
        edges, density = sample.histogram()
        pairs = sample.q_q()
        data.append({"response": sample.response, "kind": sample.kind, "q_q": pairs,
                     "edges": edges, "density": density})  # fmt: skip
        if view == "histogram":
            curves = {"estimated": sample.estimated(), "normal": sample.normal()}
            panels.append(HistogramPanel(label, edges, density, curves))
            continue
        low, high = pairs[0][0], pairs[-1][0]
        panels.append(
            ScatterPanel(
                "standard normal quantile", label, {sample.kind: pairs},
                ((low, low), (high, high)), "normal",
            )
        )  # fmt: skip
    return StatisticsView(Panels(title, tuple(panels)), data)


def _spearman(title: str, observations: Sequence[Observation]) -> StatisticsView:
    rho = correlations(observations)
    names = [str(n) for n in rho.columns]
    values = rho.to_numpy().tolist()
    data = [
        {"of": a, "with": b, "rho": None if math.isnan(values[i][j]) else values[i][j]}
        for i, a in enumerate(names)
        for j, b in enumerate(names[:i])
    ]
    panel = MatrixPanel("Spearman's rho", names, names, values)
    return StatisticsView(Panels(title, (panel,)), data)


def _clusters(title: str, options: Sequence[Option]) -> StatisticsView:
    clusters = front_clusters(options)
    leaves = [describe(o.configuration) for o in clusters.options]
    data = [
        {"configuration": o.configuration.to_dict(), "cluster": cluster, "time_s": o.time_s,
         "energy_j": o.energy_j}
        for o, cluster in zip(clusters.options, clusters.clusters, strict=True)
    ]  # fmt: skip
    tree = TreePanel(
        "distance of ln time and ln energy, standardised (Ward)", leaves, clusters.merges,
        clusters.order, clusters.clusters,
    )  # fmt: skip
    return StatisticsView(Panels(title, (tree,)), data)


def _loss(
    title: str, trained: Sequence[Observation], model_options: Mapping[str, str]
) -> StatisticsView:
    runs = gather(trained)
    panels, data = [], []
    for name, response in (("time", runs.time), ("energy", runs.energy)):
        if response is None:
            continue
        x = matrix(list(response.log_mean))
        y = np.exp(list(response.log_mean.values()))
        network = create(Neural.NAME, bounds=None, **model_options)
        curve = network.losses(x, y)
        data.append({"response": name, "losses": curve})
        steps, losses = [float(s) for s, _ in curve], [v for _, v in curve]
        line = Line(name, steps, losses, losses, losses)
        panels.append(Lines("training steps", f"loss of {name}", (line,), logarithmic=True))
    return StatisticsView(Panels(title, tuple(panels)), data)


def _repeats(title: str, observations: Sequence[Observation]) -> StatisticsView:
    """Show the means' intervals in percent of the mean, the widest first."""
    repeated = summaries(observations)
    if not repeated:
        raise InputError(
            "no configuration was run twice: repeats have nothing to show",
            hint="a grid with repeated rows, or advisor train --repeat-baseline 4",
        )
    panels = []
    for name in ("time", "energy"):
        rows = [s for s in repeated if s.response == name]
        rows.sort(key=lambda s: s.deviation / s.arithmetic, reverse=True)
        shown = rows[:_MOST_ROWS]
        if not shown:
            continue
        kinds: dict[str, list[tuple[float, float, float] | None]] = {
            kind: [
                (0.0, *(100 * (end / s.arithmetic - 1) for end in getattr(s, kind))) for s in shown
            ]
            for kind in ("normal", "student")
        }  # fmt: skip
        left_out = f", the {_MOST_ROWS} widest of {len(rows)}" if len(rows) > len(shown) else ""
        panels.append(
            IntervalPanel(
                f"95 % interval of the mean {name}, % of it{left_out}",
                [f"{describe(s.configuration)}, {s.runs} runs" for s in shown],
                kinds,
            )
        )
    return StatisticsView(Panels(title, tuple(panels)), [s.to_dict() for s in repeated])
