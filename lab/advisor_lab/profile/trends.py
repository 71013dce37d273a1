"""Exact trends: functions of the scale that hold at every run, for communication groups."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.expression import Expression, parse_expression
from advisor_lab.profile.groups import CommunicationGroup
from advisor_lab.profile.regression import EXACT, FloatColumn, fit_linear
from advisor_lab.profile.terms import columns

_PATTERNS = ("x", "sqrt(x)", "cbrt(x)", "cbrt(x)^2", "x^2", "x^3", "1/x", "log2(x)")
_WHOLE, _PLAIN = 1e-6, 8
"""Relative distance at which a number counts as whole; largest whole coefficient of a trend."""


@dataclass(frozen=True, slots=True)
class ExactTrend:
    """A constant and terms that give a quantity exactly at every run."""

    terms: tuple[Expression, ...]
    coefficients: tuple[float, ...]

    def at(self, place: Mapping[str, float]) -> float:
        """Return the quantity at a scale."""
        values = {n: np.array([v]) for n, v in place.items()}
        row = columns(self.terms, values)[0]
        return float(self.coefficients[0] + row @ np.array(self.coefficients[1:]))

    def whole_at(self, place: Mapping[str, float]) -> int | None:
        """Return it as a whole number, None where it is none."""
        value = self.at(place)
        near = round(value)
        return near if abs(value - near) <= _WHOLE * max(1.0, abs(value)) else None


def exact_trend(values: Mapping[str, FloatColumn], y: FloatColumn) -> ExactTrend | None:
    """Return the simplest trend of at most two terms that leaves no error and a run to spare.

    Two terms need none where all coefficients are small whole numbers, as in P - sqrt(P) + 1: three
    runs do not give these by chance.
    """
    places = np.unique(np.column_stack([*values.values()]), axis=0) if values else np.zeros((1, 0))
    basis = []
    for name, column in values.items():
        if np.ptp(column) == 0 or column.min() <= 0:
            continue
        for pattern in _PATTERNS:
            basis.append(parse_expression(pattern).replaced(frozenset({"x"}), name))
    peak = max(float(np.abs(y).max(initial=0.0)), 1e-300)
    for count in (0, 1, 2):
        for terms in itertools.combinations(basis, count):
            used = {n for t in terms for n in t.names}
            kinds = len(
                np.unique(places[:, [i for i, n in enumerate(values) if n in used]], axis=0)
            )
            spare = kinds - count - 1
            if len(places) < 2 or (terms and spare < (0 if count == 2 else 1)):
                continue
            design = columns(terms, values)
            fit = fit_linear(design, y)
            plain = np.abs(fit.coefficients - np.round(fit.coefficients)).max() < _WHOLE
            if spare < 1 and not (plain and np.abs(fit.coefficients).max() <= _PLAIN):
                continue
            if np.abs(fit.predict(design) - y).max() <= EXACT * peak:
                coefficients = np.where(
                    np.abs(fit.coefficients) < 1e-9 * peak, 0.0, fit.coefficients
                )
                return ExactTrend(terms, tuple(float(c) for c in coefficients))
    return None


@dataclass(frozen=True, slots=True)
class GroupTrend:
    """How a communication group grows: each of its numbers as an exact trend."""

    start: ExactTrend
    dimensions: tuple[tuple[ExactTrend, ExactTrend], ...]
    vector: tuple[tuple[ExactTrend, ExactTrend, ExactTrend], ...]
    """Signed relative source (below 0: from behind), bytes, messages."""

    def at(self, place: Mapping[str, float]) -> CommunicationGroup | None:
        """Return the group at a scale, None where its numbers are not whole there."""
        start = self.start.whole_at(place)
        dimensions = [(i.whole_at(place), s.whole_at(place)) for i, s in self.dimensions]
        sources = [source.whole_at(place) for source, _, _ in self.vector]
        if start is None or start < 0 or any(None in d for d in dimensions) or None in sources:
            return None
        sizes = tuple((int(i or 0), int(s or 0)) for i, s in dimensions)
        if any(i < 1 or s < 1 for i, s in sizes):
            return None
        vector = tuple(
            {
                "relativeSrc": float(source or 0),
                "meanSize": size.at(place),
                "meanMsgs": msgs.at(place),
            }
            for source, (_, size, msgs) in zip(sources, self.vector, strict=True)
        )
        return CommunicationGroup(start, sizes, vector)


def _signed(group: CommunicationGroup, total: int) -> list[tuple[float, float, float]]:
    """Return source, bytes and messages; sources from behind are below 0, whatever P is."""
    rows = []
    for message_stats in group.vector:
        source = message_stats["relativeSrc"]
        away = source if source <= total // 2 else source - total
        rows.append((away, message_stats["meanSize"], message_stats["meanMsgs"]))
    return sorted(rows)


def group_trend(
    values: Mapping[str, FloatColumn],
    groups: Sequence[CommunicationGroup],
    processes: Sequence[int],
) -> GroupTrend | None:
    """Return how a class's group grows over runs, None where something follows no exact trend.

    Where a run is so small that a dimension has shrunk to one process it cannot tell its stride;
    dimensions follow from the runs that have most of them.
    """
    most = max(len(g.dimensions) for g in groups)
    full_runs = [i for i, g in enumerate(groups) if len(g.dimensions) == most]
    if len({len(g.vector) for g in groups}) > 1:
        return None

    def trend(numbers: Sequence[float], rows: Sequence[int]) -> ExactTrend | None:
        row_values = {n: c[list(rows)] for n, c in values.items()}
        return exact_trend(row_values, np.array([numbers[i] for i in rows], dtype=np.float64))

    every = range(len(groups))
    start = trend([g.start_rank for g in groups], every)
    dimensions = [
        tuple(
            trend(
                [g.dimensions[d][k] if len(g.dimensions) == most else 0 for g in groups], full_runs
            )
            for k in (0, 1)
        )
        for d in range(most)
    ]
    received = [_signed(g, total) for g, total in zip(groups, processes, strict=True)]
    vector = [
        tuple(trend([rows[j][k] for rows in received], every) for k in range(3))
        for j in range(len(groups[0].vector))
    ]
    if start is None or any(None in d for d in dimensions) or any(None in v for v in vector):
        return None
    return GroupTrend(start, tuple(dimensions), tuple(vector))  # type: ignore[arg-type]


def predicted_groups(
    trends: Sequence[GroupTrend | None], place: Mapping[str, float]
) -> list[CommunicationGroup] | None:
    """Return every class's group at a scale, None unless together they are all processes once.

    Classes of the same processes, which hold several threads each, count once.
    """
    groups = [None if t is None else t.at(place) for t in trends]
    predictable = [g for g in groups if g is not None]
    if len(predictable) < len(groups) or not predictable:
        return None
    # Far beyond its runs a trend may name more processes than memory holds.
    if sum(_size(g) for g in predictable) > 10_000_000:
        return None
    distinct: list[set[int]] = []
    for group_ranks in sorted((set(g.ranks()) for g in predictable), key=len):
        if group_ranks != set().union(*(d for d in distinct if d <= group_ranks)):
            distinct.append(group_ranks)
    ranks = set().union(*distinct)
    total = sum(len(group_ranks) for group_ranks in distinct)
    if len(ranks) != total or min(ranks) != 0 or max(ranks) != total - 1:
        return None
    return [
        replace(g, vector=tuple({**v, "relativeSrc": v["relativeSrc"] % total} for v in g.vector))
        for g in predictable
    ]


def _size(group: CommunicationGroup) -> int:
    size = 1
    for iterations, _ in group.dimensions:
        size *= iterations
    return size
