"""Read measurements in Extra-P's formats: text, JSON (both forms) and JSON lines.

Source: Extra-P, "File format documentation" (docs/file-formats.md). A file has parameters, points,
metrics and regions; of one region the metrics of time (s) and energy (J) become runs, one for each
repetition. Parameters are axes of a configuration if the caller maps them, else the job's size.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.core.observation import Observation
from advisor.errors import InputError
from advisor.store.csvfile import RunsFile, Terms, read_bytes

AXES = {"nodes": 1, "ranks_per_node": 1, "threads_per_node": 1, "freq_khz": 0}
"""The axes of a configuration, and their values where nothing tells."""
_TIMES, _ENERGIES = ("time", "time_s", "runtime", "<default>", ""), ("energy", "energy_j")
_Point = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ExtrapChoice:
    """What of a file counts: region and metrics ("": the obvious ones), and what each axis is."""

    region: str = ""
    time: str = ""
    energy: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    """By axis a number, or the name of a parameter; a parameter of its own name goes before 1."""


@dataclass(slots=True)
class _Experiment:
    """A file's measurements: values by region, metric and point, in the parameters' order."""

    path: Path
    parameters: list[str] = field(default_factory=list)
    values: dict[tuple[str, str], dict[_Point, list[float]]] = field(default_factory=dict)

    def add(self, where: str, region: str, metric: str, point: object, values: object) -> None:
        coordinates = tuple(_number(self.path, where, v) for v in _listed(point))
        if len(coordinates) != len(self.parameters):
            raise _wrong(
                self.path,
                where,
                f"{len(coordinates)} coordinates, but there are {len(self.parameters)} parameters",
            )
        repeats = self.values.setdefault((region, metric), {}).setdefault(coordinates, [])
        repeats += [_number(self.path, where, v) for v in _listed(values)]


def read_runs(path: Path, terms: Terms, args: argparse.Namespace) -> RunsFile:
    """Read a file as the options of ``advisor import`` say. Raises InputError."""
    choice = ExtrapChoice(args.region, args.time_key, args.energy_key, args.configuration)
    return read_extrap(path, terms, choice)


def read_extrap(path: Path, terms: Terms, choice: ExtrapChoice) -> RunsFile:
    """Read a file of any of the formats; each run has its size's parameters as extra columns.

    Raises InputError that names the line or key, and what to choose where several could be meant.
    """
    content = read_bytes(path)
    try:
        # Some editors put a mark in front of UTF-8.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    experiment = _Experiment(path)
    if text.lstrip()[:1] == "{":
        _read_json(experiment, text)
    else:
        _read_text(experiment, text)
    if not experiment.values:
        raise InputError(f"{path}: there are no measurements in it")
    sizes, runs = _runs(experiment, terms, choice)
    return RunsFile(tuple(runs), sizes, hashlib.sha256(content).hexdigest())


def _read_text(experiment: _Experiment, text: str) -> None:
    path = experiment.path
    points: list[list[str]] = []
    region, metric, point_index, where = "", "", 0, ""

    def ended() -> None:
        if 0 < point_index < len(points):
            raise _wrong(
                path, where, f"{point_index} DATA before it, but there are {len(points)} POINTS"
            )

    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"line {number}"
        section, _, rest = line.strip().replace("\t", " ").partition(" ")
        rest = rest.strip()
        if section == "PARAMETER":
            experiment.parameters += rest.split()
        elif section == "POINTS":
            if not experiment.parameters:
                raise _wrong(path, where, "POINTS before any PARAMETER")
            groups = re.findall(r"\(([^()]*)\)", rest)
            points += [g.split() for g in groups] if groups else [[p] for p in rest.split()]
        elif section == "REGION":
            ended()
            region, point_index = rest, 0
        elif section == "METRIC":
            ended()
            metric, point_index = rest, 0
        elif section == "DATA":
            if point_index >= len(points):
                raise _wrong(path, where, f"more DATA than the {len(points)} POINTS")
            experiment.add(where, region, metric, points[point_index], rest.split())
            point_index += 1
        else:
            raise _wrong(path, where, f"{section[:40]!r} is not a section of Extra-P's text format")
    where = "its end"
    ended()


def _read_json(experiment: _Experiment, text: str) -> None:
    try:
        data = json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines):
            raise InputError(f"{experiment.path}: not JSON: {error}") from None
        _read_lines(experiment, text)
        return
    except RecursionError:
        raise InputError(f"{experiment.path}: not JSON: nested too deep") from None
    try:
        if "params" in data:
            _read_lines(experiment, text)
        elif "callpaths" in data:
            _read_referenced(experiment, data)
        else:
            _read_nested(experiment, data)
    except KeyError as error:
        raise InputError(f"{experiment.path}: key {error} is missing") from None
    except (TypeError, AttributeError):
        raise InputError(f"{experiment.path}: this is not Extra-P's JSON") from None


def _read_nested(experiment: _Experiment, data: Mapping[str, Any]) -> None:
    experiment.parameters = [str(p) for p in data["parameters"]]
    for region, metrics in data["measurements"].items():
        for metric, entries in metrics.items():
            for i, entry in enumerate(entries, 1):
                where = f"measurements, {region}, {metric}, {i}"
                experiment.add(where, region, metric, entry["point"], entry["values"])


def _read_referenced(experiment: _Experiment, data: Mapping[str, Any]) -> None:
    parameters = sorted(data["parameters"], key=lambda p: int(p["id"]))
    experiment.parameters = [str(p["name"]) for p in parameters]
    regions, metrics = (
        {m["id"]: str(m["name"]) for m in data[k]} for k in ("callpaths", "metrics")
    )
    points = {}
    for c in data["coordinates"]:
        pairs = {p["parameter_id"]: p["parameter_value"] for p in c["parameter_value_pairs"]}
        points[c["id"]] = [pairs[p["id"]] for p in parameters]
    for i, m in enumerate(data["measurements"], 1):
        where = f"measurements, {i}"
        try:
            place = regions[m["callpath_id"]], metrics[m["metric_id"]], points[m["coordinate_id"]]
        except KeyError as error:
            raise _wrong(experiment.path, where, f"id or key {error} is not there") from None
        experiment.add(where, *place, m["value"])


def _read_lines(experiment: _Experiment, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"line {number}"
        try:
            data = json.loads(line)
            params, value = data["params"], data["value"]
            experiment.parameters = experiment.parameters or list(params)
            point = [params[p] for p in experiment.parameters]
            region, metric = data.get("callpath", "<root>"), data.get("metric", "<default>")
        except (ValueError, RecursionError) as error:
            raise _wrong(experiment.path, where, f"not JSON: {error}") from None
        except KeyError as error:
            raise _wrong(experiment.path, where, f"key {error} is missing") from None
        except (TypeError, AttributeError):
            raise _wrong(experiment.path, where, "no measurement") from None
        experiment.add(where, str(region), str(metric), point, value)


def _runs(
    experiment: _Experiment, terms: Terms, choice: ExtrapChoice
) -> tuple[tuple[str, ...], list[Observation]]:
    axes = _axes(experiment, choice)
    region = _region(experiment, choice)
    metrics = [m for r, m in experiment.values if r == region]
    time = _metric(experiment, choice.time, metrics, _TIMES, "--time-key")
    energies = [m for m in metrics if m.lower() in _ENERGIES]
    energy = choice.energy or (energies[0] if energies else "")
    if energy and energy not in metrics:
        raise _unknown(experiment, "metric", energy, metrics, "--energy-key")
    used = set(axes.values())
    sizes = tuple(p for p in experiment.parameters if p not in used)
    return sizes, list(_of_metrics(experiment, terms, (region, time, energy), axes))


def _of_metrics(
    experiment: _Experiment, terms: Terms, names: tuple[str, str, str], axes: Mapping[str, Any]
) -> Iterator[Observation]:
    region, time, energy = names
    spent = experiment.values.get((region, energy), {}) if energy else {}
    for point, times in experiment.values[region, time].items():
        coordinates = dict(zip(experiment.parameters, point, strict=True))
        place = [coordinates[a] if isinstance(a, str) else a for a in axes.values()]
        if any(v != int(v) for v in place) or not 1 <= place[1] <= place[2] or place[0] < 1:
            raise InputError(
                f"{experiment.path}: {dict(zip(axes, place, strict=True))} is not a configuration",
                hint="say what each axis is: --configuration nodes=p,threads_per_node=24",
            )
        joules = spent.get(point, [])
        extra = {p: v for p, v in coordinates.items() if p not in axes.values()}
        for i, time_s in enumerate(times):
            energy_j = joules[i] if len(joules) == len(times) else None
            if time_s <= 0:
                raise InputError(f"{experiment.path}: {time or 'the metric'} is {time_s:g}")
            nodes, ranks, threads, freq = map(int, place)
            yield terms.run((nodes, ranks, threads, freq), time_s, energy_j or None, None, extra)


def _axes(experiment: _Experiment, choice: ExtrapChoice) -> dict[str, Any]:
    """Return by axis a number, or the name of the parameter that it is."""
    axes: dict[str, Any] = {}
    for axis, default in AXES.items():
        source = choice.axes.get(axis, axis if axis in experiment.parameters else str(default))
        if source in experiment.parameters:
            axes[axis] = source
            continue
        try:
            axes[axis] = float(source)
        except ValueError:
            raise _unknown(
                experiment, "parameter", source, experiment.parameters, "--configuration"
            ) from None
    if "threads_per_node" not in choice.axes and "threads_per_node" not in experiment.parameters:
        axes["threads_per_node"] = axes["ranks_per_node"]
    return axes


def _region(experiment: _Experiment, choice: ExtrapChoice) -> str:
    regions = list(dict.fromkeys(region for region, _ in experiment.values))
    if choice.region:
        if choice.region not in regions:
            raise _unknown(experiment, "region", choice.region, regions, "--region")
        return choice.region
    tops = [r for r in regions if "->" not in r]
    if len(regions) == 1 or len(tops) == 1:
        return (tops or regions)[0]
    raise InputError(
        f"{experiment.path}: it has several regions",
        hint=f"--region, one of: {', '.join(regions[:10])}",
    )


def _metric(
    experiment: _Experiment, metric: str, metrics: list[str], usual: tuple[str, ...], option: str
) -> str:
    if metric:
        if metric not in metrics:
            raise _unknown(experiment, "metric", metric, metrics, option)
        return metric
    matching = [m for m in metrics if m.lower() in usual] or (metrics if len(metrics) == 1 else [])
    if not matching:
        raise InputError(
            f"{experiment.path}: no metric is named time",
            hint=f"{option}, one of: {', '.join(metrics)}",
        )
    return matching[0]


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _number(path: Path, where: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise _wrong(path, where, f"{value!r} is not a number")
    return number


def _wrong(path: Path, where: str, why: str) -> InputError:
    return InputError(f"{path}, {where}: {why}; nothing was imported")


def _unknown(
    experiment: _Experiment, what: str, name: str, names: list[str], option: str
) -> InputError:
    return InputError(
        f"{experiment.path}: there is no {what} {name!r}",
        hint=f"{option}, one of: {', '.join(names)}",
    )
