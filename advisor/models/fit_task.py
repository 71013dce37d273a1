"""A fit as a task that is done elsewhere: text in, text out (:mod:`advisor.workers.base`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from advisor.core.codec import load, to_plain
from advisor.core.configuration import SearchSpace
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.models.fit import FitResult, fit_options
from advisor.models.scatter import Elsewhere
from advisor.workers.base import Task


def fit_task(
    observations: Sequence[Observation], node_type: NodeType | None, elsewhere: Elsewhere
) -> Task:
    """Return the task of a fit by default settings, as :func:`advisor.models.fit.fit_options`."""
    runs = [
        {
            "run": to_plain(replace(run, space=None)),
            "space": None if run.space is None else run.space.to_dict(),
        }
        for run in observations
    ]
    wanted = {"runs": runs, "node_type": to_plain(node_type), "elsewhere": to_plain(elsewhere)}
    return Task("advisor.models.fit_task:perform", json.dumps(wanted))


def perform(text: str) -> str:
    """Fit; return what :func:`fit_of` reads. Raises InputError as a fit does."""
    wanted = json.loads(text)
    spec = wanted["node_type"]
    fit = fit_options(
        [_run(run) for run in wanted["runs"]],
        node_type=None if spec is None else NodeType.from_dict(spec),
        elsewhere=wanted["elsewhere"],
    )
    names = ("options", "stats", "n_train", "energy_quality", "model", "notes")
    return json.dumps({name: to_plain(getattr(fit, name)) for name in names})


def fit_of(text: str) -> FitResult:
    """Return the fit that a task answered with: what is stored of it."""
    data = json.loads(text)
    return FitResult(**{**data, "options": tuple(load(Option, o) for o in data["options"])})


def _run(data: dict[str, Any]) -> Observation:
    run = load(Observation, data["run"])
    space = data["space"]
    node_type = run.configuration.node_type
    return run if space is None else replace(run, space=SearchSpace.from_dict(node_type, space))
