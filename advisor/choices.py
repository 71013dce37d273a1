"""The user's own choices file: read it, change one entry of it, leave the rest alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.core.settings import CHOICES_VERSION, Settings, parse_choices, with_choices
from advisor.edits import Edit, replace
from advisor.errors import InputError

_HINT = "mend or remove the file"


def read(path: Path) -> dict[str, Any]:
    """Return the choices file's content, {} without one. Raises InputError when it is broken."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}", hint=_HINT) from None
    choices, problem = parse_choices(text)
    if problem:
        raise InputError(f"{path}: {problem}", hint=_HINT)
    if choices.get("version", CHOICES_VERSION) != CHOICES_VERSION:
        raise InputError(f"{path}: version {choices['version']!r} is not known", hint=_HINT)
    table = choices.get("workloads", {})
    if not isinstance(table, dict) or not all(isinstance(e, dict) for e in table.values()):
        raise InputError(f"{path}: workloads does not hold one object per workload", hint=_HINT)
    return choices


def write(path: Path, choices: Mapping[str, Any]) -> Edit:
    """Replace the choices file in one step, without entries that say nothing."""
    return replace(path, text_of(choices).encode())


def text_of(choices: Mapping[str, Any]) -> str:
    """Return the file's text."""
    document = {"version": CHOICES_VERSION, **without_empty(choices)}
    return json.dumps(document, indent=2) + "\n"


def without_empty(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return choices without the workloads' entries that say nothing."""
    workloads = choices.get("workloads")
    if not isinstance(workloads, Mapping):
        return {**choices}
    return {**choices, "workloads": {name: entry for name, entry in workloads.items() if entry}}


def entry_of(choices: dict[str, Any], application: str | None, workload: str | None) -> Any:
    """Return the entry to change, made if need be.

    ``application`` None: all of the user's jobs; ``workload`` None: all of the application.
    """
    if application is None:
        return choices
    return choices.setdefault("workloads", {}).setdefault(f"{application}/{workload or '*'}", {})


def chosen(choices: Mapping[str, Any], application: str, workload: str) -> dict[str, Any]:
    """Return what holds for a workload: ``off``, ``mode``, ``goal``, ``max_slowdown``, ``pin``.

    As decisions read it: each from the workload's entry, else the application's, else all jobs'.
    """
    merged = with_choices(Settings({}), choices, application, workload)
    values: dict[str, Any] = {name: value for name, (value, _) in merged.values.items()}
    if values.pop("advisor", ""):
        values["off"] = True
    if merged.pin is not None:
        values["pin"] = dict(merged.pin)
    return values
