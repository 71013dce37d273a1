"""Arguments that every verb has, and actions below a verb (``advisor policy check``)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.core.cluster_name import read_cluster_name
from advisor.core.parameters import parse_sizes
from advisor.core.units import parse_duration_s
from advisor.errors import StoreError, UsageError

if TYPE_CHECKING:
    from advisor.core.rate import RateRule


def add_common(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Add what every verb takes: ``--db``, ``--config-dir`` and ``--json``.

    ``default`` is ``default=argparse.SUPPRESS`` where the parser above already has them.
    """
    parser.add_argument("--db", metavar="FILE", help="the store (or ADVISOR_DB)", **default)
    parser.add_argument(
        "--config-dir",
        metavar="DIR",
        **default,
        help="the folder of policy.yaml and site.yaml (or ADVISOR_CONFIG_DIR)",
    )
    text = "print one JSON object, for programs"
    parser.add_argument("--json", action="store_true", help=text, **default)


def add_cluster(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--cluster``: one name, None where it is not given."""
    parser.add_argument("--cluster", metavar="CLUSTER", type=cluster_argument, help=text)


def add_history(parser: argparse.ArgumentParser) -> None:
    """Declare --history."""
    parser.add_argument(
        "--history",
        metavar="FOLDER",
        type=Path,
        help="read jobs from this folder of advisor store history, also those pruned since; "
        "models, policy and site are the store's",
    )


def cluster_argument(text: str) -> str:
    """Read a cluster's name."""
    try:
        return read_cluster_name(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error.message} ({error.hint})") from None


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """Return the object that a verb's actions are added to; ``args.action`` names the one given."""
    return parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, prog=parser.prog
    )


def add_action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """Add one action; what every verb takes may stand before or behind it."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
    )
    add_common(parser, default=argparse.SUPPRESS)
    return parser


def add_application(
    parser: argparse.ArgumentParser, text: str, *, optional: bool = False, workload: str = ""
) -> None:
    """Add the argument ``APP[/WORKLOAD]`` and ``--workload``; :func:`find_workload` reads them."""
    parser.add_argument(
        "application", nargs="?" if optional else None, metavar="APP[/WORKLOAD]", help=text
    )
    parser.add_argument(
        "--workload", metavar="WORKLOAD", help=workload or "only this workload, as APP/WORKLOAD"
    )
    parser.set_defaults(names_workload=True)


def find_workload(args: argparse.Namespace) -> None:
    """Take ``APP/WORKLOAD`` apart; a stored application may have slashes in its name."""
    name = args.application or "" if getattr(args, "names_workload", False) else ""
    if "/" not in name.strip("/") or args.workload is not None:
        return
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen

    applications = set()
    with suppress(StoreError), Reader(store_seen(args.db)) as store:
        applications = {w.application for w in store.workloads()}
    if name not in applications:
        prefixes = [a for a in applications if name.startswith(f"{a}/")]
        args.application = max(prefixes, key=len, default=name.partition("/")[0])
        args.workload = name[len(args.application) + 1 :]


def add_subject(parser: argparse.ArgumentParser, node_type: str) -> None:
    """Add what says what runs: ``--application``, ``--workload`` and ``--node-type``."""
    parser.add_argument(
        "--application", metavar="APP", help="the application's name (default: recognised)"
    )
    parser.add_argument(
        "--workload", metavar="WORKLOAD", help="the name of its input or problem class"
    )
    parser.add_argument("--node-type", metavar="NODE_TYPE", help=node_type)


def number_list(option: str, text: str | None, parse: Callable[[str], int]) -> tuple[int, ...]:
    """Return the values of an option ``N,N``, ascending; () where it is not given."""
    values = set()
    for word in (text or "").split(","):
        if not word.strip():
            continue
        try:
            values.add(parse(word.strip()))
        except ValueError as error:
            why = f"{word.strip()!r} is not a whole number" if parse is int else error
            raise UsageError(f"{option}: {why}") from None
    if text is not None and not values:
        raise UsageError(f"{option} names no values", hint=f"{option} 8,16")
    return tuple(sorted(values))


def add_rate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--rate``, ``--rate-take`` and ``--rate-unit``."""
    from advisor.core.rate import TAKES

    parser.add_argument(
        "--rate",
        metavar="REGEX",
        help="read the program's own rate from its output: the number in the expression's group, "
        "like 'GFLOP/s: (\\S+)'; a run without it has failed",
    )
    parser.add_argument(
        "--rate-take", choices=TAKES, default="last", help="of several matches (default: last)"
    )
    parser.add_argument(
        "--rate-unit", default="", metavar="UNIT", help="the rate's unit, like GFLOP/s"
    )


def rate_rule(args: argparse.Namespace) -> RateRule | None:
    """Return how a rate is to be read, None where ``--rate`` does not say. Raises UsageError."""
    from advisor.core.rate import RateRule
    from advisor.errors import UsageError

    if args.rate is None:
        if args.rate_unit or args.rate_take != "last":
            raise UsageError("--rate-take and --rate-unit need --rate", hint="--rate REGEX")
        return None
    try:
        return RateRule(args.rate, args.rate_take, args.rate_unit)
    except ValueError as error:
        raise UsageError(f"--rate: {error}") from None


def size_argument(text: str) -> dict[str, float]:
    """Read ``n=4e6,nodes=64``."""
    try:
        return parse_sizes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def span_argument(text: str) -> float:
    """Read ``30s`` or ``10m`` in seconds, which a bare number is, too."""
    try:
        return parse_duration_s(text + "s" * text.replace(".", "", 1).isdecimal())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
