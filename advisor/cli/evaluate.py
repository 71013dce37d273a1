"""``advisor evaluate``: judge a model on a fully measured grid."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.fit import add_model_arguments, list_models, model_options
from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import percent
from advisor.core.units import format_change, format_freq
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.core.configuration import Configuration
    from advisor.models.evaluate import Evaluation

_NODE_TYPE = "grid"
"""Stands for the one node type of a grid's file, which names none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor evaluate`` takes."""
    parser.description = (
        "Train a model on a few runs out of a measured grid (columns as for advisor import) and "
        "compare with all of it: errors, interval coverage, forecast trade-off zone, and what the "
        "advice would have saved. Nothing is stored."
    )
    parser.add_argument("grid", type=Path, nargs="?", metavar="GRID.csv", help="the measured grid")
    add_model_arguments(parser)
    parser.add_argument(
        "--design",
        choices=("uniform", "random", "lhs"),
        default="uniform",
        help="which runs to train on (uniform)",
    )
    parser.add_argument(
        "--samples", type=_samples, default=12, metavar="N", help="how many of them (12)"
    )
    for flag, default, what in (
        ("--error", 0.05, "the trade-off zone's error"),
        ("--max-slowdown", 0.05, "greatest slowdown against the baseline"),
        ("--min-saving", 0.03, "least saving worth a change"),
    ):
        parser.add_argument(
            flag,
            type=percent,
            default=default,
            metavar="PCT",
            help=f"{what}, in %% ({100 * default:g})",
        )
    parser.add_argument("--seed", type=int, default=0, help="of random and lhs designs (0)")


def _samples(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs")
    return value


def run(args: argparse.Namespace) -> int:
    """Evaluate and print."""
    if args.list_models:
        return list_models(args)
    if args.grid is None:
        raise UsageError("which grid?", hint="advisor evaluate GRID.csv")
    from advisor.models.evaluate import evaluate
    from advisor.store.csvfile import Terms, read_csv

    table = read_csv(args.grid, Terms(_NODE_TYPE, "grid"))
    found = evaluate(
        table.observations,
        model=args.model,
        design=args.design,
        samples=args.samples,
        error=args.error,
        max_slowdown=args.max_slowdown,
        min_saving=args.min_saving,
        seed=args.seed,
        model_options=model_options(args.model_option),
    )
    if args.json:
        print_json("evaluate", {"file": str(args.grid), **found.to_dict()})
    else:
        _print(args, found, len({o.configuration for o in table.observations}))
    return 0


def _print(args: argparse.Namespace, found: Evaluation, cells: int) -> None:
    print(f"{found.model} trained on {len(found.trained)} of {cells} cells ({found.design})\n")
    print_table(
        ["response", "runs", "R2", "total RMSE", "pareto RMSE", "in 90 % interval"],
        [
            [name, s.n_train, "-" if s.r2 is None else f"{s.r2:.3f}", f"{s.total_rmse_pct:.1f} %",
             f"{s.pareto_rmse_pct:.1f} %", f"{s.interval_coverage:.0%}"]
            for name, s in found.responses.items()
        ],
    )  # fmt: skip
    front = found.front
    print(f"\ntrade-off zone at {front.error_pct:g} %: {front.observed_points} points observed, "
          f"{front.forecast_points} forecast")  # fmt: skip
    print_table(
        ["search steps off", *map(str, range(len(front.by_distance))), "more"],
        [["forecast points", *front.by_distance, front.farther]],
    )
    print()
    rows: list[list[Any]] = []
    for name, values in front.responses.items():
        for kind in ("observed", "forecast"):
            rows.append([name, kind, *(f"{v[kind]:.5g}" for v in values.values())])
    print_table(["response", "", "baseline", "p_min", "p_max"], rows)
    _print_decision(found)
    for note in found.notes:
        print(f"note: {note}")


def _print_decision(found: Evaluation) -> None:
    d = found.decision
    print(f"\nbaseline    {_name(d.baseline)}")
    if d.recommended is None:
        print("recommended nothing: no option is predicted to save enough")
    else:
        kept = d.chosen == d.recommended
        print(
            f"recommended {_name(d.recommended)}: "
            f"{'confirmed' if kept else 'not borne out'} by its run, "
            f"{'within' if d.within_interval else 'outside'} its interval"
        )
    print(
        f"chosen      {_name(d.chosen)}: energy {format_change(-d.true_saving)}, "
        f"time {format_change(d.true_slowdown)} after {d.runs} runs "
        f"(best possible: energy {format_change(-d.best_saving)})"
    )


def _name(c: Configuration) -> str:
    nodes = "1 node" if c.nodes == 1 else f"{c.nodes} nodes"
    return f"{nodes}, {c.threads_per_node} cores, {format_freq(c.freq_khz)}"
