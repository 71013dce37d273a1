"""What is known of a program's phases from a sweep: its iterations, power inside them, caps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.core.units import (
    format_count,
    format_duration,
    format_energy,
    format_freq,
)
from advisor.errors import InputError
from advisor.phases.complete import BASE, CompleteRun, load_complete
from advisor.phases.sequence import IteratedPhase
from advisor.plotting.chart import Marks
from advisor.plotting.panels import Line, Lines, Panels
from advisor.plotting.terminal import draw_panels
from advisor.training.state import load
from advisor_lab.phases.caps import SWITCH_S, CapsByPhase
from advisor_lab.phases.inside import InsideSignal, power_inside
from advisor_lab.phases.part_caps import caps_of_sweep
from advisor_lab.phases.routines import FoldedRoutines


def phases_of_sweep(folder: Path, slowdown: float, width: int) -> list[str]:
    """Return what a sweep's folder tells of its program's phases, as lines of a page.

    ``slowdown`` bounds the caps by phase (a fraction), ``width`` the picture (columns).
    """
    run = load_complete(folder / "watch" / BASE)
    if run is None or not run.times:
        why = run.why if run is not None else ""
        return [why or "No complete run of this sweep was watched."]
    phases = run.iterations()
    count = format_count(len(phases), "phase") if phases else "no period"
    lines = [f"{count} in {format_duration(run.span_s)}, by {len(run.times) - 2} calls"]
    lines += [_phase(number, p, run) for number, p in enumerate(phases, 1)]
    lines += ["", *caps_lines(_caps(folder, slowdown), slowdown)]
    folded = power_inside(run)
    if folded is not None:
        picture = picture_of([InsideSignal("power", "W", folded)])
        drawn = draw_panels(picture, width=width, marks=Marks()).split("\n")
        lines += ["", *drawn, folded.answer]
    return lines


def _phase(number: int, phase: IteratedPhase, run: CompleteRun) -> str:
    begin, end = (format_duration(t - run.times[0]) for t in (phase.begin_s, phase.end_s))
    period = format_duration(phase.period_s)
    iterations = format_count(phase.iterations, "iteration")
    return f"phase {number}: {begin} to {end}, {iterations} of {period}"


def _caps(folder: Path, slowdown: float) -> CapsByPhase | str:
    try:
        return caps_of_sweep(load(folder), slowdown=slowdown, switch_s=SWITCH_S)
    except InputError as error:
        return error.message


def caps_lines(choice: CapsByPhase | str, slowdown: float) -> list[str]:
    """Return the best cap of each phase and what it would gain, or why that is not known."""
    if isinstance(choice, str):
        return [f"Caps by phase are not known: {choice}."]
    caps = [f"  {name}: {format_freq(khz)}" for name, khz in choice.best.caps_khz.items()]
    took = [
        f"  {what}: {format_duration(c.time_s)}, {format_energy(c.energy_j)}, "
        f"{c.switches} changes of the cap"
        for what, c in (("one cap", choice.best_one), ("by phase", choice.best))
    ]
    title = f"Best cap of each phase, at most {100 * slowdown:.0f} % slower as a whole:"
    return [title, *caps, *took, f"{choice.answer}."]


def picture_of(inside: Sequence[InsideSignal], routines: FoldedRoutines | None = None) -> Panels:
    """Return a folded iteration as a picture with the bands: a panel for each quantity.

    ``routines`` have a panel of their own, with the cores that each keeps busy.
    """

    def every_second(values: Sequence[float]) -> list[float]:
        return [float(v) for v in values[::2]]

    panels = []
    for signal in inside:
        f = signal.folded
        x, value, low, high = (every_second(v.tolist()) for v in (f.x, f.value, f.low, f.high))
        line = Line(signal.name, x, value, low, high)
        panels.append(Lines("part of the iteration", signal.unit, (line,), whole_bands=True))
    if routines is not None:
        x = routines.x.tolist()
        lines = tuple(
            Line(f"{r.name} ({r.share:.0%})", x, r.cores.tolist(), r.low.tolist(), r.high.tolist())
            for r in routines.routines
        )
        panels.append(Lines("part of the iteration", "cores, by routine", lines))
    return Panels("an iteration, folded", tuple(panels))
