"""How much runs scatter: what other workloads' repeats say of it, and to whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation, Scope
from advisor.core.policy import Policy, Training
from advisor.core.request import JobRequest
from advisor.loop.refit import refit
from advisor.models.adaptive import pairs_needed
from advisor.models.fit import fit_options, run_sigma
from advisor.models.scatter import USUAL, pooled, repeats_elsewhere
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.training.site_context import scatter_before
from advisor.training.training_job import TrainingJob, current_user
from tests.unit.never_swept import NODE_TYPE

BASE = Configuration(NODE_TYPE.name, 1, 1, 16, 2_000_000)
CELLS = [replace(BASE, threads_per_node=t) for t in (16, 12, 8, 4)]
DESIGN = [*CELLS, CELLS[0], CELLS[1]]


def drawn(
    sigma: float, freedom: int, workloads: int, seed: int = 0
) -> tuple[tuple[float, ...], ...]:
    """What so many workloads' repeats come out as on a machine that scatters so."""
    chi = np.random.default_rng(seed).chisquare(freedom, workloads)
    return tuple((sigma * math.sqrt(c / freedom), float(freedom)) for c in chi)


def runs(noise: float, seed: int, design: Sequence[Configuration] = DESIGN) -> list[Observation]:
    rng = np.random.default_rng(seed)
    made = []
    for c in design:
        time_s = 10 + 800 / c.threads_per_node
        t, e = np.exp(noise * rng.normal(size=2))
        made.append(
            Observation(c, time_s * t, time_s * (100 + 5 * c.threads_per_node) * e, scope="all")
        )
    return made


def test_without_other_workloads_it_is_what_is_assumed_of_any_machine() -> None:
    assert pooled(0.01, ()) == replace(USUAL, sigma=0.01)
    assert not pooled(0.01, ()).seen


@pytest.mark.parametrize("sigma", [0.003, 0.03])
def test_a_dozen_workloads_say_how_much_runs_scatter(sigma: float) -> None:
    found = [pooled(USUAL.sigma, drawn(sigma, 2, 12, seed)) for seed in range(10)]
    assert all(f.seen for f in found)
    assert all(abs(math.log(f.sigma / sigma)) < math.log(1.5) for f in found)
    # one alone is half believed
    half = pooled(USUAL.sigma, ((sigma, 2.0),)).sigma
    assert min(sigma, USUAL.sigma) < half < max(sigma, USUAL.sigma)


def test_workloads_that_differ_say_less_than_those_that_are_alike() -> None:
    alike = pooled(0.01, tuple((0.01, 6.0) for _ in range(8)))
    apart = pooled(0.01, tuple((0.01 * f, 6.0) for f in (0.2, 0.3, 0.5, 1, 1, 2, 3, 5)))
    assert apart.freedom < alike.freedom / 2
    # and a workload's own repeats go before them
    assert apart.with_own(0.05, 10) > alike.with_own(0.05, 10)


def test_a_sweep_that_repeats_nothing_yet_knows_a_noisy_node_type() -> None:
    made = runs(0.05, 0, CELLS)
    alone = fit_options(made)
    known = fit_options(made, elsewhere={n: drawn(0.05, 2, 12) for n in ("time", "energy")})
    policy = Policy(goal="min_energy", max_slowdown=0.05)
    assert pairs_needed(policy, run_sigma(alone)) == 1
    assert pairs_needed(policy, run_sigma(known)) == 3
    assert 0.03 < run_sigma(known) < 0.07
    quiet = fit_options(runs(0.002, 0, CELLS), elsewhere={"time": drawn(0.002, 2, 12)})
    assert quiet.stats["time"]["run_sigma_pct"] < 0.4 * alone.stats["time"]["run_sigma_pct"] + 0.1


def known_store(path: Path) -> None:
    """A store with four workloads for all, one of a user's own, and one of another's."""
    with Writer(path) as writer:
        writer.save_node_types([NODE_TYPE], source="test")
        for number in range(6):
            scope: Scope = "all" if number < 4 else "own"
            user = {4: current_user(), 5: "somebody"}.get(number, "")
            made = [
                replace(o, scope=scope, contributor=user)
                for o in runs(0.03 + 0.01 * number, number)
            ]
            writer.add_observations(f"app{number}", "w", made)
            refit(writer, f"app{number}", "w", NODE_TYPE.name, scope, user)


def test_only_what_a_models_jobs_may_use_counts_and_never_its_own(tmp_path: Path) -> None:
    known_store(tmp_path / "db")
    with Reader(tmp_path / "db") as store:

        def seen(
            application: str, scope: Scope, owner: str, node_type: str = NODE_TYPE.name
        ) -> int:
            found = repeats_elsewhere(store, application, "w", node_type, scope, owner)
            assert len({len(values) for values in found.values()}) <= 1  # all three responses
            return len(found.get("time", ()))

        assert seen("new", "all", "") == 4
        assert seen("app0", "all", "") == 3
        assert seen("new", "own", current_user()) == 5
        assert seen("new", "own", "somebody") == 5
        assert seen("new", "own", "a stranger") == 4
        assert seen("new", "account", current_user()) == 4
        assert seen("new", "all", "", "another") == 0
        values = repeats_elsewhere(store, "new", "w", NODE_TYPE.name, "all", "")
        assert set(values) == {"time", "energy", "power"}
        assert {repeats for of in values.values() for _, repeats in of} <= {1, 2}


def test_a_sweep_and_a_fit_again_know_the_same(tmp_path: Path) -> None:
    path = tmp_path / "db"
    request = JobRequest("local", "train", current_user(), 1)
    job = TrainingJob("new", "w", NODE_TYPE, BASE, request)
    policy = Policy(training=Training(trust="all"))
    assert scatter_before(path, job, policy) == {}  # no store yet
    known_store(path)
    before = scatter_before(path, job, policy)
    made = runs(0.03, 9, CELLS)
    swept = fit_options(made, node_type=NODE_TYPE, elsewhere=before)
    with Writer(path) as writer:
        writer.add_observations("new", "w", made)
        refit(writer, "new", "w", NODE_TYPE.name, "all", "")
        (model,) = writer.find_models("new", "w", NODE_TYPE.name)
    for name in ("time", "energy", "power"):
        assert model.stats[name]["run_sigma_pct"] == swept.stats[name]["run_sigma_pct"]
        assert model.stats[name]["run_sigma_pct"] > 100 * USUAL.sigma
    own = scatter_before(path, job, Policy(training=Training(trust="own")))
    assert len(own["time"]) == len(before["time"]) + 1
