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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.complaint import LAST, is_harm, last_worse
from advisor.core.reasons import TRIALS
from advisor.loop.verdict import QUANTITIES, promised
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel
from advisor.store.writer import Writer

_COUNTED = ("as-promised", "better", "worse")
_JUDGED = (
    f"verdict IN ({', '.join(map(repr, _COUNTED))}) AND json_extract(record, '$.judged_model') = ?"
)
"""As the index has it."""
_PAGE = 8
"""Jobs read at once: mostly the last three count."""


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
        users = list(judged_by(writer, model))
        sure = _party({user: jobs for user, jobs, _ in users})
        party = _party({user: jobs for user, _, jobs in users})
        if not party.complaints:
            continue
        reason = _reason(party)
        is_own = model.scope == "own"
        if is_own or len(party.complaints) > 1 or (sure.complaints and not sure.content):
            writer.set_model_state(model.id, "suspended", reason)
            suspended.append(Suspension(model, reason))
        else:
            user = next(iter(party.complaints))
            complaints.append(Complaint(model, user, reason))
    return suspended, complaints


def judged_by(
    reader: Reader, model: StoredModel
) -> Iterator[tuple[str, list[Outcome], list[Outcome]]]:
    """Yield each user of a model with their last jobs that count, oldest first: those that count
    without their stamp, and those that count with it.

    Read are these jobs and those between them, however many there are before.
    """
    for user in [model.owner] if model.scope == "own" else _users(reader, model):
        sure: list[Outcome] = []
        stamped: list[Outcome] = []
        for outcome in _newest(reader, model, user):
            for jobs, stamps in ((sure, False), (stamped, True)):
                if len(jobs) < LAST and counts(model, outcome, stamps=stamps):
                    jobs.append(outcome)
            if len(sure) == LAST:  # what counts without its stamp counts with it
                break
        yield user, sure[::-1], stamped[::-1]


def _users(reader: Reader, model: StoredModel) -> Iterator[str]:
    """Yield whose jobs a model was judged by, one look-up in the index for each."""
    # Not SELECT DISTINCT, which reads every job of a model; a store may have millions.
    sql = f"SELECT min(user) FROM outcomes WHERE {_JUDGED} AND user > ?"
    user = ""
    while user := reader.rows(sql, (model.id, user))[0][0]:
        yield user


def _newest(reader: Reader, model: StoredModel, user: str) -> Iterator[Outcome]:
    """Yield a user's jobs that a model was judged by, the last one first, a page at a time."""
    last: tuple[str, str] = ("\U0010ffff", "")  # after all times
    while True:
        page = reader.outcomes(
            f"{_JUDGED} AND user = ? AND (submitted_at, job_id) < (?, ?)",
            (model.id, user, *last),
            newest=_PAGE,
        )
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1].submitted_at, page[-1].job_id


def counts(model: StoredModel, outcome: Outcome, *, stamps: bool = False) -> bool:
    """Tell whether a job may speak for or against a model; ``stamps``: also by its stamp alone."""
    record = outcome.record
    if outcome.verdict not in _COUNTED or record.get("mismatch"):
        return False
    if {"pinned", *TRIALS} & set(outcome.decision.codes):  # the user's own choice; judged by itself
        return False
    if model.scope == "own":
        return outcome.user == model.owner and record.get("trust") in ("verified", "stamped")
    if model.scope == "account" and outcome.account != model.owner:
        return False
    if record.get("trust") == "stamped":
        return stamps and bool(record.get("checked"))
    return record.get("trust") == "verified"


def _party(by_user: Mapping[str, Sequence[Outcome]]) -> _Party:
    complaints, content = {}, []
    for user, last in by_user.items():
        worse = last_worse(last, lambda o: o.verdict == "worse")
        if is_harm(worse, lambda o: bool(o.record.get("far"))):
            complaints[user] = worse
        elif last and not worse:
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
