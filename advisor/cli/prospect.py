"""``advisor prospect``: what this site would save, from its accounting alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.colour import say
from advisor.cli.output import print_json
from advisor.errors import InputError, UsageError

if TYPE_CHECKING:
    from advisor.core.inventory import Inventory
    from advisor.schedulers.base import Scheduler


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor prospect`` takes."""
    from advisor.prospect import history
    from advisor.prospect.ear import COMMAND, EAR
    from advisor.prospect.sums import SUMS
    from advisor.prospect.swf import SWF

    accountings = _accountings()
    commands = {name: s.YEAR_COMMAND for name, s in accountings.items()} | {
        EAR: COMMAND,
        SWF: "a log in the Standard Workload Format, of the Parallel Workloads Archive",
        history.HISTORY: f"a folder, of {history.COMMAND}",
        SUMS: "a table with the columns Software,Jobs,Nodeh,kWh,Users, as ARCHER2 publishes them",
    }
    parser.description = (
        "Estimate what this site would save, from a year of its accounting. Nothing is installed, "
        "stored or changed, and no rights are needed but to read the files."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(
        ["what writes such a file:", *(f"  {name}: {text}" for name, text in commands.items())]
    )
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="the accounting")
    parser.add_argument(
        "--from",
        dest="source",
        choices=tuple(commands),
        metavar="FORMAT",
        help=f"what wrote the files: {', '.join(commands)} (default: told by their first line)",
    )
    parser.add_argument(
        "--site",
        type=Path,
        metavar="FILE",
        help="a site.yaml: node types with cores, power and caps, and rules for applications",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write one page")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write one picture")


def _accountings() -> dict[str, Scheduler]:
    """Return the schedulers whose accounting can be read, by what its files are called."""
    from advisor.schedulers.choose import every

    return {s.ACCOUNTING: s for s in every() if s.ACCOUNTING}


def run(args: argparse.Namespace) -> int:
    """Read, estimate and print."""
    from advisor.core.inventory import Inventory
    from advisor.core.recognise import ApplicationRule
    from advisor.core.worth import Tariff
    from advisor.prospect.ear import EAR, stream_ear
    from advisor.prospect.estimate import estimate
    from advisor.prospect.history import HISTORY, stream_history
    from advisor.prospect.sums import SUMS, stream_sums
    from advisor.prospect.swf import SWF, stream_swf
    from advisor.prospect.usage import Usage
    from advisor.schedulers.accounting_lines import DamagedLines
    from advisor.views.prospect import ProspectView

    for path in (args.html, args.svg):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}")
    site = _site(args.site) if args.site is not None else {}
    rules_setting = site.get("applications")
    rules = (
        [ApplicationRule.from_dict(r) for r in rules_setting]
        if isinstance(rules_setting, list)
        else []
    )
    usage = Usage(_inventory(site) if site else Inventory(), rules)
    damaged = DamagedLines()
    accountings = _accountings()
    for path in args.files:
        source = args.source or _source(path)
        if source == HISTORY:
            usage.add(stream_history(path))
        elif source == EAR:
            usage.add(stream_ear(path, damaged))
        elif source == SWF:
            usage.add(stream_swf(path, damaged, _cores(usage.inventory)))
        elif source == SUMS:
            usage.add_sums(stream_sums(path, damaged))
        else:
            usage.add(accountings[source].stream_accounting(path, damaged))
    if not usage.groups:
        where = ", ".join(map(str, args.files))
        raise InputError(f"{where}: no job of it ever ran", hint="export ended jobs, of a year")
    view = ProspectView(estimate(usage), usage, damaged.count, damaged.first, Tariff.of(site))
    if args.html is not None:
        _write(args.html, view.html())
    if args.svg is not None:
        _write(args.svg, view.svg())
    if args.json:
        print_json("prospect", view.answer())
    else:
        say(*view.lines())
    return 0


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _source(path: Path) -> str:
    """Return what wrote a file, by its first line, or a folder.

    Raises InputError where that does not tell.
    """
    from advisor.mounts import check_answers
    from advisor.prospect.ear import EAR
    from advisor.prospect.history import HISTORY
    from advisor.prospect.sums import SUMS, writes_sums
    from advisor.prospect.swf import COMMENT, SWF
    from advisor.schedulers.accounting_lines import numbered_lines

    check_answers(path)
    if path.is_dir():
        return HISTORY
    first = next((line for _, line in numbered_lines(path)), "")
    if not first.strip():
        raise InputError(f"{path}:1: is empty", hint="advisor prospect --help has the command")
    for name, scheduler in _accountings().items():
        if scheduler.writes_accounting(first):
            return name
    if first.lstrip().startswith(COMMENT):
        return SWF
    if ";" in first:
        return EAR
    if writes_sums(first):
        return SUMS
    raise InputError(
        f"{path}:1: neither an accounting nor a report of EAR, a log in SWF or a table of sums",
        hint="advisor prospect --help has the command; --from says what it is",
    )


def _cores(inventory: Inventory) -> int:
    """Return the cores of the one node type that a site file describes, 0 for none or several."""
    cores = {node_type.cores for node_type in inventory.node_types.values()}
    return cores.pop() if len(cores) == 1 else 0


def _site(path: Path) -> Mapping[str, object]:
    """Return a compiled site file. Raises InputError with its first mistake."""
    from advisor.policy.load import check_text, read_file

    text, problems = read_file(path, "site")
    compiled = None
    if not problems:
        compiled, problems = check_text(text, str(path), "site")
    if compiled is None:
        raise InputError(str(problems[0]), hint="advisor site check names all")
    return compiled


def _inventory(site: Mapping[str, object]) -> Inventory:
    """Return the node types that a site file describes by itself."""
    from advisor.core.inventory import Inventory, NodeType
    from advisor.policy.inventory import given_types, hand_written

    described_types: Iterable[NodeType | None] = (
        hand_written(n, g) for n, g in given_types(site).items()
    )
    return Inventory.of(node_type for node_type in described_types if node_type is not None)
