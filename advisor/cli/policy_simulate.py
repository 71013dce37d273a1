"""``advisor policy simulate``: what another policy would have done with the jobs of the past."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.cli.arguments import add_action, add_history
from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, save_plot
from advisor.errors import InputError, UsageError


def add_simulate(actions: Any) -> None:
    """Declare the action."""
    action = add_action(actions, "simulate", "try a policy on the jobs of the past")
    action.description = (
        "Decide the stored requests again, under a policy file and under the policy in "
        "effect, with the daemon's code and today's models, and show the differences: jobs, "
        "time, energy, node-hours, money and CO2, by account and application. Nothing is changed. "
        "Users see their own jobs, administrators all."
    )
    action.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="the policy to try (default: policy.yaml in the configuration folder; - is standard "
        "input)",
    )
    action.add_argument(
        "--since",
        metavar="TIME",
        default="30d",
        help="try it on jobs submitted since then, like 30d or 2026-01-31 (default: 30d)",
    )
    add_history(action)
    add_plot_argument(action)


def simulate_action(
    args: argparse.Namespace, file: str, compiled: Mapping[str, object] | None
) -> int:
    """Print what the policy compiled from a file would have done.

    Raises InputError where it was not compiled, for its mistakes.
    """
    from advisor.loop import clock
    from advisor.store.opening import caller, is_owner
    from advisor.store.parquet import reader_of
    from advisor.store.seen import store_seen
    from advisor.views import simulated_words as words
    from advisor.views.simulation import simulate

    if compiled is None:
        raise InputError(
            f"{file} cannot be tried: it has mistakes", hint=f"advisor policy check {file}"
        )
    since = clock.since(args.since)
    if since > clock.now():
        raise UsageError(f"--since {args.since}: this is in the future", hint="write 30d")
    check_plot(args.plot)
    path = store_seen(args.db, "options", "history")
    with reader_of(path, args.history) as reader:
        user = None if is_owner(path) else caller()
        simulation = simulate(reader, compiled, since, user=user)
    name = file if file.startswith("<") else Path(file).name
    save_plot(words.picture(simulation, name), args.plot)
    if args.json:
        print_json("policy-simulate", words.answer(simulation, file))
        return 0
    for line in words.sentences(simulation, name):
        print(line)
    headers, rows, more = words.table(simulation)
    if rows:
        print()
        print_table(headers, rows)
    if more:
        print(f"and {more} more; --json has all")
    if args.plot is not None:
        print(f"picture: {args.plot}")
    return 0
