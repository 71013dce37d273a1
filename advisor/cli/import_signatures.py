"""``advisor import``: signatures of what other programs counted, and EAR's jobs as runs."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.import_answers import CountedRow, EarStepRow
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation, Quality, Scope, by_quality
from advisor.core.power import DROPPED, without_impossible
from advisor.core.signature import Signature
from advisor.core.units import format_count
from advisor.core.whole_runs import OUTSIDE, outside, skipped_notes, step_faults
from advisor.errors import InputError, UsageError

if TYPE_CHECKING:
    from advisor.classes.counts import Counts
    from advisor.classes.ear import EarFile, EarStep
    from advisor.core.inventory import Inventory, NodeType
    from advisor.store.writer import Writer


@dataclass(frozen=True, slots=True)
class Contribution:
    """Who imports (``owner``: of the store), in whose name, and whose jobs it advises."""

    user: str
    owner: bool
    contributor: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose the runs of a file are, and where they ran; ``named``: the contributor was given.

    ``node`` is None where the nodes that the file names tell their type by ``inventory``.
    """

    node: NodeType | None
    inventory: Inventory
    contributor: str
    named: bool
    account: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class Taken:
    """What a file held and what of it is new; ``rows`` are those of the JSON answer."""

    applications: tuple[str, ...]
    imported: int
    skipped: int
    signatures: int
    energy: dict[Quality, int]
    rows: Sequence[EarStepRow | CountedRow]
    notes: tuple[str, ...]


def take(
    store_path: Path, args: argparse.Namespace, importer: Any, origin: Origin, user: str
) -> Taken:
    """Read the file and store all of it, or nothing. Raises InputError, StoreError.

    ``importer`` reads what was counted; None reads EAR's files.
    """
    from advisor.derive.worker import deriving

    if importer is None:
        contents = _ear(args, origin)
    else:
        if not args.application:
            raise UsageError(f"--from {args.source} needs --application: the file names none")
        contents = _counted_contents(args, importer, origin)
    _check_names(args.file, contents)
    content = args.file.read_bytes() if args.file.is_file() else b""
    with deriving(store_path) as store, store.batch():
        return _store(store, args, contents, hashlib.sha256(content).hexdigest(), user)


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a file holds, before it is stored."""

    pairs: list[tuple[str, Signature]]
    """Application and signature."""
    runs: list[tuple[str, Observation]]
    rows: list[EarStepRow | CountedRow]
    notes: list[str]


def _check_names(file: Path, contents: _Contents) -> None:
    from advisor.store.rows import check_name

    for name in dict.fromkeys(name for name, _ in contents.pairs):
        try:
            check_name("application", name)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None


def _store(
    store: Writer, args: argparse.Namespace, contents: _Contents, sha256: str, user: str
) -> Taken:
    from advisor.store.signatures import save_signatures
    from advisor.store.writer import ImportedFile

    applications = tuple(dict.fromkeys(name for name, _ in contents.pairs))
    imported = skipped = new = dropped = outlier_count = 0
    for name in applications:
        application_signatures = [s for application, s in contents.pairs if application == name]
        new += save_signatures(store, name, args.workload, application_signatures)
        types = store.inventory().node_types
        runs = [
            without_impossible(run, types.get(run.configuration.node_type))
            for application, run in contents.runs
            if application == name
        ]
        outliers = set(outside(runs))
        outlier_count += len(outliers)
        runs = [run for i, run in enumerate(runs) if i not in outliers]
        dropped += sum(DROPPED in run.extra for run in runs)
        stored_keys = {
            (o.observation.job_id, o.observation.contributor)
            for o in store.observations(name, args.workload)
            if o.observation.source == "job"
        }
        fresh = [r for r in runs if args.again or (r.job_id, r.contributor) not in stored_keys]
        if fresh:
            imported += store.import_observations(
                name,
                args.workload,
                fresh,
                ImportedFile(args.file.name, sha256, user),
                again=True,
            )
        skipped += len(runs) - len(fresh)
    energy = by_quality([run for _, run in contents.runs])
    notes = [*contents.notes, *skipped_notes([OUTSIDE] * outlier_count)]
    if dropped:
        energy["measured"] -= min(dropped, energy["measured"])
        energy["missing"] += dropped
        notes.append(f"{format_count(dropped, 'impossible energy reading')} dropped")
    return Taken(applications, imported, skipped, new, energy, contents.rows, tuple(notes))


# -- EAR -------------------------------------------------------------------------------------------


def _ear(args: argparse.Namespace, origin: Origin) -> _Contents:
    from advisor.classes.ear import read_ear
    from advisor.classes.ear_events import read_events
    from advisor.classes.earconf import find_ear_conf, read_ear_conf

    path = find_ear_conf()
    nodes = origin.node.nodes if origin.node and not args.retired else ()
    place = read_ear_conf(path).place_of(nodes) if path else None
    limit_w = place.max_power_w if place else None
    file = read_ear(args.file, nodes=nodes, limit_w=limit_w)
    if file.loops and not args.application:
        raise InputError(
            f"{args.file}, line 1: loops of applications it does not name, and no run times",
            hint="give --application, or import what eacct -c writes without -r",
        )
    contents = _Contents([], [], [], [])
    names = [args.application or step.application for step in file.steps]
    faults = step_faults(
        [
            (s.job, s.step, n, s.counted, s.time_s or 0.0)
            for s, n in zip(file.steps, names, strict=True)
        ]
    )
    phases = read_events(args.events) if args.events else {}
    classes = []
    for step, name, fault in zip(file.steps, names, faults, strict=True):
        if not name:
            raise InputError(
                f"{args.file}: step {step.step} of job {step.job} names no application",
                hint="give --application",
            )
        signature = _signature(step, file, origin, _node_of(step, origin, args.file))
        contents.rows.append(_row(step, name, fault, phases.get((step.job, step.step), {})))
        if fault:
            continue
        contents.pairs.append((name, signature))
        if step.time_s is not None:
            contents.runs.append((name, _run(step, signature)))
        if (step.job, step.step) in phases:
            classes.append(
                (f"step {step.step} of job {step.job}", signature, phases[step.job, step.step])
            )
    contents.notes.extend([*skipped_notes(faults, "step"), *_compared(args, classes)])
    clamped = sum(step.energy == "clamped" for step in file.steps)
    if clamped:
        contents.notes.append(
            f"{clamped} of {len(file.steps)} steps have their power at the meter's limit: "
            "clamped, so no energy is taken from them"
        )
    if file.loops:
        contents.notes.append("a file of loops: signatures without run times, and no runs")
    return contents


def _node_of(step: EarStep, origin: Origin, file: Path) -> NodeType:
    """Return the node type that was named, else that of the step's nodes. Raises InputError."""
    if origin.node is not None:
        return origin.node
    types = {
        name: origin.inventory.type_of_node(name)
        or origin.inventory.type_of_node(name.partition(".")[0])
        for name in step.node_names
    }
    unknown = [name for name, node_type in types.items() if node_type is None]
    if unknown:
        raise InputError(
            f"{file}: node {unknown[0]!r} of job {step.job} is of no node type of the inventory",
            hint="give --node-type NODE_TYPE, with --retired if its nodes are no longer there",
        )
    node_types = {t.name: t for t in types.values() if t is not None}
    if len(node_types) > 1:
        raise InputError(
            f"{file}: step {step.step} of job {step.job} ran on several node types: "
            f"{', '.join(sorted(node_types))}",
            hint="a run is of one node type: leave the step out of the file",
        )
    return next(iter(node_types.values()))


def _compared(
    args: argparse.Namespace, steps: list[tuple[str, Signature, dict[str, float]]]
) -> list[str]:
    """Return how EAR's own phases compare with our classes, each disagreement with its reasons."""
    from advisor.classes.classify import Classifier
    from advisor.cli.class_setup import Known

    if not steps:
        return []
    site_facts = Known.load(args)
    notes, alike = [], 0
    for what, signature, seconds in steps:
        assert signature.configuration is not None
        try:
            setup = site_facts.setup(signature.configuration.node_type, args)
        except InputError as error:  # a retired node type has no limits any more
            notes.append(f"{what} has no class of ours: {error}")
            continue
        classification = Classifier(setup).classify(signature)
        name = max(seconds, key=lambda phase: seconds[phase])
        if classification.name == name:
            alike += 1
            continue
        share = f"{seconds[name]:.0f} of {sum(seconds.values()):.0f} s"
        notes.append(
            f"{what}: EAR was {name} for {share}, the whole step is {classification.name} to us: "
            f"{'; '.join(classification.reasons)}. EAR classifies each loop, "
            "we the mean of the step"
        )
    return [f"EAR's phases and our classes agree in {alike} of {len(steps)} steps", *notes]


def _signature(step: EarStep, file: EarFile, origin: Origin, node: NodeType) -> Signature:
    ranks = max(1, round(step.processes / step.nodes)) if step.processes else 1
    place = Configuration(node.name, step.nodes, ranks, max(node.cores, ranks), step.freq_khz)
    return Signature(
        cpi=step.cpi,
        tpi=step.tpi,
        gflops=step.gflops,
        gbs=step.gbs,
        io_mbs=step.io_mbs,
        mpi_percent=step.mpi_percent,
        gpu_util=step.gpu_util,
        cpu_util=step.cpu_util,
        power_w=step.power_w if step.energy == "measured" else None,
        time_s=step.time_s,
        cpus=node.cores if node.cores > 1 else None,
        configuration=place,
        source="ear",
        release=file.release,
        contributor=origin.contributor if origin.named else step.user or origin.contributor,
        account=origin.account or step.account,
        scope=origin.scope,
        job_id=f"{step.job}.{step.step}" + (".loops" if file.loops else ""),
    )


def _run(step: EarStep, s: Signature) -> Observation:
    assert s.configuration is not None and step.time_s is not None
    energy_j = step.energy_j if step.energy == "measured" else None
    return Observation(
        s.configuration,
        step.time_s,
        energy_j,
        None,
        "missing" if energy_j is None else "measured",
        "" if energy_j is None else "ear",
        "job",
        s.contributor,
        s.account,
        s.scope,
        s.job_id,
        {"ear_policy": step.policy} if step.policy else {},
    )


def _row(step: EarStep, application: str, fault: str, phases_s: dict[str, float]) -> EarStepRow:
    return EarStepRow(
        job=step.job,
        step=step.step,
        application=application,
        nodes=step.nodes,
        cpi=step.cpi,
        tpi=step.tpi,
        gflops=step.gflops,
        gbs=step.gbs,
        io_mbs=step.io_mbs,
        mpi_percent=step.mpi_percent,
        gpu_util=step.gpu_util,
        power_w=step.power_w,
        time_s=step.time_s,
        energy_j=step.energy_j,
        energy=step.energy,
        skipped=fault,
        phases_s=phases_s,
    )


# -- what other programs counted -------------------------------------------------------------------


def _counted_contents(args: argparse.Namespace, importer: Any, origin: Origin) -> _Contents:
    from advisor.classes.counts import BOOST, FASTEST_HZ, signature_of

    node = origin.node
    assert node is not None  # only EAR's files name their nodes
    cpus = node.cores * node.threads_per_core if node.cores > 1 else None
    clock_hz = max(node.freq_khz) * 1e3 * BOOST if node.freq_khz else FASTEST_HZ
    notes: list[str] = []
    counted: Signature | Counts = importer.read_counts(args.file)
    if isinstance(counted, Signature):
        signature = counted
    else:
        signature, dropped = signature_of(counted, cpus=cpus, clock_hz=clock_hz, source=args.source)
        notes += [f"dropped {text}" for text in dropped]
    if not signature.measures():
        reason = f": {'; '.join(notes)}" if notes else ""
        raise InputError(f"{args.file}: no value of a signature is in it{reason}")
    signature = replace(
        signature,
        cpus=node.cores if node.cores > 1 else None,
        configuration=Configuration(node.name, 1, 1, node.cores, node.default_freq_khz),
        contributor=origin.contributor,
        account=origin.account,
        scope=origin.scope,
    )
    row = CountedRow(args.application, 1, signature.measures())
    return _Contents([(args.application, signature)], [], [row], notes)


def print_taken(summary: Taken, args: argparse.Namespace) -> None:
    """Print what was imported, for people."""
    names = ", ".join(summary.applications[:5])
    more = f" and {len(summary.applications) - 5} more" if len(summary.applications) > 5 else ""
    skipped_count = sum(isinstance(row, EarStepRow) and row.skipped != "" for row in summary.rows)
    count = format_count(len(summary.rows) - skipped_count, "signature")
    where = args.node_type or "its nodes' types"
    print(f"imported {count} of {names}{more} on {where}, {summary.signatures} of them new")
    if summary.imported or summary.skipped:
        print(f"{summary.imported} runs are new, {summary.skipped} were there already")
    for row in summary.rows:
        if isinstance(row, EarStepRow) and row.phases_s:
            seconds = ", ".join(f"{name} {s:.0f} s" for name, s in row.phases_s.items())
            print(f"EAR's phases of step {row.step} of job {row.job}: {seconds}")
    for note in summary.notes:
        print(f"advisor: {note}", file=sys.stderr)
    print(f"next: advisor lab classify{f' {summary.applications[0]}' if not more else ''}")


def node_of(
    inventory: Inventory, names: Collection[str], name: str, file: Path, *, retired: bool
) -> NodeType:
    """Return a node type of the inventory; one that is only named, without more.

    Raises InputError for one that is not among ``names``, where there are any, and not ``retired``.
    """
    from advisor.core.inventory import NodeType as Described
    from advisor.core.nearest import nearest

    node_type = inventory.resolve(name)
    if node_type is None and names and name not in names and not retired:
        close = nearest(name, names)
        raise InputError(
            f"{file}: its rows have no place: node type {name!r} is unknown "
            f"(known: {', '.join(sorted(names))})",
            hint=f"did you mean --node-type {close[0]}?"
            if close
            else "describe it in site.yaml, or say --retired if its nodes are no longer there",
        )
    return node_type or Described(name)
