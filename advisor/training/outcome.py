"""What a sweep shows while it runs, and what it comes to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.core.codec import JsonForm, wire
from advisor.core.configuration import Configuration
from advisor.core.option import Option
from advisor.core.rate import Work
from advisor.core.units import format_duration, format_energy, format_node_hours
from advisor.core.words import describe
from advisor.errors import AdvisorError
from advisor.schedulers.base import PlannedRun, RunResult

if TYPE_CHECKING:
    from advisor.models.fit import FitResult


@dataclass(frozen=True, slots=True)
class Spent:
    """What a sweep has used so far; ``energy_j`` counts the runs whose energy is known."""

    runs: int = 0
    node_hours: float = 0.0
    energy_j: float = 0.0
    energy_known: bool = False

    @property
    def words(self) -> str:
        """All of it: ``0.02 node-hours, 12 kJ``."""
        text = format_node_hours(self.node_hours)
        return f"{text}, {format_energy(self.energy_j)}" if self.energy_known else text


@dataclass(frozen=True, slots=True)
class Event:
    """Something to show: a stage begins, a run ended, or a sentence."""

    kind: str
    """``stage``, ``run``, ``waiting`` or ``note``."""
    stage: str = ""
    text: str = ""
    run: PlannedRun | None = None
    result: RunResult | None = None
    index: int = 0
    total: int = 0
    spent: Spent = Spent()


@dataclass(frozen=True, slots=True)
class Confirmation(JsonForm):
    """How confirming runs compare with what was promised. Seconds, joules.

    ``holds``: within what was promised; ``chosen``: and it keeps the policy's bounds.
    """

    JSON = (
        "configuration",
        "time_s",
        "promised_time_s",
        "energy_j",
        "promised_energy_j",
        "holds",
        "chosen",
        "reason",
    )

    configuration: Configuration = field(metadata=wire(inline=True))
    time_s: float
    promised_time_s: tuple[float, float]
    energy_j: float | None
    promised_energy_j: tuple[float, float] | None
    holds: bool
    reason: str
    chosen: bool = False

    @property
    def verdict(self) -> str:
        """What became of the option, in words."""
        if self.chosen:
            return "is confirmed"
        return "ran as predicted, but not within the policy" if self.holds else "is not confirmed"


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a sweep came to."""

    fit: FitResult
    baseline: Option
    recommended: Option | None
    confirmation: Confirmation | None
    spent: Spent
    payback: int | None
    saved_per_run: float | None
    """Joules, or node-hours where no energy is known; predicted."""
    model_id: int | None
    results: dict[int, RunResult]
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    attempts: tuple[Confirmation, ...] = ()
    """All that were to be confirmed, in order; ``confirmation`` is the recommended one's or the
    last."""


def compare(
    promised: Option,
    results: list[RunResult],
    *,
    holds: bool,
    chosen: bool,
    work: Work | None = None,
) -> Confirmation:
    """Compare confirming runs with an option's intervals; several runs count as their mean.

    ``holds`` is the verdict of the fit made with them: whether the other runs predict them, and
    ``chosen`` whether the policy takes the option then. The intervals promised before say by how
    much. With ``work`` time and energy are those that so much work takes at the runs' rates.
    """
    scales = [
        work.amount / (r.rate * r.time_s) if work and r.rate and r.time_s else 1.0 for r in results
    ]
    times = [r.time_s * s for r, s in zip(results, scales, strict=True) if r.time_s is not None]
    energies = [
        r.energy_j * s for r, s in zip(results, scales, strict=True) if r.energy_j is not None
    ]
    time_s = sum(times) / len(times)
    energy_j = sum(energies) / len(energies) if energies else None
    wrong = []
    if not promised.time_lo_s <= time_s <= promised.time_hi_s:
        wrong.append(
            f"time {format_duration(time_s)} is outside {format_duration(promised.time_lo_s)} "
            f"to {format_duration(promised.time_hi_s)}"
        )
    energy_range = None
    if math.isfinite(promised.energy_j):
        energy_range = (promised.energy_lo_j, promised.energy_hi_j)
        if energy_j is None:
            wrong.append("its energy was not metered")
        elif not energy_range[0] <= energy_j <= energy_range[1]:
            wrong.append(
                f"energy {format_energy(energy_j)} is outside {format_energy(energy_range[0])} "
                f"to {format_energy(energy_range[1])}"
            )
    reason = "; ".join(wrong) or "within the predicted intervals"
    if holds and wrong:
        reason = f"within what all runs together predict, although {reason}"
    elif not holds and not wrong:
        reason = "the other runs together predict something else there"
    return Confirmation(
        promised.configuration,
        time_s,
        (promised.time_lo_s, promised.time_hi_s),
        energy_j,
        energy_range,
        holds,
        reason,
        chosen,
    )


def option_at(options: tuple[Option, ...], configuration: Configuration) -> Option:
    """Return the option of a configuration. Raises AdvisorError when there is none."""
    for option in options:
        if option.configuration == configuration:
            return option
    raise AdvisorError(f"the model has no option at {describe(configuration)}")
