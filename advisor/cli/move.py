"""``advisor store move``: bring the store from a file to PostgreSQL, or back."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Annotated

from advisor import paths
from advisor.cli.output import print_json
from advisor.core.codec import Count, JsonForm
from advisor.core.units import format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store move`` takes."""
    parser.description = (
        "Move the store from a file to an empty PostgreSQL database, or from there to a new file: "
        "all of it at one moment, or nothing. Nobody writes to it meanwhile; running daemons "
        "decide from memory, and follow. Other verbs say where the store is until ADVISOR_DB or "
        "--db names it. Killed and done again, it goes on."
    )
    parser.add_argument(
        "--to", metavar="STORE", required=True, help="postgresql://HOST/DATABASE, or a file"
    )
    parser.add_argument(
        "--copy", action="store_true", help="only copy: what it is copied from stays the store"
    )


@dataclass(frozen=True, slots=True)
class MoveAnswer(JsonForm):
    """The store that was moved."""

    source: str
    target: str
    rows: Annotated[dict[str, Count], "of each table; both sides were counted"]
    left: Annotated[tuple[str, ...], "tables of packages, which stayed where they were"]


def run(args: argparse.Namespace) -> int:
    """Move the store."""
    from advisor.database import store_at
    from advisor.loop.spool import move_spool
    from advisor.store.move import move

    source, target = paths.whole_store(args.db), store_at(args.to)
    moved = move(source, target, away=not args.copy)
    if not args.copy:
        move_spool(source, target)
    if args.json:
        print_json("move", MoveAnswer(str(source), str(target), moved.rows, moved.left))
        return 0
    rows = format_count(sum(moved.rows.values()), "row")
    if args.copy:
        print(f"{source} is in {target} as well, {rows}")
    else:
        print(f"{source} is now in {target}, {rows}; name it with ADVISOR_DB from now on")
    if moved.left:
        print(f"left where they were, tables of packages: {', '.join(moved.left)}")
    return 0
