"""``advisor choose``: the user's own choices file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.choices import entry_of, read, without_empty, write
from advisor.cli.arguments import add_application
from advisor.cli.output import print_json
from advisor.cli.streams import complain
from advisor.core.codec import JsonForm
from advisor.core.policy import ESTIMATES, GOALS
from advisor.core.settings import CHOICES_VERSION
from advisor.errors import StoreError, UsageError
from advisor.paths import choices_path

_AIMS = ("goal", "max_slowdown", "estimated_node_types")
_PIN = {
    "node_type": "node_type",
    "nodes": "nodes",
    "threads_per_node": "threads_per_node",
    "freq": "freq_khz",
}
"""The options a pin is made of, and what they are called in it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    add_application(
        parser,
        "only for this application (default: all your jobs)",
        optional=True,
        workload="only for this workload (default: all), as APP/WORKLOAD",
    )
    parser.description = (
        "Choose a goal, or pin a configuration, for your own jobs, or leave them as they are "
        "written. Every value is checked before anything is written. Without options, show the "
        "current choices."
    )
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--off", action="store_true", help="stop changing these jobs")
    switch.add_argument("--on", action="store_true", help="let the advisor change them again")
    parser.add_argument("--goal", metavar="|".join(GOALS), help="which configuration to take")
    parser.add_argument(
        "--max-slowdown", metavar="PCT", help="the largest slowdown you accept, like 5%%"
    )
    parser.add_argument(
        "--estimated-node-types",
        metavar="|".join(ESTIMATES),
        help="whether jobs may go to node types that are only estimated from microbenchmarks",
    )
    parser.add_argument("--node-type", metavar="NODE_TYPE", help="pin: run on this node type")
    parser.add_argument(
        "--threads", dest="threads_per_node", metavar="N", help="pin: this many threads on a node"
    )
    parser.add_argument("--threads-per-node", help=argparse.SUPPRESS)
    parser.add_argument("--freq", metavar="FREQ", help="pin: cap the frequency, like 1.9GHz")
    parser.add_argument("--nodes", metavar="N", help="the pin is for jobs of this many nodes only")
    parser.add_argument("--clear", action="store_true", help="remove the choices made here")


@dataclass(frozen=True, slots=True)
class ChooseAnswer(JsonForm):
    """The choices file, and what is in it now."""

    file: str
    choices: Mapping[str, object]


def run(args: argparse.Namespace) -> int:
    """Change or show the choices file."""
    path = choices_path()
    choices = read(path)
    entry_changes = _checked_entry(args, choices)
    if args.on or args.clear or entry_changes:
        entry: dict[str, Any] = entry_of(choices, args.application, args.workload)
        if args.clear:
            entry.clear()
            if entry is choices:
                choices["version"] = CHOICES_VERSION
        elif args.on:
            entry.pop("off", None)
        entry.update(entry_changes)
        choices = without_empty(choices)
        write(path, choices)
    if args.json:
        print_json("choose", ChooseAnswer(str(path), choices))
    else:
        print(f"{path}:")
        print(json.dumps(choices, indent=2) if choices else "nothing is chosen; the policy decides")
    return 0


def _checked_entry(args: argparse.Namespace, choices: dict[str, Any]) -> dict[str, Any]:
    """Return what the entry is to hold, checked.

    Raises UsageError, and StoreError where no store says what names and points there are.
    """
    arguments = {name: getattr(args, name) for name in (*_AIMS, *_PIN)}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    entry: dict[str, Any] = {"off": True} if args.off else {}
    if args.application is None and args.workload:
        raise UsageError("--workload needs an application")
    if args.application is None and not arguments:
        return entry
    removing = (args.on or args.clear) and not arguments
    if removing and f"{args.application}/{args.workload or '*'}" in choices.get("workloads", {}):
        return entry  # what was once chosen can be taken back, whatever the store knows now
    from advisor.store.seen import store_seen
    from advisor.views import allowed

    ground = allowed.Ground.at(store_seen(args.db, "options", application=args.application))
    allowed.check_names(ground, args.application, args.workload)
    pinned = {_PIN[name]: value for name, value in arguments.items() if name in _PIN}
    entry |= allowed.aims({name: value for name, value in arguments.items() if name in _AIMS})
    pin = allowed.pin(ground, args.application, pinned)
    if pin:
        entry["pin"] = pin
    if ground.unknown is not None and (args.application is not None or pin):
        hint = ground.unknown.hint
        if args.off:
            hint = "advisor choose --off, without a name, leaves all your jobs alone"
        raise StoreError(ground.unknown.message, hint=hint)
    if pin and args.application and allowed.never(ground, args.application, pin):
        complain(
            f"{args.application} has no model on {pin['node_type']}: such jobs stay as written"
        )
    return entry
