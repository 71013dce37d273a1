"""The decision for one job: what was asked, what else there was, what was chosen and why.

One type for all who handle decisions: the daemon makes it, :func:`advisor.core.stamp.read_stamp`
reads it from a job's stamp, :meth:`Decision.from_dict` from the store or a daemon's answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, cast

from advisor.core.axes import Extra, read_extra
from advisor.core.codec import FieldError
from advisor.core.configuration import Configuration
from advisor.core.policy import Goal, Mode, Policy
from advisor.core.program import checked
from advisor.core.reading import JobReading
from advisor.core.reasons import BY_CLASS, ESTIMATED, EXTRAPOLATED, Reason
from advisor.core.request import JobRequest
from advisor.core.step_plan import StepPlan

_OF_REQUEST = ("scheduler", "hook", "user", "account")
_TEXTS = (
    *_OF_REQUEST,
    "created_at",
    "application",
    "workload",
    "message",
    "job_id",
    "cluster",
    "origin",
    "identity",
)
"""Fields that are texts, under the same name in JSON."""

_PLAIN = (
    "created_at",
    *_OF_REQUEST,
    "mode",
    "goal",
    "application",
    "workload",
    "changed",
    "message",
    "holdout",
    "model_id",
    "policy_version",
)
"""Fields that JSON has as they are."""

_IF_SET = ("cold_start", "node_cap_khz", "job_id", "cluster", "origin", "identity", "parts")
"""Fields that JSON has as they are, where they say something."""

_OF_OUTCOME = (
    "application",
    "workload",
    "mode",
    "goal",
    "policy_version",
    "model_id",
    "holdout",
    "changed",
)

FROM_STAMP = "stamp"
"""The origin of a decision that is known from its job's stamp only."""


class Effect(NamedTuple):
    """A predicted change against the baseline: fractions, with its 90 % interval.

    NaN in a decision that was read back and does not say.
    """

    change: float
    lo: float
    hi: float

    def to_list(self) -> list[float]:
        """Return change, lower and upper end in percent."""
        return [round(v * 100, 2) for v in self]

    @classmethod
    def of_percent(cls, change: object, lo: object, hi: object) -> Effect:
        """Read :meth:`to_list`'s numbers back; anything else becomes NaN."""
        return cls(number(change) / 100, number(lo) / 100, number(hi) / 100)


class Alternative(NamedTuple):
    """An option as it was weighed: absolute values and changes against the baseline."""

    configuration: Configuration
    time_s: float
    energy_j: float
    time: Effect
    energy: Effect
    confirmed: bool = False
    estimated: bool = False

    def times(self, runs: int) -> Alternative:
        """Return the same of so many runs of the program, one after the other."""
        return self._replace(time_s=self.time_s * runs, energy_j=self.energy_j * runs)

    def predicted(self) -> dict[str, object]:
        """Return the JSON form of what is predicted: percent, intervals at 90 %."""
        t, e = self.time.to_list(), self.energy.to_list()
        return {
            "time_s": self.time_s,
            "energy_j": self.energy_j,
            "time_pct": t[0],
            "time_pct_interval": t[1:],
            "energy_pct": e[0],
            "energy_pct_interval": e[1:],
        }

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            **self.configuration.to_dict(),
            **self.predicted(),
            "confirmed": self.confirmed,
            "estimated": self.estimated,
        }

    @classmethod
    def from_dict(cls, place: object, values: object) -> Alternative | None:
        """Read the JSON forms of a configuration and of its prediction; None without the former.

        A value that is missing or no finite number becomes NaN.
        """
        configuration = read_configuration(place)
        if configuration is None:
            return None
        data = _mapping(values)
        return cls(
            configuration,
            number(data.get("time_s")),
            number(data.get("energy_j")),
            Effect.of_percent(data.get("time_pct"), *_ends(data.get("time_pct_interval"))),
            Effect.of_percent(data.get("energy_pct"), *_ends(data.get("energy_pct_interval"))),
            bool(data.get("confirmed")),
            bool(data.get("estimated")),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What the advisor answers for one job, and all that explains it.

    ``rewrite`` maps the scheduler's option names to new values; ``environment`` holds variables
    to set in the job; both are empty when nothing changes. ``policy`` is what held for the job,
    the user's own settings included; of one that is read back only its mode and goal are known.
    """

    id: str
    created_at: str
    scheduler: str
    hook: str
    user: str
    account: str
    policy: Policy
    application: str
    workload: str
    baseline: Configuration | None
    chosen: Alternative | None
    alternatives: tuple[Alternative, ...] = ()
    rewrite: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    message: str = ""
    holdout: bool = False
    model_id: int | None = None
    energy_quality: str = "missing"
    policy_version: int = 0
    baseline_time_s: float | None = None
    baseline_energy_j: float | None = None
    request: JobRequest | None = None
    reading: JobReading | None = None
    """With the request, what it takes to decide again; None where that was not kept."""

    program: Mapping[str, object] = field(default_factory=dict)
    """What the hook found of the program's file."""

    look_at: Mapping[str, str] = field(default_factory=dict)
    """The file a hook is to look at before it changes the job, and what it should find there: see
    :func:`advisor.core.program.expected`. Empty: nothing to look at."""

    cold_start: Mapping[str, object] = field(default_factory=dict)
    """Of an application that was never swept: class, strategy, applications, method, intervals."""

    binds_node_type: bool = False
    """The rewrite names the node type, so that the job gets no other nodes."""

    node_cap_khz: int = 0
    """The cap, kHz, that the nodes themselves put on all that the job runs; 0 for none. Its stamp
    carries it to them."""

    node_axes: Extra = ()
    """What the nodes themselves set on the job's GPUs; its stamp carries it to them."""

    stamped_change: bool = False
    """The job's stamp says that the job was changed; it does not say how."""

    job_id: str = ""
    """The job it was made for, once that is known."""

    cluster: str = ""
    """The cluster whose id that is, or that the job was submitted to; "" where nobody knows."""

    identity: str = ""
    """What its job is (:mod:`advisor.core.job_identity`): outcomes are found by it."""

    parts: tuple[Mapping[str, object], ...] = ()
    """What the promise of a whole job is made of (:mod:`advisor.core.whole_job`)."""

    plan: StepPlan | None = None
    """What the job's steps get where they start, of a job that is left as it is written."""

    origin: str = ""
    """:data:`FROM_STAMP` or "": made by a daemon that wrote it into the store."""

    _once: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was worked out of it, shared by all that :meth:`of_job` made of it."""

    @property
    def mode(self) -> str:
        """The policy's mode, "" when unknown."""
        return self.policy.mode

    @property
    def goal(self) -> str:
        """The policy's goal, "" when unknown."""
        return self.policy.goal

    @property
    def changed(self) -> bool:
        """Whether the job is rewritten."""
        return bool(self.rewrite or self.environment or self.node_axes or self.stamped_change)

    @property
    def codes(self) -> tuple[str, ...]:
        """The reasons' codes."""
        codes: tuple[str, ...] = self.once("codes", _codes)
        return codes

    @property
    def configuration(self) -> Configuration | None:
        """What the job should have run on: the choice where it was applied, else the baseline."""
        if not self.changed:
            return self.baseline
        return self.chosen.configuration if self.chosen else None

    def of_job(self, id: str, created_at: str, job_id: str) -> Decision:
        """Return the same decision as it was made for another job.

        Ten times as fast as :func:`dataclasses.replace`, which asks the class for its fields.
        """
        values = list(_FIELDS(self))
        values[:2], values[_JOB_ID] = (id, created_at), job_id
        decision = Decision(*values)
        # The class is frozen, and the field no parameter of it.
        object.__setattr__(decision, "_once", self._once)
        return decision

    def once(self, name: str, make: Callable[[Decision], Any]) -> Any:
        """Return what ``make`` says of this decision and all of other jobs that are like it.

        It must not look at ``id``, ``created_at`` and ``job_id``, which are each one's own.
        """
        if name not in self._once:
            self._once[name] = make(self)
        return self._once[name]

    def withdrawn(self) -> Decision:
        """Return the decision with nothing of it applied."""
        return replace(
            self,
            rewrite={},
            environment={},
            message="",
            binds_node_type=False,
            node_cap_khz=0,
            node_axes=(),
            plan=None,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form, as stored and as ``advisor explain --json`` prints it."""
        chosen, predicted = self.chosen, None
        if chosen is not None and not math.isnan(chosen.time_s):
            predicted = {**chosen.predicted(), "energy_quality": self.energy_quality}
        return {
            "decision": self.id,
            **{name: getattr(self, name) for name in _PLAIN},
            "baseline": self._baseline_dict(),
            "rewrite": dict(self.rewrite),
            "environment": dict(self.environment),
            "chosen": None if chosen is None else chosen.configuration.to_dict(),
            "predicted": predicted,
            "alternatives": [a.to_dict() for a in self.alternatives],
            "reasons": [r.code for r in self.reasons],
            "explanation": [r.text for r in self.reasons],
            "request": self.request.summary() if self.request else {},
            "program": dict(self.program),
            **({"reading": self.reading.to_dict()} if self.reading else {}),
            **({"plan": self.plan.to_dict()} if self.plan else {}),
            **({"node_axes": dict(self.node_axes)} if self.node_axes else {}),
            **{name: value for name in _IF_SET if (value := getattr(self, name))},
        }

    def brief_dict(self) -> dict[str, object]:
        """Return of the JSON form what an outcome keeps: the point, the choice and why."""
        return dict(self.once("brief", Decision._brief_dict))

    def _brief_dict(self) -> dict[str, object]:
        brief = {name: getattr(self, name) for name in _OF_OUTCOME}
        chosen = None if self.chosen is None else self.chosen.configuration.to_dict()
        brief |= {"reasons": [r.code for r in self.reasons], "baseline": self._baseline_dict()}
        more = {n: value for n in ("cold_start", "identity") if (value := getattr(self, n))}
        return brief | {"chosen": chosen, **more}

    def _baseline_dict(self) -> dict[str, object] | None:
        if self.baseline is None:
            return None
        cost = {"time_s": self.baseline_time_s, "energy_j": self.baseline_energy_j}
        return {**self.baseline.to_dict(), **cost}

    @classmethod
    def from_dict(cls, data: Mapping[str, object], **of_store: str) -> Decision:
        """Read the JSON form back, as any version wrote it; never raises.

        What is missing or makes no sense is left empty: the record may come from a job's stamp,
        which its owner can forge. ``of_store``: the store's word for ``job_id`` and ``cluster``.
        """
        codes, sentences = _texts(data.get("reasons")), _texts(data.get("explanation"))
        reasons = _bare_reasons(codes)
        if sentences:
            sentences += [""] * (len(codes) - len(sentences))
            pairs = zip(codes, sentences, strict=False)
            reasons = tuple(Reason(code, sentence=text) for code, text in pairs)
        predicted, baseline = data.get("predicted"), data.get("baseline")
        chosen = Alternative.from_dict(data.get("chosen"), predicted)
        if chosen is not None and not _ESTIMATES.isdisjoint(codes):
            chosen = chosen._replace(estimated=True)
        quality, cost = _mapping(predicted).get("energy_quality"), _mapping(baseline)
        model_id, alternatives = data.get("model_id"), data.get("alternatives")
        parts = data.get("parts")
        weighed = (
            [Alternative.from_dict(a, a) for a in alternatives]
            if isinstance(alternatives, list)
            else []
        )
        rewrite, environment = _strings(data.get("rewrite")), _strings(data.get("environment"))

        texts: dict[str, Any] = {name: str(data.get(name) or "") for name in _TEXTS}
        texts |= of_store
        summary, request, reading = _mapping(data.get("request")), None, data.get("reading")
        program = checked(facts) if (facts := data.get("program")) else {}
        if summary:
            names = (texts[name] for name in _OF_REQUEST)
            request = JobRequest.from_summary(summary, *names, program=program)
        return cls(
            **texts,
            id=str(data.get("decision") or ""),
            policy=read_policy(str(data.get("mode") or ""), str(data.get("goal") or "")),
            baseline=read_configuration(baseline),
            chosen=chosen,
            alternatives=tuple(a for a in weighed if a is not None),
            rewrite=rewrite,
            environment=environment,
            reasons=reasons,
            holdout=bool(data.get("holdout")),
            model_id=model_id if isinstance(model_id, int) else None,
            energy_quality=str(quality or "missing"),
            policy_version=int(number_or_none(data.get("policy_version")) or 0),
            baseline_time_s=number_or_none(cost.get("time_s")),
            baseline_energy_j=number_or_none(cost.get("energy_j")),
            request=request,
            reading=(
                JobReading.from_dict(reading, texts["identity"])
                if isinstance(reading, Mapping)
                else None
            ),
            program=program,
            cold_start=dict(_mapping(data.get("cold_start"))),
            parts=tuple(map(_mapping, parts)) if isinstance(parts, list) else (),
            plan=_plan_of(data.get("plan")),
            node_cap_khz=int(number_or_none(data.get("node_cap_khz")) or 0),
            node_axes=read_extra(data.get("node_axes")),
            stamped_change=bool(data.get("changed")) and not (rewrite or environment),
        )

    @classmethod
    def from_brief(
        cls, data: Mapping[str, object], promise: Mapping[str, object], **own: Any
    ) -> Decision:
        """Read :meth:`brief_dict` back, with what an outcome keeps of the promise; never raises.

        ``promise`` has absolute intervals, which become changes against the baseline again;
        ``own`` are the fields that are the outcome's.
        """
        codes, baseline = _texts(data.get("reasons")), data.get("baseline")
        cost = _mapping(baseline)
        time_s, energy_j = number_or_none(cost.get("time_s")), number_or_none(cost.get("energy_j"))
        model_id = data.get("model_id")
        chosen, place = None, read_configuration(data.get("chosen"))
        if place is not None:
            time = against(promise.get("time_s"), time_s)
            energy = against(promise.get("energy_j"), energy_j)
            estimated = not _ESTIMATES.isdisjoint(codes)
            chosen = Alternative(place, time[0], energy[0], time[1], energy[1], estimated=estimated)
        return cls(
            **own,
            hook=str(data.get("hook") or ""),
            policy=read_policy(str(data.get("mode") or ""), str(data.get("goal") or "")),
            application=str(data.get("application") or ""),
            workload=str(data.get("workload") or ""),
            baseline=read_configuration(baseline),
            chosen=chosen,
            reasons=_bare_reasons(codes),
            holdout=bool(data.get("holdout")),
            model_id=model_id if isinstance(model_id, int) else None,
            energy_quality=str(promise.get("energy_quality") or "missing"),
            policy_version=int(number_or_none(data.get("policy_version")) or 0),
            baseline_time_s=time_s,
            baseline_energy_j=energy_j,
            identity=str(data.get("identity") or ""),
            cold_start=dict(_mapping(data.get("cold_start"))),
            stamped_change=bool(data.get("changed")),
        )


def _plan_of(data: object) -> StepPlan | None:
    try:
        return None if data is None else StepPlan.from_dict(data)
    except FieldError:
        return None


def _codes(decision: Decision) -> tuple[str, ...]:
    return tuple([r.code for r in decision.reasons])


_NAMES = [f.name for f in fields(Decision) if f.init]
_FIELDS, _JOB_ID = attrgetter(*_NAMES), _NAMES.index("job_id")
_ESTIMATES = frozenset({ESTIMATED, BY_CLASS, EXTRAPOLATED})
"""Reasons of a choice that nothing measured at its place."""


def _bare_reasons(codes: Sequence[str]) -> tuple[Reason, ...]:
    return tuple(map(_bare_reason, codes))


@lru_cache
def _bare_reason(code: str) -> Reason:
    return Reason(code)


def against(interval: object, baseline: float | None) -> tuple[float, Effect]:
    """Return the value of a kept promise, and its change against the baseline; NaN: not known."""
    ends = interval if isinstance(interval, list) and len(interval) == 3 else [None] * 3
    value, lo, hi = map(number, ends)
    base = baseline or math.nan
    return value, Effect(value / base - 1, lo / base - 1, hi / base - 1)


@lru_cache
def read_policy(mode: str, goal: str) -> Policy:
    """Return the policy of a decision that is read back, of which only these two are known."""
    return Policy(mode=cast(Mode, mode), goal=cast(Goal, goal))


def number(value: object) -> float:
    """Return a finite number of a record, NaN for anything else."""
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    # A whole number of JSON may be larger than any float.
    except OverflowError:
        return math.nan


def number_or_none(value: object) -> float | None:
    """Return a finite number of a record, None for anything else."""
    if value is None:
        return None
    read = number(value)
    return None if math.isnan(read) else read


def read_configuration(data: object) -> Configuration | None:
    """Return the configuration of a record, None where it makes no sense."""
    if data is None or (type(data) is not dict and not isinstance(data, Mapping)):
        return None
    try:
        return Configuration.from_dict(data)
    except (KeyError, ValueError):
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    """Return a value that is a mapping, else an empty one."""
    if type(value) is dict:
        return value
    return value if value is not None and isinstance(value, Mapping) else {}


def _ends(value: object) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (None, None)


def _texts(value: object) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else []


def _strings(value: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in _mapping(value).items()}
