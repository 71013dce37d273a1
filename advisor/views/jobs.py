"""The latest decisions, one line each: what was changed, what was promised, what came out."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.core.decision import Decision
from advisor.core.reasons import TRIALS
from advisor.core.words import change_words, difference_words
from advisor.store import listing
from advisor.store.reader import Reader
from advisor.store.records import Outcome
from advisor.views.decision import cause_of
from advisor.views.why import VERDICTS

UNDECIDED = "not collected yet"


@dataclass(frozen=True, slots=True)
class Job:
    """One decision. ``promised`` and ``outcome`` are in words, "" where there is none."""

    decision: Decision
    what: str
    promised: str
    outcome: str
    verdict: str


def page(
    reader: Reader, *, user: str | None = None, offset: int = 0, limit: int = 100
) -> list[Job]:
    """Return decisions of one user, or of all, newest first."""
    decisions = reader.decisions(user=user, offset=offset, limit=limit)
    outcomes = listing.outcomes_of(reader, decisions)
    return [_job(d, outcomes.get(d.id)) for d in decisions]


def _job(decision: Decision, outcome: Outcome | None) -> Job:
    d, chosen = decision, decision.chosen
    what = cause_of(d.reasons) or "nothing would be changed"
    promised = ""
    if d.changed and chosen is not None:
        estimated = d.energy_quality == "estimated"
        what = difference_words(d.baseline, chosen.configuration)
        if not TRIALS.isdisjoint(d.codes):
            what = f"trial: {what}"
        promised = change_words(
            chosen.energy.change, chosen.time.change, estimated=estimated, brief=True
        )
        if not TRIALS.isdisjoint(d.codes):
            promised = f"trial: {promised}"
    verdict = outcome.verdict if outcome is not None else ""
    return Job(d, what, promised, _outcome(outcome, d), verdict)


def _outcome(outcome: Outcome | None, decision: Decision) -> str:
    """Return the measured change against what was predicted for the job as it was asked for."""
    if outcome is None:
        return UNDECIDED if decision.job_id else "no job known"
    if outcome.verdict == "left-alone":
        return "as you wrote it" if outcome.state == "COMPLETED" else outcome.state.lower()
    time, energy = decision.baseline_time_s, decision.baseline_energy_j
    if outcome.failure or not (outcome.time_s and time):
        return VERDICTS.get(outcome.verdict, outcome.verdict)
    change = outcome.energy_j / energy - 1 if outcome.energy_j and energy else None
    return change_words(change, outcome.time_s / time - 1, brief=True)
