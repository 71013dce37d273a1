"""What may stand in site.yaml: keys, types, ranges and defaults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Discriminator, Field, Tag, model_validator

from advisor.core.axes import AXES
from advisor.core.rate import TAKES, refused
from advisor.core.recognise import ALL_CORES
from advisor.core.units import parse_freq_khz
from advisor.core.worth import HOURS
from advisor.policy.fields import (
    FREQUENCIES,
    REGEX_SCHEMA,
    Feature,
    Flag,
    Freq,
    Memory,
    Name,
    NodeNames,
    Patterns,
    Reads,
    Regexes,
    Strict,
    ThreadVariables,
    Understood,
    Word,
    Words,
    choice,
    integer,
    number,
    refuse,
    text_of,
)
from advisor.policy.problems import did_you_mean
from advisor.policy.schema import VERSION, PolicyFile, format_version


def _by_hour(low: float, high: float) -> Reads:
    """Return the reading of a number, or of one for each hour of the day from midnight on."""
    single = number(low, high)

    def check(value: object) -> object:
        if not isinstance(value, list):
            return single.check(value)
        if len(value) != HOURS:
            refuse(f"{len(value)} values", allowed=(f"one number, or {HOURS}: one for each hour",))
        return [single.check(entry) for entry in value]

    hours = {"type": "array", "items": single.schema, "minItems": HOURS, "maxItems": HOURS}
    return Reads(check, {"anyOf": [single.schema, hours]})


class ElectricitySection(Strict):
    """What a kilowatt-hour costs; without it savings are shown in kWh only.

    One number, or a list of 24: of each hour of the day, local time, the first from midnight on.
    """

    price_per_kwh: Annotated[float | list[float], _by_hour(0, 1000)] | None = Field(
        default=None, description="the price of a kWh, or 24 of them by the hour"
    )
    currency: Word = Field(default="", description="of the price, like EUR")
    co2_g_per_kwh: Annotated[float | list[float], _by_hour(0, 5000)] | None = Field(
        default=None, description="grams of CO2 per kWh, or 24 of them by the hour"
    )


UNION_TAGS = ("<list>", "<range>", "<text>", "<keys>")
"""Marks pydantic puts into error paths for the two ways to write frequencies, or a rate."""
MAX_STEPS = 200
"""Frequencies that a range may stand for."""


def _step(value: object) -> int:
    text = text_of(value, "a frequency")
    try:
        step_khz = parse_freq_khz(text)
    except ValueError:
        refuse(f"{text!r} is not a frequency", hint="write kHz or a unit, like 100 MHz")
    if not 1000 <= step_khz <= 1_000_000:
        refuse(f"{text} is not a frequency step", allowed=("1 MHz to 1 GHz",))
    return step_khz


class StepRange(Strict):
    """Whole numbers from ``min`` to ``max``, both included, ``step`` apart."""

    min: int
    max: int
    step: int

    @model_validator(mode="after")
    def _counts(self) -> StepRange:
        if self.max < self.min:
            refuse("is below min", key="max")
        if (self.max - self.min) % self.step:
            refuse("max is not min plus a whole number of steps", hint="list the steps one by one")
        if (self.max - self.min) // self.step >= MAX_STEPS:
            refuse(f"gives more than {MAX_STEPS} steps", key="step")
        return self


class FreqRange(StepRange):
    """Frequency steps from ``min`` to ``max``, both included."""

    min: Freq = Field(description="the lowest cap")
    max: Freq = Field(description="the highest cap")
    step: Annotated[int, Reads(_step, {"type": ["integer", "string"]})] = Field(
        description="the distance between two caps, 1 MHz to 1 GHz"
    )


def _freq_form(value: object) -> str:
    return "<range>" if isinstance(value, dict) else "<list>"


Frequencies = Annotated[
    Annotated[list[Freq], FREQUENCIES, Tag("<list>")] | Annotated[FreqRange, Tag("<range>")],
    Discriminator(_freq_form),
]


def steps_of(stated_steps: Sequence[int] | StepRange) -> list[int]:
    """Return the values that a list or a range stands for, ascending."""
    if isinstance(stated_steps, StepRange):
        return list(range(stated_steps.min, stated_steps.max + 1, stated_steps.step))
    return sorted(set(stated_steps))


_WATTS_OF_ONE = integer(AXES["gpu_power_w"].least, AXES["gpu_power_w"].most)
_WATT = _WATTS_OF_ONE.schema
Watts = Annotated[int, _WATTS_OF_ONE]


class WattRange(StepRange):
    """Power limits from ``min`` to ``max``, both included."""

    min: Watts = Field(description="the lowest limit")
    max: Watts = Field(description="the highest limit")
    step: Watts = Field(description="the distance between two limits in W")


def _watts(value: object) -> object:
    return [value] if isinstance(value, str) else value


_WATTS = Reads(_watts, {"anyOf": [_WATT, {"type": "array", "items": _WATT}]})
WattSteps = Annotated[
    Annotated[list[Watts], _WATTS, Tag("<list>")] | Annotated[WattRange, Tag("<range>")],
    Discriminator(_freq_form),
]


def _model(value: object) -> str:
    text = text_of(value, "a name")
    if not text.isprintable() or not 1 <= len(text) <= 100:
        refuse(f"{text!r} is not a name of a GPU", hint="write it as nvidia-smi -L does")
    return text


class GpusSection(Strict):
    """The GPUs of a node; `advisor site discover --scheduler local` on such a node tells them."""

    model: Annotated[str, Reads(_model, {"type": "string"})] = Field(
        default="", description="the GPUs' name, as the driver has it"
    )
    count: Annotated[int, integer(1, 256)] = Field(default=1, description="GPUs per node")
    freq_khz: Frequencies = Field(
        default_factory=list,
        description="clocks that can be set: a list, or {min, max, step}; kHz or with a unit",
    )
    power_w: WattSteps = Field(
        default_factory=list,
        description="power limits of one GPU that can be set, in W: a list, or {min, max, step}",
    )
    idle_w: Annotated[float, number(0, 5000)] = Field(
        default=0, description="power of an idle GPU in W"
    )

    def given(self) -> dict[str, object]:
        """Return what is written of them, steps one by one."""
        stated_fields = self.model_dump(exclude_unset=True, exclude={"freq_khz", "power_w"})
        for key in ("freq_khz", "power_w"):
            if key in self.model_fields_set:
                stated_fields[key] = steps_of(getattr(self, key))
        return stated_fields


def _folder(value: object) -> str:
    text = text_of(value, "a folder")
    if not text or not text.isprintable() or len(text) > 1000:
        refuse(f"{text!r} is not a folder")
    return text


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
    folder: Annotated[str, Reads(_folder, {"type": "string"})] = Field(
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


class NodeTypeSection(Strict):
    """What is known of a class of equal nodes; each value given here wins over what the
    scheduler says."""

    feature: Feature = Field(
        default="", description="the constraint that selects these nodes and no others"
    )
    partitions: Words = Field(default=[], description="partitions with these nodes")
    sockets: Annotated[int, integer(1, 1024)] = Field(default=1, description="sockets per node")
    cores: Annotated[int, integer(1, 1 << 20)] = Field(
        default=1, description="physical cores per node, all sockets together, that jobs may use"
    )
    threads_per_core: Annotated[int, integer(1, 16)] = Field(
        default=1, description="hardware threads per core"
    )
    memory_mb: Memory = Field(default=0, description="memory per node in MB, or with a unit")
    freq_khz: Frequencies = Field(
        default_factory=list,
        description="caps that can be set: a list, or {min, max, step}; kHz or with a unit",
    )
    default_freq_khz: Freq = Field(
        default=0,
        description="the frequency of a job that asks for none; default: the highest step",
    )
    nodes: NodeNames = Field(default=[], description="node list, like bdw[1-4,7]")
    weight: Annotated[int, integer(0, 1 << 31)] = Field(
        default=1, description="the scheduler's weight: nodes with a lower one are handed out first"
    )
    base_power_w: Annotated[float, number(0, 1e6)] = Field(
        default=0, description="power of an idle node in W, for estimates"
    )
    core_power_w: Annotated[float, number(0, 1e4)] = Field(
        default=0, description="additional power of one busy core in W, for estimates"
    )

    gpus: GpusSection = Field(default=GpusSection(), description="the GPUs of a node")
    classes: ClassesSection = Field(
        default=ClassesSection(), description="how the class of its jobs is found"
    )

    @model_validator(mode="after")
    def _consistent(self) -> NodeTypeSection:
        stated_fields = self.model_fields_set
        if {"cores", "sockets"} <= stated_fields and self.cores < self.sockets:
            refuse(f"{self.cores} cores cannot fill {self.sockets} sockets", key="cores")
        steps = self.steps()
        if steps and "default_freq_khz" in stated_fields and self.default_freq_khz not in steps:
            hint = "add it to freq_khz, or name one of its steps"
            refuse("is not among the steps of freq_khz", key="default_freq_khz", hint=hint)
        return self

    def steps(self) -> list[int]:
        """Return the frequency steps in kHz, ascending."""
        return steps_of(self.freq_khz)


class ApplicationMatch(Strict):
    """How an application is recognised: all the given conditions must hold."""

    executable: Patterns = Field(default=[], description="the program's file name")
    job_name: Patterns = Field(default=[], description="the job's name")
    arguments: Regexes = Field(
        default=[],
        description="regular expressions to find in the arguments; named groups fill `workload`",
    )

    @model_validator(mode="after")
    def _has_condition(self) -> ApplicationMatch:
        if not self.model_fields_set:
            refuse("has no conditions", allowed=tuple(type(self).model_fields))
        return self

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups of the arguments' expressions."""
        return tuple(name for text in self.arguments for name in re.compile(text).groupindex)


def _workload(value: object) -> str:
    text = text_of(value, "a name or a template")
    if not re.fullmatch(r"[\w.+:=,@%/{} -]{1,200}", text):
        refuse(
            f"{text!r} is not a name", hint="letters, digits and . _ + : = , @ % / - and {group}"
        )
    if re.search(r"[{}]", re.sub(r"\{\w+\}", "", text)):
        refuse(f"{text!r} has a brace that is not {{group}}", hint="write it like n{size}")
    return text


def _rate(value: object) -> str:
    text = text_of(value, "a regular expression")
    if why := refused(text):
        refuse(why, hint="put it into single quotes")
    return text


def _unit(value: object) -> str:
    text = text_of(value, "a unit")
    if not text.isprintable() or len(text) > 30:
        refuse(f"{text!r} is not a unit", hint="write it like GFLOP/s or steps/s")
    return text


class RateSection(Strict):
    """Where the program prints its own rate: what it does in a second."""

    match: Annotated[str, Reads(_rate, REGEX_SCHEMA)] = Field(
        description="a regular expression, searched in each line; its group `rate`, else its "
        "first, is the number"
    )
    take: Annotated[str, choice(TAKES)] = Field(
        default="last", description="which of several matches counts: last, first, mean or sum"
    )
    unit: Annotated[str, Reads(_unit, {"type": "string"})] = Field(
        default="", description="the rate's unit, like GFLOP/s"
    )


def _rate_form(value: object) -> str:
    return "<keys>" if isinstance(value, dict) else "<text>"


OwnRate = Annotated[
    Annotated[str, Reads(_rate, REGEX_SCHEMA), Tag("<text>")]
    | Annotated[RateSection, Tag("<keys>")],
    Discriminator(_rate_form),
]


class ApplicationSection(Strict):
    """An application the site knows by name; the first whose match holds wins."""

    name: Name = Field(description="the name models are kept under")
    match: ApplicationMatch
    workload: Annotated[str, Reads(_workload, {"type": ["string", "integer"]})] = Field(
        default="",
        description="its input: a name, or a template filled from named groups, like n{size}",
    )
    ranks: Annotated[str, choice(("fixed",))] = Field(
        default="fixed", description="the number of ranks never changes"
    )
    threads_from: ThreadVariables = Field(
        default=[],
        description="the variables that set its threads, where that is not OMP_NUM_THREADS",
    )
    threads_unset: Annotated[str, choice((ALL_CORES,))] = Field(
        default="",
        description="`all-cores`: while these variables are unset, each of its ranks uses as many "
        "threads as it has cores. Without this line, the advisor only sets a variable that a job "
        "leaves unset where a measured run with it unset used that many threads. Never say so of "
        "programs that start workers, like joblib, torchrun, Ray, Dask or Spark",
    )
    parameters: dict[str, str] = Field(
        default={},
        description="the numbers that make up its size, each a template filled from named groups: "
        "{n: '{size}'}",
    )
    ignore: Words = Field(
        default=[], description="names of numbers in its line without effect, like seed"
    )
    rate: OwnRate = Field(
        default="",
        description="how its own rate is read from its output by `advisor run` and `train`: "
        "{match, take, unit}, or the expression alone",
    )

    def rate_rule(self) -> dict[str, object]:
        """Return how its rate is read, in the compiled form."""
        rate = self.rate
        return {"match": rate} if isinstance(rate, str) else rate.model_dump(exclude_unset=True)

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


def _axis_value(value: object) -> str:
    text = text_of(value, "a template")
    if text.count("{}") != 1 or not re.fullmatch(r"[\w.:=,+-]{1,60}", text.replace("{}", "") + "0"):
        refuse(f"{text!r} is not a value with {{}}", hint="write it like {} or watts={}")
    return text


def _axis_name(value: object) -> str:
    text = text_of(value, "an axis")
    if text not in AXES:
        refuse(f"{text!r} is not an axis", hint=did_you_mean(text, AXES), allowed=tuple(AXES))
    return text


class AxisSection(Strict):
    """How an axis is written into a job: by an option, or by its nodes' prolog."""

    option: Word = Field(
        default="", description="the long name of the site's own option, without dashes"
    )
    value: Annotated[str, Reads(_axis_value, {"type": "string", "pattern": r"\{\}"})] = Field(
        default="{}", description="the option's value; {} stands for the number"
    )
    nodes: Flag = Field(
        default=False,
        description="true: Slurm's prolog `advisor-node-cap` sets it on the job's own GPUs",
    )

    @model_validator(mode="after")
    def _one_way(self) -> AxisSection:
        if self.nodes == bool(self.option):
            refuse("names no option, or one beside nodes: true", allowed=("option", "nodes"))
        return self


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
    understood_options: dict[Understood, Annotated[list[str], Reads(_bound, _BOUND_FORM)]] = Field(
        default={},
        description="options, input variables or resources that the advisor does not know, such as "
        "those of the site's own SPANK plugins: `harmless`, or `binds:` and what is kept in jobs "
        "that use it; and `VARIABLE=KHZ: harmless`, a frequency cap that the site sets for all",
    )
    axes: dict[AxisName, AxisSection] = Field(
        default={},
        description="how axes that no scheduler has an option of its own for are written: "
        "`gpu_power_w: {option: gpu-power, value: '{}'}`",
    )


FILES: dict[str, type[Strict]] = {"policy": PolicyFile, "site": SiteFile}
