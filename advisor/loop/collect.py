"""Join the scheduler's accounting with the decisions: outcomes, measured runs, suspensions."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from advisor.core.cluster_name import cluster_name, same_cluster
from advisor.core.observation import Scope
from advisor.database import DatabaseAddress
from advisor.errors import InputError, SchedulerError
from advisor.loop import clock
from advisor.loop.accounted import RoomForSignatures, signature_of
from advisor.loop.clock import utc
from advisor.loop.day_sums import kept_right, sum_days
from advisor.loop.execution import IMPOSSIBLE, Execution, ran
from advisor.loop.known_jobs import KnownJobs
from advisor.loop.left_results import ended
from advisor.loop.match import MatchedJob, find
from advisor.loop.outcomes import FACTS, JobSite, facts_of, make_outcome
from advisor.loop.rebuilt import REBUILT, let_count
from advisor.loop.refit import MOST_REFITS, refit_with_jobs
from advisor.loop.reported_jobs import ReportedJob, reported_job
from advisor.loop.runs_of_jobs import RunsOfJobs
from advisor.loop.suspend import Complaint, Suspension, review
from advisor.loop.trial_outcomes import free_places, settle_trial
from advisor.schedulers.base import JobRecord, Scheduler
from advisor.store.clusters import take_in
from advisor.store.job_places import WorkloadNumbers
from advisor.store.pruning import Summed
from advisor.store.reader import Reader, array_of
from advisor.store.records import Outcome, StoredModel
from advisor.store.rows import OUTCOME_KEY, OutcomeKey
from advisor.store.signature_groups import WorkloadGroup, group_of
from advisor.store.signatures import signature_row
from advisor.store.stale_histories import touch_histories
from advisor.store.writer import Writer, outcome_row

log = logging.getLogger("advisor.collect")

OVERLAP = timedelta(hours=6)
"""The accounting is read again from this long before the last job known: records come late."""
BATCH = 500
"""Jobs stored in one transaction, which others who write wait for: about 0.2 s."""
BATCH_OF_DATABASE = 100
"""The same in a database, where each statement is a message: the collections of other clusters take
their turns between two of them."""
_NEWEST = 500
"""Outcomes stored last, among which the last job is looked for: a store may have millions."""


@dataclass(slots=True)
class Collected:
    """What one collection found. ``jobs`` ended; ``known`` of them are as they were; ``outcomes``
    are the new ones without their records, which are in the store.

    ``programs`` were built again and count for their models from now on; ``trials``: how many of
    applications never swept came out in which way, or ``freed`` their place.
    """

    since: str = ""
    cluster: str = ""
    jobs: int = 0
    without: int = 0
    known: int = 0
    impossible: int = 0
    """New outcomes whose meter said what their nodes cannot have used."""
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


def watermark(writer: Writer, scheduler: str, default: datetime, cluster: str = "") -> datetime:
    """Return from when the accounting has to be read: the last job known, less the overlap.

    The last job is looked for among those stored last; if it is none of them, more is read again.
    """
    rows = writer.rows(
        "SELECT max(json_extract(record, '$.ended_at')) FROM (SELECT record FROM outcomes"
        " WHERE scheduler = ? AND ? IN (cluster, '') ORDER BY rowid DESC LIMIT ?) AS latest",
        (scheduler, cluster, _NEWEST),
    )
    last = clock.moment(str(rows[0][0] or ""))
    # A clock that was ahead has left times to come.
    return default if last is None else max(default, min(last, clock.now()) - OVERLAP)


def collect(writer: Writer, scheduler: Scheduler, since: datetime, cluster: str = "") -> Collected:
    """Take over what ended on a cluster since a moment; doing so again changes nothing.

    Where the cluster is not known, it is what the accounting says of its jobs.

    Raises SchedulerError when the accounting cannot be read and StoreError when the store cannot
    be written. A single job's record that makes no sense is named in ``failed`` and skipped.
    """
    result = Collected(since=clock.form(since))
    jobs = [j for j in scheduler.finished_jobs(clock.form(since)) if j.finished]
    cluster = result.cluster = cluster or _only_cluster(jobs)
    jobs = [replace(j, cluster=cluster) for j in jobs if same_cluster(j.cluster, cluster)]
    if cluster:
        take_in(writer, cluster, scheduler.NAME)
    jobs.sort(key=lambda j: (j.submitted_at, j.job_id))
    result.jobs = len(jobs)
    for job in jobs:
        if job.results and job.user:
            key, ended_at = (job.user, job.results), ended(job.ended_at)
            result.places[key] = max(result.places.get(key, ""), ended_at)
    try:
        _take_over(writer, scheduler, jobs, result)
    finally:
        gc.unfreeze()  # see _take_over
    for s in result.suspended:
        log.warning(
            "event=suspended model=%d application=%r workload=%r node_type=%s reason=%r",
            s.model.id,
            s.model.application,
            s.model.workload,
            s.model.node_type,
            s.reason,
        )
    for c in result.complaints:
        log.warning(
            "event=complaint model=%d application=%r user=%s reason=%r",
            c.model.id,
            c.model.application,
            c.user,
            c.reason,
        )
    return result


def _only_cluster(jobs: Sequence[JobRecord]) -> str:
    """Return the cluster that the accounting says all jobs are of, "" where it says nothing.

    Raises SchedulerError where they are of several, as a federation shows them.
    """
    names = sorted({cluster_name(job.cluster) for job in jobs})
    if len(names) > 1:
        raise SchedulerError(
            f"the accounting shows jobs of several clusters: {', '.join(names)}",
            hint="name the one to collect: advisor collect --cluster NAME",
        )
    return names[0] if names else ""


def _take_over(
    writer: Writer, scheduler: Scheduler, jobs: Sequence[JobRecord], result: Collected
) -> None:
    """Store what ended jobs say, suspend what they refute, then fit again what they support.

    What follows from all that is only marked stale.
    """
    collection = _Collection(writer, scheduler.NAME, result.cluster, result)
    step = BATCH_OF_DATABASE if isinstance(writer.path, DatabaseAddress) else BATCH
    for start in range(0, len(jobs), step):
        gc.freeze()  # jobs and outcomes stay: looking for garbage in them took half of the time
        with writer.batch():
            collection.take(jobs[start : start + step])
    result.trials["freed"] += free_places(writer, scheduler, result.cluster)
    with writer.batch():
        result.suspended, result.complaints = review(writer, collection.to_review)
    sum_days(writer)
    for fresh in sorted(collection.fresh)[:MOST_REFITS]:
        line = refit_with_jobs(writer, *fresh)
        result.fits += [line] if line else []


class _Collection:
    """One collection at work; ``to_review`` are the models some job of which came out worse."""

    def __init__(self, writer: Writer, scheduler: str, cluster: str, result: Collected) -> None:
        self._writer = writer
        self._scheduler, self._cluster = scheduler, cluster
        self._result = result
        self._inventory = writer.inventory(cluster)
        self._policies = writer.policy()
        self._numbers = WorkloadNumbers(writer)
        self._runs = RunsOfJobs(writer, scheduler, self._inventory, self._policies, self._numbers)
        self._models = KnownModels(writer)
        self._room = RoomForSignatures(writer, self._numbers)
        self._summed = Summed(writer)
        self._at = ""
        self._outcomes: list[tuple[object, ...]] = []
        self._reported: dict[OutcomeKey, ReportedJob | None] = {}
        """What waits to be written: rows, and the same as reports count them."""
        self._links: list[tuple[str, str, str]] = []
        """Decisions, their jobs and clusters, which the store is to be told."""
        self.to_review: set[int] = set()
        self._signed: Counter[WorkloadGroup] = Counter()
        """Whose jobs of which workload have new signatures, and how many, in this batch."""
        self._identities: set[str] = set()
        """What jobs of this batch are whose parts are known."""

    @property
    def fresh(self) -> set[tuple[str, str, str, Scope, str]]:
        """The models that new runs may help."""
        return self._runs.fresh

    def take(self, jobs: Sequence[JobRecord]) -> None:
        """Take a batch of ended jobs, inside a transaction."""
        self._models.look()
        self._at = clock.form(clock.now())
        known_jobs = KnownJobs(self._writer, self._scheduler, self._cluster, jobs, self._write)
        whose = known_jobs.whose()
        self._numbers.look({(application, workload) for application, workload, _ in whose})
        self._room.look(jobs, whose)
        self._runs.look(jobs, whose)
        for job in jobs:
            self._take_job(job, known_jobs)
        self._write()
        self._writer.touch_groups(group for group, _ in self._signed.most_common())
        self._signed.clear()
        if self._identities:
            touch_histories(self._writer, sorted(self._identities))
            self._identities.clear()

    def _write(self) -> None:
        """Write what waits: most rows go into the store together, which is much quicker."""
        self._room.write()
        self._runs.write()
        if self._links:
            self._writer.link_jobs(self._links)
            self._links.clear()
        rows, self._outcomes = self._outcomes, []
        jobs, self._reported = self._reported, {}
        with kept_right(self._writer, jobs):
            self._writer.save_outcomes(rows)

    def _take_job(self, job: JobRecord, known_jobs: KnownJobs) -> None:
        execution = ran(job, self._inventory)
        if self._is_known(job, known_jobs, execution):
            self._result.known += 1
            return
        match = find(job, known_jobs, brief=True)
        if match is None:
            self._result.without += 1
            return
        key = (job.job_id, self._scheduler, self._cluster, utc(job.submitted_at))
        if self._summed.has_outcome(key, utc(job.ended_at)):
            self._result.known += 1
            return
        try:
            with self._batch_of_job(match):
                self._store_job(job, match, execution, known_jobs.has_outcome(job))
        except InputError as error:
            self._result.failed.append(f"job {job.job_id}: {error}")
            log.error("event=job-skipped job=%s error=%r", job.job_id, str(error))
        known_jobs.written(job)

    def _is_known(self, job: JobRecord, known_jobs: KnownJobs, execution: Execution) -> bool:
        """Tell whether a job with a decision is stored, and the accounting says nothing new.

        Each collection sees the jobs of hours again, so this is what takes its time.
        """
        *facts, gpu_j, judged = known_jobs.facts(job) or (None, None)
        if tuple(facts) != facts_of(job, execution):
            return False
        if execution.energy_gpu_j not in (None, gpu_j):
            return False  # it may come some time after the job's end
        if isinstance(judged, int):
            self.to_review.add(judged)
        return True

    def _batch_of_job(self, match: MatchedJob) -> AbstractContextManager[object]:
        """Return what undoes a job's part if its record turns out to make no sense.

        Most jobs need nothing: all is checked before the first row of theirs is written.
        """
        stored = match.trust == "unverified" or match.stored
        if stored and REBUILT not in match.decision.codes:
            return nullcontext()
        return self._separate_batch()

    @contextmanager
    def _separate_batch(self) -> Iterator[None]:
        """Write what waits, then what is written inside: an InputError undoes that alone."""
        self._write()
        try:
            with self._writer.batch():
                yield
                self._write()
        except InputError:
            self._outcomes.clear()
            self._reported.clear()
            self._links.clear()
            self._room.drop()
            self._runs.drop()
            self._numbers.drop()
            raise

    def _store_job(
        self, job: JobRecord, match: MatchedJob, execution: Execution, may_be_stored: bool
    ) -> None:
        writer, result = self._writer, self._result
        signature = signature_of(job, match, execution, self._inventory, self._policies)
        row = signature_row(signature) if signature else ()
        outcome = make_outcome(
            job,
            match,
            JobSite(self._scheduler, self._inventory, self._policies, self._models, self._cluster),
            execution=execution,
            collected_at=self._at,
        )
        result.impossible += execution.energy_note == IMPOSSIBLE
        decisions = self._keep_decision(job, match)
        if let_count(writer, job, match, outcome, execution):
            result.programs += 1
            self._models.look()
        observations = self._runs.take(job, match, execution)
        if signature is not None and self._room.take(job, match.decision, signature, row):
            result.signatures += 1
            name = match.decision.application, match.decision.workload
            self._signed[name, group_of(signature)] += 1
        if state := settle_trial(writer, job, match, outcome):
            result.trials[state] += 1
        former = _stored_outcome(writer, outcome) if may_be_stored else None
        if former is not None and _same_facts(former, outcome):
            result.known += 1
            outcome = former
        else:
            self._outcomes.append(outcome_row(outcome))
            key = outcome.job_id, outcome.scheduler, outcome.cluster, outcome.submitted_at
            self._reported[key] = reported_job(outcome)
            result.outcomes.append(outcome)
        result.decisions += decisions
        result.observations += observations
        if "parts" in outcome.record:
            self._identities.add(match.decision.identity)
        number = outcome.record.get("judged_model")
        if outcome.verdict == "worse" and isinstance(number, int):
            self.to_review.add(number)
        outcome.record.clear()  # its row has it, and it is as large as all the rest

    def _keep_decision(self, job: JobRecord, match: MatchedJob) -> int:
        """Link a decision to its job; take over one that came with the job. Returns 1 if taken."""
        if match.trust == "unverified":
            return 0
        decision, job_id = match.decision, array_of(job.job_id)
        if match.stored:
            if not decision.job_id:
                self._links.append((decision.id, job_id, job.cluster))
            return 0
        if self._summed.has_decision(decision.id, decision.created_at):
            return 0
        self._writer.save_decision(replace(decision, scheduler=self._scheduler), job_id=job_id)
        return 1


def _stored_outcome(writer: Writer, outcome: Outcome) -> Outcome | None:
    where = " AND ".join(f"{name} = ?" for name in OUTCOME_KEY)
    return next(iter(writer.outcomes(where, outcome.key)), None)


def _same_facts(old: Outcome, new: Outcome) -> bool:
    """Tell whether the accounting says nothing new; a verdict given stands.

    Policy and inventory may have changed since, but a job is judged once, by what held then.
    """
    alike = all(getattr(old, name) == getattr(new, name) for name in ("decision_id", *FACTS))
    # The joules of accelerators may come late, and do not go away again.
    return alike and _gpu_j(new) in (None, _gpu_j(old))


def _gpu_j(outcome: Outcome) -> object:
    return (outcome.record.get("ran") or {}).get("energy_gpu_j")


_MOST = 500
"""Models that are kept: each is some ten kilobytes."""


class KnownModels:
    """A Reader's models, kept until anything of any model changes in the store."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._marks: tuple[object, ...] = ()
        self._by_id: dict[int, StoredModel | None] = {}
        self._found: dict[tuple[str, str, str], list[StoredModel]] = {}

    def look(self) -> None:
        """Forget what is kept if the store has other models now."""
        marks = self._reader.marks()
        if marks != self._marks:
            self._marks = marks
            self._by_id.clear()
            self._found.clear()

    def models(self, ids: Iterable[int]) -> Iterator[StoredModel]:
        """Yield the given models whatever their state, as :meth:`Reader.models` does."""
        for number in sorted(set(ids)):
            if number not in self._by_id:
                if len(self._by_id) >= _MOST:
                    self._by_id.clear()
                self._by_id[number] = next(self._reader.models([number]), None)
            model = self._by_id[number]
            if model is not None:
                yield model

    def find_models(self, application: str, workload: str, node_type: str) -> list[StoredModel]:
        """Return the current models of a workload on a node type, as the Reader does."""
        key = (application, workload, node_type)
        if key not in self._found:
            if len(self._found) >= _MOST:
                self._found.clear()
            self._found[key] = self._reader.find_models(*key)
        return self._found[key]
