"""Views of statistics: what ``--view`` shows of runs and of the model fitted to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from advisor.core.objectives import clusters as goal_clusters
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.units import format_count
from advisor.core.words import describe
from advisor.errors import InputError
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
from advisor.views.statistics import StatisticsTable, StatisticsView
from advisor_lab.evaluation.statistics import (
    RepeatSummary,
    Sample,
    correlations,
    front_clusters,
    samples,
    summaries,
)

_MOST_ROWS = 24
"""Configurations that a picture of repeats has room for: the least steady are shown."""
_QUANTILE = "standard normal quantile"
_INTERVALS: Mapping[str, Callable[[RepeatSummary], tuple[float, float]]] = {
    "normal": lambda s: s.normal,
    "Student's t": lambda s: s.student,
}
"""Intervals of a mean by the name that pictures give them."""
_MEANS = (
    "configuration",
    "runs",
    "mean",
    "geometric",
    "harmonic",
    "median",
    "deviation",
    "variance",
)


def statistics_view(
    view: str,
    runs_label: str,
    model: str,
    observations: Sequence[Observation],
    options: Sequence[Option],
    trained: Sequence[Observation],
    model_options: Mapping[str, str] | None = None,
) -> StatisticsView:
    """Return one view: qq, histogram, spearman, clusters, loss or repeats.

    ``runs_label`` names the runs. ``options`` are the model's for all configurations of
    ``observations``, ``trained`` the runs it was fitted to. ``loss`` trains the neural model on
    these, with ``model_options``. Raises InputError where there is too little to show.
    """
    all_runs = f"{runs_label}, {format_count(len(observations), 'run')}"
    fitted = f"{runs_label}, {model}, {format_count(len(trained), 'run')}"
    if view in ("qq", "histogram"):
        sampled = samples(gather(observations), _errors(observations, options, trained))
        repeated = all(s.kind == "repeats" for s in sampled)
        return _distribution(view, all_runs if repeated else fitted, sampled)
    if view == "spearman":
        return _spearman(all_runs, observations)
    if view == "clusters":
        return _clusters(fitted, options)
    if view == "loss":
        title = f"{runs_label}, {Neural.NAME}, {format_count(len(trained), 'run')}"
        return _loss(title, trained, model_options or {})
    return _repeats(all_runs, observations)


def _errors(
    observations: Sequence[Observation],
    options: Sequence[Option],
    trained: Sequence[Observation],
) -> dict[str, list[float]]:
    """Return ln(measured / predicted) by response, at configurations not trained on."""
    trained_configurations = {o.configuration for o in trained}
    by_configuration = {o.configuration: o for o in options}
    off: dict[str, list[float]] = {"time": [], "energy": []}
    for run in observations:
        option = by_configuration.get(run.configuration)
        if option is None or run.configuration in trained_configurations:
            continue
        off["time"].append(math.log(run.time_s / option.time_s))
        if run.energy_j and option.energy_j > 0:
            off["energy"].append(math.log(run.energy_j / option.energy_j))
    return off


def _distribution(view: str, title: str, sampled: Sequence[Sample]) -> StatisticsView:
    panels: list[ScatterPanel | HistogramPanel] = []
    data, tables = [], []
    for sample in sampled:
        label = f"{sample.response}, {sample.kind}, standardised"
        beyond = f", {format_count(sample.beyond, 'outlier')} not shown" if sample.beyond else ""
        edges, density = sample.histogram()
        pairs = sample.q_q()
        data.append(
            {
                "response": sample.response,
                "kind": sample.kind,
                "q_q": pairs,
                "edges": edges,
                "density": density,
            }
        )
        rows = [(f"{a:.4g}", f"{b:.4g}") for a, b in pairs]
        if view == "histogram":
            rows = [
                (f"{a:.4g} to {b:.4g}", f"{d:.4g}")
                for (a, b), d in zip(pairwise(edges), density, strict=True)
            ]
        headers = ("from and to", "density") if view == "histogram" else (_QUANTILE, "value")
        tables.append(StatisticsTable(label, headers, tuple(rows)))
        if view == "histogram":
            curves = {"estimated": sample.estimated(), "normal": sample.normal()}
            panels.append(HistogramPanel(label + beyond, edges, density, curves))
            continue
        pairs = [p for p in pairs if sample.shows(p[1])]
        low, high = pairs[0][0], pairs[-1][0]
        panels.append(
            ScatterPanel(
                _QUANTILE,
                label + beyond,
                {sample.kind: pairs},
                ((low, low), (high, high)),
                "normal",
            )
        )
    return StatisticsView(Panels(title, tuple(panels)), data, tuple(tables))


def _spearman(title: str, observations: Sequence[Observation]) -> StatisticsView:
    rho = correlations(observations)
    names = [str(n) for n in rho.columns]
    values = rho.to_numpy().tolist()
    data: list[dict[str, Any]] = [
        {"of": a, "with": b, "rho": None if math.isnan(values[i][j]) else values[i][j]}
        for i, a in enumerate(names)
        for j, b in enumerate(names[:i])
    ]
    panel = MatrixPanel("Spearman's rho", names, names, values)
    strongest = sorted(data, key=lambda d: -abs(d["rho"] or 0.0))
    rows = [
        (d["of"], d["with"], "-" if d["rho"] is None else f"{d['rho']:+.2f}") for d in strongest
    ]
    table = StatisticsTable(
        "Spearman's rho, the strongest first",
        ("of", "with", "rho"),
        tuple(rows),
        in_text=_MOST_ROWS,
    )
    return StatisticsView(Panels(title, (panel,)), data, (table,))


def _clusters(title: str, options: Sequence[Option]) -> StatisticsView:
    clusters = front_clusters(options)
    leaves = [describe(o.configuration) for o in clusters.options]
    data = [
        {
            "configuration": o.configuration.to_dict(),
            "cluster": cluster,
            "time_s": o.time_s,
            "energy_j": o.energy_j,
        }
        for o, cluster in zip(clusters.options, clusters.clusters, strict=True)
    ]
    tree = TreePanel(
        "distance of ln time and ln energy, standardised (Ward)",
        leaves,
        clusters.merges,
        clusters.order,
        clusters.clusters,
    )
    # What advisor options calls an option is another question than which ones are alike.
    nearest = goal_clusters(clusters.options)
    rows = [
        (name, cluster, f"{o.time_s:.5g}", f"{o.energy_j:.5g}", nearest.get(i, ""))
        for i, (name, o, cluster) in enumerate(
            zip(leaves, clusters.options, clusters.clusters, strict=True)
        )
    ]
    table = StatisticsTable(
        "options on the front",
        ("option", "cluster", "time, s", "energy, J", "nearest goal"),
        tuple(rows),
        in_text=_MOST_ROWS,
    )
    return StatisticsView(Panels(title, (tree,)), data, (table,))


def _loss(
    title: str, trained: Sequence[Observation], model_options: Mapping[str, str]
) -> StatisticsView:
    runs = gather(trained)
    panels, data, tables = [], [], []
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
        label = f"loss of {name} (half the mean squared error)"
        panels.append(Lines("training steps", label, (line,), logarithmic=True))
        rows = tuple((s, f"{loss:.4g}") for s, loss in curve)
        tables.append(StatisticsTable(f"loss of {name}", ("training steps", "loss"), rows))
    return StatisticsView(Panels(title, tuple(panels)), data, tuple(tables))


def _repeats(title: str, observations: Sequence[Observation]) -> StatisticsView:
    """Show the means' intervals in percent of the mean, the widest first."""
    repeated = summaries(observations)
    if not repeated:
        raise InputError(
            "no configuration was run twice: repeats have nothing to show",
            hint="a grid with repeated rows, or advisor train --repeat-baseline 4",
        )
    panels: list[IntervalPanel] = []
    tables: list[StatisticsTable] = []
    for name, unit in (("time", "s"), ("energy", "J")):
        rows = [s for s in repeated if s.response == name]
        rows.sort(key=lambda s: s.deviation / s.arithmetic, reverse=True)
        shown = rows[:_MOST_ROWS]
        if not shown:
            continue
        kinds: dict[str, list[tuple[float, float, float] | None]] = {
            kind: [_in_percent(s.arithmetic, *ends(s)) for s in shown]
            for kind, ends in _INTERVALS.items()
        }
        left_out = f", the {_MOST_ROWS} widest of {len(rows)}" if len(rows) > len(shown) else ""
        panels.append(
            IntervalPanel(
                f"95 % interval of the mean {name}, % of it{left_out}",
                [f"{describe(s.configuration)}, {s.runs} runs" for s in shown],
                kinds,
            )
        )
        tables += _tables(f"{name}, {unit}", rows)
    data = [s.to_dict() for s in repeated]
    return StatisticsView(Panels(title, tuple(panels)), data, tuple(tables))


def _in_percent(mean: float, low: float, high: float) -> tuple[float, float, float]:
    return 0.0, 100 * (low / mean - 1), 100 * (high / mean - 1)


def _tables(runs_label: str, rows: Sequence[RepeatSummary]) -> Iterator[StatisticsTable]:
    """Yield a table of means and spread, and one of the intervals, which the picture shows too."""
    places = [(describe(s.configuration), s.runs) for s in rows]
    means = [
        (s.arithmetic, s.geometric, s.harmonic, s.median, s.deviation, s.variance) for s in rows
    ]
    yield StatisticsTable(
        f"repeats: {runs_label}",
        _MEANS,
        tuple((*p, *(f"{v:.5g}" for v in m)) for p, m in zip(places, means, strict=True)),
        _MOST_ROWS,
    )
    yield StatisticsTable(
        f"95 % intervals of the mean {runs_label}",
        ("configuration", "runs", *_INTERVALS),
        tuple(
            (*p, *(" to ".join(f"{end:.5g}" for end in ends(s)) for ends in _INTERVALS.values()))
            for p, s in zip(places, rows, strict=True)
        ),
    )
