"""Mappings of the YAML files whose keys are the fields of a dataclass of ``advisor/core``.

``core/keys.py`` says how a field defines a key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import GenericAlias
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from advisor.core.codec import default_of
from advisor.core.keys import Between, Hourly, Share, Written, marks_of
from advisor.policy.fields import READINGS, Flag, Strict, choice, fraction, hourly, integer, number


def section(
    settings: type,
    name: str = "",
    *,
    readings: Mapping[str, Any] | None = None,
    skip: Collection[str] = (),
    **more: Any,
) -> type[Strict]:
    """Return the mapping whose keys are the fields of a dataclass, but for those to ``skip``.

    ``readings`` are types, as pydantic reads them, of keys whose fields do not say enough; ``more``
    are keys that belong to no field.
    """
    readings = readings or {}
    keys: dict[str, Any] = {}
    hints, marks = get_type_hints(settings), marks_of(settings)
    for setting in fields(settings):
        key, kind, notes = setting.name, hints[setting.name], marks.get(setting.name, ())
        if key in skip or not (notes or is_dataclass(kind)):
            continue
        reading = readings.get(key) or _reading(kind, notes)
        if is_dataclass(kind):
            default = reading()
        else:
            default = default_of(setting)
            default = list(default) if isinstance(default, tuple) else default
            default = ... if default is MISSING else default
        meaning = {"description": notes[-1]} if notes else {}
        keys[key] = (reading, Field(default=default, **meaning))
    summary = (settings.__doc__ or "").split("\n\n    ``")[0]
    model: type[Strict] = create_model(
        name or f"{settings.__name__}Section", __base__=Strict, __doc__=summary, **keys, **more
    )
    return model


def _reading(kind: Any, notes: Collection[Any]) -> Any:
    """Return the type of a key as pydantic reads it, from type and marks of its field."""
    if is_dataclass(kind):
        return section(cast(type, kind))
    for note in notes:
        match note:
            case Written():
                return READINGS[note]
            case Share(low, high):
                return Annotated[float, fraction(low, high)]
            case Hourly(low, high):
                return Annotated[float | list[float], hourly(low, high)]
            case Between(low, high) if kind is int:
                return Annotated[int, integer(int(low), int(high))]
            case Between(low, high):
                return Annotated[float, number(low, high)]
    if get_origin(kind) is Literal:
        return Annotated[str, choice([word for word in get_args(kind) if word])]
    if get_origin(kind) is tuple:
        return GenericAlias(list, (_reading(get_args(kind)[0], ()),))
    assert kind is bool, kind
    return Flag
