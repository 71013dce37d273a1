"""The tables ``advisor lab evaluate`` prints: those of Endrei 2019, 6.3 to 6.14, in words of time.

Tables 6.3 to 6.10 stand for each grid; means over grids and seeds are tables 6.11 and 6.12; folds
are tables 6.13 and 6.14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.cli.output import TableWriter
from advisor.core.units import format_change
from advisor.core.words import describe
from advisor.models.evaluation import RESPONSES
from advisor_lab.evaluation.compare_models import WITHIN_PCT, Fold, Grid, Mean, ModelComparison
from advisor_lab.evaluation.extrapolation import Extrapolation

_UNIT = {"energy": "energy, J", "time": "time, s"}


def print_study(
    out: TableWriter,
    study: ModelComparison,
    folds: Mapping[tuple[str, str], Mapping[str, Sequence[Fold]]],
    cells: Mapping[str, int],
) -> None:
    """Print each grid's tables (of the first seed), the means of several cases, and the folds."""
    seeds = {c.seed for c in study.cases}
    for i, grid in enumerate(dict.fromkeys(c.grid for c in study.cases)):
        first = [c for c in study.cases if c.grid == grid and c.seed == min(seeds)]
        if i:
            out.say()
        _print_grid(out, first, cells[grid], several=len(cells) > 1)
    for model, why in study.skipped.items():
        out.say(f"{model} is left out: {why}")
    means = study.means()
    if means[0].cases > 1:
        _print_means(out, means, grids=len(cells), seeds=len(seeds))
    if folds:
        _print_folds(out, folds)


def print_extrapolation(out: TableWriter, study: Extrapolation) -> None:
    """Print how well each larger size is predicted, and what the advice there is worth."""
    out.say(f"{study.model} trained on {study.trained} runs; answer: {study.answer}\n")
    out.table(
        [
            study.parameter,
            "beyond",
            "cells",
            "time off",
            "energy off",
            "in 90 % interval",
            "half width",
            "saving",
            "best",
            "slower",
        ],
        [
            [
                f"{s.at:g}",
                f"{s.factor:.2f}",
                s.cells,
                _percent(s.median_error_pct["time"]),
                _percent(s.median_error_pct["energy"]),
                _share(s.interval_coverage["time"]),
                _percent(s.half_width_pct["time"]),
                _share(s.decision.true_saving),
                _share(s.decision.best_saving),
                _share(s.decision.true_slowdown),
            ]
            for s in study.scores
        ],
    )
    for note in study.notes:
        out.say(note)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _print_grid(out: TableWriter, cases: Sequence[Grid], cells: int, *, several: bool) -> None:
    first = cases[0].evaluation
    models = ", ".join(c.model for c in cases)
    where = f"{cases[0].grid}: " if several else ""
    counts = sorted({len(c.evaluation.trained) for c in cases})
    trained = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    out.say(f"{where}{models} trained on {trained} of {cells} cells ({first.design})\n")
    out.table(
        ["response", "model", "runs", "R2", "total RMSE", "pareto RMSE", "in 90 % interval"],
        [
            [
                name.replace("_", " "),
                c.model,
                s.n_train,
                "-" if s.r2 is None else f"{s.r2:.3f}",
                f"{s.total_rmse_pct:.1f} %",
                f"{s.pareto_rmse_pct:.1f} %",
                f"{s.interval_coverage:.0%}",
            ]
            for name in first.responses
            for c in cases
            for s in [c.evaluation.responses[name]]
        ],
    )
    front = first.front
    limits = f"{front.error_pct:g} %"
    if front.forecast_error_pct != front.error_pct:
        limits += f" (forecast {front.forecast_error_pct:g} %)"
    out.say(f"\ntrade-off zone at {limits}; search steps from the observed one:")
    steps = [str(i) for i in range(len(front.by_distance))]
    out.table(
        ["zone", "points", *steps, "more", "overlap"],
        [
            ["observed", front.observed_points, *[""] * (len(steps) + 2)],
            *(
                [
                    f"{c.model} forecast",
                    f.forecast_points,
                    *f.by_distance,
                    f.farther,
                    f"{f.overlap_pct:.0f} %",
                ]
                for c in cases
                for f in [c.evaluation.front]
            ),
        ],
    )
    out.say()
    for name in front.responses:
        _print_ends(out, name, cases)
    _print_decisions(out, cases)
    for c in cases:
        for note in c.evaluation.notes:
            out.say(f"note: {f'{c.model}: ' if len(cases) > 1 else ''}{note}")


def _change_percent(value: float, base: float) -> str:
    """Return how far a value is from another, in percent; nothing is 0.0, never -0.0."""
    return f"{round(100 * (value / base - 1), 1) + 0.0:.1f}"


def _print_ends(out: TableWriter, name: str, cases: Sequence[Grid]) -> None:
    """Print baseline and the ends of the front, the change from one to the other, the errors."""
    rows: list[list[object]] = []
    for c in cases:
        ends = c.evaluation.front.responses[name]
        for kind in ("observed", "forecast") if c is cases[0] else ("forecast",):
            base, low, high = (ends[key][kind] for key in ("baseline", "p_min", "p_max"))
            rows.append(
                [
                    kind if kind == "observed" else f"{c.model} {kind}",
                    f"{base:.5g}",
                    f"{low:.5g}",
                    f"{high:.5g}",
                    f"{_change_percent(low, base)} to {_change_percent(high, base)}",
                ]
            )
        off = [
            _change_percent(ends[key]["forecast"], ends[key]["observed"])
            for key in ("baseline", "p_min", "p_max")
        ]
        rows.append(["  error %", *off, ""])
    out.table(
        [_UNIT.get(name, name.replace("_", " ")), "baseline", "p_min", "p_max", "range %"], rows
    )
    out.say()


def _print_decisions(out: TableWriter, cases: Sequence[Grid]) -> None:
    d = cases[0].evaluation.decision
    best = format_change(-d.best_saving)
    out.say(f"baseline    {describe(d.baseline)}; best possible: energy {best}")
    for c in cases:
        d = c.evaluation.decision
        if len(cases) > 1:
            out.say(f"{c.model}:")
        out.say(f"proposed    {'nothing' if d.recommended is None else describe(d.recommended)}")
        for a in d.attempts:
            verb = "keeps" if a.keeps_bounds else "breaks"
            out.say(
                f"run at      {describe(a.configuration)}: energy {format_change(-a.saving)}, "
                f"time {format_change(a.slowdown)}; {'within' if a.within_interval else 'outside'} "
                f"interval, {verb} bounds"
            )
        out.say(
            f"recommended {describe(d.chosen)}: energy {format_change(-d.true_saving)}, "
            f"time {format_change(d.true_slowdown)} after {d.runs} runs"
        )
        out.say(f"why         {d.why}")


def _print_means(out: TableWriter, means: Sequence[Mean], *, grids: int, seeds: int) -> None:
    what = f"{grids} grids" if grids > 1 else "1 grid"
    what += f" with {seeds} seeds each" if seeds > 1 else ""
    out.say(f"\nmeans over {what} (spread: standard deviation)\n")
    rows: list[list[object]] = []
    for name in RESPONSES:
        for m in means:
            key = f"{name}_total_rmse_pct", f"{name}_pareto_rmse_pct"
            rows.append(
                [
                    name,
                    m.model,
                    *(f"{m.mean[k]:.2f}" for k in key),
                    *(f"{m.spread[k]:.2f}" for k in key),
                    f"{m.mean[f'{name}_interval_coverage']:.0%}",
                ]
            )
    out.table(
        ["response", "model", "total RMSE %", "pareto", "spread", "spread", "in interval"], rows
    )
    out.say()
    distances = [k for k in means[0].mean if k.startswith("distance_")]
    out.table(
        [
            "mean points",
            "observed",
            "forecast",
            *(k.removeprefix("distance_") for k in distances),
            "more",
        ],
        [
            [
                m.model,
                *(
                    f"{m.mean[k]:.1f}"
                    for k in ("observed_points", "forecast_points", *distances, "farther")
                ),
            ]
            for m in means
        ],
    )
    out.say()
    out.table(
        ["decisions", "saving %", "of possible %", "slowdown %", "runs"],
        [
            [
                m.model,
                f"{100 * m.mean['true_saving']:.2f}",
                f"{100 * m.mean['best_saving']:.2f}",
                f"{100 * m.mean['true_slowdown']:.2f}",
                f"{m.mean['runs']:.1f}",
            ]
            for m in means
        ],
    )


def _print_folds(
    out: TableWriter, folds: Mapping[tuple[str, str], Mapping[str, Sequence[Fold]]]
) -> None:
    for name in RESPONSES:
        out.say(f"\ncross validation of {name}: % of predictions off by less than\n")
        rows: list[list[object]] = []
        for (grid, model), responses in folds.items():
            for i, fold in enumerate(responses[name], 1):
                rows.append(
                    [
                        grid,
                        model,
                        i,
                        *(f"{fold.within_pct[w]:.1f}" for w in WITHIN_PCT),
                        f"{fold.rmse_pct:.1f}",
                    ]
                )
        out.table(["grid", "model", "fold", *(f"{w} %" for w in WITHIN_PCT), "RMSE %"], rows)
