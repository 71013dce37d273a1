"""``advisor lab phases``: iterations, bursts, folded signals and early stops."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from advisor.cli.arguments import add_action, add_actions
from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, percent, print_picture, save_plot
from advisor.core.codec import JsonForm, wire
from advisor.core.units import format_count, format_duration, format_energy
from advisor_lab.cli import phases_caps, phases_show

if TYPE_CHECKING:
    from advisor.phases.arrays import Ints
    from advisor.phases.extrapolate import Extrapolated
    from advisor.phases.metered import Metered
    from advisor_lab.cli.phases_bursts import BurstCluster
    from advisor_lab.phases.files import SampledSignal
    from advisor_lab.phases.fold import FoldedSignal

_NO_PERIOD = "no period"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of ``advisor lab phases``."""
    actions = add_actions(parser)
    show = add_action(
        actions, "show", "watch a command, or show what was seen of an application's complete run"
    )
    phases_show.add_arguments(show)
    cluster = add_action(actions, "cluster", "find the kinds of computing bursts in a CSV file")
    cluster.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="BURSTS.csv",
        help="columns process, duration_s, instructions, cycles; of several nodes a file each",
    )
    cluster.add_argument(
        "--subset",
        type=_share,
        default=1.0,
        metavar="SHARE",
        help="cluster this share of the bursts and classify the rest, like 15%% (default: all)",
    )
    cluster.add_argument(
        "--seed", type=int, default=0, metavar="N", help="draws the subset (default: 0)"
    )
    cluster.add_argument(
        "--by",
        type=_names,
        default=(),
        metavar="NAME,NAME",
        help="cluster by these columns, or ipc (default: instructions,ipc)",
    )
    cluster.add_argument(
        "--counters",
        type=_names,
        default=(),
        metavar="NAME,NAME",
        help="more columns that were counted, to show by instruction and by second",
    )
    period = add_action(actions, "period", "find iterations in a sequence of events or a signal")
    period.add_argument(
        "file",
        type=Path,
        metavar="FILE.csv",
        help="columns time_s and site (events), or time_s and a number (a signal)",
    )
    fold = add_action(actions, "fold", "show power inside of an iteration, from a meter's readings")
    fold.add_argument(
        "file",
        type=Path,
        metavar="READINGS.csv",
        help="columns time_s and energy_j, as the counter showed it",
    )
    fold.add_argument(
        "--marks",
        type=Path,
        required=True,
        metavar="MARKS.csv",
        help="column time_s: when each iteration began, and when the last one ended",
    )
    add_plot_argument(fold)
    replay = add_action(
        actions, "replay", "show when a recorded run would have ended early, and its prediction"
    )
    replay.add_argument(
        "base", type=Path, metavar="BASE.csv", help="a complete run: columns time_s and site"
    )
    replay.add_argument("run", type=Path, metavar="RUN.csv", help="the run that is ended early")
    for option, whose in (("--readings", "the run's"), ("--base-readings", "the complete run's")):
        replay.add_argument(
            option, type=Path, metavar="FILE", help=f"{whose} meter: columns time_s and energy_j"
        )
    replay.add_argument(
        "--within",
        type=percent,
        default=0.03,
        metavar="PERCENT",
        help="end it when the 90%% half width of time and energy is this (default: 3%%)",
    )
    caps = add_action(
        actions, "caps", "choose a frequency cap for each phase, and show what it would gain"
    )
    phases_caps.add_arguments(caps)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(n.strip() for n in text.split(",")))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of columns")
    return names


def _share(text: str) -> float:
    return 1.0 if text.strip().rstrip("%") == "100" else percent(text)


class PhasesAnswer(JsonForm):
    """Iterations, bursts, folded signals, early stops and caps by phase, by action. Times in s,
    energies in J; a label is 0 for a burst of no cluster; x runs from 0 to 1 over an iteration.
    """


@dataclass(frozen=True, slots=True)
class BurstsFile(JsonForm):
    """A file of bursts, and how many they are."""

    file: str
    bursts: int


@dataclass(frozen=True, slots=True)
class ClustersAnswer(JsonForm):
    """The kinds of bursts."""

    action: Literal["cluster"] = field(default="cluster", init=False)
    file: Annotated[str, "the first file"]
    files: Annotated[Sequence[BurstsFile], "one a node; labels are in their order"]
    clusters: Sequence[BurstCluster]
    labels: Ints
    eps: float
    min_points: int
    unclustered_share: float


@dataclass(frozen=True, slots=True)
class IteratedStretch(JsonForm):
    """Iterations of events, or of a signal, which may have a longer pattern."""

    begin_s: float
    end_s: float
    period_s: float
    iterations: int
    period_events: int = field(default=0, metadata=wire(omit=True))
    sites: tuple[str, ...] = field(default=(), metadata=wire(omit=True))
    rare: Mapping[str, int] = field(default_factory=dict, metadata=wire(omit=True))
    outer_period_s: float = field(default=0.0, metadata=wire(omit=True))


@dataclass(frozen=True, slots=True)
class PeriodAnswer(JsonForm):
    """The iterations of a file."""

    action: Literal["period"] = field(default="period", init=False)
    file: str
    phases: Sequence[IteratedStretch]
    answer: str


@dataclass(frozen=True, slots=True)
class FoldAnswer(JsonForm):
    """Power inside of an iteration."""

    action: Literal["fold"] = field(default="fold", init=False)
    file: str
    folded: FoldedSignal = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class ReplayAnswer(JsonForm):
    """When a run would have ended early, and what it would have been taken for."""

    action: Literal["replay"] = field(default="replay", init=False)
    base: str
    run: str
    stopped: bool
    stop_s: float
    share: float
    iterations: int
    time_s: float
    time_interval_s: tuple[float, float]
    energy_j: float | None
    energy_interval_j: tuple[float, float] | None
    unseen_share: float
    reason: str


ANSWERS = (
    ClustersAnswer,
    PeriodAnswer,
    FoldAnswer,
    ReplayAnswer,
    phases_show.ShowAnswer,
    phases_caps.CapsAnswer,
)


def run(args: argparse.Namespace) -> int:
    """Run one action."""
    actions = {
        "show": phases_show.run,
        "cluster": _cluster,
        "period": _period,
        "fold": _fold,
        "replay": _replay,
        "caps": phases_caps.run,
    }
    return actions[args.action](args)


# -- cluster ---------------------------------------------------------------------------------------


def _cluster(args: argparse.Namespace) -> int:
    from advisor_lab.cli.phases_bursts import described_clusters, print_clusters
    from advisor_lab.phases.burst_tree import cluster_nodes, joined
    from advisor_lab.phases.bursts import cluster
    from advisor_lab.phases.files import read_bursts

    nodes = [read_bursts(f, axis_names=args.by, counters=args.counters) for f in args.files]
    if len(nodes) > 1:
        bursts, groups = joined(nodes, cluster_nodes(nodes, subset=args.subset, seed=args.seed))
    else:
        bursts = nodes[0]
        groups = cluster(bursts, subset=args.subset, seed=args.seed)
    clusters = described_clusters(bursts, groups)
    if args.json:
        answer = ClustersAnswer(
            str(args.files[0]),
            [BurstsFile(str(f), n.size) for f, n in zip(args.files, nodes, strict=True)],
            [c for c in clusters if c.label],
            groups.labels,
            groups.eps,
            groups.min_points,
            sum(c.time_share for c in clusters if not c.label),
        )
        print_json("phases", answer)
        return 0
    print_clusters(bursts, clusters)
    return 0


# -- period ----------------------------------------------------------------------------------------


def _period(args: argparse.Namespace) -> int:
    from advisor.phases.sequence import find_iterations
    from advisor_lab.phases.files import SITE, columns_of, read_events, read_signal
    from advisor_lab.phases.signal import find_periods

    phases: list[IteratedStretch]
    if SITE in columns_of(args.file):
        events = read_events(args.file)
        what = f"{len(events.times)} events"
        phases = [
            IteratedStretch(
                p.begin_s, p.end_s, p.period_s, p.iterations, p.events, tuple(p.sites), p.rare
            )
            for p in find_iterations(events.times, events.sites)
        ]
    else:
        signal = read_signal(args.file)
        what = f"{len(signal.times)} samples of {signal.name}"
        phases = [
            IteratedStretch(
                s.begin_s,
                s.end_s,
                s.period_s,
                s.iterations,
                outer_period_s=s.outer_period_s or 0.0,
            )
            for s in find_periods(signal.times, signal.values)
        ]
    count = format_count(len(phases), "phase")
    answer = count if phases else _NO_PERIOD
    if args.json:
        print_json("phases", PeriodAnswer(str(args.file), phases, answer))
        return 0
    print(f"{what}: {answer}")
    if phases:
        print_table(
            ["phase", "from", "to", "period", "iterations", ""],
            [
                [
                    i,
                    f"{p.begin_s:.4g} s",
                    f"{p.end_s:.4g} s",
                    f"{p.period_s:.4g} s",
                    p.iterations,
                    _details(p),
                ]
                for i, p in enumerate(phases, 1)
            ],
        )
    return 0


def _details(phase: IteratedStretch) -> str:
    parts = [f"{phase.period_events} events each"] if phase.period_events else []
    parts += [f"{site} {times} times" for site, times in phase.rare.items()]
    if phase.outer_period_s:
        parts.append(f"a longer pattern of {phase.outer_period_s:.4g} s")
    return ", ".join(parts)


# -- fold ------------------------------------------------------------------------------------------


def _fold(args: argparse.Namespace) -> int:
    from advisor.errors import RefusedError
    from advisor_lab.phases.files import read_marks, read_readings
    from advisor_lab.phases.fold import fold
    from advisor_lab.phases.inside import InsideSignal
    from advisor_lab.phases.views import picture_of

    check_plot(args.plot)
    readings, marks = read_readings(args.file), read_marks(args.marks)
    folded = fold(readings.times, metered(readings).at(readings.times), marks)
    if folded is None:
        raise RefusedError(
            "there is too little to fold: fewer than 8 iterations with readings in them",
            hint="readings and marks must be of the same clock",
        )
    picture = picture_of([InsideSignal("power", "W", folded)])
    if args.plot is not None:
        save_plot(picture, args.plot)
    if args.json:
        print_json("phases", FoldAnswer(str(args.file), folded))
        return 0
    print_picture(picture)
    print(folded.answer)
    print(f"{folded.per_iteration:.4g} J in an iteration of {format_duration(folded.iteration_s)}")
    return 0


def metered(readings: SampledSignal) -> Metered:
    """Return a meter that was fed all of the readings."""
    from advisor.phases.metered import Metered

    meter = Metered()
    for time_s, value in zip(readings.times.tolist(), readings.values.tolist(), strict=True):
        meter.feed(time_s, value)
    return meter


# -- replay ----------------------------------------------------------------------------------------


def _replay(args: argparse.Namespace) -> int:
    from advisor.errors import UsageError
    from advisor.phases.pairing import Baseline, replay
    from advisor_lab.phases.files import read_events, read_readings

    if (args.readings is None) != (args.base_readings is None):
        raise UsageError("energy needs --readings and --base-readings", hint="give both or none")
    if args.within <= 0:
        raise UsageError("--within must be above 0")
    base, recorded = read_events(args.base), read_events(args.run)
    meter, pairs = None, []
    if args.readings is not None:
        meter = metered(read_readings(args.base_readings))
        readings = read_readings(args.readings)
        pairs = list(zip(readings.times.tolist(), readings.values.tolist(), strict=True))
    stop = replay(Baseline(base, meter), recorded, pairs, within=args.within)
    run_s = recorded.times[-1] - recorded.times[0]
    share = stop.stop_s / run_s if run_s > 0 else 1.0
    if args.json:
        answer = ReplayAnswer(
            str(args.base),
            str(args.run),
            stop.stopped,
            stop.stop_s,
            share,
            stop.iterations,
            stop.time.total,
            stop.time.interval,
            None if stop.energy is None else stop.energy.total,
            None if stop.energy is None else stop.energy.interval,
            stop.time.unseen_share,
            stop.reason,
        )
        print_json("phases", answer)
        return 0
    took = format_duration(stop.stop_s)
    first = (
        f"ended after {took}, {100 * share:.1f} % of the run" if stop.stopped else "not ended early"
    )
    print(f"{first}: {stop.reason}")
    print(f"time    {_with_error(stop.time, format_duration)}")
    if stop.energy is not None:
        print(f"energy  {_with_error(stop.energy, format_energy)}")
    return 0


def _with_error(value: Extrapolated, form: Callable[[float], str]) -> str:
    error = f" +- {100 * value.half / value.total:.1f} %" if value.half and value.total else ""
    return f"{form(value.total)}{error}"
