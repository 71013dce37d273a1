"""What a change is worth: energy, money, CO2 and node-hours, for a run and for a month's runs."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, field

from advisor.core.decision import Decision
from advisor.core.objectives import node_hours
from advisor.core.option import Option
from advisor.core.units import format_count, format_node_hours
from advisor.core.worth import Tariff
from advisor.store.reader import Reader
from advisor.views.options import View, least_energy

MONTH_D = 30
"""Days of runs that are summed up."""
_NO_HOURS = 1e-4
"""Node-hours, a third of a second of a node, below which a run takes as many as before."""


@dataclass(frozen=True, slots=True)
class Month:
    """A workload's runs in the last 30 days, and what the site says of a kilowatt-hour.

    ``own_runs`` and ``all_runs`` are the user's and everybody's jobs, None where none are known.
    """

    tariff: Tariff = field(default_factory=Tariff)
    own_runs: int | None = None
    all_runs: int | None = None

    @classmethod
    def of(cls, reader: Reader, application: str, workload: str, user: str) -> Month:
        """Return the last 30 days of a workload. Raises StoreError."""
        since = dt.datetime.now(dt.UTC) - dt.timedelta(days=MONTH_D)
        row = reader.rows(
            "SELECT count(*), coalesce(sum(user = ?), 0) FROM decisions"
            " WHERE created_at >= ? AND application = ? AND workload = ? AND job_id <> ''",
            (user, since.strftime("%Y-%m-%dT%H:%M:%SZ"), application, workload),
        )[0]
        tariff = Tariff.of(reader.site())
        return cls(tariff, int(row[1]), int(row[0])) if row[0] else cls(tariff)


def runs_of_month(reader: Reader) -> dict[tuple[str, str, str], int]:
    """Return how many jobs of the last 30 days asked for an application, workload, node type."""
    since = dt.datetime.now(dt.UTC) - dt.timedelta(days=MONTH_D)
    rows = reader.rows(
        "SELECT application, workload, node_type, count(*) FROM decisions"
        " WHERE created_at >= ? AND job_id <> '' GROUP BY 1, 2, 3",
        (since.strftime("%Y-%m-%dT%H:%M:%SZ"),),
    )
    return {(row[0], row[1], row[2]): int(row[3]) for row in rows}


@dataclass(frozen=True, slots=True)
class Worth:
    """What one run saves (J and node-hours; negative: costs more), and how many there were."""

    energy_j: float
    node_hours: float
    month: Month = field(default_factory=Month)

    @property
    def of_run(self) -> str:
        """What it is for a run."""
        hours = format_node_hours(self.node_hours)
        if abs(self.node_hours) < _NO_HOURS:
            hours = "the same node-hours"
        return f"{self.month.tariff.words(self.energy_j)}, {hours}"

    def sentences(self) -> list[str]:
        """Return what it is for a run and, where there were any, for the runs of a month."""
        m = self.month
        sentences = [f"{self.of_run} a run"]
        if m.all_runs:
            every = format_count(m.all_runs, "run")
            every = f"all {every}" if m.all_runs > 1 else every
            parts = [f"{every} {m.tariff.words(m.all_runs * self.energy_j)}"]
            if m.own_runs == m.all_runs:
                parts.clear()
            if m.own_runs:
                user_words = m.tariff.words(m.own_runs * self.energy_j)
                parts.insert(0, f"your {format_count(m.own_runs, 'run')} {user_words}")
            sentences.append(f"in {MONTH_D} days: {'; '.join(parts)}")
        return sentences

    def lines(self) -> list[str]:
        """Return it as lines: what is saved; a minus sign where it costs more."""
        run, *month = self.sentences()
        return [f"worth        {run}", *(f"             {line}" for line in month)]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            **self.month.tariff.worth(self.energy_j).to_dict(),
            "node_hours": self.node_hours,
            "days": MONTH_D,
            "own_runs": self.month.own_runs,
            "all_runs": self.month.all_runs,
        }


def of_view(reader: Reader, view: View, user: str) -> Worth | None:
    """Return what the option with the least energy is worth; None where nothing is saved."""
    best = least_energy(view)
    if best is None:
        return None
    month = Month.of(reader, view.model.application, view.model.workload, user)
    return of_option(view, best, month)


def of_option(view: View, option: Option, month: Month) -> Worth:
    """Return what an option saves against the job as written; for that job what it takes."""
    base = view.baseline
    energy_j, hours = base.energy_j, node_hours(base)
    if option is not base:
        energy_j, hours = energy_j - option.energy_j, hours - node_hours(option)
    return Worth(energy_j, hours, month)


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
    return Worth(saved_j, hours, Month.of(reader, d.application, d.workload, user))
