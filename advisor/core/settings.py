"""What the user wants for this job, from all the places that may hold it.

Order of authority: ``ADVISOR_*`` variable (a command-line flag arrives as one), ``#ADVISOR``
line in the script, the user's choices file, then the policy. A user may always be more
conservative than the site; less only within the policy's ``user_limits``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from advisor.core.configuration import Configuration
from advisor.core.policy import (
    COLD_START_MODES,
    ESTIMATES,
    EXTRAPOLATED,
    GOALS,
    MODES,
    Policy,
)
from advisor.core.protocol import OFF
from advisor.core.reasons import Reason, reason
from advisor.core.recognise import SIZE
from advisor.core.units import format_percent, parse_fraction

CHOICES_VERSION = 1
"""Version of the file of a user's choices."""
_CHOSEN = (
    "mode",
    "goal",
    "max_slowdown",
    "estimated_node_types",
    "cold_start",
    "extrapolated",
    "max_extrapolation",
)
"""Settings that a choices file may hold."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's wishes, each as (value, where it stands)."""

    values: Mapping[str, tuple[str, str]]
    pin: Mapping[str, object] | None = None
    notes: tuple[Reason, ...] = ()

    @property
    def off(self) -> str:
        """Where the user opted out, or ""."""
        value, where = self.values.get("advisor", ("", ""))
        if value.lower() in OFF:
            return where
        value, where = self.values.get("mode", ("", ""))
        return where if value.lower() in OFF else ""


def stated(environment: Mapping[str, str], script_lines: Mapping[str, str]) -> Settings:
    """Collect what ``ADVISOR_*`` variables and ``#ADVISOR`` lines say.

    ``ADVISOR_SIZE_N`` and ``#ADVISOR size.n`` are one setting.
    """
    values: dict[str, tuple[str, str]] = {}
    for key, value in script_lines.items():
        # "#ADVISOR off" reads as the bare word "off"
        if key in OFF and value == "on":
            values["advisor"] = ("off", "#ADVISOR line")
        else:
            values[key] = (value, "#ADVISOR line")
    for name, value in environment.items():
        if name == "ADVISOR":
            values["advisor"] = (value, "ADVISOR variable")
        elif name.startswith("ADVISOR_") and value:
            key = name[8:].lower()
            key = f"{SIZE}{key[5:]}" if key.startswith("size_") else key
            values[key] = (value, f"{name} variable")
    return Settings(values)


def with_choices(
    settings: Settings, choices: Mapping[str, object], application: str, workload: str
) -> Settings:
    """Fill what is still open from the choices file: this workload, this application, all."""
    if not choices:
        return settings
    if choices.get("version", CHOICES_VERSION) != CHOICES_VERSION:
        note = reason("choices-bad", f"version {choices.get('version')!r} is not known")
        return replace(settings, notes=(*settings.notes, note))
    values = dict(settings.values)
    pin: Mapping[str, object] | None = None
    notes = list(settings.notes)
    table = choices.get("workloads", {})
    if not isinstance(table, Mapping):
        notes.append(reason("choices-bad", "workloads does not hold one object per workload"))
        table = {}
    # The narrowest first: what it says, the wider ones no longer do. Notes tell of all of them.
    for key in (f"{application}/{workload}", f"{application}/*", None):
        entry = choices if key is None else table.get(key, {})
        if not isinstance(entry, Mapping):
            notes.append(reason("choices-bad", f"{key} is not an object"))
            continue
        if entry.get("off") and "advisor" not in values:
            values["advisor"] = ("off", "your choices file")
        for name in _CHOSEN:
            if name in entry and name not in values:
                values[name] = (str(entry[name]), "your choices file")
        if pin is None and entry.get("pin") is not None:
            if isinstance(entry["pin"], Mapping):
                pin = cast(Mapping[str, object], entry["pin"])
            else:
                notes.append(reason("choices-bad", f"pin={entry['pin']!r} is not an object"))
    return replace(settings, values=values, pin=pin, notes=tuple(notes))


def apply_settings(policy: Policy, settings: Settings) -> tuple[Policy, list[Reason]]:
    """Return the policy with the user's wishes in it, as far as the site lets them."""
    notes: list[Reason] = []

    def refuse(name: str, where: str, why: str) -> None:
        notes.append(reason("setting-refused", f"{name} ({where})", why))

    limits = policy.user_limits
    if "mode" in settings.values:
        value, where = settings.values["mode"]
        if value not in MODES:
            refuse(f"mode={value}", where, f"it is one of {', '.join(MODES)}")
        elif policy.mode == "off" and value != "off":
            refuse(f"mode={value}", where, "the site's policy is off here")
        # MODES go from what does least to a job to what does most.
        elif MODES.index(value) > max(MODES.index(policy.mode), MODES.index(limits.mode)):
            refuse(f"mode={value}", where, f"the site allows at most {limits.mode}")
        else:
            policy = replace(policy, mode=value)
    if "goal" in settings.values:
        value, where = settings.values["goal"]
        if value in GOALS:
            policy = replace(policy, goal=value)
        else:
            refuse(f"goal={value}", where, f"it is one of {', '.join(GOALS)}")
    if "max_slowdown" in settings.values:
        value, where = settings.values["max_slowdown"]
        try:
            bound = parse_fraction(value)
        except ValueError as error:
            refuse(f"max_slowdown={value}", where, str(error))
        else:
            allowed = max(policy.max_slowdown, limits.max_slowdown)
            if not 0 <= bound <= allowed:
                refuse(
                    f"max_slowdown={value}",
                    where,
                    f"the site allows 0 to {format_percent(allowed)}",
                )
            else:
                policy = replace(policy, max_slowdown=bound)
    if "estimated_node_types" in settings.values:
        value, where = settings.values["estimated_node_types"]
        if value not in ESTIMATES:
            refuse(f"estimated_node_types={value}", where, f"it is one of {', '.join(ESTIMATES)}")
        elif value == "accept" != policy.estimated_node_types:
            refuse(f"estimated_node_types={value}", where, "the site refuses estimates")
        else:
            policy = replace(policy, estimated_node_types=value)
    if "cold_start" in settings.values:
        value, where = settings.values["cold_start"]
        allowed_mode = policy.cold_start.mode
        if value.lower() in OFF:
            value = "off"
        if value not in COLD_START_MODES:
            refuse(f"cold_start={value}", where, f"it is one of {', '.join(COLD_START_MODES)}")
        elif COLD_START_MODES.index(value) > COLD_START_MODES.index(allowed_mode):
            refuse(f"cold_start={value}", where, f"the site allows at most {allowed_mode}")
        else:
            policy = replace(policy, cold_start=replace(policy.cold_start, mode=value))
    return _apply_extrapolation(policy, settings, refuse), notes


def _apply_extrapolation(
    policy: Policy, settings: Settings, refuse: Callable[[str, str, str], None]
) -> Policy:
    """Return the policy with what the user wishes for sizes that never ran: never more than it."""
    if "extrapolated" in settings.values:
        value, where = settings.values["extrapolated"]
        if value not in EXTRAPOLATED:
            refuse(f"extrapolated={value}", where, f"it is one of {', '.join(EXTRAPOLATED)}")
        elif EXTRAPOLATED.index(value) > EXTRAPOLATED.index(policy.extrapolated):
            refuse(f"extrapolated={value}", where, f"the site allows at most {policy.extrapolated}")
        else:
            policy = replace(policy, extrapolated=value)
    if "max_extrapolation" in settings.values:
        value, where = settings.values["max_extrapolation"]
        try:
            times = float(value)
        except ValueError:
            times = math.nan
        if 1 <= times <= policy.max_extrapolation:
            policy = replace(policy, max_extrapolation=times)
        else:
            allowed = f"a number from 1 to the site's {policy.max_extrapolation:g}"
            refuse(f"max_extrapolation={value}", where, allowed)
    return policy


def parse_choices(text: str) -> tuple[dict[str, object], str]:
    """Return the choices file's content and "" or what is wrong with it; never raises."""
    if not text.strip():
        return {}, ""
    try:
        data = json.loads(text)
    except ValueError as error:
        return {}, f"not JSON: {error}"
    except RecursionError:
        return {}, "nested too deeply to be read"
    if not isinstance(data, dict):
        return {}, "not a JSON object"
    return data, ""


_LEAST = {"nodes": 1, "ranks_per_node": 1, "threads_per_node": 1, "freq_khz": 0}
"""The numbers of a pin and their least values; frequency 0: no cap can be set."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A configuration the user pinned; None leaves an axis to the goal.

    Nodes and ranks are never changed: a pin that names them is for jobs that have as many.
    """

    node_type: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    threads_per_node: int | None = None
    freq_khz: int | None = None
    problems: tuple[str, ...] = field(default=())

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Pin:
        """Read a pin; what cannot be read or makes no sense is named in ``problems``."""
        values: dict[str, int | None] = {}
        problems = [f"{key}: not known" for key in data if key not in cls.__slots__[:-1]]
        for key, least in _LEAST.items():
            value = data.get(key)
            ok = value is None or (
                isinstance(value, int) and not isinstance(value, bool) and value >= least
            )
            values[key] = cast("int | None", value) if ok else None
            if not ok:
                problems.append(f"{key}={value!r}")
        node_type = data.get("node_type")
        if not (node_type is None or (isinstance(node_type, str) and node_type)):
            problems.append(f"node_type={node_type!r}")
            node_type = None
        if not problems and node_type is None and not any(v is not None for v in values.values()):
            problems.append("it names nothing")
        return cls(node_type, problems=tuple(problems), **values)

    def fits(self, configuration: Configuration) -> bool:
        """Tell whether a configuration is what was pinned."""
        return all(
            pinned is None or pinned == got
            for pinned, got in (
                (self.node_type, configuration.node_type),
                (self.nodes, configuration.nodes),
                (self.ranks_per_node, configuration.ranks_per_node),
                (self.threads_per_node, configuration.threads_per_node),
                (self.freq_khz, configuration.freq_khz),
            )
        )
