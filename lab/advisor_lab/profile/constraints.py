"""Constraints on a model far from its runs: a finite lower bound, and growth (section 6.2.4).

Checked by trial at many places: steps along each parameter for growth, and ever larger scales for
the lower bound, always within the validity ranges that were given, all of them intersected.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.core.expression import Condition, parse_condition
from advisor.core.nearest import nearest
from advisor.errors import InputError
from advisor_lab.profile.terms import ARRAYS, Values

Predictor = Callable[[Values], NDArray[np.float64]]
_STEPS, _OTHERS = 240, 9
_SCALES = (15.0, 6.0, 2.0, 1.0)
"""Powers of ten whose first, second and fourth multiples are compared, until values are finite."""
_MOST_PLACES = 20_000
"""Points at which a constraint is tried, at most. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class ModelConstraints:
    """What a model must keep to: a lower bound, parameters it grows with, where both are asked."""

    lower_bound: bool = False
    growing: tuple[str, ...] = ()
    ranges: tuple[Condition, ...] = ()
    written: str = ""

    def __bool__(self) -> bool:
        return self.lower_bound or bool(self.growing)

    def hold(self, predict: Predictor, observed: Values) -> bool:
        """Tell whether a model of the parameters in ``observed`` keeps to all of them."""
        for name in self.growing:
            if not self._grows(predict, observed, name):
                return False
        return not self.lower_bound or self._bounded(predict, observed)

    def _in_ranges(self, values: Values) -> NDArray[np.bool_]:
        length = len(next(iter(values.values())))
        inside = np.ones(length, dtype=bool)
        with np.errstate(all="ignore"):
            for condition in self.ranges:
                inside &= np.broadcast_to(np.asarray(condition.holds(values, ARRAYS)), (length,))
        return inside

    def _grows(self, predict: Predictor, observed: Values, name: str) -> bool:
        if name not in observed:
            return True
        named = any(name in condition.names for condition in self.ranges)
        low, high = observed[name].min(), observed[name].max()
        low = min(low, high / 1e3) if named and high > 0 else low
        steps = _spaced(low, high * 1e4 if high > 0 else high + 1, _STEPS)
        other_steps = {
            parameter: _spaced(column.min(), max(column.max(), 1e-9) * 1e3, _OTHERS)
            for parameter, column in observed.items()
            if parameter != name
        }
        for place in itertools.islice(itertools.product(*other_steps.values()), 1000):
            values = {n: np.full(_STEPS, v) for n, v in zip(other_steps, place, strict=True)}
            values[name] = steps
            inside = self._in_ranges(values)
            with np.errstate(all="ignore"):
                predicted = predict(values)
                rise = np.diff(predicted)
                slack = 1e-9 * np.abs(predicted[1:])
            if np.any((rise < -slack) & inside[1:] & inside[:-1]):
                return False
        return True

    def _bounded(self, predict: Predictor, observed: Values) -> bool:
        """Tell whether the least value within the ranges settles while the scale grows."""
        for power in _SCALES:
            lows = [self._least(predict, observed, power * k) for k in (1, 2, 4)]
            if any(low is None or np.isnan(low) for low in lows):
                continue
            first, second, third = (float(low) for low in lows if low is not None)
            if second == -np.inf or third == -np.inf:
                return False
            fall, more = first - second, second - third
            scale = max(abs(first), abs(second), 1e-300)
            return not (more > 1e-9 * scale and more >= 0.98 * fall)
        return True

    def _least(self, predict: Predictor, observed: Values, power: float) -> float | None:
        """Return the least value at places up to 10^power times the parameters of the runs."""
        axes = []
        for column in observed.values():
            low, high = float(column.min()), max(float(column.max()), 1e-9)
            far = [
                c * high * 10.0 ** (power * share)
                for share in (0.25, 0.5, 1.0)
                for c in (0.5, 0.999, 1.0, 2.0)
            ]
            axes.append(np.array([low, (low + high) / 2, high, *far]))
        places = np.array(
            list(itertools.islice(itertools.product(*axes), _MOST_PLACES)), dtype=np.float64
        )
        values = {name: places[:, i] for i, name in enumerate(observed)}
        inside = self._in_ranges(values)
        if not inside.any():
            return None
        with np.errstate(all="ignore"):
            predicted = predict(values)[inside]
        return float(predicted.min()) if not np.isnan(predicted).any() else float("nan")


NO_CONSTRAINTS = ModelConstraints()


def _spaced(low: float, high: float, count: int) -> NDArray[np.float64]:
    """Return values from low to high, even in the logarithm where there is one."""
    if low > 0:
        return np.geomspace(low, high, count)
    return np.linspace(low, high, count)


# -- reading ---------------------------------------------------------------------------------------

_WORDS = re.compile(r'\s*("[^"]*"|[{},]|[^{},"]+)')


def parse_constraints(definition: Any, parameters: Sequence[str]) -> ModelConstraints:
    """Return constraints from the manual's list, as a text or as lists, or from keys.

    ``{True, {"x0", True, {x0>1}}}``; or ``lower_bound: true``, ``growing: [x0]``, ``ranges: [x0 >
    1]``. Raises InputError.
    """
    if definition in (None, "", [], {}):
        return ModelConstraints()
    if isinstance(definition, Mapping):
        return _from_keys(definition, parameters)
    data = _lists(definition) if isinstance(definition, str) else definition
    if not isinstance(data, list) or not data:
        raise InputError(f"constraints {definition!r} are not a list", hint=_EXAMPLE)
    bound, *rest = data
    growing, ranges = [], []
    for part in rest:
        if not isinstance(part, list) or len(part) not in (2, 3) or not isinstance(part[0], str):
            raise InputError(
                f"constraints: {part!r} is not a parameter with its range", hint=_EXAMPLE
            )
        name = _parameter(part[0].strip('"'), parameters)
        if _truth(part[1]):
            growing.append(name)
        for text in part[2] if len(part) == 3 and isinstance(part[2], list) else part[2:]:
            ranges.append(_range(text, parameters))
    return ModelConstraints(_truth(bound), tuple(growing), tuple(ranges), str(definition))


_EXAMPLE = 'write it like {True, {"n", True, {n > 5}}}'


def _from_keys(definition: Mapping[str, Any], parameters: Sequence[str]) -> ModelConstraints:
    for key in definition:
        if key not in ("lower_bound", "growing", "ranges"):
            raise InputError(
                f"constraints.{key} is unknown", hint="known: lower_bound, growing, ranges"
            )
    growing, ranges = definition.get("growing", []), definition.get("ranges", [])
    return ModelConstraints(
        _truth(definition.get("lower_bound", "false")),
        tuple(_parameter(n, parameters) for n in _listed(growing)),
        tuple(_range(t, parameters) for t in _listed(ranges)),
        str(dict(definition)),
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _parameter(name: str, parameters: Sequence[str]) -> str:
    if name not in parameters:
        raise InputError(
            f"constraints: there is no parameter {name!r}",
            hint=f"there are: {', '.join(parameters)}",
        )
    return name


def _range(text: Any, parameters: Sequence[str]) -> Condition:
    condition = parse_condition(str(text).strip().strip('"'))
    for name in sorted(condition.names):
        _parameter(name, parameters)
    return condition


def _truth(word: Any) -> bool:
    text = str(word).strip().lower()
    if text not in ("true", "false"):
        suggestions = nearest(text, ("true", "false"))
        hint = (
            f"did you mean {suggestions[0].capitalize()}?" if suggestions else "write True or False"
        )
        raise InputError(f"constraints: {str(word).strip()!r} is neither True nor False", hint=hint)
    return text == "true"


def _lists(text: str) -> list[Any]:
    """Return the nested lists of a text in braces."""
    stack: list[list[Any]] = [[]]
    offset = 0
    while text[offset:].strip():
        match = _WORDS.match(text, offset)
        word = match[1].strip() if match else ""
        if match is None or (word == "}" and len(stack) == 1):
            raise InputError(f"constraints {text!r}: braces do not match", hint=_EXAMPLE)
        offset = match.end()
        if word == "{":
            stack.append([])
        elif word == "}":
            inner = stack.pop()
            stack[-1].append(inner)
        elif word and word != ",":
            stack[-1].append(word)
    if len(stack) != 1:
        raise InputError(f"constraints {text!r}: a brace is not closed", hint=_EXAMPLE)
    return stack[0][0] if len(stack[0]) == 1 and isinstance(stack[0][0], list) else stack[0]
