"""``advisor lab bench``: measure node types with microbenchmarks, and show their profiles."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.cli.bench_places import emit, measure_all, rank_again
from advisor.core.units import format_count
from advisor.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from advisor.cli.bench_answers import MeasuredType, UnmeasuredType

QUICK_S, FULL_S = 50.0, 540.0
"""Seconds of measuring: with compiling and storing a minute, and ten."""
REPETITIONS_OF_FULL, MOST_REPETITIONS = 8, 1000
"""About how often each is repeated in FULL_S; the most that can be asked for."""
KERNEL_S, IO_S = 10.0, 45.0
"""Seconds for each kernel of a user's own, and for a file system."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor lab bench`` takes."""
    parser.description = (
        "Profile node types with microbenchmarks: the time of a memory access by size and stride, "
        "and the time of arithmetic. On a cluster every node type of the inventory is measured on "
        "one of its nodes. advisor lab rank needs the profiles."
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "show", "forget"),
        default="run",
        help="run measures (the default), show prints the stored profiles, forget deletes those "
        "of one kernel that a user brought",
    )
    parser.add_argument(
        "--node-type",
        action="append",
        metavar="NODE_TYPE",
        help="only this node type; can be repeated",
    )
    parser.add_argument(
        "--here", action="store_true", help="measure this machine instead of nodes of the cluster"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--quick", action="store_true", help="run the smaller suite, within a minute"
    )
    length.add_argument(
        "--budget", metavar="TIME", help="measure for at most this long (default: 10m)"
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=0,
        metavar="N",
        help="repeat each microbenchmark at least N times, like 30, even if its mean is "
        "already precise; the default budget grows with N",
    )
    parser.add_argument(
        "--wanted",
        action="store_true",
        help="measure only what rankings lack (advisor lab rank lists it)",
    )
    parser.add_argument(
        "--kernel",
        type=Path,
        metavar="FILE",
        help="measure only your own kernels that this YAML file names (docs/ranking.md); their "
        "profiles advise your jobs",
    )
    parser.add_argument(
        "--io",
        type=Path,
        metavar="FOLDER",
        help="measure only reads and writes of files in this folder's file system, within a minute",
    )
    parser.add_argument(
        "--replace", action="store_true", help="delete the node type's earlier profiles"
    )
    parser.add_argument(
        "--meter", default="auto", metavar="NAME", help="the energy meter (default: auto)"
    )
    parser.add_argument(
        "--microbenchmark",
        metavar="NAME",
        action="append",
        help="show, forget: which one (show's default: mbw1c); repeated, show draws several in one "
        "picture",
    )
    parser.add_argument("--by", metavar="USER", help="forget: whose kernel, where several have one")
    parser.add_argument("--yes", "-y", action="store_true", help="forget: do not ask")
    parser.add_argument(
        "--across",
        action="store_true",
        help="show: node types in one picture, a panel for each stride",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="show: write the picture as .svg, .png or .pdf"
    )
    # for a node of the cluster: print results, store nothing
    parser.add_argument("--emit", metavar="JSON", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Measure or show."""
    if args.action == "show":
        from advisor.cli.bench_show import show

        return show(args)
    if args.action == "forget":
        from advisor.cli.bench_forget import forget_one

        return forget_one(args)
    if args.emit is not None:
        return emit(json.loads(args.emit))
    return _bench(args)


def _bench(args: argparse.Namespace) -> int:
    from advisor.cli.bench_answers import BenchAnswer, RankedAgain
    from advisor.cli.output import print_json
    from advisor.core.units import parse_duration_s
    from advisor.store.connection import check_no_copy
    from advisor.store.profiles import wanted
    from advisor.store.reader import Reader

    if not 0 <= args.repetitions <= MOST_REPETITIONS:
        raise UsageError(f"--repetitions is a number from 0 to {MOST_REPETITIONS}")
    full_s = FULL_S * max(1.0, args.repetitions / REPETITIONS_OF_FULL)
    try:
        budget_s = parse_duration_s(args.budget) if args.budget else full_s
    except ValueError as error:
        raise UsageError(str(error)) from error
    budget_s = QUICK_S if args.quick else budget_s
    if args.io is not None:
        from advisor.cli.bench_io import bench_io

        return bench_io(args, budget_s if args.budget else IO_S)
    if args.kernel is not None:
        return _bench_kernels(args, budget_s if args.budget else 0.0)
    path = paths.whole_store(args.db)
    waiting: list[dict[str, Any]] = []
    inventory = None
    if path.exists():
        check_no_copy(path)  # before anything is measured
        with Reader(path) as reader:
            inventory = reader.inventory()
            waiting = [
                {"name": w.microbenchmark, "streams": list(w.streams)} for w in wanted(reader)
            ]
    if args.wanted and not waiting:
        raise RefusedError(
            "no ranking lacks a microbenchmark", hint="advisor lab rank says what it lacks"
        )
    order = {
        "size": "none" if args.wanted else "quick" if args.quick else "full",
        "budget_s": budget_s,
        "wanted": waiting,
        "meter": args.meter,
        "repetitions": args.repetitions,
    }
    measured = measure_all(args, inventory, order, _store)
    ranked = (
        rank_again(args) if any(result is not None for _, result, _ in measured) else RankedAgain()
    )
    if args.json:
        print_json("bench", BenchAnswer([_summary(*m) for m in measured], ranked))
    else:
        for measurement in measured:
            print(_line(*measurement))
        if ranked.rankings:
            print(ranked.rankings)
    return 0 if all(result is not None for _, result, _ in measured) else 1


def _bench_kernels(args: argparse.Namespace, budget_s: float) -> int:
    """Measure a user's own kernels, and store them for the jobs they may advise."""
    from advisor.cli.bench_answers import BenchAnswer, RankedAgain
    from advisor.cli.output import print_json
    from advisor.ranking.files import read_kernels
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen
    from advisor.training.training_job import current_user

    for name in ("quick", "wanted", "replace"):
        if getattr(args, name):
            raise UsageError(f"--kernel measures only kernels of your own; leave out --{name}")
    kernels = read_kernels(args.kernel)
    path, inventory = store_seen(args.db), None
    if path.exists():
        with Reader(path) as reader:
            inventory = reader.inventory()
    order = {
        "size": "none",
        "budget_s": budget_s or KERNEL_S * len(kernels),
        "wanted": [],
        "meter": args.meter,
        "repetitions": args.repetitions,
        "kernels": [k.to_dict() for k in kernels],
    }
    measured = measure_all(args, inventory, order, _keep_kernels)
    ranked = RankedAgain()
    if any("stored in" in stored for _, _, stored in measured):
        ranked = rank_again(args, current_user())
    if args.json:
        print_json("bench", BenchAnswer([_summary(*m) for m in measured], ranked))
    else:
        for name, result, stored in measured:
            for p in (result or {}).get("profiles", ()):
                print(
                    f"{name}: {p['microbenchmark']}: {p['time_per_iter_us'] * 1e3:.4g} ns per "
                    f"iteration (within {p['spread']:.1%}, {p['threads']} threads)"
                )
            print(f"{name}: {stored}")
        if ranked.rankings:
            print(ranked.rankings)
    return 0 if all(result is not None for _, result, _ in measured) else 1


def _keep_kernels(args: argparse.Namespace, name: str, result: dict[str, Any]) -> str:
    """Store a node type's profiles of own kernels, or hand them to the daemon; say where."""
    from advisor.core.policy import JobFacts
    from advisor.ranking.kernels import read_sent_profiles
    from advisor.store.seen import store_seen
    from advisor.training.result_store import results_here
    from advisor.training.site_context import load_known
    from advisor.training.training_job import current_user

    user = current_user()
    facts = JobFacts.measured(user=user, account="", application="", workload="", node_type=name)
    policy, _ = load_known(store_seen(args.db)).policy.for_job(facts)
    results = results_here(args.db, user=user, trust=policy.training.trust)
    try:
        keys = ("machine", "host", "kernel", "compiler", "profiles")
        sent = {"node_type": name, **{key: result[key] for key in keys}}
        return results.profile(read_sent_profiles(sent))
    finally:
        results.close()


def _store(args: argparse.Namespace, name: str, result: dict[str, Any]) -> str:
    """Store a node type's profiles; return where they are."""
    from advisor.derive.worker import deriving
    from advisor.schedulers.this_machine import NODE_TYPE, local_node_type
    from advisor.store.profiles import (
        Bench,
        StoredProfile,
        differences,
        latest_bench,
        save_profiles,
    )
    from advisor.training.training_job import current_user

    path = paths.whole_store(args.db)
    with deriving(path) as writer:
        former = None if args.replace else latest_bench(writer, name)
        machine = result["machine"]
        if former is not None:
            machine_differences = differences(former.machine, machine)
            if machine_differences:
                raise RefusedError(
                    f"{name} has profiles of another machine ({'; '.join(machine_differences)})",
                    hint=f"give this one another --node-type, or drop {name}'s with --replace",
                )
            machine = former.machine
        bench = Bench(
            name, machine, result["host"], result["kernel"], result["compiler"], current_user()
        )
        profiles = [
            StoredProfile(name, **{**p, "streams": tuple(p["streams"])}) for p in result["profiles"]
        ]
        if name == NODE_TYPE and not writer.inventory().resolve(name):
            writer.save_node_types([local_node_type()], source="local")
        save_profiles(writer, bench, profiles, replace=args.replace)
    return f"stored in {path}"


def rate(value: float, unit: str) -> str:
    """Return a peak in words: there is none where the time did not allow its microbenchmark."""
    return f"{value:.1f} {unit}" if value else f"{unit} not measured"


def _summary(
    name: str, result: dict[str, Any] | None, stored: str
) -> MeasuredType | UnmeasuredType:
    from advisor.cli.bench_answers import MeasuredType, UnmeasuredType
    from advisor.core.codec import load

    if result is None:
        return UnmeasuredType(name, stored)
    shown = {"node_type": name, "stored": stored, "profiles": len(result["profiles"])}
    return load(MeasuredType, {**result, **result["peaks"], **shown})


def _line(name: str, result: dict[str, Any] | None, stored: str) -> str:
    if result is None:
        return f"{name}: {stored}"
    peaks = result["peaks"]
    unmeasured_count = result["wanted"] - len(result["profiles"])
    unsure = ""
    if 2 * result["sure"] < len(result["profiles"]):
        unsure = (
            f"\n{name}: most are less sure than 2 %; before you rank by them give "
            "advisor lab bench more time (--budget 10m), with nothing else running"
        )
    return (
        f"{name}: {format_count(len(result['profiles']), 'microbenchmark')} in "
        f"{result['seconds']:.0f} s, "
        f"{result['sure']} of them within 2 %"
        + (f", no time for {unmeasured_count}" if unmeasured_count > 0 else "")
        + f"; {result['threads']} threads: {rate(peaks['bandwidth_gb_s'], 'GB/s')}, "
        f"{rate(peaks['gflop_s'], 'GFlop/s')}; {result['meter']}\n{name}: {stored}{unsure}"
    )
