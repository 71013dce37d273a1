"""The test of Shapiro and Wilk: whether values may be drawn from a normal distribution.

Royston's approximation of its coefficients and of W's distribution (1995, algorithm AS R94), for 3
to 5000 values.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_LAST, _NEXT = (
    (0.0, 0.221157, -0.147981, -2.07119, 4.434685, -2.706056),
    (0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633),
)
"""What the largest coefficients exceed the normalised expected values by: polynomials in n^-1/2,
constant first, of the largest value and of the next (AS R94: C1, C2)."""
_FEW = 11
"""W's distribution is approximated in another way for so many values or fewer."""
_FEW_MEAN, _FEW_LOG_SIGMA = (
    (0.5440, -0.39978, 0.025054, -0.0006714),
    (1.3822, -0.77857, 0.062767, -0.0020322),
)
"""Mean and log deviation of -ln(g - ln(1 - W)) for few values: polynomials in n (C3, C4)."""
_BOUND = (-2.273, 0.459)
"""The polynomial g in n (G)."""
_MEAN, _LOG_SIGMA = (
    (-1.5861, -0.31082, -0.083751, 0.0038915),
    (-0.4803, -0.082676, 0.0030302),
)
"""Mean and log deviation of ln(1 - W) for more values: polynomials in ln n (C5, C6)."""


def shapiro_wilk(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return W and how probable one so small is for normal values; (n,) not all equal, n >= 3."""
    ordered = np.sort(values)
    n = len(ordered)
    centred = ordered - ordered.mean()
    products = _coefficients(n) * centred
    w = min(1.0, float(products.sum()) ** 2 / float(centred @ centred))
    return w, _probability(w, n)


def _coefficients(n: int) -> NDArray[np.float64]:
    """Return the weights (n,) of the ordered values; their squares sum up to 1."""
    if n == 3:
        return np.array([-math.sqrt(0.5), 0.0, math.sqrt(0.5)])
    normal = NormalDist()
    expected = np.array([normal.inv_cdf((i + 0.625) / (n + 0.25)) for i in range(n)])
    size = float(np.linalg.norm(expected))
    corrected = [expected[-1] / size + _polynomial(_LAST, n**-0.5)]
    if n > 5:
        corrected.append(expected[-2] / size + _polynomial(_NEXT, n**-0.5))
    edges, inside = len(corrected), expected[len(corrected) : n - len(corrected)]
    scale = math.sqrt(float(inside @ inside) / (1 - 2 * sum(a * a for a in corrected)))
    weights: NDArray[np.float64] = expected / scale
    weights[n - edges :] = corrected[::-1]
    weights[:edges] = -weights[: n - edges - 1 : -1]
    return weights


def _probability(w: float, n: int) -> float:
    """Return the probability of a W below, as normal as its transform is."""
    if n == 3:
        return max(0.0, 1 - 6 / math.pi * math.acos(math.sqrt(w)))
    if w >= 1.0:
        return 1.0
    y = math.log1p(-w)
    if n <= _FEW:
        bound = _polynomial(_BOUND, n)
        if y >= bound:
            return 0.0
        y = -math.log(bound - y)
        mean, log_sigma = _polynomial(_FEW_MEAN, n), _polynomial(_FEW_LOG_SIGMA, n)
    else:
        mean, log_sigma = (_polynomial(c, math.log(n)) for c in (_MEAN, _LOG_SIGMA))
    return 0.5 * math.erfc((y - mean) / math.exp(log_sigma) / math.sqrt(2))


def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    """Return the value of a polynomial, its constant coefficient first."""
    return sum(c * x**power for power, c in enumerate(coefficients))
