"""Compare models on measured grids: several grids, models and seeds, with means; k-fold checks.

Single grids are judged by :mod:`advisor.models.evaluation`; here are the summaries of Endrei 2019:
tables 6.11 and 6.12 (means over cases) and 6.13 and 6.14 (3-fold cross validation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pandas as pd

from advisor.core.codec import JsonForm, wire
from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.errors import InputError, MissingExtraError
from advisor.models.evaluation import RESPONSES, Evaluation
from advisor.models.fit import fit_options
from advisor.models.registry import create
from advisor.models.runs import gather

WITHIN_PCT = (20, 10, 5)
"""Errors (percent) that the shares of tables 6.13 and 6.14 stay below."""

Evaluate = Callable[[Sequence[Observation], str, int], Evaluation]
"""Judge one model, or variant of one, by its name on one grid with one seed."""


@dataclass(frozen=True, slots=True)
class Grid(JsonForm):
    """One evaluation and what it was of: ``model`` by its name, or its variant's."""

    JSON = ("grid", "seed", "variant", "evaluation")

    grid: str
    model: str
    seed: int
    evaluation: Evaluation = field(metadata=wire(inline=True))
    variant: Annotated[str | None, "with --vary: the value that was tried"] = field(
        default=None, metadata=wire(omit=True)
    )

    def measures(self) -> dict[str, float]:
        """Return every figure that may be averaged over cases, by its name in JSON."""
        e, figures = self.evaluation, {}
        for name, score in e.responses.items():
            figures[f"{name}_total_rmse_pct"] = score.total_rmse_pct
            figures[f"{name}_pareto_rmse_pct"] = score.pareto_rmse_pct
            figures[f"{name}_interval_coverage"] = score.interval_coverage
        figures["observed_points"] = float(e.front.observed_points)
        figures["forecast_points"] = float(e.front.forecast_points)
        for distance, count in enumerate(e.front.by_distance):
            figures[f"distance_{distance}"] = float(count)
        figures["farther"] = float(e.front.farther)
        figures["true_saving"] = e.decision.true_saving
        figures["true_slowdown"] = e.decision.true_slowdown
        figures["best_saving"] = e.decision.best_saving
        figures["runs"] = float(e.decision.runs)
        return figures


@dataclass(frozen=True, slots=True)
class Mean:
    """A model's measures over all its cases: means and standard deviations (0 of one case)."""

    model: str
    cases: int
    mean: Mapping[str, float]
    spread: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """All cases, and the models that could not be tried with the reason."""

    cases: tuple[Grid, ...]
    skipped: Mapping[str, str]

    def means(self) -> list[Mean]:
        """Return each model's means over grids and seeds."""
        measures = pd.DataFrame([c.measures() for c in self.cases])
        models = pd.Series([c.model for c in self.cases])
        return [
            Mean(model, len(rows), dict(rows.mean()), dict(rows.std().fillna(0.0)))
            for model in models.unique()
            for rows in [measures[models == model]]
        ]


def compare(
    grids: Mapping[str, Sequence[Observation]],
    models: Mapping[str, str],
    seeds: Sequence[int],
    evaluate: Evaluate,
) -> ModelComparison:
    """Judge every model on every grid with every seed; all train on the same cells.

    ``models`` are those by the names of what is judged: their own, or those of their variants. Of
    several models, one whose extra is not installed is left out and named.
    A grid that cannot be judged is named in the InputError.
    """
    cases: list[Grid] = []
    skipped: dict[str, str] = {}
    for model, kind in models.items():
        try:
            create(kind)
        except MissingExtraError as error:
            if len(models) == 1:
                raise
            skipped[model] = str(error)
            continue
        for grid, runs in grids.items():
            try:
                cases += [
                    Grid(
                        grid,
                        model,
                        seed,
                        evaluate(runs, model, seed),
                        None if model == kind else model,
                    )
                    for seed in seeds
                ]
            except InputError as error:
                where = f"{grid}: " if len(grids) > 1 else ""
                raise InputError(f"{where}{error.message}", hint=error.hint) from None
    return ModelComparison(tuple(cases), skipped)


@dataclass(frozen=True, slots=True)
class Fold:
    """How well two thirds (of three folds) of a grid predict the rest of it.

    ``within_pct`` maps each of :data:`WITHIN_PCT` to the percentage of predictions off by less.
    """

    n_train: int
    n_test: int
    rmse_pct: float
    within_pct: Mapping[int, float]


def kfold(
    grid: Sequence[Observation],
    *,
    model: str,
    folds: int,
    seed: int = 0,
    model_options: Mapping[str, object] | None = None,
) -> dict[str, list[Fold]]:
    """Split a grid at random into ``folds`` equal parts and predict each from the others.

    Returns the folds of each response. Raises InputError when there are more folds than cells
    allow. Source: section 6.5, tables 6.13 and 6.14.
    """
    runs = gather(grid)
    if runs.energy is None:
        raise InputError("the grid has no energy to judge by", hint="fill the column energy_j in")
    truth = {"time": runs.time.log_mean, "energy": runs.energy.log_mean}
    cells = sorted(truth["energy"])
    if not 2 <= folds <= len(cells) // 2:
        raise InputError(
            f"{len(cells)} cells cannot be split into {folds} folds",
            hint=f"from 2 to {len(cells) // 2}",
        )
    space = SearchSpace.of(cells[0].node_type, cells)
    order = np.random.default_rng(seed).permutation(len(cells))
    by_response: dict[str, list[Fold]] = {name: [] for name in RESPONSES}
    for part in np.array_split(order, folds):
        test = {cells[i] for i in part}
        trained = [o for o in grid if o.configuration not in test]
        fitted = fit_options(trained, model=model, space=space, model_options=model_options)
        for name in RESPONSES:
            guesses = {
                o.configuration: o.energy_j if name == "energy" else o.time_s
                for o in fitted.predicted
            }
            by_response[name].append(_fold(len(cells) - len(test), test, guesses, truth[name]))
    return by_response


def _fold(
    n_train: int,
    test: set[Configuration],
    guesses: Mapping[Configuration, float],
    log_truth: Mapping[Configuration, float],
) -> Fold:
    off = np.array([100.0 * abs(guesses[c] / math.exp(log_truth[c]) - 1.0) for c in sorted(test)])
    shares = {limit: 100.0 * float(np.mean(off < limit)) for limit in WITHIN_PCT}
    return Fold(n_train, len(off), float(np.sqrt(np.mean(off**2))), shares)
