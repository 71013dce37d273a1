"""``advisor lab bench --io``: what reads and writes of files take, by file system and node type."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.cli.bench_answers import BenchAnswer, MeasuredFiles, RankedAgain, UnmeasuredType
from advisor.cli.bench_places import measure_all, rank_again
from advisor.cli.output import print_json, print_table
from advisor.core.codec import load
from advisor.errors import InputError, UsageError
from advisor.store.profiles import Bench, differences, latest_bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.store.file_systems import StoredIo


def bench_io(args: argparse.Namespace, budget_s: float) -> int:
    """Measure a folder's file system on every node type, store and print it."""
    from advisor.store.connection import check_no_copy
    from advisor.store.reader import Reader

    for name in ("quick", "wanted", "replace", "kernel", "repetitions"):
        if getattr(args, name):
            raise UsageError(f"--io measures only a file system; leave out --{name}")
    path, inventory = paths.whole_store(args.db), None
    if path.exists():
        check_no_copy(path)  # before anything is measured
        with Reader(path) as reader:
            inventory = reader.inventory()
    order = {"io": str(args.io.absolute()), "budget_s": budget_s}
    measured = measure_all(args, inventory, order, _store)
    ranked = (
        rank_again(args) if any(result is not None for _, result, _ in measured) else RankedAgain()
    )
    if args.json:
        node_types = [
            UnmeasuredType(name, stored)
            if result is None
            else load(MeasuredFiles, {"node_type": name, "stored": stored, **result})
            for name, result, stored in measured
        ]
        print_json("bench", BenchAnswer(node_types, ranked))
    else:
        for name, result, stored in measured:
            if result is not None:
                print_io([_stored_io(name, result, profile) for profile in result["io"]])
            print(f"{name}: {stored}")
        if ranked.rankings:
            print(ranked.rankings)
    return 0 if all(result is not None for _, result, _ in measured) else 1


def print_io(profiles: Sequence[StoredIo]) -> None:
    """Print what reads and writes take on file systems."""
    print_table(
        [
            "node type",
            "file system",
            "",
            "KB a call",
            "us a call",
            "MB/s",
            "within",
            "",
            "us cached",
        ],
        [
            [
                p.node_type,
                f"{p.file_system} ({p.kind})" if p.kind else p.file_system,
                f"{p.operation}s{' at random' if p.random else ''}",
                f"{p.block_b / 1024:g}",
                f"{p.time_per_op_us:.4g}",
                f"{p.block_b / p.time_per_op_us:.4g}",
                f"{p.spread:.0%}",
                "direct" if p.direct else "through the page cache",
                "" if p.cached_us is None else f"{p.cached_us:.4g}",
            ]
            for p in profiles
        ],
    )


def _store(args: argparse.Namespace, name: str, result: dict[str, Any]) -> str:
    """Store a file system's profiles; return where. Raises InputError for another machine."""
    from advisor.derive.worker import deriving
    from advisor.schedulers.this_machine import NODE_TYPE, local_node_type
    from advisor.store.file_systems import save_io
    from advisor.training.training_job import current_user

    path = paths.whole_store(args.db)
    with deriving(path) as writer:
        former = latest_bench(writer, name)
        machine = result["machine"] if former is None else former.machine
        machine_differences = differences(machine, result["machine"])
        if machine_differences:
            raise InputError(
                f"{name} has profiles of another machine ({'; '.join(machine_differences)})"
            )
        if name == NODE_TYPE and not writer.inventory().resolve(name):
            writer.save_node_types([local_node_type()], source="local")
        host, kernel, compiler = (result[key] for key in ("host", "kernel", "compiler"))
        bench = Bench(name, machine, host, kernel, compiler, current_user())
        save_io(writer, bench, [_stored_io(name, result, profile) for profile in result["io"]])
    return f"stored in {path}"


def _stored_io(name: str, result: dict[str, Any], profile: dict[str, Any]) -> StoredIo:
    from advisor.store.file_systems import StoredIo

    return StoredIo(name, result["file_system"], result["kind"], **profile)
