"""``advisor store forget``: remove what was measured of an application; undo it for a day."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor import paths
from advisor.cli.asking import add_yes, ask
from advisor.cli.output import print_json
from advisor.core.codec import Count, JsonForm, wire
from advisor.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from advisor.store.forgetting import MeasuredResults, ResultKind
    from advisor.store.reader import Reader

_NAMES = {
    "models": ("model", "models"),
    "observations": ("measured run", "measured runs"),
    "characterisations": ("characterisation", "characterisations"),
    "signatures": ("signature", "signatures"),
    "trials": ("trial", "trials"),
    "rankings": ("estimated node type", "estimated node types"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store forget`` takes."""
    parser.description = (
        "Remove an application's models, measured runs, characterisations, rankings, signatures "
        "and trials from the store. From the next second on its jobs run as they are written. The "
        "decisions for jobs and their outcomes are kept. Only the store's owner can do this."
    )
    parser.add_argument(
        "application", metavar="APP[/WORKLOAD]", help="the application, or one workload"
    )
    parser.add_argument(
        "--since", metavar="TIME", help="only what was stored since then, like 7d or 2026-01-31"
    )
    parser.add_argument(
        "--undo", action="store_true", help="restore what was removed in the last 24 hours"
    )
    add_yes(parser)


@dataclass(frozen=True, slots=True)
class ForgottenWorkload(JsonForm):
    """How much of a workload was removed, or had back."""

    workload: str
    counts: Mapping[ResultKind, Count] = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class ForgetAnswer(JsonForm):
    """What was removed of an application, or had back."""

    application: str
    workload: str | None
    since: str | None
    undo: bool
    workloads: Sequence[ForgottenWorkload]


def run(args: argparse.Namespace) -> int:
    """Forget or undo; exit code 2 for an unknown name, 3 when there is nothing to do."""
    from advisor.derive.worker import deriving
    from advisor.loop import clock
    from advisor.store.forgetting import forget, forgotten, measured, remember
    from advisor.store.opening import caller, is_owner
    from advisor.store.reader import Reader

    if args.undo and args.since:
        raise UsageError("--undo takes back all of the last day, so it takes no --since")
    since = "" if args.since is None else _stored_form(clock.form(clock.since(args.since)))
    path = paths.whole_store(args.db)
    with Reader(path) as store:
        measured_results = forgotten(store) if args.undo else _all_results(store)
        application, workload = _workload_named(args.application, measured_results, undo=args.undo)
        if store.published:
            raise RefusedError(
                f"{path} is a published copy", hint="forget in the store itself, then publish again"
            )
        if args.undo:
            chosen = [m for m in measured_results if m.application == application]
            chosen = [m for m in chosen if workload in (None, m.workload)]
        else:
            chosen = measured(store, application, workload, since=since)
            chosen = [m for m in chosen if m.anything or not since]
    if not is_owner(path):
        raise RefusedError(f"{path} is not yours", hint="ask the store's owner")
    if since and not chosen:
        raise RefusedError(f"nothing of {args.application} was stored since {args.since}")
    if not args.undo:
        ask(args, _lines(chosen))
    with deriving(path) as writer:
        if args.undo:
            changed_results = remember(writer, application, workload)
        else:
            changed_results = forget(writer, application, workload, since=since, by=caller())
            runs_remain = bool(since) and any(writer.observations(application, workload))
    if args.json:
        workloads = [ForgottenWorkload(m.workload, m.counts) for m in changed_results]
        answer = ForgetAnswer(application, workload, since or None, args.undo, workloads)
        print_json("forget", answer)
        return 0
    print("back again:" if args.undo else "forgotten:")
    _print(changed_results)
    if args.undo:
        print("what was measured since is kept; a newer model stays the one that is used")
    else:
        print(f"undo within a day: advisor store forget {_quoted(args.application)} --undo")
        if since and runs_remain:
            print(f"fit what is left: advisor fit {_quoted(application)}")
    return 0


def _all_results(store: Reader) -> list[MeasuredResults]:
    from advisor.store.forgetting import MeasuredResults

    return [MeasuredResults(w.application, w.name) for w in store.workloads()]


def _workload_named(
    text: str, measured_results: Sequence[MeasuredResults], *, undo: bool
) -> tuple[str, str | None]:
    """Return application and workload (None: all) of a name; both may have slashes in them.

    Raises UsageError, which names the nearest, when there is none such.
    """
    from advisor.core.nearest import suggestion

    applications = {m.application for m in measured_results}
    if text in applications:
        return text, None
    for m in measured_results:
        if text == f"{m.application}/{m.workload}":
            return m.application, m.workload
    names = [*applications, *(f"{m.application}/{m.workload}" for m in measured_results)]
    absence = "nothing was forgotten in the last day" if undo else "nothing is stored"
    raise UsageError(f"{absence} of {text!r}", hint=suggestion(text, names))


def _print(results: Sequence[MeasuredResults]) -> None:
    for line in _lines(results):
        print(f"  {line}")


def _lines(results: Sequence[MeasuredResults]) -> list[str]:
    lines = []
    for m in results:
        parts = [f"{count} {_NAMES[kind][count != 1]}" for kind, count in m.counts.items() if count]
        lines.append(f"{m.application}/{m.workload}: {', '.join(parts) or 'its name'}")
    return lines or ["nothing"]


def _stored_form(when: str) -> str:
    """Return a time with the fraction of a second that the store's times have."""
    return when.replace("Z", ".000000Z")


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)
