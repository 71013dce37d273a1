"""``advisor fit``: fit and store a model per node type and per group of jobs it may advise."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from advisor import laboratory, paths
from advisor.cli.arguments import add_application, number_list
from advisor.cli.output import TableWriter, add_format_argument, print_json
from advisor.cli.pictures import (
    STATISTICS,
    add_plot_argument,
    check_plot,
    percent,
    print_statistics,
    save_plot,
)
from advisor.core.codec import Count, JsonForm, wire
from advisor.core.observation import Quality, Scope
from advisor.core.parameters import format_number
from advisor.core.units import format_count
from advisor.errors import InputError, RefusedError, UsageError

if TYPE_CHECKING:
    from advisor.models.base import ModelOption
    from advisor.models.runs import ScopedRuns
    from advisor.models.space import NamedAxes
    from advisor.store.records import StoredModel, StoredObservation
    from advisor.store.writer import Writer
    from advisor.views.statistics import StatisticsView


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor fit`` takes."""
    parser.description = (
        "Fit models to an application's measured runs, predict every option and store them for the "
        "daemon: one model for each workload, node type and group of jobs that it may advise."
    )
    add_application(parser, "the measured application", optional=True)
    parser.add_argument(
        "--all",
        action="store_true",
        help="fit every model in use again by default settings, the longest unchanged first, "
        "where site.yaml's `workers` says",
    )
    parser.add_argument(
        "--workers",
        metavar="ENGINE",
        help="with --all: work here (local) or elsewhere (dask), whatever site.yaml says",
    )
    parser.add_argument("--node-type", metavar="NODE_TYPE", help="only this node type")
    parser.add_argument(
        "--threads",
        metavar="N,N",
        help="threads per node to predict, like 8,16,28, for runs that no sweep made; they are "
        "kept with the runs (default: what a sweep would try, by the inventory's cores)",
    )
    parser.add_argument(
        "--frequencies",
        metavar="FREQ,FREQ",
        help="frequency caps to predict, like 1.9GHz,2.2GHz, in the same way "
        "(default: the inventory's steps)",
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--error",
        type=percent,
        default=0.05,
        metavar="PCT",
        help="the trade-off zone's error, in %% (default: 5)",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="name every run that is left out or counts less, "
        "and print what each term of a regression is worth",
    )
    parser.add_argument(
        "--measurement-error",
        type=percent,
        default=0.02,
        metavar="PCT",
        help="error of one run where none was repeated, in %%: half a 95 %% interval (default: 2)",
    )
    add_format_argument(parser)
    add_plot_argument(parser, STATISTICS)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--model``, ``--model-option`` and ``--list-models``."""
    parser.add_argument("--model", default="auto", metavar="NAME", help="the model (default: auto)")
    parser.add_argument(
        "--model-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the model, see --list-models; can be repeated",
    )
    parser.add_argument(
        "--list-models",
        action="store_true",
        help="list the models and their options, do nothing else",
    )


def model_options(option_texts: Iterable[str]) -> dict[str, str]:
    """Return ``NAME=VALUE`` pairs; the model checks names and values."""
    options: dict[str, str] = {}
    for text in option_texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--model-option {text!r}: write NAME=VALUE")
        options[name] = value
    return options


@dataclass(frozen=True, slots=True)
class ListedOption(JsonForm):
    """One setting of a model: what may be chosen, or the range of a number."""

    name: str
    default: float | str
    help: str
    choices: Sequence[str] | None = field(default=None, metadata=wire(omit=True))
    minimum: float | None = field(default=None, metadata=wire(omit=True))
    maximum: float | None = field(default=None, metadata=wire(omit=True))

    @classmethod
    def of(cls, option: ModelOption) -> ListedOption:
        """Return an option as it is printed."""
        common = option.name, option.default, option.help
        if option.type is str:
            return cls(*common, choices=option.choices)
        return cls(*common, minimum=option.minimum, maximum=option.maximum)


@dataclass(frozen=True, slots=True)
class ListedModel(JsonForm):
    """A model and its options."""

    name: str
    description: str
    options: Sequence[ListedOption]


@dataclass(frozen=True, slots=True)
class ModelsAnswer(JsonForm):
    """The models there are, and their options."""

    models: Sequence[ListedModel]


def list_models(args: argparse.Namespace) -> int:
    """Print the models and their settings."""
    from advisor.models.registry import find, names

    models = [(name, find(name)) for name in names()]
    if args.json:
        listed = [
            ListedModel(name, model.DESCRIPTION, [ListedOption.of(o) for o in model.OPTIONS])
            for name, model in models
        ]
        print_json("models", ModelsAnswer(listed))
        return 0
    for name, model in models:
        print(f"{name}: {model.DESCRIPTION}")
        for o in model.OPTIONS:
            allowed = f" ({o.range})" if o.range else ""
            print(f"    {o.name}={o.default}  {o.help}{allowed}")
    return 0


@dataclass(frozen=True, slots=True)
class FittedAnswer(JsonForm):
    """A model of one group of jobs, or why there is none."""

    workload: str
    node_type: str
    scope: Scope
    owner: str
    runs: int
    id: int | None
    model: str | None = field(default=None, metadata=wire(omit=True))
    version: int | None = field(default=None, metadata=wire(omit=True))
    energy_quality: Quality | None = field(default=None, metadata=wire(omit=True))
    n_train: int | None = field(default=None, metadata=wire(omit=True))
    stats: Mapping[str, object] | None = field(default=None, metadata=wire(omit=True))
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FamilyAnswer(JsonForm):
    """The law over sizes of a family; what was not fitted is null."""

    node_type: str
    scope: Scope
    owner: str
    family: str
    answer: Literal["ok", "family-unfit", "few-sizes"]
    measured: Annotated[Mapping[str, object] | None, "the values that ran, by parameter"]
    model: str | None
    terms: Sequence[str] | None
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class FitAnswer(JsonForm):
    """The fitted models, or why there is none."""

    application: str
    models: Sequence[FittedAnswer]
    families: Annotated[
        Sequence[FamilyAnswer],
        "the laws over sizes of workloads that differ in their numbers only",
    ]
    statistics: Annotated[Mapping[str, object] | None, "what --view shows, by the view"] = field(
        default=None, metadata=wire(omit=True)
    )


@dataclass(frozen=True, slots=True)
class RefitAnswer(JsonForm):
    """What fitting all models again came to."""

    engine: str
    fitted: Count
    left: Annotated[Sequence[str], "models that stay as they are, and why"]


_OF_FAMILY = "its runs serve the law over sizes"


@dataclass(frozen=True, slots=True)
class _Fitted:
    workload: str
    node_type: str
    group: ScopedRuns
    model: StoredModel | None
    problem: str = ""


def run(args: argparse.Namespace) -> int:
    """Fit and store; InputError when there are too few runs, RefusedError when there are none."""
    if args.list_models:
        return list_models(args)
    if args.all:
        return _fit_all(args)
    if args.workers:
        raise UsageError("--workers goes with --all")
    from advisor.core.units import parse_freq_khz
    from advisor.derive.worker import derive
    from advisor.models.base import parse_options
    from advisor.models.registry import find
    from advisor.models.space import NamedAxes
    from advisor.store.connection import is_wal
    from advisor.store.writer import Writer
    from advisor.views.misspelt import check_measured

    check_plot(args.plot)
    if args.plot or args.view:
        _statistics(args)  # before anything is stored
    options = model_options(args.model_option)
    requested_axes = NamedAxes(
        number_list("--threads", args.threads, int),
        number_list("--frequencies", args.frequencies, parse_freq_khz),
    )
    parse_options(args.model, find(args.model).OPTIONS, options)
    path = paths.whole_store(
        args.db,
        hint="the site fits your runs when it stores them: advisor options shows the models",
    )
    is_wal(path)  # where there is no store none is made
    if not args.application:
        raise UsageError("no application is named", hint="advisor fit A")
    with Writer(path) as store:
        runs = store.observations(args.application, args.workload, args.node_type)
        if not runs:
            check_measured(store, args.application, args.workload, args.node_type)
            raise RefusedError(_no_runs_text(args), hint="advisor import or advisor train")
        by_place: dict[tuple[str, str], list[Any]] = {}
        for r in runs:
            place = (r.workload, r.observation.configuration.node_type)
            by_place.setdefault(place, []).append(r.observation)
        if requested_axes:
            runs = _with_axes(store, runs, requested_axes)
            by_place = {place: [] for place in by_place}
            for r in runs:
                place = (r.workload, r.observation.configuration.node_type)
                by_place[place].append(r.observation)
        fitted = [
            model
            for place, observations in by_place.items()
            for model in _fit_place(args, store, *place, observations, options)
        ]
        derive(store, first=args.application)
        families = [
            m for m in store.size_models(args.application) if args.node_type in (None, m.node_type)
        ]
    if not any(f.model for f in fitted):
        most = max(fitted, key=lambda f: len(f.group.observations))
        if _serves(most, families):
            shortage = most.problem.partition(" (")[0]
            raise InputError(f"{args.application}: {shortage}", hint=_OF_FAMILY)
        raise InputError(f"{args.application}: {most.problem}")
    view = _view(args, fitted, options) if args.plot or args.view else None
    if view is not None:
        save_plot(view.picture, args.plot)
    if args.json:
        shown = None if view is None else {args.view or STATISTICS[0]: view.data}
        models, laws = map(_answer_of, fitted), map(_family_answer, families)
        print_json("fit", FitAnswer(args.application, list(models), list(laws), shown))
        return 0
    out = TableWriter(args.format)
    _print(out, fitted, families, verbose=args.verbose)
    if view is not None:
        print_statistics(view, out)
    return 0


def _fit_all(args: argparse.Namespace) -> int:
    """Fit every model in use again. Exit code 1 where one stays as it is."""
    from advisor.core.workers_setup import WorkersSetup
    from advisor.derive.worker import derive
    from advisor.loop.refit import refit_all
    from advisor.store.connection import is_wal
    from advisor.store.writer import Writer
    from advisor.workers.base import engine

    if args.application or args.node_type or args.threads or args.frequencies or args.model_option:
        raise UsageError("--all fits every model by default settings", hint="advisor fit --all")
    path = paths.whole_store(args.db)
    is_wal(path)  # where there is no store none is made

    def step(done: int, count: int) -> None:
        if sys.stderr.isatty():
            print(f"\rfitted {done} of {count}", end="" if done < count else "\n", file=sys.stderr)

    with Writer(path) as store:
        setup = WorkersSetup.of(store.site())
        setup = replace(setup, engine=args.workers or setup.engine)
        refitted = refit_all(store, engine(setup), step=step)
        derive(store)
    if args.json:
        print_json("refit", RefitAnswer(setup.engine, refitted.fitted, refitted.left))
    else:
        print(f"fitted {format_count(refitted.fitted, 'model')} ({setup.engine})")
        for line in refitted.left:
            print(f"left as it is: {line}")
    return 1 if refitted.left else 0


def _with_axes(
    store: Writer, runs: list[StoredObservation], requested_axes: NamedAxes
) -> list[StoredObservation]:
    """Keep the axes that were asked for with the runs that no sweep made; return all runs.

    Raises InputError where there are none such, and for values that cannot be predicted.
    """
    from advisor.models.job_runs import is_job
    from advisor.models.space import search_space

    inventory = store.inventory().node_types
    by_place: dict[tuple[str, str], list[StoredObservation]] = {}
    for r in runs:
        place = (r.workload, r.observation.configuration.node_type)
        if r.observation.source not in ("sweep", "confirm") and not is_job(r.observation):
            by_place.setdefault(place, []).append(r)
    if not by_place:
        raise InputError(
            "--threads and --frequencies are for runs that no sweep made",
            hint="train again with other --threads or --freqs",
        )
    changed: dict[int, StoredObservation] = {}
    with store.transaction():
        for (_, node_type), stored in by_place.items():
            cells = {r.observation.configuration for r in stored}
            space = search_space(cells, inventory.get(node_type), requested_axes)
            store.save_space([r.id for r in stored], space)
            changed |= {
                r.id: replace(r, observation=replace(r.observation, space=space)) for r in stored
            }
    return [changed.get(r.id, r) for r in runs]


def _view(
    args: argparse.Namespace, fitted: list[_Fitted], options: dict[str, str]
) -> StatisticsView:
    """Return the statistics of the one model there is; UsageError for several."""
    models = [f for f in fitted if f.model is not None]
    if len(models) != 1:
        raise UsageError(
            f"a picture is of one model, {len(models)} were fitted",
            hint="--workload and --node-type choose one",
        )
    (only_fit,) = models
    assert only_fit.model is not None
    runs = only_fit.group.observations
    subject = f"{args.application}, {only_fit.workload} on {only_fit.node_type}"
    neural = options if args.model == "neural" else {}
    view = args.view or STATISTICS[0]
    drawn: StatisticsView = _statistics(args)(
        view, subject, only_fit.model.name, runs, only_fit.model.options(), runs, neural
    )
    return drawn


def _statistics(args: argparse.Namespace) -> Callable[..., StatisticsView]:
    """Return what draws the statistics that are asked for. Raises LaboratoryError."""
    words = f"fit {'--view' if args.view else '--plot'}"
    draw: Callable[..., StatisticsView] = laboratory.load("panels", "statistics", words)
    return draw


def _no_runs_text(args: argparse.Namespace) -> str:
    text = f"{args.application} has no runs"
    if args.workload:
        text += f" of workload {args.workload}"
    return f"{text} on {args.node_type}" if args.node_type else text


def _fit_place(
    args: argparse.Namespace,
    store: Writer,
    workload: str,
    node_type: str,
    observations: list[Any],
    options: dict[str, str],
) -> list[_Fitted]:
    """Fit every group of one workload and node type; too few runs are a problem, no error."""
    from advisor.models.fit import fit_options
    from advisor.models.runs import runs_by_scope
    from advisor.models.scatter import repeats_elsewhere

    fitted = []
    inventory_type = store.inventory().node_types.get(node_type)
    for group in runs_by_scope(observations):
        if sys.stderr.isatty():
            runs = len(group.observations)
            print(
                f"fitting {workload} on {node_type}: {format_count(runs, 'run')} ...",
                file=sys.stderr,
            )
        try:
            fit = fit_options(
                group.observations,
                node_type=inventory_type,
                model=args.model,
                error=args.error,
                measurement_error=args.measurement_error,
                model_options=options,
                elsewhere=repeats_elsewhere(
                    store, args.application, workload, node_type, group.scope, group.owner
                ),
            )
        except InputError as error:
            fitted.append(_Fitted(workload, node_type, group, None, str(error)))
            continue
        model = store.save_model(
            args.application,
            workload,
            node_type,
            scope=group.scope,
            owner=group.owner,
            name=fit.model,
            energy_quality=fit.energy_quality,
            n_train=fit.n_train,
            stats=fit.stats,
            options=fit.options,
        )
        fitted.append(_Fitted(workload, node_type, group, model))
    current = {(f.group.scope, f.group.owner) for f in fitted}
    for old in store.find_models(args.application, workload, node_type):
        if old.fitted and (old.scope, old.owner) not in current:
            store.set_model_state(
                old.id, "replaced", "its runs now count for other models, or are gone"
            )
    return fitted


def _answer_of(fitted: _Fitted) -> FittedAnswer:
    place = (
        fitted.workload,
        fitted.node_type,
        fitted.group.scope,
        fitted.group.owner,
        len(fitted.group.observations),
    )
    m = fitted.model
    if m is None:
        return FittedAnswer(*place, None, problem=fitted.problem)
    return FittedAnswer(
        *place,
        m.id,
        model=m.name,
        version=m.version,
        energy_quality=m.energy_quality,
        n_train=m.n_train,
        stats=m.stats,
    )


def _family_answer(model: StoredModel) -> FamilyAnswer:
    about = model.about_sizes
    return FamilyAnswer(
        model.node_type,
        model.scope,
        model.owner,
        about.get("family", ""),
        about.get("answer", ""),
        about.get("measured"),
        about.get("model"),
        about.get("terms"),
        about.get("notes") or [],
    )


def _print(
    out: TableWriter, fitted: list[_Fitted], families: Sequence[StoredModel], *, verbose: bool
) -> None:
    from advisor.models.base import of_one_run

    rows, notes, hidden = [], [], 0
    for f in fitted:
        whose = f.group.scope if f.group.scope == "all" else f"{f.group.scope} {f.group.owner}"
        name = f"{f.workload} on {f.node_type}, {whose}"
        if f.model is None:
            why = _OF_FAMILY if _serves(f, families) else f"no model: {f.problem}"
            notes.append(f"{name}: {why}")
            continue
        stats = f.model.stats
        rows.append(
            [
                f.workload,
                f.node_type,
                whose,
                stats["runs"],
                *_errors(stats),
                stats["options"],
                stats["measured"],
                stats["confirmed"],
                stats["zone"],
                f.model.energy_quality,
            ]
        )
        single = [note for note in stats["notes"] if of_one_run(note)]
        if single and not verbose:
            notes.append(
                f"{name}: left out or counted less: {format_count(len(single), 'single value')}"
            )
        shown = [n for n in stats["notes"] if verbose or n not in single]
        notes += [f"{name}: {note}" for note in shown]
        hidden += 0 if verbose else len(single)
    if rows:
        out.table(
            [
                "workload",
                "node type",
                "for",
                "runs",
                "R2 time",
                "R2 energy",
                "LOO time",
                "LOO energy",
                "options",
                "measured",
                "confirmed",
                "in zone",
                "energy",
            ],
            rows,
        )
    for note in [*notes, *map(_family_text, families)]:
        out.say(note)
    if verbose:
        for f in fitted:
            _print_terms(out, f)
    if hidden:
        out.say("advisor fit --verbose names them")


def _serves(fitted: _Fitted, families: Sequence[StoredModel]) -> bool:
    """Tell whether a workload's runs have a law over the sizes of its family."""
    from advisor.store.families import line_of

    line = line_of(fitted.workload)
    family_places = {(m.about_sizes.get("family"), m.node_type) for m in families}
    return line is not None and (line.family, fitted.node_type) in family_places


def _family_text(model: StoredModel) -> str:
    """Say over which sizes a family has a law, and how well it holds."""
    about = model.about_sizes
    measured = about.get("measured") or {}
    measured_ranges = ", ".join(
        f"{n} {format_number(v[0])} to {format_number(v[-1])}" for n, v in measured.items()
    )
    whose = model.scope if model.scope == "all" else f"{model.scope} {model.owner}"
    answer = "a law" if about.get("answer") == "ok" else str(about.get("answer"))
    why = "; ".join(about.get("notes") or [])
    return (
        f"{about.get('family')} on {model.node_type}, {whose}: {answer} over {measured_ranges}; "
        f"{why}"
    )


def _print_terms(out: TableWriter, fitted: _Fitted) -> None:
    """Print what a regression infers of its terms, where the model is one."""
    stats = fitted.model.stats if fitted.model else {}
    for name in ("time", "energy"):
        inference = (stats.get(name) or {}).get("inference")
        if not inference:
            continue
        adjusted = inference["r2_adjusted"]
        about = "" if adjusted is None else f", adjusted R2 {adjusted:.3f}"
        out.say(f"\n{fitted.workload} on {fitted.node_type}, terms of {name}{about}")
        keys = ("standard_error", "p_value", "vif")
        out.table(
            ["term", "coefficient", "standard error", "p value", "variance inflation"],
            [
                [
                    t["term"],
                    f"{t['coefficient']:.4g}",
                    *("-" if t[k] is None else f"{t[k]:.3g}" for k in keys),
                ]
                for t in inference["terms"]
            ],
        )


def _errors(stats: dict[str, Any]) -> list[str]:
    """R2 and leave-one-out error of time and energy, as shown."""
    cells = []
    for key, form in (("r2", "{:.3f}"), ("loo_rmse_pct", "{:.1f} %")):
        for name in ("time", "energy"):
            value = stats[name] and stats[name][key]
            cells.append("-" if value is None else form.format(value))
    return cells
