"""Percentages and pictures, as several verbs take them on the command line."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.plotting import Scene
from advisor.plotting.panels import Panels

if TYPE_CHECKING:
    from advisor.cli.output import TableWriter
    from advisor.views.statistics import StatisticsView

Drawing = Scene | Panels
STATISTICS = ("qq", "histogram", "spearman", "clusters", "loss", "repeats")
"""Views of runs and of the model fitted to them, as the laboratory draws them."""


def percent(text: str) -> float:
    """Return ``5``, ``5%`` or ``0.5 %`` as a fraction below 1, for argparse."""
    try:
        value = float(text.strip().removesuffix("%")) / 100.0
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 to below 100")
    return value


def add_plot_argument(parser: argparse.ArgumentParser, views: Sequence[str] = ()) -> None:
    """Add ``--plot FILE``, and ``--view`` where there are several kinds of picture."""
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also write a picture (.svg, .png or .pdf; NAME-dark.svg and so on: on a dark ground)",
    )
    if views:
        parser.add_argument(
            "--view",
            choices=tuple(views),
            help=f"which picture, here or in FILE (default: {views[0]})",
        )
    if "lines" in views:
        parser.add_argument(
            "--over",
            choices=("cores", "frequency"),
            default="cores",
            help="with --view lines: draw time and energy over the cores, a line for each "
            "frequency, or over the frequency, a line for each number of cores (default: cores)",
        )


def check_plot(path: Path | None) -> None:
    """Refuse a picture that cannot be made before any work is done."""
    if path is not None:
        from advisor.plotting.figure import check

        check(path)


def save_plot(scene: Drawing, path: Path | None) -> None:
    """Write the picture to the file of ``--plot``."""
    if path is not None:
        from advisor.plotting.figure import save

        save(scene, path, dark=path.stem.endswith("-dark"))


def print_statistics(view: StatisticsView, out: TableWriter) -> None:
    """Print a view: people get the picture and a few figures, other forms all tables."""
    if out.form == "text":
        print()
        print_picture(view.picture)
    for table in view.tables:
        rows = table.rows[: table.in_text] if out.form == "text" else table.rows
        if rows:
            out.say()
            cut = f", {len(rows)} of {len(table.rows)}" if len(rows) < len(table.rows) else ""
            out.say(f"{table.title}{cut}")
            out.table(table.headers, rows)


def print_picture(picture: Drawing) -> None:
    """Print a picture as wide as the terminal, in ASCII where the terminal knows no more."""
    from advisor.plotting.chart import ASCII, Marks
    from advisor.plotting.terminal import draw, draw_panels

    width = shutil.get_terminal_size((80, 24)).columns

    def drawn(marks: Marks) -> str:
        if isinstance(picture, Panels):
            return draw_panels(picture, width=width, marks=marks)
        return draw(picture, width=width, marks=marks)

    text = drawn(Marks())
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = drawn(ASCII)
    print(text)
