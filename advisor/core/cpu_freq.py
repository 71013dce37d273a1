"""The frequency that ``--cpu-freq`` asks for, as sbatch(1) and srun(1) have it."""

from __future__ import annotations


def parse_cpu_freq(text: str) -> tuple[int | None, int | None]:
    """Return the least and the highest frequency, kHz, of ``--cpu-freq``.

    Forms as in sbatch(1): ``min-max[:governor]``, or one number, at which the cores stay. A name
    such as ``high`` is no number: None.
    """
    bounds = text.partition(":")[0].split("-")
    numbers = [int(b) if b.strip().isdecimal() else None for b in bounds]
    return numbers[0], numbers[-1]


_TO_THE_TOP = frozenset({"", "high", "conservative", "ondemand", "performance", "schedutil"})
"""Bounds and governors with which a busy core runs as fast as it may."""


def is_unclear(text: str) -> bool:
    """Tell whether only the node knows at which frequency ``--cpu-freq`` lets it run.

    That is so of ``low``, ``medium`` and ``highm1``, of governors that choose by more than the
    load, and of whatever else is no number.
    """
    bounds, _, governor = text.lower().partition(":")
    names = [b.strip() for b in bounds.split("-")]
    # sbatch takes a governor behind two bounds only.
    governors = [governor.strip()] if len(names) > 1 else []
    return not all(n.isdecimal() or n in _TO_THE_TOP for n in names + governors)
