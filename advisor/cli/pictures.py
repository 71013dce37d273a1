"""Percentages and pictures, as several verbs take them on the command line."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from advisor.plotting import Scene


def percent(text: str) -> float:
    """Return ``5``, ``5%`` or ``0.5 %`` as a fraction below 1, for argparse."""
    try:
        value = float(text.strip().removesuffix("%")) / 100.0
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 to below 100")
    return value


def add_plot_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--plot FILE``."""
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a picture, too (.svg, .png or .pdf)"
    )


def check_plot(path: Path | None) -> None:
    """Refuse a picture that cannot be made before any work is done."""
    if path is not None:
        from advisor.plotting.figure import check

        check(path)


def save_plot(scene: Scene, path: Path | None) -> None:
    """Write the picture that ``--plot`` asked for."""
    if path is not None:
        from advisor.plotting.figure import save

        save(scene, path)


def print_scene(scene: Scene) -> None:
    """Print a picture as wide as the terminal, in ASCII where the terminal knows no more."""
    from advisor.plotting.terminal import ASCII, draw

    width = shutil.get_terminal_size((80, 24)).columns
    picture = draw(scene, width=width)
    try:
        picture.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        picture = draw(scene, width=width, marks=ASCII)
    print(picture)
