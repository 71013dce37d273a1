"""Runs of one family: the same line but for its numbers, at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from advisor.core import student
from advisor.core.axes import Extra, extra_words
from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.observation import Observation
from advisor.core.parameters import parameters_of
from advisor.core.units import format_count
from advisor.errors import InputError
from advisor.models.ended_runs import without_refuted
from advisor.models.failed_fast import without_failed_fast
from advisor.models.space import wanted
from advisor.scaling.base import FEWEST_SIZES, NODES, SizedPlaces, SizedRuns
from advisor.scaling.registry import AUTO, TriedForecast, too_few, tried_forecast

_Size = TypeVar("_Size")

_CHANCE = 0.01
"""A parameter that so large an effect would have by chance this often has none."""
_MOST_OPTIONS = 2000
"""Larger grids offer the measured configurations only."""


@dataclass(frozen=True, slots=True)
class SizedFamily:
    """Runs with their sizes; every run has all of ``parameters``."""

    name: str
    parameters: tuple[str, ...]
    runs: tuple[tuple[Mapping[str, float], Observation], ...]
    left_out: tuple[str, ...] = ()
    """Which runs are not among them, and why."""
    further: Extra = ()
    """The highest value of each further axis, which all of its runs had that state one."""

    def values(self, axis: str) -> list[float]:
        """Return the measured values of a parameter, or of ``nodes``, ascending."""
        if axis == NODES:
            return sorted({float(o.configuration.nodes) for _, o in self.runs})
        return sorted({size[axis] for size, _ in self.runs})

    def compares(self, c: Configuration) -> bool:
        """Tell whether a configuration is at the highest further axes; no law knows others."""
        return _is_at(self.further, c)

    def only(self, parameters: Sequence[str]) -> SizedFamily:
        """Return the family with some of its parameters."""
        return replace(self, parameters=tuple(parameters))


@dataclass(frozen=True, slots=True)
class SizePrediction:
    """What a family takes at a size: ``tried``'s rows are ``configurations``, the baseline first.

    ``beyond`` says how many times the largest measured value is exceeded, by parameter.
    """

    family: SizedFamily
    at: Mapping[str, float]
    beyond: Mapping[str, float]
    configurations: tuple[Configuration, ...]
    tried: TriedForecast
    notes: tuple[str, ...]
    laws: CountLaws | None = None
    """What the application's profiles say of such sizes."""


def families(
    runs: Sequence[tuple[str, Observation]], columns: Sequence[str] = ()
) -> dict[str, SizedFamily]:
    """Return the families of (workload, run) pairs by name.

    A run's parameters are the numbers of its workload's line, and its ``columns`` (extra columns
    of an import). Runs that lack a column are left out. Raises InputError where one is no number
    above 0.
    """
    by_family: dict[str, list[tuple[dict[str, float], Observation]]] = {}
    for workload, run in runs:
        line = parameters_of(workload)
        size = line.size
        for column in columns:
            if column in run.extra:
                size[column] = _number(column, run.extra[column])
        if all(c in size for c in columns if c != NODES):
            by_family.setdefault(line.family, []).append((size, run))
    return {name: _family(name, members) for name, members in by_family.items()}


def _is_at(further: Extra, c: Configuration) -> bool:
    return c.extra in ((), further)


def at_highest_axes(
    members: Sequence[tuple[_Size, Observation]],
) -> tuple[list[tuple[_Size, Observation]], Extra, list[str]]:
    """Return the runs at the highest further axes, these, and a note if others are left out.

    Sizes are compared where nothing else differs; jobs that state no GPU clock have the highest.
    """
    further = max((run.configuration.extra for _, run in members), default=())
    comparable_runs = [m for m in members if _is_at(further, m[1].configuration)]
    if len(comparable_runs) == len(members):
        return comparable_runs, further, []
    below = format_count(len(members) - len(comparable_runs), "run")
    note = f"{below} with less than {extra_words(further)} left out: nothing but sizes may differ"
    return comparable_runs, further, [note]


def _family(name: str, members: Sequence[tuple[dict[str, float], Observation]]) -> SizedFamily:
    """Return a family without the runs that no model learns from, of each size for itself."""
    members, further, left_out = at_highest_axes(members)
    parameters = tuple(p for p in members[0][0] if all(p in s for s, _ in members))
    sizes: dict[tuple[float, ...], list[int]] = {}
    for i, (size, _) in enumerate(members):
        sizes.setdefault(tuple(size[p] for p in parameters), []).append(i)
    used: set[int] = set()
    for rows in sizes.values():
        runs = without_refuted([members[i][1] for i in rows], left_out)
        used |= {id(run) for run in without_failed_fast(runs, left_out)}
    runs_used = tuple(m for m in members if id(m[1]) in used)
    return SizedFamily(name, parameters, runs_used, tuple(left_out), further)


def predict_size(
    family: SizedFamily,
    point: Mapping[str, float],
    model: str = AUTO,
    laws: CountLaws | None = None,
) -> SizePrediction:
    """Predict every configuration of a family at a size.

    ``point`` names parameters, and ``nodes`` if other than the most measured; ``laws`` are those of
    the application's profiles. Raises InputError for an unknown name, a parameter left out, and an
    axis asked beyond what fewer than three values show.
    """
    unknown = [name for name in point if name not in (*family.parameters, NODES)]
    if unknown:
        names = ", ".join([*family.parameters, NODES])
        raise InputError(
            f"{unknown[0]} is not a parameter of {family.name!r}", hint=f"it has {names}"
        )
    notes: list[str] = list(family.left_out)
    effective = family.only(effective_parameters(family, point, notes))
    missing_parameters = [p for p in effective.parameters if p not in point]
    if missing_parameters:
        hint = f"--at {','.join(f'{p}={effective.values(p)[-1]:g}' for p in missing_parameters)}"
        raise InputError(f"{missing_parameters[0]} is not given, and time depends on it", hint=hint)
    nodes = point.get(NODES, effective.values(NODES)[-1])
    if nodes != int(nodes):
        raise InputError(f"nodes is {nodes:g}", hint="a whole number of nodes")
    axis_values = {**{p: point[p] for p in effective.parameters}, NODES: nodes}
    beyond = _extrapolated_axes(effective, axis_values, notes)
    configurations = _configurations(effective, int(nodes))
    size = {p: axis_values[p] for p in effective.parameters}
    usable = usable_laws(family, effective, laws, notes)
    tried = forecast_family(effective, [(size, c) for c in configurations], usable, model)
    notes += tried.notes
    return SizePrediction(
        effective, axis_values, beyond, configurations, tried, tuple(notes), usable
    )


def usable_laws(
    family: SizedFamily, effective: SizedFamily, laws: CountLaws | None, notes: list[str]
) -> CountLaws | None:
    """Return the laws of profiles where a family's sizes state their parameters; else say why not.

    What the family has at one value only is fixed in them.
    """
    if laws is None:
        return None
    fixed = {p: family.values(p)[0] for p in family.parameters if len(family.values(p)) == 1}
    laws = replace(laws, fixed=fixed)
    if missing_parameter := laws.missing(effective.parameters):
        notes.append(
            f"the profiles' parameter {missing_parameter} is not given, so they are not used"
        )
        return None
    return laws


def forecast_family(
    family: SizedFamily,
    cells: Sequence[tuple[Mapping[str, float], Configuration]],
    laws: CountLaws | None,
    model: str = AUTO,
) -> TriedForecast:
    """Predict sizes with configurations from a family's runs.

    ``laws`` of profiles help where they know every run and every place wanted.
    """
    names = family.parameters
    rows = [(s, o.configuration, o.time_s, o.energy_j) for s, o in family.runs]
    runs, places = SizedRuns.of(names, rows, laws=laws), SizedPlaces.of(names, cells, laws)
    if not (runs.places.counted and places.counted):
        runs = replace(runs, places=replace(runs.places, counted={}))
        places = replace(places, counted={})
    return tried_forecast(runs, places, model)


def _number(column: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{column} is {value!r} in a run", hint="a parameter is a number above 0")
    return float(value)


def _extrapolated_axes(
    family: SizedFamily, axis_values: Mapping[str, float], notes: list[str]
) -> dict[str, float]:
    beyond = {}
    for axis, value in axis_values.items():
        values = family.values(axis)
        if values[0] <= value <= values[-1] and (axis != NODES or value in values):
            continue
        if len(values) < FEWEST_SIZES:
            raise InputError(
                too_few(axis, len(values)),
                hint=f"measure other sizes too, not only {', '.join(f'{v:g}' for v in values)}",
            )
        if value > values[-1]:
            beyond[axis] = value / values[-1]
        elif value < values[0]:
            notes.append(f"{axis} {value:g} is smaller than any measured ({values[0]:g})")
    return beyond


def _configurations(family: SizedFamily, nodes: int) -> tuple[Configuration, ...]:
    measured = {o.configuration for _, o in family.runs}
    space = wanted([o for _, o in family.runs], None, enough=1).configurations
    cells = {
        Configuration(c.node_type, nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz)
        for c in (space if len(space) <= _MOST_OPTIONS else measured)
    }
    order = sorted(cells, key=lambda c: (c.threads_per_node, c.ranks_per_node, c.freq_khz))
    return tuple(reversed(order))


def effective_parameters(
    family: SizedFamily, point: Mapping[str, float], notes: list[str]
) -> list[str]:
    """Return the parameters that vary and have an effect; say which have none.

    An effect is a slope of log time that would hardly be chance (Student's t) beside those of the
    other parameters, cores, frequency and nodes.
    """
    varying = [p for p in family.parameters if len(family.values(p)) > 1]
    fixed = [p for p in family.parameters if p not in varying and p in point]
    for p in fixed:
        if point[p] != family.values(p)[0]:
            raise InputError(
                too_few(p, 1),
                hint=f"measure other sizes too, not only {family.values(p)[0]:g}",
            )
    if len(varying) < 2:
        return varying
    places = SizedPlaces.of(varying, [(s, o.configuration) for s, o in family.runs])
    cores, freq = np.log(places.cores), np.log(np.maximum(places.freq_khz, 1.0))
    x = np.column_stack([np.log(places.sizes), cores, cores**2, freq, np.log(places.nodes)])
    x = np.column_stack([np.ones(len(x)), x[:, np.ptp(x, axis=0) > 0]])
    freedom = len(x) - int(np.linalg.matrix_rank(x))
    if freedom < 1:
        return varying
    y = np.log([o.time_s for _, o in family.runs])
    inverse = np.linalg.pinv(x.T @ x)
    slopes = inverse @ (x.T @ y)
    variance = float(((y - x @ slopes) ** 2).sum()) / freedom
    errors = np.sqrt(np.maximum(variance * np.diag(inverse), 1e-300))
    ratios = np.abs(slopes / errors)[1 : 1 + len(varying)]
    chance = [2 * student.beyond(freedom, ratio) for ratio in ratios.tolist()]
    without_effect = [p for p, c in zip(varying, chance, strict=True) if c > _CHANCE]
    if len(without_effect) == len(varying):
        return [p for p in varying if p in point] or varying
    notes += [f"{p} has no effect on time and does not count" for p in without_effect]
    return [p for p in varying if p not in without_effect]
