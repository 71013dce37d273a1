"""``advisor lab pareto``: front and trade-off zone of two columns of any table."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.output import TableWriter, add_format_argument, print_json
from advisor.cli.pictures import add_plot_argument, check_plot, percent, print_picture, save_plot
from advisor.core.pareto import ErrorLimits, TradeOff, trade_off
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.store.csvfile import TextTable

_SHOWN, _MISTAKES = 40, 20
"""Rows of the zone, and mistakes in the file, that are listed."""


@dataclass(frozen=True, slots=True)
class _Objective:
    column: str
    maximise: bool

    @property
    def goal(self) -> str:
        return "max" if self.maximise else "min"

    @property
    def label(self) -> str:
        """The axis' label; "(min)" would be read as minutes."""
        return f"{self.column}, {'more' if self.maximise else 'less'} is better"


def _axis(text: str) -> _Objective:
    column, colon, goal = text.rpartition(":")
    if not colon or not column or goal not in ("max", "min"):
        raise argparse.ArgumentTypeError(f"{text!r}: write COLUMN:max or COLUMN:min")
    return _Objective(column, goal == "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor lab pareto`` takes."""
    parser.description = (
        "Find the Pareto front of two columns of a CSV file, and the trade-off zone: all rows that "
        "may lie on the front within the error (Endrei 2019, algorithms 5.1 to 5.4)."
    )
    parser.add_argument("file", type=Path, metavar="FILE.csv", help="any table with a header")
    for name in ("x", "y"):
        parser.add_argument(
            f"--{name}",
            type=_axis,
            required=True,
            metavar="COL:max|min",
            help=f"the {name} axis: a column, and whether more or less of it is better",
        )
    parser.add_argument(
        "--error",
        type=percent,
        default=0.05,
        metavar="PCT",
        help="error of both axes, in %% (default: 5)",
    )
    for name in ("x", "y"):
        parser.add_argument(
            f"--{name}-error",
            type=percent,
            metavar="PCT",
            help=f"error of the {name} axis (default: that of --error)",
        )
    parser.add_argument("--all", action="store_true", help="list every row of the zone")
    add_format_argument(parser)
    add_plot_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print front and zone."""
    check_plot(args.plot)
    from advisor.store.csvfile import read_table

    table = read_table(args.file)
    x, y = _columns(args.file, table, (args.x.column, args.y.column))
    errors = [args.error if e is None else e for e in (args.x_error, args.y_error)]
    tradeoff = trade_off(
        x,
        y,
        max_x=args.x.maximise,
        max_y=args.y.maximise,
        x_limits=ErrorLimits(errors[0]),
        y_limits=ErrorLimits(errors[1]),
    )
    from advisor.plotting import Scene

    scene = Scene(
        f"{args.file.name}: trade-off within {_percent(errors)}",
        args.x.label,
        args.y.label,
        list(zip(x, y, strict=True)),
        tradeoff.front,
        tradeoff.zone,
        None,
        tradeoff.polygon,
    )
    save_plot(scene, args.plot)
    if args.json:
        print_json("pareto", _json(args, errors, tradeoff, scene.points))
        return 0
    out = TableWriter(args.format)
    whole = args.all or args.format != "text"  # papers and spreadsheets want every row
    _print_rows(out, table, tradeoff, None if whole else _SHOWN)
    if args.format == "text":
        print()
        print_picture(scene)
    out.say(
        f"{len(tradeoff.front)} rows on the front, {len(tradeoff.zone)} of {len(x)} "
        f"in the trade-off zone at {_percent(errors)} error"
    )
    return 0


def _percent(errors: Sequence[float]) -> str:
    return " and ".join(dict.fromkeys(f"{100 * e:g} %" for e in errors))


def _json(
    args: argparse.Namespace,
    errors: Sequence[float],
    tradeoff: TradeOff,
    points: Sequence[tuple[float, float]],
) -> dict[str, object]:
    return {
        "file": str(args.file),
        "x": {"column": args.x.column, "goal": args.x.goal, "error_pct": 100 * errors[0]},
        "y": {"column": args.y.column, "goal": args.y.goal, "error_pct": 100 * errors[1]},
        "rows": len(points),
        "front": tradeoff.front,
        "front_points": [points[i] for i in tradeoff.front],
        "extended_front": tradeoff.extended_front,
        "extension": tradeoff.extension,
        "zone": tradeoff.zone,
        "polygon": tradeoff.polygon,
    }


def _print_rows(out: TableWriter, table: TextTable, tradeoff: TradeOff, most: int | None) -> None:
    front, rows = set(tradeoff.front), list(table.rows.values())
    order = [*tradeoff.front, *(i for i in tradeoff.zone if i not in front)]
    out.table(
        ["row", *table.names, "place"],
        [[i, *map(str.strip, rows[i]), "front" if i in front else "zone"] for i in order[:most]],
    )
    if most is not None and len(order) > most:
        out.say(f"and {len(order) - most} more in the zone (--all lists them)")


def _columns(path: Path, table: TextTable, names: Sequence[str]) -> list[list[float]]:
    """Return columns as numbers; InputError lists every cell that is none."""
    for name in names:
        if table.names.count(name) != 1:
            what = "column is missing" if name not in table.names else "column given twice"
            raise InputError(
                f"{path}, line {table.header_line}, {name}: {what}",
                hint=f"the columns are {', '.join(table.names)}",
            )
    uneven = list(table.problems)
    if not table.rows and not uneven:
        raise InputError(f"{path}: there are no rows in it, only a header")
    values = [table.parsed(name, _number) for name in names]
    problems = table.problems
    if problems:
        lines = sorted({*table.rows, *(p.line for p in uneven)})
        mistakes = [
            str(p).replace(f"line {p.line}", f"line {p.line} (row {lines.index(p.line)})", 1)
            for p in sorted(problems, key=lambda p: p.line)[:_MISTAKES]
        ]
        if len(problems) > _MISTAKES:
            mistakes.append(f"and {len(problems) - _MISTAKES} more")
        raise InputError(
            "\n  ".join([f"{path}: rows that cannot be compared", *mistakes]),
            hint="fill the values in or remove the rows",
        )
    return [[value for value in column if value is not None] for column in values]


def _number(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise ValueError(f"{text or 'blank'} is not a finite number")
