"""``advisor lab profile``: profiles, their classes and models, and profiles never run."""

from __future__ import annotations

import argparse
import itertools
import math
from importlib import import_module
from pathlib import Path

from advisor.cli.arguments import add_action, add_actions
from advisor.errors import UsageError

_ACTIONS = {
    "import": "profile_import",
    "classify": "profile_classify",
    "fit": "profile_fit",
    "show": "profile_show",
    "adjust": "profile_adjust",
    "extrapolate": "profile_extrapolate",
    "history": "profile_history",
    "redo": "profile_history",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of ``advisor lab profile``."""
    actions = add_actions(parser)
    action = add_action(actions, "import", "read the profiles of an application's runs")
    action.add_argument(
        "places", metavar="DIR|FILE", type=Path, nargs="+", help="folders of profiles, or files"
    )
    action.add_argument(
        "--role",
        choices=("train", "test"),
        default="train",
        help="to learn from, or to test the models with (default: train)",
    )
    action.add_argument(
        "--scale",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        help="the scaling parameters of profiles that do not state them",
    )
    action.add_argument(
        "--application", metavar="APP", help="keep only this application's (default: all)"
    )
    action = add_action(actions, "classify", "find the classes of threads that behave alike")
    _application(action)
    action.add_argument(
        "--method",
        "--by",
        choices=("profile", "communication"),
        default="profile",
        help="by all metrics, or by who receives from whom (default: profile)",
    )
    action.add_argument(
        "--classes",
        type=_classes,
        default=0,
        metavar="N",
        help="how many classes, or auto (default: auto)",
    )
    _plot(action, "a picture")
    action.add_argument(
        "--picture",
        choices=("radar", "graph", "components"),
        default="radar",
        help="which: radar plots of the classes, who receives from whom, principal components "
        "(default: radar)",
    )
    action = add_action(actions, "fit", "fit a model of every metric of every class")
    action.add_argument("application", metavar="APP", nargs="?", help="its profiles are stored")
    action.add_argument(
        "--table", metavar="CSV", type=Path, help="fit columns of this file instead"
    )
    action.add_argument(
        "--setup", metavar="FILE", type=Path, help="complexities and metrics, as YAML"
    )
    action.add_argument(
        "--method",
        choices=("strict", "manual"),
        default="strict",
        help="how terms are searched for: strict, or as the Extrapolator's manual says",
    )
    _at(action, "with --table: predict there")
    action = add_action(actions, "show", "show how good the models are, and draw them")
    _application(action)
    _place(action)
    action.add_argument(
        "--along",
        metavar="NAME[,NAME]",
        help="draw one metric of one class along a parameter, or over two",
    )
    _at(action, "with --along: the other parameters (default: the largest run's)")
    action.add_argument("--log", action="store_true", help="draw logarithms")
    action.add_argument("--counts", action="store_true", help="draw the metric times LSys")
    _plot(action, "the pictures of --metric")
    action = add_action(actions, "adjust", "change a model, leave out a run, and fit again")
    _application(action)
    _place(action)
    action.add_argument(
        "--retrain",
        choices=("metric", "counts", "all"),
        help="fit again: the metric named, all that depend on LSys, or all",
    )
    action.add_argument("--drop-last", type=int, metavar="N", help="take the last N terms out")
    action.add_argument("--terms", metavar="TERM,...", help="these terms, or auto to search again")
    action.add_argument("--type", metavar="TYPE", help="another metric type")
    action.add_argument("--model", metavar="MODEL", help="another model type")
    action.add_argument("--mode", choices=("accurate", "fast"), help="how thoroughly to search")
    action.add_argument("--constraints", metavar="LIST", help="like '{True, {\"n\", True, {n>5}}}'")
    action.add_argument("--boundaries", metavar="LOW,HIGH", help="like 1,Infinity")
    action.add_argument(
        "--exclude",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        help="leave out the run at this scale, and fit all again",
    )
    action = add_action(actions, "extrapolate", "write profiles of scales that never ran")
    _application(action)
    _at(action, "values of a parameter; all combinations are written", required=True)
    action.add_argument("--output", metavar="DIR", type=Path, required=True, help="the folder")
    action.add_argument(
        "--threads",
        choices=("class", "process"),
        default="class",
        help="one thread per class with NThreads, or one per process (default: class)",
    )
    action = add_action(actions, "history", "list what was done to an application's profiles")
    _application(action)
    action = add_action(actions, "redo", "do one step again, with what is stored now")
    _application(action)
    action.add_argument("step", metavar="STEP", type=int, help="its number in history")


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    code: int = import_module(f"advisor_lab.cli.{_ACTIONS[args.action]}").run(args)
    return code


def _application(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("application", metavar="APP", help="its profiles are stored")


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--class", metavar="CLASS", dest="cluster", help="like A (default: all)")
    parser.add_argument("--metric", metavar="METRIC", help="one metric (default: all)")


def _plot(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help=f"also write {what} (.svg, .png or .pdf)"
    )


def _at(parser: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    parser.add_argument(
        "--at",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        required=required,
        help=what,
    )


def _classes(text: str) -> int:
    if text == "auto":
        return 0
    if not text.isdigit() or not 1 <= int(text) <= 50:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number from 1 to 50")
    return int(text)


def values_of(texts: list[str], option: str) -> dict[str, list[float]]:
    """Return the values of parameters from ``NPC=1000,10000`` or ``n=4e6,nodes=64``.

    A part without a name belongs to the name before it. Raises UsageError.
    """
    values: dict[str, list[float]] = {}
    for text in texts:
        name = ""
        for part in text.split(","):
            prefix, sign, value = part.rpartition("=")
            name = prefix.strip() if sign else name
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            if not name or not math.isfinite(number):
                raise UsageError(f"{option} {text!r} is not valid", hint="write it like n=1000")
            values.setdefault(name, []).append(number)
    return values


def combinations(values: dict[str, list[float]]) -> list[dict[str, float]]:
    """Return all combinations of values."""
    if not values:
        return []
    return [dict(zip(values, place, strict=True)) for place in itertools.product(*values.values())]
