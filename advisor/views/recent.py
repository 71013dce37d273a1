"""The jobs of the last days, a line each, and what a week of them comes to."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, cast

from advisor.core.codec import Count, JsonForm
from advisor.core.decision import Decision, number_or_none
from advisor.core.units import format_change, format_count
from advisor.core.words import difference_words
from advisor.core.worth import J_PER_KWH, EnergyWorth, Tariff, format_kwh
from advisor.loop import clock
from advisor.loop.verdict import Verdict
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
    "GPUs",
    "worth",
    "came out",
)
MOST = 5000
"""Jobs that are read at most, about a second of work: a site has millions."""
_ARRAY = re.compile(r"[_\[]")
_NO_MODEL = "no-model"


@dataclass(frozen=True, slots=True)
class RecentJob(JsonForm):
    """A job of the last days; changes of energy and time are in percent, None where not known.

    ``verdict`` is None until it was collected; ``change`` says in words what was changed, or why
    nothing was.
    """

    JSON = (
        "job",
        "ended_at",
        "application",
        "workload",
        "changed",
        "change",
        "promised_pct",
        "promised_time_pct",
        "measured_pct",
        "measured_time_pct",
        "kwh",
        "gpu_kwh",
        "money",
        "currency",
        "verdict",
        "user",
        "state",
        "cluster",
    )

    job: str
    user: str
    ended_at: Annotated[str | None, "null: not collected yet"]
    decided_at: str
    application: str
    workload: str
    changed: bool
    change: str
    promised_pct: Annotated[float | None, "energy"]
    promised_time_pct: float | None
    measured_pct: float | None
    measured_time_pct: float | None
    energy_j: float | None
    energy_gpu_j: float | None
    saved_j: float | None
    verdict: Verdict | None
    state: str
    code: str
    cluster: Annotated[str, "empty where it is not known"]
    tariff: Tariff

    @property
    def kwh(self) -> float | None:
        """What it used."""
        return None if self.energy_j is None else self.energy_j / J_PER_KWH

    @property
    def gpu_kwh(self) -> float | None:
        """What its GPUs took, where that is known."""
        return None if self.energy_gpu_j is None else self.energy_gpu_j / J_PER_KWH

    @property
    def money(self) -> float | None:
        """What that cost, where the site states a price."""
        return None if self.energy_j is None else self.tariff.worth(self.energy_j).money

    @property
    def currency(self) -> str:
        """Of the site's price."""
        return self.tariff.currency

    def row(self) -> tuple[str, ...]:
        """Return the cells of :data:`HEADS`."""
        return (
            self.job,
            _moment_cell(self.ended_at),
            self.application or "-",
            self.change,
            _change_cell(self.promised_pct),
            _change_cell(self.measured_pct),
            "-" if self.kwh is None else format_kwh(self.kwh),
            "" if self.gpu_kwh is None else format_kwh(self.gpu_kwh),
            "" if self.money is None else self.tariff.money(self.money),
            _BRIEF.get(self.verdict or "", VERDICTS.get(self.verdict or "", UNDECIDED)),
        )


@dataclass(frozen=True, slots=True)
class JobsAnswer(JsonForm):
    """The jobs of the last days, the latest first; changes are in percent against the job as
    written.
    """

    since: str
    complete: Annotated[bool, "false: only the latest jobs are there"]
    jobs: Sequence[RecentJob]


_BRIEF = {"left-alone": "as you wrote it", "better": "better", "worse": "worse"}


def recent_jobs(
    reader: Reader, since: datetime, user: str | None, tariff: Tariff, cluster: str = ""
) -> tuple[list[RecentJob], bool]:
    """Return the jobs of a user, or of all, submitted since a moment; the latest first.

    ``cluster``: only those of one cluster.

    Those that were collected, and decisions whose job was not collected yet. Of more than
    :data:`MOST` they are those submitted last; the second value tells whether they are all.
    """
    moment = clock.form(since)
    named = (("user", user), ("cluster", cluster or None))
    whose = "".join(f" AND {name} = ?" for name, value in named if value is not None)
    values = [value for _, value in named if value is not None]
    outcomes = reader.outcomes(f"submitted_at >= ?{whose}", (moment, *values), newest=MOST)
    decisions = reader.decisions_since(moment, user, cluster, newest=MOST)
    decided_ids = {o.decision_id for o in outcomes}
    # a decision whose cluster is not known may be of any
    ended = {(c, _ARRAY.split(o.job_id)[0]) for o in outcomes for c in (o.cluster, "")}
    pending = [
        d
        for d in decisions
        if d.id not in decided_ids and (d.cluster, _ARRAY.split(d.job_id)[0]) not in ended
    ]
    jobs = [_job(o.decision, o, tariff) for o in outcomes]
    jobs += [_job(d, None, tariff) for d in pending]
    jobs.sort(key=lambda j: (j.ended_at or "9", j.decided_at, j.job), reverse=True)
    return jobs, max(len(outcomes), len(decisions)) < MOST


def last_job(reader: Reader, user: str, cluster: str = "") -> tuple[str, str]:
    """Return a user's latest job, on a cluster or any, and its cluster; "" where there is none."""
    latest = [
        reader.rows(f"{sql} AND ? IN ('', cluster) ORDER BY 1 DESC LIMIT 1", (user, cluster))
        for sql in (
            "SELECT submitted_at, job_id, cluster FROM outcomes WHERE user = ?",
            "SELECT created_at, job_id, cluster FROM decisions WHERE user = ? AND job_id <> ''",
        )
    ]
    _, job, name = max((tuple(row) for rows in latest for row in rows), default=("", "", ""))
    return str(job), str(name)


def _job(d: Decision, outcome: Outcome | None, tariff: Tariff) -> RecentJob:
    chosen = d.chosen if d.changed else None
    time_s, energy_j = (outcome.time_s, outcome.energy_j) if outcome else (None, None)
    ran = (outcome.record.get("ran") or {}) if outcome else {}
    change = cause_of(d.reasons) or "nothing"
    if chosen is not None:
        change = difference_words(d.baseline, chosen.configuration)
    base_s, base_j = d.baseline_time_s, d.baseline_energy_j
    if outcome is not None and outcome.failure:
        base_s = base_j = None
    saved_j = base_j - energy_j if chosen and energy_j is not None and base_j else None
    return RecentJob(
        outcome.job_id if outcome else d.job_id,
        outcome.user if outcome else d.user,
        str(outcome.record.get("ended_at") or "") or None if outcome else None,
        outcome.submitted_at if outcome else d.created_at,
        d.application,
        d.workload,
        chosen is not None,
        change,
        _percent(chosen.energy.change) if chosen else None,
        _percent(chosen.time.change) if chosen else None,
        _percent(energy_j / base_j - 1) if energy_j is not None and base_j else None,
        _percent(time_s / base_s - 1) if time_s is not None and base_s else None,
        energy_j,
        number_or_none(ran.get("energy_gpu_j")),
        saved_j,
        cast("Verdict", outcome.verdict) if outcome else None,
        outcome.state if outcome else "",
        next((r.code for r in d.reasons if r.changes_nothing), ""),
        outcome.cluster if outcome else d.cluster,
        tariff,
    )


@dataclass(frozen=True, slots=True)
class NoteAnswer(JsonForm):
    """What a span of jobs comes to, one suggestion and its command."""

    JSON = (
        "since",
        "whose",
        "jobs",
        "complete",
        "changed",
        "metered",
        "kwh",
        "saved_kwh",
        "worse",
        "worth",
        "suggestion",
        "command",
    )

    since: str
    whose: Annotated[str, 'the user, "" for the whole site']
    jobs: Count
    changed: Count
    metered: Count
    energy_j: float
    saved_j: float | None
    worse: Count
    suggestion: str
    command: str
    tariff: Tariff
    complete: Annotated[bool, "false: only the latest jobs count"] = True

    @property
    def day(self) -> str:
        """The first one, local time."""
        return f"{datetime.fromisoformat(self.since).astimezone():%Y-%m-%d}"

    @property
    def kwh(self) -> float:
        """What they used."""
        return self.energy_j / J_PER_KWH

    @property
    def saved_kwh(self) -> float | None:
        """What changes saved."""
        return None if self.saved_j is None else self.saved_j / J_PER_KWH

    @property
    def worth(self) -> EnergyWorth:
        """What their energy is worth."""
        return self.tariff.worth(self.energy_j)

    def lines(self) -> list[str]:
        """Return it as lines."""
        whose = f"jobs of {self.whose}" if self.whose else "all jobs of the site"
        lines = [f"{whose} since {self.day}", ""]
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
) -> NoteAnswer:
    """Sum jobs up; ``whose``: the user's name, "" for the whole site.

    ``complete``: they are all since then.
    """
    saved = [j.saved_j for j in jobs if j.saved_j is not None]
    suggestion, command = _suggest(jobs, site=not whose)
    energies = [j.energy_j for j in jobs if j.energy_j is not None]
    return NoteAnswer(
        clock.form(since),
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


def _percent(change: float) -> float | None:
    return 100 * change if math.isfinite(change) else None


def _change_cell(change_pct: float | None) -> str:
    return "-" if change_pct is None else format_change(change_pct / 100)


def _moment_cell(text: str | None) -> str:
    moment = clock.moment(text) if text else None
    return f"{moment.astimezone():%a %d %b %H:%M}" if moment else "-"
