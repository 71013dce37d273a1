"""A policy tried on the past: the stored requests decided again under it and under today's.

Both are decided by the daemon's own code with the models of today, so that what differs comes from
the policy alone. What a job would take is what its model predicts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from advisor.core.decision import FROM_STAMP, Decision
from advisor.core.policy import PolicySet
from advisor.core.program import checked
from advisor.core.reading import JobReading
from advisor.core.remembered import Remembered
from advisor.core.request import JobRequest
from advisor.core.worth import J_PER_KWH, Tariff
from advisor.service.decide import decide_again
from advisor.service.snapshot import Snapshot, StoreSource
from advisor.store.port import ResultRow
from advisor.store.reader import Reader
from advisor.views.simulated_sums import BothWays, Interval, PolicyEffect, Sums

OLDER = "stored by an older version without what a second decision needs"
STAMP_ONLY = "known from the job's stamp only: a daemon without the store decided"
DAMAGED = "its record is damaged"
_LUCK = 16**16
"""A decision's id is so many possible numbers: what is drawn for the holdout follows from it."""
_BATCH = 2000
"""Decisions decided again between two looks at whether to go on."""
_KNOWN = 128 << 20
"""Bytes of requests that are kept with their answers."""


@dataclass(frozen=True, slots=True)
class AccountSums:
    """What would differ for one account's jobs of one application."""

    account: str
    application: str
    sums: Sums


@dataclass(frozen=True, slots=True)
class Simulation:
    """What another policy would have done with the decisions since a moment.

    ``decisions`` is how many there are, ``undecided`` why how many of them could not be made
    again; ``groups`` are by account and application, what would differ most first.
    """

    since: str
    version: int
    decisions: int
    undecided: Mapping[str, int]
    total: Sums
    groups: tuple[AccountSums, ...]
    reasons: Mapping[tuple[str, str], int]
    tariff: Tariff = field(default_factory=Tariff)

    @property
    def different(self) -> int:
        """How many jobs would have got something else."""
        return self.total.different


def simulate(
    reader: Reader,
    compiled: Mapping[str, object],
    since: datetime,
    *,
    user: str | None = None,
    going_on: Callable[[], bool] = lambda: True,
) -> Simulation:
    """Decide what was asked since a moment again, under a compiled policy and under today's.

    ``user``: only that user's jobs. ``going_on`` is asked now and then; when it says no, what was
    done so far is returned. Requests that are the same share an answer. Raises StoreError.
    """
    present = _snapshot(reader)
    tariff = Tariff.of(reader.site())
    tried_snapshot = replace(
        present, policy=PolicySet.from_compiled(compiled, present.policy.version)
    )
    decided_requests: Remembered[BothWays | str] = Remembered(_KNOWN)
    undecided, reasons = Counter[str](), Counter[tuple[str, str]]()
    total, groups, count = Sums(), dict[tuple[str, str], Sums](), 0
    by_job_name = _match_job_names(present.policy) or _match_job_names(tried_snapshot.policy)
    starts = _starts(reader, since) if tariff.hourly else {}
    for row in _stored_rows(reader, since, user, by_job_name):
        count += 1
        if count % _BATCH == 0 and not going_on():
            break
        key = row[3:]
        both_ways = decided_requests.get(key)
        if both_ways is None:
            both_ways = _both_ways(row, present, tried_snapshot)
            decided_requests.put(key, both_ways, 1500 + sum(len(text or "") for text in key))
        if isinstance(both_ways, str):
            undecided[both_ways] += 1
            continue
        group = groups.setdefault((row["account"], both_ways.application), Sums())
        # ids are random and kept: one luck for both policies, and the same when simulated again
        luck = int(row["id"], 16) / _LUCK if _is_id(row["id"]) else 1.0
        present_effect, tried_effect = (
            _drawn(effect, luck) for effect in (both_ways.now, both_ways.then)
        )
        rate: tuple[float | None, float | None] = (tariff.price, tariff.co2_g)
        if tariff.hourly and present_effect.given != tried_effect.given:
            rate = tariff.during(_start_time(row, starts), both_ways.time_s)
        for sums in (total, group):
            sums.add(both_ways, present_effect, tried_effect, rate)
        if present_effect.given != tried_effect.given:
            reasons[present_effect.reason, tried_effect.reason] += 1
    ordered = sorted(groups.items(), key=lambda item: (-item[1].different, item[0]))
    return Simulation(
        since.isoformat(timespec="seconds").replace("+00:00", "Z"),
        present.policy.version,
        count,
        dict(undecided.most_common()),
        total,
        tuple(AccountSums(*key, sums) for key, sums in ordered),
        dict(reasons.most_common()),
        tariff,
    )


def _snapshot(reader: Reader) -> Snapshot:
    source = StoreSource(reader.path)
    try:
        source.refresh()
    finally:
        source.close()
    return source.snapshot


def _match_job_names(policy: PolicySet) -> bool:
    return any("job_name" in rule.match for rule in policy.rules)


def _stored_rows(
    reader: Reader, since: datetime, user: str | None, by_job_name: bool
) -> Iterator[ResultRow]:
    """Yield the decisions since a moment; all but the first three columns are the request's.

    What no decision depends on is left out, so that the same job submitted again is the same.
    """
    unread = ["$.script_path", "$.fingerprint"] + ([] if by_job_name else ["$.job_name"])
    paths = ", ".join(f"'{path}'" for path in unread)
    last, since_text = 0, since.strftime("%Y-%m-%dT%H:%M:%S")
    whose = "" if user is None else "AND user = :user"
    while True:
        rows = reader.rows(
            "SELECT rowid AS at, id, created_at, account, scheduler, hook, user, application,"
            " json_extract(record, '$.origin') AS origin,"
            f" json_remove(json_extract(record, '$.request'), {paths}) AS request,"
            " json_extract(record, '$.reading') AS reading,"
            " json_extract(record, '$.program') AS program FROM decisions"
            f" WHERE rowid > :last AND created_at >= :after {whose}"
            f" ORDER BY rowid LIMIT {reader.page}",
            {"last": last, "after": since_text, "user": user},
        )
        yield from rows
        if len(rows) < reader.page:
            return
        last = rows[-1]["at"]


def _both_ways(row: ResultRow, present: Snapshot, tried_snapshot: Snapshot) -> BothWays | str:
    """Decide one stored request under both policies; return why where that cannot be."""
    if row["origin"] == FROM_STAMP:
        return STAMP_ONLY
    if row["request"] is None or row["reading"] is None:
        return OLDER
    try:
        reading = JobReading.from_dict(json.loads(row["reading"]))
        names = (row["scheduler"], row["hook"], row["user"], row["account"])
        program = checked(json.loads(row["program"] or "{}"))
        request = JobRequest.from_summary(json.loads(row["request"]), *names, program=program)
        if reading is None:
            return DAMAGED
        present_decision, tried_decision = (
            decide_again(request, reading, site, chance=lambda: 1.0)
            for site in (present, tried_snapshot)
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return DAMAGED
    base = present_decision if present_decision.baseline_time_s is not None else tried_decision
    where = base.baseline
    return BothWays(
        base.application or row["application"],
        base.model_id,
        where.nodes if where else 0,
        math.nan if base.baseline_time_s is None else base.baseline_time_s,
        math.nan if base.baseline_energy_j is None else base.baseline_energy_j,
        _effect(present_decision),
        _effect(tried_decision),
    )


def _effect(decision: Decision) -> PolicyEffect:
    chosen = decision.chosen
    last = decision.codes[-1] if decision.codes else ""
    if not decision.changed or chosen is None:
        return PolicyEffect(reason=last)
    written_options = (*decision.rewrite.items(), *decision.environment.items())
    # a pinned choice is applied to every job, nothing is drawn
    drawn = 0.0 if "pinned" in decision.codes else decision.policy.holdout
    return PolicyEffect(
        tuple(sorted(written_options)),
        chosen.configuration.nodes,
        Interval(*chosen.time),
        Interval(*chosen.energy),
        drawn,
        "chosen",
    )


def _drawn(effect: PolicyEffect, luck: float) -> PolicyEffect:
    """Return what a job gets once it was drawn whether it is left alone."""
    if effect.given and luck < effect.holdout:
        return PolicyEffect(reason="holdout")
    return effect


def _is_id(text: str) -> bool:
    return len(text) == 16 and all(c in "0123456789abcdef" for c in text)


def _starts(reader: Reader, since: datetime) -> dict[str, str]:
    """Return when jobs began, by their decision; of the others the submission stands for it."""
    rows = reader.rows(
        "SELECT decision_id, strftime('%Y-%m-%dT%H:%M:%SZ', json_extract(record, '$.ended_at'),"
        " '-' || CAST(json_extract(record, '$.elapsed_s') AS INTEGER) || ' seconds')"
        " FROM outcomes WHERE decision_id <> '' AND submitted_at >= ?",
        (since.strftime("%Y-%m-%dT%H:%M:%S"),),
    )
    return {row[0]: row[1] for row in rows if row[1]}


def _start_time(row: ResultRow, starts: Mapping[str, str]) -> datetime:
    text = starts.get(row["id"]) or row["created_at"]
    return datetime.fromisoformat(text).astimezone()


def energy_share(simulation: Simulation) -> Interval | None:
    """Return the change of energy as a fraction of what all jobs take today; None: not known."""
    today_kwh = simulation.total.energy_now_j / J_PER_KWH
    if not today_kwh:
        return None
    change = simulation.total.change("energy_kwh")
    return Interval(*(value / today_kwh for value in change))
