"""``advisor lab profile adjust``: change models, leave out runs, and fit again (chapter 8)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advisor.cli.output import print_json
from advisor.core.codec import JsonForm
from advisor.core.nearest import suggestion
from advisor.errors import InputError, RefusedError, UsageError
from advisor_lab.cli.profile import values_of
from advisor_lab.cli.profile_fit import print_models
from advisor_lab.cli.profile_show import chosen
from advisor_lab.cli.profile_steps import keep_step, open_study, say_notes

if TYPE_CHECKING:
    from advisor_lab.profile.models import ClassModelForm
    from advisor_lab.profile.study import ModelSpec, ProfileStudy

_OPTIONS = ("terms", "type", "model", "mode", "constraints", "boundaries")
_Specs = dict[str, dict[str, "ModelSpec"]]


@dataclass(frozen=True, slots=True)
class ProfileAdjustAnswer(JsonForm):
    """The models that were fitted again."""

    application: str
    excluded: Sequence[Mapping[str, float]]
    notes: Sequence[str]
    models: Sequence[ClassModelForm]


def run(args: argparse.Namespace) -> int:
    """Work out what changes, fit it again, keep it and print it."""
    from advisor_lab.profile.models import class_forms
    from advisor_lab.profile.study import refit

    study = open_study(args)
    if not study.specs:
        raise RefusedError(
            f"{args.application} has no models", hint=f"advisor lab profile fit {args.application}"
        )
    _exclude(study, args.exclude)
    changed = _changes(study, args)
    specs = refit(study, changed)
    for name, class_models in specs.items():
        study.specs.setdefault(name, {}).update(class_models)
    result = {"excluded": study.excluded, "specs": specs}
    keep_step(args, result)
    models, _ = study.models()
    shown = {
        name: {m: v for m, v in class_models.items() if m in specs.get(name, {})}
        for name, class_models in chosen(models, None, None).items()
    }
    forms = class_forms(shown)
    notes = [n for form in forms for n in form.model.notes]
    if args.json:
        answer = ProfileAdjustAnswer(args.application, study.excluded, notes, forms)
        print_json("profile-adjust", answer)
        return 0
    print_models(shown)
    say_notes(notes)
    return 0


def _exclude(study: ProfileStudy, texts: list[str]) -> None:
    """Leave out the runs named. Raises UsageError for one that is none."""
    from advisor_lab.profile.runs import scale_text

    for text in texts:
        scale = {n: v[0] for n, v in values_of([text], "--exclude").items()}
        if not any(dict(run.scale) == scale for run in study.trained):
            scales = "; ".join(scale_text(run.scale) for run in study.trained[:4])
            raise UsageError(f"--exclude: no run is at {scale_text(scale)}", hint=f"like {scales}")
        study.excluded.append(scale)
    if texts and len(study.trained) < 2:
        raise UsageError("--exclude leaves fewer than two runs")


def _changes(study: ProfileStudy, args: argparse.Namespace) -> _Specs:
    """Return the specs to fit again. Raises UsageError where nothing is asked or known."""
    options = {n: getattr(args, n) for n in _OPTIONS if getattr(args, n) is not None}
    single_metric = bool(options) or args.drop_last is not None or args.retrain == "metric"
    if single_metric and args.metric is None:
        raise UsageError("name the metric that changes: --metric METRIC")
    if not (single_metric or args.retrain or args.exclude):
        raise UsageError(
            "nothing to change", hint="--retrain, --drop-last, --terms, --model, --exclude and more"
        )
    for choice, names, what in (
        (args.cluster, set(study.specs), "class"),
        (args.metric, {m for class_specs in study.specs.values() for m in class_specs}, "metric"),
    ):
        if choice is not None and choice not in names:
            raise UsageError(f"there is no {what} {choice!r}", hint=suggestion(choice, names))
    changed: _Specs = {}
    everything = bool(args.exclude) or args.retrain == "all"
    for name, class_specs in study.specs.items():
        if args.cluster not in (None, name) and not args.exclude:
            continue
        for metric, spec in class_specs.items():
            new = spec
            if metric == args.metric and single_metric and args.cluster in (None, name):
                new = _changed(study, metric, spec, options, args.drop_last)
            counts = str(spec["type"]).endswith("nstrPercentage")
            follows = counts and (args.retrain == "counts" or args.metric == "LSys")
            if (
                new is not spec
                or everything
                or follows
                or (metric == args.metric and single_metric)
            ):
                changed.setdefault(name, {})[metric] = new
    return changed


def _changed(
    study: ProfileStudy, metric: str, spec: ModelSpec, options: dict[str, Any], drop: int | None
) -> ModelSpec:
    """Return a spec with other options, or without its last terms."""
    from advisor_lab.profile.setup import options_from
    from advisor_lab.profile.study import kept_options

    definition = dict(options)
    if isinstance(definition.get("terms"), str) and definition["terms"].strip() not in (
        "auto",
        ".",
    ):
        definition["terms"] = "{" + definition["terms"].strip("{}") + "}"
    base = kept_options(metric, spec)
    if drop is not None:
        terms = list(spec["terms"] or [])
        if not 1 <= drop <= len(terms):
            raise UsageError(f"--drop-last {drop}: {metric} has {len(terms)} terms")
        definition["terms"] = terms[: len(terms) - drop]
    try:
        new = options_from(metric, definition, study.runs.parameters, base)
    except InputError as error:
        key, _, rest = error.message.partition(": ")
        option = f"--{key}: {rest}" if key in _OPTIONS else error.message
        raise UsageError(option, hint=error.hint) from None
    searched = new.terms is None or (bool(spec["searched"]) and "terms" not in definition)
    weighting = "" if "terms" in definition or "model" in definition else new.weighting
    return {**new.to_dict(), "weighting": weighting, "searched": searched}
