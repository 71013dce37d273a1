"""The applied policy to read, and which of its rules holds for a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.core.policy import MATCH_FIELDS, JobFacts, Policy, PolicySet
from advisor.core.units import format_count, format_percent
from advisor.schedulers.choose import named
from advisor.store.reader import Reader


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """The policy that holds: its text, since when and by whom; version 0 is the built-in one."""

    version: int
    text: str
    since: str
    by: str
    policy: PolicySet


def applied(reader: Reader) -> AppliedPolicy:
    """Return the applied policy. Raises StoreError."""
    config = reader.config("policy")
    policy = reader.policy()
    if config is None:
        from advisor.policy.render import to_yaml

        return AppliedPolicy(0, to_yaml("policy", {}), "", "", policy)
    return AppliedPolicy(config.version, config.text, config.applied_at, config.applied_by, policy)


def holding(policy: PolicySet, facts: Mapping[str, str]) -> list[str]:
    """Say which rule holds for a job's facts, and every setting that follows.

    Without a word on it, the scheduler is the one of this machine.
    """
    known = {name: facts.get(name, "") for name in MATCH_FIELDS}
    known["scheduler"] = named(known["scheduler"])
    settings, index = policy.for_job(JobFacts(**known))
    if index is None:
        head = "no rule matches: the base settings hold"
        if not policy.rules:
            head = "the policy has no rules: its base settings hold for every job"
    else:
        rule = policy.rules[index]
        match = ", ".join(f"{name}: {' or '.join(p)}" for name, p in rule.match.items())
        head = f"rule {index + 1} of {len(policy.rules)} holds ({match})"
    return [head, "", *settings_lines(settings, policy.base if index is not None else None)]


def settings_lines(settings: Policy, base: Policy | None = None) -> list[str]:
    """Return settings a line each; what differs from ``base`` is marked."""
    rows = _rows(settings)
    plain = dict(_rows(base)) if base is not None else dict(rows)
    return [
        f"{name:<20} {value}{f'   (else {plain[name]})' if plain[name] != value else ''}"
        for name, value in rows
    ]


def _rows(p: Policy) -> list[tuple[str, str]]:
    a, t, c, u = p.axes, p.training, p.cold_start, p.user_limits
    return [
        ("mode", p.mode),
        ("goal", p.goal),
        ("max_slowdown", format_percent(p.max_slowdown)),
        ("min_saving", format_percent(p.min_saving)),
        ("confidence", format_percent(p.confidence)),
        ("resources", p.resources),
        ("axes", f"frequency {a.frequency}, threads {a.threads}, node_type {a.node_type}"),
        ("allocation", p.allocation),
        ("node_type_change", p.node_type_change),
        ("holdout", format_percent(p.holdout)),
        ("training", f"{t.mode}, {t.samples} samples, at most {t.budget_node_hours:g} node-hours, "
                     f"trust {t.trust}"),
        ("cold_start", f"{c.mode}, {format_count(c.trials, 'trial')} at "
                       f"{format_percent(c.confidence)}, "
                       f"{format_count(c.min_applications, 'application')} at least, "
                       f"{', '.join(c.classes)}"),
        ("unknown_workload", p.unknown_workload),
        ("estimated_energy", p.estimated_energy),
        ("estimated_node_types", p.estimated_node_types),
        ("extrapolated", f"{p.extrapolated}, to {p.max_extrapolation:g} times the largest size"),
        ("enforce", "yes" if p.enforce else "no"),
        ("users may", f"mode up to {u.mode}, slowdown up to {format_percent(u.max_slowdown)}"),
    ]  # fmt: skip
