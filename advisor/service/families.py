"""Which families of sizes are known, and what a job of a size that never ran gets from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.memory import need_mb
from advisor.core.option import Row
from advisor.core.parameters import ParameterLine, format_number, parameters_of
from advisor.core.policy import Policy
from advisor.core.reasons import EXTRAPOLATED, Reason, reason
from advisor.core.recognise import MAX_NAME
from advisor.core.size_table import FEWEST_SIZES, NODES, SizeAxis
from advisor.core.units import format_duration
from advisor.store.records import StoredModel

_RANK = {"own": 2, "account": 1, "all": 0}
_FamilyName = tuple[str, str]


@lru_cache(maxsize=32_768)
def line_of(workload: str) -> ParameterLine | None:
    """Return a workload's family and size; None where its end may have been cut off."""
    return parameters_of(workload) if len(workload) < MAX_NAME else None


def narrowest(models: Iterable[StoredModel], user: str, account: str) -> dict[str, StoredModel]:
    """Return per node type the model a user's job gets: the user's, the account's, the site's.

    One that was fitted there goes before any that is estimated, and one of the application's own
    signature before one from another node type.
    """
    by_node_type: dict[str, StoredModel] = {}
    for model in models:
        visible = (
            model.scope == "all"
            or (model.scope == "own" and model.owner == user)
            or (model.scope == "account" and bool(account) and model.owner == account)
        )
        incumbent = by_node_type.get(model.node_type)
        if visible and (
            incumbent is None
            or (model.fitted, model.by_class, _RANK[model.scope])
            > (incumbent.fitted, incumbent.by_class, _RANK[incumbent.scope])
        ):
            by_node_type[model.node_type] = model
    return by_node_type


@dataclass(frozen=True, slots=True)
class Families:
    """By application and family: the models over sizes, and the fitted ones of its sizes."""

    over_sizes: Mapping[_FamilyName, list[StoredModel]] = field(default_factory=dict)
    measured: Mapping[_FamilyName, list[StoredModel]] = field(default_factory=dict)
    _axes: dict[int, tuple[SizeAxis, ...]] = field(default_factory=dict)
    _laws: dict[int, CountLaws | None] = field(default_factory=dict)

    @classmethod
    def of(cls, models: Iterable[StoredModel]) -> Families:
        """Sort models into families; a workload without a number is none."""
        over: defaultdict[_FamilyName, list[StoredModel]] = defaultdict(list)
        measured: defaultdict[_FamilyName, list[StoredModel]] = defaultdict(list)
        for model in models:
            if model.of_sizes:
                over[model.application, str(model.about_sizes.get("family"))].append(model)
            elif model.fitted and (line := line_of(model.workload)) and line.values:
                measured[model.application, line.family].append(model)
        return cls(dict(over), dict(measured))

    def axes(self, model: StoredModel) -> tuple[SizeAxis, ...]:
        """Return the axes of a model over sizes. Raises ValueError where its table is damaged."""
        if model.id not in self._axes:
            self._axes[model.id] = model.size_table().axes
        return self._axes[model.id]

    def need_mb(self, model: StoredModel, job: Configuration) -> float:
        """Return the MiB that a job of a model's size needs by the profiles; 0: not known.

        What was swept had the memory.
        """
        if not model.of_sizes:
            return 0.0
        if model.id not in self._laws:
            self._laws[model.id] = model.count_laws()
        laws = self._laws[model.id]
        processes = job.nodes * job.ranks_per_node
        return 0.0 if laws is None else need_mb(laws, dict(model.size), processes)

    def knows(self, application: str, workload: str) -> bool:
        """Tell whether a workload's family is known on any node type."""
        if not (self.over_sizes or self.measured) or (line := line_of(workload)) is None:
            return False
        key = application, line.family
        return key in self.over_sizes or key in self.measured

    def has(self, application: str) -> bool:
        """Tell whether any family of an application is known."""
        return any(name == application for name, _ in (*self.over_sizes, *self.measured))

    def knows_scales(self, application: str, workload: str) -> bool:
        """Tell whether a workload's family is known over node counts."""
        line = line_of(workload)
        models = self.over_sizes.get((application, line.family), ()) if line else ()
        return any(NODES in (m.about_sizes.get("measured") or ()) for m in models)


@dataclass(frozen=True, slots=True)
class SizedModels:
    """The models of a job's family at its size by node type, or why there are none."""

    models: Mapping[str, StoredModel]
    why: Reason


def sized_models(
    families: Families, key: tuple[str, str, str, str], node_type: str, nodes: int, policy: Policy
) -> SizedModels | None:
    """Return what a job gets of its family, None where that is not known on its node type.

    ``key``: application, workload, user, account.
    """
    application, workload, user, account = key
    line = line_of(workload)
    if line is None:
        return None
    name = application, line.family
    by_node_type = narrowest(families.over_sizes.get(name, ()), user, account)
    model = by_node_type.get(node_type)
    if model is None:
        sizes = narrowest(
            (m for m in families.measured.get(name, ()) if m.node_type == node_type), user, account
        )
        if not sizes:
            return None
        measured_values = _seen_values(families.measured[name], line)
        return SizedModels({}, reason("few-sizes", measured_values, FEWEST_SIZES))
    if policy.extrapolated == "refuse":
        return SizedModels({}, reason("extrapolated-refused"))
    size = {**line.size, NODES: float(nodes)}
    why = _obstacle(families, model, size, policy)
    if why is not None:
        return SizedModels({}, why)
    models_at_size = {
        type_name: replace(m, size=tuple((a.name, size[a.name]) for a in families.axes(m)))
        for type_name, m in by_node_type.items()
        if m is model or _obstacle(families, m, size, policy) is None
    }
    return SizedModels(models_at_size, _explain(families.axes(model), size))


def _seen_values(models: Iterable[StoredModel], line: ParameterLine) -> str:
    values: defaultdict[str, set[float]] = defaultdict(set)
    for model in models:
        measured = line_of(model.workload)
        for name, value in measured.values if measured else ():
            values[name].add(value)
    texts = (f"{n} {_values(sorted(values[n]))}" for n in line.size)
    return "; ".join(texts)


def _values(values: Iterable[float]) -> str:
    return ", ".join(map(format_number, values))


def _obstacle(
    families: Families, model: StoredModel, size: Mapping[str, float], policy: Policy
) -> Reason | None:
    """Return why a family's model says nothing of a size, None where it does."""
    about = model.about_sizes
    if about.get("answer") != "ok":
        notes = about.get("notes") or [""]
        return reason("family-unfit", notes[-1] if isinstance(notes, list) else "")
    fixed = about.get("fixed")
    for name, value in (fixed if isinstance(fixed, dict) else {}).items():
        if size.get(name) != value:
            return reason("few-sizes", f"{name} {_values([value])}", FEWEST_SIZES)
    try:
        axes = families.axes(model)
        if any(a.name not in size for a in axes):
            return reason("few-sizes", "none with its parameters", FEWEST_SIZES)
    except ValueError as error:
        return reason("family-unfit", error)
    measured = about.get("measured")
    values = measured if isinstance(measured, dict) else {}
    for axis in axes:
        times = axis.beyond(size[axis.name])
        axis_values = values.get(axis.name) or ()
        if times > 1 and len(axis_values) < FEWEST_SIZES:
            return reason("few-sizes", f"{axis.name} {_values(axis_values)}", FEWEST_SIZES)
        if times > policy.max_extrapolation:
            end = axis.high if size[axis.name] > axis.high else axis.low
            value = f"{axis.name} {format_number(size[axis.name])}"
            return reason("too-far", value, format_number(end), f"{policy.max_extrapolation:g}")
    return None


def _explain(axes: Sequence[SizeAxis], size: Mapping[str, float]) -> Reason:
    """Say that a size was not swept, and which were."""
    size_text = ", ".join([f"{a.name} {format_number(size[a.name])}" for a in axes])
    ranges = ", ".join([f"{a.name} {_range(a.low, a.high)}" for a in axes])
    return reason(EXTRAPOLATED, size_text, ranges)


@lru_cache(maxsize=1024)
def _range(low: float, high: float) -> str:
    return f"{format_number(low)} to {format_number(high)}"


def time_limit_short(job: Row, limit_s: float) -> list[Reason]:
    """Return the reason where a job of a size that never ran is predicted to reach its limit."""
    if job.time_s <= limit_s:
        return []
    words = (format_duration(v) for v in (job.time_s, job.time_lo_s, job.time_hi_s, limit_s))
    return [reason("time-limit-short", *words)]
