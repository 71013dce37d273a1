"""Make the outcome of one job: what was promised, what came out, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from advisor.core.decision import changed
from advisor.core.inventory import Inventory
from advisor.core.policy import Policy, PolicySet
from advisor.core.reasons import ESTIMATED
from advisor.loop.clock import form, now, utc
from advisor.loop.comparable import incomparable, limit_to_blame
from advisor.loop.execution import Execution, ran
from advisor.loop.match import MatchedJob
from advisor.loop.verdict import Judgement, judge, promised
from advisor.loop.verify_promise import model_promises
from advisor.schedulers.base import JobRecord
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel

_RANK = {"own": 2, "account": 1, "all": 0}
_COPIED = ("application", "workload", "mode", "goal", "policy_version", "model_id", "holdout")


def make_outcome(
    job: JobRecord,
    match: MatchedJob | None,
    *,
    scheduler: str,
    inventory: Inventory,
    policies: PolicySet,
    reader: Reader | None,
) -> Outcome:
    """Return the outcome of a finished job; ``match`` None: the advisor knows nothing of it."""
    seen = ran(job, inventory)
    details: dict[str, Any] = {
        "name": job.name,
        "partition": job.partition,
        "ended_at": utc(job.ended_at),
        "elapsed_s": job.elapsed_s,
        "cpus": job.cpus,
        "ran": seen.to_dict(),
    }
    verdict = ""
    if match is not None:
        judgement, facts = _judged(job, match, seen, inventory, policies, reader)
        verdict = judgement.verdict
        details |= facts
        details["notes"] = list(judgement.notes)
        details["far"] = judgement.far
    return Outcome(
        job_id=job.job_id,
        scheduler=scheduler,
        submitted_at=utc(job.submitted_at),
        decision_id=match.id if match else "",
        user=job.user,
        account=job.account,
        state=(job.state.split() or ["UNKNOWN"])[0],
        nodes=job.nodes,
        node_list=job.node_list,
        time_s=seen.time_s,
        energy_j=seen.energy_j,
        energy_quality="missing" if seen.energy_j is None else "measured",
        freq_requested_khz=seen.freq_khz or None,
        freq_observed_khz=job.freq_observed_khz,
        verdict=verdict,
        record=details,
        collected_at=form(now()),
    )


def _judged(
    job: JobRecord,
    match: MatchedJob,
    seen: Execution,
    inventory: Inventory,
    policies: PolicySet,
    reader: Reader | None,
) -> tuple[Judgement, dict[str, Any]]:
    """Return the verdict on a job with a decision, and what to keep of both."""
    record = match.record
    rewritten = changed(record)
    predicted = record.get("predicted")
    quality = str(predicted.get("energy_quality") or "") if isinstance(predicted, Mapping) else ""
    time, energy = promised(record, "time"), promised(record, "energy")
    wanted = record.get("chosen") if rewritten else record.get("baseline")
    mismatch = incomparable(job, record, wanted, seen, inventory)
    facts: dict[str, Any] = {
        "trust": match.trust,
        "trust_why": match.why,
        **{name: record.get(name) for name in _COPIED},
        "changed": rewritten,
        "decided_at": str(record.get("created_at") or ""),
        "reasons": [str(code) for code in record.get("reasons") or ()],
        "baseline": record.get("baseline"),
        "chosen": record.get("chosen"),
        "promised": {
            "time_s": time.to_list() if time else None,
            "energy_j": energy.to_list() if energy else None,
            "energy_quality": quality,
        },
        "mismatch": mismatch,
        "judged_model": None,
    }
    if not rewritten:
        return Judgement("left-alone"), facts
    if match.trust == "unverified":
        return Judgement("unknown", (match.why,)), facts
    if mismatch:
        return Judgement("unknown", (mismatch,)), facts
    blame = limit_to_blame(job, record, time)
    if blame:
        return Judgement("unknown", (blame,)), facts
    policy = policy_of(record, job, policies)
    facts["max_slowdown"] = policy.max_slowdown
    if reader is not None:
        model = judged_model(record, job, reader)
        if model is not None:
            facts["judged_model"] = model.id
            home = next(iter(reader.models([int(record["model_id"])])), model)
            facts["checked"] = match.trust == "verified" or model_promises(record, model, home)
    judgement = judge(
        job.state,
        seen,
        time,
        energy,
        max_slowdown=policy.max_slowdown,
        estimated_energy=unmetered(facts["reasons"], quality),
    )
    return judgement, facts


def policy_of(record: Mapping[str, Any], job: JobRecord, policies: PolicySet) -> Policy:
    """Return the settings that hold for a job, by what the accounting says of it."""
    place = record.get("baseline") or record.get("chosen") or {}
    policy, _ = policies.for_job(
        {
            "scheduler": str(record.get("scheduler") or ""),
            "partition": job.partition,
            "user": job.user,
            "account": job.account,
            "job_name": job.name,
            "application": str(record.get("application") or ""),
            "workload": str(record.get("workload") or ""),
            "node_type": str(place.get("node_type") or ""),
        }
    )
    return policy


def judged_model(record: Mapping[str, Any], job: JobRecord, reader: Reader) -> StoredModel | None:
    """Return the model that made a promise, None when it cannot be told or is not the job's.

    The decision names the baseline's model; a choice on another node type was promised by that
    node type's model, the narrowest the user sees, as the daemon picks them. What was estimated
    is never held against a model that was fitted since.
    """
    chosen, number = record.get("chosen"), record.get("model_id")
    if not isinstance(chosen, Mapping) or not isinstance(number, int):
        return None
    named = next(iter(reader.models([number])), None)
    if named is None or named.application != record.get("application"):
        return None
    if named.workload != record.get("workload"):
        return None
    if named.node_type == chosen.get("node_type"):
        return named if visible(named, job) else None
    estimated = ESTIMATED in (record.get("reasons") or ())
    found = [
        m
        for m in reader.find_models(
            named.application, named.workload, str(chosen.get("node_type") or "")
        )
        if m.transferred == estimated and visible(m, job)
    ]
    return max(found, key=lambda m: _RANK[m.scope], default=None)


def unmetered(reasons: Collection[str], quality: str) -> bool:
    """Tell whether a promised energy cannot be held against a metered one.

    That of an estimated node type can: it is metered energy of another one, scaled.
    """
    return quality == "estimated" and (ESTIMATED not in reasons or "energy-estimated" in reasons)


def visible(model: StoredModel, job: JobRecord) -> bool:
    """Tell whether a model may advise a job, by the job's user and account in the accounting."""
    if model.scope == "own":
        return model.owner == job.user
    if model.scope == "account":
        return bool(job.account) and model.owner == job.account
    return True
