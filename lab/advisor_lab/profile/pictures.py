"""Pictures of models and classes (sections 5.2 and 8): what is drawn, as panels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advisor.errors import InputError
from advisor.plotting.panels import Line, Lines, Panel, Panels, Surface
from advisor.plotting.statistics import ScatterPanel
from advisor.plotting.threads import GraphPanel, RadarPanel
from advisor_lab.profile.clusters import components_of, feature_names, feature_table
from advisor_lab.profile.groups import relative_sources
from advisor_lab.profile.metrics import MetricValue, total
from advisor_lab.profile.models import (
    ClassRuns,
    MetricModel,
    ThreadCounts,
    observed_and_predicted,
)
from advisor_lab.profile.runs import ProfiledRun, mean_of, scale_text
from advisor_lab.profile.study import ProfileStudy

_STEPS, _CELLS, _BEYOND = 60, 9, 2.0
"""Points of a curve, of each axis of a surface; how far beyond the runs both are drawn."""
_MOST_AXES, _MOST_RUNS = 8, 3
"""Axes of a radar chart; runs that one picture shows."""


def scatter(
    model: MetricModel,
    class_runs: ClassRuns,
    threads: ThreadCounts,
    *,
    logarithmic: bool,
    counts: bool,
) -> Panel:
    """Return predictions over observations of training and test runs, with the bisector."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for name, runs in (("train", class_runs.train), ("test", class_runs.test)):
        if runs:
            observed, predicted = observed_and_predicted(model, runs, threads)
            sizes = [_count(run, members) if counts else 1.0 for run, members in runs]
            groups[name] = [
                (_drawn(a, n, logarithmic), _drawn(b, n, logarithmic))
                for a, b, n in zip(observed, predicted, sizes, strict=True)
            ]
    values = [v for points in groups.values() for p in points for v in p]
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(high), 1e-300):  # one value: around it
        low, high = low - 0.1 * abs(low) - 1e-9, high + 0.1 * abs(high) + 1e-9
    what = f"{'log10 of ' if logarithmic else ''}{model.name}{' x LSys' if counts else ''}"
    return ScatterPanel(
        f"observed {what}", f"predicted {what}", groups, ((low, low), (high, high)), "equal"
    )


def along(
    model: MetricModel,
    class_runs: ClassRuns,
    threads: ThreadCounts,
    names: Sequence[str],
    fixed_parameters: Mapping[str, float],
    *,
    logarithmic: bool,
    counts: bool,
) -> Panel:
    """Return the trend along a parameter, or a map over two with the trained region.

    The other parameters are those given, else those of the largest run.
    """
    runs = [run for run, _ in class_runs.train]
    largest = max(runs, key=lambda r: [r.scale[n] for n in sorted(r.scale)])
    place = {**largest.scale, **fixed_parameters}
    axes = [_axis([r.scale[n] for r in runs], _STEPS if len(names) == 1 else _CELLS) for n in names]

    def at(values: Sequence[float]) -> float:
        scale = {**place, **dict(zip(names, values, strict=True))}
        columns = threads.values({n: np.array([v]) for n, v in scale.items()})
        size = 1.0
        if counts and model.divisor is not None:
            size = total(model.divisor.predict(columns)[0])
        return total(model.predict(columns)[0]) * size

    label = f"{model.name}{' x LSys' if counts else ''}"
    if len(names) == 2:
        inside = [[at((x, y)) for x in axes[0]] for y in axes[1]]
        region = tuple(
            (min(r.scale[n] for r in runs), max(r.scale[n] for r in runs)) for n in names
        )
        trained = frozenset(
            (i, j)
            for i, y in enumerate(axes[1])
            for j, x in enumerate(axes[0])
            if region[0][0] <= x <= region[0][1] and region[1][0] <= y <= region[1][1]
        )
        return Surface(
            names[0],
            names[1],
            label,
            axes[0],
            axes[1],
            inside,
            trained,
            None,
            "within the trained region",
            (region[0], region[1]),
        )
    predicted = [at((x,)) for x in axes[0]]
    lines = [Line("model", axes[0], predicted, predicted, predicted)]
    for kind, measured_runs in (("train", class_runs.train), ("test", class_runs.test)):
        points = sorted(
            (
                run.scale[names[0]],
                total(mean_of(run, m, model.name)) * (_count(run, m) if counts else 1),
            )
            for run, m in measured_runs
            if all(run.scale[n] == v for n, v in place.items() if n != names[0])
        )
        if points:
            x, y = [p[0] for p in points], [p[1] for p in points]
            lines.append(Line(kind, x, y, y, y, x))
    positive = all(v > 0 for line in lines for v in (*line.x, *line.y))
    return Lines(names[0], label, tuple(lines), logarithmic and positive)


def _axis(values: Sequence[float], count: int) -> list[float]:
    low, high = min(values), max(values) * _BEYOND
    if low > 0:
        return [float(v) for v in np.geomspace(low, high, count)]
    return [float(v) for v in np.linspace(low, high, count)]


def _count(run: ProfiledRun, members: Sequence[tuple[int, int]]) -> float:
    return total(mean_of(run, members, "LSys"))


def _drawn(value: MetricValue, size: float, logarithmic: bool) -> float:
    number = total(value) * size
    return math.log10(max(number, 1e-300)) if logarithmic else number


# -- classes ---------------------------------------------------------------------------------------


def class_picture(study: ProfileStudy, result: Mapping[str, Any], kind: str) -> Panels:
    """Return a picture of the classes: of the first runs, side by side. Raises InputError."""
    runs = list(study.trained)
    names = result["classes"]
    members = {
        d: [[(p, t) for p, t in threads] for threads in classes]
        for d, classes in result["members"].items()
    }
    title = f"{study.runs.application}: {len(names)} classes by {result['method']}"
    if kind == "components":
        return Panels(title, (_components(runs, names, members),))
    if kind == "graph":
        if not any(any(s.values()) for s in map(relative_sources, runs)):
            raise InputError("--picture graph: no thread receives peer-to-peer messages")
        return Panels(title, tuple(_graph(r, names, members[r.digest]) for r in runs[:_MOST_RUNS]))
    features = feature_names(runs)
    table = feature_table(runs[0], features)
    spread = table.std(axis=0) / np.maximum(np.abs(table).max(axis=0), 1e-300)
    order = sorted(range(len(features)), key=lambda i: (-spread[i], features[i]))[:_MOST_AXES]
    axes = sorted(features[i] for i in order)
    run = runs[0]
    table = feature_table(run, axes)
    scaled = table / np.maximum(np.abs(table).max(axis=0), 1e-300)
    row_of_thread = {thread: i for i, thread in enumerate(run.threads)}
    return Panels(
        f"{title}; {scale_text(run.scale)}",
        tuple(
            RadarPanel(
                f"class {name}",
                axes,
                [scaled[row_of_thread[t]].tolist() for t in threads],
                scaled[[row_of_thread[t] for t in threads]].mean(axis=0).tolist(),
            )
            for name, threads in zip(names, members[run.digest], strict=True)
        ),
    )


def _components(
    runs: Sequence[ProfiledRun], names: Sequence[str], members: Mapping[str, Any]
) -> Panel:
    components = components_of(runs)
    groups: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for run in runs:
        points = components.points(run)
        row_of_thread = {thread: i for i, thread in enumerate(run.threads)}
        for name, threads in zip(names, members[run.digest], strict=True):
            for thread in threads:
                row = points[row_of_thread[thread]]
                groups[name].append((float(row[0]), float(row[1]) if len(row) > 1 else 0.0))
    x = [p[0] for points in groups.values() for p in points]
    line = ((min(x), 0.0), (max(x), 0.0))
    return ScatterPanel("component 1", "component 2", groups, line, "mean of a run")


def _graph(run: ProfiledRun, names: Sequence[str], members: Sequence[Any]) -> Panel:
    """Return the processes of a run, in rows as square as can be, and who receives from whom."""
    total_processes = run.processes
    wide = next(
        (w for w in range(math.isqrt(total_processes), 1, -1) if total_processes % w == 0),
        math.ceil(math.sqrt(total_processes)),
    )
    columns = max(wide, total_processes // wide)
    places = [(float(p % columns), -float(p // columns)) for p in range(total_processes)]
    classes = ["-"] * total_processes
    for name, threads in zip(names, members, strict=True):
        for process, _ in threads:
            classes[process] = name
    edges = [
        (process, (process + source) % total_processes)
        for (process, _), sources in relative_sources(run).items()
        for source in sources
    ]
    return GraphPanel(scale_text(run.scale), places, classes, edges)
