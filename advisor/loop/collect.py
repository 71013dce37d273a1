"""Join the scheduler's accounting with the decisions: outcomes, measured runs, suspensions."""

from __future__ import annotations

import gc
import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.observation import Observation, RunMethod, Scope
from advisor.core.policy import PolicySet, scope_of
from advisor.errors import InputError
from advisor.loop import clock
from advisor.loop.accounted import RoomForSignatures, signature_of
from advisor.loop.clock import utc
from advisor.loop.execution import Execution, differs, ran
from advisor.loop.known_jobs import KnownJobs
from advisor.loop.known_models import KnownModels
from advisor.loop.left_results import ended
from advisor.loop.match import MatchedJob, find
from advisor.loop.outcomes import FACTS, facts_of, make_outcome, policy_of
from advisor.loop.past_jobs import MOST
from advisor.loop.rebuilt import REBUILT, let_count, may_teach
from advisor.loop.refit import MOST_REFITS, refit_with_jobs
from advisor.loop.suspend import Complaint, Suspension, review
from advisor.loop.trial_outcomes import free_places, settle_trial
from advisor.loop.verdict import MEASUREMENT_ERROR
from advisor.schedulers.base import JobRecord, Scheduler
from advisor.store.class_models import renew_groups
from advisor.store.pruning import Summed
from advisor.store.reader import array_of
from advisor.store.records import Outcome
from advisor.store.signature_groups import WorkloadGroup, group_of
from advisor.store.signatures import signature_row
from advisor.store.size_models import family_models
from advisor.store.writer import Writer

log = logging.getLogger("advisor.collect")

OVERLAP = timedelta(hours=6)
"""The accounting is read again from this long before the last job known: records come late."""
BATCH = 200
"""Jobs stored in one transaction."""
MOST_LEARNED = 5
"""Priors learned for class models in one collection; jobs that ended most often come first."""


@dataclass(slots=True)
class Collected:
    """What one collection found. ``jobs`` ended; ``known`` of them are as they were; ``outcomes``
    are the new ones without their records, which are in the store.

    ``programs`` were built again and count for their models from now on; ``trials``: how many of
    applications never swept came out in which way, or ``freed`` their place.
    """

    since: str = ""
    jobs: int = 0
    without: int = 0
    known: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    observations: int = 0
    signatures: int = 0
    decisions: int = 0
    programs: int = 0
    trials: Counter[str] = field(default_factory=Counter)
    suspended: list[Suspension] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    fits: list[str] = field(default_factory=list)
    places: dict[tuple[str, str], str] = field(default_factory=dict)
    """By user and folder where sweeps' jobs say their owner leaves results, when one ended last."""

    @property
    def verdicts(self) -> Counter[str]:
        """How many new outcomes have which verdict."""
        return Counter(o.verdict for o in self.outcomes)


def watermark(writer: Writer, scheduler: str, default: datetime) -> datetime:
    """Return from when the accounting has to be read: the last job known, less the overlap."""
    rows = writer.rows(
        "SELECT max(json_extract(record, '$.ended_at')) FROM outcomes WHERE scheduler = ?",
        (scheduler,),
    )
    last = clock.moment(str(rows[0][0] or ""))
    # A clock that was ahead has left times to come.
    return default if last is None else max(default, min(last, clock.now()) - OVERLAP)


def collect(writer: Writer, scheduler: Scheduler, since: datetime) -> Collected:
    """Take over what ended since a moment; doing so again changes nothing.

    Raises SchedulerError when the accounting cannot be read and StoreError when the store cannot
    be written. A single job's record that makes no sense is named in ``failed`` and skipped.
    """
    result = Collected(since=clock.form(since))
    jobs = [j for j in scheduler.finished_jobs(clock.form(since)) if j.finished]
    jobs.sort(key=lambda j: (j.submitted_at, j.job_id))
    result.jobs = len(jobs)
    for job in jobs:
        if job.results and job.user:
            key, at = (job.user, job.results), ended(job.ended_at)
            result.places[key] = max(result.places.get(key, ""), at)
    collection = _Collection(writer, scheduler.NAME, result)
    try:
        for start in range(0, len(jobs), BATCH):
            gc.freeze()  # jobs and outcomes stay: looking for garbage in them took half of the time
            with writer.batch():
                collection.take(jobs[start : start + BATCH])
    finally:
        gc.unfreeze()
    result.trials["freed"] += free_places(writer, scheduler)
    signed = [group for group, _ in collection.signed.most_common(10 * MOST_LEARNED)]
    renew_groups(writer, signed, MOST_LEARNED)
    for fresh in sorted(collection.fresh)[:MOST_REFITS]:
        line = refit_with_jobs(writer, *fresh)
        result.fits += [line] if line else []
    with writer.batch():  # what follows from suspended models is renewed once
        result.suspended, result.complaints = review(writer, collection.to_review)
    for s in result.suspended:
        log.warning(
            "event=suspended model=%d application=%r workload=%r node_type=%s reason=%r",
            s.model.id, s.model.application, s.model.workload, s.model.node_type, s.reason,
        )  # fmt: skip
    for c in result.complaints:
        log.warning(
            "event=complaint model=%d application=%r user=%s reason=%r",
            c.model.id, c.model.application, c.user, c.reason,
        )  # fmt: skip
    return result


class _Collection:
    """One collection at work; ``to_review`` are the models some job of which came out worse."""

    def __init__(self, writer: Writer, scheduler: str, result: Collected) -> None:
        self._writer = writer
        self._scheduler = scheduler
        self._result = result
        self._inventory = writer.inventory()
        self._policies = writer.policy()
        self._runs = _Runs(writer, scheduler)
        self._models = KnownModels(writer)
        self._room = RoomForSignatures(writer)
        self._summed = Summed(writer)
        self._at = ""
        self.to_review: set[int] = set()
        self.signed: Counter[WorkloadGroup] = Counter()
        """Whose jobs of which workload have new signatures, and how many."""

    @property
    def fresh(self) -> set[tuple[str, str, str, Scope, str]]:
        """The models that new runs may help."""
        return self._runs.fresh

    def take(self, jobs: Sequence[JobRecord]) -> None:
        """Take a batch of ended jobs, inside a transaction."""
        self._models.look()
        self._room.look(jobs)
        self._at = clock.form(clock.now())
        known = KnownJobs(self._writer, self._scheduler, jobs)
        for job in jobs:
            self._take_one(job, known)

    def _take_one(self, job: JobRecord, known: KnownJobs) -> None:
        seen = ran(job, self._inventory)
        if self._is_known(job, known, seen):
            self._result.known += 1
            return
        match = find(job, known, brief=True)
        if match is None:
            self._result.without += 1
            return
        key = (self._scheduler, job.job_id, utc(job.submitted_at), utc(job.ended_at))
        if self._summed.has_outcome(*key):
            self._result.known += 1
            return
        try:
            with self._part(match):
                self._take(job, match, seen, known.has_outcome(job))
        except InputError as error:
            self._result.failed.append(f"job {job.job_id}: {error}")
            log.error("event=job-skipped job=%s error=%r", job.job_id, str(error))
        known.written(job)

    def _is_known(self, job: JobRecord, known: KnownJobs, seen: Execution) -> bool:
        """Tell whether a job with a decision is stored, and the accounting says nothing new.

        Each collection sees the jobs of hours again, so this is what takes its time.
        """
        *facts, judged = known.facts(job) or (None,)
        if tuple(facts) != facts_of(job, seen):
            return False
        if isinstance(judged, int):
            self.to_review.add(judged)
        return True

    def _part(self, match: MatchedJob) -> AbstractContextManager[object]:
        """Return what undoes a job's part if its record turns out to make no sense.

        Most jobs need nothing: all is checked before the first row of theirs is written.
        """
        linked = match.trust == "unverified" or (match.stored and match.decision.job_id)
        if linked and REBUILT not in match.decision.codes:
            return nullcontext()
        return self._writer.batch()

    def _take(self, job: JobRecord, match: MatchedJob, seen: Execution, again: bool) -> None:
        writer, result = self._writer, self._result
        signature = signature_of(job, match, seen, self._inventory, self._policies)
        row = signature_row(signature) if signature else ()
        outcome = make_outcome(
            job,
            match,
            scheduler=self._scheduler,
            inventory=self._inventory,
            policies=self._policies,
            reader=self._models,
            seen=seen,
            at=self._at,
        )
        decisions = self._keep_decision(job, match)
        if let_count(writer, job, match, outcome, seen):
            result.programs += 1
            self._models.look()
        observations = self._runs.take(job, match, seen, self._inventory, self._policies)
        if signature is not None and self._room.take(job, match.decision, signature, row):
            result.signatures += 1
            name = match.decision.application, match.decision.workload
            self.signed[name, group_of(signature)] += 1
        if state := settle_trial(writer, job, match, outcome):
            result.trials[state] += 1
        before = _stored(writer, outcome) if again else None
        if before is not None and _same(before, outcome):
            result.known += 1
            outcome = before
        else:
            writer.save_outcome(outcome)
            result.outcomes.append(outcome)
        result.decisions += decisions
        result.observations += observations
        number = outcome.record.get("judged_model")
        if outcome.verdict == "worse" and isinstance(number, int):
            self.to_review.add(number)
        outcome.record.clear()  # it is in the store, and as large as all the rest

    def _keep_decision(self, job: JobRecord, match: MatchedJob) -> int:
        """Link a decision to its job; take over one that came with the job. Returns 1 if taken."""
        if match.trust == "unverified":
            return 0
        decision, job_id = match.decision, array_of(job.job_id)
        if match.stored:
            if not decision.job_id:
                self._writer.link_job(decision.id, job_id)
            return 0
        if self._summed.has_decision(decision.id, decision.created_at):
            return 0
        self._writer.save_decision(replace(decision, scheduler=self._scheduler), job_id=job_id)
        return 1


def _stored(writer: Writer, outcome: Outcome) -> Outcome | None:
    where = "job_id = ? AND scheduler = ? AND submitted_at = ?"
    key = (outcome.job_id, outcome.scheduler, outcome.submitted_at)
    return next(iter(writer.outcomes(where, key)), None)


def _same(old: Outcome, new: Outcome) -> bool:
    """Tell whether the accounting says nothing new; a verdict given stands.

    Policy and inventory may have changed since, but a job is judged once, by what held then.
    """
    return all(getattr(old, name) == getattr(new, name) for name in ("decision_id", *FACTS))


class _Runs:
    """Turns jobs into measured runs, each job once.

    Only jobs that had whole nodes for themselves and ran what was decided, and long enough for
    the accounting's whole seconds to be as good as a measurement.
    """

    def __init__(self, writer: Writer, scheduler: str) -> None:
        self._writer = writer
        self._meter = scheduler
        self._taken: set[tuple[str, str]] | None = None
        self._kept: dict[tuple[object, ...], int] = {}
        self.fresh: set[tuple[str, str, str, Scope, str]] = set()
        """The models that new runs may help: application, workload, node type, scope, owner."""
        self._teaching: dict[tuple[str, str], bool] = {}

    def take(
        self,
        job: JobRecord,
        match: MatchedJob,
        seen: Execution,
        inventory: Inventory,
        policies: PolicySet,
    ) -> int:
        """Store a job's run if it is one to learn from; return how many were stored."""
        run = self._observation(job, match, seen, inventory, policies)
        if run is None:
            return 0
        key = (run.job_id, str(run.extra["submitted_at"]))
        if self._taken is None:
            self._taken = self._known()
        if key in self._taken:
            return 0
        decision = match.decision
        name = decision.application, decision.workload
        if not self._room(*name, run):
            return 0
        self._writer.add_observations(*name, [run])
        self._taken.add(key)
        owner = {"own": run.contributor, "account": run.account, "all": ""}[run.scope]
        self.fresh.add((*name, run.configuration.node_type, run.scope, owner))
        return 1

    def _room(self, application: str, workload: str, run: Observation) -> bool:
        """Tell whether a user's jobs at a configuration may become one more; count it."""
        c = run.configuration
        key = (application, workload, run.contributor, *(getattr(c, n) for n in c.__slots__))
        if key not in self._kept:
            rows = self._writer.rows(
                "SELECT count(*) FROM observations AS o JOIN workloads AS w ON w.id = o.workload_id"
                " WHERE w.application = ? AND w.name = ? AND o.source = 'job' AND o.contributor = ?"
                f" AND {' AND '.join(f'o.{n} = ?' for n in c.__slots__)}",
                key,
            )
            self._kept[key] = int(rows[0][0])
        self._kept[key] += 1
        return self._kept[key] <= MOST

    def _teaches(self, application: str, workload: str) -> bool:
        """Tell whether a workload's model can learn from a job.

        There must be a model, of it or of its family, and no figures of merit: where runs differ in
        length only those can be compared, and the accounting has none.
        """
        key = (application, workload)
        if key not in self._teaching:
            rows = self._writer.rows(
                "SELECT max(o.fom) FROM observations AS o JOIN workloads AS w"
                " ON w.id = o.workload_id WHERE w.application = ? AND w.name = ?",
                key,
            )
            known = self._writer.find_models(*key) or family_models(self._writer, *key)
            self._teaching[key] = rows[0][0] is None and bool(known)
        return self._teaching[key]

    def _known(self) -> set[tuple[str, str]]:
        rows = self._writer.rows(
            "SELECT job_id, extra FROM observations WHERE source = 'job' UNION ALL"
            " SELECT json_extract(record, '$.job_id'), json_extract(record, '$.extra')"
            " FROM forgotten WHERE json_extract(record, '$.source') = 'job'"
        )
        return {(r["job_id"], str(_object(r["extra"]).get("submitted_at", ""))) for r in rows}

    def _observation(
        self,
        job: JobRecord,
        match: MatchedJob,
        seen: Execution,
        inventory: Inventory,
        policies: PolicySet,
    ) -> Observation | None:
        decision = match.decision
        configuration = really_ran(match, seen, inventory)
        if configuration is None or job.state.split()[:1] != ["COMPLETED"]:
            return None
        if job.restarts or not may_teach(self._writer, decision):
            return None
        if seen.whole_nodes is not True or seen.step_failed or not seen.time_s:
            return None
        if seen.resolution_s > MEASUREMENT_ERROR * seen.time_s:
            return None
        if not self._teaches(decision.application, decision.workload):
            return None
        trust = policy_of(decision, job, policies).training.trust
        program = dict(decision.program)
        return Observation(
            configuration,
            seen.time_s,
            seen.energy_j,
            energy_quality="missing" if seen.energy_j is None else "measured",
            meter="" if seen.energy_j is None else self._meter,
            source="job",
            contributor=job.user,
            account=job.account,
            scope=scope_of(trust, job.account),
            job_id=job.job_id,
            extra={
                "submitted_at": clock.utc(job.submitted_at),
                "resolution_s": seen.resolution_s,
                "decision": decision.id,
                **({"program": program} if program else {}),
            },
            method=applied(decision, seen),
        )


def really_ran(match: MatchedJob, seen: Execution, inventory: Inventory) -> Configuration | None:
    """Return the configuration a job ran, None when accounting and decision leave it open.

    Cores and ranks are the decision's where the accounting does not tell them; so a decision that
    was made for a neighbouring point, or for another workload's model, does not count.
    """
    decision = match.decision
    if match.trust == "unverified" or not decision.application:
        return None
    if {"baseline-nearest", "workload-fallback"} & set(decision.codes):
        return None
    wanted = decision.configuration
    return None if wanted is None or differs(wanted, seen, inventory) else wanted


def applied(decision: Decision, seen: Execution) -> RunMethod:
    """Return how a job's threads were changed, "" where they were not.

    A step with fewer cores than the job was written for shows a smaller request, as decisions of
    earlier versions made them.
    """
    cores = decision.baseline.threads_per_node if decision.baseline else 0
    chosen = decision.chosen.configuration.threads_per_node if decision.chosen else 0
    if not decision.changed or chosen == cores:
        return ""
    smaller = 0 < seen.threads_per_node < cores
    return "request" if smaller or "cpus-per-task" in decision.rewrite else "variables"


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
