"""Caps by phase from a sweep: what its runs at other caps took for each part of the program."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.option import Z90
from advisor.phases.complete import BASE, STOPS, load_complete
from advisor.phases.metered import Metered
from advisor.training.state import SweepState
from advisor_lab.phases.caps import LEAST, SWITCH_S, CapsByPhase, best_caps, changes_of
from advisor_lab.phases.parts import PartCost, costs_of, parts_of

_Costs = Mapping[str, PartCost]


def caps_of_sweep(
    state: SweepState, *, slowdown: float, switch_s: float = SWITCH_S
) -> CapsByPhase | str:
    """Return the best caps by phase of a sweep's program, or why they are not known.

    Runs count that were ended early at the baseline's nodes, ranks and threads, and whose meter
    distinguished the parts' power. The energies are those of the first node, as its meter
    showed them while the runs went on.
    """
    folder = state.folder / "watch"
    run = load_complete(folder / BASE)
    if run is None or run.why or len(run.times) < 2:
        return (run.why if run is not None else "") or "no complete run of it was watched"
    phases = run.iterations()
    if not phases:
        return "the program has no iterations"
    parts = parts_of(run.times, run.sites, phases)
    if len(parts.names) < 2:
        return "the program has one phase only"
    meter = Metered()
    for reading in run.readings:
        meter.feed(*reading)
    baseline_costs = costs_of(parts, run.times, run.times, meter if run.readings else None)
    if any(cost.power_w is None for cost in baseline_costs.values()):
        return "the meter cannot tell the power of its phases apart"
    took = np.bincount(parts.labels, np.diff(np.array(run.times)), len(parts.names))
    seconds = dict(zip(parts.names, took.tolist(), strict=True))
    at_caps: dict[int, _Costs] = {_cap(state, state.subject.baseline): baseline_costs}
    for configuration, by_part in _stops(state, folder / STOPS):
        complete = set(by_part) == set(parts.names) and all(c.power_w for c in by_part.values())
        if complete and _alike(configuration, state.subject.baseline):
            at_caps.setdefault(_cap(state, configuration), by_part)
    if len(at_caps) < 2:
        return "no run with the job's threads at another cap was ended early with its power known"
    costs: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in parts.names}
    for khz, by_part in at_caps.items():
        for name, took_s in seconds.items():
            alone = took_s >= LEAST * run.span_s  # of smaller parts the baseline's own stands
            cost = by_part[name] if alone else baseline_costs[name]
            costs[name][khz] = (took_s * cost.ratio, took_s * cost.ratio * (cost.power_w or 0.0))
    changes = changes_of(parts.labels, parts.names)
    chosen = best_caps(
        costs,
        changes,
        slowdown=slowdown,
        switch_s=switch_s,
        reference_khz=_cap(state, state.subject.baseline),
    )
    return replace(chosen, saving_half=_unsure(chosen, costs, at_caps))


def _unsure(
    chosen: CapsByPhase,
    costs: Mapping[str, Mapping[int, tuple[float, float]]],
    at_caps: Mapping[int, _Costs],
) -> float:
    """Return the 90 % half width of the saving: of the powers of parts that change their cap."""
    squares = 0.0
    for name, khz in chosen.best.caps_khz.items():
        one_khz = chosen.best_one.caps_khz[name]
        if khz != one_khz and name in costs:
            squares += sum(
                (costs[name][k][0] * at_caps[k][name].error_w) ** 2 for k in (khz, one_khz)
            )
    return Z90 * math.sqrt(squares) / chosen.best_one.energy_j


def _cap(state: SweepState, configuration: Configuration) -> int:
    """Return the cap of a configuration; one without has the highest."""
    return configuration.freq_khz or max((*state.space.freqs_khz, 0))


def _alike(first: Configuration, second: Configuration) -> bool:
    """Tell whether two configurations differ in nothing but the cap."""
    return replace(first, freq_khz=0) == replace(second, freq_khz=0)


def _stops(state: SweepState, folder: Path) -> list[tuple[Configuration, _Costs]]:
    """Return the configuration and parts of each run that was ended; damaged files are left out."""
    runs = {(name, r.seq): r for name, stage in state.stages.items() for r in stage.runs}
    stops: list[tuple[Configuration, _Costs]] = []
    for path in sorted(folder.glob("*-*-*")):
        stage, _, rest = path.name.rpartition("-")[0].rpartition("-")
        run = runs.get((stage, int(rest))) if rest.isdecimal() else None
        try:
            parts = json.loads(path.read_text())["parts"]
            costs: _Costs = {
                str(n): PartCost(_number(r), None if w is None else _number(w), _number(e))
                for n, (r, w, e) in parts.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if run is not None:
            stops.append((run.configuration, costs))
    return stops


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number
