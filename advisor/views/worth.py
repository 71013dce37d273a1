"""What a change is worth: energy, money, CO2 and node-hours, for a run and for a month's runs."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field

from advisor.core.decision import Decision
from advisor.core.units import format_node_hours
from advisor.core.worth import Tariff
from advisor.store.reader import Reader
from advisor.views.options import View, thriftiest

MONTH_D = 30
"""Days of runs that are summed up."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What one run saves (J and node-hours; negative: costs more), and how many there were.

    ``own_runs`` and ``all_runs`` are the user's and everybody's jobs of the workload in the last
    30 days, None where that is not known.
    """

    energy_j: float
    node_hours: float
    tariff: Tariff = field(default_factory=Tariff)
    own_runs: int | None = None
    all_runs: int | None = None

    def lines(self) -> list[str]:
        """Return it as lines: what is saved; a minus sign where it costs more."""
        sign = "−" if self.node_hours < 0 else ""
        hours = f"{sign}{format_node_hours(abs(self.node_hours))}"
        lines = [f"worth        {self.tariff.words(self.energy_j)}, {hours} a run"]
        if self.all_runs:
            parts = [f"all {self.all_runs} runs {self.tariff.words(self.all_runs * self.energy_j)}"]
            if self.own_runs:
                own = self.tariff.words(self.own_runs * self.energy_j)
                parts.insert(0, f"your {self.own_runs} runs {own}")
            lines.append(f"             in {MONTH_D} days: {'; '.join(parts)}")
        return lines

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            **self.tariff.to_dict(self.energy_j),
            "node_hours": self.node_hours,
            "days": MONTH_D,
            "own_runs": self.own_runs,
            "all_runs": self.all_runs,
        }


def of_view(reader: Reader, view: View, user: str) -> Worth | None:
    """Return what the thriftiest option of a model is worth; None where nothing is saved."""
    best = thriftiest(view)
    if best is None:
        return None
    base, nodes = view.baseline, best.configuration.nodes
    hours = (view.baseline.configuration.nodes * base.time_s - nodes * best.time_s) / 3600
    return _counted(
        reader, view.model.application, view.model.workload, base.energy_j - best.energy_j, hours,
        user,
    )  # fmt: skip


def of_decision(decision: Decision, reader: Reader | None, user: str) -> Worth | None:
    """Return what a decision's change promises to be worth; None where it is not known."""
    d = decision
    if d.chosen is None or d.baseline is None or d.baseline_energy_j is None:
        return None
    if d.baseline_time_s is None or math.isnan(d.chosen.energy_j):
        return None
    hours = (
        d.baseline.nodes * d.baseline_time_s - d.chosen.configuration.nodes * d.chosen.time_s
    ) / 3600
    saved_j = d.baseline_energy_j - d.chosen.energy_j
    if reader is None:
        return Worth(saved_j, hours)
    return _counted(reader, d.application, d.workload, saved_j, hours, user)


def _counted(
    reader: Reader, application: str, workload: str, saved_j: float, hours: float, user: str
) -> Worth:
    since = dt.datetime.now(dt.UTC) - dt.timedelta(days=MONTH_D)
    row = reader.rows(
        "SELECT count(*), coalesce(sum(user = ?), 0) FROM decisions"
        " WHERE created_at >= ? AND application = ? AND workload = ? AND job_id <> ''",
        (user, since.strftime("%Y-%m-%dT%H:%M:%SZ"), application, workload),
    )[0]
    return Worth(saved_j, hours, Tariff.of(reader.site()), int(row[1]), int(row[0]))
