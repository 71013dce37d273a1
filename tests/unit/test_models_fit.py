"""From runs to options: averaging, energies, intervals, confirmation, the zone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation, Quality, Scope
from advisor.core.option import Z90, Option, pack_options, unpack_rows
from advisor.errors import InputError
from advisor.models.design import uniform
from advisor.models.fit import FitResult, borne_out, fit_options
from advisor.models.runs import gather, runs_by_scope

SPACE = SearchSpace(
    "n", (1,), tuple((1, t) for t in range(4, 45, 4)), tuple(range(1_200_000, 2_200_001, 100_000))
)


def law(c: Configuration) -> tuple[float, float]:
    """Time (s) and energy (J) of a program that saturates memory at 24 cores."""
    clock = c.freq_khz / 2.2e6
    time = 40.0 * (0.02 / clock + 0.5 / (c.threads_per_node * clock))
    time += 20.0 / min(c.threads_per_node, 24)
    time = time / c.nodes**0.9 * (1 + 0.002 * max(0, c.threads_per_node - 24))
    power = 110.0 + c.threads_per_node * (0.8 + 2.4 * clock**2.5)
    return time, time * power * c.nodes


def run(
    c: Configuration, noise: float = 0.0, rng: np.random.Generator | None = None
) -> Observation:
    time, energy = law(c)
    if rng is not None:
        time, energy = (
            time * math.exp(noise * rng.normal()),
            energy * math.exp(noise * rng.normal()),
        )
    return Observation(c, time, energy)


def by_configuration(options: Iterable[Option]) -> dict[Configuration, Option]:
    return {o.configuration: o for o in options}


DESIGN = uniform(SPACE)
RUNS = [run(c) for c in DESIGN]


@pytest.fixture(scope="module")
def fit() -> FitResult:
    return fit_options(RUNS, space=SPACE)


def test_every_option_of_the_space_is_evaluated_and_can_be_stored(fit: FitResult) -> None:
    assert [o.configuration for o in fit.options] == list(SPACE)
    rows = unpack_rows(pack_options(fit.options))
    assert tuple(row.option("n") for row in rows) == fit.options
    json.dumps(fit.stats, allow_nan=False)
    assert fit.n_train == 12
    assert fit.model == "auto"
    assert fit.energy_quality == "measured"
    for o in fit.options:
        assert 0 < o.time_lo_s <= o.time_s <= o.time_hi_s
        assert 0 < o.energy_lo_j <= o.energy_j <= o.energy_hi_j


def test_without_a_space_the_smallest_grid_that_holds_the_runs_is_taken(fit: FitResult) -> None:
    assert {o.configuration for o in fit_options(RUNS).options} == set(DESIGN)


def test_where_a_run_was_made_it_stands_with_the_measurements_error(fit: FitResult) -> None:
    for o in fit.options:
        assert o.measured == (o.configuration in DESIGN)
        if o.measured:
            time, energy = law(o.configuration)
            assert o.time_s == pytest.approx(time)
            assert o.energy_j == pytest.approx(energy)
            assert o.time_sigma == pytest.approx(0.02 / 1.96, rel=1e-3)
            assert o.energy_sigma == pytest.approx(0.02 / 1.96, rel=1e-3)


def test_the_interval_grows_with_distance_from_the_data(fit: FitResult) -> None:
    at = by_configuration(fit.options)
    near = at[Configuration("n", 1, 1, 44, 2_100_000)]
    far = at[Configuration("n", 1, 1, 4, 1_500_000)]
    assert near.time_sigma < 0.5 * far.time_sigma
    assert all(o.time_sigma >= 0.02 / 1.97 for o in fit.options)


def test_a_confirming_run_confirms_and_one_far_off_does_not() -> None:
    point = Configuration("n", 1, 1, 24, 1_900_000)
    good = run(point)
    assert by_configuration(fit_options([*RUNS, good], space=SPACE).options)[point].confirmed
    slow = replace(good, time_s=3 * good.time_s)
    option = by_configuration(fit_options([*RUNS, slow], space=SPACE).options)[point]
    assert option.measured
    assert not option.confirmed
    hungry = replace(good, energy_j=3 * (good.energy_j or 0))
    assert not by_configuration(fit_options([*RUNS, hungry], space=SPACE).options)[point].confirmed


def test_what_came_out_best_by_luck_is_not_taken_for_as_good() -> None:
    """Where repeats show the scatter, a run and what the others predict of it are one estimate."""
    rng = np.random.default_rng(4)
    lucky = Configuration("n", 1, 1, 24, 1_900_000)
    base = DESIGN[0]
    runs = [run(c, 0.05, rng) for c in [*DESIGN, base, base, base]]
    time, energy = (0.95 * value for value in law(lucky))
    fresh = Observation(lucky, time, energy, source="confirm")
    option = by_configuration(fit_options([*runs, fresh], space=SPACE).options)[lucky]
    assert option.confirmed
    assert 1.003 * time < option.time_s < 1.1 * time
    alone = gather([*runs, fresh]).time
    assert option.time_sigma < alone.half_width(lucky) / Z90


def test_a_single_run_that_the_others_do_not_bear_out_is_known_no_better_than_they_differ() -> None:
    base = max(DESIGN)
    slow = [
        replace(r, time_s=1.4 * r.time_s, energy_j=1.4 * (r.energy_j or 0))
        if r.configuration == base
        else r
        for r in RUNS
    ]
    fitted = fit_options(slow, space=SPACE)
    option = by_configuration(fitted.options)[base]
    assert not option.confirmed and option.time_sigma > 0.1
    assert not borne_out(fitted, base) and borne_out(fit_options(RUNS, space=SPACE), base)
    # a second run that agrees with it says that it is the machine, not a disturbance
    twice = fit_options([*slow, next(r for r in slow if r.configuration == base)], space=SPACE)
    assert borne_out(twice, base)


def test_what_was_not_run_is_never_confirmed(fit: FitResult) -> None:
    assert all(o.measured for o in fit.options if o.confirmed)
    assert fit.stats["confirmed"] == sum(o.confirmed for o in fit.options)


def test_a_whole_grid_confirms_most_of_itself() -> None:
    rng = np.random.default_rng(5)
    fitted = fit_options([run(c, 0.01, rng) for c in SPACE])
    assert fitted.stats["measured"] == 121
    assert fitted.stats["confirmed"] > 100


def test_odd_runs_of_a_grid_are_left_out_of_the_fit_but_shown_as_measured() -> None:
    broken = Configuration("n", 1, 1, 28, 2_000_000)
    runs = [run(c) for c in SPACE]
    bad = [replace(r, time_s=40 * r.time_s) if r.configuration == broken else r for r in runs]
    clean, fitted = fit_options(runs), fit_options(bad)
    option = by_configuration(fitted.options)[broken]
    assert option.measured
    assert not option.confirmed
    assert option.time_s == pytest.approx(40 * law(broken)[0])
    assert fitted.stats["time"]["n_train"] == 120
    assert any(
        "28 threads, 2 GHz is +3" in n and "left out of the fit" in n and n.startswith("time")
        for n in fitted.notes
    )
    neighbour = Configuration("n", 1, 1, 32, 2_000_000)
    assert by_configuration(fitted.predicted)[neighbour].time_s == pytest.approx(
        by_configuration(clean.predicted)[neighbour].time_s, rel=0.01
    )


def test_a_step_in_one_axis_and_a_steep_edge_are_no_broken_runs() -> None:
    def stepped(o: Observation) -> Observation:
        return replace(o, time_s=o.time_s * (1.5 if o.configuration.threads_per_node > 20 else 1))

    fitted = fit_options([stepped(run(c)) for c in SPACE])
    assert fitted.stats["time"]["n_train"] == 121
    edge = Configuration("n", 1, 1, 44, 2_200_000)
    bent = [
        replace(r, time_s=3 * r.time_s) if r.configuration == edge else r for r in map(run, SPACE)
    ]
    assert fit_options(bent).stats["time"]["n_train"] == 121


def test_front_and_zone_are_those_of_least_time_and_energy(fit: FitResult) -> None:
    for o in fit.options:
        beaten = any(
            p.time_s <= o.time_s
            and p.energy_j <= o.energy_j
            and (p.time_s, p.energy_j) != (o.time_s, o.energy_j)
            for p in fit.options
        )
        assert o.on_front == (not beaten)
        assert o.in_zone or not o.on_front
    assert fit.stats["zone"] == sum(o.in_zone for o in fit.options)
    wider = fit_options(RUNS, space=SPACE, error=0.15)
    assert wider.stats["zone"] > fit.stats["zone"]


# -- repeats, work, energies ---------------------------------------------------------------------


def test_repeats_are_averaged_in_log_space_and_give_the_error() -> None:
    c = DESIGN[0]
    time = law(c)[0]
    repeated = [*RUNS, *(replace(RUNS[0], time_s=time * f) for f in (1.04, 1 / 1.04))]
    gathered = gather(repeated)
    assert gathered.time.log_mean[c] == pytest.approx(math.log(time))
    assert gathered.time.counts[c] == 3
    assert gathered.time.repeats == 2
    assert gathered.time.sigma == pytest.approx(math.log(1.04))
    # equation 4.4 with two degrees of freedom: t is 4.303 at 95 %, two-sided
    error = gathered.time.measurement()["error_pct"]
    assert error == pytest.approx(100 * math.expm1(4.303 * math.log(1.04)), rel=1e-3)
    # intervals take the assumed error for four more repeats: t of six is 1.943 at 90 %
    pooled = math.sqrt((4 * (0.02 / 1.96) ** 2 + 2 * math.log(1.04) ** 2) / 6)
    assert gathered.time.half_width(c) == pytest.approx(1.943 * pooled / 3**0.5, rel=1e-3)
    assert gathered.time.half_width(DESIGN[1]) == pytest.approx(1.943 * pooled, rel=1e-3)


def test_without_repeats_the_assumed_error_holds() -> None:
    gathered = gather(RUNS, measurement_error=0.05)
    assert gathered.time.sigma == pytest.approx(0.05 / 1.96, rel=1e-3)
    assert gathered.time.half_width(DESIGN[0]) == pytest.approx(Z90 * 0.05 / 1.96, rel=1e-3)


def test_two_equal_runs_do_not_make_a_meter_perfect() -> None:
    assert gather([*RUNS, RUNS[0]]).time.sigma > 0


def test_a_figure_of_merit_makes_runs_of_different_length_comparable(fit: FitResult) -> None:
    rates = []
    for i, r in enumerate(RUNS):
        length = 0.5 + 0.1 * i
        assert r.energy_j is not None
        rates.append(
            replace(r, time_s=r.time_s * length, energy_j=r.energy_j * length, fom=50.0 / r.time_s)
        )
    scaled = fit_options(rates, space=SPACE)
    work = float(np.median([0.5 + 0.1 * i for i in range(12)]))
    for a, b in zip(scaled.options, fit.options, strict=True):
        assert a.time_s == pytest.approx(b.time_s * work)
        assert a.energy_j == pytest.approx(b.energy_j * work)
        assert a.in_zone == b.in_zone


def test_a_figure_of_merit_on_some_runs_only_is_ignored_and_said() -> None:
    fitted = fit_options([replace(RUNS[0], fom=3.0), *RUNS[1:]], space=SPACE)
    assert by_configuration(fitted.options)[DESIGN[0]].time_s == pytest.approx(law(DESIGN[0])[0])
    assert "figures of merit are ignored: not every run has one" in fitted.notes


def without_energy(runs: Sequence[Observation]) -> list[Observation]:
    return [replace(r, energy_j=None, energy_quality="missing") for r in runs]


def of_quality(runs: Sequence[Observation], quality: Quality) -> list[Observation]:
    return [replace(r, energy_quality=quality) for r in runs]


def test_no_energy_at_all_leaves_time_and_no_numbers_for_energy() -> None:
    fitted = fit_options(without_energy(RUNS), space=SPACE)
    assert fitted.energy_quality == "missing"
    assert all(math.isnan(o.energy_j) for o in fitted.options)
    assert all(math.isnan(o.energy_sigma) for o in fitted.options)
    assert fitted.stats["energy"] is None
    json.dumps(fitted.stats, allow_nan=False)
    fastest = min(fitted.options, key=lambda o: o.time_s)
    assert [o for o in fitted.options if o.on_front] == [fastest]
    assert all(o.measured for o in fitted.options if o.configuration in DESIGN)


def test_energy_missing_on_some_runs_is_fitted_from_the_rest() -> None:
    fitted = fit_options([*without_energy(RUNS[:3]), *RUNS[3:]], space=SPACE)
    assert fitted.stats["time"]["n_train"] == 12
    assert fitted.stats["energy"]["n_train"] == 9
    assert "without energy, for time only: 3 runs" in fitted.notes
    at = by_configuration(fitted.options)
    half_known = at[DESIGN[0]]
    assert half_known.time_s == pytest.approx(law(DESIGN[0])[0])
    assert not half_known.measured
    assert not half_known.confirmed
    assert half_known.energy_j > 0
    assert at[DESIGN[5]].measured


def test_measured_energies_win_over_estimated_ones_and_are_never_mixed() -> None:
    estimated = [
        replace(r, energy_j=1000.0, energy_quality="estimated") for r in map(run, DESIGN[:6])
    ]
    fitted = fit_options([*estimated, *RUNS[6:]], space=SPACE)
    assert fitted.energy_quality == "measured"
    assert fitted.stats["energy"]["n_train"] == 6
    assert "only measured energies count; left out: 6 runs" in fitted.notes
    few = fit_options([*of_quality(RUNS[:9], "estimated"), *RUNS[9:]], space=SPACE)
    assert few.energy_quality == "estimated"
    assert few.stats["energy"]["n_train"] == 9
    assert "only estimated energies count; left out: 3 runs" in few.notes


def test_too_few_energies_of_either_kind_are_none() -> None:
    runs = [*without_energy(RUNS[:6]), *of_quality(RUNS[6:9], "estimated"), *RUNS[9:]]
    fitted = fit_options(runs, space=SPACE)
    assert fitted.energy_quality == "missing"
    assert any(
        "measured at 3 configurations, estimated at 3; needed are 4 of a kind" in n
        for n in fitted.notes
    )


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_too_few_configurations_are_refused_with_the_number_needed(count: int) -> None:
    with pytest.raises(InputError, match=f"{count} configurations? measured, a model needs 4"):
        fit_options(RUNS[:count] * 5)


def test_four_runs_are_enough() -> None:
    corners = uniform(SPACE, 4)
    fitted = fit_options([run(c) for c in corners], space=SPACE)
    assert len(fitted.options) == 121
    assert all(math.isfinite(o.time_hi_s) for o in fitted.options)


def test_nonsense_in_a_run_is_refused_by_its_number() -> None:
    with pytest.raises(InputError, match="run 2: energy_j is nan"):
        fit_options([*RUNS[:2], replace(RUNS[2], energy_j=math.nan), *RUNS[3:]])
    with pytest.raises(InputError, match="run 0: time_s is 0"):
        fit_options([replace(RUNS[0], time_s=0.0), *RUNS[1:]])


def test_runs_of_two_node_types_are_refused() -> None:
    other = replace(RUNS[0], configuration=replace(RUNS[0].configuration, node_type="fat"))
    with pytest.raises(InputError, match=r"several node types .fat, n."):
        fit_options([*RUNS, other])


def test_ranks_the_model_cannot_tell_apart_are_said() -> None:
    two = [replace(r, configuration=replace(r.configuration, ranks_per_node=2)) for r in RUNS]
    fitted = fit_options([*RUNS, *[replace(r, time_s=1.3 * r.time_s) for r in two]])
    assert any("differ in ranks per node" in n for n in fitted.notes)
    at = by_configuration(fitted.options)
    for one, more in zip(RUNS, two, strict=True):
        assert at[more.configuration].time_s == pytest.approx(
            1.3 * at[one.configuration].time_s, rel=1e-6
        )


def test_runs_without_a_cap_are_runs_at_the_highest_one() -> None:
    highest = SPACE.freqs_khz[-1]
    free = [
        replace(r, configuration=replace(r.configuration, freq_khz=0))
        if r.configuration.freq_khz == highest
        else r
        for r in RUNS
    ]
    fitted = fit_options(free, space=SPACE)
    assert fitted.options == fit_options(RUNS, space=SPACE).options
    assert "runs without a frequency cap count as runs at 2.2 GHz" in fitted.notes


def test_several_nodes_are_an_axis() -> None:
    space = replace(SPACE, nodes=(1, 2, 4, 8))
    fitted = fit_options([run(c) for c in uniform(space, 48)], space=space)
    at = by_configuration(fitted.predicted)
    for nodes in (1, 2, 4, 8):
        c = Configuration("n", nodes, 1, 32, 2_000_000)
        assert at[c].time_s == pytest.approx(law(c)[0], rel=0.1)


# -- whose runs ----------------------------------------------------------------------------------


def owned(runs: Sequence[Observation], who: str, account: str, scope: Scope) -> list[Observation]:
    return [replace(r, contributor=who, account=account, scope=scope) for r in runs]


def test_groups_never_show_a_private_run_to_another() -> None:
    site = owned(RUNS[:2], "admin", "", "all")
    climate = owned(RUNS[2:4], "ada", "climate", "account")
    ada = owned(RUNS[4:6], "ada", "climate", "own")
    bob = owned(RUNS[6:8], "bob", "physics", "own")
    found = {
        (g.scope, g.owner): list(g.observations)
        for g in runs_by_scope([*bob, *ada, *climate, *site])
    }
    assert found == {
        ("all", ""): site,
        ("account", "climate"): [*climate, *site],  # in the order given: oldest first
        ("own", "ada"): [*ada, *climate, *site],
        ("own", "bob"): [*bob, *site],
    }
    assert [g.scope for g in runs_by_scope([*bob, *site])] == ["all", "own"]
    assert runs_by_scope([]) == []


def test_a_user_of_two_accounts_gets_neither_accounts_runs_mixed_in() -> None:
    climate = owned(RUNS[2:4], "ada", "climate", "account")
    both = [*owned(RUNS[4:5], "bob", "climate", "own"), *owned(RUNS[5:6], "bob", "physics", "own")]
    found = {(g.scope, g.owner): g.observations for g in runs_by_scope([*climate, *both])}
    assert list(found["own", "bob"]) == both


def test_of_two_ways_of_measuring_the_newest_counts_and_imported_runs_go_with_it() -> None:
    old = [replace(r, method="request", time_s=3 * r.time_s) for r in RUNS]
    new = [replace(r, method="variables") for r in RUNS[:8]]
    fitted = fit_options([*old, *RUNS[8:], *new], space=SPACE)
    assert fitted.stats["method"] == "variables" and fitted.stats["runs"] == 12
    assert "left out: 12 runs measured by a smaller request" in fitted.notes
    assert fitted.options == fit_options([*RUNS[8:], *RUNS[:8]], space=SPACE).options
    back = fit_options([*new, *old], space=SPACE)
    assert back.stats["method"] == "request"
    assert "left out: 8 runs measured inside the whole allocation" in back.notes
    assert fit_options(RUNS, space=SPACE).stats["method"] == ""
