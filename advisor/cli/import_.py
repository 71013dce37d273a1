"""``advisor import``: take over measured runs from a CSV file or HPCProbe's results summary."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import laboratory, paths, plugins
from advisor.cli.output import print_json
from advisor.core.acting_columns import acting_columns, acting_in_words
from advisor.core.observation import Observation, Quality, Scope, by_quality
from advisor.core.power import DROPPED, without_impossible
from advisor.core.units import format_count
from advisor.core.whole_runs import OUTSIDE, outside, skipped_notes
from advisor.errors import InputError, RefusedError, UsageError

if TYPE_CHECKING:
    from advisor.cli.import_signatures import Contribution
    from advisor.schedulers.base import Scheduler
    from advisor.store.csvfile import ReadStep, RunsFile, Terms

EAR, EXTRAP = "ear", "extrap"
_BY_ENDING = {".yml": "hpcprobe", ".yaml": "hpcprobe"}
"""Formats that a file's name tells."""
_AXES = ("nodes", "ranks_per_node", "threads_per_node", "freq_khz")
_ADVISES = {"all": "everybody's jobs", "account": "jobs of account {1}", "own": "jobs of {0} only"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor import`` takes."""
    parser.description = (
        "Import measured runs from a CSV file with the columns nodes, ranks_per_node, "
        "threads_per_node (ranks x threads of one node), freq_khz (0 where no cap can be set), "
        "time_s, energy_j (of all nodes; blank or 0: not measured) and, if you like, fom. Other "
        "columns are kept with each run. A .yml or .yaml file is HPCProbe's results summary. "
        "If the file has a mistake, nothing is imported."
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the CSV or YAML file")
    parser.add_argument(
        "--from",
        dest="source",
        choices=(*_formats(), *_accountings()),
        metavar="FORMAT",
        help="take signatures from ear (eacct -c, releases 4 to 6; its jobs become runs), perf "
        "(perf stat -x, or -j), likwid (likwid-perfctr) or papi (the high-level interface's JSON); "
        "or runs from extrap (Extra-P's text, JSON or JSON lines) or hpcprobe (a results summary); "
        "or jobs of the past from the accounting, as sacct -P or the server's log has it: "
        + ", ".join(_accountings()),
    )
    parser.add_argument(
        "--application",
        metavar="APP",
        help="the application's name (--from ear: default: as the file names them)",
    )
    parser.add_argument(
        "--workload",
        default="default",
        metavar="WORKLOAD",
        help="the name of its input or problem class (default: default)",
    )
    parser.add_argument(
        "--node-type",
        metavar="NODE_TYPE",
        help="the node type it ran on (of the accounting: only jobs there; --from ear: default: "
        "that of the nodes in the file)",
    )
    parser.add_argument(
        "--retired",
        action="store_true",
        help="the node type, or nodes of it, are no longer there: the inventory need not know them",
    )
    parser.add_argument(
        "--events",
        metavar="FILE",
        type=Path,
        help="EAR's events of the same jobs (eacct -x): its own phases, beside our class",
    )
    parser.add_argument(
        "--scope",
        choices=("own", "account", "all"),
        help="whose jobs the runs may advise (default: all if the store is yours, else own)",
    )
    parser.add_argument("--contributor", metavar="USER", help="who made the runs (default: you)")
    parser.add_argument(
        "--account", default="", metavar="NAME", help="the account that the runs belong to"
    )
    parser.add_argument(
        "--energy",
        choices=("measured", "estimated"),
        default="measured",
        help="whether the energies were measured or estimated (default: measured)",
    )
    parser.add_argument(
        "--meter", default="", metavar="NAME", help="the meter that measured the energy"
    )
    parser.add_argument(
        "--parameters",
        default="",
        metavar="NAME,...",
        help="columns that are parameters of the job's size: each size becomes a workload",
    )
    parser.add_argument(
        "--again", action="store_true", help="import the runs even if this file was imported before"
    )

    extrap = parser.add_argument_group("Extra-P's files")
    extrap.add_argument("--region", default="", metavar="NAME", help="the region that counts")
    extrap.add_argument(
        "--configuration",
        type=_configuration,
        default={},
        metavar="AXIS=VALUE,...",
        help="what nodes, ranks_per_node, threads_per_node and freq_khz are: a number, or a "
        "parameter's name (default: the parameter of that name); the others are the job's size",
    )
    summary = parser.add_argument_group("HPCProbe's results summary, and Extra-P's metrics")
    for what, unit in (("time", "s"), ("energy", "J"), ("fom", "a rate")):
        summary.add_argument(
            f"--{what}-key",
            default="",
            metavar="NAME",
            help=f"the name of the objective that holds {what} ({unit})",
        )
    summary.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with this parameter, like execParam=200000; can be repeated",
    )


def _configuration(text: str) -> dict[str, str]:
    pairs = dict(part.partition("=")[::2] for part in text.split(","))
    wrong = [n for n, value in pairs.items() if n not in _AXES or not value]
    if wrong:
        axis_names = ", ".join(_AXES)
        raise argparse.ArgumentTypeError(f"{wrong[0]!r}: write AXIS=VALUE with {axis_names}")
    return pairs


def _formats() -> tuple[str, ...]:
    """Return the formats of other programs: EAR's, the laboratory's and what packages add."""
    return tuple(dict.fromkeys([EAR, *laboratory.IMPORTERS, *plugins.names("importers")]))


def _importer(args: argparse.Namespace) -> Any:
    """Return the module that reads the file, None for a CSV file, EAR's and the accounting's.

    One that reads what was counted in a run has ``read_counts(file)``, which returns Counts or a
    Signature; one that reads runs has ``read_runs(file, terms, args)``, which returns a RunsFile.
    Both raise InputError. Raises LaboratoryError.
    """
    ending = args.file.suffix.lower()
    source = args.source or _BY_ENDING.get(ending)
    if source is None or source == EAR or source in _accountings():
        return None
    words = f"import --from {source}" if args.source else f"import of {ending} files"
    return laboratory.load("importers", source, words)


def _accountings() -> dict[str, Scheduler]:
    """Return the schedulers whose accounting can be imported, by what its files are called."""
    from advisor.schedulers.choose import every

    return {s.ACCOUNTING: s for s in every() if getattr(s, "ACCOUNTING", "")}


def _check_given(args: argparse.Namespace) -> None:
    missing = [
        name
        for name, value in (
            ("--application", args.application or args.source == EAR),
            ("--node-type", args.node_type or args.source == EAR),
        )
        if not value
    ]
    if missing:
        raise UsageError(f"the following arguments are required: {', '.join(missing)}")


def run(args: argparse.Namespace) -> int:
    """Import the file. Returns 0, also when all of it was imported before."""
    from advisor.cli.import_signatures import Contribution
    from advisor.store import rows
    from advisor.store.opening import caller, is_owner

    past = args.source in _accountings()
    if not past:
        _check_given(args)
    importer = _importer(args)
    signatures = args.source == EAR or hasattr(importer, "read_counts")
    path = paths.whole_store(args.db)
    user = caller()
    contributor = args.contributor or user
    owner = is_owner(path)
    scope: Scope = args.scope or ("all" if owner else "own")
    if not owner and (scope != "own" or contributor != user):
        raise RefusedError(
            f"{path} is not yours: you may import your own runs for your own jobs only",
            hint=f"leave out --scope and --contributor; then ask the store's owner: "
            f"advisor store promote {args.application or 'APP'} --scope all --contributor {user}",
        )
    if scope == "account" and not args.account:
        raise UsageError("--scope account needs --account")
    for what, name in (
        ("application", args.application or "none"),
        ("workload", args.workload),
        ("node type", args.node_type or "none"),
        ("contributor", contributor),
        ("account", args.account or "none"),
        ("meter", args.meter or "none"),
    ):
        rows.check_name(what, name)
    named = {"application": args.application, "workload": args.workload}
    if args.application:
        args.application = _as_recognised("application", args.application)
    args.workload = _as_recognised("workload", args.workload)
    contribution = Contribution(user, owner, contributor, scope)
    if signatures:
        code = _signatures(path, args, importer, contribution)
    else:
        if args.node_type:
            args.node_type = _node_type(path, args.node_type)
        code = _take_in(args, path, importer, contribution)
    for what, name in named.items():  # nothing of a file that was refused is stored
        if name != (stored := getattr(args, what)):
            print(f"advisor: stored as {what} {stored!r}, as jobs are recognised", file=sys.stderr)
    return code


def _take_in(
    args: argparse.Namespace, path: Path, importer: Any, contribution: Contribution
) -> int:
    """Import the runs that the file holds, or the accounting's jobs."""
    from advisor.cli.import_answers import ImportedRuns
    from advisor.store import rows
    from advisor.store.csvfile import Terms
    from advisor.store.writer import ImportedFile, Writer

    if args.source in _accountings():
        from advisor.cli.import_accounting import import_jobs

        own_jobs = replace(contribution, scope=args.scope or "own")
        return import_jobs(path, args, _accountings()[args.source], own_jobs)
    contributor, scope = contribution.contributor, contribution.scope
    terms = Terms(args.node_type, contributor, args.account, scope, args.energy, args.meter)
    with shown(args.file) as step:
        what = f"reading {args.file.name}"
        step(what, 0, 0)
        table = _read(args, importer, terms, lambda done, of: step(what, done, of))
        runs = len(table.observations)
        sized = _by_size(args, table)
        imported = dropped = outlier_count = 0
        with Writer(path) as store, store.batch():
            types = store.inventory().node_types
            for workload, workload_runs in sized.items():
                outliers = set(outside(workload_runs))
                outlier_count += len(outliers)
                possible = [
                    without_impossible(r, types.get(r.configuration.node_type))
                    for i, r in enumerate(workload_runs)
                    if i not in outliers
                ]
                dropped += sum(DROPPED in r.extra for r in possible)
                imported += store.import_observations(
                    args.application,
                    workload,
                    possible,
                    ImportedFile(args.file.name, table.sha256, contribution.user),
                    again=args.again,
                    step=lambda done: step("storing the runs", done, runs),
                )
            step("writing them to the disk", runs, runs)
    energy = by_quality(table.observations)
    energy["measured"] -= min(dropped, energy["measured"])
    energy["missing"] += dropped
    duplicate_count = len(table.observations) - imported - outlier_count
    notes = skipped_notes([OUTSIDE] * outlier_count)
    notes += [
        f"{rows.clean(acting_in_words(name, factor))}; "
        f"--parameters {shlex.quote(rows.clean(name))} makes each value a workload"
        for workload_runs in sized.values()
        for name, factor in acting_columns(workload_runs, table.extra_columns).items()
    ]
    next_command = f"advisor fit {shlex.quote(args.application)}"
    if args.workload != "default" and len(sized) == 1:
        next_command += f" --workload {shlex.quote(args.workload)}"
    if args.json:
        answer = ImportedRuns(
            file=rows.clean(str(args.file)),
            application=args.application,
            workload=args.workload,
            node_type=args.node_type,
            imported=imported,
            skipped=duplicate_count,
            scope=scope,
            contributor=contributor,
            account=args.account,
            energy=energy,
            impossible_energies=dropped,
            extra_columns=table.extra_columns,
            workloads=() if list(sized) == [args.workload] else tuple(sized),
            notes=tuple(notes),
            next=next_command,
        )
        print_json("import", answer)
        return 0
    inputs = f"workload {next(iter(sized))}" if len(sized) == 1 else f"{len(sized)} sizes"
    what = f"{args.application} ({inputs}) on {args.node_type}"
    if imported:
        count = format_count(imported, "run")
        print(f"imported {count} of {what}; {_energy_text(energy, args.meter)}")
        if dropped:
            print(f"{format_count(dropped, 'impossible energy reading')} dropped")
        print(f"they advise {_ADVISES[scope].format(contributor, args.account)}")
    for note in notes:
        print(f"advisor: {note}", file=sys.stderr)
    if duplicate_count:
        print(
            f"{format_count(duplicate_count, 'run')} of {rows.clean(args.file.name)} already "
            "imported; --again imports them anyway"
        )
    print(f"next: {next_command}")
    return 0


def _signatures(
    path: Path,
    args: argparse.Namespace,
    importer: Any,
    contribution: Contribution,
) -> int:
    """Import what another program counted."""
    from advisor.cli import import_signatures as signature_import
    from advisor.cli.class_setup import described
    from advisor.cli.import_answers import ImportedSignatures
    from advisor.store import rows
    from advisor.store.reader import Reader

    base = paths.config_dir(args.config_dir)
    if path.exists():
        with Reader(path) as store:
            site_types = described(base, store)
    else:
        site_types = described(base, None)
    contributor, scope = contribution.contributor, contribution.scope
    named = bool(args.contributor) or not contribution.owner
    node = None
    if args.node_type:
        node = signature_import.node_of(
            *site_types, args.node_type, args.file, retired=args.retired
        )
    if node is not None and node.name != args.node_type:
        print(f"advisor: {args.node_type} is node type {node.name}", file=sys.stderr)
        args.node_type = node.name
    origin = signature_import.Origin(node, site_types[0], contributor, named, args.account, scope)
    summary = signature_import.take(path, args, importer, origin, contribution.user)
    if node is not None and site_types[0].resolve(node.name) is None and not args.retired:
        print(
            f"advisor: node type {node.name} is not in the inventory: its cores, nodes and tag are "
            "not known (describe it in site.yaml, or run advisor site discover)",
            file=sys.stderr,
        )
    if not args.json:
        signature_import.print_taken(summary, args)
        return 0
    answer = ImportedSignatures(
        file=rows.clean(str(args.file)),
        application=summary.applications[0] if len(summary.applications) == 1 else "",
        applications=summary.applications,
        workload=args.workload,
        node_type=args.node_type or "",
        imported=summary.imported,
        skipped=summary.skipped,
        scope=scope,
        contributor=contributor,
        account=args.account,
        energy=summary.energy,
        source=args.source,
        new_signatures=summary.signatures,
        signatures=summary.rows,
        next="advisor lab classify",
        notes=summary.notes,
    )
    print_json("import", answer)
    return 0


def _as_recognised(what: str, name: str) -> str:
    """Return a name as recognising a job gives it: under another none would ever be advised."""
    from advisor.core.recognise import clean_name

    clean = clean_name(name)
    if not clean.strip("_"):
        raise UsageError(f"{what} {name!r}: no job is recognised by such a name")
    return clean


def _by_size(args: argparse.Namespace, table: RunsFile) -> dict[str, list[Observation]]:
    """Return the runs by workload: one for each size, where columns are parameters."""
    from advisor.core.parameters import sized_line

    names = [n.strip() for n in args.parameters.split(",") if n.strip()]
    lacking = [n for n in names if n not in table.extra_columns]
    if lacking:
        column_names = ", ".join(table.extra_columns) or "none but those of the configuration"
        raise InputError(
            f"{args.file}: there is no column {lacking[0]!r}", hint=f"it has {column_names}"
        )
    if args.source == EXTRAP and not names:
        names = list(table.extra_columns)
    by_workload: dict[str, list[Observation]] = {}
    for i, run in enumerate(table.observations, 1):
        sizes = {}
        for name in names:
            value = run.extra[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InputError(
                    f"{args.file}, run {i}: {name} is {value!r}", hint="a size is above 0"
                )
            sizes[name] = float(value)
        workload = _clean(sized_line(args.workload, sizes)) if sizes else args.workload
        by_workload.setdefault(workload, []).append(run)
    return by_workload


def _clean(name: str) -> str:
    from advisor.core.recognise import clean_name

    return clean_name(name)


def _read(args: argparse.Namespace, importer: Any, terms: Terms, step: ReadStep) -> RunsFile:
    from advisor.store.csvfile import one_program, read_csv

    if importer is not None:
        runs: RunsFile = importer.read_runs(args.file, terms, args)
        return runs
    if args.only or args.time_key or args.energy_key or args.fom_key:
        raise UsageError("--only and the --...-key options are for HPCProbe's results summary")
    return one_program(args.file, read_csv(args.file, terms, step))


def _node_type(path: Path, name: str) -> str:
    """Return the inventory's name for a node type; say when it has another, or none."""
    if not path.exists():
        return name
    from advisor.store.reader import Reader

    with Reader(path) as store:
        inventory = store.inventory()
    inventory_type = inventory.resolve(name)
    if inventory_type is not None and inventory_type.name != name:
        print(
            f"advisor: {name} is node type {inventory_type.name} in the inventory", file=sys.stderr
        )
        return inventory_type.name
    if inventory_type is None and inventory.node_types:
        print(
            f"advisor: node type {name} is not in the inventory "
            f"({', '.join(sorted(inventory.node_types))}); no job is sent there until it is",
            file=sys.stderr,
        )
    return name


def _energy_text(energy: dict[Quality, int], meter: str) -> str:
    parts = [f"{q} in {n}" for q, n in energy.items() if n]
    meter_words = f" ({meter})" if meter else ""
    if energy["missing"] == sum(energy.values()):
        return "energy missing in all of them: only their time can be modelled"
    return f"energy {', '.join(parts)}{meter_words}"


LONG_BYTES = 1_000_000
"""From this size of a file on, some 20,000 runs, people wait for its import."""
ImportStep = Callable[[str, int, int], None]
"""Called with what is being done, how many rows of it are done, and of how many (0: not known)."""


@contextmanager
def shown(path: Path) -> Iterator[ImportStep]:
    """Yield what shows a step of a file's import on standard error, and clears it at the end."""
    if not sys.stderr.isatty() or not path.exists() or path.stat().st_size < LONG_BYTES:
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)

        def step(what: str, completed: int, total: int) -> None:
            bar.update(task, description=what, completed=completed, total=total or None)

        yield step
