"""The setup of metric models: a YAML file, or what holds by default (chapter 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from advisor.core.expression import Expression, parse_expression
from advisor.core.nearest import suggestion
from advisor.errors import InputError
from advisor.policy.document import decode, parse
from advisor_lab.profile.constraints import NO_CONSTRAINTS, ModelConstraints, parse_constraints
from advisor_lab.profile.metrics import ILP, KNOWN, MetricShape
from advisor_lab.profile.regression import WEIGHTINGS

TYPES: dict[str, MetricShape] = {
    "numeric": "scalar",
    "vnumeric": "mix",
    "instrPercentage": "scalar",
    "vinstrPercentage": "mix",
    "memFunction": "curve",
}
"""Metric types (section 6.2.1) and the values they take."""
LINEAR = ("LinearRegression", "WeightedLinearRegression")
LEARNERS = ("NearestNeighbors", "NeuralNetwork", "RandomForest")
PER_BIN = ("PerBinLinearRegression", "PerBinNeuralNetwork")
MODEL_KINDS = (*LINEAR, *LEARNERS, *PER_BIN)
MODES = ("accurate", "fast")
DISTANCES = ("memX", "normMemX", "lognormMemX")
"""What terms of memory functions may use besides the scaling parameters (section 6.2.3)."""
AUTOMATIC = ("auto", ".", "automatic", "")
_DEFAULTS = ("default", "Automatic", "automatic", "*")
_PATTERNS = ("x", "x^2", "x^3", "sqrt(x)", "log2(x)", "x*log2(x)")
_THREAD_PATTERNS = ("x", "sqrt(x)", "cbrt(x)", "x^2")
_KEYS = ("parameters", "threads", "complexity", "metrics")
_METRIC_KEYS = ("type", "model", "terms", "mode", "constraints", "boundaries", "knots")

TermPatterns = Mapping[str, Sequence[Expression]]
"""Complexities of a metric by parameter, those of "" for every parameter."""


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """How one metric is modelled; ``terms`` None are searched for."""

    type: str = "numeric"
    model: str = "WeightedLinearRegression"
    terms: tuple[Expression, ...] | None = None
    mode: str = "accurate"
    constraints: ModelConstraints = NO_CONSTRAINTS
    boundaries: tuple[float, float] = (-math.inf, math.inf)
    knots: int = 0
    weighting: str = ""
    """That of terms which were searched for before; "" lets the likeliest be taken."""

    def to_dict(self) -> dict[str, Any]:
        """Return what is stored of a step, and read again by ``options_from``."""
        c = self.constraints
        return {
            "type": self.type,
            "model": self.model,
            "mode": self.mode,
            "knots": self.knots,
            "terms": None if self.terms is None else [t.text for t in self.terms],
            "weighting": self.weighting,
            "constraints": {
                "lower_bound": c.lower_bound,
                "growing": list(c.growing),
                "ranges": [r.text for r in c.ranges],
            }
            if c
            else {},
            "boundaries": [bound_text(b) for b in self.boundaries],
        }


@dataclass(frozen=True, slots=True)
class ProfileSetup:
    """Complexities and metrics; ``metrics`` empty: table 2's required ones that are stored."""

    complexity: Mapping[str, TermPatterns] = field(default_factory=dict)
    metrics: Mapping[str, MetricOptions] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    threads: tuple[Expression, ...] = ()
    file: str = ""
    built_in: bool = False
    """Whether the complexities are ours: patterns without a value at some run are left out."""

    def patterns(self, metric: str) -> TermPatterns:
        """Return a metric's complexities."""
        return self.complexity.get(metric, self.complexity.get("default", {}))

    def options(self, metric: str) -> MetricOptions:
        """Return a metric's options."""
        return self.metrics.get(metric) or default_options(metric)


def bound_text(bound: float) -> float | Literal["Infinity", "-Infinity"]:
    """Return a boundary as JSON can have it."""
    return bound if math.isfinite(bound) else ("Infinity" if bound > 0 else "-Infinity")


def default_options(metric: str, shape: MetricShape | None = None) -> MetricOptions:
    """Return how a metric is modelled where no setup says how (figure 3 and section 8.2)."""
    kind = KNOWN.get(metric)
    shape = kind.shape if kind else shape or "scalar"
    if metric == "NThreads":
        return MetricOptions("numeric", "LinearRegression", boundaries=(1, math.inf))
    if metric == "LSys":
        return MetricOptions(boundaries=(1, math.inf))
    if shape == "mix":
        return MetricOptions("vinstrPercentage", boundaries=(0, math.inf))
    if shape == "curve":
        return MetricOptions("memFunction", "LinearRegression", boundaries=(0, 1))
    if metric in ILP or metric in ("H0branch", "F0regreads", "F0regwrites"):
        return MetricOptions("instrPercentage", boundaries=(0, math.inf))
    return MetricOptions(boundaries=(0, math.inf) if kind else (-math.inf, math.inf))


def built_in_setup(parameters: Sequence[str] = ()) -> ProfileSetup:
    """Return the setup where no file is given."""
    return ProfileSetup(
        {
            "default": {"": [parse_expression(p) for p in _PATTERNS]},
            "NThreads": {"": [parse_expression(p) for p in _THREAD_PATTERNS]},
        },
        parameters=tuple(parameters),
        built_in=True,
    )


def read_setup(path: Path, parameters: Sequence[str] = ()) -> ProfileSetup:
    """Read a setup file; ``parameters`` are the application's, where they are known.

    Raises InputError with one line: file, line and key.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    text, problems = decode(raw, str(path))
    if problems:
        raise InputError(str(problems[0]))
    return setup_of(text, str(path), parameters)


def setup_of(text: str, file: str, parameters: Sequence[str] = ()) -> ProfileSetup:
    """Return the setup a YAML text describes. Raises InputError."""
    document = parse(text, file)
    if document.problems:
        raise InputError(str(document.problems[0]))
    if not isinstance(document.data, dict):
        raise InputError(f"{file}: must be keys with values: {', '.join(_KEYS)}")
    reader = _SetupReader(file, document.lines)
    reader.known_keys(document.data, _KEYS, ())
    stated = reader.names(document.data, "parameters")
    if stated and parameters and set(stated) != set(parameters):
        reader.refuse(
            ("parameters",), f"are {', '.join(stated)}, the application's {', '.join(parameters)}"
        )
    return reader.setup(document.data, tuple(stated or parameters))


class _SetupReader:
    """Reads the parts of a setup; knows file and lines for what it refuses."""

    def __init__(self, file: str, lines: Mapping[tuple[str | int, ...], int]) -> None:
        self.file, self.lines = file, lines

    def refuse(self, path: tuple[str | int, ...], what: str, hint: str = "") -> None:
        """Raise InputError for a key."""
        prefix = path
        while prefix and prefix not in self.lines:
            prefix = prefix[:-1]
        where = f"{self.file}:{self.lines[prefix]}" if prefix in self.lines else self.file
        key = ".".join(str(p) for p in path)
        raise InputError(f"{where}: {key}: {what}" if key else f"{where}: {what}", hint=hint)

    def known_keys(
        self, data: Mapping[str, Any], valid_keys: Sequence[str], path: tuple[str | int, ...]
    ) -> None:
        for key in data:
            if key not in valid_keys:
                self.refuse((*path, key), "there is no such key", suggestion(key, valid_keys))

    def names(self, data: Mapping[str, Any], key: str) -> list[str]:
        value = data.get(key) or []
        listed = value if isinstance(value, list) else [value]
        if any(not isinstance(v, str) for v in listed):
            self.refuse((key,), "must be a list of names")
        if len(set(listed)) < len(listed):
            self.refuse((key,), "lists a name twice")
        return [str(v) for v in listed]

    def setup(self, data: Mapping[str, Any], parameters: tuple[str, ...]) -> ProfileSetup:
        complexity = data.get("complexity")
        metrics = data.get("metrics") or {}
        if not isinstance(metrics, dict):
            self.refuse(("metrics",), "must be metrics with their options")
        base_setup = built_in_setup(parameters)
        if complexity:
            base_setup = replace(
                base_setup,
                complexity=self._complexity(complexity, parameters, metrics),
                built_in=False,
            )
        threads = tuple(
            self._expression(t, ("threads", i), parameters)
            for i, t in enumerate(self.names(data, "threads"))
        )
        metric_options = {name: self._metric(name, m, parameters) for name, m in metrics.items()}
        return replace(base_setup, metrics=metric_options, threads=threads, file=self.file)

    def _expression(
        self, text: Any, path: tuple[str | int, ...], parameters: Sequence[str]
    ) -> Expression:
        try:
            expression = parse_expression(str(text))
        except InputError as error:
            self.refuse(path, error.message, error.hint)
        for name in sorted(expression.names - set(parameters)) if parameters else ():
            self.refuse(path, f"there is no parameter {name!r}", suggestion(name, parameters))
        return expression

    def _complexity(
        self, data: Any, parameters: Sequence[str], metrics: Mapping[str, Any]
    ) -> dict[str, TermPatterns]:
        if isinstance(data, list):
            data = {"default": data}
        if not isinstance(data, dict):
            self.refuse(("complexity",), "must be default and metrics with their terms")
        patterns: dict[str, TermPatterns] = {}
        for key, definition in data.items():
            path = ("complexity", key)
            if key in parameters and key not in metrics:
                more = {key: self._patterns(definition, path, parameters)}
                patterns["default"] = {**patterns.get("default", {}), **more}
                continue
            name = "default" if key in _DEFAULTS else key
            if isinstance(definition, dict):
                for parameter in definition:
                    if parameters and parameter not in parameters and parameter not in _DEFAULTS:
                        hint = suggestion(parameter, parameters)
                        self.refuse((*path, parameter), "there is no such parameter", hint)
                by_parameter = {
                    "" if p in _DEFAULTS else p: self._patterns(w, (*path, p), parameters)
                    for p, w in definition.items()
                }
            else:
                by_parameter = {"": self._patterns(definition, path, parameters)}
            patterns[name] = {**patterns.get(name, {}), **by_parameter}
        return patterns

    def _patterns(
        self, definition: Any, path: tuple[str | int, ...], parameters: Sequence[str]
    ) -> list[Expression]:
        listed = definition if isinstance(definition, list) else [definition]
        valid_names = [*dict.fromkeys([*parameters, "x", "#"])] if parameters else []
        return [
            self._expression(t, (*path, i), valid_names)
            for i, t in enumerate(listed)
            if t is not None
        ]

    def _metric(self, name: str, definition: Any, parameters: Sequence[str]) -> MetricOptions:
        path = ("metrics", name)
        if definition is None:
            return default_options(name)
        if not isinstance(definition, dict):
            self.refuse(path, "must be options like type and model")
        self.known_keys(definition, _METRIC_KEYS, path)
        try:
            return options_from(name, definition, parameters)
        except InputError as error:
            key, _, message = error.message.partition(": ")
            inner = (*path, key) if key in _METRIC_KEYS and message else path
            self.refuse(inner, message if inner != path else error.message, error.hint)
            raise


def options_from(
    metric: str,
    definition: Mapping[str, Any],
    parameters: Sequence[str],
    base: MetricOptions | None = None,
) -> MetricOptions:
    """Return a metric's options from their written form, over ``base`` or the default.

    Raises InputError whose message begins with the key.
    """
    options = base or default_options(metric)
    kind = _choice(definition, "type", tuple(TYPES))
    if kind and kind != options.type:
        options = replace(options, type=kind)
        if kind == "memFunction":
            options = replace(options, boundaries=(0, 1))
    model = _choice(definition, "model", MODEL_KINDS)
    options = replace(options, model=model or options.model)
    mode = _choice(definition, "mode", MODES)
    options = replace(options, mode=mode or options.mode)
    if "terms" in definition:
        options = replace(options, terms=_terms(definition["terms"], options, parameters))
    if "constraints" in definition:
        try:
            constraints = parse_constraints(definition["constraints"], parameters)
        except InputError as error:
            text = error.message.removeprefix("constraints: ")
            raise InputError(f"constraints: {text}", hint=error.hint) from None
        options = replace(options, constraints=constraints)
    if "boundaries" in definition:
        options = replace(options, boundaries=_boundaries(definition["boundaries"]))
    if definition.get("weighting"):
        options = replace(options, weighting=_choice(definition, "weighting", tuple(WEIGHTINGS)))
    if "knots" in definition:
        text = str(definition["knots"])
        if not text.isdigit() or int(text) > 20:
            raise InputError(f"knots: {text!r} is not a number from 0 to 20")
        options = replace(options, knots=int(text))
    if options.type.endswith("instrPercentage") and options.model not in LINEAR:
        raise InputError(
            f"model: {options.model} does not go with {options.type}",
            hint=f"use {' or '.join(LINEAR)}, or type numeric (vnumeric)",
        )
    if options.model in PER_BIN and options.type != "memFunction":
        raise InputError(f"model: {options.model} is for type memFunction only")
    if options.model in PER_BIN and options.terms is not None:
        for term in options.terms:
            if term.names & set(DISTANCES):
                raise InputError(f"terms: of {options.model} they cannot use {term.text}")
    return options


def _choice(definition: Mapping[str, Any], key: str, choices: Sequence[str]) -> str:
    if key not in definition or definition[key] is None:
        return ""
    text = str(definition[key]).strip()
    for name in choices:
        if name.lower() == text.lower():
            return name
    raise InputError(f"{key}: there is no {text!r}", hint=suggestion(text, choices))


def _terms(
    definition: Any, options: MetricOptions, parameters: Sequence[str]
) -> tuple[Expression, ...] | None:
    if isinstance(definition, str):
        text = definition.strip()
        if text.lower() in AUTOMATIC:
            return None
        inner = text.strip("{}")
        definition = _split(inner) if text.startswith("{") else [text]
    if definition is None:
        return None
    if not isinstance(definition, list):
        raise InputError("terms: must be auto or a list", hint="like [n, n^2, (n^2)/p]")
    if [str(w).strip().lower() for w in definition] == ["auto"]:
        return None
    valid_names = {*parameters, *(DISTANCES if options.type == "memFunction" else ())}
    terms = []
    for text in definition:
        try:
            term = parse_expression(str(text))
        except InputError as error:
            raise InputError(f"terms: {error.message}", hint=error.hint) from None
        for name in sorted(term.names - valid_names) if parameters else ():
            if not name.startswith("NThreads"):
                raise InputError(
                    f"terms: there is no parameter {name!r}, used in {term.text}",
                    hint=suggestion(name, valid_names),
                )
        terms.append(term)
    if len({t.text for t in terms}) < len(terms):
        raise InputError("terms: one is listed twice")
    return tuple(terms)


def _split(text: str) -> list[str]:
    """Return the parts between commas outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [p.strip() for p in parts if p.strip()]


def _boundaries(definition: Any) -> tuple[float, float]:
    listed = _split(definition.strip().strip("{}")) if isinstance(definition, str) else definition
    try:
        low, high = (float(str(v).strip().lower().replace("infinity", "inf")) for v in listed)
    except (TypeError, ValueError):
        raise InputError("boundaries: must be two numbers", hint="like [1, Infinity]") from None
    if math.isnan(low) or math.isnan(high) or low > high:
        raise InputError(f"boundaries: {low:g} is not below {high:g}")
    return low, high
