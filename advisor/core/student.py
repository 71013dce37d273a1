"""Student's t distribution: how large an error is that few values leave (Student 1908).

The two tails together are the regularised incomplete beta function I_x(freedom / 2, 1 / 2) at
``x = freedom / (freedom + t^2)`` (Abramowitz and Stegun, Handbook of Mathematical Functions, 1964,
26.7.1): far out by its continued fraction (26.5.8), near the middle as what a series of positive
terms leaves (26.5.4). The relative error is below 1e-12 up to a hundred degrees of freedom and
grows in proportion to them, to 1e-9 at 100,000.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any

_TERMS = 60
"""Terms of the fraction and of the series: 1e-11 at the least favourable t, where they meet."""
_FAR = 6.0
"""Square of the t from which the fraction is taken, or the degrees of freedom if these are fewer:
closer in it would need more terms, further out the series would."""
_STIRLING = 20.0
"""Half the degrees of freedom from which the ratio of gamma functions is a series."""
_STEPS, _EXACT = 60, 1e-9
"""Most steps of the search for a quantile, and the relative change that ends it: the error that it
leaves is about its square."""


def log_peak(freedom: float) -> float:
    """Return the logarithm of the density at 0; ``freedom`` > 0.

    Of large arguments the gamma functions' logarithms would cancel; their ratio's series (Tricomi
    and Erdelyi 1951) does not.
    """
    a = freedom / 2
    if a < _STIRLING:
        return math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(freedom * math.pi)
    series = -1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)
    return series - 0.5 * math.log(2 * math.pi)


def is_far(freedom: float, t: Any) -> Any:
    """Tell of t (a float, or an array of any shape) where :func:`tail` holds, not :func:`inner`."""
    return t * t >= min(_FAR, freedom)


def tail(freedom: float, t: Any) -> Any:
    """Return the probability beyond t > 0 (a float or an array), far out."""
    a, x = freedom / 2, freedom / (freedom + t * t)
    fraction: Any = 1.0
    for m in range(_TERMS // 2, 0, -1):
        even, odd = a + 2 * m - 1, a + 2 * m
        fraction = 1 - (a + m) * (a + 0.5 + m) / (odd * (odd + 1)) * x / fraction
        fraction = 1 - m * (m - 0.5) / (even * odd) * x / fraction
    fraction = 1 - (a + 0.5) / (a + 1) * x / fraction
    return _scale(freedom, t) / (freedom * fraction)


def inner(freedom: float, t: Any) -> Any:
    """Return the probability between 0 and t >= 0 (a float or an array), near the middle."""
    y = t * t / (freedom + t * t)
    series: Any = 1.0
    for k in range(_TERMS, 0, -1):
        series = 1 + (freedom / 2 + k - 0.5) / (k + 0.5) * y * series
    return _scale(freedom, t) * series


def _scale(freedom: float, t: Any) -> Any:
    """Return what both multiply: density at t, by t, by a root that tends to 1."""
    root = (freedom / (freedom + t * t)) ** 0.5
    return math.exp(log_peak(freedom)) * t * root * (1 + t * t / freedom) ** (-freedom / 2)


def beyond(freedom: float, t: float) -> float:
    """Return the probability of a value above t; ``freedom`` > 0, t finite and below 1e150."""
    if t < 0:
        return 1.0 - beyond(freedom, -t)
    if is_far(freedom, t):
        return float(tail(freedom, t))
    return 0.5 - float(inner(freedom, t))


@lru_cache(maxsize=4096)
def quantile(freedom: float, probability: float) -> float:
    """Return the t below which a value lies with a probability, 0 < probability < 1.

    By Newton's method on the logarithm of the tail, from the normal quantile: it is never further
    out than Student's, and from there on the logarithm becomes ever less steep.
    """
    if probability < 0.5:
        return -quantile(freedom, 1.0 - probability)
    if probability == 0.5:
        return 0.0
    tail = 1.0 - probability
    peak = log_peak(freedom)
    t = NormalDist().inv_cdf(probability)
    for _ in range(_STEPS):
        share = beyond(freedom, t)
        density = math.exp(peak - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = share * math.log(share / tail) / density
        t += step
        if abs(step) <= _EXACT * t:
            break
    return t
