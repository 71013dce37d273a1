"""A regression of one's own: a formula, a transform and a scaler (Endrei 2019, 4.3.3 and 5.1.3).

The formula is in Wilkinson's notation, as patsy reads it. Nothing of Python but axes, numbers,
arithmetic and the functions listed here is evaluated.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import patsy

from advisor.errors import InputError
from advisor.models.base import AXES, Matrix, ModelOption, Vector
from advisor.models.regression import (
    VIF,
    inference,
    least_squares,
    left_out_note,
    without_inflated,
)

_FUNCTIONS: dict[str, Any] = {
    "bs": patsy.bs,
    "cr": patsy.cr,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "exp": np.exp,
    "sqrt": np.sqrt,
}
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd)
_KEYWORDS = {
    "bs": ("df", "degree", "include_intercept", "lower_bound", "upper_bound"),
    "cr": ("df", "lower_bound", "upper_bound"),
}
_MOST_DF, _MOST_POWER = 50, 20
_KEEP_NAN = patsy.NAAction(NA_types=[])
_SIGNIFICANT = 0.05
"""Terms whose p value is above are named."""
_FLOOR = 0.1
"""Predictions stay above this share of the smallest run: a polynomial may cross zero."""


@dataclass(frozen=True, slots=True)
class _Transform:
    forward: Callable[[Vector], Vector]
    back: Callable[[Vector], Vector]


_TRANSFORMS = {
    "ln": _Transform(np.log, np.exp),
    "log2": _Transform(np.log2, np.exp2),
    "log10": _Transform(np.log10, lambda v: 10.0**v),
    "sqrt": _Transform(np.sqrt, np.square),
    "exp": _Transform(np.exp, lambda v: np.log(np.maximum(v, math.e**_FLOOR))),
    "none": _Transform(np.array, np.array),
}
"""Of the response in units of its largest run; with ``exp`` unscaled seconds would overflow."""


class Formula:
    """Ordinary least squares of a formula over nodes, threads and frequency.

    Axes are scaled first, over the search space (``minmax``, to 0..1) or by the runs' mean and
    deviation (``standard``). The default formula is equations 4.9 and 4.10's: B-splines of every
    axis that varies, and ``interactions``. A column that the runs cannot determine gets the
    smallest coefficient that fits.
    """

    NAME: ClassVar[str] = "formula"
    DESCRIPTION: ClassVar[str] = "a formula of one's own, least squares (Endrei 2019)"
    IN_AUTO: ClassVar[bool] = False
    """It is a person's own choice."""
    OPTIONS: ClassVar[tuple[ModelOption, ...]] = (
        ModelOption(
            "formula",
            str,
            "",
            "terms of nodes, threads and frequency, like 'bs(threads, df=3) + sqrt(frequency)'; "
            "without one: B-splines of each axis",
        ),
        ModelOption(
            "interactions",
            str,
            "nodes:threads threads:frequency",
            "pairs of axes whose terms are multiplied; 'none' for none",
        ),
        ModelOption("remove", str, "", "terms to leave out, like 'threads:frequency'"),
        ModelOption("df", int, 3, "degrees of freedom of each axis' splines", 1, 12),
        ModelOption("degree", int, 2, "degree of their piecewise polynomials", 1, 5),
        VIF,
        ModelOption("transform", str, "ln", "of the response", choices=tuple(_TRANSFORMS)),
        ModelOption(
            "scaler",
            str,
            "minmax",
            "of the axes; logarithms of them need 'none'",
            choices=("minmax", "standard", "none"),
        ),
        ModelOption("lower", float, 0.0, "least predicted, as a share of the smallest run", 0, 1),
        ModelOption("upper", float, 0.0, "most predicted, in largest runs; 0: no bound", 0, 1e6),
    )

    def __init__(
        self,
        *,
        bounds: Matrix | None = None,
        formula: str = "",
        interactions: str = "nodes:threads threads:frequency",
        remove: str = "",
        df: int = 3,
        degree: int = 2,
        vif: float = 0.0,
        transform: str = "ln",
        scaler: str = "minmax",
        lower: float = 0.0,
        upper: float = 0.0,
        **_: Any,
    ) -> None:
        self.notes: list[str] = []
        self._bounds = bounds
        self._formula, self._interactions, self._remove = formula, interactions, remove
        self._df, self._degree = max(df, degree), degree
        self._transform, self._scaler = _TRANSFORMS[transform], scaler
        self._lower, self._upper = lower or _FLOOR, upper or math.inf
        self._low = self._high = self._shift = self._span = np.zeros(3)
        self._largest_vif = vif
        self._columns: list[int] = []
        self._most = 1.0
        self._least = 0.0
        self._info: Any = None
        self._fitted: Any = None

    def fit(self, x: Matrix, y: Vector) -> None:
        """Fit to x (n, 3) and positive y (n,); InputError for a formula that cannot be used."""
        self.notes = []
        reach = x if self._bounds is None else np.vstack([x, self._bounds])
        self._low, self._high = reach.min(axis=0), reach.max(axis=0)
        self._shift, self._span = np.zeros(3), np.ones(3)
        if self._scaler == "minmax":
            self._shift, self._span = self._low, _positive(self._high - self._low)
        elif self._scaler == "standard":
            self._shift, self._span = x.mean(axis=0), _positive(x.std(axis=0))
        # Over the whole search space, for splines are not defined beyond what patsy was shown.
        terms, functions = self._terms(x), patsy.EvalEnvironment([_FUNCTIONS])
        try:
            with np.errstate(all="ignore"):
                self._info = patsy.incr_dbuilder(
                    terms, lambda: iter([self._frame(reach)]), functions, NA_action=_KEEP_NAN
                )
        except (patsy.PatsyError, ValueError, TypeError) as error:
            if isinstance(error.__cause__, NotImplementedError):  # of bs only
                raise InputError(
                    "formula: lower_bound and upper_bound must hold the whole search space",
                    hint=f"in values as --model-option scaler={self._scaler} makes them",
                ) from None
            why = str(getattr(error, "message", error)).splitlines()[0]
            raise InputError(f"formula: {why}", hint=_KNOWN) from None
        self._most, self._least = float(y.max()), float(y.min())
        self._columns = list(range(len(self._info.column_names)))
        if self._largest_vif:
            self._columns = without_inflated(self._design(x), self._largest_vif)
            self.notes += left_out_note(self._info.column_names, self._columns)
        design = self._design(x)
        self._fitted = least_squares(design, self._transform.forward(y / self._most))
        self._judge(len(y))

    def predict(self, x: Matrix) -> Vector:
        """Predict the response in its own unit, within ``lower`` and ``upper``."""
        value = self._transform.back(self._design(x) @ self._fitted.params) * self._most
        predicted: Vector = np.clip(value, self._lower * self._least, self._upper * self._most)
        return predicted

    @property
    def facts(self) -> dict[str, Any]:
        """What can be inferred of each column of the design."""
        every = ["1" if n == "Intercept" else n for n in self._info.column_names]
        names = [every[i] for i in self._columns]
        return {"inference": inference(self._fitted, names)}

    def _terms(self, x: Matrix) -> Any:
        """Return patsy's description of the formula's terms, checked."""
        varying = [n for n, v in zip(AXES, x.T, strict=False) if len(np.unique(v)) > 1]
        text = self._formula.strip() or self._default(varying, x)
        try:
            terms = patsy.ModelDesc.from_formula(text)
            left_out = patsy.ModelDesc.from_formula(self._remove or "0").rhs_termlist
        except patsy.PatsyError as error:
            raise InputError(f"formula: {text!r}: {error.message}", hint=_KNOWN) from None
        if terms.lhs_termlist:
            raise InputError(
                f"formula: {text!r} has a left side", hint="write the terms only, like 'threads'"
            )
        removed = [_axes_of(t) for t in left_out if t.factors]
        remaining = [t for t in terms.rhs_termlist if not t.factors or _axes_of(t) not in removed]
        if self._remove and len(remaining) == len(terms.rhs_termlist):
            raise InputError(f"remove: {self._remove!r} is not a term of {text!r}")
        if not remaining:
            raise InputError(f"formula: {text!r} has no terms", hint=_KNOWN)
        for term in remaining:
            for factor in term.factors:
                _check(factor.name(), text)
        return patsy.ModelDesc([], remaining)

    def _default(self, varying: list[str], x: Matrix) -> str:
        splines = {}
        for name in varying:
            distinct = len(np.unique(x[:, AXES.index(name)]))
            degree = min(self._degree, distinct - 1)
            df = min(max(self._df, degree), distinct - 1)
            splines[name] = f"bs({name}, df={df}, degree={degree})"
        terms = list(splines.values()) or ["1"]
        for pair in [] if self._interactions == "none" else self._interactions.split():
            a, _, b = pair.partition(":")
            if a not in AXES or b not in AXES or a == b:
                raise InputError(f"interactions: {pair!r} is not a pair of axes", hint=_KNOWN)
            if a in splines and b in splines:
                terms.append(f"{splines[a]}:{splines[b]}")
        return " + ".join(terms)

    def _frame(self, x: Matrix) -> pd.DataFrame:
        scaled = (np.clip(x, self._low, self._high) - self._shift) / self._span
        return pd.DataFrame(dict(zip(AXES, scaled.T, strict=False)))

    def _design(self, x: Matrix) -> Matrix:
        with np.errstate(all="ignore"):
            built = patsy.build_design_matrices([self._info], self._frame(x), NA_action=_KEEP_NAN)
        design = np.asarray(built[0], dtype=np.float64)[:, self._columns]
        bad = np.argwhere(~np.isfinite(design))
        if len(bad):
            row, column = bad[0]
            place_text = ", ".join(f"{n} {v:g}" for n, v in zip(AXES, x[row], strict=False))
            scaled = "" if self._scaler == "none" else f", axes scaled ({self._scaler})"
            instead = (
                "exponentials small ones; frequency is in kHz"
                if self._scaler == "none"
                else "or leave the axes unscaled: --model-option scaler=none"
            )
            raise InputError(
                f"formula: {self._info.column_names[self._columns[column]]} is not a number at "
                f"{place_text}{scaled}",
                hint=f"logarithms and roots need positive values, {instead}",
            )
        return design

    def _judge(self, runs: int) -> None:
        """Note terms that the runs do not support."""
        judged = self.facts["inference"]
        columns = judged["terms"]
        if len(columns) > runs:
            self.notes.append(f"{runs} runs for {len(columns)} terms: not all can be determined")
            return
        weak = [
            t["term"]
            for t in columns
            if t["p_value"] is not None and t["term"] != "1" and t["p_value"] > _SIGNIFICANT
        ]
        if weak:
            named = ", ".join(weak[:3]) + (" and more" if len(weak) > 3 else "")
            self.notes.append(
                f"{len(weak)} of {len(columns)} terms are not significant at 5 %: {named}"
            )


_KNOWN = f"axes: {', '.join(AXES)}; functions: {', '.join(_FUNCTIONS)}"


def _positive(spread: Vector) -> Vector:
    return np.where(spread > 0, spread, 1.0)


def _axes_of(term: Any) -> frozenset[str]:
    """Return the axes a term is of: ``bs(threads, df=3):frequency`` is of threads:frequency."""
    axes = set()
    for factor in term.factors:
        tree = ast.parse(factor.name(), mode="eval")
        axes |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in AXES}
    return frozenset(axes)


def _check(code: str, formula: str) -> None:
    """Raise InputError for code that is more than axes, numbers, arithmetic and known functions."""

    def wrong(what: str, hint: str = _KNOWN) -> InputError:
        return InputError(f"formula: {formula!r}: {what}", hint=hint)

    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        raise wrong(f"{code!r} cannot be read") from None
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in (*AXES, *_FUNCTIONS, "I"):
            raise wrong(f"{node.id!r} is not known")
        if not _plain(node):
            raise wrong(f"{code!r} is more than terms of axes")
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    called = {id(c.func) for c in calls}
    names = [n for n in nodes if isinstance(n, ast.Name)]
    for name in names:
        if (name.id in AXES) == (id(name) in called):
            kind = "an axis, no function" if name.id in AXES else "a function: what of?"
            raise wrong(f"{name.id!r} is {kind}")
    if not any(n.id in AXES for n in names):
        raise wrong(f"{code!r} has no axis")
    for call in calls:
        if why := _misused(call):
            raise wrong(why)


def _plain(node: ast.AST) -> bool:
    """Tell whether a part of a formula can be evaluated safely, and soon."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name)
    # A power's exponent is a small number: 9**9**9 would not end.
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        power = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
        return isinstance(power, ast.Constant) and _is_between(power.value, 0, _MOST_POWER)
    return isinstance(
        node,
        (ast.Expression, ast.Name, ast.Load, ast.keyword, ast.BinOp, ast.UnaryOp, *_ARITHMETIC),
    )


def _misused(call: ast.Call) -> str:
    """Return what is wrong with the arguments of a function of ``_FUNCTIONS``, "" if nothing."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    keywords = _KEYWORDS.get(name, ())
    if len(call.args) != 1:
        return f"{name} takes one value, not {len(call.args)}"
    for keyword in call.keywords:
        if keyword.arg not in keywords:
            listed = f"it has {', '.join(keywords)}" if keywords else "it has none"
            return f"{name}: unexpected keyword argument {keyword.arg!r}; {listed}"
        if keyword.arg in ("df", "degree") and not (
            isinstance(keyword.value, ast.Constant)
            and isinstance(keyword.value.value, int)
            and _is_between(keyword.value.value, 1, _MOST_DF)
        ):
            return f"{name}: {keyword.arg} is a whole number from 1 to {_MOST_DF}"
    if "df" in keywords and all(k.arg != "df" for k in call.keywords):
        return f"{name} needs df, like {name}(threads, df=3)"
    return ""


def _is_between(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and least <= value <= most
