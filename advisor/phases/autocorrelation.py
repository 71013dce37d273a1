"""How alike a signal is to itself a while later."""

from __future__ import annotations

import numpy as np

from advisor.phases.arrays import Floats


def autocorrelation(values: Floats) -> Floats:
    """Return the autocorrelation of a signal at lags up to half of it, by Fourier transform."""
    n = len(values)
    y = values - values.mean()
    spectrum = np.fft.rfft(y, 2 * n)
    raw = np.fft.irfft(spectrum * np.conj(spectrum))[: n // 2]
    if raw[0] <= 0:
        return np.zeros(n // 2)
    return np.asarray(raw / raw[0] * n / (n - np.arange(n // 2)))


def without_trend(values: Floats) -> Floats:
    """Return a signal less the parabola through it."""
    x = np.linspace(-1.0, 1.0, len(values))
    return np.asarray(values - np.polyval(np.polyfit(x, values, 2), x))
