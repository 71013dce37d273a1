"""Runs that failed fast, with exit code 0: no best option, and no model's run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.models.failed_fast import failed_fast
from advisor.models.fit import fit_options
from advisor.scaling.family import families
from advisor.training.table import tabulate


def runs(*threads: int, serial: float = 0.05, contention: float = 0.0) -> list[Observation]:
    rng = random.Random(3)
    found = []
    for t in threads:
        time = 100 * (serial + (1 - serial) / t + contention * t) * rng.uniform(0.98, 1.02)
        where = Configuration("bdw", 1, 1, t, 2_200_000)
        found.append(Observation(where, time, time * (90 + 3 * t), energy_quality="measured"))
    return found


def short(run: Observation, time: float = 0.3) -> Observation:
    return replace(run, time_s=time, energy_j=time * 90)


@pytest.mark.parametrize("at", [[0], [3], [6], [0, 1], [2, 5]])
def test_a_run_far_shorter_than_its_neighbours_failed(at: list[int]) -> None:
    found = [short(o) if i in at else o for i, o in enumerate(runs(1, 2, 4, 8, 16, 24, 28))]
    assert failed_fast(found) == at


def test_contention_and_runs_with_rates_are_no_failure() -> None:
    assert failed_fast(runs(1, 2, 4, 8, 16, 28, contention=0.05)) == []
    assert failed_fast(runs(1, 28, 56, 112)) == []
    assert failed_fast([short(runs(4)[0]), *runs(8, 16)]) == [0]
    rated = [replace(o, fom=1.0) for o in runs(1, 2, 4, 8)]
    assert failed_fast([short(rated[0]), *rated[1:]]) == []


def test_a_gpu_with_all_its_power_did_not_fail() -> None:
    """An A40 takes 4.4 times as long at a third of its power; five times is no failure either."""
    slow = {100: 520.0, 105: 515.0, 110: 512.0, 115: 510.0, 120: 506.0, 300: 100.0}
    limited = [
        Observation(Configuration("a40", 1, 1, 8, 0, (("gpu_power_w", limit_w),)), time_s, 1e4)
        for limit_w, time_s in slow.items()
    ]
    assert failed_fast(limited) == []
    assert failed_fast([*limited[:-1], short(limited[-1], 10.0)]) == [5]


def test_no_model_and_no_family_learns_from_it() -> None:
    good = runs(4, 8, 12, 16, 20, 24, 28)
    bad = [short(good[0]), *good[1:]]
    fit = fit_options(bad, model="physical")
    assert min(o.time_s for o in fit.options) > 5
    assert any("is far shorter than its neighbours allow" in n for n in fit.notes)
    table = tabulate([short(good[0]), *[good[-1]] * 3])
    assert [o.configuration for o in table.options] == [good[-1].configuration]
    sized = [(f"-n {n}", replace(o, time_s=o.time_s * n)) for n in (1, 2, 4) for o in bad]
    (family,) = families(sized).values()
    assert len(family.runs) == len(sized) - 3 and len(family.left_out) == 3
