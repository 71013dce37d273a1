"""``advisor explain``: what the hook would do with a job script, and why. Nothing is submitted."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from advisor.cli.colour import say
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm, wire
from advisor.database import is_readable
from advisor.paths import socket_path, store_path

if TYPE_CHECKING:
    from advisor.core.decision import Decision
    from advisor.core.step_plan import PlannedStep
    from advisor.views.last_submission import LastSubmission
    from advisor.views.worth import Worth


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    parser.add_argument("script", metavar="SCRIPT", help="the job script, as for sbatch or qsub")
    parser.add_argument("--user", metavar="USER", help="decide as for this user (default: you)")
    parser.add_argument(
        "--scheduler",
        metavar="SCHEDULER",
        help="whose options are in the script (default: by its #PBS or #SBATCH lines)",
    )
    parser.add_argument(
        "--socket",
        metavar="FILE",
        help="ask the daemon at this socket (default: the one that answers from the store; where "
        "none does, the store itself)",
    )
    parser.add_argument("--diff", action="store_true", help="show the changed script")
    parser.add_argument(
        "--as-written",
        action="store_true",
        help="on PBS: decide on the script as it stands, also where its last submission reached "
        "the hook with other options",
    )
    parser.usage = "advisor explain SCRIPT [options] [-- SBATCH OR QSUB OPTIONS]"
    parser.set_defaults(takes_tail=True)


@dataclass(frozen=True, slots=True)
class ExplainAnswer(JsonForm):
    """The decision for a job that is not submitted."""

    decision: Decision = field(metadata=wire(inline=True))
    worth: Worth | None
    last_submission: Annotated[
        LastSubmission | None,
        "what the last submission of this script asked for otherwise; null for nothing",
    ]
    earlier_hooks: Annotated[
        Sequence[str],
        "PBS, for a script never submitted: the site's hooks that see jobs before the advisor's; "
        "empty where nothing is known",
    ]
    steps: Annotated[
        Sequence[PlannedStep],
        "what a step of srun gets where it starts, by its program, arguments, ranks and threads; "
        "of several entries that fit it the first counts. Empty where the job is decided as a "
        "whole, or nothing is known of its steps",
    ]


def run(args: argparse.Namespace) -> int:
    """Decide and print."""
    from advisor.schedulers.submission import payload_of, scheduler_of

    path = Path(args.script)
    scheduler = args.scheduler or scheduler_of(path)
    payload: dict[str, Any] = {
        "scheduler": scheduler,
        **payload_of(path, args.tail, args.user, scheduler=scheduler),
    }
    decision, earlier_hooks = _decide(args, payload)
    last = _last_submission(args, decision, path, payload)
    if last is not None:
        earlier_hooks = ()  # what they do to this script is seen
        if last.taken:
            options = payload["options"]
            changed = {"options": last.over(options), "explicit": options}
            decision, _ = _decide(args, {**payload, **changed})
    worth = _worth(args, decision)
    differs = last if last is not None and last.differing else None
    if args.json:
        steps = decision.plan.steps if decision.plan else ()
        print_json("explain", ExplainAnswer(decision, worth, differs, earlier_hooks, steps))
    else:
        _print(decision, worth, path, show_diff=args.diff)
        if differs is not None:
            say("", differs.line())
        if earlier_hooks:
            names = ", ".join(earlier_hooks)
            see = f"hook {names} sees" if len(earlier_hooks) == 1 else f"hooks {names} see"
            say("", f"note: this site's {see} jobs before the advisor and may change them")
    return 0


def _worth(args: argparse.Namespace, decision: Decision) -> Worth | None:
    """Return what the change is worth; runs and tariff where the store can be read."""
    from advisor.schedulers.submission import identity
    from advisor.store.reader import Reader
    from advisor.views.worth import of_decision

    path, user = store_path(args.db), identity(args.user)[1]
    if args.socket is not None or not is_readable(path):
        return of_decision(decision, None, user)
    with Reader(path) as reader:
        return of_decision(decision, reader, user)


def _last_submission(
    args: argparse.Namespace, decision: Decision, path: Path, payload: Mapping[str, Any]
) -> LastSubmission | None:
    """Return what the hook last saw of the script, where the history can be read."""
    from advisor.errors import AdvisorError
    from advisor.schedulers.translators import translator
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen
    from advisor.views.last_submission import last_submission

    if args.socket is not None:
        return None
    command_options = translator(str(payload["scheduler"])).read_arguments(args.tail)
    try:
        with Reader(store_seen(args.db, "history")) as reader:
            last = last_submission(reader, decision, path, payload["options"], command_options)
    except AdvisorError:
        return None
    return replace(last, taken={}) if last is not None and args.as_written else last


def _decide(
    args: argparse.Namespace, payload: Mapping[str, object]
) -> tuple[Decision, tuple[str, ...]]:
    from advisor.schedulers.submission import identity
    from advisor.views.explain import explain

    uid, user = identity(args.user)
    return explain(
        payload,
        store=store_path(args.db) if args.socket is None else None,
        socket=socket_path(args.socket),
        user=user,
        uid=uid,
    )


def _print(decision: Decision, worth: Worth | None, path: Path, *, show_diff: bool) -> None:
    from advisor.schedulers.here import named
    from advisor.views.decision import decision_lines
    from advisor.views.script import diff, rewritten

    say(*decision_lines(decision, worth.lines() if worth else ()))
    rewrite, environment = decision.rewrite, decision.environment
    if show_diff or rewrite or environment:
        print()
        try:
            old = path.read_text(errors="replace").splitlines()
        except OSError:
            return
        new = rewritten(old, rewrite, named(decision.scheduler), environment)
        for line in diff(old, new, str(path), f"{path} (as run)"):
            print(line)
