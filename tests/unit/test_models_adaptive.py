"""The adaptive design: where it begins, what it runs next, and what that confirms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.recommend import confirmed_choice
from advisor.models.adaptive import ADAPTIVE, first_runs, next_runs, pairs_needed, telling_run
from advisor.models.fit import fit_options, run_sigma
from advisor.models.response import response
from advisor.models.scatter import Scatter

POLICY = Policy(goal="min_energy", max_slowdown=0.05)
FREQS = tuple(range(1_000_000, 2_000_001, 100_000))
SPACE = SearchSpace("n", (1,), tuple((1, t) for t in range(2, 17, 2)), FREQS)
BASE = Configuration("n", 1, 1, 16, 2_000_000)


def option(
    c: Configuration,
    time_s: float,
    energy_j: float,
    *,
    error: float = 0.01,
    measured: bool = False,
    confirmed: bool = False,
) -> Option:
    return Option(
        c,
        time_s,
        time_s * (1 - error),
        time_s * (1 + error),
        energy_j,
        energy_j * (1 - error),
        energy_j * (1 + error),
        measured,
        confirmed,
    )


def test_it_begins_at_the_job_as_written_half_of_its_cores_and_a_lower_clock() -> None:
    made = [(c.threads_per_node, c.freq_khz) for c in first_runs(SPACE, 12, BASE)]
    assert made == [(16, 2_000_000), (8, 2_000_000), (16, 1_600_000)]
    clocks = replace(SPACE, threads=((1, 16),))
    made = [(c.threads_per_node, c.freq_khz) for c in first_runs(clocks, 12, BASE)]
    assert made == [(16, 2_000_000), (16, 1_000_000), (16, 1_600_000)]
    assert len(first_runs(SPACE, 2, BASE)) == 2


def test_clocks_and_limits_of_gpus_are_stepped_as_a_clock_of_processors() -> None:
    values = tuple(range(500_000, 1_400_001, 100_000))
    top = replace(BASE, extra=(("gpu_freq_khz", values[-1]),))
    clocks = replace(
        SPACE, threads=((1, 16),), freqs_khz=(2_000_000,), extra=(("gpu_freq_khz", values),)
    )
    assert [dict(c.extra)["gpu_freq_khz"] for c in first_runs(clocks, 12, top)] == [
        1_400_000,
        700_000,
        1_100_000,
    ]
    both = [
        (c.threads_per_node, c.extra[0][1])
        for c in first_runs(replace(clocks, threads=SPACE.threads), 12, top)
    ]
    assert both == [(16, 1_400_000), (8, 1_400_000), (16, 1_100_000)]
    base = option(top, 100.0, 1000.0, measured=True)
    far, near = (
        option(replace(top, extra=(("gpu_freq_khz", v),)), 101.0, 800.0)
        for v in (900_000, 1_100_000)
    )
    step = next_runs([base, far, near], base, POLICY, runs_left=9, pairs={}, run_sigma=0.01)
    assert step is not None and step.configurations == (near.configuration,)
    assert telling_run([base, far], {top}) is None
    # what one run went through is not run once more to explore it: a pair confirms it
    options, known = [base, near], {near.configuration}
    step = next_runs(options, base, POLICY, runs_left=9, pairs={}, run_sigma=0.01, known=known)
    assert step is not None and step.configurations == (near.configuration, top) and step.confirms


def test_a_measured_saving_is_confirmed_beside_the_job_as_written() -> None:
    good = Configuration("n", 1, 1, 8, 2_000_000)
    base = option(BASE, 100.0, 1000.0, measured=True)
    options = [base, option(good, 99.0, 800.0, measured=True)]
    step = next_runs(options, base, POLICY, runs_left=2, pairs={}, run_sigma=0.01)
    assert step is not None and step.confirms
    assert step.configurations == (good, BASE)
    # once its pair bore it out, nothing is left to run
    options[1] = replace(options[1], confirmed=True)
    assert next_runs(options, base, POLICY, runs_left=9, pairs={good: 1}, run_sigma=0.01) is None
    # a machine that scatters takes more pairs
    step = next_runs(options, base, POLICY, runs_left=9, pairs={good: 1}, run_sigma=0.05)
    assert step is not None and step.configurations == (good, BASE)
    # and a policy that confirms nothing none
    assert (
        next_runs(options, base, POLICY, runs_left=2, pairs={}, run_sigma=0.01, confirm=0) is None
    )


def test_it_explores_while_more_is_left_than_a_pair_and_ends_where_nothing_pays() -> None:
    hope = Configuration("n", 1, 1, 12, 1_800_000)
    base = option(BASE, 100.0, 1000.0, measured=True)
    options = [base, option(hope, 101.0, 700.0, error=0.03)]
    step = next_runs(options, base, POLICY, runs_left=3, pairs={}, run_sigma=0.01)
    assert step is not None and (step.configurations, step.confirms) == ((hope,), False)
    step = next_runs(options, base, POLICY, runs_left=2, pairs={}, run_sigma=0.01)
    assert step is not None and step.configurations == (hope, BASE)
    assert next_runs(options, base, POLICY, runs_left=1, pairs={}, run_sigma=0.01) is None
    dull = [base, option(hope, 130.0, 1100.0)]
    assert next_runs(dull, base, POLICY, runs_left=9, pairs={}, run_sigma=0.01) is None


def test_what_ends_too_early_for_a_model_runs_once_more_where_it_tells_most() -> None:
    cells = [replace(BASE, threads_per_node=t) for t in (4, 8, 12, 16)]
    options = [option(c, 100.0, 1000.0) for c in cells]
    step = telling_run(options, {cells[3], cells[1], cells[2]})
    assert step is not None and (step.configurations, step.confirms) == ((cells[0],), False)
    assert telling_run(options, set(cells)) is None


def test_no_run_steps_farther_below_what_was_made_than_the_first_ones() -> None:
    base = option(BASE, 100.0, 1000.0, measured=True)
    far = option(replace(BASE, freq_khz=1_000_000), 101.0, 500.0)
    few = option(replace(BASE, threads_per_node=4), 101.0, 500.0)
    assert next_runs([base, far, few], base, POLICY, runs_left=9, pairs={}, run_sigma=0.01) is None
    near = option(replace(BASE, freq_khz=1_600_000), 101.0, 800.0)
    step = next_runs([base, far, near], base, POLICY, runs_left=9, pairs={}, run_sigma=0.01)
    assert step is not None and step.configurations == (near.configuration,)


def test_what_is_proposed_keeps_the_bound_at_the_noise_seen() -> None:
    """At 5 % noise an option at the edge of the bound cannot be confirmed; a milder one can."""
    base = option(BASE, 100.0, 1000.0, measured=True)
    edge = option(replace(BASE, freq_khz=1_700_000), 104.0, 800.0, error=0.03)
    mild = option(replace(BASE, freq_khz=1_800_000), 99.0, 850.0, error=0.03)
    steps = [
        next_runs([base, edge, mild], base, POLICY, runs_left=9, pairs={}, run_sigma=sigma)
        for sigma in (0.002, 0.03)
    ]
    assert [s.configurations[0] for s in steps if s] == [mild.configuration] * 2
    quiet = next_runs([base, edge], base, POLICY, runs_left=9, pairs={}, run_sigma=0.002)
    assert quiet is not None
    assert quiet.configurations == (edge.configuration,)


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_pure_noise_is_never_confirmed_above_its_level(noise: float) -> None:
    """Every run costs the same but for noise: what is chosen must not promise more than that."""
    chosen = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        cells = [replace(BASE, threads_per_node=t) for t in range(2, 17, 2)]
        runs: list[Observation] = []

        def run(c: Configuration, source: str, rng: Any = rng, runs: Any = runs) -> None:
            t, e = np.exp(noise * rng.normal(size=2))
            runs.append(
                Observation(
                    c,
                    100 * t,
                    1000 * e,
                    source=source,  # type: ignore[arg-type]
                    extra={"design": ADAPTIVE},
                    space=replace(SPACE, freqs_khz=(BASE.freq_khz,)),
                )
            )

        for c in (BASE, cells[3], cells[5], cells[6]):
            run(c, "sweep")
        pairs: dict[Configuration, int] = {}
        while len(runs) < 10:
            fitted = fit_options(runs, model="physical")
            base = next(o for o in fitted.options if o.configuration == BASE)
            step = next_runs(
                fitted.options,
                base,
                POLICY,
                runs_left=10 - len(runs),
                pairs=pairs,
                run_sigma=run_sigma(fitted),
            )
            if step is None:
                break
            for c in step.configurations:
                confirms = step.confirms and c != BASE
                pairs[c] = pairs.get(c, 0) + confirms
                run(c, "confirm" if confirms else "sweep")
        fitted = fit_options(runs, model="physical")
        base = next(o for o in fitted.options if o.configuration == BASE)
        choice = confirmed_choice(fitted.options, base, POLICY)
        if choice is not None:
            chosen += 1
            option_there = next(o for o in fitted.options if o.configuration == choice)
            assert option_there.energy_j > (1 - 4 * noise) * base.energy_j
    # the policy's confidence is 90 %: one in ten may be wrong
    assert chosen <= 3


def test_the_number_of_pairs_follows_from_the_noise() -> None:
    assert [pairs_needed(POLICY, s) for s in (0.005, 0.01, 0.02, 0.05)] == [1, 1, 2, 3]


def explored_run(
    threads: int, *, source: str = "sweep", design: str = ADAPTIVE, factor: float = 1.0
) -> Observation:
    time_s = 10 + 160 / threads
    return Observation(
        Configuration("n", 1, 1, threads, 2_000_000),
        time_s * factor,
        time_s * factor * (50 + 5 * threads),
        source=source,  # type: ignore[arg-type]
        extra={"design": design} if design else {},
        space=replace(SPACE, freqs_khz=(2_000_000,)),
    )


def confirmed_threads(runs: list[Observation]) -> list[int]:
    return [o.configuration.threads_per_node for o in fit_options(runs).options if o.confirmed]


def test_what_was_only_explored_is_confirmed_by_nothing_but_its_pair_where_runs_scatter() -> None:
    explored = [explored_run(t) for t in (4, 6, 8, 10, 12, 16)]
    assert confirmed_threads(explored) == []
    noisy = [explored_run(8, source="confirm"), explored_run(16, factor=1.08)]
    assert confirmed_threads([*explored, *noisy]) == [8]
    # a sweep of another design confirms as ever
    assert confirmed_threads([explored_run(t, design="") for t in (4, 6, 8, 12, 16)])


def test_on_a_quiet_machine_the_job_as_written_once_more_confirms_what_was_borne_out() -> None:
    explored = [explored_run(t) for t in (4, 6, 8, 10, 12, 16)]
    assert {8, 10, 12} <= {*confirmed_threads([*explored, explored_run(16)])}
    # what no other run predicts still takes a run of its own
    odd = [explored_run(t, factor=0.8 if t == 8 else 1.0) for t in (4, 6, 8, 10, 12, 16, 16)]
    assert 8 not in confirmed_threads(odd)
    assert 8 in confirmed_threads([*odd, explored_run(8, source="confirm", factor=0.8)])


def test_a_pair_goes_to_what_no_other_run_bears_out() -> None:
    """What they bear out needs the job as written alone, and a run in its place tells more."""
    base = option(BASE, 100.0, 1000.0, measured=True)
    known = option(replace(BASE, threads_per_node=12), 100.0, 850.0, measured=True)
    odd = option(replace(BASE, threads_per_node=8), 99.0, 700.0, error=0.05, measured=True)
    for options in ([base, known, odd], [base, odd, known]):
        step = next_runs(
            options,
            base,
            POLICY,
            runs_left=2,
            pairs={},
            run_sigma=0.01,
            as_predicted={known.configuration},
        )
        assert step is not None and step.configurations == (odd.configuration, BASE)
    step = next_runs(
        [base, known],
        base,
        POLICY,
        runs_left=2,
        pairs={},
        run_sigma=0.01,
        as_predicted={known.configuration},
    )
    assert step is not None and step.configurations == (known.configuration, BASE)


def test_a_pair_goes_to_what_came_out_better_than_the_others_predict_before_a_wild_hope() -> None:
    """Its error is the disagreement; but that is more often the model's mistake than the run's."""
    base = option(BASE, 100.0, 1000.0, measured=True)
    better = option(replace(BASE, threads_per_node=8), 100.0, 760.0, error=0.15, measured=True)
    hope = option(replace(BASE, threads_per_node=6), 101.0, 745.0, error=0.1)
    step = next_runs([base, better, hope], base, POLICY, runs_left=2, pairs={}, run_sigma=0.01)
    assert step is not None and step.configurations == (better.configuration, BASE)


def test_two_runs_that_differ_by_no_more_than_99_of_100_pairs_agree() -> None:
    """At 1 % noise a fifth of all honest pairs would confirm nothing at 90 % in both responses."""
    rng, agreeing = np.random.default_rng(1), 0
    for _ in range(200):
        logs = 0.01 * rng.normal(size=(2, 2))
        both = [
            response([(BASE, math.exp(v)) for v in logs[:, k]], Scatter(0.0102)) for k in range(2)
        ]
        agreeing += all(BASE in r.agreed for r in both)
    assert agreeing >= 190
