"""``advisor store backup``: write everything in the store to one file, while it is used."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from advisor import paths
from advisor.cli.output import print_json
from advisor.core.codec import Count, JsonForm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store backup`` takes."""
    parser.description = (
        "Write everything in the store to one file that only you can read, while the daemon goes "
        "on. A file of that name is replaced in one step. advisor store restore FILE puts it back."
    )
    parser.add_argument("path", metavar="FILE", type=Path, help="the backup")


@dataclass(frozen=True, slots=True)
class BackupAnswer(JsonForm):
    """The backup that was written."""

    store: str
    path: str
    bytes: Count


def run(args: argparse.Namespace) -> int:
    """Back up."""
    from advisor.mounts import check_answers
    from advisor.store.backup import backup

    source = paths.whole_store(args.db)
    check_answers(args.path)
    backup(source, args.path)
    size = args.path.stat().st_size
    if args.json:
        print_json("backup", BackupAnswer(str(source), str(args.path), size))
    else:
        print(f"{source} is backed up in {args.path}, {size / 1e6:.1f} MB")
    return 0
