"""What a key of policy.yaml or site.yaml takes, said where its field is defined. Standard library.

``cores: Annotated[int, Between(1, 64), "cores of a node"] = 1`` defines a key: its type, bounds or
way of writing, meaning and default. ``advisor/policy`` makes from it the reader of the file, what
is said of mistakes, the JSON schema and the page of the reference. A field without
``Annotated`` is no key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any, get_args, get_type_hints


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction that people write as a percentage; both bounds are included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Between:
    """A number, whole where its type is ``int``; both bounds are included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Hourly:
    """A number, or one for each hour of the day from midnight on; both bounds are included."""

    low: float
    high: float


class Written(Enum):
    """How people write a value where its type does not say it; ``policy/fields.py`` reads it."""

    WORD = auto()
    """A name that a scheduler takes on its command line: a partition."""
    WORDS = auto()
    NAME = auto()
    """A name that people give: an application."""
    FEATURE = auto()
    """A constraint; "": none."""
    NODES = auto()
    """A node list, ``bdw[1-4,7]``."""
    MEMORY = auto()
    """MB, or with a unit."""
    FREQUENCY = auto()
    """kHz, or with a unit."""
    FREQUENCIES = auto()
    """One, a list, or ``{min, max, step}``."""
    WATTS = auto()
    """Whole numbers: one, a list, or ``{min, max, step}``."""
    GPU_MODEL = auto()
    PATTERNS = auto()
    """Shell patterns: one, or a list of which any may match."""
    EXPRESSIONS = auto()
    """Regular expressions: one, or a list of which all must be found."""
    RATE_EXPRESSION = auto()
    """A regular expression with a group that is a number."""
    WORKLOAD = auto()
    """A name, or a template filled from named groups, ``n{size}``."""
    TEMPLATES = auto()
    """A template for each name."""
    THREAD_VARIABLES = auto()
    UNIT = auto()
    AXIS_VALUE = auto()
    """An option's value, ``{}`` where the number stands."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """Of a node: no scheduler states it, and none refuses a job for it."""


@cache
def marks_of(section: type) -> dict[str, tuple[Any, ...]]:
    """Return what stands beside the types of a section's keys, by key: the last is its meaning."""
    hints = get_type_hints(section, include_extras=True)
    return {name: get_args(hint)[1:] for name, hint in hints.items() if _is_key(hint)}


def _is_key(hint: Any) -> bool:
    return bool(getattr(hint, "__metadata__", ()))


def marked(mark: type, *sections: type) -> dict[str, Any]:
    """Return the marks of a kind by the keys that have one."""
    return {
        name: note
        for section in sections
        for name, notes in marks_of(section).items()
        for note in notes
        if isinstance(note, mark)
    }
