"""``advisor jobs``: the jobs of the last days, a line each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.cli.arguments import add_cluster
from advisor.cli.output import print_json, print_table
from advisor.core.units import format_count

if TYPE_CHECKING:
    from datetime import datetime

    from advisor.core.worth import Tariff
    from advisor.views.recent import RecentJob

_VERDICTS = ("as-promised", "better", "worse", "unknown", "left-alone")
WAITING = "waiting"
"""What ``--verdict`` calls jobs that were not collected yet."""


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add what says which jobs: ``--since``, ``--user`` and ``--everybody``."""
    parser.add_argument(
        "--since",
        default="7d",
        metavar="TIME",
        help="from when, like 7d or 2026-01-31 (default: 7d)",
    )
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--user", metavar="USER", help="whose jobs (default: mine; others' need the store itself)"
    )
    whose.add_argument("--everybody", action="store_true", help="all users' jobs")
    add_cluster(parser, "only jobs of this cluster: Slurm's ClusterName, PBS's server")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor jobs`` takes."""
    parser.description = (
        "List my jobs of the last days, the latest first: when they ended, what was changed, the "
        "energy that was promised and measured against the job as written, and the verdict."
    )
    add_span(parser)
    parser.add_argument("--application", metavar="APP", help="only this application")
    parser.add_argument(
        "--verdict",
        choices=(*_VERDICTS, WAITING),
        metavar="VERDICT",
        help=f"only jobs that came out so: {', '.join(_VERDICTS)}, or {WAITING} for those not "
        "collected yet",
    )
    changed = parser.add_mutually_exclusive_group()
    changed.add_argument("--changed", action="store_true", help="only jobs that were changed")
    changed.add_argument("--unchanged", action="store_true", help="only jobs left as written")


@dataclass(frozen=True, slots=True)
class Span:
    """The jobs that ``add_span`` asks for; ``user`` is "" for all users."""

    since: datetime
    user: str
    jobs: Sequence[RecentJob]
    complete: bool
    tariff: Tariff


def read_span(args: argparse.Namespace) -> Span:
    """Read the jobs from the store, or from the daemon."""
    from advisor.core.worth import Tariff
    from advisor.loop import clock
    from advisor.store.opening import caller
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen
    from advisor.views.recent import recent_jobs

    since = clock.since(args.since)
    user = "" if args.everybody else args.user or caller()
    with Reader(store_seen(args.db, "history")) as reader:
        tariff = Tariff.of(reader.site())
        return Span(
            since,
            user,
            *recent_jobs(reader, since, user or None, tariff, args.cluster or ""),
            tariff,
        )


def run(args: argparse.Namespace) -> int:
    """List them."""
    from advisor.loop import clock
    from advisor.views.recent import HEADS, JobsAnswer

    span = read_span(args)
    every, tariff = span.jobs, span.tariff
    jobs = [job for job in every if _fits(job, args)]
    if args.json:
        print_json("jobs", JobsAnswer(clock.form(span.since), span.complete, jobs))
        return 0
    if not jobs:
        latest = "" if span.complete else "the latest "
        unfiltered_note = (
            f"; {latest}{format_count(len(every), 'job')} without these filters" * bool(every)
        )
        print(f"no jobs since {args.since} that the advisor knows of{unfiltered_note}")
        return 0
    heads: tuple[str, ...] = HEADS
    rows = [job.row() for job in jobs]
    empty = {"worth"} if tariff.price is None else set()
    if all(job.gpu_kwh is None for job in jobs):
        empty.add("GPUs")
    columns = [i for i, head in enumerate(HEADS) if head not in empty]
    heads = tuple(HEADS[i] for i in columns)
    rows = [tuple(row[i] for i in columns) for row in rows]
    if not span.user:
        heads = ("user", *heads)
        rows = [(job.user, *row) for job, row in zip(jobs, rows, strict=True)]
    if len({job.cluster for job in jobs}) > 1:
        heads = ("cluster", *heads)
        rows = [(job.cluster or "-", *row) for job, row in zip(jobs, rows, strict=True)]
    print_table(heads, rows)
    if not span.complete:
        print(f"these are of the latest {len(every)} jobs; a later --since has fewer, and all")
    return 0


def _fits(job: RecentJob, args: argparse.Namespace) -> bool:
    """Tell whether a job passes the filters."""
    if args.application and job.application != args.application:
        return False
    if args.verdict and (job.verdict or WAITING) != args.verdict:
        return False
    return not (args.changed and not job.changed) and not (args.unchanged and job.changed)
