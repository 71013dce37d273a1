"""``advisor import --from`` a scheduler's accounting: jobs of the past become runs."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.import_answers import ImportedJobs
from advisor.cli.output import print_json
from advisor.core.observation import by_quality
from advisor.core.recognise import ApplicationRule
from advisor.core.units import format_count
from advisor.errors import InputError
from advisor.loop.past_jobs import JobNaming, PastRuns, past_jobs
from advisor.schedulers.base import Scheduler
from advisor.store.reader import Reader
from advisor.store.rows import clean
from advisor.store.writer import ImportedFile, Writer

if TYPE_CHECKING:
    from advisor.cli.import_signatures import Contribution


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """The jobs of a file, lines that are none, and how many runs are new and known already."""

    jobs: int
    bad_lines: int
    imported: int
    skipped: int


def import_jobs(
    path: Path, args: argparse.Namespace, scheduler: Scheduler, contribution: Contribution
) -> int:
    """Import the jobs of an accounting file and print what came of it. Raises InputError."""
    try:
        text = args.file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot read {args.file}: {error.strerror}") from None
    jobs, bad = scheduler.read_accounting(args.file, text)
    with Reader(path) as reader:
        inventory, rules = reader.inventory(), reader.site().get("applications")
    if not inventory.node_types:
        raise InputError(
            "the inventory has no nodes, so it is not known what the jobs ran on",
            hint="advisor site discover",
        )
    application_rules = (
        [ApplicationRule.from_dict(r) for r in rules] if isinstance(rules, list) else []
    )
    naming = JobNaming(application_rules, args.application or "", args.workload)
    past = past_jobs(
        jobs,
        inventory,
        naming,
        meter=scheduler.NAME,
        scope=contribution.scope,
        user=None if contribution.owner else contribution.user,
    )
    if args.node_type:
        _keep_node_type(past, args.node_type)
    digest = hashlib.sha256(text.encode()).hexdigest()
    with Writer(path) as store, store.batch():
        imported, skipped = _store(store, args, past, digest, contribution.user)
    counts = ImportCounts(len(jobs), bad, imported, skipped)
    _print(args, past, counts, contribution)
    return 0


def _keep_node_type(past: PastRuns, name: str) -> None:
    for key, runs in list(past.runs.items()):
        past.runs[key] = [r for r in runs if r.configuration.node_type == name]
        dropped_count = len(runs) - len(past.runs[key])
        if dropped_count:
            past.left_out["another node type"] += dropped_count
        if not past.runs[key]:
            del past.runs[key]


def _store(
    store: Writer, args: argparse.Namespace, past: PastRuns, sha256: str, user: str
) -> tuple[int, int]:
    imported = skipped = 0
    for (application, workload), runs in past.runs.items():
        stored = (o.observation for o in store.observations(application, workload))
        stored_keys = {
            (r.job_id, r.contributor, r.extra.get("submitted_at"))
            for r in stored
            if r.source == "job"
        }
        fresh = [
            r for r in runs if (r.job_id, r.contributor, r.extra["submitted_at"]) not in stored_keys
        ]
        skipped += len(runs) - len(fresh)
        if fresh:
            imported += store.import_observations(
                application,
                workload,
                fresh,
                ImportedFile(args.file.name, sha256, user),
                again=True,
            )
    return imported, skipped


def _print(
    args: argparse.Namespace, past: PastRuns, counts: ImportCounts, contribution: Contribution
) -> None:
    runs = [run for group in past.runs.values() for run in group]
    notes = [f"{format_count(n, 'job')} left out: {why}" for why, n in past.left_out.most_common()]
    if past.impossible:
        notes.append(f"{format_count(past.impossible, 'impossible energy reading')} dropped")
    if counts.bad_lines:
        notes.append(f"not understood: {format_count(counts.bad_lines, 'line')}")
    names = sorted({application for application, _ in past.runs})
    if args.json:
        answer = ImportedJobs(
            file=clean(str(args.file)),
            application=names[0] if len(names) == 1 else "",
            applications=names,
            workload=args.workload,
            node_type=args.node_type or "",
            imported=counts.imported,
            skipped=counts.skipped,
            scope=contribution.scope,
            contributor=contribution.user,
            account=args.account,
            energy=by_quality(runs),
            source=args.source,
            jobs=counts.jobs,
            left_out=past.left_out,
            notes=notes,
            next="advisor fit APP",
        )
        print_json("import", answer)
        return
    print(
        f"{format_count(counts.jobs, 'job')}: {counts.imported} imported as runs of "
        f"{format_count(len(names), 'application')}, "
        f"{counts.skipped} known already"
    )
    for note in notes:
        print(f"  {note}")
    if counts.imported:
        print(
            "next: advisor fit APP (jobs help a model of measured runs; alone they confirm nothing)"
        )
