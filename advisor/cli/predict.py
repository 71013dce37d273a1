"""``advisor lab predict``: time and energy of a size or node count that never ran."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor import paths
from advisor.cli.arguments import size_argument
from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm, wire
from advisor.core.configuration import Configuration
from advisor.core.option import Z90
from advisor.core.units import duration_like, format_energy, format_freq
from advisor.errors import InputError, RefusedError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.core.observation import Observation
    from advisor.scaling.base import ScaledResponse
    from advisor.scaling.family import SizedFamily, SizePrediction

_FAR = 4.0
"""Further than so many times the largest measured is no ground for advice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor lab predict`` takes."""
    parser.description = (
        "Predict time and energy of an application at a size, or on nodes, that never ran, from "
        "its measured sizes (docs/extrapolation.md). Parameters are the numbers of the launcher's "
        "line, and columns of imported runs. Nothing is stored."
    )
    parser.add_argument("application", metavar="APP", help="the measured application")
    parser.add_argument(
        "--at",
        type=size_argument,
        required=True,
        metavar="NAME=NUMBER,...",
        help="the size: every parameter, and the nodes (default: as in most measured runs)",
    )
    parser.add_argument(
        "--parameters",
        default="",
        metavar="NAME,...",
        help="columns of imported runs that are parameters (default: those --at names)",
    )
    parser.add_argument(
        "--family", metavar="LINE", help="only this launcher line, with {} in place of each number"
    )
    parser.add_argument("--node-type", metavar="NODE_TYPE", help="only this node type")
    parser.add_argument(
        "--model",
        default="auto",
        metavar="NAME",
        help="the scaling model: auto, physics, terms or pmnf (default: auto)",
    )


def run(args: argparse.Namespace) -> int:
    """Predict and print."""
    from advisor.scaling.family import predict_size
    from advisor.store.count_laws import count_laws
    from advisor.store.reader import Reader

    family = _family(args, _runs(args))
    with Reader(paths.whole_store(args.db)) as store:
        laws = count_laws(store, args.application)
    try:
        prediction = predict_size(family, args.at, args.model, laws)
    except InputError as error:
        raise InputError(f"{args.application}: {error.message}", hint=error.hint) from None
    if prediction.tried.unfit:
        raise RefusedError(
            f"{args.application}: family-unfit: {prediction.tried.notes[0]}",
            hint="measure that size, or more sizes near it",
        )
    fits, notes = _in_memory(args, prediction)
    notes = [*_notes(prediction), *notes]
    if args.json:
        print_json("predict", _answer(args.application, prediction, fits, notes))
        return 0
    _print(args.application, prediction, fits, notes)
    return 0


def _in_memory(args: argparse.Namespace, prediction: SizePrediction) -> tuple[list[int], list[str]]:
    """Return the options that have the memory which the profiles predict, and what to say.

    Raises RefusedError where none has it.
    """
    from advisor.core.memory import lacking_memory
    from advisor.store.reader import Reader

    configurations = prediction.configurations
    every = list(range(len(configurations)))
    if prediction.laws is None:
        return every, []
    with Reader(paths.whole_store(args.db)) as store:
        node_type = store.inventory().resolve(configurations[0].node_type)
    lack = lacking_memory(prediction.laws, prediction.at, configurations, node_type)
    fits = [i for i in every if configurations[i] not in lack]
    if not fits:
        raise RefusedError(
            f"{args.application}: no option has the memory: {next(iter(lack.values()))}",
            hint="more nodes share it: add nodes=N to --at",
        )
    return fits, [f"{why}: left out" for why in dict.fromkeys(lack.values())]


def _runs(args: argparse.Namespace) -> list[tuple[str, Observation]]:
    """Return the runs that advise the caller, of one node type."""
    from advisor.models.runs import runs_by_scope
    from advisor.store.opening import caller
    from advisor.store.reader import Reader
    from advisor.views.misspelt import check_measured

    path = paths.whole_store(args.db, hint="sites show users their models: advisor options")
    with Reader(path) as store:
        stored = store.observations(args.application, node_type=args.node_type)
        if not stored:
            check_measured(store, args.application, None, args.node_type)
            raise RefusedError(
                f"{args.application} has no runs", hint="advisor import or advisor train"
            )
    node_types = {s.observation.configuration.node_type for s in stored}
    if len(node_types) > 1:
        raise InputError(
            f"{args.application} ran on {', '.join(sorted(node_types))}",
            hint="choose with --node-type",
        )
    user = caller()
    groups = runs_by_scope([s.observation for s in stored])
    own_groups = [g for g in groups if g.scope == "own" and g.owner == user]
    everybody = [g for g in groups if g.scope == "all"]
    allowed = {id(o) for g in (own_groups or everybody or groups)[:1] for o in g.observations}
    return [(s.workload, s.observation) for s in stored if id(s.observation) in allowed]


def _family(args: argparse.Namespace, runs: list[tuple[str, Observation]]) -> SizedFamily:
    from advisor.scaling.base import NODES
    from advisor.scaling.family import families

    named = [p.strip() for p in args.parameters.split(",") if p.strip()]
    size_names = [name for name in args.at if name != NODES]
    columns = {name for _, o in runs for name in o.extra}
    lacking = [name for name in named if name not in columns]
    if lacking:
        raise InputError(
            f"{args.application}: no run has a column {lacking[0]!r}",
            hint=f"choose from: {', '.join(sorted(columns))}" if columns else "--at names sizes",
        )
    by_name = families(runs, [n for n in dict.fromkeys([*named, *size_names]) if n in columns])
    if args.family is not None:
        if args.family not in by_name:
            names = ", ".join(repr(f) for f in by_name)
            raise UnknownNameError(
                f"there is no family {args.family!r}", hint=f"choose from: {names}"
            )
        return by_name[args.family]
    fitting = [f for f in by_name.values() if all(n in f.parameters for n in size_names)]
    if not fitting:
        parameter_names = sorted({p for f in by_name.values() for p in f.parameters} | columns)
        raise InputError(
            f"{args.application}: no family has the parameters {', '.join(size_names)}",
            hint=f"it has {', '.join(parameter_names) or 'none'}, and nodes",
        )
    # Of families that have more parameters than were named, nothing could be predicted.
    return max(fitting, key=lambda f: (set(f.parameters) <= {*size_names, *named}, len(f.runs)))


@dataclass(frozen=True, slots=True)
class PredictAnswer(JsonForm):
    """Time and energy of an application at a size or on nodes that never ran; 90 % intervals.
    relative_pct is an option's own error against the largest configuration, shared_error_pct what
    all options are off together."""

    application: str
    family: str
    model: str
    at: Mapping[str, float]
    beyond: Mapping[str, float]
    shared_error_pct: float
    terms: Sequence[str]
    options: list[PredictedOption]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class PredictedOption(JsonForm):
    """A configuration's time and energy."""

    configuration: Configuration = field(metadata=wire(inline=True))
    time_s: float
    time_interval: tuple[float, float]
    energy_j: float | None
    energy_interval: tuple[float, float] | None
    relative_pct: float
    relative_energy_pct: float | None


def _answer(
    application: str, prediction: SizePrediction, fits: Sequence[int], notes: Sequence[str]
) -> PredictAnswer:
    forecast = prediction.tried.forecast
    time, energy = forecast.time, forecast.energy
    return PredictAnswer(
        application=application,
        family=prediction.family.name,
        model=prediction.tried.model,
        at=prediction.at,
        beyond=prediction.beyond,
        shared_error_pct=_percent(float(time.shared[0])),
        terms=forecast.terms,
        options=[
            PredictedOption(
                configuration=prediction.configurations[i],
                time_s=math.exp(time.mean[i]),
                time_interval=_interval(time, i),
                energy_j=None if energy is None else math.exp(energy.mean[i]),
                energy_interval=None if energy is None else _interval(energy, i),
                relative_pct=_percent(float(time.own[i])),
                relative_energy_pct=None if energy is None else _percent(float(energy.own[i])),
            )
            for i in fits
        ],
        notes=notes,
    )


def _notes(prediction: SizePrediction) -> list[str]:
    distance_notes = [
        f"{axis} is {factor:.3g} times the largest measured: too far for advice"
        for axis, factor in prediction.beyond.items()
        if factor > _FAR
    ]
    return [*distance_notes, *prediction.notes]


def _interval(response: ScaledResponse, i: int) -> tuple[float, float]:
    half = Z90 * float(response.sigma[i])
    return math.exp(response.mean[i] - half), math.exp(response.mean[i] + half)


def _percent(sigma: float) -> float:
    return 100.0 * math.expm1(Z90 * sigma)


def _print(
    application: str, prediction: SizePrediction, fits: Sequence[int], notes: Sequence[str]
) -> None:
    forecast = prediction.tried.forecast
    time, energy = forecast.time, forecast.energy
    size_words = ", ".join(f"{k} {v:g}" for k, v in prediction.at.items())
    distance_words = ", ".join(f"{k} {v:.3g} times" for k, v in prediction.beyond.items())
    print(f"{application}, {prediction.family.name}: {size_words}")
    print(
        f"beyond the largest measured: {distance_words}"
        if distance_words
        else "within what was measured"
    )
    print(f"all options may be off together by {_percent(float(time.shared[0])):.0f} % (90 %)\n")
    places = [prediction.configurations[i] for i in fits]
    with_ranks = len({c.ranks_per_node for c in places}) > 1
    rows = []
    for i, c in zip(fits, places, strict=True):
        low, high = _interval(time, i)
        duration = duration_like(math.exp(time.mean[i]))
        row = [
            c.threads_per_node,
            format_freq(c.freq_khz),
            duration(math.exp(time.mean[i])),
            f"{duration(low)} to {duration(high)}",
        ]
        if energy is not None:
            row.append(format_energy(math.exp(energy.mean[i])))
        row.append(f"{_percent(float(time.own[i])):.0f} %")
        rows.append([c.ranks_per_node, *row] if with_ranks else row)
    headers = [
        "threads",
        "frequency",
        "time",
        "90 %",
        *(["energy"] * (energy is not None)),
        "own error",
    ]
    print_table(["ranks", *headers] if with_ranks else headers, rows)
    for note in notes:
        print(note)
