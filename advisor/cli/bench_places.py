"""Where ``advisor lab bench`` measures, this machine or nodes of the cluster, and what follows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.cli.bench_answers import RankedAgain
from advisor.errors import AdvisorError, InputError, UsageError
from advisor.interpreter import own_python

if TYPE_CHECKING:
    from advisor.cli.bench_progress import ProgressBars
    from advisor.core.inventory import Inventory, NodeType

_EXTRA_S = 600.0
"""Seconds a node gets beyond the budget, to start and to compile."""


def measure_all(
    args: argparse.Namespace,
    inventory: Inventory | None,
    order: dict[str, Any],
    store: Callable[[argparse.Namespace, str, dict[str, Any]], str],
) -> list[tuple[str, dict[str, Any] | None, str]]:
    """Measure on all node types at once, then store what each found.

    Return of each its name, what it found, None for nothing, and where that is stored, or why
    there is nothing.
    """
    from advisor.cli.bench_progress import ProgressBars

    places = _places_of(args, inventory)
    with ProgressBars(sys.stderr, [name for name, _ in places]) as board:
        results = board.each(places, lambda name, node: _measure(name, node, order, board))
    return [
        (name, result, why if result is None else store(args, name, result))
        for (name, _), (result, why) in zip(places, results, strict=True)
    ]


def rank_again(args: argparse.Namespace, contributor: str | None = None) -> RankedAgain:
    """Rank all that is characterised, or by one user, with the new profiles; return the result.

    Whatever is in the way of that, the profiles are stored.
    """
    from advisor.derive.worker import deriving
    from advisor.loop.rerank import rank_all, site_thresholds
    from advisor.ranking.files import read_thresholds

    try:
        limits = read_thresholds(site_thresholds(paths.config_dir(args.config_dir)))
        with deriving(paths.whole_store(args.db)) as writer:
            reranking = rank_all(writer, limits, contributor)
    except AdvisorError as error:
        return RankedAgain(f"rankings could not be updated, the earlier ones stay: {error}")
    return RankedAgain(reranking.line, reranking.applications, reranking.faster, reranking.failed)


def _places_of(
    args: argparse.Namespace, inventory: Inventory | None
) -> list[tuple[str, NodeType | None]]:
    """Return the node types to measure; None as node type means this machine."""
    from advisor.schedulers.this_machine import NODE_TYPE

    names: list[str] = args.node_type or []
    if args.here and len(names) > 1:
        raise UsageError("this machine is one node type", hint="--here with one --node-type")
    remote_types = [t for t in (inventory.node_types.values() if inventory else ()) if t.feature]
    if args.here or (not remote_types and not names):
        return [(names[0] if names else NODE_TYPE, None)]
    if not names:
        return [(t.name, t) for t in remote_types]
    places: list[tuple[str, NodeType | None]] = []
    for name in names:
        inventory_type = inventory.resolve(name) if inventory else None
        if inventory_type is None and name != NODE_TYPE:
            type_names = ", ".join(t.name for t in remote_types) or "none"
            raise InputError(
                f"the inventory has no node type {name}",
                hint=f"there are: {type_names}; advisor lab bench --here --node-type {name} "
                "names this machine",
            )
        is_remote = inventory_type is not None and inventory_type.name != NODE_TYPE
        places.append(
            (inventory_type.name if inventory_type else name, inventory_type if is_remote else None)
        )
    return places


def _measure(
    name: str, node: NodeType | None, order: dict[str, Any], board: ProgressBars
) -> dict[str, Any]:
    """Measure on a node of this type; return what it found."""
    if node is None:
        return _measure_order(order, lambda *progress: board.show(name, *progress))
    from advisor.schedulers.choose import installed

    argv = own_python("advisor", "lab", "bench", "--emit", json.dumps(order))
    limit_s = order["budget_s"] + _EXTRA_S
    process = installed().on_a_node(node, argv, limit_s=limit_s, name="advisor-bench")
    return board.stream(name, process)


def _measure_order(
    order: dict[str, Any], show: Callable[[int, int, float], None]
) -> dict[str, Any]:
    """Do what an order says on this machine: a file system's profile, or microbenchmarks."""
    if "io" in order:
        from advisor.instruments.file_system import measure_io

        return measure_io(Path(order["io"]), order["budget_s"], show)
    from advisor.instruments.bench import measure_here

    return measure_here(order, show)


def emit(order: dict[str, Any]) -> int:
    """Measure this machine for somebody else: progress and result as lines of JSON."""

    def say(kind: str, data: object) -> None:
        print(json.dumps({kind: data}), flush=True)

    try:
        say("result", _measure_order(order, lambda *at: say("progress", at)))
    except AdvisorError as error:
        say("error", error.message)
    return 0
