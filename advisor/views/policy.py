"""The applied policy to read, and which of its rules holds for a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from advisor.core.policy import MATCH_FIELDS, JobFacts, Policy, PolicySet, shares
from advisor.core.units import format_percent
from advisor.schedulers.here import named
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
    fact_values = {name: facts.get(name, "") for name in MATCH_FIELDS}
    fact_values["scheduler"] = named(fact_values["scheduler"])
    settings, index = policy.for_job(JobFacts(**fact_values))
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


def _rows(policy: Policy) -> list[tuple[str, str]]:
    return [(name, _words(name, value)) for name, value in asdict(policy).items()]


def _words(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(key, part)}" for key, part in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_percent(value) if name in shares() else f"{value:g}"
    return " ".join(value) if isinstance(value, tuple) else str(value)
