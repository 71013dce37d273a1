"""``advisor lab classes``: make, check and show the files that classes are found by."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from advisor import paths
from advisor.cli.arguments import add_action, add_actions
from advisor.cli.class_setup import Known, add_node_type, add_rules
from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm, wire
from advisor.core.units import format_count
from advisor.errors import RefusedError

if TYPE_CHECKING:
    from advisor.classes.base import ClassLimits, Setup
    from advisor.classes.files import Peaks
    from advisor.classes.train import Trained, TrainingRow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of ``advisor lab classes``."""
    actions = add_actions(parser)
    peaks = add_action(
        actions, "peaks", "print a node type's peaks on paper and measured, and write them"
    )
    add_node_type(peaks, required=True)
    peaks.add_argument(
        "--processor", metavar="NAME", help="like 'EPYC 9654' (default: what advisor lab bench saw)"
    )
    for name, unit, what in _PARTS:
        peaks.add_argument(f"--{name.replace('_', '-')}", type=unit, metavar="N", help=what)
    peaks.add_argument(
        "--write", choices=("paper", "measured"), help="write roofline.TAG.data from these"
    )
    train = add_action(
        actions, "train", "learn medoids and extremes from the signatures of a node type's jobs"
    )
    add_node_type(train, required=True)
    train.add_argument(
        "--order",
        choices=("page", "ear"),
        default="page",
        help="order of GFLOP/s and GB/s in the files: page, or ear for GB/s first, as EAR's "
        "sources read them (default: page)",
    )
    train.add_argument("--dry-run", action="store_true", help="print what was learned, no files")
    for action in (peaks, train):
        action.add_argument(
            "--folder", metavar="DIR", type=Path, help="write there (default: the node type's)"
        )
    check = add_action(actions, "check", "check all class files of a folder")
    check.add_argument("folder", metavar="DIR", type=Path, help="the folder")
    show = add_action(actions, "show", "show tags, files and limits, and which strategy holds")
    add_node_type(show)
    add_rules(show)


_PARTS = (
    ("sockets", int, "sockets of a node (default: the node type's)"),
    ("cores", int, "cores of one socket"),
    ("ghz", float, "highest clock of a core in GHz"),
    ("flops_per_cycle", int, "double-precision operations of a core in one cycle"),
    ("channels", int, "memory channels of one socket"),
    ("gts", float, "10^9 transfers per second of one memory channel, like 4.8"),
)


class ClassesAnswer(JsonForm):
    """What an action of `classes` found or wrote."""


@dataclass(frozen=True, slots=True)
class RooflineOf(JsonForm):
    """The peaks of a node type, and where both meet."""

    gbs: float
    gflops: float
    ridge: float


@dataclass(frozen=True, slots=True)
class ClassPeaks(JsonForm):
    """A node type's peaks."""

    action: Literal["peaks"] = field(default="peaks", init=False)
    node_type: str
    tag: str
    paper: RooflineOf | None
    measured: RooflineOf | None
    measured_by: str
    written: Sequence[str]


@dataclass(frozen=True, slots=True)
class ClassMedoid(JsonForm):
    """A class and the application that stands for it."""

    name: str = field(metadata=wire("class"))
    application: str
    workload: str
    rows: int
    why: str
    cpi: float
    tpi: float
    gflops: float
    gbs: float


@dataclass(frozen=True, slots=True)
class TrainedClasses(JsonForm):
    """What was learned of signatures."""

    action: Literal["train"] = field(default="train", init=False)
    node_type: str
    tag: str
    rows: int
    applications: int
    left_out: Mapping[str, int]
    silhouette: float
    order: Literal["page", "ear"]
    medoids: Sequence[ClassMedoid]
    written: Sequence[str]


@dataclass(frozen=True, slots=True)
class CheckedClasses(JsonForm):
    """A folder without mistakes."""

    action: Literal["check"] = field(default="check", init=False)
    folder: str
    tags: Sequence[str]


@dataclass(frozen=True, slots=True)
class LimitsOf(JsonForm):
    """The limits of the strategy ``default``, and who states them."""

    limits: ClassLimits = field(metadata=wire(inline=True))
    source: str = field(metadata=wire("from"))


@dataclass(frozen=True, slots=True)
class ShownType(JsonForm):
    """How the class of a node type's jobs is found."""

    node_type: str
    tag: str
    folders: Mapping[str, str]
    files: Sequence[str]
    problems: Sequence[str]
    strategy: str
    available: Sequence[str]
    limits: LimitsOf
    cpus: int | None


@dataclass(frozen=True, slots=True)
class ShownClasses(JsonForm):
    """The same of several node types."""

    action: Literal["show"] = field(default="show", init=False)
    node_types: Sequence[ShownType]


ANSWERS = (ClassPeaks, TrainedClasses, CheckedClasses, ShownClasses)


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    actions = {"peaks": _peaks, "train": _train, "check": _check, "show": _show}
    return actions[args.action](args)


# -- peaks -----------------------------------------------------------------------------------------


def _peaks(args: argparse.Namespace) -> int:
    from advisor.classes.files import Peaks, file_name, write_files
    from advisor.errors import UsageError

    site_facts = Known.load(args)
    setup = site_facts.setup(args.node_type, args)
    paper = _on_paper(args, site_facts, setup)
    gbs, gflops, peak_source = _measured(args, setup.node_type, paper)
    measured = Peaks(gbs, gflops) if gbs and gflops else None
    if paper is None and measured is None:
        raise RefusedError(
            f"there are no peaks for {setup.node_type}",
            hint="measure them with advisor lab bench, or give --processor, or --cores, --ghz, "
            "--flops-per-cycle, --channels and --gts",
        )
    written_files: list[Path] = []
    if args.write:
        chosen = paper if args.write == "paper" else measured
        if chosen is None:
            raise UsageError(f"no {args.write} peaks are known of {setup.node_type}")
        folder = args.folder or dict(setup.files.folders)["roofline"]
        written_files = write_files(folder, setup.tag, {"roofline": chosen})
    if args.json:
        answer = ClassPeaks(
            setup.node_type,
            setup.tag,
            paper and RooflineOf(*paper, paper.ridge),
            measured and RooflineOf(*measured, measured.ridge),
            peak_source,
            [str(path) for path in written_files],
        )
        print_json("classes", answer)
        return 0
    for name, peaks, how in (("on paper", paper, ""), ("measured", measured, peak_source)):
        if peaks is not None:
            line = f"{peaks.gbs:.10g} {peaks.gflops:.10g}"
            print(f"{name}: {line}  (GB/s, GFLOP/s; ridge {peaks.ridge:.4g}{how and '; '}{how})")
    for path in written_files:
        print(f"written: {path}")
    if not written_files:
        print(f"--write paper or --write measured writes {file_name('roofline', setup.tag)}")
    return 0


def _on_paper(args: argparse.Namespace, site_facts: Known, setup: Setup) -> Peaks | None:
    """Return the peaks that follow from a processor's data, None where some is missing."""
    from dataclasses import asdict

    from advisor.classes.peaks import PROCESSORS, Processor
    from advisor.classes.peaks import known as processor_called
    from advisor.errors import UsageError

    name = args.processor or site_facts.processors.get(setup.node_type, "")
    processor = processor_called(name)
    if args.processor and processor is None:
        listed = ", ".join(PROCESSORS)
        raise UsageError(
            f"processor {name!r} is not known", hint=f"known: {listed}; or describe it"
        )
    values: dict[str, Any] = asdict(processor) if processor else {}
    values |= {n: getattr(args, n) for n, _, _ in _PARTS if getattr(args, n) is not None}
    sockets = values.pop("sockets", None) or _sockets(site_facts, setup, values.get("cores", 0))
    if any(not v > 0 for v in (*values.values(), sockets)):
        raise UsageError("the parts of a processor are numbers above 0")
    if set(values) != {n for n, _, _ in _PARTS} - {"sockets"}:
        return None
    return Processor(**values).peaks(sockets)


def _sockets(site_facts: Known, setup: Setup, socket_cores: int) -> int:
    """Return a node's sockets: as they are stated, else as many as its cores fill, else two."""
    node = site_facts.inventory.resolve(setup.node_type)
    type_settings = site_facts.site.get("node_types", {}).get(setup.node_type, {})
    stated = int(type_settings.get("sockets", 0)) or (node.sockets if node else 1)
    cores = setup.cpus or 0
    if stated == 1 and socket_cores and not cores and not type_settings.get("sockets"):
        print(
            f"advisor: how many sockets a node of {setup.node_type} has is not known: counted as "
            "2; give --sockets, or cores in site.yaml",
            file=sys.stderr,
        )
        return 2
    return (
        cores // socket_cores
        if stated == 1 and socket_cores and cores and not cores % socket_cores
        else stated
    )


def _measured(
    args: argparse.Namespace, node_type: str, paper: Peaks | None
) -> tuple[float, float, str]:
    """Return the most GB/s and GFLOP/s that bench or any run reached, and which it was.

    Where nothing measured arithmetic, its peak is that on paper.
    """
    from advisor.cli.bench_show import roofline_of
    from advisor.store.profiles import profiles
    from advisor.store.reader import Reader
    from advisor.store.signatures import signatures

    path = paths.store_path(args.db)
    gbs, gflops, peak_source = 0.0, 0.0, ""
    if path.exists():
        with Reader(path) as store:
            type_profiles = profiles(store, node_type)
            if type_profiles:
                _, gbs, gflops = roofline_of(type_profiles)
                peak_source = "advisor lab bench" if gbs else ""
            for stored in signatures(store, node_type=node_type):
                reached = stored.signature.gbs or 0.0
                if reached > gbs and stored.signature.scope == "all":
                    gbs, peak_source = reached, f"a run of {stored.application}"
                gflops = max(gflops, stored.signature.gflops or 0.0) if type_profiles else gflops
    return gbs, gflops or (paper.gflops if paper else 0.0), peak_source


# -- train -----------------------------------------------------------------------------------------


def _train(args: argparse.Namespace) -> int:
    from advisor.classes.files import lines_of, write_files
    from advisor.classes.train import train

    setup = Known.load(args).setup(args.node_type, args)
    rows, left_out = _rows(paths.whole_store(args.db), setup.node_type)
    trained = train(rows)
    written_files: list[Path] = []
    if not args.dry_run:
        folder = args.folder or dict(setup.files.folders)["medoids"]
        values = lines_of(trained.extremes, trained.medoids, args.order)
        written_files = write_files(folder, setup.tag, {k: tuple(v) for k, v in values.items()})
    if args.json:
        medoids = [
            ClassMedoid(
                g.name,
                rows[g.medoid].application,
                rows[g.medoid].workload,
                len(g.rows),
                g.why,
                *rows[g.medoid].vector,
            )
            for g in trained.groups
        ]
        answer = TrainedClasses(
            setup.node_type,
            setup.tag,
            len(rows),
            len({row.application for row in rows}),
            left_out,
            trained.silhouette,
            args.order,
            medoids,
            [str(path) for path in written_files],
        )
        print_json("classes", answer)
        return 0
    _print_trained(trained, rows, left_out)
    for path in written_files:
        print(f"written: {path}")
    return 0


def _rows(path: Path, node_type: str) -> tuple[list[TrainingRow], dict[str, int]]:
    """Return one row per workload, from the source whose TPI most workloads have; what is left out.

    Only signatures that may advise everybody count.
    """
    from advisor.classes.classify import typical
    from advisor.classes.kmedoids import KMedoids
    from advisor.classes.train import TrainingRow
    from advisor.core.signature import Signature
    from advisor.store.reader import Reader
    from advisor.store.signatures import signatures

    groups: dict[tuple[str, str], list[Signature]] = {}
    left_out: Counter[str] = Counter()
    if path.exists():
        with Reader(path) as store:
            stored = signatures(store, node_type=node_type)
        for s in stored:
            if s.signature.scope != "all":
                left_out["not shared with all"] += 1
            elif any(getattr(s.signature, name) is None for name in KMedoids.USES):
                left_out["without all of cpi, tpi, gflops and gbs"] += 1
            else:
                groups.setdefault((s.application, s.workload), []).append(s.signature)
    scales = Counter(
        scale for runs in groups.values() for scale in {(s.source, s.release) for s in runs}
    )
    rows = []
    for (application, workload), runs in sorted(groups.items()):
        scale, _ = scales.most_common(1)[0]
        comparable_runs = [s for s in runs if (s.source, s.release) == scale]
        if len(comparable_runs) < len(runs):
            left_out["with TPI on another scale"] += len(runs) - len(comparable_runs)
        if comparable_runs:
            typical_signature = typical(comparable_runs)[0]
            vector = (
                typical_signature.cpi or 0.0,
                typical_signature.tpi or 0.0,
                typical_signature.gflops or 0.0,
                typical_signature.gbs or 0.0,
            )
            rows.append(TrainingRow(application, workload, vector))
    return rows, dict(left_out)


def _print_trained(trained: Trained, rows: list[TrainingRow], left_out: dict[str, int]) -> None:
    applications = len({row.application for row in rows})
    print(
        f"{format_count(len(rows), 'workload')} of "
        f"{format_count(applications, 'application')}; silhouette "
        f"{trained.silhouette:.2f} (1: far apart, 0: not distinct)"
    )
    print_table(
        ("class", "medoid", "workloads", "CPI", "TPI", "GFLOP/s", "GB/s"),
        [
            [
                g.name,
                f"{rows[g.medoid].application}/{rows[g.medoid].workload}",
                len(g.rows),
                *(f"{x:.4g}" for x in rows[g.medoid].vector),
            ]
            for g in trained.groups
        ],
    )
    for g in trained.groups:
        print(f"{g.name} is {g.why}")
    for why, count in left_out.items():
        print(f"left out: {count} {'signature' if count == 1 else 'signatures'} {why}")


# -- check and show --------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    from advisor.classes.earconf import find_ear_conf, read_ear_conf
    from advisor.classes.files import check_folder
    from advisor.errors import InputError

    tags = check_folder(args.folder)
    path = find_ear_conf()
    known_tags = read_ear_conf(path).tags if path else tags
    for tag in tags:
        if tag not in known_tags:
            raise InputError(f"{args.folder}: {path} has no tag {tag!r}")
    if args.json:
        print_json("classes", CheckedClasses(str(args.folder), tags))
    else:
        print(f"{args.folder}: no mistakes; tags {', '.join(tags)}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from advisor.classes.classify import Classifier

    site_facts = Known.load(args)
    names = (
        [args.node_type]
        if args.node_type
        else sorted({*site_facts.inventory.node_types, *site_facts.site.get("node_types", {})})
    )
    described_types = []
    for name in names or [""]:
        setup = site_facts.setup(name, args)
        classifier = Classifier(setup)
        files = setup.files
        class_files = {
            "roofline": files.peaks,
            "extremes": files.extremes,
            "medoids": files.medoids,
        }
        described_types.append(
            ShownType(
                setup.node_type,
                setup.tag,
                {kind: str(folder) for kind, folder in files.folders},
                [kind for kind, value in class_files.items() if value is not None],
                files.problems,
                classifier.available[0].NAME,
                [s.NAME for s in classifier.available],
                LimitsOf(setup.limits, setup.limits_from),
                setup.cpus,
            )
        )
    if args.json:
        print_json("classes", ShownClasses(described_types))
        return 0
    for described_type in described_types:
        _print_setup(described_type)
    return 0


def _print_setup(t: ShownType) -> None:
    print(f"{t.node_type or 'any node type'}: tag {t.tag or '-'}, by {t.strategy}")
    for folder in dict.fromkeys(t.folders.values()):
        print(f"  folder {folder}")
    print(f"  files: {', '.join(t.files) or 'none'}")
    limits = t.limits.limits
    print(
        f"  limits: cpu-bound up to CPI {limits.cpu_cpi:g} and {limits.cpu_gbs:g} GB/s, "
        f"memory-bound from {limits.memory_cpi:g} and {limits.memory_gbs:g} "
        f"({t.limits.source})"
    )
    for problem in t.problems:
        print(f"  mistake: {problem}")
