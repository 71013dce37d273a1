"""The sizes of a workload's family: those measured, and steps beyond them that never ran."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.core.parameters import ParameterLine, format_number, line_at
from advisor.core.size_table import NODES
from advisor.errors import AdvisorError
from advisor.store.families import line_of
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.views.options import View
from advisor.views.sized_options import sized_view

_STEP = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class SizeStep:
    """One size: the workload that it is, and whether it was measured."""

    value: float
    workload: str
    measured: bool

    @property
    def text(self) -> str:
        """The size for people, the measured ones marked."""
        return f"{format_number(self.value)}{'•' if self.measured else ''}"


@dataclass(frozen=True, slots=True)
class SizeLine:
    """The sizes that a page can go to along one parameter, ascending; ``at`` is what it shows."""

    parameter: str
    steps: tuple[SizeStep, ...]
    at: int

    @property
    def text(self) -> str:
        """Return all sizes in one line, the one that is shown in brackets."""
        shown = (f"[{s.text}]" if i == self.at else s.text for i, s in enumerate(self.steps))
        return f"size {self.parameter}: {'  '.join(shown)}   • measured"

    def beside(self, workload: str, offset: int) -> str | None:
        """Return the workload ``offset`` sizes further than one, None where there is none.

        The one may already be another than is shown: that of a key whose page is not there yet.
        """
        names = [s.workload for s in self.steps]
        step_number = (names.index(workload) if workload in names else self.at) + offset
        return names[step_number] if 0 <= step_number < len(names) else None


def size_lines(
    reader: Reader, application: str, workload: str, user: str, most: float
) -> tuple[SizeLine, ...]:
    """Return the sizes around a workload, up to ``most`` times the largest measured.

    A line for each parameter, the one of which most values were measured first; along a line the
    others stay. None where the workload's family has no model that may advise the user's jobs.
    """
    line = line_of(workload)
    models = _models(reader, application, line, user) if line is not None else []
    measured = models[0].about_sizes.get("measured") if models else None
    if line is None or not measured:
        return ()
    measured_values = {n: v for n, v in measured.items() if n != NODES and n in line.size}
    names = {w.name: sizes for w in reader.workloads(application) if (sizes := line_of(w.name))}

    def along(parameter: str) -> SizeLine:
        shown_value, run_values = line.size[parameter], sorted(measured_values[parameter])
        extrapolated_values = [
            run_values[-1] * _STEP**i for i in range(1, int(math.log(most, _STEP) + 1e-9) + 1)
        ]
        steps = []
        for value in sorted({*run_values, *map(_round, extrapolated_values), shown_value}):
            size = {**line.size, parameter: value}
            stored = (n for n, o in names.items() if (o.family, o.size) == (line.family, size))
            name = workload if value == shown_value else next(stored, line_at(line, size))
            steps.append(SizeStep(value, name, value in run_values))
        return SizeLine(parameter, tuple(steps), [s.value for s in steps].index(shown_value))

    return tuple(along(n) for n in sorted(measured_values, key=lambda n: -len(measured_values[n])))


def sized_views_of(reader: Reader, application: str, workload: str, user: str) -> dict[int, View]:
    """Return by model how a workload that was not swept looks, one for each node type.

    Raises AdvisorError where its family is known and says nothing of its size.
    """
    line = line_of(workload)
    views: dict[int, View] = {}
    problem: AdvisorError | None = None
    inventory = reader.inventory()
    for model in _models(reader, application, line, user) if line is not None else []:
        try:
            relevant_size = _relevant_size(model, line.size if line else {})
            view = sized_view(model, relevant_size, inventory.resolve(model.node_type))
        except AdvisorError as error:
            problem = error
            continue
        if model.node_type not in {v.model.node_type for v in views.values()}:
            views[model.id] = replace(view, model=replace(view.model, workload=workload))
    if not views and problem is not None:
        raise problem
    return views


def _models(
    reader: Reader, application: str, line: ParameterLine | None, user: str
) -> list[StoredModel]:
    """Return the models of a line's family for a user, their own first."""
    models = [
        m
        for m in reader.size_models(application)
        if line is not None
        and m.about_sizes.get("family") == line.family
        and (m.scope != "own" or m.owner == user)
    ]
    return sorted(models, key=lambda m: m.scope != "own")


def _relevant_size(model: StoredModel, size: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers of a size that count; those without effect do not."""
    about = model.about_sizes
    names = {*(about.get("measured") or {}), *(about.get("fixed") or {})}
    return {n: v for n, v in size.items() if n in names}


def _round(value: float) -> float:
    """Return a size that people would choose: three digits of it."""
    return float(f"{value:.3g}")
