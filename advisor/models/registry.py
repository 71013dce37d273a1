"""Response models by name, and the one that is fitted where none is named."""

from __future__ import annotations

from typing import Any, cast

from advisor import plugins
from advisor.models.base import JointModel, Matrix, Model, parse_options

DEFAULT = "auto"
"""The model that is fitted where none is named."""


def names() -> tuple[str, ...]:
    """Return the names of all models, the advisor's own first."""
    return plugins.names("models")


def find(name: str) -> type[Model] | type[JointModel]:
    """Return a model's class; InputError names the known ones for an unknown name."""
    return cast(type[Model] | type[JointModel], plugins.load("models", name))


def create(name: str, *, bounds: Matrix | None = None, **options: Any) -> Any:
    """Make a Model or JointModel; InputError for an unknown name or option, or a bad value."""
    found = find(name)
    return found(bounds=bounds, **parse_options(name, found.OPTIONS, options))
