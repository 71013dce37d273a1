"""``advisor lab profile fit``: models of the metrics of an application's classes, or of a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm
from advisor.core.nearest import suggestion
from advisor.errors import UsageError
from advisor_lab.cli.profile import combinations, values_of
from advisor_lab.cli.profile_steps import keep_step, open_study, say_notes

if TYPE_CHECKING:
    from advisor_lab.profile.models import ClassModelForm, ClassModels
    from advisor_lab.profile.scalar import SearchMethod
    from advisor_lab.profile.table import TableModelForm, TablePrediction


@dataclass(frozen=True, slots=True)
class ProfileFitAnswer(JsonForm):
    """Models of metrics, with the keys of the manual's appendix B.4, and predictions."""

    application: str
    method: SearchMethod
    models: Sequence[ClassModelForm]
    predictions: Sequence[TablePrediction]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class TableFitAnswer(JsonForm):
    """Models of a table's metrics."""

    table: str
    method: SearchMethod
    models: Sequence[TableModelForm]
    predictions: Sequence[TablePrediction]


ANSWERS = (ProfileFitAnswer, TableFitAnswer)


def run(args: argparse.Namespace) -> int:
    """Fit, and print the models."""
    if (args.table is None) == (args.application is None):
        raise UsageError("name an application, or give --table CSV")
    return _application(args) if args.table is None else _table(args)


def _table(args: argparse.Namespace) -> int:
    from advisor_lab.profile.setup import built_in_setup, read_setup
    from advisor_lab.profile.table import fit_table, predictions, read_metric_table

    setup = built_in_setup()
    if args.setup is not None:
        setup = read_setup(args.setup)
    table = read_metric_table(args.table, setup.parameters)
    if args.setup is not None:
        setup = read_setup(args.setup, tuple(table.values))
    places = combinations(values_of(args.at, "--at"))
    for name in places[0] if places else ():
        if name not in table.values:
            raise UsageError(f"--at: no column {name!r}", hint=suggestion(name, table.values))
    for name in table.values if places else ():
        if name not in places[0]:
            raise UsageError(f"--at needs a value of {name}, too")
    models = fit_table(table, setup, args.method)
    predicted = predictions(models, places)
    if args.json:
        say_notes([note for m in models for note in m.model.notes])
        answer = TableFitAnswer(str(args.table), args.method, [m.form for m in models], predicted)
        print_json("profile-fit", answer)
        return 0
    print_table(
        ("metric", "terms", "weights", "R2", "MRE"),
        [
            (
                m.name,
                ", ".join(t.text for t in m.model.terms) or "constant",
                m.model.weighting or "-",
                f"{m.r2:.4f}",
                f"{m.mre:.2%}",
            )
            for m in models
        ],
    )
    for prediction in predicted:
        place_text = ", ".join(f"{n}={v:g}" for n, v in prediction.at.items())
        reach = prediction.interval
        interval_text = f" (90 %: {reach[0]:.6g} to {reach[1]:.6g})" if reach else ""
        print(f"{prediction.metric} at {place_text}: {prediction.value:.6g}{interval_text}")
    say_notes([note for m in models for note in m.model.notes])
    return 0


def _application(args: argparse.Namespace) -> int:
    from advisor_lab.profile.models import class_forms
    from advisor_lab.profile.study import fit_all

    if args.at:
        raise UsageError(
            "--at goes with --table", hint="advisor lab profile extrapolate writes profiles"
        )
    study = open_study(args)
    text, file = getattr(args, "setup_text", None), str(args.setup or "")
    if args.setup is not None and text is None:
        from advisor_lab.profile.setup import read_setup

        read_setup(args.setup, study.runs.parameters)
        text = args.setup.read_text(encoding="utf-8-sig")
    result, models, notes = fit_all(study, text, file, args.method)
    keep_step(args, result, setup_text=text)
    forms = class_forms(models)
    notes += [n for form in forms for n in form.model.notes]
    if args.json:
        answer = ProfileFitAnswer(args.application, args.method, forms, (), notes)
        print_json("profile-fit", answer)
        return 0
    print_models(models)
    say_notes(notes)
    return 0


def print_models(models: ClassModels) -> None:
    """Print one line per class and metric."""
    print_table(
        ("class", "metric", "terms", "R2", "MRE train", "MRE test", "look at"),
        [
            (
                name,
                m.name,
                ", ".join(t.text for t in m.first.terms) or "constant",
                _number(m.accuracy.r2),
                _number(m.accuracy.train_error),
                _number(m.accuracy.test_error),
                ", ".join(m.flags),
            )
            for name, class_models in models.items()
            for m in class_models.values()
        ],
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
