"""``advisor on``, ``off`` and ``choose``: the user's own choices file."""

from __future__ import annotations

import argparse
import json
from typing import Any

from advisor.choices import entry_of, read, write
from advisor.cli.output import print_json
from advisor.core.policy import ESTIMATES, GOALS
from advisor.core.settings import CHOICES_VERSION
from advisor.core.units import parse_fraction, parse_freq_khz
from advisor.errors import UsageError
from advisor.paths import choices_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    choose = parser.prog.endswith(" choose")
    parser.add_argument(
        "application", nargs="?", help="only for this application (default: all of your jobs)"
    )
    parser.add_argument("--workload", help="only for this workload (default: all)")
    if choose:
        parser.add_argument("--goal", choices=GOALS, help="what to aim for")
        parser.add_argument("--max-slowdown", help="how much slower is all right, like 5%%")
        parser.add_argument(
            "--estimated-node-types", choices=ESTIMATES,
            help="whether jobs may go to node types estimated from microbenchmarks",
        )  # fmt: skip
        parser.add_argument("--node-type", help="pin: run on this node type")
        parser.add_argument("--nodes", type=int, help="pin: this many nodes")
        parser.add_argument("--threads-per-node", type=int, help="pin: cores a node")
        parser.add_argument("--freq", help="pin: frequency cap, like 1.9GHz")
        parser.add_argument("--clear", action="store_true", help="forget what was chosen here")


def run(args: argparse.Namespace) -> int:
    """Change or show the choices file."""
    path = choices_path()
    choices = read(path)
    if args.verb in ("on", "off"):
        entry = _entry(choices, args)
        entry.pop("off", None)
        if args.verb == "off":
            entry["off"] = True
        write(path, choices)
    elif _changes(args):
        entry = _entry(choices, args)
        if args.clear:
            entry.clear()
            if entry is choices:
                choices["version"] = CHOICES_VERSION
        _choose(entry, args)
        write(path, choices)
    if args.json:
        print_json("choose", {"file": str(path), "choices": choices})
    else:
        print(f"{path}:")
        print(json.dumps(choices, indent=2) if choices else "nothing chosen; the policy decides")
    return 0


def _entry(choices: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    if args.application is None and args.workload:
        raise UsageError("--workload needs an application")
    entry: dict[str, Any] = entry_of(choices, args.application, args.workload)
    return entry


def _changes(args: argparse.Namespace) -> bool:
    names = (
        "goal", "max_slowdown", "estimated_node_types", "node_type", "nodes", "threads_per_node",
        "freq", "clear",
    )  # fmt: skip
    return any(getattr(args, n) for n in names)


def _choose(entry: dict[str, Any], args: argparse.Namespace) -> None:
    if args.goal:
        entry["goal"] = args.goal
    if args.estimated_node_types:
        entry["estimated_node_types"] = args.estimated_node_types
    pin: dict[str, Any] = {}
    try:
        if args.max_slowdown:
            parse_fraction(args.max_slowdown)
            entry["max_slowdown"] = args.max_slowdown
        if args.freq:
            pin["freq_khz"] = parse_freq_khz(args.freq)
    except ValueError as error:
        raise UsageError(str(error)) from None
    for name in ("node_type", "nodes", "threads_per_node"):
        if getattr(args, name):
            pin[name] = getattr(args, name)
    if pin:
        entry["pin"] = pin
