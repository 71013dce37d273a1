"""A node type against the one where an application ran, as estimated from microbenchmarks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

EnergySource = Literal["profiles", "node power"]
"""Where a ratio of energies comes from: the profiles' metered energies, or stated node power."""


METHOD_ERROR = 0.135
"""Root mean square of ln(estimate / measured) of the 21 estimates of Corredor 2011, chapter 4."""


def log_error(error_pct: float) -> float:
    """Return the standard error of the logarithm of an estimate on another node type.

    ``error_pct`` is what the profiles show, percent; :data:`METHOD_ERROR` is what the method is off
    besides. Whoever shows an estimate or decides by it takes the error from here.
    """
    return math.hypot(error_pct / 100.0, METHOD_ERROR)


@dataclass(frozen=True, slots=True)
class NodeTypeEstimate:
    """A node type against the base node type: ratios of a whole run on one node.

    ``time_s`` is the estimated time there; ``error_pct`` and ``energy_error_pct`` are one
    standard error in percent as the profiles show it, without the method's own
    (:func:`log_error`); ``energy_ratio`` is None where nothing tells. ``similarity`` of at most
    ``similarity_max`` says how close the microbenchmarks are, weighted over the phases; None
    where a method has no such index.
    """

    node_type: str
    time_s: float
    time_ratio: float
    error_pct: float
    similarity: float | None = None
    similarity_max: float | None = None
    energy_ratio: float | None = None
    energy_error_pct: float | None = None
    energy_source: EnergySource | None = None


def similarity_text(estimate: Mapping[str, Any]) -> str:
    """Return how close the microbenchmarks of an estimate are: ``similarity 110/125``.

    ``estimate`` holds the fields of :class:`NodeTypeEstimate`; without an index it is the error.
    """
    index, most = estimate.get("similarity"), estimate.get("similarity_max")
    if index is None or most is None:
        return f"error {100 * log_error(float(estimate.get('error_pct') or 0.0)):.0f} %"
    return f"similarity {float(index):.0f}/{float(most):.0f}"
