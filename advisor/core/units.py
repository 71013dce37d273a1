"""Parse and print the quantities people write: percentages, durations, memory, frequencies."""

from __future__ import annotations

import re
from collections.abc import Callable

_TIME_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MEMORY_MB = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_FREQ_KHZ = {"khz": 1.0, "mhz": 1e3, "ghz": 1e6}


def parse_fraction(value: object) -> float:
    """Return ``5%`` or ``0.05`` as the fraction 0.05.

    Raises ValueError for anything else; a bare number above 1 is refused because ``5`` could
    mean 5 % or 500 %.
    """
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a percentage; write it like 5%")
    text = str(value).strip()
    if text.endswith("%"):
        return float(text[:-1]) / 100.0
    number = float(text)
    if not -1.0 <= number <= 1.0:
        raise ValueError(f"{text} is ambiguous; write {text}%")
    return number


def parse_memory_mb(text: str) -> float:
    """Return ``4000``, ``4000M`` or ``4G`` in MB (Slurm's default unit is MB)."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[bB]?\s*", text)
    if not match:
        raise ValueError(f"not an amount of memory: {text!r}")
    return float(match[1]) * _MEMORY_MB[match[2].lower() or "m"]


def parse_freq_khz(value: object) -> int:
    """Return ``1900000``, ``1900 MHz`` or ``1.9 GHz`` in kHz."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(khz|mhz|ghz)?\s*", str(value), re.IGNORECASE)
    if not match:
        raise ValueError(f"not a frequency: {value!r}; write kHz or a unit, like 1.9 GHz")
    return round(float(match[1]) * _FREQ_KHZ[(match[2] or "khz").lower()])


def parse_duration_s(value: object) -> float:
    """Return ``90s``, ``10m``, ``2h`` or ``1d`` in seconds; a bare number is a ValueError.

    Who writes 30 for days must not get seconds.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", str(value))
    if not match:
        raise ValueError(f"not a duration: {value!r}; write it like 10m")
    if not match[2]:
        n = match[1]
        raise ValueError(f"{n} has no unit: write {n}d for days, {n}h, {n}m for minutes or {n}s")
    return float(match[1]) * _TIME_UNITS[match[2]]


def format_freq(freq_khz: int) -> str:
    """Return 1900000 as ``1.9 GHz``; 0 (no cap can be set) as ``-``."""
    return f"{freq_khz / 1e6:g} GHz" if freq_khz else "-"


def format_duration(seconds: float) -> str:
    """Return a duration with three digits: ``0.524 s``, ``42.1 s``, ``12.3 min``, ``3.41 h``."""
    return duration_like(seconds)(seconds)


def duration_like(seconds: float) -> Callable[[float], str]:
    """Return how to print times near one: three digits, all in the same unit."""
    unit, scale = ("s", 1.0) if seconds < 120 else ("min", 60.0)
    if seconds >= 7200:
        unit, scale = "h", 3600.0
    return lambda value: f"{_three_digits(value / scale)} {unit}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.95 or not value else f"{value:#.3g}"


def format_count(number: int, noun: str) -> str:
    """Return a number of things: ``1 run``, ``2 runs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_minus(text: str) -> str:
    """Return a number in words with a real minus sign."""
    return text.replace("-", "−", 1) if text.startswith("-") else text


def format_node_hours(hours: float) -> str:
    """Return node-hours with two digits, from one on with a decimal: ``0.42 node-hours``."""
    number = f"{hours:.2g}" if abs(hours) < 1 else f"{hours:.1f}"
    return f"{with_minus(number)} node-hours"


def format_percent(fraction: float) -> str:
    """Return a fraction that somebody stated in percent: ``5 %``, ``2.5 %``."""
    return f"{100 * fraction:.6g} %"


def format_energy(joules: float) -> str:
    """Return an energy with a unit people compare: ``320 J``, ``12.4 kJ``, ``3.10 MJ``."""
    if abs(joules) < 1e4:
        return f"{joules:.0f} J"
    for scale, unit in ((1e3, "kJ"), (1e6, "MJ")):
        if abs(joules) < 999.5 * scale:
            return f"{_three_digits(joules / scale)} {unit}"
    return f"{_three_digits(joules / 1e9)} GJ"


def format_change(fraction: float) -> str:
    """Return a signed change in percent with a real minus sign: ``−9.1 %``, of none ``+0.0 %``."""
    return with_minus(f"{round(fraction * 100, 1) + 0.0:+.1f} %")
