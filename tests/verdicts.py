"""The verdict that a job's figures make, worked out apart from the advisor's own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEASUREMENT = 0.02
"""Two measurements of the same run may differ by this share (docs/design.md)."""


def verdict_of(why: Mapping[str, Any]) -> str:
    """Return the verdict due by what ``advisor why --json`` shows of a job that ended well.

    *worse* where its time or energy is above the promised interval, *better* where one is below
    and none above; both by more than the measurement's error and the accounting's resolution.
    """
    compared, outcome = why["compared"], why["outcome"]
    seen = outcome["record"]["ran"]
    slack = MEASUREMENT + seen["resolution_s"] / outcome["time_s"]
    ratios = [(q["measured"] / q["lo"], q["measured"] / q["hi"]) for q in compared.values()]
    assert len(ratios) == 2, compared
    if any(high > 1 + slack for _, high in ratios):
        return "worse"
    return "better" if any(low < 1 - slack for low, _ in ratios) else "as-promised"
