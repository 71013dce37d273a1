"""Readings of a slow meter folded into one iteration."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.paths import share
from advisor.phases.arrays import Floats
from advisor.phases.metered import Metered
from advisor_lab.phases.fold import KEEPS_STEP, TOO_FEW, fold
from tests.pictures import kept

PROGRAM = share("config").parent / "benchmarks" / "folding.py"


def readings(every_s: float, iteration_s: float, count: int) -> tuple[Floats, Floats, Floats]:
    """Readings of 80, 140 and 110 W in 0..0.3..0.8..1 of iterations whose lengths scatter."""
    rng = np.random.default_rng(1)
    marks: Floats = np.concatenate([[0.0], np.cumsum(iteration_s * rng.normal(1, 0.02, count))])
    times = np.arange(0.003, marks[-1], every_s) + rng.normal(0, 0.001, 1)
    place = np.interp(times, marks, np.arange(count + 1))
    begun, part = np.floor(place).astype(int).clip(0, count - 1), place - np.floor(place)
    spent = np.interp(part, [0, 0.3, 0.8, 1], [0, 24, 94, 116])
    return times, marks[begun] * 116 + np.diff(marks)[begun] * spent, marks


@pytest.mark.parametrize(("every_s", "iteration_s", "count"), [(0.1, 0.73, 200), (1, 0.73, 600)])
def test_a_slow_meter_shows_the_inside_of_an_iteration(
    every_s: float, iteration_s: float, count: int
) -> None:
    folded = fold(*readings(every_s, iteration_s, count))
    assert folded is not None and len(folded.x) >= 20
    truth = np.array([80, 140, 110])[np.searchsorted([0.3, 0.8], folded.x)]
    assert np.sqrt(np.mean((folded.value - truth) ** 2)) < 0.05 * 116
    assert folded.per_iteration == pytest.approx(116 * iteration_s, rel=0.01)


@pytest.mark.parametrize("begin_s", [0.0, 3.0])
@pytest.mark.parametrize("each_s", [7.0, 11.3, 12.0])
def test_a_square_wave_from_few_readings_stays_within_what_machines_take(
    each_s: float, begin_s: float
) -> None:
    marks: Floats = np.arange(25.0) * 10
    times = np.arange(begin_s, 240.1, each_s)
    joules = np.floor(times / 10) * 2500 + np.interp(times % 10, [0, 5, 10], [0, 1500, 2500])
    folded = fold(times, np.round(joules), marks)
    assert folded is not None
    assert folded.low.min() >= 0 and folded.high.max() <= 600
    truth = np.where(folded.x < 0.5, 300, 200)
    assert np.mean((folded.low <= truth) & (truth <= folded.high)) >= 0.85


def test_too_few_readings_tell_the_mean_only() -> None:
    marks: Floats = np.arange(25.0) * 10
    times = np.arange(0, 240.1, 12.0)
    joules = np.floor(times / 10) * 2500 + np.interp(times % 10, [0, 5, 10], [0, 1500, 2500])
    folded = fold(times, joules, marks)
    assert folded is not None and folded.answer == TOO_FEW.format(20)
    assert np.ptp(folded.value) == 0 and folded.value[0] == pytest.approx(250, rel=0.05)


@pytest.mark.slow
def test_no_drawn_meter_shows_what_no_machine_takes() -> None:
    """``python benchmarks/folding.py --cases 10000`` is the long form."""
    done = subprocess.run(
        [sys.executable, PROGRAM, "--cases", "120", "--json"], capture_output=True, text=True
    )
    answer = json.loads(done.stdout)
    assert answer["impossible"] == 0, answer["seeds"]
    (everything,) = (row for row in answer["rows"] if row["kind"] == "all")
    assert everything["holds_shown"] >= 0.85
    rows = {row["kind"]: row["holds"] for row in answer["rows"]}
    assert rows["all"] >= 0.85 and min(v for k, v in rows.items() if "readings" in k) >= 0.8


def test_an_iteration_that_deviates_is_left_out() -> None:
    times, joules, marks = readings(0.1, 0.73, 200)
    marks[100:] += 3.0
    later = times > marks[99]
    folded = fold(np.where(later, times + 3.0, times), np.where(later, joules + 900, joules), marks)
    assert folded is not None and folded.kept == folded.iterations - 1
    assert folded.value.max() < 160


def test_a_meter_that_keeps_step_gives_the_mean_only() -> None:
    rng = np.random.default_rng(1)
    marks: Floats = np.arange(1501.0) * 0.1
    times: Floats = np.add(marks, rng.normal(0.005, 0.001, len(marks)))
    joules: Floats = np.linspace(0.0, 22500.0, len(marks))
    folded = fold(times, joules, marks)
    assert folded is not None and folded.answer == KEEPS_STEP
    assert folded.value == pytest.approx(150, rel=0.01)
    assert fold(times[:3], times[:3], marks[:3]) is None


def test_a_counter_that_wraps_around_or_stops() -> None:
    meter = Metered()
    for i in range(400):
        meter.feed(0.1 * i, (10.0 * i) % 1024)
    assert meter.at([0.0, 39.9])[1] == pytest.approx(3990, rel=0.005) and not meter.stopped
    for i in range(400, 500):
        meter.feed(0.1 * i, (10.0 * 399) % 1024)
    assert meter.stopped and meter.until == pytest.approx(39.9)


def test_a_folded_signal_is_drawn(advisor: Callable[..., Any], tmp_path: Path) -> None:
    times, joules, marks = readings(0.1, 0.73, 200)
    rows = "\n".join(f"{t:.6f},{j:.3f}" for t, j in zip(times, joules, strict=True))
    (tmp_path / "readings.csv").write_text(f"time_s,energy_j\n{rows}\n")
    (tmp_path / "marks.csv").write_text("time_s\n" + "\n".join(f"{m:.6f}" for m in marks) + "\n")
    done = advisor(
        "phases",
        "fold",
        tmp_path / "readings.csv",
        "--marks",
        tmp_path / "marks.csv",
        "--plot",
        tmp_path / "fold.svg",
    )
    assert done.code == 0 and "J in an iteration of" in done.out, done.err
    kept(tmp_path / "fold.svg", "fold")
