"""``advisor lab profile show``: how good the models of an application are, and which to look at."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.cli.output import print_json
from advisor.cli.pictures import check_plot, print_picture, save_plot
from advisor.core.codec import JsonForm
from advisor.core.nearest import suggestion
from advisor.errors import UsageError
from advisor_lab.cli.profile import values_of
from advisor_lab.cli.profile_fit import print_models
from advisor_lab.cli.profile_steps import open_study

if TYPE_CHECKING:
    from advisor.plotting.panels import Panels
    from advisor_lab.profile.models import ClassModelForm, ClassModels, ThreadCounts
    from advisor_lab.profile.scalar import SearchMethod
    from advisor_lab.profile.study import ProfileStudy


@dataclass(frozen=True, slots=True)
class ProfileShowAnswer(JsonForm):
    """The models as they are kept, and how good they are."""

    application: str
    method: SearchMethod
    parameters: Sequence[str]
    train: Sequence[Mapping[str, float]]
    test: Sequence[Mapping[str, float]]
    excluded: Sequence[Mapping[str, float]]
    models: Sequence[ClassModelForm]


def run(args: argparse.Namespace) -> int:
    """Print the models."""
    check_plot(args.plot)
    study = open_study(args)
    models, threads = study.models()
    shown = chosen(models, args.cluster, args.metric)
    drawn = _pictures(args, study, shown, threads)
    for picture in drawn[:1]:
        save_plot(picture, args.plot)
    if args.json:
        from advisor_lab.profile.models import class_forms

        answer = ProfileShowAnswer(
            args.application,
            study.method,
            study.runs.parameters,
            [r.scale for r in study.trained],
            [r.scale for r in study.runs.test],
            study.excluded,
            class_forms(shown),
        )
        print_json("profile-show", answer)
        return 0
    print(_summary(study))
    print_models(shown)
    for picture in drawn:
        print()
        print_picture(picture)
    return 0


def _pictures(
    args: argparse.Namespace, study: ProfileStudy, shown: ClassModels, threads: ThreadCounts
) -> list[Panels]:
    """Return the pictures of one metric of one class. Raises UsageError where it is not named."""
    from advisor_lab.profile.pictures import along, scatter

    single = [(name, m) for name, class_models in shown.items() for m in class_models.values()]
    if len(single) != 1:
        if args.along or args.plot:
            raise UsageError("pictures are of one metric of one class: --class and --metric")
        return []
    name, model = single[0]
    class_runs = next(c for c in study.class_runs() if c.name == name)
    panels = [scatter(model, class_runs, threads, logarithmic=args.log, counts=args.counts)]
    if args.along:
        parameters = study.runs.parameters
        names = args.along.split(",")
        fixed_parameters = {n: v[0] for n, v in values_of(args.at, "--at").items()}
        for parameter in [*names, *fixed_parameters]:
            if parameter not in parameters:
                hint = suggestion(parameter, parameters)
                raise UsageError(f"there is no parameter {parameter!r}", hint=hint)
        if len(names) > 2 or len(set(names)) < len(names):
            raise UsageError("--along takes one parameter, or two")
        panels.append(
            along(
                model,
                class_runs,
                threads,
                names,
                fixed_parameters,
                logarithmic=args.log,
                counts=args.counts,
            )
        )
    from advisor.plotting.panels import Panels

    return [Panels(f"{study.runs.application}, class {name}: {model.name}", tuple(panels))]


def _summary(study: ProfileStudy) -> str:
    runs = f"{len(study.trained)} runs to learn from, {len(study.runs.test)} to test with"
    left_out = f", {len(study.excluded)} left out" if study.excluded else ""
    return f"{runs}{left_out}; terms by --method {study.method}"


def chosen(models: ClassModels, cluster: str | None, metric: str | None) -> ClassModels:
    """Return the models of one class, of one metric, or both. Raises UsageError."""
    if cluster is not None and cluster not in models:
        raise UsageError(f"there is no class {cluster!r}", hint=suggestion(cluster, models))
    chosen_models: ClassModels = {}
    for name, class_models in models.items():
        if cluster in (None, name):
            chosen_models[name] = {m: v for m, v in class_models.items() if metric in (None, m)}
    if metric is not None and not any(chosen_models.values()):
        metrics = {m for class_models in models.values() for m in class_models}
        raise UsageError(f"there is no metric {metric!r}", hint=suggestion(metric, metrics))
    return chosen_models
