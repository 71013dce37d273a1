"""The decision for one job: what was asked, what else there was, what was chosen and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from advisor.core.configuration import Configuration
from advisor.core.policy import Policy
from advisor.core.reasons import Reason
from advisor.core.request import JobRequest


class Effect(NamedTuple):
    """A predicted change against the baseline: fractions, with its 90 % interval."""

    change: float
    lo: float
    hi: float

    def to_list(self) -> list[float]:
        """Return change, lower and upper end in percent."""
        return [round(v * 100, 2) for v in (self.change, self.lo, self.hi)]


def changed(record: Mapping[str, object]) -> bool:
    """Tell whether a decision changed its job, from its record in the store or its stamp."""
    return any(bool(record.get(key)) for key in ("changed", "rewrite", "environment"))


def effects(time: Effect, energy: Effect) -> dict[str, object]:
    """Return the JSON form of two effects: ``time_pct`` and its interval, ``energy_pct`` likewise.

    Percent against the baseline; the intervals are at 90 %.
    """
    t, e = time.to_list(), energy.to_list()
    return {
        "time_pct": t[0],
        "time_pct_interval": t[1:],
        "energy_pct": e[0],
        "energy_pct_interval": e[1:],
    }


class Alternative(NamedTuple):
    """An option as it was weighed: absolute values and changes against the baseline."""

    configuration: Configuration
    time_s: float
    energy_j: float
    time: Effect
    energy: Effect
    confirmed: bool = False
    estimated: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            **self.configuration.to_dict(),
            "time_s": self.time_s,
            "energy_j": self.energy_j,
            **effects(self.time, self.energy),
            "confirmed": self.confirmed,
            "estimated": self.estimated,
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """What the advisor answers for one job, and all that explains it.

    ``rewrite`` maps the scheduler's option names to new values; ``environment`` holds variables
    to set in the job; both are empty when nothing changes. ``policy`` is what held for the job,
    the user's own settings included.
    """

    id: str
    created_at: str
    scheduler: str
    hook: str
    user: str
    account: str
    policy: Policy
    application: str
    workload: str
    baseline: Configuration | None
    chosen: Alternative | None
    alternatives: tuple[Alternative, ...]
    rewrite: Mapping[str, str]
    environment: Mapping[str, str]
    reasons: tuple[Reason, ...]
    message: str = ""
    holdout: bool = False
    model_id: int | None = None
    energy_quality: str = "missing"
    policy_version: int = 0
    baseline_time_s: float | None = None
    baseline_energy_j: float | None = None
    request: JobRequest | None = None
    program: Mapping[str, str] = field(default_factory=dict)
    """The file a hook is to look at before it changes the job, and what it should find there: see
    :func:`advisor.core.program.expected`. Empty: nothing to look at."""

    binds_node_type: bool = False
    """The rewrite names the node type, so that the job gets no other nodes."""

    @property
    def changed(self) -> bool:
        """Whether the job is rewritten."""
        return bool(self.rewrite or self.environment)

    def withdrawn(self) -> Decision:
        """Return the decision with nothing of it applied."""
        return replace(self, rewrite={}, environment={}, message="", binds_node_type=False)

    def to_dict(self) -> dict[str, object]:
        """Return the full record, as stored and as ``advisor explain --json`` prints it."""
        chosen = self.chosen
        return {
            "decision": self.id,
            "created_at": self.created_at,
            "scheduler": self.scheduler,
            "hook": self.hook,
            "user": self.user,
            "account": self.account,
            "mode": self.policy.mode,
            "goal": self.policy.goal,
            "application": self.application,
            "workload": self.workload,
            "baseline": None
            if self.baseline is None
            else {
                **self.baseline.to_dict(),
                "time_s": self.baseline_time_s,
                "energy_j": self.baseline_energy_j,
            },
            "rewrite": dict(self.rewrite),
            "environment": dict(self.environment),
            "chosen": None if chosen is None else chosen.configuration.to_dict(),
            "predicted": None
            if chosen is None
            else {
                "time_s": chosen.time_s,
                "energy_j": chosen.energy_j,
                **effects(chosen.time, chosen.energy),
                "energy_quality": self.energy_quality,
            },
            "alternatives": [a.to_dict() for a in self.alternatives],
            "reasons": [r.code for r in self.reasons],
            "explanation": [r.text for r in self.reasons],
            "message": self.message,
            "holdout": self.holdout,
            "model_id": self.model_id,
            "policy_version": self.policy_version,
            "request": self.request.summary() if self.request else {},
            "program": dict(self.request.program) if self.request else {},
        }
