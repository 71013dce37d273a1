"""Our own model on laws it knows, on laws it does not, and on grids with hardly a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.core.option import Z90, Option
from advisor.models.design import random_, uniform
from advisor.models.disturbances import Disturbances
from advisor.models.fit import FitResult, fit_options

FREQS = tuple(range(1_200_000, 2_300_001, 100_000))
SPACE = SearchSpace("n", (1,), tuple((1, t) for t in (1, *range(2, 33, 2))), FREQS)
Law = Callable[[Configuration], tuple[float, float]]


def amdahl(c: Configuration) -> tuple[float, float]:
    """Time (s) and power (W): 2 % serial, 30 % of the time in memory, a node with idle power."""
    clock, t = c.freq_khz / 2.3e6, c.threads_per_node
    time = 500 * (0.02 + 0.98 / t) * (0.7 / clock + 0.3)
    return time, 120 + 5 * t * (0.2 + 0.8 * clock**2.5)


def measured(
    law: Law, design: Sequence[Configuration], noise: float = 0.0, seed: int = 0
) -> list[Observation]:
    rng = np.random.default_rng(seed)
    found = []
    for c in design:
        time, power = law(c)
        time *= math.exp(noise * rng.normal())
        found.append(Observation(c, time, time * power * math.exp(0.3 * noise * rng.normal())))
    return found


def off(fitted: FitResult, law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of predicted time and energy over all options."""
    time, energy = [], []
    for o in fitted.predicted:
        t, p = law(o.configuration)
        time.append(o.time_s / t - 1)
        energy.append(o.energy_j / (t * p) - 1)
    return np.array(time), np.array(energy)


def fit(runs: Sequence[Observation], space: SearchSpace = SPACE) -> FitResult:
    return fit_options(runs, model="physical", space=space)


def test_a_law_it_knows_is_recovered_from_twelve_runs_also_beyond_them() -> None:
    design = uniform(SPACE, 12)
    assert min(c.threads_per_node for c in design) >= 4
    fitted = fit(measured(amdahl, design, 0.005))
    time, energy = off(fitted, amdahl)
    assert np.sqrt(np.mean(time**2)) < 0.03
    assert np.sqrt(np.mean(energy**2)) < 0.04
    law = fitted.stats["time"]["law"]
    assert law["serial"] == pytest.approx(0.02, abs=0.015)
    assert 0.1 < law["clockless"] < 0.5
    assert law["top_step_apart"] < 0.5
    assert any(n.startswith("time: 2 % serial") for n in fitted.notes)


def test_turbo_at_the_highest_step_is_seen_and_does_not_bend_the_others() -> None:
    def turbo(c: Configuration) -> tuple[float, float]:
        time, power = amdahl(
            replace(c, freq_khz=3_000_000 if c.freq_khz == FREQS[-1] else c.freq_khz)
        )
        return time, power

    fitted = fit(measured(turbo, uniform(SPACE, 12), 0.005))
    time, energy = off(fitted, turbo)
    assert fitted.stats["time"]["law"]["top_step_apart"] > 0.9
    assert "the highest frequency stands apart (turbo)" in " ".join(fitted.notes)
    assert np.abs(time).max() < 0.1
    assert np.sqrt(np.mean(energy**2)) < 0.05


def test_work_in_equal_pieces_makes_steps_that_are_found() -> None:
    def pieces(c: Configuration) -> tuple[float, float]:
        rounds = math.ceil(64 / c.threads_per_node)
        return 10.0 * rounds * 2.3e6 / c.freq_khz, amdahl(c)[1]

    time, _ = off(fit(measured(pieces, uniform(SPACE, 12), 0.003)), pieces)
    assert np.sqrt(np.mean(time**2)) < 0.05


@pytest.mark.slow
def test_intervals_hold_what_they_promise_over_many_laws() -> None:
    """Laws drawn at random, with roughness in cores and noise: 90 % intervals hold about 90 %."""
    shares = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        serial, memory = 10 ** rng.uniform(-3, -0.7), rng.uniform(0, 0.8)
        ceiling, idle = rng.uniform(6, 40), rng.uniform(60, 250)
        rough = {t: math.exp(0.02 * rng.normal()) for _, t in SPACE.threads}

        def law(
            c: Configuration,
            serial: float = serial,
            memory: float = memory,
            ceiling: float = ceiling,
            idle: float = idle,
            rough: dict[int, float] = rough,
        ) -> tuple[float, float]:
            clock, t = c.freq_khz / 2.3e6, c.threads_per_node
            time = (1 - memory) * (serial + (1 - serial) / t) / clock + memory / min(t, ceiling)
            return 300 * time * rough[t], idle + 6 * t * (0.3 + 0.7 * clock**2.2)

        design = uniform(SPACE, 12) if seed % 2 else random_(SPACE, 12, seed=seed)
        fitted = fit(measured(law, design, 0.01, seed))
        again = {o.configuration: o for o in measured(law, list(SPACE), 0.01, seed + 100)}
        new = [o for o in fitted.predicted if o.configuration not in design]
        shares.append([held(o, again[o.configuration]) for o in new])
    covered = np.array([np.mean(s, axis=0) for s in shares]).mean(axis=0)
    assert (covered > 0.82).all(), covered
    assert (covered < 0.985).all(), covered


def held(option: Option, run: Observation) -> tuple[bool, bool]:
    assert run.energy_j is not None
    return (
        option.time_lo_s <= run.time_s <= option.time_hi_s,
        option.energy_lo_j <= run.energy_j <= option.energy_hi_j,
    )


def test_a_disturbed_run_is_named_and_hardly_bends_the_rest() -> None:
    runs = measured(amdahl, uniform(SPACE, 12), 0.003)
    slow = replace(runs[4], time_s=1.8 * runs[4].time_s, energy_j=1.8 * (runs[4].energy_j or 0))
    clean, disturbed = fit(runs), fit([*runs[:4], slow, *runs[5:]])
    told = [n for n in disturbed.notes if "probably disturbed, ignored" in n]
    assert len(told) == 1
    assert told[0].startswith("time at 1 node, ")
    assert " is +7" in told[0] or " is +8" in told[0]
    assert not any("probably disturbed, ignored" in n for n in clean.notes)
    others = [i for i, o in enumerate(clean.predicted) if o.configuration != slow.configuration]
    a = np.array([clean.predicted[i].time_s for i in others])
    b = np.array([disturbed.predicted[i].time_s for i in others])
    assert np.sqrt(np.mean((b / a - 1) ** 2)) < 0.05
    at = {o.configuration: o for o in disturbed.options}
    assert at[slow.configuration].time_s == pytest.approx(slow.time_s)
    assert not at[slow.configuration].confirmed
    for o in (disturbed.predicted[i] for i in others):
        below, above = math.log(o.time_s / o.time_lo_s), math.log(o.time_hi_s / o.time_s)
        assert above > below  # the next run may be disturbed, too, and only takes longer then
        assert o.time_sigma == pytest.approx(below / Z90)
        assert o.energy_hi_j / o.energy_j > o.energy_j / o.energy_lo_j


def test_the_interval_upwards_is_the_quantile_of_a_mixture() -> None:
    """With hardly an error of its own, share * exp(-x / size) = 5 %: x = size ln(share / 5 %).

    One of 12 runs disturbed, 0.2 above its expectation, beside the usual 8 % of 6 runs and 0.3 of
    2: share 1.48 / 18, size 0.8 / 3. Where none is, a normal tail of (5 % - 0.48 / 18) / (1 - 0.48
    / 18) remains beside disturbed runs, which are always beyond.
    """
    one = np.arange(12) == 3
    seen = Disturbances.of(one, np.where(one, 0.2, -0.01))
    assert seen.share == pytest.approx(1.48 / 18)
    assert seen.upper(np.array([1e-6]))[0] == pytest.approx(0.8 / 3 * math.log(seen.share / 0.05))
    none = Disturbances.of(~one & False, np.zeros(12))
    z = -float(ndtri((0.05 - none.share) / (1 - none.share)))
    assert none.upper(np.array([1e-6]))[0] == pytest.approx(1e-6 * z, rel=1e-3)
    assert none.wider == pytest.approx(float(ndtri(0.5 + 0.45 / (1 - none.share))) / Z90)
    both = seen.upper(np.array([0.01, 0.05, 0.2]))
    beyond = (1 - seen.share) * ndtr(-both / [0.01, 0.05, 0.2])
    assert beyond + seen.share * np.exp(-both / seen.size) == pytest.approx([0.05] * 3)


@pytest.mark.parametrize(
    "space",
    [
        SearchSpace("n", (1,), ((1, 32),), FREQS),
        SearchSpace("n", (1,), SPACE.threads, (2_000_000,)),
        SearchSpace("n", (1,), SPACE.threads, (0,)),
        SearchSpace("n", (1,), ((1, 8), (1, 32)), (1_200_000, 2_300_000)),
        SearchSpace("n", (1, 2, 4, 8), ((1, 16), (1, 32)), (1_200_000, 2_000_000, 2_300_000)),
        SearchSpace("n", (1, 7), ((2, 8), (4, 8), (2, 16)), (1_200_000, 2_300_000)),
        SearchSpace("n", (3,), ((1, 1), (1, 2), (1, 3), (1, 64)), (800_000, 3_900_000)),
    ],
    ids=["one-core-count", "one-frequency", "no-caps", "corners", "nodes", "ranks", "gaps"],
)
def test_any_grid_is_fitted(space: SearchSpace) -> None:
    def law(c: Configuration) -> tuple[float, float]:
        time, power = amdahl(replace(c, freq_khz=c.freq_khz or 2_300_000))
        return time / c.nodes**0.9, power * c.nodes

    design = uniform(space, 12)
    fitted = fit(measured(law, design, 0.005), space)
    for o in fitted.predicted:
        assert 0 < o.time_lo_s < o.time_s < o.time_hi_s < math.inf
        assert 0 < o.energy_lo_j < o.energy_j < o.energy_hi_j < math.inf
    assert len(fitted.options) == len(space)
    assert np.abs(off(fitted, law)[0]).max() < 0.35


def test_several_nodes_scale_as_the_runs_say() -> None:
    space = SearchSpace("n", (1, 2, 4, 8), tuple((1, t) for t in range(4, 33, 4)), FREQS[::2])

    def law(c: Configuration) -> tuple[float, float]:
        time, power = amdahl(c)
        return time / c.nodes * (1 + 0.08 * math.log2(c.nodes)), power * c.nodes

    time, energy = off(fit(measured(law, uniform(space, 24), 0.005), space), law)
    assert np.sqrt(np.mean(time**2)) < 0.05
    assert np.sqrt(np.mean(energy**2)) < 0.06


def test_a_whole_grid_is_fitted_and_held_out_runs_are_near() -> None:
    fitted = fit(measured(amdahl, list(SPACE), 0.01))
    assert fitted.n_train == len(SPACE)
    assert fitted.stats["time"]["loo_rmse_pct"] < 2.0
    assert fitted.stats["confirmed"] > 0.75 * len(SPACE)


def test_where_nothing_changes_below_the_runs_it_might() -> None:
    """Twelve equal runs: on fewer cores than were run, a bandwidth ceiling may end."""
    fitted = fit([Observation(c, 10.0, 1000.0) for c in uniform(SPACE, 12)])
    assert fitted.stats["time"]["r2"] is None
    at = {(o.configuration.threads_per_node, o.configuration.freq_khz): o for o in fitted.predicted}
    assert all(o.time_lo_s <= 10.0 <= o.time_hi_s for o in fitted.predicted)
    assert at[18, 1_500_000].time_s == pytest.approx(10.0, rel=0.01)
    assert at[18, 1_500_000].time_sigma < 0.03
    assert at[1, 1_500_000].time_sigma > 0.2


def test_the_unit_of_a_response_does_not_matter() -> None:
    runs = measured(amdahl, uniform(SPACE, 12), 0.01)
    scaled = [replace(r, time_s=1e4 * r.time_s, energy_j=1e-3 * (r.energy_j or 0)) for r in runs]
    for a, b in zip(fit(runs).predicted, fit(scaled).predicted, strict=True):
        assert b.time_s == pytest.approx(1e4 * a.time_s, rel=1e-6)
        assert b.energy_j == pytest.approx(1e-3 * a.energy_j, rel=1e-6)
        assert b.time_sigma == pytest.approx(a.time_sigma, rel=1e-5)


def test_a_batch_size_that_speeds_up_beyond_hundreds_is_followed_far_below_the_runs() -> None:
    """An epoch's time falls with the batch up to thousands: far below, it is many times longer."""

    def epoch(c: Configuration) -> tuple[float, float]:
        return 10 * (1 + 4000 / c.threads_per_node), 200.0

    batches = tuple((1, 2**k) for k in range(8, 16))
    space = SearchSpace("n", (1,), batches, (1_000_000, 1_100_000))
    design = [c for c in space if c.threads_per_node >= 4096]
    fitted = fit(measured(epoch, design, 0.01), space)
    for o in fitted.predicted:
        truth, _ = epoch(o.configuration)
        assert o.time_lo_s < truth < o.time_hi_s
        assert abs(math.log(o.time_s / truth)) < math.log(2.5)


def test_errors_go_on_growing_with_the_distance_beyond_the_runs() -> None:
    """What laws miss holds between runs, and may be anything far outside of them."""
    space = SearchSpace("n", (1,), tuple((1, 2**k) for k in range(8)), FREQS[-2:])
    rng = np.random.default_rng(1)
    rough = {t: math.exp(0.1 * rng.normal()) for _, t in space.threads}

    def law(c: Configuration) -> tuple[float, float]:
        time, power = amdahl(c)
        return time * rough[c.threads_per_node], power

    design = [c for c in space if c.threads_per_node >= 16]
    predicted = {o.configuration: o for o in fit(measured(law, design, 0.005), space).predicted}
    sigmas = [predicted[replace(design[0], threads_per_node=t)].time_sigma for t in (8, 4, 2, 1)]
    assert sigmas == sorted(sigmas)
    assert sigmas[-1] > 1.25 * sigmas[0]
