"""The models of an application: of every class its number of threads and its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from advisor.core.codec import JsonForm, wire
from advisor.core.expression import Expression, parse_expression
from advisor.core.nearest import suggestion
from advisor.errors import InputError
from advisor.one_thread import on_one_thread
from advisor_lab.profile.memory import CurveModel, curve_error, fit_curve
from advisor_lab.profile.metrics import REQUIRED, MetricValue, share_at, total
from advisor_lab.profile.regression import FloatColumn, determination, relative_error
from advisor_lab.profile.runs import (
    ProfiledRun,
    ThreadId,
    counted_mean,
    mean_of,
    stored_shape,
)
from advisor_lab.profile.scalar import ScalarModel, SearchMethod, fit_scalar
from advisor_lab.profile.selection import SearchData
from advisor_lab.profile.setup import MetricOptions, ProfileSetup, default_options
from advisor_lab.profile.table import (
    CurvePart,
    Fitted,
    MixCell,
    ModelForm,
    coefficients_of,
    model_form,
    usable_mains,
)

Members = Sequence[ThreadId]
ModelFlag = Literal["low_r2", "test_gap"]
ClassModels = dict[str, dict[str, "MetricModel"]]
"""Models by class and metric."""
_POOR, _APART = 0.7, 2.0
"""R2 below the first is flagged (section 8.2), and a test MRE so many times the training's."""
_SMALL = 0.02
"""Test errors below this are no gap, whatever the training's are."""
_EXACT_ENOUGH = 1e-4
"""Of what is predicted better than this, R2 only tells how little it varies."""


@dataclass(frozen=True, slots=True)
class ClassRuns:
    """A class of threads: its name and its members in every training and test run."""

    name: str
    train: tuple[tuple[ProfiledRun, tuple[ThreadId, ...]], ...]
    test: tuple[tuple[ProfiledRun, tuple[ThreadId, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Accuracy(JsonForm):
    """R2 of the training runs, mean relative errors (chapter 8); None where there are no runs."""

    train_error: float | None = field(default=None, metadata=wire("MRE_train"))
    r2: float | None = field(default=None, metadata=wire("R2"))
    test_error: float | None = field(default=None, metadata=wire("MRE_test"))


@dataclass(slots=True)
class MetricModel:
    """One metric of one class; cells of a mix have a model each, with the same terms."""

    name: str
    options: MetricOptions
    scalar: ScalarModel | None = None
    cells: dict[tuple[int, int], ScalarModel] = field(default_factory=dict)
    curve: CurveModel | None = None
    divisor: MetricModel | None = None
    accuracy: Accuracy = field(default_factory=Accuracy)
    flags: list[ModelFlag] = field(default_factory=list)

    @property
    def first(self) -> ScalarModel:
        """Return the model whose terms stand for all."""
        if self.curve is not None:
            return self.curve.body or self.curve.largest
        return self.scalar or next(iter(self.cells.values()))

    def predict(self, values: Mapping[str, FloatColumn]) -> list[MetricValue]:
        """Return the metric at every place, within its boundaries."""
        if self.curve is not None:
            return list(self.curve.predict(values))
        under = None
        if self.divisor is not None:
            assert self.divisor.scalar is not None
            under = np.clip(self.divisor.scalar.predict(values), *self.divisor.options.boundaries)
        models = self.cells or {(0, 0): self.first}
        parts = {
            key: np.clip(model.predict(values), *self.options.boundaries)
            for key, model in models.items()
        }
        if under is not None:
            with np.errstate(all="ignore"):
                parts = {key: column / under for key, column in parts.items()}
        count = len(next(iter(parts.values())))
        if not self.cells:
            return [float(parts[0, 0][i]) for i in range(count)]
        return [{key: float(column[i]) for key, column in parts.items()} for i in range(count)]

    @property
    def form(self) -> ModelForm:
        """The model as appendix B.4 has it."""
        form = model_form(self.name, self.options, self.first)
        if self.curve is not None:
            largest, *knots = (
                CurvePart([t.text for t in m.terms], coefficients_of(m))
                for m in (self.curve.largest, *self.curve.knots)
            )
            form = replace(form, largest=largest, knots=knots, notes=self.curve.notes)
        if self.cells:
            cells = (MixCell(v, d, coefficients_of(m)) for (v, d), m in self.cells.items())
            form = replace(form, fitted=Fitted(cells=tuple(cells)))
        return form


@dataclass(frozen=True, slots=True)
class ClassModelForm(JsonForm):
    """A metric's model of one class, how good it is, and what a person should look at."""

    class_name: str = field(metadata=wire("class"))
    model: ModelForm = field(metadata=wire(inline=True))
    accuracy: Accuracy = field(metadata=wire(inline=True))
    flags: Sequence[ModelFlag]


def class_forms(models: ClassModels) -> list[ClassModelForm]:
    """Return the models of classes as appendix B.4 has them, and how good they are."""
    return [
        ClassModelForm(name, m.form, m.accuracy, m.flags)
        for name, class_models in models.items()
        for m in class_models.values()
    ]


@dataclass(slots=True)
class ThreadCounts:
    """How many threads there are: names that divide terms, and the model of each.

    A count that is a parameter at every run is written as that parameter.
    """

    expressions: tuple[Expression, ...] = ()
    columns: dict[str, FloatColumn] = field(default_factory=dict)
    models: dict[str, MetricModel] = field(default_factory=dict)

    def values(self, scale: Mapping[str, FloatColumn]) -> dict[str, FloatColumn]:
        """Return parameters and predicted thread counts at places."""
        columns = {name: np.asarray(c, dtype=np.float64) for name, c in scale.items()}
        for name, model in self.models.items():
            columns[name] = np.array([total(v) for v in model.predict(scale)])
        return columns


def scale_columns(runs: Sequence[ProfiledRun]) -> dict[str, FloatColumn]:
    """Return the parameters of runs as arrays."""
    return {
        n: np.array([r.scale[n] for r in runs], dtype=np.float64) for n in sorted(runs[0].scale)
    }


def thread_counts(
    classes: Sequence[ClassRuns], setup: ProfileSetup, method: SearchMethod
) -> ThreadCounts:
    """Return the numbers of threads of all classes and of each, as far as they differ and vary."""
    runs = [run for run, _ in classes[0].train]
    scale = scale_columns(runs)
    counts = ThreadCounts()
    distinct_columns: list[FloatColumn] = []
    expressions: list[Expression] = []
    per_class = {c.name: _threads_of(c) for c in classes}
    total_threads = np.sum(list(per_class.values()), axis=0)
    for name, column in {
        "NThreads": total_threads,
        **{f"NThreads_{n}": c for n, c in per_class.items()},
    }.items():
        if np.ptp(column) == 0 or any(np.array_equal(column, s) for s in distinct_columns):
            continue
        distinct_columns.append(column)
        parameter = next((n for n, values in scale.items() if np.array_equal(values, column)), "")
        if parameter:
            expressions.append(parse_expression(parameter))
            continue
        expressions.append(parse_expression(name))
        counts.columns[name] = column
        options = setup.options("NThreads")
        data = _data(scale, column, setup, "NThreads", name)
        counts.models[name] = MetricModel(name, options, fit_scalar(data, options, method))
    counts.expressions = tuple(expressions)
    return counts


def _threads_of(class_runs: ClassRuns) -> FloatColumn:
    counts = [sum(run.threads[t].count for t in members) for run, members in class_runs.train]
    return np.array(counts, dtype=np.float64)


def _data(
    values: Mapping[str, FloatColumn],
    y: FloatColumn,
    setup: ProfileSetup,
    metric: str,
    file: str,
    threads: ThreadCounts | None = None,
) -> SearchData:
    mains = usable_mains(values, setup, metric, file)
    every = {**values, **(threads.columns if threads else {})}
    divisors = threads.expressions if threads else ()
    return SearchData(every, y, mains, divisors, file=file, parameters=tuple(values))


def target_metrics(
    classes: Sequence[ClassRuns], setup: ProfileSetup
) -> tuple[list[str], list[str]]:
    """Return the metrics to model, NThreads and LSys first, and table 2's that nothing stores.

    Raises InputError for a metric of the setup that is stored nowhere.
    """
    runs = [run for class_runs in classes for run, _ in class_runs.train]
    stored = {name for name in _names(runs) if stored_shape(runs, name)}
    for name in setup.metrics:
        if name not in stored:
            raise InputError(
                f"{setup.file}: metrics.{name}: no profile stores it",
                hint=suggestion(name, stored),
            )
        if stored_shape(runs, name) == "messages":
            raise InputError(
                f"{setup.file}: metrics.{name}: communication vectors have no model of this kind",
                hint="classify by communication: then extrapolate predicts them",
            )
    requested_metrics = list(setup.metrics) or [n for n in REQUIRED if n in stored]
    left_out = [] if setup.metrics else [n for n in REQUIRED if n not in stored]
    ordered = sorted(requested_metrics, key=lambda n: {"NThreads": 0, "LSys": 1}.get(n, 2))
    if (
        any(setup.options(n).type.endswith("nstrPercentage") for n in ordered)
        and "LSys" not in ordered
    ):
        ordered.insert(0, "LSys")
    return (ordered if "NThreads" in ordered else ["NThreads", *ordered]), left_out


def _names(runs: Sequence[ProfiledRun]) -> dict[str, None]:
    return {
        "NThreads": None,
        **{n: None for r in runs for t in r.threads.values() for n in t.values},
    }


@on_one_thread
def fit_metric(
    class_runs: ClassRuns,
    name: str,
    options: MetricOptions,
    setup: ProfileSetup,
    threads: ThreadCounts,
    counts: MetricModel | None,
    method: SearchMethod = "strict",
) -> MetricModel:
    """Fit one metric of one class. ``counts`` is the class's model of LSys. Raises InputError."""
    runs = [run for run, _ in class_runs.train]
    where = f"class {class_runs.name}: {name}"
    share = options.type.endswith("nstrPercentage")
    if share and counts is None:
        raise InputError(f"{where}: type {options.type} needs a model of LSys")
    scale = scale_columns(runs)
    if share and options.terms is None and counts is not None and counts.scalar is not None:
        options = replace(options, terms=counts.scalar.terms)
    observed = [(counted_mean if share else mean_of)(r, m, name) for r, m in class_runs.train]
    data = _data(
        scale,
        np.array([total(v) for v in observed]),
        setup,
        name,
        where,
        None if name == "NThreads" else threads,
    )
    model = MetricModel(name, options, divisor=counts if share else None)
    if options.type == "memFunction":
        curves = [v if isinstance(v, tuple) else () for v in observed]
        pairs = [tuple((r[0], r[1]) for r in c) for c in curves]
        model.curve = fit_curve(data, pairs, options, method)
    elif isinstance(observed[0], dict):
        _fit_cells(model, data, observed, method)
    else:
        model.scalar = fit_scalar(data, options, method)
    _judge(model, class_runs, threads)
    return model


def _fit_cells(
    model: MetricModel, data: SearchData, observed: Sequence[MetricValue], method: SearchMethod
) -> None:
    """Fit every cell that is not always 0; terms that are searched for follow from the sum."""
    options = model.options
    if options.terms is None:
        options = replace(options, terms=fit_scalar(data, options, method).terms)
    keys = sorted({k for v in observed if isinstance(v, dict) for k in v})
    for key in keys:
        y = np.array([v.get(key, 0.0) if isinstance(v, dict) else 0.0 for v in observed])
        if y.any():
            model.cells[key] = fit_scalar(replace(data, y=y), options, method)
    if not model.cells:
        model.scalar = fit_scalar(data, replace(options, terms=()), method)
    model.options = replace(model.options, terms=options.terms)


def observed_and_predicted(
    model: MetricModel, runs: Sequence[tuple[ProfiledRun, Members]], threads: ThreadCounts
) -> tuple[list[MetricValue], list[MetricValue]]:
    """Return a class's mean values of runs, and the model's."""
    observed = [mean_of(run, members, model.name) for run, members in runs]
    values = threads.values(scale_columns([run for run, _ in runs]))
    return observed, model.predict(values)


def _judge(model: MetricModel, class_runs: ClassRuns, threads: ThreadCounts) -> None:
    """Work out R2 and MRE (chapter 8), and what a person should look at."""
    train_error, r2 = _error_and_r2(model, class_runs.train, threads)
    test_error, _ = _error_and_r2(model, class_runs.test, threads)
    model.accuracy = Accuracy(train_error, r2, test_error)
    model.flags = _flags(model.accuracy)


def _error_and_r2(
    model: MetricModel, runs: Sequence[tuple[ProfiledRun, Members]], threads: ThreadCounts
) -> tuple[float | None, float | None]:
    if not runs:
        return None, None
    observed, predicted = observed_and_predicted(model, runs, threads)
    observed_totals = np.array([total(v) for v in observed])
    pairs = list(zip(observed, predicted, strict=True))
    if model.curve is not None:
        error = float(np.mean([curve_error(_pairs(a), _pairs(b)) for a, b in pairs]))
        predicted_totals = np.array([_mean_at(a, b) for a, b in pairs])
    else:
        predicted_totals = np.array([total(v) for v in predicted])
        error = relative_error(observed_totals, predicted_totals)
    r2 = determination(observed_totals, predicted_totals)
    return error, r2 if math.isfinite(r2) else None


def _pairs(value: MetricValue) -> tuple[tuple[float, float], ...]:
    return tuple((r[0], r[1]) for r in value) if isinstance(value, tuple) else ()


def _mean_at(observed: MetricValue, predicted: MetricValue) -> float:
    """Return the mean of a predicted curve at the distances of an observed one."""
    curve = _pairs(predicted)
    distances = [d for d, _ in _pairs(observed)]
    return sum(share_at(curve, d) for d in distances) / len(distances) if distances else 0.0


def _flags(accuracy: Accuracy) -> list[ModelFlag]:
    flags: list[ModelFlag] = []
    r2, train, test = accuracy.r2, accuracy.train_error, accuracy.test_error
    varies = train is not None and train > _EXACT_ENOUGH
    if varies and (r2 is None or r2 < _POOR):
        flags.append("low_r2")
    if train is not None and test is not None and test > max(_SMALL, _APART * train):
        flags.append("test_gap")
    return flags


def fit_classes(
    classes: Sequence[ClassRuns], setup: ProfileSetup, method: SearchMethod
) -> tuple[ClassModels, ThreadCounts, list[str]]:
    """Fit all metrics of all classes; return them, the thread counts, and what to say."""
    metrics, left_out = target_metrics(classes, setup)
    notes = [f"no profile stores {', '.join(left_out)}"] if left_out else []
    threads = thread_counts(classes, setup, method)
    models: dict[str, dict[str, MetricModel]] = {}
    for class_runs in classes:
        class_models: dict[str, MetricModel] = {}
        for name in metrics:
            shape = stored_shape([run for run, _ in class_runs.train], name)
            options = setup.metrics.get(name) or default_options(name, shape)
            class_models[name] = fit_metric(
                class_runs, name, options, setup, threads, class_models.get("LSys"), method
            )
        models[class_runs.name] = class_models
    return models, threads, notes
