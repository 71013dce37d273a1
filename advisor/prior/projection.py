"""EAR's linear energy model: from one run at one frequency to time and power at another.

    CPI' = D CPI + E TPI + F,   T' = T (CPI' / CPI) (f / f'),   P' = A P + B TPI + C

The coefficients belong to a pair of frequencies and a node type, and are learned by least squares
over applications measured at both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.prior.surface import Array

NEEDED = ("cpi", "tpi", "power_w")
"""What a signature must hold."""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """EAR's coefficients, from one frequency (kHz) to another."""

    A: float
    B: float
    C: float
    D: float
    E: float
    F: float
    from_khz: int
    to_khz: int

    def project(self, signature: Mapping[str, float]) -> dict[str, float]:
        """Return ``cpi``, ``time_s``, ``power_w`` and ``energy_j`` at ``to_khz``.

        ``signature`` holds time_s, cpi, tpi and power_w (one node) at ``from_khz``.
        """
        cpi = self.D * signature["cpi"] + self.E * signature["tpi"] + self.F
        time = signature["time_s"] * cpi / signature["cpi"] * self.from_khz / self.to_khz
        power = self.A * signature["power_w"] + self.B * signature["tpi"] + self.C
        return {"cpi": cpi, "time_s": time, "power_w": power, "energy_j": time * power}


def least_squares(
    before: Sequence[Mapping[str, float]],
    after: Sequence[Mapping[str, float]],
    from_khz: int,
    to_khz: int,
) -> Coefficients:
    """Return the coefficients by signatures of the same applications at both frequencies."""
    cpi, tpi, power = (np.array([s[name] for s in before]) for name in NEEDED)
    one = np.ones(len(before))
    d, e, f = _solve(np.column_stack((cpi, tpi, one)), np.array([s["cpi"] for s in after]))
    a, b, c = _solve(np.column_stack((power, tpi, one)), np.array([s["power_w"] for s in after]))
    return Coefficients(a, b, c, d, e, f, from_khz, to_khz)


def project_surfaces(
    known: Array, signatures: Array, new: Array, ln_frequency: Array
) -> tuple[Array, float]:
    """Return what EAR's model says of a workload, (2n,) ln time and ln energy, and its factor.

    ``known`` (m, 2n) are the surfaces of others, whose ``signatures`` (m, 3) hold CPI, TPI and
    power, as ``new`` (3,) does; ``ln_frequency`` (n,) is that of each point against the own one.
    ``factor`` is the variance of an error in units of the spread: 1 and what the fit adds.
    """
    n = len(ln_frequency)
    ln_time, ln_power = known[:, :n], known[:, n:] - known[:, :n]
    ones = np.ones((len(known), 1))
    x = np.hstack((signatures[:, :2], ones))
    at = np.array([new[0], new[1], 1.0]) @ np.linalg.pinv(x)
    cpi = at @ (signatures[:, :1] * np.exp(ln_time + ln_frequency))
    time = np.log(np.maximum(cpi / new[0], 1e-3)) - ln_frequency
    x = np.hstack((signatures[:, 2:], signatures[:, 1:2], ones))
    by = np.array([new[2], new[1], 1.0]) @ np.linalg.pinv(x)
    power = np.log(np.maximum(by @ (signatures[:, 2:] * np.exp(ln_power)) / new[2], 1e-3))
    return np.concatenate((time, time + power)), 1.0 + max(float(at @ at), float(by @ by))


def _solve(x: Array, y: Array) -> tuple[float, float, float]:
    a, b, c = np.linalg.lstsq(x, y, rcond=None)[0]
    return float(a), float(b), float(c)
