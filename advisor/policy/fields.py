"""The values people write in policy and site files, each with what it says when it is wrong.

Input is always the text of a YAML scalar (see ``document``), or a list or mapping of such. Every
refusal is a ``PydanticCustomError`` of type ``advisor`` that carries message, hint and allowed
values, so that all of them read alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from advisor.core.axes import AXES
from advisor.core.keys import Written
from advisor.core.nodelist import expand
from advisor.core.protocol import is_thread_count
from advisor.core.rate import refused
from advisor.core.units import parse_fraction, parse_freq_khz, parse_memory_mb
from advisor.core.worth import HOURS
from advisor.errors import StoreError
from advisor.policy.problems import did_you_mean

FALSE_WORDS = ("false", "no", "off")
TRUE_WORDS = ("true", "yes", "on")
MIN_FREQ_KHZ, MAX_FREQ_KHZ = 100_000, 10_000_000
"""Lowest and highest frequency that is accepted: others are probably in another unit."""


class Strict(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


@dataclass(frozen=True, slots=True)
class Reads:
    """How a value is read, and its JSON schema: ``Annotated[int, Reads(check, schema)]``."""

    check: Callable[[object], object]
    schema: dict[str, Any]

    def __hash__(self) -> int:
        return hash(self.check)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return dict(self.schema)


def refuse(message: str, *, hint: str = "", allowed: Sequence[str] = (), key: str = "") -> NoReturn:
    """Raise the refusal of a value; ``key`` names a key below the value, if it is that one."""
    raise PydanticCustomError(
        "advisor",
        "{message}",
        {"message": message, "hint": hint, "allowed": tuple(allowed), "key": key},
    )


def text_of(value: object, expected_kind: str, allowed: Sequence[str] = ()) -> str:
    """Return a scalar's text; refuse lists and mappings."""
    if isinstance(value, list | dict):
        kind = "list" if isinstance(value, list) else "mapping"
        refuse(f"must be {expected_kind}, not a {kind}", allowed=allowed)
    return str(value).strip()


def choice(values: Sequence[str]) -> Reads:
    """Return the reading of one word out of ``values``; YAML's other words for off count as off."""

    def check(value: object) -> str:
        text = text_of(value, "one word", values)
        word = text.lower()
        if word in values:
            return word
        if "off" in values and word in FALSE_WORDS:
            return "off"
        hint = did_you_mean(text, values)
        if word in TRUE_WORDS:
            hint = "say which one"
        refuse(f"{text!r} is not known", hint=hint, allowed=values)

    return Reads(check, {"enum": list(values)})


def fraction(low: float, high: float) -> Reads:
    """Return the reading of a percentage between two fractions, both included."""
    span = f"from {low * 100:g}% to {high * 100:g}%"

    def check(value: object) -> float:
        text = text_of(value, "a percentage")
        try:
            number = parse_fraction(text)
        except ValueError:
            number = math.nan
        if not text.endswith("%") and _is_number(text) and abs(float(text)) >= 1:
            hint = f"write {text}%, or {float(text) / 100:g}"
            refuse(f"{text} is ambiguous: {text} percent or {text} times?", hint=hint)
        if not math.isfinite(number):
            refuse(f"{text!r} is not a percentage", hint="write it like 5%", allowed=(span,))
        if not low <= number <= high:
            refuse(f"{text} is out of range", allowed=(span,))
        return number

    schema = {
        "anyOf": [
            {"type": "string", "pattern": r"^\s*[0-9.]+\s*%\s*$"},
            {"type": "number", "minimum": low, "maximum": high},
        ]
    }
    return Reads(check, schema)


SLOWDOWN = fraction(0, 1)
"""How much slower is all right."""


def integer(low: int, high: int) -> Reads:
    """Return the reading of a whole number between two bounds, both included."""

    def check(value: object) -> int:
        text = text_of(value, "a whole number")
        if not re.fullmatch(r"[+-]?\d{1,15}", text):
            refuse(f"{text!r} is not a whole number", allowed=(f"{low} to {high}",))
        number = int(text)
        if not low <= number <= high:
            refuse(f"{number} is out of range", allowed=(f"{low} to {high}",))
        return number

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Reads(check, schema)


def number(low: float, high: float) -> Reads:
    """Return the reading of a number between two bounds, both included."""

    def check(value: object) -> float:
        text = text_of(value, "a number")
        if not _is_number(text):
            refuse(f"{text!r} is not a number", allowed=(f"{low:g} to {high:g}",))
        number_read = float(text)
        if not low <= number_read <= high:
            refuse(f"{text} is out of range", allowed=(f"{low:g} to {high:g}",))
        return number_read

    schema = {"type": "number", "minimum": low, "maximum": high}
    return Reads(check, schema)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _flag(value: object) -> bool:
    text = text_of(value, "true or false")
    if text.lower() in TRUE_WORDS:
        return True
    if text.lower() in FALSE_WORDS:
        return False
    refuse(f"{text!r} is neither true nor false", allowed=("true", "false"))


Flag = Annotated[bool, Reads(_flag, {"type": "boolean"})]


def listed(value: object) -> object:
    """Return a lone value as a list of one; refuse an empty list, which would match nothing."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and not value:
        refuse("the list is empty", hint="give at least one value, or remove the key")
    if isinstance(value, dict):
        refuse("must be a value or a list of values, not a mapping")
    return value


def _pattern(value: object) -> str:
    text = text_of(value, "a pattern")
    if not text.isprintable():
        refuse("has characters that cannot be printed")
    return text


def one_or_many(item_schema: dict[str, Any]) -> Reads:
    """Return the reading of one value or a list of them as a list."""
    schema = {"anyOf": [item_schema, {"type": "array", "items": item_schema, "minItems": 1}]}
    return Reads(listed, schema)


_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_NAME: dict[str, Any] = {"type": ["string", "integer"]}
REGEX_SCHEMA: dict[str, Any] = {"type": "string", "format": "regex"}
Patterns = Annotated[list[Annotated[str, Reads(_pattern, _SCALAR)]], one_or_many(_SCALAR)]
"""Shell patterns: one, or a list of which any may match."""


def _regex(value: object) -> str:
    text = text_of(value, "a regular expression")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        refuse(f"not a regular expression: {error}", hint="put it into single quotes")
    return text


Regexes = Annotated[list[Annotated[str, Reads(_regex, REGEX_SCHEMA)]], one_or_many(REGEX_SCHEMA)]
"""Regular expressions: one, or a list of which all must be found."""


def _name(value: object) -> str:
    text = text_of(value, "a name")
    if not re.fullmatch(r"[\w.+:=,@%/-][\w.+:=,@%/ -]{0,198}", text) or text.endswith(" "):
        refuse(f"{text!r} is not a name", hint="letters, digits and . _ + : = , @ % / - only")
    return text


Name = Annotated[str, Reads(_name, _NAME)]
"""A name people give: an application."""


def _word(value: object) -> str:
    text = text_of(value, "a name")
    if not re.fullmatch(r"[\w.+:@-]{1,200}", text):
        refuse(f"{text!r} is not a name", hint="letters, digits and . _ + : @ - only")
    return text


Word = Annotated[str, Reads(_word, _NAME)]
"""A name a scheduler takes on its command line: a partition."""


def _file_pattern(value: object) -> str:
    text = text_of(value, "a file")
    if not re.fullmatch(r"[^\s'\"`;&|<>()]{1,200}", text):
        refuse(f"{text!r} is no file, or a pattern of files", hint="no blanks, no quotes")
    if not re.search(r"[\w.]", re.sub(r"\[[^]]*\]", "", text)):
        refuse(f"{text!r} is any file", hint="name a file, or a folder: /sw/env/*")
    return text


FilePattern = Annotated[str, Reads(_file_pattern, {"type": "string"})]
"""A file as scripts name it; ``*`` stands for anything, ``/`` too."""


def _understood(value: object) -> str:
    text = text_of(value, "a name")
    if not re.fullmatch(r"[\w.+:@-]{1,200}(=\d{1,9})?", text):
        hint = "letters, digits and . _ + : @ - only, and of a frequency variable =KHZ"
        refuse(f"{text!r} is not a name", hint=hint)
    return text


Understood = Annotated[str, Reads(_understood, _NAME)]
"""An option, variable or resource, or a frequency variable with its value."""


def _thread_variable(value: object) -> str:
    text = text_of(value, "a variable's name")
    if len(text) > 60 or not is_thread_count(text):
        hint = "the advisor sets variables like MKL_NUM_THREADS"
        refuse(f"{text!r} is not a variable that sets threads", hint=hint)
    return text


ThreadVariables = Annotated[
    list[Annotated[str, Reads(_thread_variable, _NAME)]], one_or_many(_NAME)
]
"""Variables that set a program's threads: one, or a list."""


def _feature(value: object) -> str:
    """Read a constraint; PBS's is a resource and its value: ``kind=bdw``."""
    text = text_of(value, "a name")
    name, equals, setting = text.partition("=")
    if not equals:
        return "" if text == "" else _word(value)
    return f"{_word(name)}={_word(setting)}"


Feature = Annotated[str, Reads(_feature, _NAME)]
"""A constraint, or the empty text: no constraint selects these nodes."""
Words = Annotated[list[Word], one_or_many(_NAME)]


def _freq(value: object) -> int:
    text = text_of(value, "a frequency")
    try:
        khz = parse_freq_khz(text)
    except ValueError:
        refuse(f"{text!r} is not a frequency", hint="write kHz or a unit, like 2.4 GHz")
    if not MIN_FREQ_KHZ <= khz <= MAX_FREQ_KHZ:
        unit = "GHz" if khz < 20 else "MHz"
        bare = text.replace(".", "", 1).isdecimal()
        hint = f"write {text} {unit}; without a unit it is kHz" if bare else ""
        refuse(f"{text} is not a processor's frequency", hint=hint, allowed=("0.1 GHz to 10 GHz",))
    return khz


FREQ_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": MIN_FREQ_KHZ, "maximum": MAX_FREQ_KHZ},
        {"type": "string", "pattern": r"^\s*[0-9.]+\s*([kK]|[mM]|[gG])[hH]z\s*$"},
    ]
}
FREQ = Reads(_freq, FREQ_SCHEMA)
Freq = Annotated[int, FREQ]
"""A frequency in kHz, or with a unit."""


def _lone(value: object) -> object:
    return [value] if isinstance(value, str) else value


_FREQUENCIES = Reads(_lone, {"anyOf": [FREQ_SCHEMA, {"type": "array", "items": FREQ_SCHEMA}]})


def _memory(value: object) -> int:
    text = text_of(value, "an amount of memory")
    try:
        memory_mb = round(parse_memory_mb(text))
    except ValueError:
        refuse(f"{text!r} is not an amount of memory", hint="write MB, or a unit like 192 GB")
    if not 1 <= memory_mb <= 1 << 30:
        refuse(f"{text} is out of range", allowed=("1 MB to 1024 TB",))
    return memory_mb


Memory = Annotated[int, Reads(_memory, {"type": ["integer", "string"], "minimum": 1})]
"""An amount of memory in MB, or with a unit."""


def _node_names(value: object) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    try:
        return list(expand(",".join(text_of(t, "a node list") for t in texts)))
    except ValueError as error:
        refuse(str(error), hint="write it like bdw[1-4,7]")


_NODES_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
}
NodeNames = Annotated[list[str], Reads(_node_names, _NODES_SCHEMA)]
"""A node list, ``bdw[1-4,7]``, read as names."""


UNION_TAGS = ("<list>", "<range>", "<text>", "<keys>")
"""Marks pydantic puts into error paths for the two ways to write a value."""
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


def _steps_form(value: object) -> str:
    return "<range>" if isinstance(value, dict) else "<list>"


def _steps(stated_steps: Sequence[int] | StepRange) -> list[int]:
    """Return the values that a list or a range stands for, ascending."""
    if isinstance(stated_steps, StepRange):
        return list(range(stated_steps.min, stated_steps.max + 1, stated_steps.step))
    return sorted(set(stated_steps))


Frequencies = Annotated[
    Annotated[list[Freq], _FREQUENCIES, Tag("<list>")] | Annotated[FreqRange, Tag("<range>")],
    Discriminator(_steps_form),
    AfterValidator(_steps),
]
"""One frequency, a list or a range, read as a list; an empty one says that none can be set."""
_WATTS_OF_ONE = integer(AXES["gpu_power_w"].least, AXES["gpu_power_w"].most)
_WATT = _WATTS_OF_ONE.schema
Watts = Annotated[int, _WATTS_OF_ONE]


class WattRange(StepRange):
    """Power limits from ``min`` to ``max``, both included."""

    min: Watts = Field(description="the lowest limit")
    max: Watts = Field(description="the highest limit")
    step: Watts = Field(description="the distance between two limits in W")


_WATTS = Reads(_lone, {"anyOf": [_WATT, {"type": "array", "items": _WATT}]})
WattSteps = Annotated[
    Annotated[list[Watts], _WATTS, Tag("<list>")] | Annotated[WattRange, Tag("<range>")],
    Discriminator(_steps_form),
    AfterValidator(_steps),
]
"""As Frequencies, in W."""


def _model(value: object) -> str:
    text = text_of(value, "a name")
    if not text.isprintable() or not 1 <= len(text) <= 100:
        refuse(f"{text!r} is not a name of a GPU", hint="write it as nvidia-smi -L does")
    return text


def _folder(value: object) -> str:
    text = text_of(value, "a folder")
    if not text or not text.isprintable() or len(text) > 1000:
        refuse(f"{text!r} is not a folder")
    return text


def _history_folder(value: object) -> str:
    from advisor.store.parquet import check_name

    text = _folder(value)
    if not text.startswith("/"):
        refuse(
            f"{text!r} does not begin with /", hint="advisor collect runs in a folder of its own"
        )
    try:
        check_name(Path(text))
    except StoreError as error:
        refuse(str(error))
    return text


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


RateExpression = Annotated[str, Reads(_rate, REGEX_SCHEMA)]


def _unit(value: object) -> str:
    text = text_of(value, "a unit")
    if not text.isprintable() or len(text) > 30:
        refuse(f"{text!r} is not a unit", hint="write it like GFLOP/s or steps/s")
    return text


def _axis_value(value: object) -> str:
    text = text_of(value, "a template")
    if text.count("{}") != 1 or not re.fullmatch(r"[\w.:=,+-]{1,60}", text.replace("{}", "") + "0"):
        refuse(f"{text!r} is not a value with {{}}", hint="write it like {} or watts={}")
    return text


def hourly(low: float, high: float) -> Reads:
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


_TEXT: dict[str, Any] = {"type": "string"}
Folder = Annotated[str, Reads(_folder, _TEXT)]
HistoryFolder = Annotated[
    str, Reads(_history_folder, {"type": "string", "pattern": r"^/[^*?\[\]{}]*$"})
]
READINGS: dict[Written, Any] = {
    Written.WORD: Word,
    Written.WORDS: Words,
    Written.NAME: Name,
    Written.FEATURE: Feature,
    Written.NODES: NodeNames,
    Written.MEMORY: Memory,
    Written.FREQUENCY: Freq,
    Written.FREQUENCIES: Frequencies,
    Written.WATTS: WattSteps,
    Written.GPU_MODEL: Annotated[str, Reads(_model, _TEXT)],
    Written.PATTERNS: Patterns,
    Written.EXPRESSIONS: Regexes,
    Written.RATE_EXPRESSION: RateExpression,
    Written.WORKLOAD: Annotated[str, Reads(_workload, _NAME)],
    Written.TEMPLATES: dict[str, str],
    Written.THREAD_VARIABLES: ThreadVariables,
    Written.UNIT: Annotated[str, Reads(_unit, _TEXT)],
    Written.AXIS_VALUE: Annotated[str, Reads(_axis_value, {"type": "string", "pattern": r"\{\}"})],
}
"""The type of a value as pydantic reads it, by how it is written."""
