"""Everything known of one job: what was decided, what was promised, what came out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from advisor.core.cluster_name import is_federated, same_cluster
from advisor.core.codec import JsonForm, wire
from advisor.core.decision import Decision, number_or_none
from advisor.core.gpus import GpuUse
from advisor.core.inventory import Inventory
from advisor.core.policy import PolicySet
from advisor.core.worth import Tariff
from advisor.errors import InputError, SchedulerError, UsageError
from advisor.loop.execution import UNTOLD
from advisor.loop.match import find
from advisor.loop.outcomes import JobSite, make_outcome
from advisor.loop.step_outcomes import StepOutcome
from advisor.loop.verdict import MEASUREMENT_ERROR, QUANTITIES, PromiseInterval, in_words, promised
from advisor.schedulers.base import JobRecord, Scheduler
from advisor.store.reader import Reader
from advisor.store.records import Outcome

_JOB_ID = re.compile(
    r"(\d+(?:_\d+)?(?:\+\d+)?|local-[0-9a-f]{8}|\d+(?:\[\d*\])?)(?:\.[A-Za-z][\w.-]*)?"
)
"""Slurm's and PBS's ids; PBS's with or without its server's name."""


@dataclass(frozen=True, slots=True)
class Compared(JsonForm):
    """One promised value and what was measured, with the verdict in words."""

    promised: PromiseInterval = field(metadata=wire(inline=True))
    measured: float | None
    words: str


@dataclass(slots=True)
class Answer:
    """What is known of a job. ``decision`` None: nothing was decided for it, as far as is known.

    ``outcome`` is what was collected, or, with ``collected`` False, the accounting just now; None
    while the job has not ended. ``tasks`` are the collected tasks of an array.
    """

    job_id: str
    cluster: str = ""
    state: str = ""
    decision: Decision | None = None
    trust: str = ""
    trust_why: str = ""
    outcome: Outcome | None = None
    collected: bool = False
    notes: list[str] = field(default_factory=list)
    tasks: list[Outcome] = field(default_factory=list)
    tariff: Tariff = field(default_factory=Tariff)

    def steps(self) -> list[StepOutcome]:
        """Return what each step got of a job with a plan, as far as it is known."""
        records = self.outcome.record.get("steps") if self.outcome else None
        return [StepOutcome.from_dict(record) for record in records or ()]

    def gpus(self) -> list[GpuUse]:
        """Return what each GPU of the job had set and took, as far as its nodes say."""
        ran = (self.outcome.record.get("ran") or {}) if self.outcome else {}
        return [GpuUse.from_dict(record) for record in ran.get("gpus") or ()]

    @property
    def gpu_j(self) -> float | None:
        """What its GPUs took together, J; None where that is not known."""
        ran = (self.outcome.record.get("ran") or {}) if self.outcome else {}
        return number_or_none(ran.get("energy_gpu_j"))

    @property
    def gpu_note(self) -> str:
        """Why that is not known of a job with GPUs, else "".

        Where the accounting counts no GPUs, the job's request tells that it had some.
        """
        if self.outcome is None or self.gpu_j is not None:
            return ""
        request = self.decision.request if self.decision else None
        asked = UNTOLD if request is not None and request.gpus is not None else ""
        return str((self.outcome.record.get("ran") or {}).get("gpu_note") or asked)

    @property
    def meter_sees(self) -> str:
        """What its energy is the energy of, where it had GPUs and that is known."""
        ran = (self.outcome.record.get("ran") or {}) if self.outcome else {}
        return str(ran.get("meter_sees") or "")

    def compared(self) -> dict[str, Compared]:
        """Return promised against measured, by ``time`` and ``energy``."""
        if self.outcome is None:
            return {}
        o, decision, compared = self.outcome, self.outcome.decision, {}
        execution = o.record.get("ran") or {}
        slack = MEASUREMENT_ERROR
        if o.time_s:
            slack += float(execution.get("resolution_s") or 0.0) / o.time_s
        for quantity, measured in zip(QUANTITIES, (o.time_s, o.energy_j), strict=True):
            interval = promised(decision.chosen, quantity)
            if interval is None or not decision.changed:
                continue
            words = (
                "" if quantity == "time" else str(execution.get("energy_note") or "not measured")
            )
            if measured is not None:
                words = in_words(quantity, measured, interval, slack)
                if o.failure and o.verdict != "worse":  # a limit that struck is judged
                    words = f"not compared: {o.failure}"
            if quantity == "energy" and decision.energy_quality == "estimated":
                words += " (an estimate was promised)"
            compared[str(quantity)] = Compared(interval, measured, words)
        return compared


def why(
    job_id: str,
    reader: Reader | None,
    scheduler: Scheduler | None,
    *,
    user: str | None = None,
    cluster: str = "",
) -> Answer:
    """Find out about a job: from the store, else from the accounting as it is now.

    Of an array the collected tasks are listed. ``user``: of others' jobs is shown what the store
    shows, whatever the accounting tells. ``cluster``: whose job; where none is named and several
    have one of this id, the cluster of this host.

    Works without a store, and without a scheduler. Raises UsageError for what is no job id and
    InputError for a job nobody knows.
    """
    match = _JOB_ID.fullmatch(job_id)
    if not match:
        raise UsageError(
            f"{job_id!r} is not a job id",
            hint="like 4711, or 4711_3 (PBS: 4711[3]) for a task of an array",
        )
    job_id = match[1]
    cluster = cluster or _cluster_of(job_id, reader, scheduler)
    answer = Answer(job_id, cluster)
    if reader is not None:
        answer.tariff = Tariff.of(reader.site())
    stored = None if reader is None else reader.outcome(job_id, cluster)
    if stored is not None:
        assert reader is not None
        return _collected(answer, stored, reader)
    if reader is not None:
        answer.tasks = _tasks(job_id, reader, cluster)
    job = None if answer.tasks else _ask_accounting(scheduler, job_id, answer)
    if job is not None and user not in (None, job.user):
        job = None
    if job is not None:
        _answer_from_job(answer, job, reader, scheduler)
    if answer.decision is None and job is None and reader is not None:
        record = reader.decision_for_job(job_id, cluster)
        if record is not None:
            answer.decision, answer.trust = record, "verified"
            answer.cluster = answer.cluster or record.cluster
    if job is None and answer.decision is None and not answer.tasks:
        cause = f" ({answer.notes[0]})" if answer.notes else ""
        raise InputError(
            f"job {job_id} is not known{cause}",
            hint="others' jobs are not shown; for a job array name a task, like 4711_3; try it "
            "where the scheduler's commands are, or name the store with --db",
        )
    return answer


def _collected(answer: Answer, outcome: Outcome, reader: Reader) -> Answer:
    record = outcome.record
    answer.outcome, answer.collected, answer.state = outcome, True, outcome.state
    answer.cluster = outcome.cluster
    answer.trust = str(record.get("trust") or "")
    answer.trust_why = str(record.get("trust_why") or "")
    if answer.trust != "unverified":
        answer.decision = reader.decision(outcome.decision_id)
    if answer.decision is None and outcome.decision_id:
        answer.decision = outcome.decision
    return answer


def _ask_accounting(scheduler: Scheduler | None, job_id: str, answer: Answer) -> JobRecord | None:
    """Ask the accounting; that it cannot be asked is a note, the store may still know."""
    if scheduler is None:
        return None
    try:
        if answer.cluster and not same_cluster(scheduler.cluster_name(), answer.cluster):
            scheduler.of_cluster(answer.cluster)
        return scheduler.job(job_id)
    except (SchedulerError, UsageError) as error:
        answer.notes.append(str(error))
        return None


def _answer_from_job(
    answer: Answer, job: JobRecord, reader: Reader | None, scheduler: Scheduler | None
) -> None:
    answer.cluster = job.cluster or answer.cluster
    job = replace(job, cluster=answer.cluster)
    match = find(job, reader)
    answer.state = job.state
    if match is not None:
        answer.decision, answer.trust, answer.trust_why = match.decision, match.trust, match.why
    if not job.finished:
        return
    answer.outcome = make_outcome(
        job,
        match,
        JobSite(
            scheduler.NAME if scheduler else "",
            reader.inventory(job.cluster) if reader else Inventory(),
            reader.policy() if reader else PolicySet(),
            reader,
            job.cluster,
        ),
    )


def _cluster_of(job_id: str, reader: Reader | None, scheduler: Scheduler | None) -> str:
    """Return this host's cluster where jobs of several have an id, "" where none is asked for.

    Raises InputError where it is none of them.
    """
    sql = "SELECT DISTINCT cluster FROM {} WHERE job_id = ? AND job_id <> '' AND cluster <> ''"
    if reader is None or is_federated(job_id):
        return ""
    rows = (reader.rows(sql.format(table), (job_id,)) for table in ("outcomes", "decisions"))
    names = sorted({str(row[0]) for of_table in rows for row in of_table})
    if len(names) < 2:
        return ""
    here = scheduler.cluster_name() if scheduler is not None else ""
    if here in names:
        return here
    raise InputError(
        f"there is a job {job_id} of each of these clusters: {', '.join(names)}",
        hint=f"name one: advisor why {job_id} --cluster {names[0]}",
    )


def _tasks(job_id: str, reader: Reader, cluster: str) -> list[Outcome]:
    base = job_id.removesuffix("[]")
    if not base.isdecimal():
        return []
    # ranges rather than patterns, which no index finds: 4711_... and 4711[...
    where = "(job_id >= ? AND job_id < ? OR job_id >= ? AND job_id < ?) AND ? IN ('', cluster)"
    ends = (f"{base}_", f"{base}`", f"{base}[", f"{base}\\")
    return reader.outcomes(where, (*ends, cluster))[:100]
