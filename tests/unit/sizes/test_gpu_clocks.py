"""Sizes measured at several GPU clocks: a law of the size is that at the highest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.scaling.family import families, predict_size
from advisor.store.writer import Writer
from advisor_lab.evaluation.extrapolation import extrapolate

CLOCKS_KHZ = 600_000, 900_000, 1_200_000, 1_400_000


def runs(size: float, clocks_khz: tuple[int, ...] = CLOCKS_KHZ) -> list[Observation]:
    found = []
    for clock_khz in clocks_khz:
        where = Configuration("v100", 1, 1, 8, 0, (("gpu_freq_khz", clock_khz),))
        time_s = size / 1e5 * (0.3 + 0.7 * 1_400_000 / clock_khz)
        power_w = 120 + 200 * (clock_khz / 1_400_000) ** 2.2
        found.append(
            Observation(where, time_s, time_s * power_w, energy_quality="measured", scope="all")
        )
    return found


def test_a_size_is_predicted_at_the_highest_clock() -> None:
    measured = [(f"-n {n:.0f}", run) for n in (1e6, 2e6, 4e6) for run in runs(n)]
    (family,) = families(measured).values()
    assert len(family.runs) == 3
    assert "9 runs with less than GPU clock 1.4 GHz" in family.left_out[0]
    found = predict_size(family, {"n": 8e6})
    assert math.exp(found.tried.forecast.time.mean[0]) == pytest.approx(80, rel=0.03)


def test_an_evaluation_over_sizes_compares_them_at_the_highest_clock() -> None:
    grid = [
        replace(
            run,
            configuration=replace(run.configuration, threads_per_node=threads),
            time_s=run.time_s * (0.5 + 4 / threads),
            extra={"n": n},
        )
        for n in (1e6, 2e6, 4e6, 8e6, 16e6)
        for threads in (2, 4, 6, 8)
        for run in runs(n)
    ]
    found = extrapolate(grid, "n", 4e6)
    assert "60 runs with less than GPU clock 1.4 GHz" in found.notes[0]
    assert [score.cells for score in found.scores] == [4, 4]
    assert (found.scores[0].median_error_pct["time"] or math.inf) < 5  # of all clocks 17 %


def test_runs_that_state_no_clock_had_the_highest() -> None:
    stated = [(f"-n {n:.0f}", run) for n in (1e6, 2e6, 4e6) for run in runs(n, CLOCKS_KHZ[-1:])]
    unstated = Observation(Configuration("v100", 1, 1, 8, 0), 20.0, 6400.0)
    (family,) = families([*stated, ("-n 2000000", unstated)]).values()
    assert len(family.runs) == 4 and family.left_out == ()


def test_a_table_of_sizes_is_that_of_jobs_which_state_no_clock(
    store_path: Path, advisor: Callable[..., Any]
) -> None:
    with Writer(store_path) as writer:
        for n in (1e6, 2e6, 4e6):
            writer.add_observations("sim", f"-n {n:.0f}", runs(n))
    assert advisor("fit", "sim", "--db", store_path).code == 0
    with Writer(store_path) as writer:
        (model,) = writer.size_models("sim")
        (option,) = model.written_options()
        assert option.configuration == Configuration("v100", 1, 1, 8, 0)
