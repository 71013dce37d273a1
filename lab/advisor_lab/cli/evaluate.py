"""``advisor lab evaluate``: judge models on fully measured grids."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from advisor.cli.fit import add_model_arguments, list_models, model_options
from advisor.cli.output import TableWriter, add_format_argument, print_json
from advisor.cli.pictures import (
    STATISTICS,
    add_plot_argument,
    check_plot,
    percent,
    print_picture,
    print_statistics,
    save_plot,
)
from advisor.core.codec import JsonForm, wire
from advisor.core.nearest import suggestion
from advisor.errors import InputError, UsageError
from advisor.store.rows import clean

VIEWS = ("pareto", "observed", "lines", "surface", *STATISTICS)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.core.observation import Observation
    from advisor.models.evaluation import Evaluation
    from advisor.views.statistics import StatisticsView
    from advisor_lab.evaluation.compare_models import Fold, Grid, Mean, ModelComparison
    from advisor_lab.evaluation.extrapolation import Extrapolation

_NODE_TYPE = "grid"
"""Stands for the one node type of a grid's file, which names none."""


@dataclass(frozen=True, slots=True)
class GridFolds:
    """The folds of a model on a grid, by what is predicted."""

    grid: str
    model: str
    responses: Mapping[str, Sequence[Fold]]


@dataclass(frozen=True, slots=True)
class EvaluateAnswer(JsonForm):
    """How well models fit a fully measured grid: one evaluation, or several cases with means."""

    file: str
    evaluation: Evaluation = field(metadata=wire(inline=True))
    kfold: tuple[GridFolds, ...] = field(default=(), metadata=wire(omit=True))
    statistics: Annotated[Mapping[str, Any] | None, "what --view shows, by the view"] = field(
        default=None, metadata=wire(omit=True)
    )


@dataclass(frozen=True, slots=True)
class ComparisonAnswer(JsonForm):
    """Several evaluations, and the models that could not be tried with the reason."""

    file: str
    cases: tuple[Grid, ...]
    means: Sequence[Mean]
    skipped: Mapping[str, str]
    kfold: tuple[GridFolds, ...] = field(default=(), metadata=wire(omit=True))


@dataclass(frozen=True, slots=True)
class ExtrapolationAnswer(JsonForm):
    """How well sizes beyond those trained on are predicted."""

    file: str
    study: Extrapolation = field(metadata=wire(inline=True))


ANSWERS = (EvaluateAnswer, ComparisonAnswer, ExtrapolationAnswer)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor lab evaluate`` takes."""
    parser.description = (
        "Train a model on a few runs out of a measured grid (columns as for advisor import) and "
        "compare its predictions with all of it: errors, interval coverage, forecast trade-off "
        "zone, and the savings of the advice. Nothing is stored."
    )
    parser.add_argument(
        "grid",
        type=Path,
        nargs="?",
        metavar="GRID.csv",
        help="the measured grid, or a folder of grids",
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--compare", action="store_true", help="show all models side by side, on the same runs"
    )
    parser.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a further column is an axis, too, like a batch size: it takes the place of threads, "
        "frequency or nodes, the first that does not vary; can be repeated",
    )
    parser.add_argument(
        "--vary",
        metavar="NAME=V,V,...",
        help="judge the model with each of these values of one of its options, like degree=1,2,3, "
        "or of --samples, like samples=6,8,12; --plot draws their errors",
    )
    parser.add_argument(
        "--design",
        choices=("uniform", "random", "lhs", "sequential"),
        default="uniform",
        help="how the runs to train on are chosen (default: uniform)",
    )
    parser.add_argument(
        "--samples",
        type=_count,
        metavar="N",
        help="how many runs to train on (default: 12; with --parameter 36, or 18)",
    )
    parser.add_argument(
        "--parameter",
        metavar="NAME",
        help="judge extrapolation along a column of sizes, or along nodes (docs/extrapolation.md)",
    )
    parser.add_argument(
        "--train-to",
        type=_positive,
        metavar="V",
        help="with --parameter: train on values up to V, predict all larger ones",
    )
    parser.add_argument(
        "--min-time",
        type=_positive,
        default=0.0,
        metavar="S",
        help="with --parameter: cells shorter than S seconds do not count in errors (default: 0)",
    )
    for flag, default, what in (
        ("--error", 0.05, "error limit of the observed points' trade-off zone"),
        ("--max-slowdown", 0.05, "the largest slowdown against the baseline"),
        ("--min-saving", 0.03, "the least saving worth a change"),
    ):
        parser.add_argument(
            flag,
            type=percent,
            default=default,
            metavar="PCT",
            help=f"{what}, in %% (default: {100 * default:g})",
        )
    parser.add_argument(
        "--forecast-error",
        type=percent,
        metavar="PCT",
        help="error limit of the forecast points' trade-off zone, in %% (default: that of --error)",
    )
    add_format_argument(parser)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of random designs (default: 0)"
    )
    parser.add_argument(
        "--seeds",
        type=_count,
        metavar="N",
        help="repeat with N seeds from --seed on; print means and spread",
    )
    parser.add_argument(
        "--kfold",
        type=_count,
        metavar="K",
        help="also cross-validate on the whole grid, in K folds",
    )
    add_plot_argument(parser, VIEWS)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


def run(args: argparse.Namespace) -> int:
    """Evaluate and print."""
    if args.list_models:
        return list_models(args)
    if args.grid is None:
        raise UsageError("no grid is named", hint="advisor lab evaluate GRID.csv")
    if args.parameter is not None:
        return _extrapolate(args)
    if args.train_to is not None or args.min_time:
        raise UsageError("--train-to and --min-time need --parameter", hint="--parameter NAME")
    if args.compare and args.model_option:
        raise UsageError("--model-option is for one model", hint="leave --compare out")
    if args.seeds and args.design == "uniform":
        raise UsageError(
            "the uniform design is not random: seeds change nothing",
            hint="--design random or lhs",
        )
    if args.vary is not None and args.view is not None:
        raise UsageError("--vary has one picture", hint="leave --view out; --plot FILE draws it")
    check_plot(args.plot)
    from advisor.models.registry import names
    from advisor_lab.evaluation.compare_models import compare

    grids = _grids(args.grid, args.axis)
    variants = _variants(args)
    models = {m: m for m in names()} if args.compare else dict.fromkeys(variants, args.model)
    seeds = range(args.seed, args.seed + (args.seeds or 1))
    evaluations = len(grids) * len(models) * len(seeds)
    if evaluations != 1 and (args.view or (args.plot and args.vary is None)):
        raise UsageError(
            f"a picture is of one evaluation, there are {evaluations}",
            hint="one grid, one model, one seed",
        )
    study = compare(grids, models, seeds, _judge(args, variants))
    picture, statistics = _picture(args, grids, study) if args.plot or args.view else (None, None)
    if picture is not None:
        save_plot(picture, args.plot)
    folds = _folds(args, grids, [m for m in models if m not in study.skipped])
    if args.json:
        print_json("evaluate", _answer(args, study, folds, statistics))
        return 0
    from advisor_lab.cli.evaluate_tables import print_study

    cells = {name: len({o.configuration for o in runs}) for name, runs in grids.items()}
    out = TableWriter(args.format)
    print_study(out, study, folds, cells)
    if statistics is not None:
        print_statistics(statistics, out)
    elif picture is not None and args.format == "text":
        print()
        print_picture(picture)
    return 0


def _extrapolate(args: argparse.Namespace) -> int:
    """Judge scaling models on one grid and print."""
    if args.train_to is None:
        raise UsageError("--parameter needs the largest value to train on", hint="--train-to V")
    if args.grid.is_dir():
        raise UsageError(f"{args.grid} is a folder", hint="--parameter judges one grid")
    from advisor_lab.evaluation.extrapolation import extrapolate

    (runs,) = _grids(args.grid, args.axis, look=False).values()
    options = {} if args.samples is None else {"samples": args.samples}
    try:
        study = extrapolate(
            runs,
            args.parameter,
            args.train_to,
            model=args.model,
            min_time=args.min_time,
            max_slowdown=args.max_slowdown,
            min_saving=args.min_saving,
            **options,
        )
    except InputError as error:
        raise InputError(f"{args.grid}: {error.message}", hint=error.hint) from None
    if args.json:
        print_json("evaluate", ExtrapolationAnswer(str(args.grid), study))
        return 0
    from advisor_lab.cli.evaluate_tables import print_extrapolation

    print_extrapolation(TableWriter(args.format), study)
    return 0


def _grids(
    path: Path, axes: Sequence[str], *, look: bool = True
) -> dict[str, tuple[Observation, ...]]:
    """Return each grid's runs by the file's name without its ending; say what is taken for what.

    ``axes`` are further columns that are axes; ``look`` for others that act like one.
    """
    from advisor.core.acting_columns import acting_columns, acting_in_words
    from advisor.store.csvfile import Terms, one_program, read_csv
    from advisor_lab.evaluation.further_axes import with_axis

    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: there are no *.csv files in it", hint="a measured grid each")
    terms = Terms(_NODE_TYPE, "grid")
    grids = {}
    for file in files:
        read = one_program(file, read_csv(file, terms))
        runs: tuple[Observation, ...] = read.observations
        for column in axes:
            if column not in read.extra_columns:
                raise InputError(
                    f"{file}: there is no further column {column!r}",
                    hint=suggestion(column, read.extra_columns),
                )
            try:
                runs, note = with_axis(runs, column)
            except InputError as error:
                raise InputError(f"{file}: {error.message}", hint=error.hint) from None
            _say(f"{file.name}: {note}")
        others = [n for n in read.extra_columns if look and n not in axes]
        for column, factor in acting_columns(runs, others).items():
            words = acting_in_words(column, factor)
            _say(f"{file.name}: {words}; --axis {shlex.quote(column)} makes it one")
        grids[file.stem] = runs
    return grids


@dataclass(frozen=True, slots=True)
class _Variant:
    """What one evaluation has of its own: the model's options, and how many runs it trains on."""

    options: Mapping[str, str]
    samples: int


def _variants(args: argparse.Namespace) -> dict[str, _Variant]:
    """Return what is judged, by its name: the model, or of ``--vary`` each value. UsageError."""
    options = model_options(args.model_option)
    samples = 12 if args.samples is None else args.samples
    if args.vary is None:
        return {args.model: _Variant(options, samples)}
    for flag, given in (("--compare", args.compare), ("--kfold", args.kfold is not None)):
        if given:
            raise UsageError(f"--vary and {flag} are two comparisons", hint="leave one out")
    name, _, values = args.vary.partition("=")
    texts = list(dict.fromkeys(text.strip() for text in values.split(",")))
    if not name or not all(texts):
        raise UsageError(f"--vary {args.vary!r}: write NAME=VALUE,VALUE,...")
    if name in options or (name == "samples" and args.samples is not None):
        raise UsageError(f"--vary {name}: its value is given, too", hint="leave one out")
    if name != "samples":
        return {f"{name}={v}": _Variant({**options, name: v}, samples) for v in texts}
    try:
        return {f"{name}={v}": _Variant(options, _count(v)) for v in texts}
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--vary {args.vary}: {error}") from None


def _say(note: str) -> None:
    """Print what an answer rests on beside it."""
    print(f"advisor: {clean(note)}", file=sys.stderr)


def _judge(args: argparse.Namespace, variants: Mapping[str, _Variant]) -> Any:
    from advisor.models.evaluation import EvaluationTerms, evaluate

    def judge(runs: Sequence[Observation], model: str, seed: int) -> Any:
        # Models that are compared have no options of their own.
        variant = variants.get(model) or next(iter(variants.values()))
        return evaluate(
            runs,
            EvaluationTerms(
                model=model if args.compare else args.model,
                design=args.design,
                samples=variant.samples,
                error=args.error,
                forecast_error=args.forecast_error,
                max_slowdown=args.max_slowdown,
                min_saving=args.min_saving,
                seed=seed,
                model_options=variant.options,
            ),
        )

    return judge


def _picture(
    args: argparse.Namespace, grids: Mapping[str, Sequence[Observation]], study: ModelComparison
) -> tuple[Any, StatisticsView | None]:
    """Return the picture of the one evaluation there is, and the view if it is of statistics.

    Of several values of an option the picture of their errors.
    """
    if args.vary is not None:
        from advisor_lab.evaluation.picture import errors_picture

        title = f"{args.grid.stem}, {args.model}: {args.vary.partition('=')[0]}"
        return errors_picture(title, study.means()), None
    (case,) = study.cases
    runs, judged, options = grids[case.grid], case.evaluation, model_options(args.model_option)
    if args.view in STATISTICS:
        from advisor_lab.evaluation.statistics_views import statistics_view

        trained = [o for o in runs if o.configuration in judged.trained]
        neural = options if case.model == "neural" else {}
        view = statistics_view(
            args.view, case.grid, case.model, runs, judged.predicted, trained, neural
        )
        return view.picture, view
    from advisor_lab.evaluation.picture import picture_of

    error = args.error if args.forecast_error is None else args.forecast_error
    title = f"{case.grid}, {case.model}, {len(judged.trained)} runs"
    kind = args.view or "pareto"
    drawn = picture_of(kind, title, runs, judged, error, args.max_slowdown, options, args.over)
    return drawn, None


def _folds(
    args: argparse.Namespace, grids: Mapping[str, Sequence[Observation]], models: Sequence[str]
) -> dict[tuple[str, str], dict[str, list[Fold]]]:
    """Return the folds of each (grid, model)."""
    if args.kfold is None:
        return {}
    from advisor_lab.evaluation.compare_models import kfold

    options = model_options(args.model_option)
    return {
        (grid, model): kfold(
            runs, model=model, folds=args.kfold, seed=args.seed, model_options=options
        )
        for grid, runs in grids.items()
        for model in models
    }


def _answer(
    args: argparse.Namespace,
    study: ModelComparison,
    folds: Mapping[tuple[str, str], Mapping[str, Sequence[Fold]]],
    view: StatisticsView | None,
) -> EvaluateAnswer | ComparisonAnswer:
    """One evaluation's keys stand at the top; of several, in ``cases`` with their ``means``."""
    file = str(args.grid)
    kfold = tuple([GridFolds(*names, responses) for names, responses in folds.items()])
    if len(study.cases) == 1 and not study.skipped:
        shown = None if view is None else {args.view: view.data}
        return EvaluateAnswer(file, study.cases[0].evaluation, kfold, shown)
    return ComparisonAnswer(file, study.cases, study.means(), study.skipped, kfold)
