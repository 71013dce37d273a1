"""Find response models by name; a site adds one by an entry point ``advisor.models``."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from advisor.errors import InputError
from advisor.models.base import JointModel, Matrix, Model, parse_options

GROUP = "advisor.models"
DEFAULT = "auto"
"""The model that is fitted where none is named."""
_BUILT_IN = {
    "auto": "advisor.models.auto:Auto",
    "physical": "advisor.models.physical:Physical",
    "bspline": "advisor.models.bspline:BSpline",
    "polynomial": "advisor.models.polynomial:Polynomial",
    "neural": "advisor.models.neural:Neural",
}
"""What a checkout that is not installed offers too."""


def names() -> tuple[str, ...]:
    """Return the names of all models, built-in ones first."""
    return tuple(dict.fromkeys([*_BUILT_IN, *sorted(e.name for e in entry_points(group=GROUP))]))


def find(name: str) -> type[Model] | type[JointModel]:
    """Return a model's class; InputError names the known ones for an unknown name."""
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast(type[Model] | type[JointModel], getattr(import_module(module), attribute))
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return _load(entry)
    raise InputError(f"no model is called {name!r}", hint=f"choose from: {', '.join(names())}")


def _load(entry: EntryPoint) -> type[Model] | type[JointModel]:
    try:
        return cast(type[Model] | type[JointModel], entry.load())
    except Exception as error:
        raise InputError(
            f"model {entry.name!r} ({entry.value}) cannot be loaded: {error}",
            hint="mend or remove the package that offers it",
        ) from error


def create(name: str, *, bounds: Matrix | None = None, **options: Any) -> Any:
    """Make a Model or JointModel; InputError for an unknown name or option, or a bad value."""
    found = find(name)
    return found(bounds=bounds, **parse_options(name, found.OPTIONS, options))
