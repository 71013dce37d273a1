"""``advisor store publish``: make a read-only copy of the store for other hosts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from advisor import paths
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm
from advisor.core.units import format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store publish`` takes."""
    parser.description = (
        "Write a consistent read-only copy of the store and replace the former copy in one step. "
        "Daemons on other hosts answer from it (advisor serve --read-only --db FILE) and notice "
        "when it is replaced."
    )
    parser.add_argument("path", metavar="FILE", type=Path, help="the copy")
    parser.add_argument(
        "--history",
        action="store_true",
        help="put decisions and outcomes into the copy: everybody who can read the copy "
        "sees who ran what",
    )
    parser.add_argument("--no-history", action="store_true", help=argparse.SUPPRESS)


@dataclass(frozen=True, slots=True)
class PublishAnswer(JsonForm):
    """The published copy."""

    source: str
    path: str
    bytes: int
    models: int
    workloads: int
    history: bool
    replaced: Annotated[bool, "false: the copy that was there holds the same"]


def run(args: argparse.Namespace) -> int:
    """Publish the store."""
    from advisor.mounts import check_answers
    from advisor.store.listing import count_workloads
    from advisor.store.publish import publish
    from advisor.store.reader import Reader

    source = paths.whole_store(args.db)
    check_answers(args.path)
    replaced = publish(source, args.path, history=args.history)
    size = args.path.stat().st_size
    with Reader(args.path) as copy:
        models, (workloads, _) = len(copy.model_stamps()), count_workloads(copy)
    if args.json:
        counts = models, workloads, args.history, replaced
        print_json("publish", PublishAnswer(str(source), str(args.path), size, *counts))
        return 0
    print(
        f"published {args.path}: {format_count(models, 'model')} of "
        f"{format_count(workloads, 'workload')}, {size / 1e6:.1f} MB"
        + ("" if replaced else ", the same as before")
    )
    return 0
