"""Caps by phase from a sweep: what its runs at other caps took for each part of the program."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.core.configuration import Configuration
from advisor.phases.caps import SWITCH_S, CapsByPhase, best_caps, changes_of
from advisor.phases.complete import BASE, STOPS, load_complete
from advisor.phases.metered import Metered
from advisor.phases.parts import costs_of, parts_of
from advisor.phases.sequence import find_iterations
from advisor.training.state import SweepState

_Costs = Mapping[str, tuple[float, float | None]]
"""By part: its time against the baseline's, and its power (W)."""


def caps_of_sweep(
    state: SweepState, *, slowdown: float, switch_s: float = SWITCH_S
) -> CapsByPhase | str:
    """Return the best caps by phase of a sweep's program, or why they are not known.

    Runs count that were ended early at the baseline's nodes, ranks and threads, and whose meter
    told the parts' power apart. The energies are those of the first node, as its meter showed them
    while the runs went on.
    """
    folder = state.folder / "watch"
    run = load_complete(folder / BASE)
    if run is None or run.why or len(run.times) < 2:
        return (run.why if run is not None else "") or "no complete run of it was watched"
    phases = find_iterations(run.times, run.sites)
    if not phases:
        return "the program has no iterations"
    parts = parts_of(run.times, run.sites, phases)
    if len(parts.names) < 2:
        return "the program has one phase only"
    meter = Metered()
    for reading in run.readings:
        meter.feed(*reading)
    own = costs_of(parts, run.times, run.times, meter if run.readings else None)
    if any(cost.power_w is None for cost in own.values()):
        return "the meter cannot tell the power of its phases apart"
    took = np.bincount(parts.labels, np.diff(np.array(run.times)), len(parts.names))
    seconds = dict(zip(parts.names, took.tolist(), strict=True))
    at_caps: dict[int, _Costs] = {
        _cap(state, state.subject.baseline): {n: (1.0, c.power_w) for n, c in own.items()}
    }
    for configuration, found in _stops(state, folder / STOPS):
        known = all(n in found and found[n][1] is not None for n in parts.names)
        if (
            known
            and set(found) == set(parts.names)
            and _alike(configuration, state.subject.baseline)
        ):
            at_caps.setdefault(_cap(state, configuration), found)
    if len(at_caps) < 2:
        return "no run with the job's threads at another cap was ended early with its power known"
    costs: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in parts.names}
    for khz, found in at_caps.items():
        for name, (ratio, watts) in found.items():
            took_s = seconds[name] * ratio
            costs[name][khz] = (took_s, took_s * (watts or 0.0))
    changes = changes_of(parts.labels, parts.names)
    return best_caps(
        costs, changes, slowdown=slowdown, switch_s=switch_s,
        reference_khz=_cap(state, state.subject.baseline),
    )  # fmt: skip


def _cap(state: SweepState, configuration: Configuration) -> int:
    """Return the cap of a configuration; one without has the highest."""
    return configuration.freq_khz or max((*state.space.freqs_khz, 0))


def _alike(one: Configuration, other: Configuration) -> bool:
    """Tell whether two configurations differ in nothing but the cap."""
    return replace(one, freq_khz=0) == replace(other, freq_khz=0)


def _stops(state: SweepState, folder: Path) -> list[tuple[Configuration, _Costs]]:
    """Return the configuration and parts of each run that was ended; damaged files are left out."""
    runs = {(name, r.seq): r for name, stage in state.stages.items() for r in stage.runs}
    found: list[tuple[Configuration, _Costs]] = []
    for path in sorted(folder.glob("*-*-*")):
        stage, _, rest = path.name.rpartition("-")[0].rpartition("-")
        run = runs.get((stage, int(rest))) if rest.isdecimal() else None
        try:
            parts = json.loads(path.read_text())["parts"]
            costs: _Costs = {str(n): (_number(r), None if w is None else _number(w))
                     for n, (r, w) in parts.items()}  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if run is not None:
            found.append((run.configuration, costs))
    return found


def _number(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError(value)
    return number
