"""``advisor store restore``: put a backup in the store's place."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from advisor import paths
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store restore`` takes."""
    parser.description = (
        "Check a backup and put it in the store's place in one step. The former store stays beside "
        "it, with its log. A running daemon loads the restored store within a second; it loses the "
        "decisions that it was about to write."
    )
    parser.add_argument("path", metavar="FILE", type=Path, help="what advisor store backup wrote")


@dataclass(frozen=True, slots=True)
class RestoreAnswer(JsonForm):
    """What is the store now, and where the one that was there is kept."""

    store: str
    path: str
    kept: str | None


def run(args: argparse.Namespace) -> int:
    """Restore."""
    from advisor.errors import RefusedError
    from advisor.mounts import check_answers
    from advisor.store.backup import restore
    from advisor.store.opening import is_owner

    store = paths.store_path(args.db, own=True)
    check_answers(args.path)
    if not is_owner(store):
        raise RefusedError(f"{store} is not yours", hint="ask the store's owner")
    former = restore(args.path, store)
    if args.json:
        answer = RestoreAnswer(str(store), str(args.path), str(former) if former else None)
        print_json("restore", answer)
    else:
        print(f"{store} is what {args.path} holds")
        if former:
            print(f"the store that was there is kept as {former}")
    return 0
