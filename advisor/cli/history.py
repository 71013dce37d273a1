"""``advisor store history``: keep decisions, outcomes and measured runs as Parquet files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor import paths
from advisor.cli.output import print_json
from advisor.core.codec import Count, JsonForm
from advisor.core.units import format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store history`` takes."""
    parser.description = (
        "Write decisions, outcomes and measured runs as Parquet files, one a month and table, into "
        "a folder that report and policy simulate read with --history. Only months that changed "
        "are written, and what was pruned from the store since stays in the folder. Needs "
        "hpc-advisor[history]."
    )
    parser.add_argument(
        "--to", metavar="FOLDER", type=Path, required=True, help="the folder, made if need be"
    )


@dataclass(frozen=True, slots=True)
class HistoryAnswer(JsonForm):
    """What was written: months, and the rows that their files have."""

    source: str
    folder: str
    months: Sequence[str]
    decisions: Count
    outcomes: Count
    observations: Count


def run(args: argparse.Namespace) -> int:
    """Bring the folder in step with the store."""
    from advisor.loop.history import write_history
    from advisor.mounts import check_answers
    from advisor.store.reader import Reader

    source = paths.whole_store(args.db)
    check_answers(args.to)
    with Reader(source, timeout_s=10.0) as reader:
        written = write_history(reader, args.to)
    months = sorted(written.months)
    if args.json:
        answer = HistoryAnswer(str(source), str(args.to), months, **written.rows)
        print_json("history", answer)
    elif months:
        count = format_count(written.rows["outcomes"], "job")
        print(f"{args.to}: wrote {', '.join(months)}, with {count}")
    else:
        print(f"{args.to}: nothing has changed")
    return 0
