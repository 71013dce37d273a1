"""The site's policy in its compiled form, and which rule holds for a job.

``policy/`` reads and validates the YAML; what it compiles is plain JSON that this module turns
into a :class:`PolicySet`. Conditions are data: glob patterns per field, never evaluated code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from advisor.core.observation import Scope
    from advisor.core.request import JobRequest

Mode = Literal["off", "observe", "advise", "apply"]
Goal = Literal["power", "balanced", "performance", "min_energy", "min_time", "edp", "ed2p"]
Resources = Literal["thrifty", "balanced", "greedy"]
AxisRule = Literal["keep", "fill", "cap", "override"]
TrainingMode = Literal["off", "ask", "auto"]
Estimates = Literal["accept", "refuse"]
Trust = Literal["own", "account", "all"]
Allocation = Literal["shrink", "keep"]
NodeTypeChange = Literal["no-later", "allow"]
MessageTo = Literal["tty", "always", "never"]

ColdStartMode = Literal["off", "advise", "apply"]
ExtrapolationMode = Literal["refuse", "advise", "accept"]

MODES: tuple[Mode, ...] = ("off", "observe", "advise", "apply")
GOALS: tuple[Goal, ...] = (
    "power", "balanced", "performance", "min_energy", "min_time", "edp", "ed2p",
)  # fmt: skip
RESOURCES: tuple[Resources, ...] = ("thrifty", "balanced", "greedy")
AXIS_RULES: tuple[AxisRule, ...] = ("keep", "fill", "cap", "override")
AXES = ("frequency", "threads", "node_type")
ESTIMATES: tuple[Estimates, ...] = ("accept", "refuse")
TRUST: tuple[Trust, ...] = ("own", "account", "all")
ALLOCATIONS: tuple[Allocation, ...] = ("shrink", "keep")
NODE_TYPE_CHANGES: tuple[NodeTypeChange, ...] = ("no-later", "allow")
COLD_START_MODES: tuple[ColdStartMode, ...] = ("off", "advise", "apply")
EXTRAPOLATED: tuple[ExtrapolationMode, ...] = ("refuse", "advise", "accept")
"""What is done for sizes and node counts that never ran, most careful first."""
FARTHEST = 16.0
"""Beyond so many times the largest measured size nothing is predicted for jobs."""
CLASSES = (
    "cpu-bound", "memory-bound", "mixed", "mpi-bound", "io-bound", "busy-waiting", "gpu", "unknown",
)  # fmt: skip
MESSAGE_TO: tuple[MessageTo, ...] = ("tty", "always", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What a rule can match of a job; "" is what is not known.

    No field has a default: whoever asks for a job's settings states all of them.
    """

    scheduler: str
    partition: str
    qos: str
    user: str
    account: str
    job_name: str
    application: str
    workload: str
    node_type: str

    @classmethod
    def of(
        cls, request: JobRequest, *, partition: str, application: str, workload: str,
        node_type: str,
    ) -> JobFacts:  # fmt: skip
        """Return the facts of a request, with what the site and recognition make of it."""
        return cls(
            scheduler=request.scheduler, partition=partition, qos=request.qos,
            user=request.user, account=request.account, job_name=request.job_name,
            application=application, workload=workload, node_type=node_type,
        )  # fmt: skip

    @classmethod
    def measured(
        cls, *, user: str, account: str, application: str, workload: str, node_type: str
    ) -> JobFacts:
        """Return the facts of what a user measured and sent in.

        Partition, QOS and job name are the sender's word, so no rule on them widens the trust.
        """
        return cls(
            scheduler="", partition="", qos="", job_name="",
            user=user, account=account, application=application, workload=workload,
            node_type=node_type,
        )  # fmt: skip


MATCH_FIELDS = tuple(f.name for f in fields(JobFacts))


def scope_of(trust: Trust, account: str) -> Scope:
    """Return whose jobs a user's measurements advise; ``account`` needs one to be known."""
    return "own" if trust == "account" and not account else trust


@dataclass(frozen=True, slots=True)
class Axes:
    """Per axis: ``keep`` never changes it, ``fill`` sets what the user left open, ``cap`` may
    also lower what the user set, ``override`` may replace it. Nodes, tasks and memory are the
    user's and no axis."""

    frequency: AxisRule = "cap"
    threads: AxisRule = "fill"
    node_type: AxisRule = "fill"


@dataclass(frozen=True, slots=True)
class Training:
    """When and how missing models are trained."""

    mode: TrainingMode = "ask"
    samples: int = 12
    confirm: int = 1
    budget_node_hours: float = 10.0
    payback_runs: int = 20
    trust: Trust = "own"
    stop_early: bool = True
    within: float = 0.03


@dataclass(frozen=True, slots=True)
class ColdStart:
    """What is done for an application never swept, by what others like it do.

    ``confidence``: that a trial keeps ``max_slowdown``; ``trials`` of a workload, one at a time;
    ``classes``: those whose jobs may change.
    """

    mode: ColdStartMode = "advise"
    confidence: float = 0.75
    min_applications: int = 5
    trials: int = 2
    classes: tuple[str, ...] = ("cpu-bound", "memory-bound", "mixed")


@dataclass(frozen=True, slots=True)
class UserLimits:
    """How much less conservative than the site a user may be with their own jobs."""

    mode: Mode = "apply"
    max_slowdown: float = 1.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that hold for one job. Fractions, not percent."""

    mode: Mode = "advise"
    goal: Goal = "balanced"
    max_slowdown: float = 0.05
    min_saving: float = 0.03
    confidence: float = 0.90
    resources: Resources = "thrifty"
    axes: Axes = Axes()
    holdout: float = 0.02
    training: Training = Training()
    cold_start: ColdStart = ColdStart()
    enforce: bool = False
    message: MessageTo = "tty"
    allocation: Allocation = "shrink"
    node_type_change: NodeTypeChange = "no-later"
    unknown_workload: Literal["default", "skip"] = "default"
    estimated_energy: Literal["apply", "advise"] = "advise"
    estimated_node_types: Estimates = "refuse"
    extrapolated: ExtrapolationMode = "advise"
    max_extrapolation: float = 4.0
    user_limits: UserLimits = UserLimits()


def merge(policy: Policy, overrides: Mapping[str, object]) -> Policy:
    """Return ``policy`` with the given (compiled, validated) keys replaced; sections merge.

    A policy applied by an earlier version may hold ``axes.nodes``, which is gone, and
    ``message: true`` or ``false``.
    """
    changes: dict[str, Any] = {}
    for key, value in overrides.items():
        if isinstance(value, Mapping):
            current = getattr(policy, key)
            changes[key] = replace(
                current,
                **{
                    k: tuple(v) if isinstance(v, list) else v
                    for k, v in value.items()
                    if hasattr(current, k)
                },
            )
        elif key == "message" and isinstance(value, bool):
            changes[key] = "tty" if value else "never"
        else:
            changes[key] = value
    return replace(policy, **changes)


@dataclass(frozen=True, slots=True)
class Rule:
    """Overrides for the jobs that match: every field must match one of its glob patterns."""

    match: Mapping[str, tuple[str, ...]]
    overrides: Mapping[str, object]

    def holds(self, job: JobFacts) -> bool:
        """Tell whether the rule's every condition holds for a job."""
        return all(
            any(fnmatchcase(getattr(job, name, ""), pattern) for pattern in patterns)
            for name, patterns in self.match.items()
        )


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The applied policy: base settings and rules, the first that matches wins."""

    base: Policy = Policy()
    rules: tuple[Rule, ...] = ()
    version: int = 0
    """Number of the applied version in the store; 0 is the built-in default."""

    def for_job(self, job: JobFacts) -> tuple[Policy, int | None]:
        """Return the settings for a job and the index of the rule that matched, if any."""
        for index, rule in enumerate(self.rules):
            if rule.holds(job):
                return merge(self.base, rule.overrides), index
        return self.base, None

    def with_idle_nodes(self) -> PolicySet:
        """Return the same for a look ahead, where nobody knows which nodes will be idle."""
        return PolicySet(
            replace(self.base, node_type_change="allow"),
            tuple(
                Rule(r.match, {k: v for k, v in r.overrides.items() if k != "node_type_change"})
                for r in self.rules
            ),
            self.version,
        )

    @classmethod
    def from_compiled(cls, data: Mapping[str, object], version: int = 0) -> PolicySet:
        """Build from the compiled JSON: ``{"base": {...}, "rules": [{"match", "set"}]}``."""
        base, rules = data.get("base", {}), data.get("rules", [])
        if not isinstance(base, Mapping) or not isinstance(rules, Sequence):
            raise ValueError("compiled policy has no base or rules")
        return cls(
            merge(Policy(), base),
            tuple(
                Rule({k: tuple(v) for k, v in rule["match"].items()}, dict(rule["set"]))
                for rule in rules
            ),
            version,
        )
