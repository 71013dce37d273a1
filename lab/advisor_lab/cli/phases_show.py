"""``advisor lab phases show``: iterations and phases of a command, an application or a folder."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, print_picture, save_plot
from advisor.core.units import format_count
from advisor_lab.cli.phases_bursts import clusters_json, print_clusters
from advisor_lab.cli.phases_caps import add_bounds, cap_bounds, caps_json, print_caps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.training.state import SweepState
    from advisor_lab.phases.caps import CapsByPhase
    from advisor_lab.phases.inside import InsideSignal
    from advisor_lab.phases.routines import FoldedRoutines, RunningCode
    from advisor_lab.phases.watching import WatchedRun

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
    phases: list[dict[str, Any]] = [
        {
            "begin_s": p.begin_s - begin,
            "end_s": p.end_s - begin,
            "period_s": p.period_s,
            "iterations": p.iterations,
            "period_events": p.events,
            "sites": list(p.sites),
            "rare": p.rare,
        }
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
            {
                "begin_s": s.begin_s - first,
                "end_s": s.end_s - first,
                "period_s": s.period_s,
                "iterations": s.iterations,
                "period_events": 0,
                "sites": [],
                "rare": {},
            }
            for s in stretches
        ]
    inside = signals_inside(watched_run.run, counted)
    routines = routines_inside(watched_run.run, watched_run.running)
    count = format_count(len(phases), "phase")
    data = {
        "subject": args.subject or " ".join(args.tail),
        "exit_code": watched_run.exit_code,
        "source": source,
        "events": max(0, len(times) - 2),
        "time_s": span_s,
        "phases": phases,
        "answer": count if phases else "no period",
        "head_s": phases[0]["begin_s"] if phases else None,
        "tail_s": span_s - phases[-1]["end_s"] if phases else None,
        "processes": [
            dict(zip(("program", "pid", "rank", "events", "lost"), p, strict=True))
            for p in watched_run.processes
        ],
        "notes": [
            *watched_run.notes,
            *([waiting] if waiting else []),
            *([f"not counted: {watched_run.why_not}"] if watched_run.why_not else []),
            *(
                [_too_few(watched_run.running)]
                if phases and watched_run.running and not routines
                else []
            ),
        ],
    }
    caps = _caps(args)
    clusters = _clusters(watched_run)
    if args.json:
        by_phase: dict[str, Any] = {"caps": None, "no_caps": ""}
        if isinstance(caps, str):
            by_phase["no_caps"] = caps
        else:
            by_phase["caps"] = caps_json(caps)
        drawn = [
            {
                "name": s.name,
                "unit": s.unit,
                "answer": s.folded.answer,
                **{k: getattr(s.folded, k).tolist() for k in ("x", "value", "low", "high")},
            }
            for s in inside
        ]
        data |= {"inside": drawn, "bursts": clusters, **_routines_json(routines), **by_phase}
        print_json("phases", {"action": "show", **data})
        return 1 if watched_run.exit_code else 0
    _print(data, watched_run)
    if watched_run.bursts is not None and clusters is not None:
        print_clusters(watched_run.bursts, clusters)
    _print_inside(inside, routines, args.plot)
    if not isinstance(caps, str):
        print_caps(caps)
    elif args.subject:
        print(f"caps by phase are not known: {caps}")
    return 1 if watched_run.exit_code else 0


def _print(data: dict[str, Any], watched_run: WatchedRun) -> None:
    from advisor.core.units import format_duration

    took = format_duration(data["time_s"])
    by_events = data["events"] and (not data["phases"] or data["phases"][0]["period_events"])
    source = f"{data['events']} {data['source']}" if by_events else data["source"]
    has_answer = by_events or data["phases"]
    print(
        f"{data['subject']}: {data['answer']} in {took}, by {source}"
        if has_answer
        else f"{data['subject']}: {source}"
    )
    if data["phases"]:
        print_table(
            ["phase", "from", "to", "iterations", "period", "events each", "sites", "rare"],
            [
                [
                    i,
                    format_duration(p["begin_s"]),
                    format_duration(p["end_s"]),
                    p["iterations"],
                    format_duration(p["period_s"]),
                    p["period_events"],
                    len(set(p["sites"])),
                    sum(p["rare"].values()) or "",
                ]
                for i, p in enumerate(data["phases"], 1)
            ],
        )
        head, tail = format_duration(data["head_s"]), format_duration(data["tail_s"])
        print(f"before the first iteration {head}, after the last {tail}")
    for program, pid, rank, events, lost_events in watched_run.processes:
        where = "" if rank is None else f", rank {rank}"
        lost_text = f", {lost_events} lost" if lost_events else ""
        print(f"process {pid} ({program}{where}): {format_count(events, 'event')}{lost_text}")
    for note in data["notes"]:
        print(f"note: {note}")


def _clusters(watched_run: WatchedRun) -> list[dict[str, Any]] | None:
    """Return the kinds of bursts between calls, by a subset; None where they have no counters."""
    if watched_run.bursts is None:
        return None
    from advisor_lab.phases.bursts import cluster

    return clusters_json(watched_run.bursts, cluster(watched_run.bursts, subset=_SUBSET))


def _too_few(code: RunningCode) -> str:
    """Say why no routines are shown though they were sampled."""
    return (
        f"routines are not shown: {format_count(len(code.times), 'sample')} (one every "
        f"{1e3 * code.every_s:.1f} ms of processor time) are too few for these iterations; measure "
        "a longer run"
    )


def _routines_json(routines: FoldedRoutines | None) -> dict[str, Any]:
    if routines is None:
        return {"routines": []}
    return {
        "routines": [
            {
                "name": r.name,
                "share": r.share,
                "x": routines.x.tolist(),
                **{k: getattr(r, k).tolist() for k in ("cores", "low", "high")},
            }
            for r in routines.routines
        ]
    }


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
