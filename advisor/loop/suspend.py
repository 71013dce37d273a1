"""Suspend a model whose advised jobs turn out worse than it promised.

A user *complains* about a model when 2 of the last 3 of their advised jobs were worse, or when
one was slower than promised by far: beyond the interval's upper end by more than the policy's
``max_slowdown``. A user is *content* when they have advised jobs and none of the last 3 was
worse. Only jobs count that ran what was decided, as decided, and whose promise can be trusted;
trials are judged by themselves (:mod:`advisor.loop.trial_outcomes`):

- a user's own model is suspended when its owner complains;
- a shared model (scope ``account`` or ``all``) is suspended when two users complain, or when one
  does over decisions that this site's own daemon made for that very user and no other user is
  content. Decisions known by stamp alone (made on login nodes) count only for the first, and
  only where their promise is the stored model's own.

So nobody suspends by wrong work a model that serves somebody else well, and nobody at all by a
forged stamp. What is left: a user can suspend a shared model that nobody else has used since it
was fitted, and two users together can suspend any; the jobs then run as their users wrote them,
until ``advisor fit``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.complaint import is_harm, last_worse
from advisor.core.reasons import TRIAL
from advisor.loop.verdict import QUANTITIES, promised
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel
from advisor.store.writer import Writer

_COUNTED = ("as-promised", "better", "worse")


@dataclass(frozen=True, slots=True)
class Suspension:
    """A model that was suspended, and the reason as it is stored with it."""

    model: StoredModel
    reason: str


@dataclass(frozen=True, slots=True)
class Complaint:
    """A user whose jobs came out worse while the model stays, because others are content."""

    model: StoredModel
    user: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Party:
    """The users of one model: who complains, with which jobs, and who is content."""

    complaints: dict[str, tuple[Outcome, ...]]
    content: tuple[str, ...]


def review(writer: Writer, ids: Iterable[int]) -> tuple[list[Suspension], list[Complaint]]:
    """Suspend those of the given models that deserve it; return what was done and what was not."""
    suspended: list[Suspension] = []
    complaints: list[Complaint] = []
    for model in list(writer.models(ids)):
        if model.state != "fitted":
            continue
        outcomes = judged_by(writer, model)
        sure = _party(o for o in outcomes if counts(model, o))
        party = _party(o for o in outcomes if counts(model, o, stamps=True))
        if not party.complaints:
            continue
        reason = _reason(party)
        own = model.scope == "own"
        if own or len(party.complaints) > 1 or (sure.complaints and not sure.content):
            writer.set_model_state(model.id, "suspended", reason)
            suspended.append(Suspension(model, reason))
        else:
            user = next(iter(party.complaints))
            complaints.append(Complaint(model, user, reason))
    return suspended, complaints


def judged_by(reader: Reader, model: StoredModel) -> list[Outcome]:
    """Return the outcomes that say how a model's jobs came out, oldest first."""
    verdicts = ", ".join(f"'{verdict}'" for verdict in _COUNTED)  # as the index has them
    where = f"verdict IN ({verdicts}) AND json_extract(record, '$.judged_model') = ?"
    return reader.outcomes(where, (model.id,))


def counts(model: StoredModel, outcome: Outcome, *, stamps: bool = False) -> bool:
    """Tell whether a job may speak for or against a model; ``stamps``: also by its stamp alone."""
    record = outcome.record
    if outcome.verdict not in _COUNTED or record.get("mismatch"):
        return False
    if {"pinned", TRIAL} & set(outcome.decision.codes):  # the user's own choice; judged by itself
        return False
    if model.scope == "own":
        return outcome.user == model.owner and record.get("trust") in ("verified", "stamped")
    if model.scope == "account" and outcome.account != model.owner:
        return False
    if record.get("trust") == "stamped":
        return stamps and bool(record.get("checked"))
    return record.get("trust") == "verified"


def _party(outcomes: Iterable[Outcome]) -> _Party:
    by_user: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_user[outcome.user].append(outcome)
    complaints, content = {}, []
    for user, jobs in by_user.items():
        worse = last_worse(jobs, lambda o: o.verdict == "worse")
        if is_harm(worse, lambda o: bool(o.record.get("far"))):
            complaints[user] = worse
        elif not worse:
            content.append(user)
    return _Party(complaints, tuple(content))


def _reason(party: _Party) -> str:
    parts = []
    for jobs in party.complaints.values():
        for o in jobs:
            parts.append(f"{o.job_id} ({how(o)})")
    shown = ", ".join(parts[:5]) + (f" and {len(parts) - 5} more" if len(parts) > 5 else "")
    return f"worse than promised: job{'s' if len(parts) > 1 else ''} {shown}"


def how(outcome: Outcome) -> str:
    """Return in a few words what was worse: ``time +42 %, energy +3 %``, against the promise."""
    if outcome.state == "TIMEOUT":
        return "time limit"
    chosen, parts = outcome.decision.chosen, []
    measured = {"time": outcome.time_s, "energy": outcome.energy_j}
    for quantity in QUANTITIES:
        value, promise = measured[quantity], promised(chosen, quantity)
        if value and promise:
            parts.append(f"{quantity} {(value / promise.value - 1) * 100:+.0f} %")
    return ", ".join(parts).replace("-", "−")
