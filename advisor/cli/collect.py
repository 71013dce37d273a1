"""``advisor collect``: join decisions with the scheduler's accounting, take over users' runs."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from advisor import paths
from advisor.cli.arguments import add_cluster
from advisor.cli.output import print_json
from advisor.cli.report import SuspendedModel
from advisor.core.codec import JsonForm
from advisor.core.units import format_count
from advisor.paths import beside

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.loop.collect import Collected
    from advisor.loop.left_results import LeftFiles
    from advisor.loop.spool import Spooled

_LOCK = ".collect.lock"
"""One collection holds this file beside the store; that it is there tells of a store that was."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor collect`` takes."""
    parser.description = (
        "Read from the scheduler's accounting how jobs came out, compare that with the promises, "
        "and suspend models whose jobs came out worse. Also store the runs and characterisations "
        "that users sent to the daemon, or left in their own folders because the daemon is "
        "read-only. Run it from a timer; running it twice changes nothing."
    )
    parser.add_argument(
        "--scheduler",
        metavar="SCHEDULER",
        help="whose accounting to read: slurm or pbs (default: the one this machine has)",
    )
    add_cluster(
        parser,
        "whose jobs: a ClusterName in Slurm's database, a PBS server (default: this host's)",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="read jobs that ended since then, like 7d or 2026-01-31 (default: since the last "
        "collection, at most 7 days)",
    )
    parser.add_argument(
        "--spool", action="store_true", help="only store what users sent to the daemon"
    )
    parser.add_argument(
        "--left",
        metavar="USER:FOLDER",
        action="append",
        default=[],
        help="also read this folder of a user, which no sweep's job has named",
    )


def run(args: argparse.Namespace) -> int:
    """Collect. Returns 0, also when there was nothing new."""
    from advisor.derive.worker import deriving
    from advisor.errors import RefusedError, StoreError
    from advisor.loop import clock
    from advisor.loop.collect import collect, watermark
    from advisor.loop.left_results import ended, note_places, place_of, take_left
    from advisor.loop.refit import refit
    from advisor.loop.rerank import rank_delivered, rank_renewed, site_thresholds
    from advisor.loop.retention import history_folder, prune_old
    from advisor.loop.spool import held, spool_folder, take_spool
    from advisor.schedulers.choose import create, default
    from advisor.service.scopes import take_usual_priority
    from advisor.store.forgetting import purge
    from advisor.store.pruning import purge_pruned

    logging.basicConfig(
        stream=sys.stderr, level="WARNING", format="level=%(levelname)s %(message)s"
    )
    store = paths.whole_store(args.db)
    if paths.only_read_here(store):
        raise RefusedError(
            f"{store} is a published copy, which this host's daemon only reads",
            hint="collect on the store's host",
        )
    if not store.exists() and (beside(store) / _LOCK).exists():
        raise StoreError(
            f"{store}: the store is gone; nothing is collected into an empty one",
            hint="put a backup back with advisor store restore FILE, or start an empty store with "
            "advisor site apply",
        )
    since = clock.since(args.since or "7d")
    by_hand = {place_of(text): ended("") for text in args.left}
    collected = left_files = None
    if args.spool:  # as the daemon starts it
        take_usual_priority()
    with deriving(store) as writer:
        purge(writer)
        purge_pruned(writer)
        history = history_folder(writer)
        if history is None:
            prune_old(writer)
        thresholds = site_thresholds(paths.config_dir(args.config_dir))
        take = partial(
            take_spool,
            writer,
            spool_folder(store),
            refit,
            partial(rank_delivered, thresholds=thresholds),
            partial(rank_renewed, thresholds=thresholds),
        )
        spooled = take()
        if not args.spool:
            scheduler = create(args.scheduler) if args.scheduler else default()
            if args.cluster:
                scheduler.of_cluster(args.cluster)
            cluster = args.cluster or scheduler.cluster_name()
            with held(beside(store), _LOCK):
                if args.since is None:
                    since = watermark(writer, scheduler.NAME, since, cluster)
                collected = collect(writer, scheduler, since, cluster)
                places = note_places(beside(store) / "places.json", {**collected.places, **by_hand})
                left_files = take_left(places, spool_folder(store), writer.inventory())
            spooled.add(take())
            name = " ".join(filter(None, (scheduler.NAME, collected.cluster)))
    if args.json:
        print_json("collect", _answer(collected, spooled, left_files))
    else:
        if collected is not None:
            _print(collected, name)
        if left_files is not None:
            _print_left(left_files)
        _print_spool(spooled, spool_only=args.spool)
    if history is not None and not args.spool:  # last: a month takes long to write
        _prune(store, history)
    return 0


def _prune(store: Path, history: Path) -> None:
    """Forget what the policy no longer keeps, once it is in the history; if not, say why."""
    from advisor.errors import AdvisorError
    from advisor.loop.retention import prune_months
    from advisor.store.writer import Writer

    try:
        with Writer(store) as writer:
            prune_months(writer, history)
    except AdvisorError as error:
        print(f"advisor: nothing is forgotten without its history: {error}", file=sys.stderr)


def _print(collected: Collected, name: str) -> None:
    new = collected.outcomes
    print(
        f"{name}: {format_count(collected.jobs, 'job')} ended since {collected.since}: "
        f"{len(new)} new, "
        f"{collected.known} known, {collected.without} without a decision"
    )
    for verdict in ("as-promised", "better", "worse", "unknown", "left-alone"):
        count = collected.verdicts[verdict]
        if count:
            print(f"  {verdict:<12} {count}")
    if collected.impossible:
        print(f"  {format_count(collected.impossible, 'impossible energy reading')} dropped")
    if collected.observations:
        print(f"  {format_count(collected.observations, 'job')} kept as measured runs")
    for line in collected.fits:
        print(f"  {line}, with jobs")
    if collected.signatures:
        print(f"  signatures   {collected.signatures}")
    for state, count in sorted(collected.trials.items()):
        if count:
            print(f"  {'trial' if count == 1 else 'trials'} {state}: {count}")
    if collected.programs:
        programs = format_count(collected.programs, "rebuilt program")
        print(f"  {programs} came out as predicted: advised again")
    if collected.decisions:
        print(f"  {format_count(collected.decisions, 'decision')} added from jobs' stamps")
    for s in collected.suspended:
        m = s.model
        print(
            f"suspended: model {m.id} of {m.application} ({m.workload}) on {m.node_type}: "
            f"{s.reason}"
        )
    for c in collected.complaints:
        m = c.model
        print(
            f"note: {m.application} ({m.workload}) on {m.node_type} is kept, others' jobs come "
            f"out as promised, but {c.user}'s are {c.reason}"
        )
    for line in collected.failed:
        print(f"advisor: skipped {line}", file=sys.stderr)


def _print_left(left_files: LeftFiles) -> None:
    if left_files.files or left_files.more:
        more = f"; {left_files.more} more at the next collection" if left_files.more else ""
        print(f"left by users on other hosts: {format_count(left_files.files, 'file')} taken{more}")
    for line in left_files.refused:
        print(f"advisor: refused, and renamed for its owner: {line}", file=sys.stderr)
    for line in left_files.problems:
        print(f"advisor: users' files cannot be read now: {line}", file=sys.stderr)


def _print_spool(spooled: Spooled, *, spool_only: bool) -> None:
    if spooled.files or spool_only:
        phases = spooled.characterisations
        more = f" and {format_count(phases, 'characterisation')}" if phases else ""
        if spooled.kernels:
            more += f" and {format_count(spooled.kernels, 'profile')} of users' own kernels"
        print(
            f"spool: {format_count(spooled.observations, 'run')}{more} from "
            f"{format_count(spooled.files, 'file')}"
        )
    if spooled.waiting:
        print(f"  {format_count(spooled.waiting, 'file')} more at the next collection")
    for line in (*spooled.fits, *spooled.rankings):
        print(f"  {line}")
    for line in spooled.bad:
        print(f"advisor: set aside in spool/bad: {line}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class SpoolAnswer(JsonForm):
    """What was taken from the spool alone."""

    spool: Spooled


@dataclass(frozen=True, slots=True)
class CollectAnswer(JsonForm):
    """What one collection took from the accounting, from the spool, and from users' own folders."""

    since: str
    cluster: Annotated[str, "empty where the scheduler does not name it"]
    jobs: int
    new: int
    known: int
    without_decision: int
    verdicts: Mapping[str, int]
    impossible_energies: Annotated[
        int, "new outcomes whose meter said what their nodes cannot have used"
    ]
    observations: int
    signatures: int
    fits: Annotated[list[str], "models fitted again with jobs"]
    decisions_from_stamps: int
    programs: int
    trials: Mapping[str, int]
    outcomes: list[NewOutcome]
    suspended: list[SuspendedModel]
    complaints: list[UserComplaint]
    skipped: list[str]
    spool: Spooled
    left: LeftFiles


ANSWERS = (CollectAnswer, SpoolAnswer)


@dataclass(frozen=True, slots=True)
class NewOutcome(JsonForm):
    """How a job came out."""

    job: str
    user: str
    state: str
    verdict: str


@dataclass(frozen=True, slots=True)
class UserComplaint(JsonForm):
    """A model that is wrong for one user."""

    model: int
    user: str
    reason: str


def _answer(
    collected: Collected | None, spooled: Spooled, left_files: LeftFiles | None
) -> CollectAnswer | SpoolAnswer:
    if collected is None or left_files is None:
        return SpoolAnswer(spooled)
    return CollectAnswer(
        since=collected.since,
        cluster=collected.cluster,
        jobs=collected.jobs,
        new=len(collected.outcomes),
        known=collected.known,
        without_decision=collected.without,
        verdicts=collected.verdicts,
        impossible_energies=collected.impossible,
        observations=collected.observations,
        signatures=collected.signatures,
        fits=collected.fits,
        decisions_from_stamps=collected.decisions,
        programs=collected.programs,
        trials={state: n for state, n in sorted(collected.trials.items()) if n},
        outcomes=[NewOutcome(o.job_id, o.user, o.state, o.verdict) for o in collected.outcomes],
        suspended=[
            SuspendedModel(
                s.model.id, s.model.application, s.model.workload, s.model.node_type, s.reason
            )
            for s in collected.suspended
        ],
        complaints=[UserComplaint(c.model.id, c.user, c.reason) for c in collected.complaints],
        skipped=collected.failed,
        spool=spooled,
        left=left_files,
    )
