"""Make the outcome of one job: what was promised, what came out, and the verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.job_history import JobPart, longest_parts
from advisor.core.policy import JobFacts, Policy, PolicySet
from advisor.core.reasons import BY_CLASS, ESTIMATED, STEP_PLAN
from advisor.core.recognise import clean_name
from advisor.loop.clock import form, now, utc
from advisor.loop.comparable import incomparable, limit_to_blame, model_promises
from advisor.loop.execution import Execution, ran
from advisor.loop.match import MatchedJob
from advisor.loop.step_outcomes import step_outcomes
from advisor.loop.verdict import Judgement, PromiseInterval, judge, promised
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.store.records import Outcome, StoredModel

_RANK = {"own": 2, "account": 1, "all": 0}
FACTS = (
    "user",
    "account",
    "state",
    "nodes",
    "node_list",
    "time_s",
    "energy_j",
    "freq_requested_khz",
    "freq_observed_khz",
)
"""What of an outcome is the accounting's, in the order of :func:`facts_of`."""


def facts_of(job: JobRecord, execution: Execution) -> tuple[object, ...]:
    """Return the part of an outcome that comes from the accounting."""
    state = (job.state.split() or ["UNKNOWN"])[0]
    freqs = (execution.freq_khz or None, job.freq_observed_khz)
    return (
        job.user,
        job.account,
        state,
        job.nodes,
        job.node_list,
        execution.time_s,
        execution.energy_j,
        *freqs,
    )


class ModelReader(Protocol):
    """Where models are looked up: a Reader, or what was read for many jobs at once."""

    def models(self, ids: Iterable[int]) -> Iterator[StoredModel]:
        """Yield the given models whatever their state."""

    def find_models(self, application: str, workload: str, node_type: str) -> list[StoredModel]:
        """Return the current models of a workload on a node type."""


@dataclass(frozen=True, slots=True)
class JobSite:
    """Where a job ran: what its outcome is named after and judged by.

    ``reader`` is None where no model can be looked up.
    """

    scheduler: str
    inventory: Inventory
    policies: PolicySet
    reader: ModelReader | None
    cluster: str = ""


def make_outcome(
    job: JobRecord,
    match: MatchedJob | None,
    site: JobSite,
    *,
    execution: Execution | None = None,
    collected_at: str = "",
) -> Outcome:
    """Return the outcome of a finished job; ``match`` None: the advisor knows nothing of it.

    ``execution`` is how it ran, worked out here where the caller has not; ``collected_at`` when it
    is collected, in the store's form, now where it is empty.
    """
    execution = execution or ran(job, site.inventory)
    details: dict[str, Any] = {
        "name": job.name,
        "partition": job.partition,
        "ended_at": utc(job.ended_at),
        "elapsed_s": job.elapsed_s,
        "cpus": job.cpus,
        "ran": execution.to_dict(),
    }
    verdict = ""
    facts: dict[str, Any] = dict(zip(FACTS, facts_of(job, execution), strict=True))
    if match is not None:
        judgement, judged = _judged(job, match, execution, site)
        verdict = judgement.verdict
        details |= judged
        details["notes"] = list(judgement.notes)
        parts = parts_of(job, execution) if match.trust == "verified" else ()
        if match.decision.identity and parts:
            details["parts"] = [part.to_dict() for part in parts]
        if match.trust != "unverified" and (steps := step_outcomes(job, match.decision.plan)):
            details["steps"] = [step.to_dict() for step in steps]
        if match.decision.plan is not None:
            details["planned_time"] = match.decision.plan.least_time
        details["far"] = judgement.far
    return Outcome(
        job_id=job.job_id,
        scheduler=site.scheduler,
        cluster=site.cluster,
        submitted_at=utc(job.submitted_at),
        decision_id=match.decision.id if match else "",
        **facts,
        energy_quality="missing" if execution.energy_j is None else "measured",
        verdict=verdict,
        record=details,
        collected_at=collected_at or form(now()),
    )


def _judged(
    job: JobRecord,
    match: MatchedJob,
    execution: Execution,
    site: JobSite,
) -> tuple[Judgement, dict[str, Any]]:
    """Return the verdict on a job with a decision, and what to keep of both."""
    decision = match.decision
    time, energy, promise = decision.once("promise", _promise)
    mismatch = incomparable(job, decision, execution, site.inventory)
    facts: dict[str, Any] = {
        "trust": match.trust,
        "trust_why": match.why,
        **decision.brief_dict(),
        "decided_at": decision.created_at,
        "promised": promise,
        "mismatch": mismatch,
        "judged_model": None,
    }
    if STEP_PLAN in decision.codes:
        return Judgement("unknown", ("its steps were planned, and no whole job promised",)), facts
    if not decision.changed:
        return Judgement("left-alone"), facts
    if match.trust == "unverified":
        return Judgement("unknown", (match.why,)), facts
    if mismatch:
        return Judgement("unknown", (mismatch,)), facts
    blame = limit_to_blame(job, decision, time)
    if blame:
        return Judgement("unknown", (blame,)), facts
    policy = policy_of(decision, job, site.policies)
    facts["max_slowdown"] = policy.max_slowdown
    if site.reader is not None:
        model = judged_model(decision, job, site.reader)
        if model is not None:
            facts["judged_model"] = model.id
            facts["checked"] = match.trust == "verified" or _promised_by(
                model, decision, site.reader
            )
    judgement = judge(
        job.state,
        execution,
        time,
        energy,
        max_slowdown=policy.max_slowdown,
        estimated_energy=unmetered(decision),
    )
    return judgement, facts


def _promise(
    decision: Decision,
) -> tuple[PromiseInterval | None, PromiseInterval | None, dict[str, object]]:
    """Return the promised time and energy, and what an outcome keeps of both."""
    time, energy = promised(decision.chosen, "time"), promised(decision.chosen, "energy")
    return (
        time,
        energy,
        {
            "time_s": time.to_list() if time else None,
            "energy_j": energy.to_list() if energy else None,
            "energy_quality": decision.energy_quality if decision.chosen else "",
        },
    )


def _promised_by(model: StoredModel, decision: Decision, reader: ModelReader) -> bool:
    home = next(reader.models([decision.model_id or 0]), model)
    return model_promises(decision, model, home)


def policy_of(decision: Decision, job: JobRecord, policies: PolicySet) -> Policy:
    """Return the settings that hold for a job, by what the accounting says of it."""
    if not policies.rules:
        return policies.base
    place = decision.baseline or (decision.chosen.configuration if decision.chosen else None)
    policy, _ = policies.for_job(
        JobFacts(
            scheduler=decision.scheduler,
            partition=job.partition,
            qos=job.qos,
            user=job.user,
            account=job.account,
            job_name=job.name,
            application=decision.application,
            workload=decision.workload,
            node_type=place.node_type if place else "",
        )
    )
    return policy


def judged_model(decision: Decision, job: JobRecord, reader: ModelReader) -> StoredModel | None:
    """Return the model that made a promise, None when it is not known or not the job's.

    The decision names the baseline's model; a choice on another node type was promised by that
    node type's model, the narrowest the user sees, as the daemon picks them. What was estimated
    is never held against a model that was fitted since.
    """
    if decision.chosen is None or decision.model_id is None:
        return None
    home = next(reader.models([decision.model_id]), None)
    if home is None or home.application != decision.application:
        return None
    if home.workload != decision.workload and not home.of_sizes:
        return None
    node_type = decision.chosen.configuration.node_type
    if home.node_type == node_type:
        return home if visible(home, job) else None
    models = [
        m
        for m in reader.find_models(home.application, home.workload, node_type)
        if m.transferred == decision.chosen.estimated and visible(m, job)
    ]
    return max(models, key=lambda m: _RANK[m.scope], default=None)


def unmetered(decision: Decision) -> bool:
    """Tell whether a promised energy cannot be held against a metered one.

    That of an estimated node type can: it is metered energy of another one, scaled.
    """
    return unmetered_promise(decision.energy_quality, decision.codes)


def unmetered_promise(quality: str, codes: Collection[str]) -> bool:
    """Tell the same by the energy's quality and the reasons' codes."""
    follows = ESTIMATED in codes or BY_CLASS in codes
    return quality == "estimated" and (not follows or "energy-estimated" in codes)


def visible(model: StoredModel, job: JobRecord) -> bool:
    """Tell whether a model may advise a job, by the job's user and account in the accounting."""
    if model.scope == "own":
        return model.owner == job.user
    if model.scope == "account":
        return bool(job.account) and model.owner == job.account
    return True


def parts_of(job: JobRecord, execution: Execution) -> tuple[JobPart, ...]:
    """Return a job's parts, the longest first; none where their times are not known.

    All of it is one part where it has no steps, or some ran at once.
    """
    numbered = [step for step in job.steps if step.numbered]
    if job.elapsed_s is None or any(step.elapsed_s is None for step in numbered):
        return ()
    groups: defaultdict[tuple[str, int, int], list[StepRecord]] = defaultdict(list)
    for step in numbered:
        groups[(clean_name(step.name), *_on_each_node(step))].append(step)
    parts = [_part(*key, steps) for key, steps in groups.items()]
    slack_s = job.resolution_s * len(numbered)
    if not numbered or sum(part.time_s for part in parts) > job.elapsed_s + slack_s:
        return (JobPart("", 0, 0, 1, job.elapsed_s, execution.energy_j),)
    return longest_parts(parts)


def _on_each_node(step: StepRecord) -> tuple[int, int]:
    """Return a step's ranks and CPUs on each node, 0 where they are not known or differ."""
    if not step.nodes:
        return 0, 0
    ranks, cpus = (
        count // step.nodes if count % step.nodes == 0 else 0 for count in (step.tasks, step.cpus)
    )
    return ranks, cpus


def _part(program: str, ranks: int, cpus: int, steps: Sequence[StepRecord]) -> JobPart:
    metered = [step.energy_j for step in steps if step.energy_j is not None]
    energy_j = sum(metered) if len(metered) == len(steps) else None
    time_s = sum(step.elapsed_s or 0.0 for step in steps)
    return JobPart(program, ranks, cpus, len(steps), time_s, energy_j)
