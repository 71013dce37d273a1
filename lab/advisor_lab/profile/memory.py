"""Models of memory functions: reuse distance to share of references (sections 6.2.1 to 6.2.3).

Distance 0 is a bin of its own and never the value of a term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.core.expression import parse_expression
from advisor_lab.profile.metrics import ReuseCurve, share_at
from advisor_lab.profile.regression import FloatColumn
from advisor_lab.profile.scalar import ScalarModel, SearchMethod, fit_scalar
from advisor_lab.profile.selection import SearchData
from advisor_lab.profile.setup import LINEAR, PER_BIN, MetricOptions
from advisor_lab.profile.terms import CandidateTerm, Values

_CURVE_PATTERNS = ("lognormMemX", "lognormMemX^2", "lognormMemX^3", "normMemX")
_MOST_POWER = 50
"""Keeps the powers of two finite where a distance is not."""


def powers(top: float) -> list[float]:
    """Return the powers of two up to a distance, 1 at least."""
    sizes = [1.0]
    while sizes[-1] * 2 <= top and len(sizes) < _MOST_POWER:
        sizes.append(sizes[-1] * 2)
    return sizes


def norm_distances(distance: FloatColumn, top: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """Return normMemX and lognormMemX (equations 4 and 5; the second is printed as normMemX).

    ``distance`` is above 0; where the largest distance is 1 the logarithm's share is 0.
    """
    scale = np.log(np.maximum(top, 1.0))
    share = np.divide(np.log(distance), scale, out=np.zeros_like(distance), where=scale > 0)
    return distance / top, 1.0 + share


def curve_error(observed: ReuseCurve, predicted: ReuseCurve) -> float:
    """Return the mean absolute difference at powers of two, not relative (chapter 8)."""
    if not observed:
        return float("nan")
    distances = [0.0] if observed[0][0] == 0 else []
    distances += powers(observed[-1][0]) if observed[-1][0] >= 1 else []
    return float(np.mean([abs(share_at(observed, d) - share_at(predicted, d)) for d in distances]))


@dataclass(slots=True)
class CurveModel:
    """The largest distance, the share at 0, and the shares between; or a model per distance."""

    options: MetricOptions
    largest: ScalarModel
    zero: ScalarModel | None
    body: ScalarModel | None = None
    bins: dict[float, ScalarModel] = field(default_factory=dict)
    knots: list[ScalarModel] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Return what its parts say."""
        parts = [self.largest, self.body, self.zero, *self.knots]
        return [note for part in parts if part is not None for note in part.notes]

    def predict(self, values: Values) -> list[ReuseCurve]:
        """Return a curve per place: within the boundaries, and never falling."""
        largest = np.maximum(self.largest.predict(values), 1.0)
        places = [{n: c[i : i + 1] for n, c in values.items()} for i in range(len(largest))]
        return [self._curve(place, float(top)) for place, top in zip(places, largest, strict=True)]

    def _curve(self, place: Values, top: float) -> ReuseCurve:
        distances = np.array(powers(top))
        if self.bins:
            bin_distances = sorted(self.bins)
            shares = np.array(
                [
                    float(
                        self.bins[
                            max((k for k in bin_distances if k <= d), default=bin_distances[0])
                        ].predict(place)[0]
                    )
                    for d in distances
                ]
            )
        else:
            assert self.body is not None
            shares = self.body.predict(self._inner_values(place, distances, top))
        if self.zero is not None:
            distances = np.concatenate([[0.0], distances])
            shares = np.concatenate([self.zero.predict(place), shares])
        shares = np.maximum.accumulate(np.clip(shares, *self.options.boundaries))
        return tuple(zip(distances.tolist(), shares.tolist(), strict=True))

    def _inner_values(
        self, place: Values, distance: FloatColumn, top: float
    ) -> dict[str, FloatColumn]:
        """Return the values of terms at distances above 0."""
        repeated = {n: np.repeat(c, len(distance)) for n, c in place.items()}
        knots = [float(k.predict(place)[0]) for k in self.knots]
        return {**repeated, **_distances(distance, np.full(len(distance), top), knots)}


def _distances(
    distance: FloatColumn, top: FloatColumn, knots: Sequence[float] = ()
) -> dict[str, NDArray[np.float64]]:
    """Return memX and its surrogates; with knots, normMemX bends at these distances."""
    norm, logarithm = norm_distances(distance, top)
    if knots:
        largest = float(top[0])
        middle = np.clip(np.maximum.accumulate(np.array(knots)), 1e-9, largest * (1 - 1e-9))
        steps = np.linspace(0, 1, len(knots) + 2)
        norm = np.interp(distance, [0.0, *middle, largest], steps)
    return {"memX": distance, "normMemX": norm, "lognormMemX": logarithm}


def fit_curve(
    data: SearchData, curves: Sequence[ReuseCurve], options: MetricOptions, method: SearchMethod
) -> CurveModel:
    """Fit the curves of all runs; ``data`` has the runs' values and main effects, its y is unused.

    Raises InputError.
    """
    number = MetricOptions(mode=options.mode)
    largest = np.array([max((d for d, _ in c), default=1.0) for c in curves])
    top = fit_scalar(replace(data, y=np.maximum(largest, 1.0)), number, method)
    zeros = np.array([share_at(c, 0.0) for c in curves])
    plain = replace(number, model="LinearRegression")
    zero = fit_scalar(replace(data, y=zeros), plain, method) if zeros.any() else None
    fitted = CurveModel(options, top, zero)
    for i in range(1, options.knots + 1):
        level = i / (options.knots + 1)
        y = np.array([_reached(c, level) for c in curves])
        fitted.knots.append(fit_scalar(replace(data, y=y), number, method))
    if options.model in PER_BIN:
        fitted.bins = _per_bin(data, curves, options)
        return fitted
    # The predicted largest distances scale the fit, for they will scale the predictions.
    tops = np.maximum(top.predict(data.values), 1.0)
    rows: list[dict[str, FloatColumn]] = []
    shares: list[float] = []
    for i, curve in enumerate(curves):
        distances = np.array(powers(max(largest[i], 1.0)))
        place = {n: np.asarray(c, dtype=np.float64)[i : i + 1] for n, c in data.values.items()}
        rows.append(fitted._inner_values(place, distances, max(float(tops[i]), 1.0)))
        shares += [share_at(curve, d) for d in distances]
    values = {n: np.concatenate([r[n] for r in rows]) for n in rows[0]}
    patterns = [parse_expression(p) for p in _CURVE_PATTERNS]
    mains = [CandidateTerm(p, frozenset({"memX"})) for p in patterns]
    names = (*(data.parameters or data.values),)
    curve_data = SearchData(
        values,
        np.array(shares),
        [*mains, *data.mains],
        data.threads,
        file=data.file,
        parameters=names,
    )
    inner = replace(options, boundaries=(-np.inf, np.inf))
    if inner.model in LINEAR and inner.terms is None:
        inner = replace(inner, mode="fast")  # rows of a curve depend on each other: folds mislead
    fitted.body = fit_scalar(curve_data, inner, method)
    return fitted


def _reached(curve: ReuseCurve, level: float) -> float:
    """Return the distance at which a share of the curve's last one is reached."""
    last = curve[-1][1] if curve else 0.0
    return max(next((d for d, c in curve if c >= level * last), 1.0), 1.0)


def _per_bin(
    data: SearchData, curves: Sequence[ReuseCurve], options: MetricOptions
) -> dict[float, ScalarModel]:
    """Return a model per distance; its terms are the scaling parameters unless they are given."""
    names = data.parameters or tuple(data.values)
    terms = options.terms
    if terms is None:
        terms = tuple(parse_expression(n) for n in names if np.ptp(data.values[n]) > 0)
        terms = terms[: max(0, len(curves) - 2)]
    kind = options.model.removeprefix("PerBin")
    inner = MetricOptions(model=kind, terms=terms, mode=options.mode)
    most = max((c[-1][0] for c in curves if c), default=1.0)
    return {
        d: fit_scalar(replace(data, y=np.array([share_at(c, d) for c in curves])), inner)
        for d in powers(max(most, 1.0))
    }
