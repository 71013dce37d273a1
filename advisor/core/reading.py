"""What is read of a job before any policy or model is looked at, and kept with its decision.

A job's script, environment and choices file are not stored. What a decision takes from them is
little, and enough to make it again under another policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from advisor.core.reasons import Reason
from advisor.core.recognise import ApplicationRule, Recognised, StepProgram
from advisor.core.script_use import THREAD_VARIABLES, ScriptUse
from advisor.core.settings import Settings
from advisor.core.step_commands import JobSteps

_SETTINGS = (
    "advisor",
    "mode",
    "goal",
    "max_slowdown",
    "estimated_node_types",
    "cold_start",
    "extrapolated",
    "max_extrapolation",
)
"""Settings that are kept; application and workload are, recognised."""
_LONGEST = 200
"""Characters of a text that is kept; what is longer came from the user, and is cut."""


@dataclass(frozen=True, slots=True)
class JobReading:
    """What a job runs, what its user wishes, and what its script does with its cores.

    ``recognised`` is None where nothing was read, as of a job whose user opted out. ``use`` is
    None until it is worked out.
    """

    recognised: Recognised | None
    settings: Settings
    identity: str = ""
    """What the job is (:mod:`advisor.core.job_identity`), "" where that is not known. It is kept
    with the decision itself."""
    use: ScriptUse | None = None
    threads: int | None = None
    """Threads of a rank that the script states."""
    counts_threads: bool = False
    """The script sets or reads the number of its threads."""
    uncapped: str = ""
    """Why a frequency cap in the job's options does not reach its program; "" where it does."""
    node_cap: bool = False
    """Where it does not: the nodes themselves apply the cap that the job's stamp names."""
    axes_kept: tuple[str, str] = ("", "")
    """Of a job with GPUs, why the scheduler's own option for their clock does not reach them, and
    why its nodes set nothing on them; "" where they do."""
    obstacles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What kept the job off other node types, as reason codes: where it must not start later, and
    where it may wait; "" where nothing did."""
    programs: tuple[StepProgram, ...] | None = None
    """What the script starts, where its job's own history was looked at."""
    steps: JobSteps | None = None
    """What the script starts as steps, where these are planned."""
    apart: tuple[JobReading, ...] = ()
    """Of a script that runs several programs, each once and one after the other: each of them, read
    as if it were alone."""
    file: int = 0
    """Of one of these, the number of its file: 1 for the one that the job is recognised by, others
    behind it, 0 where no file is looked at."""

    @property
    def frequency_kept(self) -> str:
        """Why no cap of ours reaches the job's program; "" where one does."""
        return "" if self.node_cap else self.uncapped

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form, without what is as usual."""
        data: dict[str, object] = {}
        settings = {n: list(v) for n, v in self.settings.values.items() if n in _SETTINGS}
        if settings:
            data["settings"] = {n: [t[:_LONGEST] for t in pair] for n, pair in settings.items()}
        # A user's own file may say anything: no more of it is kept than a pin has.
        if self.settings.pin is not None:
            data["pin"] = {k[:40]: v for k, v in list(self.settings.pin.items())[:8] if _short(v)}
        recognised = self.recognised
        if recognised is not None:
            data["application"], data["workload"] = recognised.application, recognised.workload
            data["how"] = [r.code for r in recognised.how]
            if recognised.threads_from != THREAD_VARIABLES:
                data["threads_from"] = list(recognised.threads_from)
            if recognised.fills_cores:
                data["fills_cores"] = True
        if self.use is not None:
            data["use"] = _use_dict(self.use)
        if self.threads:
            data["threads"] = self.threads
        if self.counts_threads:
            data["counts_threads"] = True
        if self.uncapped:
            data["uncapped"] = self.uncapped[:_LONGEST]
        if self.node_cap:
            data["node_cap"] = True
        if any(self.axes_kept):
            data["axes_kept"] = [text[:_LONGEST] for text in self.axes_kept]
        if self.obstacles:
            data["obstacles"] = {n: list(pair) for n, pair in self.obstacles.items()}
        if self.programs is not None:
            data["programs"] = [[t[:_LONGEST] for t in program] for program in self.programs]
        if self.steps is not None:
            data["steps"] = self.steps.to_dict()
        if self.apart:
            data["apart"] = [program.to_dict() for program in self.apart]
        if self.file:
            data["file"] = self.file
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], identity: str = "") -> JobReading | None:
        """Read the JSON form back, with what is kept beside it; None where it makes no sense."""
        try:
            how = tuple(Reason(str(code)) for code in data.get("how", ()))
            variables = tuple(map(str, data.get("threads_from", ())))
            recognised = None
            if "application" in data:
                name = str(data["application"])
                fills = bool(data.get("fills_cores"))
                has_rule = variables or fills
                rule = (
                    ApplicationRule(
                        name, threads_from=variables, threads_unset="all-cores" if fills else ""
                    )
                    if has_rule
                    else None
                )
                recognised = Recognised(name, str(data["workload"]), None, how, rule)
            values = {str(n): (str(v), str(w)) for n, (v, w) in data.get("settings", {}).items()}
            pin = data.get("pin")
            threads = data.get("threads")
            return cls(
                recognised,
                Settings(values, dict(pin) if pin is not None else None),
                identity,
                _use_of(data["use"]) if "use" in data else None,
                None if threads is None else int(threads),
                bool(data.get("counts_threads")),
                str(data.get("uncapped") or ""),
                bool(data.get("node_cap")),
                _pair(data.get("axes_kept", ("", ""))),
                {str(n): (str(a), str(b)) for n, (a, b) in data.get("obstacles", {}).items()},
                _programs_of(data["programs"]) if "programs" in data else None,
                JobSteps.from_dict(data["steps"]) if "steps" in data else None,
                _apart_of(data.get("apart", ())),
                int(data.get("file", 0)),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return None


def _programs_of(data: Any) -> tuple[StepProgram, ...]:
    return tuple(StepProgram(*map(str, program)) for program in data)


def _apart_of(data: Any) -> tuple[JobReading, ...]:
    """Read several programs back. Raises ValueError where one makes no sense."""
    apart = []
    for program in data:
        reading = None if "apart" in program else JobReading.from_dict(program)
        if reading is None or reading.recognised is None or reading.use is None:
            raise ValueError("no program")
        apart.append(reading)
    return tuple(apart)


def _pair(data: Any) -> tuple[str, str]:
    first, second = map(str, data)
    return first, second


def _short(value: object) -> bool:
    return value is None or isinstance(value, int) or (isinstance(value, str) and len(value) <= 80)


_PLAIN_USE = ScriptUse()


def _use_dict(use: ScriptUse) -> dict[str, object]:
    """Return what a script's use of its cores has that is not as usual, texts bounded."""
    data: dict[str, object] = {}
    for name in _USE:
        value = getattr(use, name)
        if value != getattr(_PLAIN_USE, name):
            data[name] = value[:_LONGEST] if isinstance(value, str) else value
    if use.obstacle[0]:
        data["obstacle"] = [text[:_LONGEST] for text in use.obstacle]
    return data


_USE = tuple(f.name for f in fields(ScriptUse) if f.name != "obstacle")


def _use_of(data: Mapping[str, Any]) -> ScriptUse:
    code, detail = data.get("obstacle", ("", ""))
    stated_fields: dict[str, Any] = {n: data[n] for n in _USE if n in data}
    ends = float(stated_fields.get("ends_after_s", math.inf))
    return replace(ScriptUse((str(code), str(detail)), **stated_fields), ends_after_s=ends)
