"""EAR's linear energy model: from one run at one frequency to time and power at another.

    CPI' = D CPI + E TPI + F,   T' = T (CPI' / CPI) (f / f'),   P' = A P + B TPI + C

The coefficients belong to a pair of frequencies and a node type, and are learned by least squares
over applications measured at both.
"""

from __future__ import annotations

import numpy as np

from advisor.prior.surface import Array

NEEDED = ("cpi", "tpi", "power_w")
"""What a signature must hold."""


def project_surfaces(
    surfaces: Array, signatures: Array, new: Array, ln_frequency: Array
) -> tuple[Array, float]:
    """Return what EAR's model says of a workload, (2n,) ln time and ln energy, and its factor.

    ``surfaces`` (m, 2n) are the surfaces of others, whose ``signatures`` (m, 3) hold CPI, TPI and
    power, as ``new`` (3,) does; ``ln_frequency`` (n,) is that of each point against the own one.
    ``factor`` is the variance of an error in units of the spread: 1 and what the fit adds.
    """
    n = len(ln_frequency)
    ln_time, ln_power = surfaces[:, :n], surfaces[:, n:] - surfaces[:, :n]
    ones = np.ones((len(surfaces), 1))
    x = np.hstack((signatures[:, :2], ones))
    time_weights = np.array([new[0], new[1], 1.0]) @ np.linalg.pinv(x)
    cpi = time_weights @ (signatures[:, :1] * np.exp(ln_time + ln_frequency))
    time = np.log(np.maximum(cpi / new[0], 1e-3)) - ln_frequency
    x = np.hstack((signatures[:, 2:], signatures[:, 1:2], ones))
    power_weights = np.array([new[2], new[1], 1.0]) @ np.linalg.pinv(x)
    power = np.log(
        np.maximum(power_weights @ (signatures[:, 2:] * np.exp(ln_power)) / new[2], 1e-3)
    )
    return np.concatenate((time, time + power)), 1.0 + max(
        float(time_weights @ time_weights), float(power_weights @ power_weights)
    )
