"""The jobs of the last days, a line each, and what a week of them comes to."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from advisor.core.decision import Decision
from advisor.core.units import format_change, format_count
from advisor.core.words import difference_words
from advisor.core.worth import J_PER_KWH, Tariff, format_kwh
from advisor.loop import clock
from advisor.store.reader import Reader
from advisor.store.records import Outcome
from advisor.views.decision import cause_of
from advisor.views.jobs import UNDECIDED
from advisor.views.why import VERDICTS

HEADS = (
    "job",
    "ended",
    "application",
    "change",
    "promised",
    "measured",
    "energy",
    "worth",
    "came out",
)
MOST = 5000
"""Jobs that are read at most, about a second of work: a site has millions."""
_ARRAY = re.compile(r"[_\[]")
_NO_MODEL = "no-model"


@dataclass(frozen=True, slots=True)
class RecentJob:
    """A job of the last days; changes of energy and time are fractions, None where not known.

    ``ended_at`` is "" and ``verdict`` None until it was collected; ``change`` says in words what
    was changed, or why nothing was.
    """

    job: str
    user: str
    ended_at: str
    decided_at: str
    application: str
    workload: str
    changed: bool
    change: str
    promised: float | None
    promised_time: float | None
    measured: float | None
    measured_time: float | None
    energy_j: float | None
    saved_j: float | None
    verdict: str | None
    state: str
    code: str

    def to_dict(self, tariff: Tariff) -> dict[str, object]:
        """Return the JSON form; a change is in percent, less than 0 where it is less."""
        worth = tariff.worth(self.energy_j).to_dict() if self.energy_j is not None else None
        return {
            "job": self.job,
            "ended_at": self.ended_at or None,
            "application": self.application,
            "workload": self.workload,
            "changed": self.changed,
            "change": self.change,
            "promised_pct": _percent(self.promised),
            "promised_time_pct": _percent(self.promised_time),
            "measured_pct": _percent(self.measured),
            "measured_time_pct": _percent(self.measured_time),
            "kwh": None if self.energy_j is None else self.energy_j / J_PER_KWH,
            "money": worth["money"] if worth else None,
            "currency": tariff.currency,
            "verdict": self.verdict,
            "user": self.user,
            "state": self.state,
        }

    def row(self, tariff: Tariff) -> tuple[str, ...]:
        """Return the cells of :data:`HEADS`."""
        money = ""
        if tariff.price is not None and self.energy_j is not None:
            money = tariff.money(self.energy_j / J_PER_KWH * tariff.price)
        return (
            self.job,
            _moment_cell(self.ended_at),
            self.application or "-",
            self.change,
            _change_cell(self.promised),
            _change_cell(self.measured),
            "-" if self.energy_j is None else format_kwh(self.energy_j / J_PER_KWH),
            money,
            _BRIEF.get(self.verdict or "", VERDICTS.get(self.verdict or "", UNDECIDED)),
        )


_BRIEF = {"left-alone": "as you wrote it", "better": "better", "worse": "worse"}


def recent_jobs(reader: Reader, since: datetime, user: str | None) -> tuple[list[RecentJob], bool]:
    """Return the jobs of a user, or of all, submitted since a moment; the latest first.

    Those that were collected, and decisions whose job was not collected yet. Of more than
    :data:`MOST` they are those submitted last; the second value tells whether they are all.
    """
    moment = clock.form(since)
    whose, values = ("", ()) if user is None else (" AND user = ?", (user,))
    outcomes = reader.outcomes(f"submitted_at >= ?{whose}", (moment, *values), newest=MOST)
    decisions = reader.decisions_since(moment, user, newest=MOST)
    ended_ids = {o.decision_id for o in outcomes} | {_ARRAY.split(o.job_id)[0] for o in outcomes}
    pending = [
        d for d in decisions if d.id not in ended_ids and _ARRAY.split(d.job_id)[0] not in ended_ids
    ]
    jobs = [_job(o.decision, o) for o in outcomes] + [_job(d, None) for d in pending]
    jobs.sort(key=lambda j: (j.ended_at or "9", j.decided_at, j.job), reverse=True)
    return jobs, max(len(outcomes), len(decisions)) < MOST


def last_job(reader: Reader, user: str) -> str:
    """Return a user's latest job, "" for a user without any."""
    latest = [
        tuple(reader.rows(f"{sql} ORDER BY 1 DESC LIMIT 1", (user,)))
        for sql in (
            "SELECT submitted_at, job_id FROM outcomes WHERE user = ?",
            "SELECT created_at, job_id FROM decisions WHERE user = ? AND job_id <> ''",
        )
    ]
    return str(max((tuple(row) for rows in latest for row in rows), default=("", ""))[1])


def _job(d: Decision, outcome: Outcome | None) -> RecentJob:
    chosen = d.chosen if d.changed else None
    time_s, energy_j = (outcome.time_s, outcome.energy_j) if outcome else (None, None)
    change = cause_of(d.reasons) or "nothing"
    if chosen is not None:
        change = difference_words(d.baseline, chosen.configuration)
    base_j = d.baseline_energy_j
    saved_j = base_j - energy_j if chosen and energy_j is not None and base_j else None
    return RecentJob(
        outcome.job_id if outcome else d.job_id,
        outcome.user if outcome else d.user,
        str(outcome.record.get("ended_at") or "") if outcome else "",
        outcome.submitted_at if outcome else d.created_at,
        d.application,
        d.workload,
        chosen is not None,
        change,
        _finite(chosen.energy.change) if chosen else None,
        _finite(chosen.time.change) if chosen else None,
        energy_j / base_j - 1 if energy_j is not None and base_j else None,
        time_s / d.baseline_time_s - 1 if time_s is not None and d.baseline_time_s else None,
        energy_j,
        saved_j,
        outcome.verdict if outcome else None,
        outcome.state if outcome else "",
        next((r.code for r in d.reasons if r.changes_nothing), ""),
    )


@dataclass(frozen=True, slots=True)
class Note:
    """What a span of jobs comes to: counts, energy, one suggestion and the command for it."""

    since: datetime
    whose: str
    jobs: int
    changed: int
    metered: int
    energy_j: float
    saved_j: float | None
    worse: int
    suggestion: str
    command: str
    tariff: Tariff
    complete: bool = True

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "since": clock.form(self.since),
            "whose": self.whose,
            "jobs": self.jobs,
            "complete": self.complete,
            "changed": self.changed,
            "metered": self.metered,
            "kwh": self.energy_j / J_PER_KWH,
            "saved_kwh": None if self.saved_j is None else self.saved_j / J_PER_KWH,
            "worse": self.worse,
            "worth": self.tariff.worth(self.energy_j).to_dict(),
            "suggestion": self.suggestion,
            "command": self.command,
        }

    def lines(self) -> list[str]:
        """Return it as lines."""
        whose = f"jobs of {self.whose}" if self.whose else "all jobs of the site"
        lines = [f"{whose} since {self.since.astimezone():%Y-%m-%d}", ""]
        metered = f" ({self.metered} metered)" if self.metered < self.jobs else ""
        lines.append(f"jobs         {self.jobs}{metered}, {self.changed} changed by the advisor")
        if not self.complete:
            lines.append("             the latest alone: advisor report sums up all of them")
        lines.append(f"energy       {self.tariff.words(self.energy_j)}")
        if self.saved_j is not None:
            lines.append(f"saved        {self.tariff.words(self.saved_j)}, against the model")
        if self.worse:
            lines.append(f"worse        {format_count(self.worse, 'job')} than promised")
        return [*lines, "", f"suggestion   {self.suggestion}", f"             {self.command}"]


def note(
    jobs: Sequence[RecentJob],
    since: datetime,
    whose: str,
    tariff: Tariff,
    *,
    complete: bool = True,
) -> Note:
    """Sum jobs up; ``whose``: the user's name, "" for the whole site.

    ``complete``: they are all since then.
    """
    saved = [j.saved_j for j in jobs if j.saved_j is not None]
    suggestion, command = _suggest(jobs, site=not whose)
    energies = [j.energy_j for j in jobs if j.energy_j is not None]
    return Note(
        since,
        whose,
        len(jobs),
        sum(j.changed for j in jobs),
        len(energies),
        sum(energies),
        sum(saved) if saved else None,
        sum(j.verdict == "worse" for j in jobs),
        suggestion,
        command,
        tariff,
        complete,
    )


def _suggest(jobs: Sequence[RecentJob], *, site: bool) -> tuple[str, str]:
    """Return what is most worth doing, and the command."""
    if worse := [j for j in jobs if j.verdict == "worse"]:
        text = f"job {worse[0].job} ({worse[0].application}) came out worse than promised: see why"
        return text, f"advisor why {worse[0].job}"
    lacking: Counter[str] = Counter()
    for j in jobs:
        if j.code == _NO_MODEL and j.application:
            lacking[j.application] += max(1, round(j.energy_j or 0.0))
    if lacking:
        name, _ = lacking.most_common(1)[0]
        count = sum(j.application == name for j in jobs)
        text = f"{name} has no model yet ({format_count(count, 'job')}): measure it once"
        return text, "advisor train JOBSCRIPT"
    unchanged_counts = Counter(j.application for j in jobs if not j.changed and j.application)
    if unchanged_counts:
        name, count = unchanged_counts.most_common(1)[0]
        text = f"{name} ran as written in {format_count(count, 'job')}: see what it could do"
        return text, f"advisor options {name}"
    if site:
        return "see promised and measured savings", "advisor report --since 7d"
    return "nothing to do", "advisor jobs"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _percent(change: float | None) -> float | None:
    return None if change is None else 100 * change


def _change_cell(change: float | None) -> str:
    return "-" if change is None else format_change(change)


def _moment_cell(text: str) -> str:
    moment = clock.moment(text) if text else None
    return f"{moment.astimezone():%a %d %b %H:%M}" if moment else "-"
