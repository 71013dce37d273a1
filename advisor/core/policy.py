"""The site's policy in its compiled form, and which rule holds for a job.

``policy/`` reads and validates the YAML; what it compiles is plain JSON that this module turns
into a :class:`PolicySet`. Conditions are data: glob patterns per field, never evaluated code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from advisor.core.keys import Between, Share, marked

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
ApplicationClass = Literal[
    "cpu-bound", "memory-bound", "mixed", "mpi-bound", "io-bound", "busy-waiting", "gpu", "unknown"
]

MODES: tuple[Mode, ...] = get_args(Mode)
GOALS: tuple[Goal, ...] = get_args(Goal)
AXIS_RULES: tuple[AxisRule, ...] = get_args(AxisRule)
ESTIMATES: tuple[Estimates, ...] = get_args(Estimates)
COLD_START_MODES: tuple[ColdStartMode, ...] = get_args(ColdStartMode)
EXTRAPOLATED: tuple[ExtrapolationMode, ...] = get_args(ExtrapolationMode)
"""What is done for sizes and node counts that never ran, most careful first."""
FARTHEST = 16.0
"""Beyond so many times the largest measured size nothing is predicted for jobs."""


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
        cls,
        request: JobRequest,
        *,
        partition: str,
        application: str,
        workload: str,
        node_type: str,
    ) -> JobFacts:
        """Return the facts of a request, with what the site and recognition make of it."""
        return cls(
            scheduler=request.scheduler,
            partition=partition,
            qos=request.qos,
            user=request.user,
            account=request.account,
            job_name=request.job_name,
            application=application,
            workload=workload,
            node_type=node_type,
        )

    @classmethod
    def measured(
        cls, *, user: str, account: str, application: str, workload: str, node_type: str
    ) -> JobFacts:
        """Return the facts of what a user measured and sent in.

        Partition, QOS and job name are the sender's word, so no rule on them widens the trust.
        """
        return cls(
            scheduler="",
            partition="",
            qos="",
            job_name="",
            user=user,
            account=account,
            application=application,
            workload=workload,
            node_type=node_type,
        )


MATCH_FIELDS = tuple(f.name for f in fields(JobFacts))


def scope_of(trust: Trust, account: str) -> Scope:
    """Return whose jobs a user's measurements advise; ``account`` needs one to be known."""
    return "own" if trust == "account" and not account else trust


# Each key of policy.yaml is defined once, here (core/keys.py says how). From that follow the reader
# of the file, its JSON schema, docs/reference, `policy show`, diff and simulate, and the TUI.


@dataclass(frozen=True, slots=True)
class Axes:
    """What may be changed in a job: keep never changes it, fill sets what the user left open,
    cap may also lower what the user set, override may replace it."""

    frequency: Annotated[AxisRule, "the cap on core frequency"] = "cap"
    threads: Annotated[
        AxisRule, "threads of the program; cores of the request where nodes are shared"
    ] = "fill"
    node_type: Annotated[AxisRule, "the type of node"] = "fill"
    gpu: Annotated[AxisRule, "clock and power limit of a job's GPUs"] = "cap"


@dataclass(frozen=True, slots=True)
class Training:
    """When and how a missing model is measured."""

    mode: Annotated[
        TrainingMode, "off, ask (print the command for the user) or auto (queue the sweep)"
    ] = "ask"
    samples: Annotated[int, Between(4, 1000), "runs a model is fitted from"] = 12
    confirm: Annotated[int, Between(0, 10), "runs at the recommended point that confirm it"] = 1
    budget_node_hours: Annotated[float, Between(0, 1e6), "the most one sweep may cost"] = 10.0
    payback_runs: Annotated[
        int,
        Between(1, 1_000_000),
        "a sweep that pays back only after more runs than this is not started",
    ] = 20
    trust: Annotated[Trust, "whose jobs one user's measurements advise"] = "own"
    stop_early: Annotated[
        bool,
        "end a sweep's runs once their time and energy are known; the first and the confirming "
        "ones are always complete, and all of those that `mode: auto` makes",
    ] = True
    within: Annotated[
        float, Share(0.001, 0.2), "how tightly: half the width of their 90 % intervals"
    ] = 0.03


@dataclass(frozen=True, slots=True)
class ColdStart:
    """What is done for jobs of applications that no sweep measured, from similar ones."""

    mode: Annotated[
        ColdStartMode,
        "off, advise (only show it) or apply (also change the job, where the policy's mode is "
        "apply)",
    ] = "advise"
    confidence: Annotated[
        float, Share(0.5, 0.999), "confidence at which a trial must keep `max_slowdown`"
    ] = 0.75
    min_applications: Annotated[
        int,
        Between(3, 1000),
        "least number of measured applications on a node type to advise by class",
    ] = 5
    trials: Annotated[
        int, Between(0, 10), "how many jobs of a workload may try an option, one at a time"
    ] = 2
    classes: Annotated[tuple[ApplicationClass, ...], "the classes whose jobs may be changed"] = (
        "cpu-bound",
        "memory-bound",
        "mixed",
    )
    cap_trials: Annotated[
        int,
        Between(0, 40),
        "how many jobs of one recurring script may try a frequency cap, one at a time, a step at a "
        "time, and within `max_slowdown` even at the worst; whatever `mode` says",
    ] = 0


@dataclass(frozen=True, slots=True)
class UserLimits:
    """How far users may go beyond the policy with their own jobs."""

    mode: Annotated[Mode, "the furthest mode a user may ask for"] = "apply"
    max_slowdown: Annotated[float, Share(0, 1), "the largest slowdown a user may ask for"] = 1.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that hold for a job: all of them may stand at the top and in a rule."""

    mode: Annotated[
        Mode,
        "off, observe (decide and record), advise (also print one line) or apply (change the job)",
    ] = "advise"
    goal: Annotated[
        Goal,
        "what to weigh most: time and energy the same (balanced, edp), energy more (power) or "
        "alone (min_energy), time more (performance, ed2p) or alone (min_time)",
    ] = "balanced"
    max_slowdown: Annotated[
        float, Share(0, 1), "the largest slowdown against the baseline, at `confidence`"
    ] = 0.05
    min_saving: Annotated[
        float, Share(0, 0.9), "the least energy saving worth a change, at `confidence`"
    ] = 0.03
    confidence: Annotated[
        float, Share(0.5, 0.999), "one-sided confidence at which both bounds above must hold"
    ] = 0.90
    resources: Annotated[
        Resources,
        "which of equally good options to take: that with fewest cores (thrifty), the best by its "
        "score (balanced), or that with most cores (greedy)",
    ] = "thrifty"
    axes: Axes = Axes()
    holdout: Annotated[
        float, Share(0, 0.5), "share of jobs that stay unchanged at random, to measure the effect"
    ] = 0.02
    training: Training = Training()
    cold_start: ColdStart = ColdStart()
    enforce: Annotated[bool, "also rewrite jobs that did not pass the submit filter"] = False
    message: Annotated[
        MessageTo, "print one line to the user: tty (only on a terminal), always or never"
    ] = "tty"
    allocation: Annotated[
        Allocation,
        "shrink: a job that shares its nodes may ask for fewer cores where `axes.threads` lets it; "
        "keep: never",
    ] = "shrink"
    node_type_change: Annotated[
        NodeTypeChange,
        "no-later: only to nodes that are idle now; allow: also where the job may wait",
    ] = "no-later"
    unknown_workload: Annotated[
        Literal["default", "skip"],
        "what an unknown input of a known application gets: its model for `default`, as if that "
        "were of all inputs, or none",
    ] = "default"
    estimated_energy: Annotated[
        Literal["apply", "advise"],
        "whether a model of estimated energy may change jobs (apply) or is only shown (advise)",
    ] = "advise"
    estimated_node_types: Annotated[
        Estimates,
        "whether a job may go to a node type whose times are estimated from microbenchmarks, "
        "where `axes.node_type` lets it: accept or refuse",
    ] = "refuse"
    extrapolated: Annotated[
        ExtrapolationMode,
        "what is done for a size or node count that never ran, where others of its family did: "
        "refuse, advise (only show it) or accept (also change the job, where mode is apply)",
    ] = "advise"
    max_extrapolation: Annotated[
        float,
        Between(1, FARTHEST),
        "the largest size and node count to advise for, as a multiple of the largest measured",
    ] = 4.0
    user_limits: UserLimits = UserLimits()


@cache
def shares() -> frozenset[str]:
    """Return the names of the settings that people write as a percentage, of every section."""
    return frozenset(marked(Share, Policy, Training, ColdStart, UserLimits))


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
