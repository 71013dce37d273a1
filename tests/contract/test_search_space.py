"""Whoever fits predicts: the search space is stored with the runs, or the inventory gives it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.delivery import delivered_runs, write_spool_file
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.protocol import ProtocolError
from advisor.errors import InputError
from advisor.loop.refit import refit
from advisor.loop.spool import spool_folder, take_spool
from advisor.models.design import uniform
from advisor.models.fit import fit_options
from advisor.models.space import NamedAxes, far_from, search_space, wanted
from advisor.store.forgetting import forget, remember
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.training.result_store import _observe_message

Advisor = Callable[..., Any]
FREQS = tuple(range(1_200_000, 2_200_001, 100_000))
SPACE = SearchSpace("hsw", (1,), tuple((1, t) for t in range(4, 45, 4)), FREQS)
HSW = NodeType("hsw", cores=44, freq_khz=FREQS)
SITE = f"""\
version: 1
node_types:
  hsw: {{cores: 44, memory_mb: 64 GB, nodes: "h[1-4]", partitions: [batch],
        freq_khz: [{", ".join(f"{f / 1e6:g} GHz" for f in FREQS)}]}}
default_partition: batch
"""
COLUMNS = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j"


def law(c: Configuration, noise: random.Random | None = None) -> tuple[float, float]:
    """Time (s) and energy (J) of a program that saturates memory at 24 cores."""
    clock = c.freq_khz / 2.2e6
    time = 40.0 * (0.02 / clock + 0.5 / (c.threads_per_node * clock))
    time += 20.0 / min(c.threads_per_node, 24)
    time = time / c.nodes**0.9 * (1 + 0.002 * max(0, c.threads_per_node - 24))
    power = 110.0 + c.threads_per_node * (0.8 + 2.4 * clock**2.5)
    slip = [math.exp(noise.gauss(0, 0.01)) for _ in range(2)] if noise else (1.0, 1.0)
    return time * slip[0], time * power * c.nodes * slip[1]


def observed(c: Configuration, **more: Any) -> Observation:
    return Observation(c, *law(c), scope="all", contributor="ann", **more)


def imported(
    advisor: Advisor, folder: Path, cells: Sequence[Configuration], noise: random.Random
) -> None:
    rows = []
    for c in cells:
        time, energy = law(c, noise)
        rows.append(
            f"{c.nodes},{c.ranks_per_node},{c.threads_per_node},{c.freq_khz},{time},{energy}"
        )
    (folder / "runs.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")
    done = advisor("import", folder / "runs.csv", "--application", "A", "--node-type", "hsw")
    assert done.code == 0, done.err


def site(advisor: Advisor, folder: Path, text: str = SITE) -> None:
    (folder / "site.yaml").write_text(text)
    done = advisor("site", "apply", folder / "site.yaml")
    assert done.code == 0, done.err


@pytest.mark.parametrize("seed", range(3))
def test_twelve_imported_runs_predict_the_whole_grid(
    advisor: Advisor, store_path: Path, tmp_path: Path, seed: int
) -> None:
    """12 runs gave 12 options, all of them measured; 90 % of the intervals hold."""
    site(advisor, tmp_path)
    noise = random.Random(seed)
    measured = noise.sample(list(SPACE), 12)
    imported(advisor, tmp_path, measured, noise)
    fit = advisor("fit", "A", "--json").json()["models"][0]["stats"]
    assert (fit["options"], fit["measured"], fit["space"]) == (121, 12, "inventory")
    options = advisor("options", "A", "--all", "--json").json()["options"]
    places = {Configuration.from_dict({**o, "node_type": "hsw"}): o for o in options}
    assert set(places) == set(SPACE)
    predicted = [(c, o) for c, o in places.items() if not o["measured"]]
    assert len(predicted) == 109
    for name, low, high, at in (
        ("time_s", "time_lo_s", "time_hi_s", 0),
        ("energy_j", "energy_lo_j", "energy_hi_j", 1),
    ):
        held = [o[low] <= law(c)[at] <= o[high] for c, o in predicted]
        assert sum(held) >= 0.85 * len(held), name
        errors = sorted(abs(math.log(o[name] / law(c)[at])) for c, o in predicted)
        assert errors[len(errors) // 2] < 0.05, name
    far = far_from(measured, places)
    assert {c for c, o in places.items() if o["extrapolated"]} == far


def test_the_sweeps_grid_is_stored_and_a_fit_again_has_the_same_options(
    advisor: Advisor, store_path: Path
) -> None:
    """121 options became 12 after any fit, or when a collection fitted again."""
    runs = [observed(c, source="sweep", space=SPACE) for c in uniform(SPACE)]
    swept = fit_options(runs, node_type=HSW)
    assert [o.configuration for o in swept.options] == list(SPACE)
    assert swept.stats["space"] == "stored"
    with Writer(store_path) as store:
        store.add_observations("A", "default", runs)
        refit(store, "A", "default", "hsw", "all", "")
        (model,) = store.find_models("A", "default", "hsw")[:1]
        assert model.options() == swept.options
        forget(store, "A", by="root")
        remember(store, "A")
    assert advisor("fit", "A").code == 0
    with Reader(store_path) as reader:
        current = [m for m in reader.find_models("A", "default", "hsw") if m.state == "fitted"]
        assert current[0].options() == swept.options
        assert {o.observation.space for o in reader.observations("A")} == {SPACE}


def test_a_users_delivery_brings_its_grid(store_path: Path) -> None:
    """By the socket, the spool and the folder of left results: one form for all."""
    runs = [observed(c, source="sweep", space=SPACE) for c in uniform(SPACE)]
    sent = delivered_runs(
        json.loads(json.dumps(_observe_message("A", "default", runs, fit=True))), "ann"
    )
    write_spool_file(spool_folder(store_path), json.dumps(sent))
    with Writer(store_path) as store:
        done = take_spool(store, spool_folder(store_path), refit, lambda *_: "", lambda *_: "")
        assert done.bad == [] and len(done.fits) == 1
        (model,) = store.find_models("A", "default", "hsw")
        assert [o.configuration for o in model.options()] == list(SPACE)


@pytest.mark.parametrize(
    "space",
    [
        7,
        {},
        {"nodes": [1], "threads": [[2, 1]], "freqs_khz": [0]},
        {"nodes": [1], "threads": [[1, 2, 3]], "freqs_khz": [0]},
        {"nodes": [True], "threads": [[1, 2]], "freqs_khz": [0]},
        {"nodes": [1 << 40], "threads": [[1, 2]], "freqs_khz": [0]},
        {
            "nodes": list(range(1, 100)),
            "threads": [[1, t] for t in range(1, 100)],
            "freqs_khz": [0],
        },
        {"nodes": [1], "threads": [], "freqs_khz": [0]},
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(store_path: Path, space: object) -> None:
    sent = _observe_message("A", "default", [observed(c) for c in uniform(SPACE)], fit=True)
    bad = json.loads(json.dumps({**sent, "space": space}))
    with pytest.raises(ProtocolError, match="space"):
        delivered_runs(bad, "ann")
    write_spool_file(spool_folder(store_path), json.dumps({**bad, "contributor": "ann"}))
    with Writer(store_path) as store:
        done = take_spool(store, spool_folder(store_path), refit, lambda *_: "", lambda *_: "")
        assert len(done.bad) == 1 and "space" in done.bad[0]
        assert store.observations("A") == []


def test_without_an_inventory_the_runs_axes_are_taken_and_named_ones_are_kept(
    advisor: Advisor, store_path: Path, tmp_path: Path
) -> None:
    noise = random.Random(0)
    cells = [Configuration("hsw", 1, 1, t, f) for t in (8, 24, 44) for f in FREQS[::5]]
    imported(advisor, tmp_path, cells, noise)
    done = advisor("fit", "A")
    assert "knows no node type hsw" in done.out and "--frequencies" in done.out
    assert "--threads" in done.out
    assert advisor("fit", "A", "--json").json()["models"][0]["stats"]["options"] == 9
    axes = ["--threads", "8,16,24,44", "--frequencies", "1.2GHz,1.5GHz,2.2GHz"]
    fit = advisor("fit", "A", *axes, "--json").json()["models"][0]["stats"]
    assert fit["options"] == 16  # 1.7 GHz was run
    again = advisor("fit", "A", "--json").json()["models"][0]["stats"]
    assert (again["options"], again["space"]) == (16, "stored")
    assert advisor("fit", "A", "--threads", "8,x").code == 2
    assert advisor("fit", "A", "--frequencies", "fast").code == 2
    site(advisor, tmp_path)
    wrong = advisor("fit", "A", "--threads", "88")
    assert wrong.code != 0 and "hsw has 44" in wrong.err and wrong.err.count("\n") == 1
    wrong = advisor("fit", "A", "--frequencies", "1.25GHz")
    assert wrong.code != 0 and "is not a step of hsw" in wrong.err


def test_of_an_axis_that_no_run_varies_nothing_is_said() -> None:
    one_cap = [Configuration("hsw", 1, 1, t, 2_200_000) for t in (4, 8, 24, 44)]
    space = search_space(one_cap, HSW)
    assert space.freqs_khz == (2_200_000,)
    assert [t for _, t in space.threads] == list(range(4, 45, 4))
    with pytest.raises(InputError, match="--frequencies"):
        search_space(one_cap, HSW, NamedAxes(freqs_khz=(1_200_000,)))
    mpi = [Configuration("hsw", n, r, r, f) for n in (1, 2) for r in (4, 44) for f in FREQS[::5]]
    space = search_space(mpi, HSW)
    assert (space.nodes, space.threads) == ((1, 2), ((4, 4), (44, 44)))
    assert space.freqs_khz == FREQS
    with pytest.raises(InputError, match="--threads"):
        search_space(mpi, HSW, NamedAxes(threads=(8,)))


def test_ranks_are_those_of_the_runs_and_threads_their_multiples() -> None:
    runs = [Configuration("hsw", 1, 2, t, 0) for t in (8, 20, 32, 44)]
    space = search_space(runs, HSW)
    assert {r for r, _ in space.threads} == {2}
    assert all(t % 2 == 0 and t <= 44 for _, t in space.threads)
    assert space.freqs_khz == (0,)  # none had a cap


def test_where_runs_used_hyper_threads_more_of_them_are_predicted() -> None:
    smt = replace(HSW, threads_per_core=2)
    cores_only = [Configuration("hsw", 1, 1, t, 0) for t in (8, 20, 32, 44)]
    assert max(t for _, t in search_space(cores_only, smt).threads) == 44
    threads = {
        t
        for _, t in search_space(
            [*cores_only, replace(cores_only[0], threads_per_node=88)], smt
        ).threads
    }
    assert {44, 88} < threads and len([t for t in threads if 44 < t < 88]) >= 3


def test_far_from_what_was_run_nothing_is_predicted_and_what_is_outside_is_marked() -> None:
    runs = [observed(Configuration("hsw", 1, 1, t, f)) for t in (2, 4, 8) for f in FREQS[::5]]
    fit = fit_options(runs, node_type=HSW)
    assert max(o.configuration.threads_per_node for o in fit.options) == 16
    outside = {o.configuration.threads_per_node for o in fit.options if o.extrapolated}
    assert outside == {12, 16}
    assert any("extrapolated" in note for note in fit.notes)
    assert not any(o.confirmed for o in fit.options if o.extrapolated)


def test_an_inventory_that_cannot_be_right_adds_no_threads() -> None:
    """A node type without cores has one, by default."""
    runs = [Configuration("hsw", 1, 1, t, 0) for t in (8, 20, 32, 44)]
    assert search_space(runs, NodeType("hsw")).threads == tuple((1, t) for t in (8, 20, 32, 44))


def test_jobs_of_the_past_make_no_options() -> None:
    runs = [observed(c, source="sweep", space=SPACE) for c in uniform(SPACE)]
    job = observed(Configuration("hsw", 2, 1, 44, FREQS[-1]), source="job")
    assert set(wanted([*runs, job], HSW, enough=4).configurations) == set(SPACE)
    alone = [replace(o, source="job", space=None) for o in runs]
    assert set(wanted(alone, HSW, enough=4).configurations) == {o.configuration for o in runs}


def test_a_run_off_the_sweeps_grid_is_an_option_as_well() -> None:
    runs = [observed(c, source="sweep", space=SPACE) for c in uniform(SPACE)]
    off = observed(Configuration("hsw", 1, 1, 22, FREQS[-1]), source="run")
    options = fit_options([*runs, off], node_type=HSW).options
    assert {o.configuration for o in options} == {*SPACE, off.configuration}
