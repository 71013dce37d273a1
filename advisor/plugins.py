"""What a package can add, found by name: schedulers, translators, models, scaling models, meters,
strategies, workers; verbs, importers, panels, what follows runs of sweeps, and tables of the store.

Each is an entry point of the group ``advisor.KIND``. The advisor's own are registered in the same
way, so that a package of a site's own can do all that they do.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from advisor.errors import InputError, UnknownNameError

PluginKind = Literal[
    "schedulers",
    "translators",
    "models",
    "meters",
    "strategies",
    "scaling",
    "workers",
    "verbs",
    "importers",
    "panels",
    "after_run",
    "early_stops",
    "migrations",
]

_OWN = "advisor."
"""What the targets of the advisor's own entry points begin with."""


@cache
def found(kind: PluginKind) -> dict[str, EntryPoint]:
    """Return the entry points by name: the advisor's own first, then a site's by name."""
    declared = list(entry_points(group=f"advisor.{kind}"))
    added = sorted((e for e in declared if not e.value.startswith(_OWN)), key=lambda e: e.name)
    entries = {e.name: e for e in declared if e.value.startswith(_OWN)}
    for entry in added:
        entries.setdefault(entry.name, entry)
    return entries


def added(kind: PluginKind) -> bool:
    """Tell whether a package adds any to the advisor's own."""
    return not all(entry.value.startswith(_OWN) for entry in found(kind).values())


def names(kind: PluginKind) -> tuple[str, ...]:
    """Return the names that there are of a kind, the advisor's own first."""
    return tuple(found(kind))


def load(kind: PluginKind, name: str) -> Any:
    """Return what an entry point stands for.

    Raises InputError for a name nobody registered, naming those that are there, and for a package
    that does not load.
    """
    entry = found(kind).get(name)
    if entry is None:
        valid_names = (
            ", ".join(sorted(names(kind)))
            or "none: install the advisor with pip, also from a checkout"
        )
        raise UnknownNameError(
            f"no {_singular(kind)} is called {name!r}", hint=f"choose from: {valid_names}"
        )
    try:
        return entry.load()
    except Exception as error:
        raise InputError(
            f"{_singular(kind)} {name!r} ({entry.value}) cannot be loaded: {error}",
            hint="mend or remove the package that offers it",
        ) from error


def _singular(kind: PluginKind) -> str:
    irregular = {
        "strategies": "strategy",
        "scaling": "scaling model",
        "workers": "engine of workers",
        "after_run": "step after runs",
    }
    return irregular.get(kind, kind.removesuffix("s"))
