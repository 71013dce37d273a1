"""The latest decisions, one line each: what was changed, what was promised, what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.decision import changed as is_changed
from advisor.service.message import describe_choice
from advisor.store import listing
from advisor.store.reader import Reader
from advisor.store.records import Outcome
from advisor.views.decision import explanation, why_not
from advisor.views.options import in_words
from advisor.views.why import VERDICTS

UNDECIDED = "not collected yet"


@dataclass(frozen=True, slots=True)
class Job:
    """One decision. ``promised`` and ``outcome`` are in words, "" where there is none."""

    decision: str
    job_id: str
    when: str
    user: str
    application: str
    workload: str
    changed: bool
    what: str
    promised: str
    outcome: str
    verdict: str
    record: Mapping[str, Any]


def page(
    reader: Reader, *, user: str | None = None, offset: int = 0, limit: int = 100
) -> list[Job]:
    """Return decisions of one user, or of all, newest first."""
    records = listing.page_of_decisions(reader, user=user, offset=offset, limit=limit)
    outcomes = listing.outcomes_of(reader, [r["job_id"] for r in records if r["job_id"]])
    return [_job(r, outcomes.get(r["job_id"])) for r in records]


def _job(record: Mapping[str, Any], outcome: Outcome | None) -> Job:
    changed = is_changed(record)
    predicted = record.get("predicted")
    promised = ""
    if changed and predicted:
        promised = in_words(
            predicted["energy_pct"] / 100,
            predicted["time_pct"] / 100,
            estimated=predicted.get("energy_quality") == "estimated",
            brief=True,
        )
    return Job(
        decision=str(record["decision"]),
        job_id=str(record["job_id"]),
        when=str(record.get("created_at") or ""),
        user=str(record.get("user") or ""),
        application=str(record.get("application") or ""),
        workload=str(record.get("workload") or ""),
        changed=changed,
        what=_what(record, changed),
        promised=promised,
        outcome=_outcome(outcome, record),
        verdict=outcome.verdict if outcome is not None else "",
        record=record,
    )


def _what(record: Mapping[str, Any], changed: bool) -> str:
    baseline, chosen = record.get("baseline"), record.get("chosen")
    if changed and baseline and chosen:
        return describe_choice(Configuration.from_dict(baseline), Configuration.from_dict(chosen))
    codes = [str(c) for c in record.get("reasons") or ()]
    return why_not(codes, explanation(record)).removeprefix("nothing changed: ")


def _outcome(outcome: Outcome | None, record: Mapping[str, Any]) -> str:
    """Return the measured change against what was predicted for the job as it was asked for."""
    if outcome is None:
        return UNDECIDED if record.get("job_id") else "no job known"
    if outcome.verdict == "left-alone":
        return "as you wrote it" if outcome.state == "COMPLETED" else outcome.state.lower()
    baseline = record.get("baseline") or {}
    time, energy = baseline.get("time_s"), baseline.get("energy_j")
    if not (outcome.time_s and time):
        return VERDICTS.get(outcome.verdict, outcome.verdict)
    change = outcome.energy_j / energy - 1 if outcome.energy_j and energy else None
    return in_words(change, outcome.time_s / time - 1, brief=True)
