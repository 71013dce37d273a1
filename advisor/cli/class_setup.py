"""What ``classify`` and ``classes`` know of node types, from store, site file and ear.conf."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import paths

if TYPE_CHECKING:
    from advisor.classes.base import Setup
    from advisor.classes.earconf import EarConf
    from advisor.core.inventory import Inventory
    from advisor.store.reader import Reader


def add_node_type(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the arguments that say whose files and limits are meant."""
    parser.add_argument(
        "--node-type",
        metavar="NODE_TYPE",
        required=required,
        help="the node type" + ("" if required else " (default: the only one there is)"),
    )
    parser.add_argument(
        "--ear-conf",
        metavar="FILE",
        type=Path,
        help="EAR's configuration, for tag and folder (default: $EAR_ETC/ear/ear.conf)",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say whose rules hold, and how the files are read."""
    parser.add_argument(
        "--like",
        choices=("page", "ear6"),
        default="page",
        help="where EAR's page and its sources differ: page, or ear6 for what EAR 6 does",
    )
    parser.add_argument(
        "--order",
        choices=("page", "ear"),
        help="order of GFLOP/s and GB/s in the files: page, or ear for GB/s first, as EAR's "
        "sources read them (default: page; with --like ear6: ear)",
    )


@dataclass(slots=True)
class Known:
    """The site, as the store has it; as its file says where none was applied."""

    base: Path
    site: dict[str, Any]
    inventory: Inventory
    ear: EarConf | None
    processors: dict[str, str] = field(default_factory=dict)
    measured: tuple[str, ...] = ()
    """Node types with signatures in the store."""

    @classmethod
    def load(cls, args: argparse.Namespace) -> Known:
        """Read it. Raises StoreError, InputError."""
        from advisor.classes.earconf import find_ear_conf, read_ear_conf
        from advisor.core.inventory import Inventory
        from advisor.store.profiles import latest_bench, profiled_types
        from advisor.store.reader import Reader
        from advisor.store.seen import store_seen
        from advisor.store.signatures import measured_types

        base, path = paths.config_dir(args.config_dir), store_seen(args.db)
        site: dict[str, Any] = {}
        inventory, processors = Inventory.of([]), {}
        measured: tuple[str, ...] = ()
        if path.exists():
            with Reader(path) as store:
                site, inventory = dict(store.site()), store.inventory()
                benches = (latest_bench(store, name) for name in profiled_types(store))
                measured = measured_types(store)
                processors = {
                    b.node_type: str(b.machine.get("processor", "")) for b in benches if b
                }
        if not site and (base / "site.yaml").exists():
            site = _from_file(base / "site.yaml")
        ear_conf = getattr(args, "ear_conf", None) or find_ear_conf()
        ear = read_ear_conf(ear_conf) if ear_conf else None
        return cls(base, site, inventory, ear, processors, measured)

    def setup(self, name: str | None, args: argparse.Namespace) -> Setup:
        """Return the setup of a node type, of the only one for None. Raises InputError."""
        from advisor.classes.setup import SetupSources, setup_of

        if name is None:
            names = {*self.inventory.node_types, *self.site.get("node_types", {})}
            name = next(iter(names)) if len(names) == 1 else ""
        return setup_of(
            name,
            SetupSources(self.site, self.inventory, self.base, self.ear, self.measured),
            like=getattr(args, "like", "page"),
            order=getattr(args, "order", None),
            processor=processor_of(self.processors.get(name, "")),
        )


def processor_of(text: str) -> tuple[str, int, int]:
    """Return vendor, family and model of a processor from a machine's fingerprint."""
    match = re.search(r"(GenuineIntel|AuthenticAMD) (\d+) (\d+)", text)
    return (match[1], int(match[2]), int(match[3])) if match else ("", 0, 0)


def described(base: Path, store: Reader | None) -> tuple[Inventory, set[str]]:
    """Return the inventory, and all node types that store or site file name.

    Where the store has no inventory it is that of the site file, applied or not. Raises InputError.
    """
    from advisor.core.inventory import Inventory
    from advisor.policy.inventory import given_types, merge_applied

    inventory = store.inventory() if store else Inventory.of([])
    site = dict(store.site()) if store else {}
    if not site and (base / "site.yaml").exists():
        site = _from_file(base / "site.yaml")
    if not inventory.node_types:
        by_source, _ = merge_applied([], {}, site, {})
        inventory = Inventory.of([t for types in by_source.values() for t in types])
    return inventory, {*inventory.node_types, *given_types(site)}


def _from_file(path: Path) -> dict[str, Any]:
    """Return what a site file says that was not applied. Raises InputError."""
    from advisor.errors import InputError
    from advisor.policy.load import check_text, read_file

    text, problems = read_file(path, "site")
    compiled, more = check_text(text, str(path), "site")
    mistakes = [p for p in (*problems, *more) if not p.warning]
    if compiled is None or mistakes:
        raise InputError(str(mistakes[0]) if mistakes else f"{path} cannot be used")
    return dict(compiled)
