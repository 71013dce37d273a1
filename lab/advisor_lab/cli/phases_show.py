"""``advisor lab phases show``: iterations and phases of a command, an application or a folder."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, print_picture, save_plot
from advisor.core.codec import JsonForm
from advisor.core.units import format_count
from advisor_lab.cli.phases_bursts import BurstCluster, described_clusters, print_clusters
from advisor_lab.cli.phases_caps import add_bounds, cap_bounds, print_caps

if TYPE_CHECKING:
    from advisor.phases.arrays import Floats
    from advisor.training.state import SweepState
    from advisor_lab.phases.caps import CapsByPhase
    from advisor_lab.phases.inside import InsideSignal
    from advisor_lab.phases.routines import FoldedRoutines, RoutineInside, RunningCode
    from advisor_lab.phases.watching import SeenProcess, WatchedRun

_SUBSET = 0.15
"""Share of the bursts that is clustered; the rest is classified."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action's arguments."""
    parser.usage = "advisor lab phases show APP | FOLDER\n       advisor lab phases show -- COMMAND"
    parser.add_argument(
        "subject",
        nargs="?",
        metavar="APP|FOLDER",
        help="an application that was trained, a sweep's folder, or one that processes left",
    )
    add_bounds(parser)
    add_plot_argument(parser)
    parser.set_defaults(takes_tail=True)


@dataclass(frozen=True, slots=True)
class SeenPhase(JsonForm):
    """A phase of iterations; sites and rare ones where it was found by events."""

    begin_s: float
    end_s: float
    period_s: float
    iterations: int
    period_events: int
    sites: Sequence[str]
    rare: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class InsideForm(JsonForm):
    """One quantity inside of a mean iteration."""

    name: str
    unit: str
    answer: str
    x: Floats
    value: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, signal: InsideSignal) -> InsideForm:
        """Return a signal as it is printed."""
        folded = signal.folded
        curve = (folded.x, folded.value, folded.low, folded.high)
        return cls(signal.name, signal.unit, folded.answer, *curve)


@dataclass(frozen=True, slots=True)
class RoutineForm(JsonForm):
    """The cores that a routine keeps busy in a mean iteration."""

    name: str
    share: Annotated[float, "of the processor time of the iterations"]
    x: Floats
    cores: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, routine: RoutineInside, x: Floats) -> RoutineForm:
        """Return a routine as it is printed."""
        return cls(routine.name, routine.share, x, routine.cores, routine.low, routine.high)


@dataclass(frozen=True, slots=True)
class ShowAnswer(JsonForm):
    """What was seen of a run."""

    action: Literal["show"] = field(default="show", init=False)
    subject: str
    exit_code: int
    source: Annotated[str, "by what iterations were looked for"]
    events: int
    time_s: float
    phases: Sequence[SeenPhase]
    answer: str
    head_s: float | None
    tail_s: float | None
    processes: Sequence[SeenProcess]
    notes: Sequence[str]
    inside: Annotated[
        Sequence[InsideForm], "what meters and counters tell of a mean iteration, x from 0 to 1"
    ]
    bursts: Annotated[
        Sequence[BurstCluster] | None,
        "kinds of bursts between calls, label 0 for those of none; null: they have no counters",
    ]
    routines: Annotated[
        Sequence[RoutineForm],
        "which routine runs where in a mean iteration: the cores it keeps busy, x from 0 to 1, "
        "with a 90 % band",
    ]
    caps: Annotated[CapsByPhase | None, "the best cap of each phase; null: not known"]
    no_caps: Annotated[str, "why caps are not known"]


def run(args: argparse.Namespace) -> int:
    """Show what repeats, and by what it was found."""
    from advisor.errors import UsageError
    from advisor_lab.phases.inside import (
        counted_periods,
        mean_cores,
        routines_inside,
        signals_inside,
        usable,
    )
    from advisor_lab.phases.routines import active_waiting
    from advisor_lab.phases.watching import watched_command

    if bool(args.subject) == bool(args.tail):
        raise UsageError(
            "name an application or a folder, or give a command after --",
            hint="advisor lab phases show -- COMMAND",
        )
    check_plot(args.plot)
    watched_run = (
        watched_command(args.tail, quiet=args.json) if args.tail else _kept_run(args.subject)
    )
    times = watched_run.run.times
    begin = times[0] if times else 0.0
    phases = [
        SeenPhase(
            p.begin_s - begin,
            p.end_s - begin,
            p.period_s,
            p.iterations,
            p.events,
            p.sites,
            p.rare,
        )
        for p in watched_run.run.iterations()
    ]
    source, span_s = watched_run.source, watched_run.run.span_s
    waiting = active_waiting(watched_run.running, mean_cores(watched_run.counted), os.environ)
    counted = usable(watched_run.counted, watched_run.running, waiting)
    if not phases:
        counter, stretches = counted_periods(counted)
        first = min((r[0][0] for r in watched_run.counted.values()), default=0.0)
        if counter:
            source, span_s = counter, max(r[-1][0] for r in watched_run.counted.values()) - first
        phases = [
            SeenPhase(s.begin_s - first, s.end_s - first, s.period_s, s.iterations, 0, (), {})
            for s in stretches
        ]
    inside = signals_inside(watched_run.run, counted)
    routines = routines_inside(watched_run.run, watched_run.running)
    count = format_count(len(phases), "phase")
    notes = list(watched_run.notes)
    if waiting:
        notes.append(waiting)
    if watched_run.why_not:
        notes.append(f"not counted: {watched_run.why_not}")
    if phases and watched_run.running and not routines:
        notes.append(_too_few(watched_run.running))
    caps = _caps(args)
    answer = ShowAnswer(
        args.subject or " ".join(args.tail),
        watched_run.exit_code,
        source,
        max(0, len(times) - 2),
        span_s,
        phases,
        count if phases else "no period",
        phases[0].begin_s if phases else None,
        span_s - phases[-1].end_s if phases else None,
        watched_run.processes,
        notes,
        [InsideForm.of(s) for s in inside],
        _clusters(watched_run),
        [] if routines is None else [RoutineForm.of(r, routines.x) for r in routines.routines],
        None if isinstance(caps, str) else caps,
        caps if isinstance(caps, str) else "",
    )
    if args.json:
        print_json("phases", answer)
        return 1 if watched_run.exit_code else 0
    _print(answer)
    if watched_run.bursts is not None and answer.bursts is not None:
        print_clusters(watched_run.bursts, answer.bursts)
    _print_inside(inside, routines, args.plot)
    if answer.caps is not None:
        print_caps(answer.caps)
    elif args.subject:
        print(f"caps by phase are not known: {caps}")
    return 1 if watched_run.exit_code else 0


def _print(answer: ShowAnswer) -> None:
    from advisor.core.units import format_duration

    took = format_duration(answer.time_s)
    phases = answer.phases
    by_events = answer.events and (not phases or phases[0].period_events)
    source = f"{answer.events} {answer.source}" if by_events else answer.source
    print(
        f"{answer.subject}: {answer.answer} in {took}, by {source}"
        if by_events or phases
        else f"{answer.subject}: {source}"
    )
    if answer.head_s is not None and answer.tail_s is not None:
        print_table(
            ["phase", "from", "to", "iterations", "period", "events each", "sites", "rare"],
            [
                [
                    i,
                    format_duration(p.begin_s),
                    format_duration(p.end_s),
                    p.iterations,
                    format_duration(p.period_s),
                    p.period_events,
                    len(set(p.sites)),
                    sum(p.rare.values()) or "",
                ]
                for i, p in enumerate(phases, 1)
            ],
        )
        head, tail = format_duration(answer.head_s), format_duration(answer.tail_s)
        print(f"before the first iteration {head}, after the last {tail}")
    for process in answer.processes:
        where = "" if process.rank is None else f", rank {process.rank}"
        lost_text = f", {process.lost} lost" if process.lost else ""
        events = format_count(process.events, "event")
        print(f"process {process.pid} ({process.program}{where}): {events}{lost_text}")
    for note in answer.notes:
        print(f"note: {note}")


def _clusters(watched_run: WatchedRun) -> list[BurstCluster] | None:
    """Return the kinds of bursts between calls, by a subset; None where they have no counters."""
    if watched_run.bursts is None:
        return None
    from advisor_lab.phases.bursts import cluster

    return described_clusters(watched_run.bursts, cluster(watched_run.bursts, subset=_SUBSET))


def _too_few(code: RunningCode) -> str:
    """Say why no routines are shown though they were sampled."""
    return (
        f"routines are not shown: {format_count(len(code.times), 'sample')} (one every "
        f"{1e3 * code.every_s:.1f} ms of processor time) are too few for these iterations; measure "
        "a longer run"
    )


def _print_inside(
    inside: Sequence[InsideSignal], routines: FoldedRoutines | None, plot: Path | None
) -> None:
    """Show the inside of an iteration, where something was read or sampled beside the run."""
    from advisor.errors import RefusedError
    from advisor_lab.phases.views import picture_of

    if inside or routines is not None:
        picture = picture_of(inside, routines)
        print_picture(picture)
        if inside:
            print(inside[0].folded.answer)
        if routines is not None:
            _print_routines(routines)
        if plot is not None:
            save_plot(picture, plot)
    elif plot is not None:
        raise RefusedError(
            "there is nothing to draw: neither meter nor counters were read beside 8 iterations",
            hint="a sweep's complete run has power where its node has RAPL or pm_counters",
        )


def _print_routines(routines: FoldedRoutines) -> None:
    """Say which routine has most of the processor time from where to where."""
    print(
        f"the routine running, from {routines.samples} samples over {routines.iterations} "
        "iterations:"
    )
    shares = {r.name: r.share for r in routines.routines}
    print_table(
        ["from", "to", "mostly", "its share of the iteration"],
        [
            [f"{begin:.0%}", f"{end:.0%}", name, f"{shares[name]:.1%}"]
            for begin, end, name in routines.stretches()
        ],
    )


def _caps(args: argparse.Namespace) -> CapsByPhase | str:
    """Return the best caps by phase of a sweep's program, or why they are not known."""
    from advisor_lab.phases.part_caps import caps_of_sweep

    state = _sweep(args.subject) if args.subject else None
    if state is None:
        return "only a sweep's runs at other caps tell"
    return caps_of_sweep(state, **cap_bounds(args))


def _sweep(subject: str) -> SweepState | None:
    """Return the sweep that a subject's complete run is of, None for a mere folder of rings."""
    from advisor import paths
    from advisor.errors import InputError
    from advisor.training.state import load, newest_of
    from advisor_lab.phases.watching import watched_folder

    folder = Path(subject)
    if folder.is_dir():
        for place in (folder, folder.resolve().parent):
            try:
                return load(place)
            except InputError:
                continue
        return None
    sweeps = newest_of(paths.state_dir() / "sweeps", subject)
    return next((s for s in sweeps if watched_folder(s.folder) is not None), None)


def _kept_run(subject: str) -> WatchedRun:
    """Return what is kept of an application's or a folder's last complete run."""
    from advisor import paths
    from advisor.errors import RefusedError
    from advisor.training.state import newest_of
    from advisor_lab.phases.watching import watched_folder

    folder = Path(subject)
    if folder.is_dir():
        watched_run = watched_folder(folder)
        if watched_run is None:
            raise RefusedError(
                f"nothing that was watched is in {folder}",
                hint="a sweep's folder has it in watch/; "
                "advisor lab phases show -- COMMAND watches",
            )
        return watched_run
    for state in newest_of(paths.state_dir() / "sweeps", subject):
        watched_run = watched_folder(state.folder)
        if watched_run is not None:
            return watched_run
    raise RefusedError(
        f"no run of {subject} was watched",
        hint="advisor lab phases show -- COMMAND watches one now",
    )
