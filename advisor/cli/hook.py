"""``advisor hook``: install, remove or look at a scheduler's hook."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from advisor.cli.arguments import add_action, add_actions, span_argument
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm, wire
from advisor.errors import AdvisorError, UsageError
from advisor.paths import config_dir, store_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.schedulers.base import ClientReport, HookReport, HookRequest
    from advisor.schedulers.plan import Plan

Action = Literal["install", "remove"]
DEADLINE_LIMIT_S = 5.0
"""Longest deadline a site may set: a submission waits no longer than this."""


@dataclass(frozen=True, slots=True)
class HookAnswer(JsonForm):
    """What an install or a removal does, or what is installed."""

    action: Action
    scheduler: str
    dir: str
    done: bool
    steps: Sequence[str]
    notes: Sequence[str]
    kept: Sequence[str]


@dataclass(frozen=True, slots=True)
class HookStatus(JsonForm):
    """What is installed."""

    action: Literal["status"]
    scheduler: str
    report: HookReport = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class ClientStatus(JsonForm):
    """With --login: the program before qsub alone."""

    action: Literal["status"]
    scheduler: str
    report: ClientReport = field(metadata=wire(inline=True))


ANSWERS = (HookAnswer, HookStatus, ClientStatus)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    actions = add_actions(parser)
    install = add_action(actions, "install", "put the hook into the scheduler, and keep your own")
    remove = add_action(actions, "remove", "take the hook out and put your own back")
    status = add_action(actions, "status", "show what is installed and whether the daemon answers")
    for action in (install, remove, status):
        action.add_argument(
            "--scheduler",
            metavar="SCHEDULER",
            help="whose hook (default: of the scheduler whose commands are installed)",
        )
        action.add_argument(
            "--dir",
            type=Path,
            metavar="DIR",
            help="Slurm: the folder of slurm.conf (default: the one that Slurm uses here); "
            "PBS: where to keep what is imported (default: pbs in the configuration's folder)",
        )
        action.add_argument(
            "--login",
            type=Path,
            metavar="DIR",
            help="PBS: only the program that goes before qsub, in DIR on a login node",
        )
    for action in (install, status):
        action.add_argument(
            "--socket", metavar="FILE", help="the daemon's socket (or ADVISOR_SOCKET)"
        )
    install.add_argument(
        "--deadline",
        default="250ms",
        metavar="TIME",
        help="how long a submission waits for the daemon at most (default: 250ms)",
    )
    install.add_argument(
        "--retry",
        type=span_argument,
        default="30s",
        metavar="TIME",
        help="when the daemon hung, do not ask it for this long, in whole seconds (default: 30s)",
    )
    install.add_argument(
        "--node-cap",
        action="store_true",
        help="Slurm: also the prolog and epilog that cap what srun does not start; slurm.conf has "
        "to name it",
    )
    for action in (install, remove):
        action.add_argument(
            "--dry-run", action="store_true", help="show what would be done, do nothing"
        )


def run(args: argparse.Namespace) -> int:
    """Do one action."""
    from advisor.schedulers.choose import create, installed

    if args.action == "install" and args.retry < 1:
        raise UsageError("--retry is at least 1 second")
    scheduler = create(args.scheduler) if args.scheduler else installed()
    hooks = scheduler.hooks(_request(args, scheduler.cluster_name))
    if args.action == "status":
        report, lines = hooks.status(_daemon)
        if args.json:
            print_json("hook", _status(scheduler.NAME, report))
        else:
            print("\n".join(lines))
        return 0
    plan = hooks.plan()
    if not args.json:
        _say(args, plan)
    if not args.dry_run:
        plan.run()
    if args.json:
        answer = HookAnswer(
            args.action,
            scheduler.NAME,
            str(hooks.folder),
            not args.dry_run,
            plan.lines,
            plan.notes,
            plan.kept,
        )
        print_json("hook", answer)
    elif not args.dry_run:
        for name in plan.kept:
            print(f"note: {name} stays for now, it is in use (run this again later)")
        print("done" if plan.lines else "nothing to do")
    return 0


def _status(scheduler: str, report: HookReport | ClientReport) -> HookStatus | ClientStatus:
    if "client" in report:
        return ClientStatus("status", scheduler, report)
    return HookStatus("status", scheduler, report)


def _request(args: argparse.Namespace, cluster_name: Callable[[], str]) -> HookRequest:
    from advisor.schedulers.base import HookRequest
    from advisor.store.clusters import axes_written, frequency_steps
    from advisor.store.reader import understood_options

    request = HookRequest(
        args.action, args.dir, args.login, vars(args).get("socket"), config_dir(args.config_dir)
    )
    if args.action != "install":
        return request
    store = store_path(args.db)
    axes, axis_steps = axes_written(store, cluster_name)
    return replace(
        request,
        deadline_s=_seconds(args.deadline),
        retry_s=round(args.retry),
        understood=understood_options(store),
        frequency_steps=frequency_steps(store, cluster_name),
        axes=axes,
        axis_steps=axis_steps,
        node_cap=args.node_cap,
    )


def _say(args: argparse.Namespace, plan: Plan) -> None:
    for line in plan.lines:
        print(f"{'would ' if args.dry_run else ''}{line}")
    for note in plan.notes:
        print(f"note: {note}")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip())
    value = float(match[1]) * (0.001 if match[2] == "ms" else 1.0) if match else 0.0
    if not 0 < value <= DEADLINE_LIMIT_S:
        raise UsageError(
            f"--deadline {text} is not a time from 1ms to {DEADLINE_LIMIT_S:g}s", hint="as 250ms"
        )
    return value


def _daemon(socket: Path) -> str:
    from advisor.core.protocol import call

    try:
        answer = call(socket, {"v": 1, "op": "ping"}, timeout_s=2.0)
    except AdvisorError as error:
        return str(error)
    return f"advisor {answer.get('version')} answers at {socket}"
