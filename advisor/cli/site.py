"""``advisor site``: discover the inventory; check, apply, compare and roll back the site file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from advisor.cli import policy
from advisor.cli.arguments import add_action
from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm, wire
from advisor.errors import InputError, MeterError
from advisor.paths import config_dir, whole_store

if TYPE_CHECKING:
    from advisor.core.inventory import Gpus, Inventory, NodeType
    from advisor.policy.inventory import Missing
    from advisor.store.writer import Writer

TypeStatus = Literal["new", "changed", "as before"]


class SiteAnswer(JsonForm):
    """The site file: checked, applied, compared, rolled back or shown; and what was discovered."""


@dataclass(frozen=True, slots=True)
class DiscoveredType(JsonForm):
    """A node type, and how it differs from what was known."""

    node_type: NodeType = field(metadata=wire(inline=True))
    status: TypeStatus
    changes: Sequence[str]


@dataclass(frozen=True, slots=True)
class DiscoveredSite(JsonForm):
    """The node types that a scheduler states."""

    action: Literal["discover"] = field(default="discover", init=False)
    scheduler: str | None
    cluster: str
    source: str
    dry_run: bool
    node_types: Sequence[DiscoveredType]
    gone: Sequence[str]
    notes: Sequence[str]
    missing: Sequence[Missing]


ANSWERS = (*policy.COMMON_ANSWERS, DiscoveredSite)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of ``advisor site``."""
    actions = policy.add_arguments(parser, "site")
    discover = add_action(
        actions, "discover", "read the nodes from the scheduler into the inventory"
    )
    discover.add_argument(
        "--scheduler",
        metavar="SCHEDULER",
        help="the scheduler, or local for this machine alone (default: the one whose commands are "
        "installed)",
    )
    discover.add_argument(
        "--dry-run", action="store_true", help="print the inventory, store nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    if args.action == "discover":
        return _discover(args)
    return policy.run(args, "site", _take_over)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a scheduler answered: who, its node types, what is doubtful, its features, its cluster's
    name."""

    who: str
    node_types: list[NodeType]
    notes: list[str]
    features: frozenset[str] | None
    cluster: str = ""


def _take_over(
    writer: Writer, site: Mapping[str, object], former: Mapping[str, object]
) -> list[str]:
    """Bring the inventory in line with a site file that just took effect."""
    from advisor.core.inventory import Inventory
    from advisor.policy.inventory import SITE_SOURCE, doubts, merge_applied

    inventories = writer.inventories()
    inventory = Inventory.joined(inventories.values())
    waiting: list[str] = []
    by_source: dict[str, list[NodeType]] = {}
    for cluster in inventories or {"": inventory}:
        of_cluster = inventories.get(cluster, inventory)
        of_others = {
            n: t for n, t in inventory.node_types.items() if n not in of_cluster.node_types
        }
        by_source, waits = merge_applied(
            list(of_cluster.node_types.values()),
            writer.inventory_sources(cluster),
            _without_types(site, of_others),
            _without_types(former, of_others),
        )
        waiting += waits
        for source, node_types in by_source.items():
            by_hand = source == SITE_SOURCE
            where = "" if by_hand else cluster
            writer.save_node_types(node_types, source=source, replace=by_hand, cluster=where)
    current_types = list(writer.inventory().node_types.values())
    notes = doubts(site, current_types)
    if current_types and not any(inventories) and set(by_source) == {SITE_SOURCE}:
        notes.append(
            "the inventory is from the site file alone; `advisor site discover` compares it "
            "with the scheduler"
        )
    if waiting:
        notes.append(f"the next `advisor site discover` adds: {', '.join(waiting)}")
    return notes


def _ask(scheduler: str, site: Mapping[str, object]) -> _Found:
    from advisor.policy.inventory import given_types
    from advisor.schedulers.choose import create
    from advisor.schedulers.grouping import claims_of, group

    backend = create(scheduler)
    machine = backend.this_machine()
    if machine is not None:
        why = backend.frequency_kept(machine, "")
        notes = [f"frequency cannot be capped here: {why}"] if why else []
        gpus, doubts = _gpus()
        return _Found("this machine", [replace(machine, gpus=gpus)], [*notes, *doubts], None)
    cluster = backend.cluster()
    if cluster is None:
        raise InputError(f"{scheduler} lists no nodes")
    node_types, notes = group(cluster, claims_of(given_types(site)))
    return _Found(cluster.version, node_types, notes, cluster.features(), cluster.name)


def _gpus() -> tuple[Gpus, list[str]]:
    """Return this machine's GPUs and what is to be said of them, none where it has none."""
    from advisor.core.inventory import Gpus
    from advisor.meters.base import MeteredNode
    from advisor.meters.nvml import Nvml, gpus_here

    try:
        return gpus_here()
    except MeterError as error:
        gpus_present = Nvml(MeteredNode()).present()
        return Gpus(), [f"the NVIDIA GPUs here are not known: {error}"] if gpus_present else []


def _discover(args: argparse.Namespace) -> int:
    from advisor.core.inventory import Inventory
    from advisor.derive.worker import deriving
    from advisor.policy.inventory import (
        SITE_SOURCE,
        changes,
        doubts,
        gpus_text,
        merge_discovered,
        missing,
    )
    from advisor.schedulers.choose import installed
    from advisor.store.reader import inventory_of

    args.scheduler = args.scheduler or installed().NAME
    site, inventories, sources_of = _stored_types(args)
    discovered = _ask(args.scheduler, site)
    cluster = discovered.cluster
    sources = {**sources_of.get("", {}), **sources_of.get(cluster, {})}
    inventory = dict(inventory_of(inventories, cluster).node_types)
    replaced_sources = (args.scheduler, SITE_SOURCE)
    foreign_types = {
        name: t for name, t in inventory.items() if sources[name] not in replaced_sources
    }
    names = {t.name for t in discovered.node_types}
    foreign_types |= {
        name: t
        for name, t in Inventory.joined(inventories.values()).node_types.items()
        if name not in inventory and name not in names
    }
    merged = merge_discovered(
        discovered.node_types, _without_types(site, foreign_types), features=discovered.features
    )
    current_types = [*merged.known, *merged.extra]
    names = {t.name for t in current_types}
    vanished_types = [name for name in inventory if name not in names and name not in foreign_types]
    if not args.dry_run:
        with deriving(whole_store(args.db)) as writer, writer.batch():
            writer.save_node_types(
                merged.known,
                source=args.scheduler,
                replace=True,
                cluster=cluster,
                hardware={t.name: t.hardware for t in discovered.node_types},
            )
            writer.save_node_types(merged.extra, source=SITE_SOURCE, replace=True)
    all_types = [*current_types, *(t for name, t in foreign_types.items() if name not in names)]
    notes = [*discovered.notes, *merged.notes, *doubts(site, all_types), *_unapplied(args, site)]
    lacks = missing(current_types, by_feature=discovered.features is not None)
    differences = {t.name: changes(inventory.get(t.name), t) for t in current_types}
    status: dict[str, TypeStatus] = {
        name: "new" if name not in inventory else "changed" if differences[name] else "as before"
        for name in names
    }
    if args.json:
        answer = DiscoveredSite(
            args.scheduler,
            cluster,
            discovered.who,
            args.dry_run,
            [DiscoveredType(t, status[t.name], differences[t.name]) for t in current_types],
            vanished_types,
            notes,
            lacks,
        )
        print_json("site", answer)
        return 0
    count = sum(len(t.nodes) for t in merged.known)
    print(
        f"{discovered.who}: {count} node{'s' * (count != 1)} in "
        f"{len(merged.known)} node type{'s' * (len(merged.known) != 1)}"
    )
    _print_types(current_types, status)
    for node_type in current_types:
        if node_type.gpus.count:
            print(f"{node_type.name}: GPUs: {gpus_text(node_type.gpus)}")
        for text in differences[node_type.name]:
            print(f"{node_type.name}: {text}")
    for name in vanished_types:
        print(f"gone: {name} (its measurements are kept, but no job is sent there)")
    for note in notes:
        print(f"note: {note}")
    _print_missing(args, lacks)
    if args.dry_run:
        print("nothing was stored (--dry-run)")
    return 0


def _stored_types(
    args: argparse.Namespace,
) -> tuple[Mapping[str, object], dict[str, Inventory], dict[str, dict[str, str]]]:
    """Return the applied site settings, and by cluster the inventories and their types' sources."""
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen

    path = store_seen(args.db)
    if not path.exists():
        return {}, {}, {}
    with Reader(path) as reader:
        inventories = reader.inventories()
        return reader.site(), inventories, {c: reader.inventory_sources(c) for c in inventories}


def _without_types(site: Mapping[str, object], names: Mapping[str, object]) -> dict[str, object]:
    """Return site settings without the node types that come from another scheduler."""
    setting = site.get("node_types")
    types = setting if isinstance(setting, Mapping) else {}
    return {**site, "node_types": {k: v for k, v in types.items() if k not in names}}


def _unapplied(args: argparse.Namespace, site: Mapping[str, object]) -> list[str]:
    path = config_dir(args.config_dir) / "site.yaml"
    if site or not path.is_file():
        return []
    return [f"{path} is not in effect yet: advisor site apply"]


def _print_types(node_types: Sequence[NodeType], status: Mapping[str, str]) -> None:
    from advisor.policy.inventory import freq_text
    from advisor.policy.render import fold

    rows = [
        (
            t.name,
            t.feature or "-",
            f"{len(t.nodes)}",
            fold(t.nodes) or "-",
            f"{t.sockets}x{t.cores // t.sockets}x{t.threads_per_core}",
            f"{t.memory_mb / 1024:.0f} GB" if t.memory_mb else "-",
            freq_text(t.freq_khz),
            ",".join(t.partitions) or "-",
            status[t.name],
        )
        for t in node_types
    ]
    print_table(
        [
            "node type",
            "feature",
            "nodes",
            "names",
            "SxCxT",
            "memory",
            "frequency",
            "partitions",
            "",
        ],
        rows,
    )


def _print_missing(args: argparse.Namespace, lacks: Sequence[Missing]) -> None:
    """Say what the inventory lacks, and the lines that would add it."""
    if args.scheduler == "local":
        return
    for lack in lacks:
        print(f"missing: {', '.join(lack.node_types)}: {lack.message}")
    lines = [line for lack in lacks for line in lack.lines]
    if lines:
        path = config_dir(args.config_dir) / "site.yaml"
        print(f"add to {path}, with the steps the nodes really have, then `advisor site apply`:")
        print("  node_types:")
        for line in lines:
            print(f"    {line}")
