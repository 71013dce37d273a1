"""``advisor prune``: forget what the policy no longer keeps."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from advisor import paths
from advisor.cli.output import print_json
from advisor.core.units import format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor prune`` takes."""
    parser.description = (
        "Delete decisions and outcomes, and measured runs that no model uses, that are "
        "older than the policy's retention. Sums by month stay, and all models. advisor collect "
        "does the same."
    )
    parser.add_argument(
        "--older-than", metavar="TIME",
        help="forget decisions and outcomes older than this, like 400d (default: the policy's "
        "retention; 0d forgets all)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prune; exit code 3 where nothing says what to forget."""
    from advisor.errors import RefusedError
    from advisor.loop.retention import prune_old
    from advisor.store.connection import is_wal
    from advisor.store.opening import is_owner
    from advisor.store.writer import Writer

    path = paths.whole_store(args.db)
    if not is_owner(path):
        raise RefusedError(f"{path} is not yours", hint="ask the store's owner")
    is_wal(path)  # where there is no store none is made
    with Writer(path) as writer:
        done = prune_old(writer, args.older_than)
    if done is None:
        raise RefusedError(
            "everything is kept",
            hint="give --older-than 400d, or retention: {decisions: 400d} in the policy",
        )
    if args.json:
        print_json("prune", asdict(done))
    else:
        print(
            f"forgotten: {format_count(done.decisions, 'decision')}, "
            f"{format_count(done.outcomes, 'outcome')}, "
            f"{format_count(done.observations, 'measured run')}; sums by month are kept"
        )
    return 0
