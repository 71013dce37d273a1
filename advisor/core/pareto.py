"""The Pareto front of two responses, and the trade-off zone of what may be on it within error.

After Endrei 2019, section 4.4 and algorithms 5.1 to 5.4. Everything is done with both axes turned
so that more is better (``u`` for x, ``v`` for y); a minimised axis changes its sign on the way in
and out. Read in that way the listed algorithms need three repairs, each checked against the
printed listings 5.1 to 5.3:

- the front grows to the left as far as ``v`` is within error of the *best* v, and downwards as
  far as ``u`` is within error of the *best* u (lines 19 and 28 index the other end of the front);
- line 28 looks for the lowest v (it compares with x);
- an error wider than the front itself would turn the inner limit inside out (the scale becomes
  negative): then that axis distinguishes nothing within error of its best, and the zone is a box.

An error limit is a fraction of the largest absolute value on the extended front (algorithm 5.4).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import InputError

Point = tuple[float, float]

_TOLERANCE = 1e-9
"""Distance from the zone's border, relative to the largest value, that counts as on it."""


@dataclass(frozen=True, slots=True)
class ErrorLimits:
    """Error limits of one axis as fractions: ``inner`` towards worse, ``outer`` beyond the best."""

    inner: float = 0.05
    outer: float = 0.0

    def __post_init__(self) -> None:
        if not all(0.0 <= v < 1.0 for v in (self.inner, self.outer)):
            raise InputError(
                f"error limits {self.inner:g} and {self.outer:g} are not fractions",
                hint="0.05 means 5 %",
            )

    @property
    def reach(self) -> float:
        """How far the front is extended (algorithm 5.1, lines 5 to 12)."""
        return max(self.inner, self.outer)


@dataclass(frozen=True, slots=True)
class TradeOff:
    """Front, extended front and zone of a table; rows are indices into the given values.

    ``front`` starts at the best x; rows with equal values are all on it. ``extended_front`` and
    ``polygon`` are points (x, y) in the data's own units, the polygon's last point is not the
    first one again. ``extension`` holds the rows that moved the front's start (in y) and its end
    (in x), None where nothing lies within error. ``zone`` is ascending and holds the front.
    """

    front: tuple[int, ...]
    extended_front: tuple[Point, ...]
    extension: tuple[int | None, int | None]
    zone: tuple[int, ...]
    polygon: tuple[Point, ...]


def trade_off(
    x: Sequence[float],
    y: Sequence[float],
    *,
    max_x: bool = True,
    max_y: bool = True,
    x_limits: ErrorLimits | None = None,
    y_limits: ErrorLimits | None = None,
) -> TradeOff:
    """Return the front and trade-off zone of the rows (x[i], y[i]); limits default to 5 %.

    Raises InputError when there is no row, or naming the first row that is not a finite number.
    Source: algorithms 5.1 to 5.4, listings 5.1 to 5.3.
    """
    x_limits, y_limits = x_limits or ErrorLimits(), y_limits or ErrorLimits()
    _check(x, y)
    sign_x, sign_y = (1.0 if max_x else -1.0), (1.0 if max_y else -1.0)
    points = [(sign_x * float(a), sign_y * float(b)) for a, b in zip(x, y, strict=True)]
    front = _front(points)
    line = list(dict.fromkeys(points[i] for i in front))
    first_v = line[0][1]
    start, end = _extension(points, line, x_limits.reach, y_limits.reach)
    if end is not None:
        line.append((points[end][0], line[-1][1]))
    if start is not None:
        line.insert(0, (line[0][0], points[start][1]))
    off_x = max(abs(u) for u, _ in line)
    off_y = max(abs(v) for _, v in line)
    outer = _shift(line, -x_limits.outer * off_x, -y_limits.outer * off_y)
    inner_x, inner_y = x_limits.inner * off_x, y_limits.inner * off_y
    polygon = outer + _inner(line, inner_x, inner_y)
    floor = -math.inf
    if start is not None and line[0][1] < first_v - inner_y:
        floor = line[0][1] + _TOLERANCE * off_y
    members = set(front)
    members.update(_inside(points, polygon, floor))

    def restored(path: Sequence[Point]) -> tuple[Point, ...]:
        return tuple((sign_x * u, sign_y * v) for u, v in path)

    return TradeOff(
        tuple(front), restored(line), (start, end), tuple(sorted(members)), restored(polygon)
    )


def front(
    x: Sequence[float], y: Sequence[float], *, max_x: bool = True, max_y: bool = True
) -> tuple[int, ...]:
    """Return the rows no other row beats, best x first (rows with equal values are all on it)."""
    _check(x, y)
    sign_x, sign_y = (1.0 if max_x else -1.0), (1.0 if max_y else -1.0)
    return tuple(_front([(sign_x * a, sign_y * b) for a, b in zip(x, y, strict=True)]))


def iterated(
    x: Sequence[float],
    y: Sequence[float],
    *,
    max_x: bool = True,
    max_y: bool = True,
    iterations: int = 4,
) -> tuple[tuple[int, ...], ...]:
    """Return the front, the front of the rows that are left without it, and so on.

    At most ``iterations`` fronts, fewer where no row is left; each as :func:`front` has it.
    Source: Michanan, Dewri and Rutherford 2017, in Endrei 2019, figure 2.3.
    """
    rows = list(range(len(x)))
    fronts: list[tuple[int, ...]] = []
    while len(fronts) < iterations and (rows or not fronts):
        places = front([x[i] for i in rows], [y[i] for i in rows], max_x=max_x, max_y=max_y)
        fronts.append(tuple(rows[place] for place in places))
        rows = sorted(set(rows) - set(fronts[-1]))
    return tuple(fronts)


def relaxed(
    x: Sequence[float], y: Sequence[float], front: Sequence[int], error_x: float, error_y: float
) -> tuple[int, ...]:
    """Return the rows that are within error of a row of the front, in both axes; ascending.

    The errors are fractions of the front row's own values. Rows between two of the front may be
    left out, which the trade-off zone avoids. Source: Balaprakash, Tiwari and Wild 2014, in
    Endrei 2019, figure 2.4.
    """
    return tuple(
        row
        for row in range(len(x))
        if any(
            abs(x[row] - x[i]) <= error_x * abs(x[i]) and abs(y[row] - y[i]) <= error_y * abs(y[i])
            for i in front
        )
    )


def overlap(polygon: Sequence[Point], other: Sequence[Point]) -> float:
    """Return the area that two polygons share over the area of both together, 0 to 1.

    What is inside follows from the even-odd rule. Two polygons without an area share all of it
    where they are the same points, nothing else. Exact: between two neighbouring corners or
    crossings of edges every edge is straight, and so the middle of that strip has its mean.
    """
    edges = [list(zip(p, [*p[1:], *p[:1]], strict=True)) for p in (polygon, other)]
    cuts = sorted({u for p in (polygon, other) for u, _ in p} | _crossings(*edges))
    shared = union = 0.0
    for low_u, high_u in itertools.pairwise(cuts):
        middle = (low_u + high_u) / 2
        intervals, other_intervals = (_heights(e, middle) for e in edges)
        both = _measure(intervals, other_intervals)
        shared += (high_u - low_u) * both
        union += (high_u - low_u) * (
            _measure(intervals, intervals) + _measure(other_intervals, other_intervals) - both
        )
    return shared / union if union else float(set(polygon) == set(other))


_Edges = Sequence[tuple[Point, Point]]
_Intervals = Sequence[tuple[float, float]]


def _crossings(edges: _Edges, other_edges: _Edges) -> set[float]:
    """Return where edges of either kind cross any edge: the u of each crossing."""
    every = [*edges, *other_edges]
    places = set()
    for ((au, av), (bu, bv)), ((cu, cv), (du, dv)) in itertools.combinations(every, 2):
        turn = (bu - au) * (dv - cv) - (bv - av) * (du - cu)
        if turn:
            share = ((cu - au) * (dv - cv) - (cv - av) * (du - cu)) / turn
            if 0.0 < share < 1.0:
                places.add(au + share * (bu - au))
    return places


def _heights(edges: _Edges, u: float) -> _Intervals:
    """Return the intervals of v that are inside a polygon at u, ascending."""
    v = sorted(
        av + (u - au) * (bv - av) / (bu - au)
        for (au, av), (bu, bv) in edges
        if min(au, bu) <= u < max(au, bu)  # half open: an even number of edges, always
    )
    return list(zip(v[::2], v[1::2], strict=True))


def _measure(intervals: _Intervals, other_intervals: _Intervals) -> float:
    return sum(
        max(0.0, min(high, top) - max(low, bottom))
        for low, high in intervals
        for bottom, top in other_intervals
    )


def _check(x: Sequence[float], y: Sequence[float]) -> None:
    if len(x) != len(y):
        raise InputError(f"{len(x)} values of x but {len(y)} of y")
    if not len(x):
        raise InputError("there is no row to compare", hint="a front needs at least one point")
    for i, pair in enumerate(zip(x, y, strict=True)):
        for name, value in zip("xy", pair, strict=True):
            if not math.isfinite(value):
                raise InputError(
                    f"row {i}: {name} is {value}", hint="remove the row or fill the value in"
                )


def _front(points: Sequence[Point]) -> list[int]:
    """Rows not dominated by another, best u first, by one pass over the sorted rows."""
    order = sorted(range(len(points)), key=lambda i: (-points[i][0], -points[i][1], i))
    rows: list[int] = []
    best = -math.inf
    for i in order:
        if points[i][1] > best or (rows and points[i] == points[rows[-1]]):
            rows.append(i)
            best = points[i][1]
    return rows


def _extension(
    points: Sequence[Point], line: Sequence[Point], reach_x: float, reach_y: float
) -> tuple[int | None, int | None]:
    """Rows beyond the front's ends but within error there (algorithm 5.2): (start, end)."""
    (best_u, first_v), (last_u, best_v) = line[0], line[-1]
    limit_u, limit_v = best_u - reach_x * abs(best_u), best_v - reach_y * abs(best_v)
    beyond_start = [i for i, (u, v) in enumerate(points) if v < first_v and u > limit_u]
    beyond_end = [i for i, (u, v) in enumerate(points) if u < last_u and v > limit_v]
    start = min(beyond_start, key=lambda i: (points[i][1], -points[i][0], i), default=None)
    end = min(beyond_end, key=lambda i: (points[i][0], -points[i][1], i), default=None)
    return start, end


def _shift(line: Sequence[Point], off_x: float, off_y: float) -> list[Point]:
    """Scale and translate the front (algorithm 5.3).

    Its first point moves by ``off_x`` towards worse u and keeps v; its last point moves by
    ``off_y`` towards worse v and keeps u; what lies between moves in proportion.
    """
    (u1, v1), (un, vn) = line[0], line[-1]
    range_u, range_v = u1 - un, vn - v1

    def moved(u: float, v: float) -> Point:
        share_u = (u - un) / range_u if range_u else 1.0
        share_v = (v - v1) / range_v if range_v else 1.0
        return u - off_x * share_u, v - off_y * share_v

    return [moved(u, v) for u, v in line]


def _inner(line: Sequence[Point], off_x: float, off_y: float) -> list[Point]:
    """Return the zone's inner limit from the front's end back to its start (algorithm 5.4)."""
    (u1, v1), (un, vn) = line[0], line[-1]
    wide_x, wide_y = off_x > u1 - un, off_y > vn - v1
    left_u, low_v = u1 - off_x, vn - off_y
    if wide_x and wide_y:
        return [(left_u, vn), (left_u, v1), (un, v1), (un, low_v), (u1, low_v)]
    if wide_x:
        return [(left_u, vn), (left_u, v1)]
    if wide_y:
        return [(un, low_v), (u1, low_v)]
    return _shift(line, off_x, off_y)[::-1]


def _inside(points: Sequence[Point], polygon: Sequence[Point], floor: float) -> list[int]:
    """Rows in the polygon or on its border, except at or below ``floor``.

    The border counts, but for the edge that an extension in y drew beyond error of the front: the
    row it went through only marks where the zone ends (row 55 of listing 5.2 is not in listing
    5.3, row 87, which extends it in x, is).
    """
    scale_u = max(abs(u) for u, _ in polygon) or 1.0
    scale_v = max(abs(v) for _, v in polygon) or 1.0
    scaled = [(u / scale_u, v / scale_v) for u, v in polygon]
    edges = [(a, b) for a, b in zip(scaled, scaled[1:] + scaled[:1], strict=True)]
    low_u, low_v = min(u for u, _ in scaled), min(v for _, v in scaled)
    rows = []
    for i, (u, v) in enumerate(points):
        p = (u / scale_u, v / scale_v)
        if v <= floor or p[0] < low_u - _TOLERANCE or p[1] < low_v - _TOLERANCE:
            continue
        if _contains(edges, p):
            rows.append(i)
    return rows


def _contains(edges: Sequence[tuple[Point, Point]], p: Point) -> bool:
    """Tell whether a point is inside (even-odd rule) or within tolerance of an edge."""
    inside = False
    u, v = p
    for (ax, ay), (bx, by) in edges:
        dx, dy = bx - ax, by - ay
        crosses = (ay > v) != (by > v)
        if crosses or abs(v - ay) <= _TOLERANCE or abs(v - by) <= _TOLERANCE:  # else too far off
            length = dx * dx + dy * dy
            t = 0.0
            if length:
                t = min(1.0, max(0.0, ((u - ax) * dx + (v - ay) * dy) / length))
            if math.hypot(u - ax - t * dx, v - ay - t * dy) <= _TOLERANCE:
                return True
        if crosses and u < ax + (v - ay) * dx / dy:
            inside = not inside
    return inside
