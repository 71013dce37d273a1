"""What stands along the axes of a picture: titles, units, round values."""

from __future__ import annotations

from advisor.plotting import PlotPoint
from advisor.plotting.raster import ticks

_UNITS = {
    "time": ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (float("inf"), 3600.0, "h")),
    "energy": ((1e4, 1.0, "J"), (1e6, 1e3, "kJ"), (1e9, 1e6, "MJ"), (float("inf"), 1e9, "GJ")),
}
"""Per axis, up to which largest value which scale and unit."""


def _unit(axis: str, largest: float) -> tuple[float, str]:
    """Return scale and unit that make an axis' numbers short."""
    fitting_units = (
        (scale, unit) for limit, scale, unit in _UNITS.get(axis, ()) if largest < limit
    )
    return next(fitting_units, (1.0, ""))


def percents(window: PlotPoint, base_value: float, most: int) -> list[tuple[float, str]]:
    """Return round changes against ``base_value`` within a window, as value and text."""
    low, high = (100 * (v / base_value - 1) for v in window)
    return [(base_value * (1 + v / 100), _signed_percent(v)) for v in ticks(low, high, most)]


def _signed_percent(percent: float) -> str:
    return f"{percent:+.4g} %" if abs(percent) > 1e-9 else "0 %"


def title(axis: str, usual: float) -> str:
    """Return an axis' name with the unit of its usual value."""
    _, unit = _unit(axis, abs(usual))
    return f"{axis} ({unit})" if unit else axis


def labels(axis: str, window: PlotPoint, most: int, usual: float) -> list[tuple[float, str]]:
    """Return round values within a window, each with its text in the unit of the usual one."""
    scale, _ = _unit(axis, abs(usual))
    values = ticks(window[0] / scale, window[1] / scale, most)
    return [(value * scale, f"{round(value, 10):.6g}") for value in values]
