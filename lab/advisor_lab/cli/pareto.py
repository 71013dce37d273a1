"""``advisor lab pareto``: front and trade-off zone of two columns of any table."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from advisor.cli.output import TableWriter, add_format_argument, print_json
from advisor.cli.pictures import add_plot_argument, check_plot, percent, print_picture, save_plot
from advisor.core.codec import JsonForm
from advisor.core.pareto import ErrorLimits, Point, iterated, relaxed, trade_off
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.store.csvfile import TextTable

_SHOWN, _MISTAKES = 40, 20
"""Rows of the zone, and mistakes in the file, that are listed."""
ITERATIONS = 4
"""Fronts of the iterated analysis: those of Endrei 2019, figure 2.3."""


@dataclass(frozen=True, slots=True)
class _Objective:
    column: str
    maximise: bool

    @property
    def goal(self) -> Literal["min", "max"]:
        return "max" if self.maximise else "min"

    @property
    def label(self) -> str:
        """The axis' label; "(min)" would be read as minutes."""
        return f"{self.column}, {'more' if self.maximise else 'less'} is better"


@dataclass(frozen=True, slots=True)
class ParetoAxis:
    """A column, whether more or less of it is better, and its error limits in percent."""

    column: str
    goal: Literal["min", "max"]
    error_pct: float
    outer_error_pct: float


@dataclass(frozen=True, slots=True)
class ParetoAnswer(JsonForm):
    """The Pareto front and the trade-off zone of a table; rows count from 0."""

    file: str
    x: ParetoAxis
    y: ParetoAxis
    rows: int
    front: tuple[int, ...]
    front_points: tuple[Point, ...]
    extended_front: tuple[Point, ...]
    extension: tuple[int | None, int | None]
    zone: tuple[int, ...]
    polygon: tuple[Point, ...]
    relaxed: Annotated[tuple[int, ...], "rows within error of a row of the front, in both axes"]
    iterated: Annotated[
        tuple[tuple[int, ...], ...], "the front, the front of what is left without it, and so on"
    ]


def _axis(text: str) -> _Objective:
    column, colon, goal = text.rpartition(":")
    if not colon or not column or goal not in ("max", "min"):
        raise argparse.ArgumentTypeError(f"{text!r}: write COLUMN:max or COLUMN:min")
    return _Objective(column, goal == "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor lab pareto`` takes."""
    parser.description = (
        "Find the Pareto front of two columns of a CSV file, and the trade-off zone: all rows that "
        "may lie on the front within the error (Endrei 2019, algorithms 5.1 to 5.4). Two older "
        "ways to find what is near the front are there to compare: a relaxed and an iterated front."
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
    parser.add_argument(
        "--outer-error",
        type=percent,
        default=0.0,
        metavar="PCT",
        help="how far beyond the front the zone reaches, in %% (default: 0)",
    )
    parser.add_argument(
        "--near",
        choices=("zone", "relaxed", "iterated"),
        default="zone",
        help="what is listed and drawn beside the front: the trade-off zone; relaxed: rows within "
        "error of a row of the front; iterated: the fronts of what is left without the front, "
        f"{ITERATIONS} in all (default: zone)",
    )
    parser.add_argument("--all", action="store_true", help="list every row")
    add_format_argument(parser)
    add_plot_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print front and zone."""
    check_plot(args.plot)
    from advisor.store.csvfile import read_table

    table = read_table(args.file)
    x, y = _columns(args.file, table, (args.x.column, args.y.column))
    errors = [args.error if e is None else e for e in (args.x_error, args.y_error)]
    goals = {"max_x": args.x.maximise, "max_y": args.y.maximise}
    limits = [ErrorLimits(e, args.outer_error) for e in errors]
    tradeoff = trade_off(x, y, **goals, x_limits=limits[0], y_limits=limits[1])
    axes = [
        ParetoAxis(o.column, o.goal, 100 * e, 100 * args.outer_error)
        for o, e in zip((args.x, args.y), errors, strict=True)
    ]
    answer = ParetoAnswer(
        str(args.file),
        axes[0],
        axes[1],
        len(x),
        tradeoff.front,
        tuple((x[i], y[i]) for i in tradeoff.front),
        tradeoff.extended_front,
        tradeoff.extension,
        tradeoff.zone,
        tradeoff.polygon,
        relaxed(x, y, tradeoff.front, *errors),
        iterated(x, y, **goals, iterations=ITERATIONS),
    )
    near = {
        "zone": answer.zone,
        "relaxed": answer.relaxed,
        "iterated": tuple(row for front in answer.iterated for row in front),
    }[args.near]
    from advisor.plotting import Scene

    scene = Scene(
        f"{args.file.name}: {_title(args.near, errors)}",
        args.x.label,
        args.y.label,
        list(zip(x, y, strict=True)),
        answer.front,
        near,
        None,
        answer.polygon if args.near == "zone" else (),
    )
    save_plot(scene, args.plot)
    if args.json:
        print_json("pareto", answer.to_dict())
        return 0
    out = TableWriter(args.format)
    all_rows = args.all or args.format != "text"  # papers and spreadsheets want every row
    _print_rows(out, table, _places(answer, args.near), None if all_rows else _SHOWN)
    if args.format == "text":
        print()
        print_picture(scene)
    out.say(
        f"{len(answer.front)} rows on the front, {len(near)} of {len(x)} "
        f"{_within(args.near, errors)}"
    )
    return 0


def _title(near: str, errors: Sequence[float]) -> str:
    if near == "zone":
        return f"trade-off within {_percent(errors)}"
    return f"relaxed front at {_percent(errors)}" if near == "relaxed" else "iterated fronts"


def _within(near: str, errors: Sequence[float]) -> str:
    return {
        "zone": f"in the trade-off zone at {_percent(errors)} error",
        "relaxed": f"on the front relaxed by {_percent(errors)} error",
        "iterated": f"on the first {ITERATIONS} fronts",
    }[near]


def _places(answer: ParetoAnswer, near: str) -> dict[int, str]:
    """Return rows and what the table calls their place, in the order of the table."""
    places = dict.fromkeys(answer.front, "front")
    if near == "iterated":
        for number, front in enumerate(answer.iterated[1:], start=2):
            places |= dict.fromkeys(front, f"front {number}")
        return places
    rows = answer.zone if near == "zone" else answer.relaxed
    return places | {row: near for row in rows if row not in places}


def _percent(errors: Sequence[float]) -> str:
    return " and ".join(dict.fromkeys(f"{100 * e:g} %" for e in errors))


def _print_rows(
    out: TableWriter, table: TextTable, places: Mapping[int, str], most: int | None
) -> None:
    rows = list(table.rows.values())
    out.table(
        ["row", *table.names, "place"],
        [[i, *map(str.strip, rows[i]), place] for i, place in list(places.items())[:most]],
    )
    if most is not None and len(places) > most:
        out.say(f"and {len(places) - most} more (--all lists them)")


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
