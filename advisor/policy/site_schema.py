"""What may stand in site.yaml: its sections, and what must hold between their keys.

What is known of nodes, applications and a kilowatt-hour is defined in ``advisor/core``, one field
each; the keys are made from those. Only what a file sets is compiled.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Discriminator, Field, Tag, model_validator

from advisor.core.axes import AXES, AxisWriting
from advisor.core.inventory import NodeType
from advisor.core.keys import marks_of
from advisor.core.rate import RateRule
from advisor.core.recognise import ApplicationRule, Conditions
from advisor.core.workers_setup import WorkersSetup
from advisor.core.worth import Tariff
from advisor.policy.fields import (
    FilePattern,
    Folder,
    RateExpression,
    Reads,
    Strict,
    Understood,
    Word,
    choice,
    number,
    refuse,
    text_of,
)
from advisor.policy.problems import did_you_mean
from advisor.policy.schema import VERSION, PolicyFile, format_version
from advisor.policy.section import section


class ElectricitySection(section(Tariff)):  # type: ignore[misc]  # made from a dataclass
    """What a kilowatt-hour costs; without it savings are shown in kWh only.

    One number, or a list of 24: of each hour of the day, local time, the first from midnight on.
    """


class WorkersSection(section(WorkersSetup, readings={"folder": Folder})):  # type: ignore[misc]
    """Where fits are worked out, by `advisor fit --all`; without it here, one after the other."""

    @model_validator(mode="after")
    def _folder_of_jobs(self) -> WorkersSection:
        if self.scheduler and not self.folder:
            refuse("names a scheduler and no folder that its nodes see", key="folder")
        return self


class AxisSection(section(AxisWriting)):  # type: ignore[misc]
    """How an axis is written into a job: by an option, or by its nodes' prolog."""

    @model_validator(mode="after")
    def _one_way(self) -> AxisSection:
        if self.nodes == bool(self.option):
            refuse("names no option, or one beside nodes: true", allowed=("option", "nodes"))
        return self


class LimitSection(Strict):
    """Limits of one class, by the strategy `default`."""

    cpi: Annotated[float, number(0, 1000)] = Field(description="cycles per instruction")
    gbs: Annotated[float, number(0, 1e6)] = Field(description="memory traffic of one node in GB/s")


class LimitsSection(Strict):
    """Where cpu-bound ends and memory-bound begins, in place of what is built in."""

    cpu: LimitSection = Field(description="cpu-bound: at most these")
    memory: LimitSection = Field(description="memory-bound: at least these")


class ClassesSection(Strict):
    """Where EAR's files of a node type are, and its limits."""

    tag: Word = Field(
        default="", description="EAR's tag, in the names of its files; default: the node type"
    )
    folder: Folder = Field(
        default="",
        description="the folder of roofline.TAG.data, extremes.TAG.data and medoids.TAG.data; "
        "default: that of ear.conf, else `classes` beside this file",
    )
    limits: LimitsSection | None = Field(
        default=None, description="limits of the strategy `default`; default: by processor"
    )

    @model_validator(mode="after")
    def _tag_in_a_file_name(self) -> ClassesSection:
        if self.tag.startswith("."):
            refuse("begins with a point", key="tag")
        return self


class NodeTypeSection(
    section(  # type: ignore[misc]
        NodeType,
        classes=(
            ClassesSection,
            Field(default=ClassesSection(), description="how the class of its jobs is found"),
        ),
    )
):
    """What is known of a class of equal nodes; each value given here wins over what the
    scheduler says."""

    @model_validator(mode="after")
    def _consistent(self) -> NodeTypeSection:
        stated_fields = self.model_fields_set
        if {"cores", "sockets"} <= stated_fields and self.cores < self.sockets:
            refuse(f"{self.cores} cores cannot fill {self.sockets} sockets", key="cores")
        steps = self.freq_khz
        if steps and "default_freq_khz" in stated_fields and self.default_freq_khz not in steps:
            hint = "add it to freq_khz, or name one of its steps"
            refuse("is not among the steps of freq_khz", key="default_freq_khz", hint=hint)
        return self


class ApplicationMatch(section(Conditions)):  # type: ignore[misc]
    """How an application is recognised: all the given conditions must hold."""

    @model_validator(mode="after")
    def _has_condition(self) -> ApplicationMatch:
        if not self.model_fields_set:
            refuse("has no conditions", allowed=tuple(type(self).model_fields))
        return self

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups of the arguments' expressions."""
        return tuple(name for text in self.arguments for name in re.compile(text).groupindex)


class RateSection(section(RateRule)):  # type: ignore[misc]
    """Where the program prints its own rate: what it does in a second."""


def _rate_form(value: object) -> str:
    return "<keys>" if isinstance(value, dict | Strict) else "<text>"


OwnRate = Annotated[
    Annotated[RateExpression, Tag("<text>")] | Annotated[RateSection, Tag("<keys>")],
    Discriminator(_rate_form),
]


class ApplicationSection(
    section(  # type: ignore[misc]
        ApplicationRule,
        skip=marks_of(Conditions),
        readings={"rate": OwnRate},
        match=(ApplicationMatch, ...),
        ranks=(
            Annotated[str, choice(("fixed",))],
            Field(default="fixed", description="the number of ranks never changes"),
        ),
    )
):
    """An application the site knows by name; the first whose match holds wins."""

    @model_validator(mode="after")
    def _template(self) -> ApplicationSection:
        groups = self.match.groups()
        templates = [("workload", self.workload)]
        templates += [("parameters", text) for text in self.parameters.values()]
        for key, template in templates:
            for name in re.findall(r"\{(\w+)\}", template):
                if name not in groups:
                    hint = f"write (?P<{name}>...) in match.arguments"
                    message = f"no group is named {name!r}"
                    refuse(message, key=key, hint=hint, allowed=groups)
        for name in self.parameters:
            if not re.fullmatch(r"[A-Za-z]\w*", name):
                message = f"{name!r} is not a name of a parameter"
                refuse(message, key="parameters", hint="a letter, then letters, digits and _")
        return self


BINDABLE = ("node_type", "nodes", "cores", "memory", "gpus", "frequency", "threads", *AXES)
_HARMLESS, _BINDS = "harmless", "harmless, or binds: [axes]"


def _bound(value: object) -> list[str]:
    if isinstance(value, dict):
        axes = value.get("binds")
        if set(value) == {"binds"} and isinstance(axes, list) and axes:
            for axis in axes:
                if str(axis) not in BINDABLE:
                    hint = did_you_mean(str(axis), BINDABLE)
                    refuse(
                        f"{str(axis)!r} is not an axis", key="binds", hint=hint, allowed=BINDABLE
                    )
            return [str(axis) for axis in axes]
        refuse(f"must be {_BINDS}", hint="write binds: [node_type]", allowed=BINDABLE)
    if text_of(value, _BINDS) != _HARMLESS:
        refuse(f"{value!r} is not known", hint=f"write {_BINDS}", allowed=(_HARMLESS,))
    return []


_BOUND_FORM = {
    "oneOf": [
        {"const": _HARMLESS},
        {
            "type": "object",
            "properties": {
                "binds": {"type": "array", "minItems": 1, "items": {"enum": [*BINDABLE]}}
            },
            "required": ["binds"],
            "additionalProperties": False,
        },
    ]
}


def _axis_name(value: object) -> str:
    text = text_of(value, "an axis")
    if text not in AXES:
        refuse(f"{text!r} is not an axis", hint=did_you_mean(text, AXES), allowed=tuple(AXES))
    return text


AxisName = Annotated[str, Reads(_axis_name, {"enum": [*AXES]})]


class SiteFile(Strict):
    """What the site knows of its nodes and applications."""

    version: Annotated[int, Reads(format_version, {"const": VERSION})] = Field(
        description="the format of this file"
    )
    node_types: dict[Word, NodeTypeSection] = Field(
        default={}, description="the classes of equal nodes, by name"
    )
    default_node_types: dict[Word, Word] = Field(
        default={}, description="per partition, the node type a job gets that asks for none"
    )
    default_partition: Word = Field(
        default="", description="the partition of a job that names none; default: the scheduler's"
    )
    applications: list[ApplicationSection] = Field(
        default=[], description="the first that matches wins"
    )
    electricity: ElectricitySection = Field(
        default=ElectricitySection(), description="what a kilowatt-hour costs, in money and CO2"
    )
    workers: WorkersSection = Field(
        default=WorkersSection(), description="where fits are worked out: here, or on jobs"
    )
    understood_options: dict[Understood, Annotated[list[str], Reads(_bound, _BOUND_FORM)]] = Field(
        default={},
        description="options, input variables or resources that the advisor does not know, such as "
        "those of the site's own SPANK plugins: `harmless`, or `binds:` and what is kept in jobs "
        "that use it; and `VARIABLE=KHZ: harmless`, a frequency cap that the site sets for all",
    )
    environment_files: list[FilePattern] = Field(
        default=[],
        description="files of the site's own that scripts source (`source /proj/env/gcc.sh`) and "
        "that only set variables, none of them a number of threads: as scripts name them, `*` "
        "stands for anything; a script that sources another file is not understood",
    )
    axes: dict[AxisName, AxisSection] = Field(
        default={},
        description="how axes that no scheduler has an option of its own for are written: "
        "`gpu_power_w: {option: gpu-power, value: '{}'}`",
    )


FILES: dict[str, type[Strict]] = {"policy": PolicyFile, "site": SiteFile}
