"""``advisor profile show``: how good the models of an application are, and which to look at."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from advisor.cli.output import print_json
from advisor.cli.profile_fit import print_models
from advisor.cli.profile_steps import open_study
from advisor.core.nearest import suggestion
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.lab.profile.models import ClassModels
    from advisor.lab.profile.study import ProfileStudy


def run(args: argparse.Namespace) -> int:
    """Print the models."""
    study = open_study(args)
    models, _ = study.models()
    shown = chosen(models, args.cluster, args.metric)
    if args.json:
        print_json(
            "profile-show",
            {
                "application": args.application, "method": study.method,
                "parameters": list(study.runs.parameters),
                "train": [dict(r.scale) for r in study.trained],
                "test": [dict(r.scale) for r in study.runs.test],
                "excluded": study.excluded,
                "models": [{"class": name, **m.to_dict()}
                           for name, own in shown.items() for m in own.values()],
            },
        )  # fmt: skip
        return 0
    print(_summary(study))
    print_models(shown)
    return 0


def _summary(study: ProfileStudy) -> str:
    runs = f"{len(study.trained)} runs to learn from, {len(study.runs.test)} to test with"
    left_out = f", {len(study.excluded)} left out" if study.excluded else ""
    return f"{runs}{left_out}; terms by --method {study.method}"


def chosen(models: ClassModels, cluster: str | None, metric: str | None) -> ClassModels:
    """Return the models of one class, of one metric, or both. Raises UsageError."""
    if cluster is not None and cluster not in models:
        raise UsageError(f"there is no class {cluster!r}", hint=suggestion(cluster, models))
    found: ClassModels = {}
    for name, own in models.items():
        if cluster in (None, name):
            found[name] = {m: v for m, v in own.items() if metric in (None, m)}
    if metric is not None and not any(found.values()):
        known = {m for own in models.values() for m in own}
        raise UsageError(f"there is no metric {metric!r}", hint=suggestion(metric, known))
    return found
