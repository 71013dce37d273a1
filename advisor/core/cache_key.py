"""Keys of what is remembered, from the fields of what it follows from.

Every field of a dataclass is part of its key, a new one too, unless the field itself says why not:
a field that is forgotten would serve one job with another's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

_FORM, _OUTSIDE = "key form", "outside of the key"


def keyed_as(form: Callable[[Any], object]) -> Mapping[str, object]:
    """Return the metadata of a field that is part of the key as what ``form`` makes of it."""
    return {_FORM: form}


def not_keyed(why: str) -> Mapping[str, object]:
    """Return the metadata of a field that is no part of the key, with the reason."""
    return {_OUTSIDE: why}


def key_maker(kind: type) -> Callable[[Any], tuple[object, ...]]:
    """Return the function that makes the key of an object of the dataclass ``kind``."""
    parts = [f for f in fields(kind) if _OUTSIDE not in f.metadata]
    values_of = attrgetter(*(f.name for f in parts))
    forms = [(i, f.metadata[_FORM]) for i, f in enumerate(parts) if _FORM in f.metadata]

    def key(instance: Any) -> tuple[object, ...]:
        values = list(values_of(instance))
        for i, form in forms:
            values[i] = form(values[i])
        return tuple(values)

    return key
