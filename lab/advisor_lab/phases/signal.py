"""The period of a sampled signal (power, IPC, bandwidth), and where it changes.

Autocorrelation finds it (Casas, Badia, Labarta, "Automatic phase detection of MPI applications",
2007), on the signal without its slow part; its peaks at multiples of the period make it exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from advisor.phases.arrays import Floats
from advisor.phases.autocorrelation import autocorrelation, without_trend

_LEAST_PERIODS = 6
_LEAST_SAMPLES = 4
"""A period is at least so many samples, and there are at least so many periods."""

_LEAST = 0.2
"""Autocorrelation at the period below which there is none."""

_ALIKE = 3
"""Similar parts that an iteration may have: more of them are iterations of a longer pattern."""

_BINS = 8
_APART = 0.1
"""Bins of a part of a longer pattern; variance between parts, relative to that inside of them."""

_WINDOWS = 9
"""Pieces of the signal that are looked at for a change of period."""

_SAME = 0.03
"""Relative difference of two periods that are the same one."""


_ROUNDING = 1e-9
"""Of a signal's size: what moves less is even, but for how numbers are kept."""


@dataclass(frozen=True, slots=True)
class PeriodicStretch:
    """A stretch of a signal with one period; ``outer_period_s`` where every nth one differs."""

    begin_s: float
    end_s: float
    period_s: float
    iterations: int
    outer_period_s: float | None = None


_EXACT = 0.005
"""That of a period and a multiple of it."""


def _refined(acf: Floats, lag: int, reach: int) -> float:
    """Return the place of a peak between samples, by a parabola through its neighbourhood."""
    low, high = max(1, lag - reach), min(len(acf), lag + reach + 1)
    x = np.arange(low, high, dtype=float) - lag
    bend, slope, _ = np.polyfit(x, acf[low:high], 2)
    if bend >= 0:
        return float(lag)
    return lag + float(np.clip(-slope / (2 * bend), -reach, reach))


def _peaks(acf: Floats) -> NDArray[np.int64]:
    inner = acf[1:-1]
    rises, falls = inner > acf[:-2], inner >= acf[2:]
    return np.flatnonzero(rises & falls) + 1


def period(values: Floats) -> tuple[float, float | None] | None:
    """Return the period of a signal in samples, and that of a longer pattern or None.

    None where it has none: no peak that comes again at its multiples.
    """
    n = len(values)
    if n < _LEAST_SAMPLES * _LEAST_PERIODS or np.ptp(values) <= 0:
        return None
    acf = autocorrelation(without_trend(values))
    floor = max(_LEAST, 4 / np.sqrt(n))
    peaks = [int(p) for p in _peaks(acf) if p >= 3 and acf[p] > floor]
    peaks = [p for p in peaks if p <= n // _LEAST_PERIODS and _recurs(acf, p, floor)]
    if not peaks:
        return None
    best = max(acf[p] for p in peaks)
    strong = [p for p in peaks if acf[p] >= 0.6 * best]
    # The first strong peak, or a stronger one right beside it.
    first = max((p for p in strong if p <= 1.3 * strong[0]), key=lambda p: acf[p])
    longer = next(
        (
            p
            for p in strong
            if acf[p] > acf[first] + max(0.05, 0.3 * (1 - acf[first])) and _is_multiple(p, first)
        ),
        None,
    )
    exact = _exact(acf, first)
    if longer is None:
        return exact, None
    outer = _exact(acf, longer)
    times = round(outer / exact)
    if not _differ(values, outer, times):
        return exact, None  # the longer one only falls on whole samples better
    if times <= _ALIKE:
        return outer, None  # an iteration of two or three similar parts
    return outer / times, outer


def _differ(values: Floats, outer: float, times: int) -> bool:
    """Tell whether the parts of a longer pattern differ, by the signal folded at its length."""
    y = without_trend(values)
    place = np.arange(len(y)) / outer % 1.0
    bins = (place * times * _BINS).astype(np.int64)
    counts = np.bincount(bins, minlength=times * _BINS)
    if counts.min() < 2:
        return False
    means = np.bincount(bins, y, times * _BINS) / counts
    noise = np.mean((y - means[bins]) ** 2 / counts[bins])
    parts = means.reshape(times, _BINS)
    common = parts.mean(axis=0)
    # Corrected for the common mean, which has each part in it, and for the noise of the bins.
    apart = float(((parts - common) ** 2).mean()) * times / (times - 1) - float(noise)
    return apart > _APART * float(common.var())


def _is_multiple(lag: int, base_lag: int) -> bool:
    return (
        round(lag / base_lag) >= 2
        and abs(lag / base_lag - round(lag / base_lag)) < 0.1 + 1 / base_lag
    )


def _recurs(acf: Floats, lag: int, floor: float) -> bool:
    """Tell whether a peak comes again at twice and three times its lag, with valleys between."""
    for times in (2, 3):
        centre, reach = times * lag, max(1, round(0.08 * times * lag))
        around = acf[max(0, centre - reach) : centre + reach + 1]
        if not len(around) or around.max() < max(floor, 0.5 * acf[lag]):
            return False
    return bool(acf[1:lag].min() < 0.7 * acf[lag])


def _exact(acf: Floats, lag: int) -> float:
    """Return a period by the peaks at its multiples, the farthest that still follows the others."""
    near = max(1, round(0.12 * lag))
    value, times = _refined(acf, lag, near), 1
    while True:
        # Farther and farther: what a peak is off is divided by the number of periods up to it.
        times = max(times + 1, int(times * 1.4))
        centre = value * times
        reach = max(1, round(min(0.25 * value, 0.02 * centre + 1)))
        low, high = round(centre) - reach, round(centre) + reach + 1
        if high >= len(acf) - 1:
            return value
        peak_lag = low + int(acf[low:high].argmax())
        if acf[peak_lag] < 0.5 * acf[lag] or peak_lag in (low, high - 1):
            return value
        value = _refined(acf, peak_lag, near) / times


def find_periods(times: Floats, values: Floats) -> list[PeriodicStretch]:
    """Return the stretches of a signal that have a period, in order; none where it has none.

    ``times`` (s) ascend; readings at uneven distances are put on an even grid first.
    """
    if len(times) < _LEAST_SAMPLES * _LEAST_PERIODS:
        return []
    if np.ptp(values) <= _ROUNDING * np.abs(values).max():
        return []
    step = float(np.median(np.diff(times)))
    grid = np.arange(times[0], times[-1] + step / 2, step)
    even = np.interp(grid, times, values)
    cuts = _changes(even)
    stretches = []
    for begin, end in zip([0, *cuts], [*cuts, len(even)], strict=True):
        stretch_period = period(even[begin:end])
        if stretch_period is None:
            continue
        samples, outer = stretch_period
        stop = grid[min(end, len(grid) - 1)]
        stretches.append(
            PeriodicStretch(
                float(grid[begin]),
                float(stop),
                samples * step,
                int((end - begin) / samples + 1e-6),
                None if outer is None else outer * step,
            )
        )
    return stretches


def _changes(values: Floats) -> list[int]:
    """Return the samples at which the period changes, one begins, or one ends."""
    n = len(values)
    size = n // _WINDOWS
    while True:
        pieces = [(i, i + 2 * size) for i in range(0, n - 2 * size + 1, max(1, size // 2))]
        piece_periods = [period(values[a:b]) for a, b in pieces]
        kinds = [None if g is None else g[0] for g in piece_periods]
        if len(pieces) < 4 or sum(k is not None for k in kinds) >= len(kinds) / 2:
            break
        size = size * 3 // 2  # too short for a period that long
    lasting = _lasting(kinds)
    cuts: list[int] = []
    for (_, a1), (b0, _) in pairwise(lasting):
        low = max(pieces[a1][0], cuts[-1] if cuts else 0)
        cuts.append(_edge(values, low, pieces[b0][1], kinds[a1], kinds[b0]))
    return _needed_cuts(values, cuts)


def _lasting(kinds: list[float | None]) -> list[tuple[int, int]]:
    """Return (first, last) of the pieces in a row that have one period, or none for long."""
    rows: list[tuple[int, int]] = []
    for i, kind in enumerate(kinds):
        if rows and _same_period(kinds[rows[-1][1]], kind):
            rows[-1] = (rows[-1][0], i)
        else:
            rows.append((i, i))
    lasting: list[tuple[int, int]] = []
    for first, last in rows:
        if last - first < (3 if kinds[first] is None else 1):
            continue
        if lasting and _same_period(kinds[lasting[-1][1]], kinds[first]):
            lasting[-1] = (lasting[-1][0], last)
        else:
            lasting.append((first, last))
    return lasting


def _needed_cuts(values: Floats, cuts: list[int]) -> list[int]:
    """Return the cuts without those between parts of the same period."""
    for i, cut in enumerate(cuts):
        earlier_period = period(values[cuts[i - 1] if i else 0 : cut])
        later_period = period(values[cut : cuts[i + 1] if i + 1 < len(cuts) else len(values)])
        if _same_period(earlier_period and earlier_period[0], later_period and later_period[0]):
            return _needed_cuts(values, cuts[:i] + cuts[i + 1 :])
    return cuts


def _same_period(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    ratio = max(first, second) / min(first, second)
    times = round(ratio)
    # An iteration of two or three similar parts shows as a part of it in some pieces.
    return ratio < 1 + _SAME or (times <= _ALIKE and abs(ratio / times - 1) < _EXACT)


def _edge(
    values: Floats, low: int, high: int, earlier_period: float | None, later_period: float | None
) -> int:
    """Return where between two samples one period gives way to the other.

    Each sample is compared with those one period before and behind it: the cut leaves the least
    differences on both sides.
    """

    def unlike(period_samples: float | None) -> Floats:
        part = values[low:high]
        if period_samples is None:
            return np.full(len(part), np.nan)
        lag = period_samples
        x = np.arange(low, high, dtype=float)
        every = np.arange(len(values))
        difference_before = np.abs(part - np.interp(x - lag, every, values))
        difference_behind = np.abs(part - np.interp(x + lag, every, values))
        return np.asarray(np.minimum(difference_before, difference_behind))

    first, second = unlike(earlier_period), unlike(later_period)
    usual = float(np.nanmean([np.nanmean(v) for v in (first, second) if not np.isnan(v).all()]))
    first = np.where(np.isnan(first), usual, first)
    second = np.where(np.isnan(second), usual, second)
    cost = np.concatenate([[0.0], np.cumsum(first)]) + (
        second.sum() - np.concatenate([[0.0], np.cumsum(second)])
    )
    return low + int(cost.argmin())
