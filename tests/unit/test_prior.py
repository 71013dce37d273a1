"""The prior over applications: what it tells of drawn ones whose truth is known."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy  # which loads scipy.stats where a test needs it: a second

from advisor.prior.fit import Prior, PriorError, learn
from advisor.prior.projection import project_surfaces
from advisor.prior.surface import Array, WorkloadSurface
from advisor.prior.trials import TrialBounds, expected_improvement, trial, usable
from advisor.prior.ways import METHODS, WAYS, Way

SHARES = (0.25, 0.5, 0.75, 1.0)
FREQUENCIES = (0.6, 0.7, 0.8, 0.9, 1.0)
POINTS = np.log(np.array(list(itertools.product(SHARES, FREQUENCIES))))
OWN = np.zeros(2)


def drawn(name: str, memory: float, noise: float, rng: random.Random) -> WorkloadSurface:
    """An application of which a share ``memory`` of the time waits for memory.

    Computing scales with cores and clock, memory with neither above a quarter of the cores; power
    is 100 W, and 200 W with the share of cores that compute and the square of the clock.
    """
    time, energy = [], []
    for share, frequency in np.exp(POINTS):
        t = (1 - memory) / (share * frequency) + memory
        power = 100 + 200 * share * (1 - 0.6 * memory) * frequency**2
        time.append(math.log(t) + rng.gauss(0, noise))
        energy.append(math.log(t * power) + rng.gauss(0, noise))
    return WorkloadSurface(name, measures(memory, rng), POINTS, np.array(time), np.array(energy))


def measures(memory: float, rng: random.Random) -> dict[str, float]:
    return {
        "gbs": 200 * memory * math.exp(rng.gauss(0, 0.05)),
        "power_w": (300 - 120 * memory) * math.exp(rng.gauss(0, 0.02)),
        "io_mbs": rng.uniform(0, 5),
    }


def store(count: int, seed: int, noise: float = 0.01) -> list[WorkloadSurface]:
    rng = random.Random(seed)
    return [drawn(f"app{i}", rng.uniform(0.05, 0.95), noise, rng) for i in range(count)]


def against_own(surface: WorkloadSurface) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    both = surface.at(np.vstack((OWN, POINTS)))
    return both[:, 1:] - both[:, :1]


def told(
    known: list[WorkloadSurface],
    signature: Mapping[str, float],
    points: Array,
    own: Array,
    *,
    ways: Sequence[Way] = WAYS,
    label: str = "",
) -> Prior:
    return learn(known, signature, points, own, ways=ways).prior(signature, label)


def test_a_signature_that_says_something_is_listened_to() -> None:
    known, rng = store(12, 1), random.Random(2)
    for memory in (0.1, 0.9):
        new = drawn("new", memory, 0.0, rng)
        prior = told(known, new.signature, POINTS, OWN)
        assert prior.way.method in ("projection", "regression", "gp")
        everybody = told(known, new.signature, POINTS, OWN, ways=[Way("global")])
        off, mean_off = (np.abs(p.mean - against_own(new)).mean() for p in (prior, everybody))
        assert off < 0.6 * mean_off


def test_a_signature_that_says_nothing_leaves_the_mean_of_all() -> None:
    rng = random.Random(3)
    known = [replace(s, signature={"io_mbs": rng.uniform(0, 5)}) for s in store(12, 4)]
    prior = told(known, {"io_mbs": 2.0}, POINTS, OWN)
    assert prior.way == Way("global")
    mean = np.mean([against_own(s) for s in known], axis=0)
    assert prior.mean == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize(("count", "least"), [(6, 0.80), (12, 0.85)])
def test_nine_of_ten_intervals_hold(count: int, least: float) -> None:
    inside = []
    for seed in range(40):
        *known, new = store(count + 1, 100 + seed, noise=0.02)
        prior = told(known, new.signature, POINTS, OWN)
        off = np.abs(prior.mean - against_own(new)) <= prior.half_width(0.9)
        inside.append(off[:, np.abs(POINTS).sum(axis=1) > 0].mean())
    assert least <= np.mean(inside) <= 0.97


def test_few_applications_have_heavy_tails() -> None:
    few, many = (told(store(n, 7), {"io_mbs": 1.0}, POINTS, OWN) for n in (4, 16))
    assert many.dof - few.dof == 12
    tail = [(p.half_width(0.98) / p.half_width(0.50)).max() for p in (few, many)]
    assert tail[0] > 1.1 * tail[1]


def test_what_none_of_the_others_has_is_not_foretold() -> None:
    known = [replace(s, signature={**s.signature, "gpu_util": 0.0}) for s in store(10, 8)]
    usual = told(known, {**known[0].signature}, POINTS, OWN, ways=WAYS[4:])
    odd = {**known[0].signature, "gpu_util": 90.0}
    strange = told(known, odd, POINTS, OWN, ways=WAYS[4:])
    assert (strange.half_width() > 1.5 * usual.half_width()).mean() > 0.9
    assert usable(strange, TrialBounds(0.10)) is None


def test_a_run_conditions_the_prior() -> None:
    known, new = store(8, 9), drawn("new", 0.8, 0.0, random.Random(10))
    prior = told(known, {"io_mbs": 1.0}, POINTS, OWN)
    truth = against_own(new)
    at = [tuple(p) for p in POINTS.tolist()].index((0.0, math.log(0.8)))
    after = prior.observe(at, truth[0, at], truth[1, at], 0.005)
    assert after.mean[:, at] == pytest.approx(truth[:, at], abs=0.01)
    assert (after.half_width()[:, at] < 0.5 * prior.half_width()[:, at]).all()
    before_error = np.abs(prior.mean - truth).mean()
    assert np.abs(after.mean - truth).mean() < 0.6 * before_error


def test_a_run_unlike_the_prior_widens_it_elsewhere() -> None:
    prior = told(store(8, 11), {"io_mbs": 1.0}, POINTS, OWN)
    expected = prior.mean[:, 0]
    assert prior.expects(0, expected[0], expected[1])
    assert not prior.expects(0, expected[0] + 10 * prior.scale[0, 0], expected[1])
    calm = prior.observe(0, expected[0], expected[1], 0.01)
    shaken = prior.observe(0, expected[0] + 10 * prior.scale[0, 0], expected[1], 0.01)
    assert shaken.scale[0, -2] > 2 * calm.scale[0, -2]


def test_kernels_serve_where_they_foretell_applications() -> None:
    kernels = [replace(s, kernel=True, application=f"k{s.application}") for s in store(30, 12)]
    known = store(6, 13)
    alone = told(known, known[0].signature, POINTS, OWN)
    assert not alone.kernels
    assert alone.applications == 6
    together = told(known + kernels, known[0].signature, POINTS, OWN)
    assert {name.endswith("+kernels") for name in together.scores} == {True, False}
    nothing = [
        replace(k, signature={n: 1e6 * v for n, v in k.signature.items()}, ln_time=-3 * k.ln_time)
        for k in kernels
    ]
    assert not told(known + nothing, known[0].signature, POINTS, OWN).kernels


def test_two_inputs_are_one_application() -> None:
    known = store(5, 14)
    twice = known + [replace(s, ln_time=s.ln_time + 0.001) for s in known]
    prior = told(twice, known[0].signature, POINTS, OWN)
    assert prior.applications == 5
    assert prior.dof == told(known, known[0].signature, POINTS, OWN).dof


def test_too_few_applications_tell_nothing() -> None:
    with pytest.raises(PriorError, match="only 2 applications are swept there, three are needed"):
        told(store(2, 15), {"gbs": 1.0}, POINTS, OWN)
    with pytest.raises(PriorError, match="near its own point"):
        told(store(5, 15), {"gbs": 1.0}, POINTS, np.array([-3.0, 0.0]))


def test_every_method_is_among_the_candidates() -> None:
    assert {c.method for c in WAYS} == set(METHODS)
    known = store(9, 16)
    for way in WAYS:
        prior = told(known, known[3].signature, POINTS, OWN, ways=[way])
        assert prior.way == way
        assert np.isfinite(prior.mean).all()
        assert np.linalg.eigvalsh(prior.cov).min() > -1e-9


def test_labels_make_the_class_mean() -> None:
    known = [replace(s, label="ab"[i % 2]) for i, s in enumerate(store(8, 17))]
    some = [Way("class")]
    prior = told(known, known[0].signature, POINTS, OWN, label="b", ways=some)
    mean = np.mean([against_own(s) for s in known if s.label == "b"], axis=0)
    assert prior.mean == pytest.approx(mean)


# -- a surface between its points ------------------------------------------------------------------


def test_a_surface_is_linear_between_its_points_and_ends_beyond() -> None:
    s = WorkloadSurface("a", {}, POINTS, POINTS @ [1.0, 2.0], POINTS @ [-1.0, 0.5])
    wanted = np.log(np.array([[0.6, 0.85], [1.0, 1.05], [0.1, 1.0], [1.0, 0.4]]))
    time, energy = s.at(wanted)
    assert time[0] == pytest.approx(wanted[0] @ [1.0, 2.0])
    assert energy[0] == pytest.approx(wanted[0] @ [-1.0, 0.5])
    assert time[1] == pytest.approx(0.0)
    assert np.isnan(time[2:]).all()
    assert np.isnan(energy[2:]).all()


def test_a_grid_with_holes_is_read_along_what_is_there() -> None:
    some = np.array([i for i in range(len(POINTS)) if i % 5 != 2 or i > 15])
    p = POINTS[some]
    s = WorkloadSurface("a", {}, p, p @ [1.0, 2.0], p @ [-1.0, 0.5])
    time, _ = s.at(POINTS)
    assert time == pytest.approx(POINTS @ [1.0, 2.0])


# -- what is used, what is tried -------------------------------------------------------------------


def flat(mean: list[list[float]], scale: list[list[float]], applications: int = 9) -> Prior:
    n = len(mean[0])
    cov = np.diag(np.concatenate(scale) ** 2)
    return Prior(np.zeros((n, 2)), np.array(mean), cov, 8.0, Way("global"), False, applications)


def test_expected_improvement_is_the_integral() -> None:
    mean, scale, dof, best = 0.02, 0.05, 6.0, -0.01
    (found,) = expected_improvement(np.array([mean]), np.array([scale]), dof, best)
    t = scipy.stats.t(dof, mean, scale)
    assert found == pytest.approx(
        scipy.integrate.quad(lambda x: (best - x) * t.pdf(x), -9, best)[0]
    )


def test_used_is_what_saves_most_at_the_confidence() -> None:
    mean = [[0.0, 0.02, 0.02, 0.02], [0.0, -0.06, -0.20, -0.10]]
    prior = flat(mean, [[0.01, 0.01, 0.08, 0.01], [0.01] * 4])
    assert usable(prior, TrialBounds(0.05)) == 3
    assert usable(prior, TrialBounds(0.01)) is None
    assert usable(prior, TrialBounds(0.05, min_saving=0.10)) is None
    assert usable(replace(prior, applications=4), TrialBounds(0.05)) is None
    doubt = flat(mean, [[0.01, 0.01, 0.01, 0.08], [0.01] * 4])
    assert usable(replace(prior, doubts=(doubt,)), TrialBounds(0.05)) == 1
    expects = np.array([[0.0, 0.02, 0.02, 0.06], mean[1]])
    assert usable(replace(prior, others=(expects,)), TrialBounds(0.05)) == 1
    assert usable(replace(prior, applications=8), TrialBounds(0.05)) is None
    assert usable(replace(prior, applications=8), TrialBounds(0.05, confidence=0.85)) == 3


def test_tried_is_the_greatest_improvement_that_is_likely_enough() -> None:
    mean = [[0.0, 0.02, 0.045, 0.02], [0.0, -0.06, -0.20, -0.02]]
    prior = flat(mean, [[0.01, 0.01, 0.02, 0.01], [0.01, 0.03, 0.03, 0.50]])
    assert trial(prior, TrialBounds(0.05)) == 1
    assert trial(prior, TrialBounds(0.05, trial_confidence=0.55)) == 2
    assert trial(prior, TrialBounds(0.05), tried_points=[1]) is None
    doubt = flat([[0.0, 0.04, 0.0, 0.0], mean[1]], [[0.02] * 4, [0.03] * 4])
    assert trial(replace(prior, doubts=(doubt,)), TrialBounds(0.05)) is None
    assert trial(replace(prior, applications=4), TrialBounds(0.05)) is None


# -- EAR's projection ------------------------------------------------------------------------------


def by_ear(s: Mapping[str, float], law: Sequence[float], slower: float) -> dict[str, float]:
    """Return a signature at another frequency; ``law`` holds EAR's coefficients A to F."""
    a, b, c, d, e, f = law
    cpi = d * s["cpi"] + e * s["tpi"] + f
    time = s["time_s"] * cpi / s["cpi"] * slower
    power = a * s["power_w"] + b * s["tpi"] + c
    return {"cpi": cpi, "time_s": time, "power_w": power, "energy_j": time * power}


def test_surfaces_that_follow_ears_model_are_projected_exactly() -> None:
    rng = random.Random(19)
    steps = np.log(np.array([[1.0, f] for f in FREQUENCIES]))
    laws = {f: (0.5 + f / 2, 3 * (f - 1), 0.02, 0.4 + 0.6 * f, 90.0, 20.0 * f) for f in FREQUENCIES}
    laws[1.0] = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)

    def follow(name: str) -> WorkloadSurface:
        s = {
            "cpi": rng.uniform(0.8, 3),
            "tpi": rng.uniform(0, 0.1),
            "power_w": rng.uniform(200, 500),
        }
        time, energy = [], []
        for f in FREQUENCIES:
            law = (*laws[f][3:], *laws[f][:3])
            there = by_ear({**s, "time_s": 100.0}, law, 1 / f)
            time.append(math.log(there["time_s"]))
            energy.append(math.log(there["energy_j"]))
        return WorkloadSurface(name, s, steps, np.array(time), np.array(energy))

    *known, new = (follow(f"app{i}") for i in range(9))
    prior = told(known, new.signature, steps, OWN)
    truth = new.at(steps) - new.at(OWN[None])
    assert prior.way == Way("projection")
    assert prior.mean == pytest.approx(truth, abs=1e-9)


def test_the_published_case_of_ears_projection() -> None:
    """By hand: CPI' 0.9 x 1 + 1.5 x 0.03 + 0.02, T' 100 x 0.965 x 1.2, P' 0.8 x 350 + 3 + 20."""
    law, slower, rng = (0.8, 100, 20, 0.9, 1.5, 0.02), 2.4 / 2.0, random.Random(20)
    known = [(rng.uniform(0.3, 3), rng.uniform(0, 0.2), rng.uniform(200, 500)) for _ in range(5)]
    surfaces = []
    for cpi, tpi, power_w in known:
        there = by_ear({"cpi": cpi, "tpi": tpi, "power_w": power_w, "time_s": 1.0}, law, slower)
        surfaces.append([math.log(there["time_s"]), math.log(there["energy_j"] / power_w)])
    ln_change, _ = project_surfaces(
        np.array(surfaces),
        np.array(known),
        np.array([1.0, 0.03, 350]),
        np.array([-math.log(slower)]),
    )
    time_s, energy_j = np.exp(ln_change) * (100, 350 * 100)
    assert time_s / 100 / slower == pytest.approx(0.965, rel=1e-12)
    assert time_s == pytest.approx(115.8, rel=1e-12)
    assert energy_j / time_s == pytest.approx(303.0, rel=1e-12)
    assert energy_j == pytest.approx(35087.4, rel=1e-12)
