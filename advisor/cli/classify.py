"""``advisor lab classify``: the class of applications by the signatures of their runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from advisor import paths
from advisor.cli.arguments import add_application
from advisor.cli.class_setup import Known, add_node_type, add_rules
from advisor.cli.output import print_json, print_table
from advisor.core.codec import AtLeast, AtMost, JsonForm, wire
from advisor.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from advisor.classes.classify import Classifier
    from advisor.core.policy import ApplicationClass
    from advisor.core.signature import Signature

_SHOWN = (
    "cpi",
    "tpi",
    "gflops",
    "gbs",
    "io_mbs",
    "mpi_calls_s",
    "mpi_percent",
    "gpu_util",
    "cpu_util",
    "power_w",
    "time_s",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor lab classify`` takes."""
    parser.description = (
        "Find the class of an application (cpu-bound, memory-bound, mixed, mpi-bound, io-bound, "
        "busy-waiting, gpu or unknown) from the signatures of its runs, as EAR does: phases "
        "first, then k-medoids, roofline or fixed limits, whichever the node type's files allow. "
        "Without an application, of all."
    )
    add_application(parser, "the application", optional=True)
    parser.add_argument(
        "--signature",
        metavar="FILE",
        type=Path,
        help="a JSON file with one signature, or a list: cpi, tpi, gflops, gbs, io_mbs, "
        "mpi_calls_s, mpi_percent, gpu_util, cpu_util, power_w, time_s, cpus",
    )
    add_node_type(parser)
    parser.add_argument(
        "--strategy",
        metavar="STRATEGY",
        help="default, roofline or kmedoids (default: the last of these with valid files)",
    )
    add_rules(parser)


def run(args: argparse.Namespace) -> int:
    """Classify. Raises InputError for a file that does not make sense."""
    if args.signature and (args.application or args.workload):
        raise UsageError("give an application or --signature, not both")
    site_facts = Known.load(args)
    if args.signature:
        results, many = _of_file(args, site_facts)
    else:
        results = _of_store(args, site_facts)
        many = len(results) != 1
    if args.json:
        print_json("classify", ClassifyAnswers(results) if many else results[0])
    elif len(results) == 1:
        _print(results[0])
    else:
        _print_all(results)
    return 0


def _of_file(args: argparse.Namespace, site_facts: Known) -> tuple[list[ClassifyAnswer], bool]:
    from advisor.classes.classify import Classifier
    from advisor.classes.signature_file import read_signatures

    classifier = Classifier(site_facts.setup(args.node_type, args), args.strategy or "")
    signatures, many = read_signatures(args.signature)
    return [_answer(classifier, s, {}, 1) for s in signatures], many


def _of_store(args: argparse.Namespace, site_facts: Known) -> list[ClassifyAnswer]:
    from advisor.classes.classify import Classifier, typical
    from advisor.store.opening import caller, is_owner
    from advisor.store.reader import Reader
    from advisor.store.signatures import signatures
    from advisor.views.misspelt import meant

    path = paths.whole_store(args.db)
    node_type = site_facts.setup(args.node_type, args).node_type if args.node_type else None
    groups: dict[tuple[str, str, str], list[Signature]] = {}
    with Reader(path) as store:
        user = None if is_owner(path) else caller()
        for s in signatures(store, args.application, args.workload, node_type, user=user):
            place = s.signature.configuration
            key = s.application, s.workload, place.node_type if place else ""
            groups.setdefault(key, []).append(s.signature)
        suggested_name = meant(store, args.application) if args.application and not groups else ""
    if suggested_name:
        raise UsageError(
            f"nothing is stored for application {args.application!r}", hint=suggested_name
        )
    if not groups:
        what = f" of {args.application}" if args.application else ""
        raise RefusedError(
            f"no signature{what} is known{f' on {node_type}' if node_type else ''}",
            hint="advisor import FILE --from ear, advisor run --counters, or advisor collect",
        )
    classifiers: dict[str, Classifier] = {}
    results = []
    for (application, workload, name), runs in sorted(groups.items()):
        if name not in classifiers:
            classifiers[name] = Classifier(site_facts.setup(name, args), args.strategy or "")
        shared = [s for s in runs if s.scope == "all"]
        signature, errors, count = typical(shared or runs)  # nobody's own moves what all see
        results.append(_answer(classifiers[name], signature, errors, count, application, workload))
    return results


@dataclass(frozen=True, slots=True)
class ClassifyAnswer(JsonForm):
    """The class of one signature, or of several in `results`."""

    application: str
    workload: str
    node_type: str
    tag: str
    name: ApplicationClass = field(metadata=wire("class"))
    strategy: str
    distances: Annotated[
        Mapping[str, Annotated[float, AtLeast(0)]],
        "standardised, by class; empty without medoids",
    ]
    agreement: Annotated[Mapping[str, str], "the class by each available strategy, without phases"]
    signature: Annotated[Mapping[str, float | None], "null is not measured"]
    source: str
    runs: Annotated[int, AtLeast(1)]
    missing: list[str]
    stable: Annotated[
        float,
        AtLeast(0),
        AtMost(1),
        "share of draws within measurement error that keep the class",
    ]
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class ClassifyAnswers(JsonForm):
    """Of several signatures."""

    results: list[ClassifyAnswer]


ANSWERS = (ClassifyAnswer, ClassifyAnswers)


def _answer(
    classifier: Classifier,
    signature: Signature,
    errors: Mapping[str, float],
    runs: int,
    application: str = "",
    workload: str = "",
) -> ClassifyAnswer:
    classification = classifier.classify(signature, errors)
    setup = classifier.setup
    measures = {name: getattr(signature, name) for name in _SHOWN}
    return ClassifyAnswer(
        application=application,
        workload=workload,
        node_type=setup.node_type,
        tag=setup.tag,
        name=cast(Any, classification.name),
        strategy=classification.strategy,
        distances=classification.distances,
        agreement=classification.agreement,
        signature={**measures, "cpus": signature.cpus or setup.cpus},
        source=signature.source,
        runs=runs,
        missing=[name for name, value in measures.items() if value is None],
        stable=classification.stable,
        reasons=classification.reasons,
    )


def _print(result: ClassifyAnswer) -> None:
    name = "/".join(part for part in (result.application, result.workload) if part)
    where = f" on {result.node_type}" if result.node_type else ""
    runs = "" if result.runs == 1 else f", {result.runs} runs"
    print(f"{name or 'this signature'}{where}: {result.name} ({result.strategy}{runs})")
    for reason in result.reasons:
        print(f"  {reason}")
    if len(result.agreement) > 1:
        strategy_classes = (f"{strategy} {name}" for strategy, name in result.agreement.items())
        print(f"  by strategy: {', '.join(strategy_classes)}")
    if result.stable < 1:
        print(f"  within measurement error it stays so in {100 * result.stable:.0f} % of draws")
    if result.missing:
        print(f"  not measured: {', '.join(result.missing)}")


def _print_all(results: list[ClassifyAnswer]) -> None:
    rows = [
        [
            r.application or n,
            r.workload,
            r.node_type,
            r.name,
            r.strategy,
            f"{r.stable:.0%}",
            r.runs,
            r.source,
        ]
        for n, r in enumerate(results, 1)
    ]
    heads = ("application", "workload", "node type", "class", "strategy", "stable", "runs", "from")
    print_table(heads, rows)
