"""``advisor lab profile adjust``: change models, leave out runs, and fit again (chapter 8)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from advisor.cli.output import print_json
from advisor.core.nearest import suggestion
from advisor.errors import InputError, RefusedError, UsageError
from advisor_lab.cli.profile import values_of
from advisor_lab.cli.profile_fit import print_models
from advisor_lab.cli.profile_show import chosen
from advisor_lab.cli.profile_steps import keep_step, open_study, say_notes

if TYPE_CHECKING:
    from advisor_lab.profile.study import ModelSpec, ProfileStudy

_OPTIONS = ("terms", "type", "model", "mode", "constraints", "boundaries")
_Specs = dict[str, dict[str, "ModelSpec"]]


def run(args: argparse.Namespace) -> int:
    """Work out what changes, fit it again, keep it and print it."""
    from advisor_lab.profile.study import refit

    study = open_study(args)
    if not study.specs:
        raise RefusedError(
            f"{args.application} has no models", hint=f"advisor lab profile fit {args.application}"
        )
    _exclude(study, args.exclude)
    changed = _changes(study, args)
    specs = refit(study, changed)
    for name, own in specs.items():
        study.specs.setdefault(name, {}).update(own)
    result = {"excluded": study.excluded, "specs": specs}
    keep_step(args, result)
    models, _ = study.models()
    shown = {
        name: {m: v for m, v in own.items() if m in specs.get(name, {})}
        for name, own in chosen(models, None, None).items()
    }
    notes = [n for own in shown.values() for m in own.values() for n in m.to_dict()["notes"]]
    if args.json:
        print_json(
            "profile-adjust",
            {
                "application": args.application,
                "excluded": study.excluded,
                "notes": notes,
                "models": [
                    {"class": name, **m.to_dict()}
                    for name, own in shown.items()
                    for m in own.values()
                ],
            },
        )
        return 0
    print_models(shown)
    say_notes(notes)
    return 0


def _exclude(study: ProfileStudy, written: list[str]) -> None:
    """Leave out the runs named. Raises UsageError for one that is none."""
    from advisor_lab.profile.runs import scale_text

    for text in written:
        scale = {n: v[0] for n, v in values_of([text], "--exclude").items()}
        if not any(dict(run.scale) == scale for run in study.trained):
            known = "; ".join(scale_text(run.scale) for run in study.trained[:4])
            raise UsageError(f"--exclude: no run is at {scale_text(scale)}", hint=f"like {known}")
        study.excluded.append(scale)
    if written and len(study.trained) < 2:
        raise UsageError("--exclude leaves fewer than two runs")


def _changes(study: ProfileStudy, args: argparse.Namespace) -> _Specs:
    """Return the specs to fit again. Raises UsageError where nothing is asked or known."""
    options = {n: getattr(args, n) for n in _OPTIONS if getattr(args, n) is not None}
    one = bool(options) or args.drop_last is not None or args.retrain == "metric"
    if one and args.metric is None:
        raise UsageError("name the metric that changes: --metric METRIC")
    if not (one or args.retrain or args.exclude):
        raise UsageError(
            "nothing to change", hint="--retrain, --drop-last, --terms, --model, --exclude and more"
        )
    for given, known, what in (
        (args.cluster, set(study.specs), "class"),
        (args.metric, {m for own in study.specs.values() for m in own}, "metric"),
    ):
        if given is not None and given not in known:
            raise UsageError(f"there is no {what} {given!r}", hint=suggestion(given, known))
    changed: _Specs = {}
    everything = bool(args.exclude) or args.retrain == "all"
    for name, own in study.specs.items():
        if args.cluster not in (None, name) and not args.exclude:
            continue
        for metric, spec in own.items():
            new = spec
            if metric == args.metric and one and args.cluster in (None, name):
                new = _changed(study, metric, spec, options, args.drop_last)
            counts = str(spec["type"]).endswith("nstrPercentage")
            follows = counts and (args.retrain == "counts" or args.metric == "LSys")
            if new is not spec or everything or follows or (metric == args.metric and one):
                changed.setdefault(name, {})[metric] = new
    return changed


def _changed(
    study: ProfileStudy, metric: str, spec: ModelSpec, options: dict[str, Any], drop: int | None
) -> ModelSpec:
    """Return a spec with other options, or without its last terms."""
    from advisor_lab.profile.setup import options_from
    from advisor_lab.profile.study import kept_options

    written = dict(options)
    if isinstance(written.get("terms"), str) and written["terms"].strip() not in ("auto", "."):
        written["terms"] = "{" + written["terms"].strip("{}") + "}"
    base = kept_options(metric, spec)
    if drop is not None:
        terms = list(spec["terms"] or [])
        if not 1 <= drop <= len(terms):
            raise UsageError(f"--drop-last {drop}: {metric} has {len(terms)} terms")
        written["terms"] = terms[: len(terms) - drop]
    try:
        new = options_from(metric, written, study.runs.parameters, base)
    except InputError as error:
        key, _, rest = error.message.partition(": ")
        option = f"--{key}: {rest}" if key in _OPTIONS else error.message
        raise UsageError(option, hint=error.hint) from None
    searched = new.terms is None or (bool(spec["searched"]) and "terms" not in written)
    weighting = "" if "terms" in written or "model" in written else new.weighting
    return {**new.to_dict(), "weighting": weighting, "searched": searched}
