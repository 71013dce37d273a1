"""``advisor lab phases caps``: the best frequency cap of each phase, and what it would gain."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import percent
from advisor.core.codec import JsonForm, wire
from advisor.core.units import format_duration, format_energy, format_freq

if TYPE_CHECKING:
    from advisor_lab.phases.caps import CapsByPhase


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Add the options that caps are chosen under."""
    parser.add_argument(
        "--slowdown",
        type=percent,
        default=None,
        metavar="PERCENT",
        help="how much longer the whole run may take (default: 5%%)",
    )
    parser.add_argument(
        "--switch",
        type=_seconds,
        default=None,
        metavar="TIME",
        help="what a change of the cap costs, like 50us (default: 500us)",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the action."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="TABLE.csv",
        help="columns phase, freq_khz, time_s, energy_j: a whole run's, by phase and cap",
    )
    add_bounds(parser)
    parser.add_argument(
        "--changes",
        type=_count,
        default=0,
        metavar="N",
        help="how often one phase follows another in the whole run (default: 0)",
    )
    parser.add_argument(
        "--switch-power",
        type=_watts,
        default=None,
        metavar="WATTS",
        help="power while the cap changes (default: the run's mean at the highest cap)",
    )


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+(?:e-?[0-9]+)?)\s*(us|ms|s)", text.strip())
    try:
        if match is None:
            raise ValueError
        return float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[match[2]]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 50us, 2ms or 0s") from None


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of changes")
    return int(text)


def _watts(text: str) -> float:
    try:
        value = float(text)
        if not 0 <= value < float("inf"):
            raise ValueError
        return value
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a power in watts") from None


@dataclass(frozen=True, slots=True)
class CapsAnswer(JsonForm):
    """The best caps of a table's phases."""

    action: Literal["caps"] = field(default="caps", init=False)
    file: str
    caps: CapsByPhase = field(metadata=wire(inline=True))


class CapBounds(TypedDict):
    """What caps are chosen under: a fraction of the time, and seconds for a change of the cap."""

    slowdown: float
    switch_s: float


def cap_bounds(args: argparse.Namespace) -> CapBounds:
    """Return what caps are chosen under, by the options or as usual."""
    from advisor_lab.phases.caps import SLOWDOWN, SWITCH_S

    return {
        "slowdown": SLOWDOWN if args.slowdown is None else args.slowdown,
        "switch_s": SWITCH_S if args.switch is None else args.switch,
    }


def run(args: argparse.Namespace) -> int:
    """Choose caps for the phases of a table."""
    from advisor_lab.phases.caps import best_caps
    from advisor_lab.phases.files import read_caps

    costs = read_caps(args.file)
    names = list(costs)
    # phases follow each other in turn; of N changes each neighbouring pair has its part
    pairs = [(a, b) for a, b in zip(names, names[1:] + names[:1], strict=True) if a != b]
    share, more = divmod(args.changes, len(pairs)) if pairs else (0, 0)
    changes = {p: share + (i < more) for i, p in enumerate(pairs)}
    caps = best_caps(costs, changes, **cap_bounds(args), switch_w=args.switch_power)
    if args.json:
        print_json("phases", CapsAnswer(str(args.file), caps))
    else:
        print_caps(caps)
    return 0


def print_caps(caps: CapsByPhase) -> None:
    """Print the caps of each phase and what the whole run would take."""
    best, single = caps.best, caps.best_one
    print_table(
        ["phase", "best cap"], [[name, format_freq(khz)] for name, khz in best.caps_khz.items()]
    )
    print_table(
        ["", "time", "energy", "changes of the cap"],
        [
            [what, format_duration(c.time_s), format_energy(c.energy_j), c.switches]
            for what, c in (("one cap", single), ("by phase", best))
        ],
    )
    print(f"{caps.answer} (at most {format_duration(caps.bound_s)})")
