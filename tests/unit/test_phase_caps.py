"""Caps by phase: chosen from a table by hand, and from a sweep's runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.core.configuration import Configuration
from advisor.phases.complete import BASE, STOPS, CompleteRun
from advisor.phases.metered import Metered
from advisor.phases.pairing import Baseline, Pairing, RunEvents
from advisor.phases.sequence import find_iterations
from advisor.schedulers.base import PlannedRun
from advisor_lab.phases import views as phases
from advisor_lab.phases.caps import REST, best_caps, changes_of, powers
from advisor_lab.phases.part_caps import caps_of_sweep
from advisor_lab.phases.parts import parts_of, parts_of_stop

Run = Callable[..., Any]
HIGH, MID, LOW = 2_000_000, 1_500_000, 1_000_000
COSTS = {
    "solve": {HIGH: (30.0, 3000.0), MID: (36.0, 2900.0), LOW: (50.0, 3100.0)},
    "copy": {HIGH: (10.0, 900.0), MID: (10.2, 700.0), LOW: (10.5, 500.0)},
}
IN_TURN = {("solve", "copy"): 500, ("copy", "solve"): 500}


def test_each_phase_has_its_best_cap_under_the_bound_of_the_whole_run() -> None:
    """40 s and 3900 J at the highest cap: 4 s more are allowed, one cap of 1.5 GHz takes 6.2 s."""
    found = best_caps(COSTS, {}, slowdown=0.10)
    assert found.reference_khz == HIGH and found.bound_s == pytest.approx(44)
    assert found.best_one.caps_khz == {"solve": HIGH, "copy": HIGH}
    assert found.best.caps_khz == {"solve": HIGH, "copy": LOW}
    assert (found.best.time_s, found.best.energy_j) == (40.5, 3500.0)
    assert found.saving == pytest.approx(400 / 3900)
    wide = best_caps(COSTS, {}, slowdown=0.20)  # 36 + 10.5 s are 46.5 of 48
    assert wide.best_one.caps_khz == {"solve": MID, "copy": MID}
    assert wide.best.caps_khz == {"solve": MID, "copy": LOW}
    assert wide.saving == pytest.approx(1 - 3400 / 3600)


def test_changes_of_the_cap_cost_time_and_energy() -> None:
    """1000 changes of 1 ms are 1 s, at 100 W 100 J; of 4 ms they are 4 s and break the bound."""
    found = best_caps(COSTS, IN_TURN, slowdown=0.10, switch_s=0.001, switch_w=100.0)
    assert (found.best.time_s, found.best.energy_j) == (41.5, 3600.0)
    assert found.best.switches == 1000 and found.best_one.switches == 0
    dear = best_caps(COSTS, IN_TURN, slowdown=0.10, switch_s=0.004, switch_w=100.0)
    assert dear.best.one and dear.saving == 0
    usual = best_caps(COSTS, IN_TURN, slowdown=0.10, switch_s=0.001)  # 3900 J in 40 s: 97.5 W
    assert usual.best.energy_j == pytest.approx(3597.5)


def test_many_phases_share_a_cap_where_all_combinations_are_too_many() -> None:
    costs = {
        f"p{i}": {HIGH - 100_000 * c: (1.0 + i + 0.01 * c, 10.0 - c) for c in range(9)}
        for i in range(9)
    }
    changes = {(f"p{i}", f"p{(i + 1) % 9}"): 1 for i in range(9)}
    found = best_caps(costs, changes, slowdown=1.0)
    assert len(found.best.caps_khz) == 6 and REST in found.best.caps_khz
    assert found.best.energy_j == pytest.approx(9 * 2.0)
    assert found.best.one and found.best.caps_khz["p8"] == HIGH - 800_000
    with pytest.raises(ValueError, match="no cap is known"):
        best_caps({"a": {1: (1.0, 1.0)}, "b": {2: (1.0, 1.0)}}, {}, slowdown=0.1)


def test_power_of_parts_comes_from_readings_that_are_slower_than_they() -> None:
    """Parts of 0.2 s and 0.13 s at 300 and 100 W, read each 0.25 s; each 0.33 s keeps step."""
    labels = np.array([0, 1] * 100)
    edges = np.concatenate([[0.0], np.cumsum(np.where(labels == 0, 0.2, 0.13))])
    spent = np.concatenate([[0.0], np.cumsum(np.where(labels == 0, 60.0, 13.0))])
    for period, known in ((0.25, True), (0.33, False)):
        times = np.arange(0, 33, period)
        found = powers(edges, labels, 2, times, np.interp(times, edges, spent))
        if known:
            assert found is not None and found[0] == pytest.approx([300, 100], rel=0.01)
            assert (found[1] < 1).all()
        else:
            assert found is None
    labels[:2] = 2  # half a second of a hundred is too little to tell its power
    times = np.arange(0, 33, 0.25)
    small = powers(edges, labels, 3, times, np.interp(times, edges, spent))
    assert small is not None and small[0][2] == pytest.approx(spent[-1] / edges[-1], rel=0.02)
    assert small[0][:2] == pytest.approx([300, 100], rel=0.03)
    assert powers(edges, labels, 2, np.array([0.0, 1.0]), np.array([0.0, 200.0])) is None


def recorded(solve_s: float, copy_s: float, watts: tuple[float, float]) -> CompleteRun:
    """A run of 60 iterations of two sites, and its meter of 10 Hz."""
    sites = ["begin", *["solve", "copy"] * 60, "end"]
    spans = np.array([1.0, *[solve_s, copy_s] * 60])
    power = np.array([90.0, *watts * 60])
    times = np.concatenate([[0.0], np.cumsum(spans)])
    joules = np.concatenate([[0.0], np.cumsum(spans * power)])
    ticks = np.arange(0.0, times[-1], 0.1)
    readings = list(zip(ticks.tolist(), np.interp(ticks, times, joules).tolist(), strict=True))
    return CompleteRun(times.tolist(), sites, readings)


@pytest.fixture
def sweep(tmp_path: Path) -> Any:
    """A sweep of three runs; the second, at half the cap, was ended after 20 iterations."""
    whole, other = recorded(0.43, 0.12, (300.0, 200.0)), recorded(0.86, 0.123, (150.0, 80.0))
    (tmp_path / "watch" / STOPS).mkdir(parents=True)
    whole.save(tmp_path / "watch" / BASE)
    meter = Metered()
    for reading in whole.readings:
        meter.feed(*reading)
    pairing = Pairing(Baseline(RunEvents(tuple(whole.times), tuple(whole.sites)), meter))
    for reading in other.readings:
        if reading[0] <= other.times[41]:
            pairing.read(*reading)
    for time_s, site in zip(other.times[:42], other.sites[:42], strict=True):
        pairing.feed(time_s, site)
    watched = pairing.watched()
    assert watched is not None
    parts = parts_of_stop(watched)
    (tmp_path / "watch" / STOPS / "design-1-1").write_text(json.dumps({"parts": parts}))
    (tmp_path / "watch" / STOPS / "design-2-1").write_text('{"parts": {"solve": ["x", 1]}}')
    runs = tuple(
        PlannedRun(i, "design", Configuration("t", 1, 1, 4, khz))
        for i, khz in enumerate((0, LOW, MID))
    )
    return SimpleNamespace(
        folder=tmp_path,
        subject=SimpleNamespace(baseline=runs[0].configuration),
        space=SimpleNamespace(freqs_khz=(LOW, HIGH)),
        stages={"design": SimpleNamespace(runs=runs)},
    )


def test_caps_by_phase_come_from_a_sweeps_runs(sweep: Any) -> None:
    """solve takes 25.8 s and 7740 J at either cap; copy 7.2 s and 1440 J, or 7.38 s and 590.4 J."""
    found = caps_of_sweep(sweep, slowdown=0.05, switch_s=0.0)
    assert not isinstance(found, str), found
    assert found.best_one.caps_khz == {"solve": HIGH, "copy": HIGH, REST: HIGH}
    assert found.best.caps_khz["solve"] == HIGH and found.best.caps_khz["copy"] == LOW
    saved = found.best_one.energy_j - found.best.energy_j
    assert saved == pytest.approx(1440 - 590.4, rel=0.05)
    assert 0 < found.saving_half < found.saving == pytest.approx(849.6 / 9270, rel=0.05)
    assert found.best.switches == 119 + (found.best.caps_khz[REST] == LOW)
    (sweep.folder / "watch" / STOPS / "design-1-1").unlink()
    assert "no run with the job's threads" in str(caps_of_sweep(sweep, slowdown=0.05))
    (sweep.folder / "watch" / BASE).unlink()
    assert "no complete run" in str(caps_of_sweep(sweep, slowdown=0.05))


def test_the_page_of_a_sweep_has_its_phases_caps_and_power(
    sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "load", lambda folder: sweep)
    lines = phases.phases_of_sweep(sweep.folder, 0.05, 60)
    text = "\n".join(lines)
    assert lines[0] == "1 phase in 34.0 s, by 120 calls"
    assert "60 iterations of 0.550 s" in lines[1]
    assert "  solve: 2 GHz" in lines and "  copy: 1 GHz" in lines
    assert "nothing is set" in text and "an iteration, folded" in text
    assert max(map(len, lines[-15:])) <= 60
    (sweep.folder / "watch" / BASE).unlink()
    assert phases.phases_of_sweep(sweep.folder, 0.05, 60) == [
        "No complete run of this sweep was watched."
    ]


def test_parts_are_the_sites_that_take_most() -> None:
    run = recorded(0.43, 0.12, (1.0, 1.0))
    parts = parts_of(run.times, run.sites, find_iterations(run.times, run.sites))
    assert parts.names == ("solve", "copy", REST)
    changes = changes_of(parts.labels, parts.names)
    assert changes[("solve", "copy")] == 60 and changes[("copy", "solve")] == 59


def test_the_verb_chooses_from_a_table(advisor: Run, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{n},{k},{t},{e}" for n, caps in COSTS.items() for k, (t, e) in caps.items()]
    header = "phase,freq_khz,time_s,energy_j"
    table.write_text("\n".join([header, *rows, ""]))
    words = ("phases", "caps", table, "--slowdown", "10%", "--changes", "1000")
    done = advisor(*words, "--switch", "1ms", "--switch-power", "100", "--json")
    assert done.code == 0, done.err
    assert done.json()["by_phase"]["caps_khz"] == {"solve": HIGH, "copy": LOW}
    assert done.json()["by_phase"]["energy_j"] == 3600
    text = advisor(*words, "--switch", "4ms", "--switch-power", "100").out
    assert "the same cap everywhere is best: 2 GHz" in text
    table.write_text(f"{header}\nsolve,2000000,1,x\n")
    done = advisor(*words)
    assert done.code == 1 and "line 2, column energy_j: 'x' is not a number" in done.err
