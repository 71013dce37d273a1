"""What may stand in policy.yaml: keys, types, ranges and defaults.

The defaults are those of :mod:`advisor.core.policy`; only what a file sets is compiled.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from advisor.core import policy as core
from advisor.core.units import parse_duration_s
from advisor.policy.fields import (
    SLOWDOWN,
    Flag,
    Patterns,
    Reads,
    Strict,
    choice,
    fraction,
    integer,
    number,
    refuse,
    text_of,
)

VERSION = 1
"""Version of policy files, their key ``version``."""
_DEFAULT = core.Policy()


def format_version(value: object) -> int:
    """Return the format's version; refuses others."""
    text = text_of(value, "a number")
    if text != str(VERSION):
        hint = f"this advisor reads version {VERSION} only"
        refuse(f"version {text!r} is not known", hint=hint, allowed=(str(VERSION),))
    return VERSION


class AxesSection(Strict):
    """What may be changed in a job: keep never changes it, fill sets what the user left open,
    cap may also lower what the user set, override may replace it."""

    frequency: Annotated[str, choice(core.AXIS_RULES)] = Field(
        default=_DEFAULT.axes.frequency, description="the cap on core frequency"
    )
    threads: Annotated[str, choice(core.AXIS_RULES)] = Field(
        default=_DEFAULT.axes.threads,
        description="threads of the program; cores of the request where nodes are shared",
    )
    node_type: Annotated[str, choice(core.AXIS_RULES)] = Field(
        default=_DEFAULT.axes.node_type, description="the type of node"
    )
    nodes: Annotated[str, choice(("keep",))] = Field(
        default="keep", description="how many nodes: always kept, the allocation is the user's"
    )


class TrainingSection(Strict):
    """When and how a missing model is measured."""

    mode: Annotated[str, choice(("off", "ask", "auto"))] = Field(
        default=_DEFAULT.training.mode,
        description="off, ask (print the command for the user) or auto (queue the sweep)",
    )
    samples: Annotated[int, integer(4, 1000)] = Field(
        default=_DEFAULT.training.samples, description="runs a model is fitted from"
    )
    confirm: Annotated[int, integer(0, 10)] = Field(
        default=_DEFAULT.training.confirm,
        description="runs at the recommended point that confirm it",
    )
    budget_node_hours: Annotated[float, number(0, 1e6)] = Field(
        default=_DEFAULT.training.budget_node_hours, description="the most one sweep may cost"
    )
    payback_runs: Annotated[int, integer(1, 1_000_000)] = Field(
        default=_DEFAULT.training.payback_runs,
        description="a sweep that pays back only after more runs than this is not started",
    )
    trust: Annotated[str, choice(core.TRUST)] = Field(
        default=_DEFAULT.training.trust, description="whose jobs one user's measurements advise"
    )
    stop_early: Flag = Field(
        default=_DEFAULT.training.stop_early,
        description="end a sweep's runs once their time and energy are known; the first and the "
        "confirming ones are always complete, and all of those that `mode: auto` makes",
    )
    within: Annotated[float, fraction(0.001, 0.2)] = Field(
        default=_DEFAULT.training.within,
        description="how tightly: half the width of their 90 % intervals",
    )


class ColdStartSection(Strict):
    """What is done for jobs of applications that no sweep measured, from similar ones."""

    mode: Annotated[str, choice(core.COLD_START_MODES)] = Field(
        default=_DEFAULT.cold_start.mode,
        description="off, advise (only show it) or apply (also change the job, where the policy's "
        "mode is apply)",
    )
    confidence: Annotated[float, fraction(0.5, 0.999)] = Field(
        default=_DEFAULT.cold_start.confidence,
        description="confidence at which a trial must keep `max_slowdown`",
    )
    min_applications: Annotated[int, integer(3, 1000)] = Field(
        default=_DEFAULT.cold_start.min_applications,
        description="least number of measured applications on a node type to advise by class",
    )
    trials: Annotated[int, integer(0, 10)] = Field(
        default=_DEFAULT.cold_start.trials,
        description="how many jobs of a workload may try an option, one at a time",
    )
    classes: list[Annotated[str, choice(core.CLASSES)]] = Field(
        default=list(_DEFAULT.cold_start.classes),
        description="the classes whose jobs may be changed",
    )


class UserLimitsSection(Strict):
    """How far users may go beyond the policy with their own jobs."""

    mode: Annotated[str, choice(core.MODES)] = Field(
        default=_DEFAULT.user_limits.mode, description="the furthest mode a user may ask for"
    )
    max_slowdown: Annotated[float, SLOWDOWN] = Field(
        default=_DEFAULT.user_limits.max_slowdown,
        description="the largest slowdown a user may ask for",
    )


class PolicySettings(Strict):
    """The settings that hold for a job: all of them may stand at the top and in a rule."""

    mode: Annotated[str, choice(core.MODES)] = Field(
        default=_DEFAULT.mode,
        description="off, observe (decide and record), advise (also print one line) or apply "
        "(change the job)",
    )
    goal: Annotated[str, choice(core.GOALS)] = Field(
        default=_DEFAULT.goal,
        description="what to weigh most: time and energy the same (balanced, edp), energy more "
        "(power) or alone (min_energy), time more (performance, ed2p) or alone (min_time)",
    )
    max_slowdown: Annotated[float, SLOWDOWN] = Field(
        default=_DEFAULT.max_slowdown,
        description="the largest slowdown against the baseline, at `confidence`",
    )
    min_saving: Annotated[float, fraction(0, 0.9)] = Field(
        default=_DEFAULT.min_saving,
        description="the least energy saving worth a change, at `confidence`",
    )
    confidence: Annotated[float, fraction(0.5, 0.999)] = Field(
        default=_DEFAULT.confidence,
        description="one-sided confidence at which both bounds above must hold",
    )
    resources: Annotated[str, choice(core.RESOURCES)] = Field(
        default=_DEFAULT.resources,
        description="which of equally good options to take: that with fewest cores (thrifty), the "
        "best by its score (balanced), or that with most cores (greedy)",
    )
    axes: AxesSection = AxesSection()
    holdout: Annotated[float, fraction(0, 0.5)] = Field(
        default=_DEFAULT.holdout,
        description="share of jobs that stay unchanged at random, to measure the effect",
    )
    training: TrainingSection = TrainingSection()
    cold_start: ColdStartSection = ColdStartSection()
    enforce: Flag = Field(
        default=_DEFAULT.enforce,
        description="also rewrite jobs that did not pass the submit filter",
    )
    message: Annotated[str, choice(core.MESSAGE_TO)] = Field(
        default=_DEFAULT.message,
        description="print one line to the user: tty (only on a terminal), always or never",
    )
    allocation: Annotated[str, choice(core.ALLOCATIONS)] = Field(
        default=_DEFAULT.allocation,
        description="shrink: a job that shares its nodes may ask for fewer cores where "
        "`axes.threads` lets it; keep: never",
    )
    node_type_change: Annotated[str, choice(core.NODE_TYPE_CHANGES)] = Field(
        default=_DEFAULT.node_type_change,
        description="no-later: only to nodes that are idle now; allow: also where the job may wait",
    )
    unknown_workload: Annotated[str, choice(("default", "skip"))] = Field(
        default=_DEFAULT.unknown_workload,
        description="for an unknown input of a known application: its model for `default`, or none",
    )
    estimated_energy: Annotated[str, choice(("apply", "advise"))] = Field(
        default=_DEFAULT.estimated_energy,
        description="whether a model of estimated energy may change jobs (apply) or is only shown "
        "(advise)",
    )
    estimated_node_types: Annotated[str, choice(core.ESTIMATES)] = Field(
        default=_DEFAULT.estimated_node_types,
        description="whether a job may go to a node type whose times are estimated from "
        "microbenchmarks, where `axes.node_type` lets it: accept or refuse",
    )
    extrapolated: Annotated[str, choice(core.EXTRAPOLATED)] = Field(
        default=_DEFAULT.extrapolated,
        description="what is done for a size or node count that never ran, where others of its "
        "family did: refuse, advise (only show it) or accept (also change the job, where mode is "
        "apply)",
    )
    max_extrapolation: Annotated[float, number(1, core.FARTHEST)] = Field(
        default=_DEFAULT.max_extrapolation,
        description="the largest size and node count to advise for, as a multiple of the largest "
        "measured",
    )
    user_limits: UserLimitsSection = UserLimitsSection()


class MatchSection(Strict):
    """Conditions of a rule: all must hold; of a list of patterns any one."""

    scheduler: Patterns = Field(default=[], description="slurm, pbs or local")
    partition: Patterns = Field(default=[], description="partition or queue")
    qos: Patterns = Field(default=[], description="quality of service")
    user: Patterns = Field(default=[], description="user name")
    account: Patterns = Field(default=[], description="account or project")
    job_name: Patterns = Field(default=[], description="the job's name")
    application: Patterns = Field(default=[], description="the recognised application")
    workload: Patterns = Field(default=[], description="the recognised workload")
    node_type: Patterns = Field(default=[], description="the baseline's node type")

    @model_validator(mode="after")
    def _some(self) -> MatchSection:
        if not self.model_fields_set:
            hint = "name at least one field, or put the settings at the top of the file"
            refuse("has no conditions", hint=hint, allowed=core.MATCH_FIELDS)
        return self


class RuleSection(PolicySettings):
    """Settings for the jobs that match, merged over those at the top; the first match wins."""

    match: MatchSection = Field(description="which jobs the rule is for")


_SHORTEST_S = 86400
"""Of what is kept, in seconds."""


def _span(value: object) -> str:
    text = text_of(value, "a time")
    try:
        length_s = parse_duration_s(text)
    except ValueError as error:
        days = f"{text.strip()}d" if text.strip().isdigit() else "400d"
        refuse(f"{text!r} is not a time: {error}", hint=f"write days, like {days}")
    if length_s < _SHORTEST_S:
        hint = "write 1d or more, or leave it out to keep everything"
        refuse(f"{text!r} is too short: jobs and sweeps that still run need theirs", hint=hint)
    return text


_SPAN = Reads(_span, {"type": "string", "examples": ["400d"]})


class RetentionSection(Strict):
    """How long the store keeps its history; the timer of `advisor collect` also prunes."""

    decisions: Annotated[str, _SPAN] = Field(
        default="",
        description="how long each decision and outcome is kept, such as 400d; then only "
        "monthly sums are; at least 1d; left out: for ever",
    )
    observations: Annotated[str, _SPAN] = Field(
        default="",
        description="how long measured runs that no model uses are kept; at least 1d; left out: "
        "for ever",
    )


class PolicyFile(PolicySettings):
    """The site's policy."""

    version: Annotated[int, Reads(format_version, {"const": VERSION})] = Field(
        description="the format of this file"
    )
    rules: list[RuleSection] = Field(default=[], description="the first that matches wins")
    retention: RetentionSection = RetentionSection()
