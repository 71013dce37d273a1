"""Policy and site settings as people and programs read them: YAML, plain data, differences."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import yaml
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from advisor.core.codec import JsonForm, wire
from advisor.core.inventory import Gpus, NodeType
from advisor.core.keys import Written, marked
from advisor.core.policy import PolicySet, shares
from advisor.core.units import format_freq, parse_freq_khz
from advisor.policy.schema import VERSION

_WRITTEN = marked(Written, NodeType, Gpus)


def fold(names: Iterable[str]) -> str:
    """Return node names as a short list, ``bdw[1-4,7]``."""
    return str(NodeSet.fromlist(sorted(names), resolver=RESOLVER_NOGROUP))


def effective(kind: str, compiled: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings that hold, for programs: every policy setting, defaults included.

    Fractions are numbers, frequencies kHz. Rules hold only what they change.
    """
    if kind == "site":
        parts: dict[str, Any] = {"node_types": {}, "default_node_types": {}, "applications": []}
        return {**parts, **compiled}
    policy = PolicySet.from_compiled(compiled)
    retention = compiled.get("retention")
    return {
        **asdict(policy.base),
        **({"retention": retention} if retention else {}),
        "rules": [
            {"match": {k: list(v) for k, v in r.match.items()}, "set": dict(r.overrides)}
            for r in policy.rules
        ],
    }


def to_yaml(kind: str, compiled: Mapping[str, object]) -> str:
    """Return the settings that hold as a file that could be applied."""
    sections = _site_file(compiled) if kind == "site" else _policy_file(compiled)
    return yaml.safe_dump(
        {"version": VERSION, **sections},
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )


def _policy_file(compiled: Mapping[str, object]) -> dict[str, Any]:
    settings = effective("policy", compiled)
    rules = settings.pop("rules")
    return {
        **_as_written(settings),
        "rules": [{"match": r["match"], **_as_written(r["set"])} for r in rules],
    }


def _site_file(compiled: Mapping[str, object]) -> dict[str, Any]:
    settings = effective("site", compiled)
    applications = []
    for compiled_application in settings["applications"]:
        rest = dict(compiled_application)
        conditions = ("executable", "job_name", "arguments")
        match = {key: rest.pop(key) for key in conditions if key in rest}
        applications.append({"name": rest.pop("name"), "match": match, **rest})
    node_types = {
        name: _as_written(type_settings) for name, type_settings in settings["node_types"].items()
    }
    options = {
        name: {"binds": axes} if axes else "harmless"
        for name, axes in settings.pop("understood_options", {}).items()
    }
    more = {"understood_options": options} if options else {}
    return {**settings, "node_types": node_types, "applications": applications, **more}


def _as_written(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as people write them: 5%, 2.4 GHz, bdw[1-4]."""
    return {key: _value(key, value) for key, value in settings.items()}


def _value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _as_written(value)
    if key in shares():
        return f"{value * 100:.10g}%"
    match _WRITTEN.get(key):
        case Written.FREQUENCIES:
            return _steps(value)
        case Written.FREQUENCY:
            return _freq(value)
        case Written.WATTS:
            return _even(value, int)
        case Written.NODES:
            return fold(value)
    return value


def _steps(steps: list[int]) -> Any:
    """Return frequency steps as a range where they are evenly spaced, else as a list."""
    rendering = _even(steps, _freq)
    if isinstance(rendering, dict):
        step = rendering["step"]
        rendering["step"] = step if step % 1000 else f"{step // 1000} MHz"
    return rendering


def _even(steps: list[int], write: Callable[[int], str | int]) -> Any:
    gaps = {b - a for a, b in pairwise(steps)}
    if len(steps) < 4 or len(gaps) > 1:
        return [write(v) for v in steps]
    return {"min": write(steps[0]), "max": write(steps[-1]), "step": gaps.pop()}


def _freq(freq_khz: int) -> str | int:
    """Return a frequency with a unit where that is exact, else the kHz."""
    text = format_freq(freq_khz)
    return text if freq_khz and parse_freq_khz(text) == freq_khz else freq_khz


@dataclass(frozen=True, slots=True)
class SettingChange(JsonForm):
    """A setting's old and new value, "" where not set."""

    key: str
    old: str = field(metadata=wire("from"))
    new: str = field(metadata=wire("to"))


def changes(kind: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[SettingChange]:
    """Return the effective settings that differ."""
    before, after = (
        dict(_flat(_site_file(c) if kind == "site" else _policy_file(c), "")) for c in (old, new)
    )
    keys = list(dict.fromkeys((*before, *after)))
    return [
        SettingChange(key, before.get(key, ""), after.get(key, ""))
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _flat(value: object, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for index, item in enumerate(value):
            yield from _flat(item, f"{key}[{index}]")
    elif isinstance(value, list):
        if value:
            yield key, ", ".join(str(v) for v in value)
    elif isinstance(value, bool):
        yield key, str(value).lower()
    else:
        yield key, str(value)


def text_diff(old: str, new: str, old_name: str, new_name: str) -> str:
    """Return the unified diff of two texts, "" when they are the same."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), old_name, new_name, lineterm=""
    )
    return "\n".join(lines)
