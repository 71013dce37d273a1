"""Metric models from a table: columns of parameters, then of metrics (``profile fit --table``)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from advisor.core.codec import JsonForm, wire
from advisor.core.nearest import suggestion
from advisor.errors import InputError
from advisor_lab.profile.regression import (
    FloatColumn,
    LinearFit,
    determination,
    relative_error,
)
from advisor_lab.profile.scalar import ScalarModel, SearchMethod, fit_scalar
from advisor_lab.profile.selection import SearchData
from advisor_lab.profile.setup import MetricOptions, ProfileSetup, bound_text
from advisor_lab.profile.terms import CandidateTerm, Values, evaluate, main_effects


@dataclass(frozen=True, slots=True)
class MetricTable:
    """The columns of a file: parameters and metrics, as arrays of one length."""

    file: str
    values: dict[str, FloatColumn]
    metrics: dict[str, FloatColumn]


@dataclass(frozen=True, slots=True)
class MixCell(JsonForm):
    """The coefficients of one cell of a mix."""

    vector: int
    bits: int
    coefficients: Sequence[float]


@dataclass(frozen=True, slots=True)
class Fitted(JsonForm):
    """A regression's coefficients, the constant's first; of a mix those of its cells."""

    coefficients: tuple[float, ...] = field(default=(), metadata=wire(omit=True))
    cells: tuple[MixCell, ...] = field(default=(), metadata=wire(omit=True))


@dataclass(frozen=True, slots=True)
class CurvePart(JsonForm):
    """The model of one point of a memory function."""

    terms: Sequence[str] = field(metadata=wire("predictorTerms"))
    coefficients: Sequence[float]


@dataclass(frozen=True, slots=True)
class ModelForm(JsonForm):
    """A metric's model with the keys of the manual's appendix B.4."""

    metric: str = field(metadata=wire("metricName"))
    type: str = field(metadata=wire("metricType"))
    model_type: str = field(metadata=wire("modelType"))
    parameters: Sequence[str] = field(metadata=wire("predictorNames"))
    terms: Sequence[str] = field(metadata=wire("predictorTerms"))
    weighting: str = field(metadata=wire("heteroscedasticityCompensation"))
    fitted: Fitted = field(metadata=wire("model"))
    constraints: Annotated[
        Mapping[Literal["lower_bound", "growing", "ranges"], bool | Sequence[str]],
        "lower_bound, growing and ranges, where there are any",
    ] = field(metadata=wire("posNmonotonConstraints"))
    largest: CurvePart | None = field(metadata=wire("maxMemModel"))
    knots: Sequence[CurvePart] = field(metadata=wire("knotMemModels"))
    boundaries: Sequence[float | Literal["Infinity", "-Infinity"]]
    candidates: int
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class TableModelForm(JsonForm):
    """A metric's model, and how good it is."""

    model: ModelForm = field(metadata=wire(inline=True))
    r2: float = field(metadata=wire("R2"))
    mre: float = field(metadata=wire("MRE"))


@dataclass(frozen=True, slots=True)
class TablePrediction(JsonForm):
    """A metric at a place, with its 90 % interval where one is known."""

    at: Mapping[str, float]
    metric: str = field(metadata=wire("metricName"))
    value: float
    interval: tuple[float, float] | None


@dataclass(slots=True)
class TableModel:
    """A metric's model, over that of LSys where the metric is a share of its count."""

    name: str
    options: MetricOptions
    model: ScalarModel
    divisor: ScalarModel | None = None
    r2: float = math.nan
    mre: float = math.nan
    least: float = -math.inf
    """What no interval falls below: 0 of what was nowhere below it."""

    def predict(self, values: Values) -> FloatColumn:
        """Return the predictions; boundaries hold after the query, of shares on the count."""
        predicted: FloatColumn = np.clip(self.model.predict(values), *self.options.boundaries)
        if self.divisor is not None:
            with np.errstate(all="ignore"):
                predicted = predicted / self.divisor.predict(values)
        return predicted

    @property
    def form(self) -> TableModelForm:
        """The model as appendix B.4 has it, and how good it is."""
        return TableModelForm(model_form(self.name, self.options, self.model), self.r2, self.mre)


def model_form(name: str, options: MetricOptions, model: ScalarModel) -> ModelForm:
    """Return a model as appendix B.4 has it."""
    return ModelForm(
        name,
        options.type,
        options.model,
        sorted({n for t in model.terms for n in t.names}),
        [t.text for t in model.terms],
        model.weighting,
        Fitted(coefficients_of(model)),
        options.to_dict()["constraints"],
        None,
        (),
        [bound_text(b) for b in options.boundaries],
        model.candidates,
        model.notes,
    )


def coefficients_of(model: ScalarModel) -> tuple[float, ...]:
    """Return a regression's coefficients, the constant's first; none of another model."""
    fit = model.fit
    return tuple(map(float, fit.coefficients)) if isinstance(fit, LinearFit) else ()


def read_metric_table(path: Path, parameters: tuple[str, ...]) -> MetricTable:
    """Read a CSV file. Without ``parameters`` all columns but the last are such.

    Raises InputError with one line: file, line and column.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    rows = [
        (number, [cell.strip() for cell in row])
        for number, row in enumerate(csv.reader(io.StringIO(text)), 1)
        if any(cell.strip() for cell in row)
    ]
    if len(rows) < 2:
        raise InputError(f"{path}: there are no rows in it", hint="a header, then a row per run")
    header = rows[0][1]
    for name in header:
        if header.count(name) > 1:
            raise InputError(f"{path}:1: column {name!r} is listed twice")
        if not name:
            raise InputError(f"{path}:1: a column has no name")
    for name in parameters:
        if name not in header:
            raise InputError(
                f"{path}:1: there is no column {name!r}", hint=suggestion(name, header)
            )
    parameter_names = parameters or tuple(header[:-1])
    metrics = [name for name in header if name not in parameter_names]
    if not parameter_names or not metrics:
        raise InputError(f"{path}:1: it needs columns of parameters and then of a metric")
    cells = []
    for number, row in rows[1:]:
        if len(row) != len(header):
            raise InputError(f"{path}:{number}: {len(row)} cells, the header has {len(header)}")
        cells.append([_number(path, number, n, c) for n, c in zip(header, row, strict=True)])
    table = np.array(cells, dtype=np.float64)
    columns = {name: table[:, i] for i, name in enumerate(header)}
    return MetricTable(
        str(path), {n: columns[n] for n in parameter_names}, {n: columns[n] for n in metrics}
    )


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}:{line}: {column}: {text!r} is not a number")
    return value


def fit_table(
    table: MetricTable, setup: ProfileSetup, method: SearchMethod = "strict"
) -> list[TableModel]:
    """Fit the metrics that the setup names, else all. Raises InputError."""
    for name in setup.metrics:
        if name not in table.metrics:
            raise InputError(
                f"{setup.file}: metrics.{name}: {table.file} has no such column",
                hint=suggestion(name, table.metrics),
            )
    names = list(setup.metrics) or list(table.metrics)
    # LSys before its shares, which need its model.
    names.sort(key=lambda n: n != "LSys")
    models: list[TableModel] = []
    counts: TableModel | None = None
    for name in names:
        options = _scalar_options(setup.options(name), "LSys" in table.metrics)
        share = options.type == "instrPercentage"
        if share and counts is None:
            counts = _fit_column(table, setup, "LSys", setup.options("LSys"), method)
        model = _fit_column(table, setup, name, options, method, counts if share else None)
        counts = model if name == "LSys" else counts
        models.append(model)
    return sorted(models, key=lambda m: list(setup.metrics or table.metrics).index(m.name))


def _scalar_options(options: MetricOptions, counted: bool) -> MetricOptions:
    """Return the options of a column: a table holds numbers only."""
    kind = options.type.removeprefix("v")
    if kind == "memFunction":
        raise InputError("type memFunction needs profiles; a table holds numbers only")
    if kind == "instrPercentage" and not counted:
        kind = "numeric"
    return replace(options, type=kind)


def _fit_column(
    table: MetricTable,
    setup: ProfileSetup,
    name: str,
    options: MetricOptions,
    method: SearchMethod,
    counts: TableModel | None = None,
) -> TableModel:
    y = table.metrics[name]
    target = y if counts is None else y * table.metrics["LSys"]
    if counts is not None and options.terms is None:
        options = replace(options, terms=counts.model.terms)
    data = search_data(table.values, target, setup, name, f"{table.file}: {name}")
    model = fit_scalar(data, options, method)
    fitted = TableModel(name, options, model, counts.model if counts is not None else None)
    if y.min() >= 0:
        fitted.least = 0.0
    predicted = fitted.predict(table.values)
    fitted.r2, fitted.mre = determination(y, predicted), relative_error(y, predicted)
    return fitted


def search_data(
    values: Mapping[str, FloatColumn], y: FloatColumn, setup: ProfileSetup, metric: str, file: str
) -> SearchData:
    """Return what a search takes. Complexities that are ours are left out where they have no value.

    Raises InputError for a term that no run gives a value.
    """
    names = tuple(values)
    mains = usable_mains(values, setup, metric, file)
    return SearchData(values, y, mains, setup.threads, file=file, parameters=names)


def usable_mains(
    values: Mapping[str, FloatColumn], setup: ProfileSetup, metric: str, file: str
) -> list[CandidateTerm]:
    """Return the main effects of a metric's complexities."""
    mains = main_effects(setup.patterns(metric), tuple(values))
    if not setup.built_in:
        for term in mains:
            evaluate(term.expression, values, file)
        return mains
    usable = []
    for term in mains:
        try:
            evaluate(term.expression, values)
        except InputError:
            continue
        usable.append(term)
    return usable


def predictions(models: list[TableModel], places: list[dict[str, float]]) -> list[TablePrediction]:
    """Return every metric at every place, with its 90 % interval where one is known."""
    predicted = []
    for place in places:
        values = {n: np.array([v]) for n, v in place.items()}
        for model in models:
            with np.errstate(all="ignore"):
                value = float(model.predict(values)[0])
                raw = model.model.predict(values)
                half = float(model.model.half_widths(values, raw)[0])
            if model.divisor is not None:
                half = half / float(model.divisor.predict(values)[0])
            low = max(value - half, min(model.least, value))
            interval = (low, value + half) if math.isfinite(half) else None
            predicted.append(TablePrediction(place, model.name, value, interval))
    return predicted
