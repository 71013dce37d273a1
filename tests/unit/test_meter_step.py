"""A meter that counts in large steps: the runs show the step, and intervals hold all the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.core.policy import Policy
from advisor.models.adaptive import pairs_needed
from advisor.models.fit import FitResult, borne_out, fit_options, run_sigma
from advisor.models.meter_step import meter_step_j
from advisor.models.runs import gather

CELLS = [Configuration("n", 1, 1, t, 2_000_000) for t in range(1, 21)]
RAN = CELLS[3::2] + CELLS[4:12:2]


def read(step_j: float, seed: int, cells: Sequence[Configuration]) -> list[Observation]:
    """Runs of 1.0 to 3.2 kJ by a meter that shows whole steps, and was begun at any time."""
    rng = np.random.default_rng(seed)
    runs = []
    for c in cells:
        time_s = (8.0 + 27.0 / c.threads_per_node) * math.exp(0.005 * rng.normal())
        energy_j = time_s * (90 + 2 * c.threads_per_node) * math.exp(0.005 * rng.normal())
        if step_j:
            begun = rng.uniform(0, step_j)
            energy_j = step_j * ((begun + energy_j) // step_j)
        runs.append(Observation(c, round(time_s, 2), round(energy_j, 2) or None))
    return runs


def fitted(step_j: float, seed: int) -> FitResult:
    return fit_options(read(step_j, seed, RAN), space=SearchSpace.of("n", CELLS))


def test_energies_of_one_divisor_show_the_meters_step() -> None:
    runs = read(360.0, 0, RAN)
    assert meter_step_j(runs) == 360
    # Four values share much by chance, and one value alone any step that divides it.
    assert meter_step_j(runs[:4]) == 0
    assert meter_step_j([replace(r, energy_j=1440.0) for r in runs]) == 0
    assert meter_step_j([replace(r, energy_j=None) for r in runs]) == 0
    responses = gather(runs)
    assert responses.energy is not None and responses.power is not None
    assert responses.energy.step_j == 360 and not responses.time.step_j
    assert responses.power.noise(RAN[-1]) > 0.1
    assert any("multiples of 360 J" in note for note in responses.notes)


def test_a_step_that_is_little_of_a_run_changes_nothing() -> None:
    runs = read(1.0, 0, RAN)
    assert meter_step_j(runs) == 1
    responses = gather(runs)
    assert responses.energy is not None and not responses.energy.step_j
    assert not [note for note in responses.notes if "multiples" in note]


def test_the_step_is_that_of_the_readings_whatever_work_was_done() -> None:
    """Every other run does twice as much: what it took for the work of the others is no reading."""
    runs = [
        replace(r, time_s=2 * r.time_s, energy_j=720.0 * round((r.energy_j or 0) / 360) + 360.0)
        if i % 2
        else r
        for i, r in enumerate(read(360.0, 0, RAN))
    ]
    runs = [replace(r, fom=(1 + i % 2) / r.time_s) for i, r in enumerate(runs)]
    responses = gather(runs)
    assert responses.work == pytest.approx(1.0)
    assert responses.energy is not None and responses.energy.step_j == 360


def test_intervals_hold_where_the_meter_counts_in_large_steps() -> None:
    """On a published grid with such a meter half of the intervals held."""
    new_runs, takes = [], []
    for seed in range(12):
        options = {o.configuration: o for o in fitted(360.0, seed).predicted}
        for run in read(360.0, 1000 + seed, CELLS[3:]):
            o = options[run.configuration]
            new_runs.append(o.energy_lo_j <= (run.energy_j or 0) <= o.energy_hi_j)
        for run in read(0.0, 1000 + seed, CELLS[3:]):
            o = options[run.configuration]
            takes.append(o.energy_lo_j <= (run.energy_j or 0) <= o.energy_hi_j)
            assert o.energy_hi_j / o.energy_lo_j < 2.5
    assert np.mean(new_runs) >= 0.85 and np.mean(takes) >= 0.9


def test_sweeps_know_that_one_run_says_little() -> None:
    """They pay for more pairs, and do not take each reading for a run that was disturbed."""
    fit = fitted(360.0, 0)
    assert 0.1 < run_sigma(fit) < 0.2 and pairs_needed(Policy(), run_sigma(fit)) > 1
    assert all(borne_out(fit, c) for c in RAN)
    assert run_sigma(fitted(1.0, 0)) < 0.02


def test_what_was_read_as_less_is_not_taken_for_less() -> None:
    """Of runs that take alike one is read as 720 J, the next as 1080 J."""
    errors = []
    for seed in range(12):
        for o in fitted(360.0, seed).options:
            if o.measured:
                t = o.configuration.threads_per_node
                errors.append(math.log(o.energy_j / ((8.0 + 27.0 / t) * (90 + 2 * t))))
    assert float(np.std(errors)) < 0.12  # a reading's own is 0.15
    assert abs(float(np.mean(errors))) < 0.04
