"""A person's settings file: theme, first page, keys by action, signs, pictures."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.core.nearest import suggestion
from advisor.edits import replace
from advisor.errors import AdvisorError
from advisor_tui.places import PLACES

SIGNS = ("auto", "ascii", "unicode")
PICTURES = ("auto", "kitty", "off")
"""In pixels by the terminal's name, always, never."""


@dataclass(frozen=True, slots=True)
class TuiSettings:
    """What the file says; ``problems`` what is wrong with it, which then counts as not set."""

    theme: str = ""
    page: str = PLACES[0].name
    keys: Mapping[str, str] = field(default_factory=dict)
    signs: str = "auto"
    pictures: str = "auto"
    problems: tuple[str, ...] = ()


def read(path: Path | None, themes: Collection[str]) -> TuiSettings:
    """Return the settings; ``themes`` are the known ones."""
    try:
        values = _load(path)
    except ValueError as error:
        return TuiSettings(problems=(f"{path}: {error}; it is not used",))
    problems = [f"{name} is no setting" for name in values if name not in _KNOWN]

    def one_of(name: str, choices: Collection[str], default: str) -> str:
        value = values.get(name, default)
        if value in choices or value == default:
            return str(value)
        problems.append(f"{name} {value!r} is none of {', '.join(sorted(choices))}")
        return default

    theme = one_of("theme", themes, "")
    page = one_of("page", [place.name for place in PLACES], PLACES[0].name)
    signs = one_of("signs", SIGNS, "auto")
    pictures = one_of("pictures", PICTURES, "auto")
    key_settings = values.get("keys", {})
    keys = {}
    for action, key in key_settings.items() if isinstance(key_settings, dict) else ():
        if isinstance(key, str) and key:
            keys[action] = key
        else:
            problems.append(f"keys: {action}: {key!r} is not a key")
    return TuiSettings(theme, page, keys, signs, pictures, tuple(f"{path}: {p}" for p in problems))


def unknown_actions(
    path: Path | None, keys: Mapping[str, str], actions: Collection[str]
) -> list[str]:
    """Return a line for each action that the file gives a key and no page has."""
    return [
        f"{path}: keys: {action!r} (for {key!r}) is no action; {suggestion(action, actions)}"
        for action, key in keys.items()
        if action not in actions
    ]


_KNOWN = ("theme", "page", "keys", "signs", "pictures")


def keep_theme(path: Path | None, theme: str) -> None:
    """Write a theme into the file and leave all else in it; a broken file is left alone."""
    if path is not None:
        with suppress(AdvisorError, ValueError):
            replace(path, json.dumps({**_load(path), "theme": theme}, indent=2).encode() + b"\n")


def _load(path: Path | None) -> dict[str, Any]:
    """Return the file's object, {} without a file. Raises ValueError for anything else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise ValueError("does not hold one JSON object")
    return values
