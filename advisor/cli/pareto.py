"""``advisor pareto``: front and trade-off zone of two columns of any table."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, percent, print_picture, save_plot
from advisor.core.pareto import ErrorLimits, TradeOff, trade_off
from advisor.errors import InputError

_SHOWN = 40
_MISTAKES = 20


@dataclass(frozen=True, slots=True)
class _Objective:
    column: str
    maximise: bool

    @property
    def goal(self) -> str:
        return "max" if self.maximise else "min"


def _axis(text: str) -> _Objective:
    column, colon, goal = text.rpartition(":")
    if not colon or not column or goal not in ("max", "min"):
        raise argparse.ArgumentTypeError(f"{text!r}: write COLUMN:max or COLUMN:min")
    return _Objective(column, goal == "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor pareto`` takes."""
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
    parser.add_argument(
        "--x-error",
        type=percent,
        metavar="PCT",
        help="error of the x axis (default: that of --error)",
    )
    parser.add_argument(
        "--y-error",
        type=percent,
        metavar="PCT",
        help="error of the y axis (default: that of --error)",
    )
    parser.add_argument("--all", action="store_true", help="list every row of the zone")
    add_plot_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print front and zone."""
    check_plot(args.plot)
    header, rows = _read(args.file)
    x, y = _columns(args.file, header, rows, (args.x.column, args.y.column))
    errors = [args.error if e is None else e for e in (args.x_error, args.y_error)]
    found = trade_off(
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
        f"{args.x.column} ({args.x.goal})",
        f"{args.y.column} ({args.y.goal})",
        list(zip(x, y, strict=True)),
        found.front,
        found.zone,
        None,
        found.polygon,
    )
    save_plot(scene, args.plot)
    if args.json:
        print_json("pareto", _json(args, errors, len(rows), found, scene.points))
        return 0
    _print_rows(header, [r for _, r in rows], found, None if args.all else _SHOWN)
    print()
    print_picture(scene)
    print(
        f"{len(found.front)} rows on the front, {len(found.zone)} of {len(rows)} in the trade-off "
        f"zone at {_percent(errors)} error"
    )
    return 0


def _percent(errors: Sequence[float]) -> str:
    return " and ".join(dict.fromkeys(f"{100 * e:g} %" for e in errors))


def _json(
    args: argparse.Namespace,
    errors: Sequence[float],
    rows: int,
    found: TradeOff,
    points: Sequence[tuple[float, float]],
) -> dict[str, object]:
    return {
        "file": str(args.file),
        "x": {"column": args.x.column, "goal": args.x.goal, "error_pct": 100 * errors[0]},
        "y": {"column": args.y.column, "goal": args.y.goal, "error_pct": 100 * errors[1]},
        "rows": rows,
        "front": found.front,
        "front_points": [points[i] for i in found.front],
        "extended_front": found.extended_front,
        "extension": found.extension,
        "zone": found.zone,
        "polygon": found.polygon,
    }


def _print_rows(
    header: Sequence[str], rows: Sequence[Sequence[str]], found: TradeOff, most: int | None
) -> None:
    front = set(found.front)
    order = [*found.front, *(i for i in found.zone if i not in front)]
    shown = order[:most]
    print_table(
        ["row", *header, "place"],
        [[i, *rows[i], "front" if i in front else "zone"] for i in shown],
    )
    if len(order) > len(shown):
        print(f"and {len(order) - len(shown)} more in the zone (--all lists them)")


def _read(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header and the rows with the line each starts on."""
    rows: list[tuple[int, list[str]]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            line = 1
            for cells in reader:
                if any(c.strip() for c in cells):
                    rows.append((line, [c.strip() for c in cells]))
                line = reader.line_num + 1
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from None
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: not CSV: {error}") from None
    if not rows:
        raise InputError(f"{path} is empty", hint="the first line names the columns")
    header = rows.pop(0)[1]
    if not rows:
        raise InputError(f"{path}: there are no rows in it, only a header")
    return header, rows


def _columns(
    path: Path,
    header: Sequence[str],
    rows: Sequence[tuple[int, Sequence[str]]],
    names: tuple[str, str],
) -> tuple[list[float], list[float]]:
    """Return the two columns as numbers; InputError lists every cell that is none."""
    for name in names:
        if header.count(name) != 1:
            what = "column is missing" if name not in header else "column given twice"
            raise InputError(
                f"{path}, line 1, {name}: {what}", hint=f"the columns are {', '.join(header)}"
            )
    places = [header.index(name) for name in names]
    values: tuple[list[float], list[float]] = ([], [])
    mistakes: list[str] = []
    for i, (line, cells) in enumerate(rows):
        if len(cells) != len(header):
            mistakes.append(f"line {line} (row {i}): {len(cells)} cells for {len(header)} columns")
            continue
        for name, place, column in zip(names, places, values, strict=True):
            number = _number(cells[place])
            if number is None:
                text = cells[place] or "blank"
                mistakes.append(f"line {line} (row {i}), {name}: {text} is not a finite number")
            else:
                column.append(number)
    if mistakes:
        more = [f"and {len(mistakes) - _MISTAKES} more"] if len(mistakes) > _MISTAKES else []
        raise InputError(
            "\n  ".join([f"{path}: rows that cannot be compared", *mistakes[:_MISTAKES], *more]),
            hint="fill the values in or remove the rows",
        )
    return values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
