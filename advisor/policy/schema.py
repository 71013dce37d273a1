"""What may stand in policy.yaml: keys, types, ranges and defaults.

A job's settings are defined in :mod:`advisor.core.policy`, one field each; their keys are made from
those. Only what a file sets is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field, model_validator

from advisor.core import policy as core
from advisor.core.units import parse_duration_s
from advisor.policy.fields import HistoryFolder, Patterns, Reads, Strict, choice, refuse, text_of
from advisor.policy.section import section

VERSION = 1
"""Version of policy files, their key ``version``."""


def format_version(value: object) -> int:
    """Return the format's version; refuses others."""
    text = text_of(value, "a number")
    if text != str(VERSION):
        hint = f"this advisor reads version {VERSION} only"
        refuse(f"version {text!r} is not known", hint=hint, allowed=(str(VERSION),))
    return VERSION


_WITHOUT_EFFECT = Field(
    default="keep", description="how many nodes: always kept, the allocation is the user's"
)

if TYPE_CHECKING:

    class PolicySettings(Strict):
        """The settings that hold for a job."""
else:
    _AXES = section(core.Axes, nodes=(Annotated[str, choice(("keep",))], _WITHOUT_EFFECT))
    PolicySettings = section(core.Policy, "PolicySettings", readings={"axes": _AXES})


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
    def _has_condition(self) -> MatchSection:
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
    history: HistoryFolder = Field(
        default="",
        description="the folder of advisor store history that all is written into before the store "
        "forgets it, which it then does by whole months; left out: what is forgotten is gone",
    )


class PolicyFile(PolicySettings):
    """The site's policy."""

    version: Annotated[int, Reads(format_version, {"const": VERSION})] = Field(
        description="the format of this file"
    )
    rules: list[RuleSection] = Field(default=[], description="the first that matches wins")
    retention: RetentionSection = RetentionSection()


def sections() -> dict[str, type[BaseModel]]:
    """Return the mappings of a policy file by their keys."""
    kinds = {key: field.annotation for key, field in PolicyFile.model_fields.items()}
    return {k: v for k, v in kinds.items() if isinstance(v, type) and issubclass(v, BaseModel)}
