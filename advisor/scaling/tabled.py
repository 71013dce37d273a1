"""A family's forecast as a table that the daemon reads: every configuration at knots of sizes.

Knots are what was measured, the middle between two of them (a forecast is least sure there, which
a line from one measured size to the next would hide) and, beyond that on both sides, steps of the
square root of two: there a law's logarithm is nearly straight. Fewer configurations are kept where
the table would grow too large for many axes.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.core.codec import to_plain
from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.observation import Observation
from advisor.core.option import Z90, Option
from advisor.core.parameters import format_number
from advisor.core.policy import FARTHEST
from advisor.core.size_table import NODES, SizeAxis, SizeTable
from advisor.core.units import format_change
from advisor.scaling.base import FEWEST_SIZES
from advisor.scaling.family import (
    SizedFamily,
    effective_parameters,
    forecast_family,
    usable_laws,
)
from advisor.scaling.registry import AUTO, TriedForecast

OK, UNFIT, FEW = "ok", "family-unfit", "few-sizes"
_STEP = math.sqrt(2.0)
_MOST_VALUES, _MOST_OPTIONS = 10_000, 32
"""Configurations at knots, and configurations, that a table has at most."""
_MOST_MEASURED = {1: 48, 2: 6}
_MOST_MEASURED_OF_MANY = 4
"""Measured values of each axis that become knots, by the number of axes."""
_FEWEST_JOBS = 3
"""Jobs of a size that show whether it runs as predicted."""


@dataclass(frozen=True, slots=True)
class FamilyTable:
    """A family's table; ``options`` are those of its largest measured size, in its order.

    ``about`` is what is stored beside it: answer, axes, what is fixed, what has no effect, notes.
    """

    options: tuple[Option, ...]
    table: SizeTable | None
    about: Mapping[str, Any]


def family_table(
    family: SizedFamily,
    jobs: SizedFamily | None,
    largest: Sequence[Option],
    laws: CountLaws | None = None,
) -> FamilyTable:
    """Fit a family and evaluate it at knots, for the options of its largest measured size.

    ``laws`` are those of the application's profiles; they are kept with the table.

    ``jobs`` are its finished jobs: sizes beyond the measured ones widen the range, and those that
    took something else correct the law or show that there is none. Raises InputError where the runs
    do not suffice for any model.
    """
    notes: list[str] = list(family.left_out)
    effective = family.only(effective_parameters(family, {}, notes))
    if not any(len(effective.values(a)) >= FEWEST_SIZES for a in _axes(effective)):
        return FamilyTable((), None, _summary(effective, family, FEW, notes))
    if NODES in _axes(effective):
        most = effective.values(NODES)[-1]
        largest = [o for o in largest if o.configuration.nodes == most]
    options = _kept_options(largest, _knots(effective))
    laws = usable_laws(family, effective, laws, notes)
    groups = _job_groups(effective, jobs.only(effective.parameters)) if jobs else []
    cells = [*_places(effective, options), *((g[0][0], g[0][1].configuration) for g in groups)]
    tried = forecast_family(effective, cells, laws)
    joined, as_predicted = _with_jobs(effective, groups, tried, notes)
    if joined is not effective:
        model = tried.model if as_predicted else AUTO
        tried = forecast_family(joined, _places(joined, options), laws, model)
    answer = UNFIT if tried.unfit else OK
    about = _summary(joined, family, answer, [*notes, *tried.notes], tried)
    if laws is not None:
        about["counts"] = laws.to_dict()
    if tried.unfit:
        return FamilyTable(options, None, about)
    table = SizeTable(_size_axes(joined), _values(tried, _knots(joined), len(options)))
    return FamilyTable(options, table, {**about, "axes": to_plain(table.axes)})


def _axes(family: SizedFamily) -> list[str]:
    """Return the parameters and, where they differ, nodes."""
    varying = [p for p in family.parameters if len(family.values(p)) > 1]
    return [*varying, *([NODES] if len(family.values(NODES)) >= FEWEST_SIZES else [])]


def _summary(
    family: SizedFamily,
    full_family: SizedFamily,
    answer: str,
    notes: Sequence[str],
    tried: TriedForecast | None = None,
) -> dict[str, Any]:
    axes = _axes(family)
    fixed = {
        p: full_family.values(p)[0]
        for p in full_family.parameters
        if len(full_family.values(p)) == 1
    }
    named_parameters = (*axes, *fixed)
    return {
        "answer": answer,
        "family": family.name,
        "measured": {a: family.values(a) for a in axes},
        "fixed": fixed,
        "without_effect": [p for p in full_family.parameters if p not in named_parameters],
        "model": tried.model if tried else "",
        "terms": list(tried.forecast.terms) if tried else [],
        "notes": list(notes),
    }


def _knots(family: SizedFamily) -> dict[str, tuple[float, ...]]:
    """Return each axis' knots, ascending."""
    knots = {}
    axes = _axes(family)
    most = _MOST_MEASURED.get(len(axes), _MOST_MEASURED_OF_MANY)
    for axis in axes:
        values = family.values(axis)
        if len(values) > most:
            rows = np.linspace(0, len(values) - 1, most).round().astype(int)
            values = [values[i] for i in dict.fromkeys(rows.tolist())]
        if len(values) >= FEWEST_SIZES:
            between = [math.sqrt(a * b) for a, b in itertools.pairwise(values)]
            if axis == NODES:
                between = [float(round(v)) for v in between]
            values = sorted({*values, *between})
            step = _STEP if len(axes) == 1 else 2.0
            count = round(math.log(FARTHEST) / math.log(step))
            up = [values[-1] * step**i for i in range(1, count + 1)]
            down = [values[0] / step**i for i in range(count, 0, -1)]
            if axis == NODES:
                up, down = [float(round(v)) for v in up], [v for v in down if v >= 1]
            values = sorted({*down, *values, *up})
        knots[axis] = tuple(values)
    return knots


def _kept_options(
    options: Sequence[Option], knots: Mapping[str, Sequence[float]]
) -> tuple[Option, ...]:
    """Return the options that a job may have or take: the highest frequency of every shape, then
    the confirmed, those of the trade-off zone and of the least energy-delay product first.

    So few that a size first seen is decided within a millisecond.
    """
    room = _MOST_VALUES // math.prod(map(len, knots.values()))
    room = max(1, min(_MOST_OPTIONS, room))
    fastest_of_shape = {
        max(group, key=lambda o: o.configuration.freq_khz).configuration
        for _, group in itertools.groupby(
            sorted(options, key=lambda o: o.configuration), key=lambda o: _shape(o.configuration)
        )
    }

    def rank(o: Option) -> tuple[bool, bool, bool, float]:
        product = o.time_s if math.isnan(o.energy_j) else o.time_s * o.energy_j
        return (
            o.configuration not in fastest_of_shape,
            not (o.confirmed and o.in_zone),
            not o.confirmed,
            product,
        )

    return tuple(sorted(sorted(options, key=rank)[:room], key=lambda o: o.configuration))


def _shape(c: Configuration) -> tuple[int, int, int]:
    return c.nodes, c.ranks_per_node, c.threads_per_node


def _places(
    family: SizedFamily, options: Sequence[Option]
) -> list[tuple[Mapping[str, float], Configuration]]:
    """Return every option at every knot, the last axis' knots running fastest, options within."""
    knots = _knots(family)
    least = {p: family.values(p)[0] for p in family.parameters}
    rows: list[tuple[Mapping[str, float], Configuration]] = []
    for values in itertools.product(*knots.values()):
        knot_values = dict(zip(knots, values, strict=True))
        size = least | {p: v for p, v in knot_values.items() if p != NODES}
        for o in options:
            nodes = int(knot_values.get(NODES, o.configuration.nodes))
            rows.append((size, replace(o.configuration, nodes=nodes)))
    return rows


def _size_axes(family: SizedFamily) -> tuple[SizeAxis, ...]:
    return tuple(
        SizeAxis(axis, knots, family.values(axis)[0], family.values(axis)[-1])
        for axis, knots in _knots(family).items()
    )


def _values(tried: TriedForecast, knots: Mapping[str, Sequence[float]], count: int) -> array[float]:
    """Return a table's numbers: see :mod:`advisor.core.size_table`."""
    time, energy = tried.forecast.time, tried.forecast.energy
    option_rows = count * math.prod(map(len, knots.values()))
    none = np.full(len(time.mean), math.nan)
    cells = np.column_stack(
        [time.mean, time.own, *((energy.mean, energy.own) if energy else (none, none))]
    )
    together = np.column_stack(
        [
            time.shared,
            energy.shared if energy else none,
            time.noise,
            energy.noise if energy else none,
        ]
    )
    by_knot = together[:option_rows].reshape(-1, count, 4).mean(axis=1)
    table = np.hstack([by_knot, cells[:option_rows].reshape(len(by_knot), -1)]).astype("<f4")
    return array("f", table.reshape(-1).tolist())


_JobGroup = Sequence[tuple[Mapping[str, float], Observation]]
"""Finished jobs of one size and configuration."""


def _job_groups(family: SizedFamily, jobs: SizedFamily) -> list[_JobGroup]:
    """Return the jobs of sizes never measured, where there are enough to show how they run."""
    measured = {tuple(s[p] for p in family.parameters) for s, _ in family.runs}
    metered = all(o.energy_j is not None for _, o in family.runs)
    groups: dict[object, list[tuple[Mapping[str, float], Observation]]] = {}
    for size, run in jobs.runs:
        key = tuple(size[p] for p in family.parameters)
        known = family.compares(run.configuration) and (run.energy_j is not None or not metered)
        if key not in measured and known:
            groups.setdefault((key, run.configuration), []).append((size, run))
    return [group for group in groups.values() if len(group) >= _FEWEST_JOBS]


def _with_jobs(
    family: SizedFamily, groups: Sequence[_JobGroup], tried: TriedForecast, notes: list[str]
) -> tuple[SizedFamily, bool]:
    """Return the family with its jobs, whose forecasts are the last rows, and if all agree.

    The middle one of each size and configuration counts. A law that jobs break has to hold with
    them, too: left out, it would make the same promise again.
    """
    time, added, agree = tried.forecast.time, [], True
    first = len(time.mean) - len(groups)
    for i, group in enumerate(groups if not tried.unfit else (), first):
        log_time = float(np.median([math.log(run.time_s) for _, run in group]))
        added.append(min(group, key=lambda pair: abs(math.log(pair[1].time_s) - log_time)))
        off = log_time - float(time.mean[i])
        if abs(off) > Z90 * float(time.sigma[i]):
            agree = False
            place_text = ", ".join(
                f"{p} {format_number(group[0][0][p])}" for p in family.parameters
            )
            notes.append(
                f"jobs at {place_text} took {format_change(math.expm1(off))} against the forecast"
            )
    if not added:
        return family, agree
    notes.append(f"finished jobs at {len(added)} points widen the range")
    return replace(family, runs=(*family.runs, *added)), agree
