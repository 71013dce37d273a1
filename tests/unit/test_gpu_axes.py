"""Further axes, GPU clocks and power limits: as data, in files, stores and models, and shown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.disturbed import disturbed
from advisor.core.inventory import Gpus, NodeType
from advisor.core.observation import Observation
from advisor.core.option import (
    Option,
    as_written,
    further_axes,
    pack_options,
    packed_points,
    row_of,
    unpack_rows,
)
from advisor.core.words import describe, difference_words
from advisor.models.base import matrix
from advisor.models.fit import fit_options
from advisor.models.runs import broken
from advisor.models.space import far_from
from advisor.store.csvfile import Terms, read_csv
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views.options import view_of
from advisor.views.preview import Person
from advisor.views.tradeoff import board_of, detail, load
from advisor.views.whatif import prune

Advisor = Callable[..., Any]
TOP = 1_400_000
CLOCKS = tuple(range(500_000, TOP + 1, 100_000))
LIMITS = tuple(range(100, 301, 25))


def at(clock: int = 0, *, threads: int = 1, freq: int = 0, limit: int = 0) -> Configuration:
    axes = {"gpu_freq_khz": clock, "gpu_power_w": limit}
    extra = tuple((name, value) for name, value in axes.items() if value)
    return Configuration("g", 1, 1, threads, freq, extra)


def option(c: Configuration, time_s: float = 10.0, energy_j: float = 100.0) -> Option:
    ends = (0.99 * time_s, 1.01 * time_s), (0.99 * energy_j, 1.01 * energy_j)
    return Option(c, time_s, *ends[0], energy_j, *ends[1], True, True, True, True)


def clocked(c: Configuration) -> Observation:
    """A program of which 40 % do not follow the GPU's clock; power from a square of it."""
    f = dict(c.extra)["gpu_freq_khz"] / TOP
    time_s = 100 * (0.6 / f + 0.4) * (0.3 + 0.7 * 8 / c.threads_per_node)
    return Observation(c, time_s, time_s * (80 + 220 * f**2), scope="all")


def limited(c: Configuration) -> Observation:
    """A program that takes 220 W of itself and slows down under a limit below that."""
    limit = dict(c.extra)["gpu_power_w"]
    f = min(1.0, math.sqrt((limit - 60) / (220 - 60)))
    time_s = 100 * (0.8 / f + 0.2)
    return Observation(c, time_s, time_s * min(limit, 220), scope="all")


# -- as data ---------------------------------------------------------------------------------------


def test_a_configuration_without_further_axes_is_what_it_was() -> None:
    c = Configuration("n", 1, 2, 8, 2_000_000)
    assert list(c.to_dict()) == [
        "node_type",
        "nodes",
        "ranks_per_node",
        "threads_per_node",
        "threads_per_rank",
        "freq_khz",
    ]
    space = SearchSpace.of("n", [c])
    assert list(space.to_dict()) == ["nodes", "threads", "freqs_khz"]
    assert SearchSpace.from_dict("n", space.to_dict()) == space
    assert matrix([c]).tolist() == [[1, 8, 2_000_000]]
    blob = pack_options([option(c)])
    assert blob[0] == 1 and len(blob) == 101 and as_written(blob) is blob
    assert further_axes(blob) == () and unpack_rows(blob)[0].extra == ()
    assert len(unpack_rows(blob)[0]) == 15


def test_further_axes_stand_under_their_names() -> None:
    c = at(900_000, limit=200)
    data = c.to_dict()
    assert (data["gpu_freq_khz"], data["gpu_power_w"]) == (900_000, 200)
    assert Configuration.from_dict(json.loads(json.dumps(data))) == c
    assert describe(c) == "1 node, 1 thread, GPU clock 0.9 GHz, GPU power limit 200 W"
    assert difference_words(at(TOP, limit=200), c) == "GPU clock 0.9 GHz, GPU power limit 200 W"
    assert difference_words(c, c) == "the same configuration"
    space = SearchSpace.of("g", [at(f, limit=w) for f, w in ((900_000, 200), (TOP, 300))])
    assert len(space) == len(list(space)) == len(set(space)) == 4
    assert SearchSpace.from_dict("g", json.loads(json.dumps(space.to_dict()))) == space
    assert matrix(list(space)).shape == (4, 5)


@pytest.mark.parametrize(
    "extra", [5, [5], [["speed", [1]]], [["gpu_power_w", []]], [["gpu_power_w", ["1"]]]]
)
def test_further_axes_of_a_space_that_make_no_sense(extra: object) -> None:
    data = {"nodes": [1], "threads": [[1, 1]], "freqs_khz": [0], "extra": extra}
    with pytest.raises(ValueError, match="search space"):
        SearchSpace.from_dict("g", data)
    twice = [["gpu_power_w", [100]], ["gpu_power_w", [200]]]
    with pytest.raises(ValueError, match="an axis twice"):
        SearchSpace.from_dict("g", {**data, "extra": twice})


def test_packed_options_keep_further_axes_and_decisions_see_what_jobs_can_get() -> None:
    options = [option(at(f, limit=w), w) for f in (900_000, TOP) for w in (200, 300)]
    blob = pack_options(options)
    rows = unpack_rows(blob)
    assert [r.option("g") for r in rows] == options
    assert [row_of(o) for o in options] == rows
    assert further_axes(blob) == ("gpu_freq_khz", "gpu_power_w")
    (written,) = unpack_rows(as_written(blob))
    assert written == row_of(option(at(), 300)) and packed_points(as_written(blob)) == [
        (1, 1, 1, 0)
    ]
    for torn in (blob[:-1], blob[:40], blob[:1], b"\2\0"):
        with pytest.raises(ValueError, match="damaged"):
            unpack_rows(torn)
    with pytest.raises(ValueError, match="packed in format"):
        packed_points(blob)
    with pytest.raises(ValueError, match="others have not"):
        pack_options([option(at()), option(at(TOP))])


# -- files and store -------------------------------------------------------------------------------

HEAD = "nodes,ranks_per_node,threads_per_node,freq_khz,gpu_freq_khz,gpu_power_w,time_s,energy_j"


def csv(path: Path, *rows: str, head: str = HEAD) -> Path:
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def test_columns_of_further_axes_are_read(tmp_path: Path) -> None:
    head = f"{HEAD},energy_gpu_j,site"
    rows = ("1,1,4,0,1.38 GHz,250,10,900,700,x", "1,1,4,0,900000,,12,800,,y", "1,1,4,0,0,0,9,,0,z")
    read = read_csv(csv(tmp_path / "f.csv", *rows, head=head), Terms("g", "me"))
    first, second, third = read.observations
    assert first.configuration == at(1_380_000, threads=4, limit=250)
    assert second.configuration == at(900_000, threads=4)
    assert third.configuration == at(threads=4)
    assert read.extra_columns == ("energy_gpu_j", "site")
    assert first.extra == {"site": "x", "energy_gpu_j": 700.0}
    assert second.extra == {"site": "y"} and third.extra == {"site": "z"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,1,1,0,1380,200,10,100", "line 2, gpu_freq_khz: '1380' is not a GPU clock in kHz"),
        ("1,1,1,0,fast,200,10,100", "line 2, gpu_freq_khz: 'fast' is not a number"),
        ("1,1,1,0,900000,-5,10,100", "line 2, gpu_power_w: '-5' is not a GPU power limit in W"),
        ("1,1,1,0,900000,200.5,10,100", "line 2, gpu_power_w: '200.5' is not a whole number"),
        ("1,1,1,0,900000,250000,10,100", "it is 1 W to 5000 W"),
    ],
)
def test_mistakes_in_them_are_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(Exception, match="1 mistake") as caught:
        read_csv(csv(tmp_path / "f.csv", row), Terms("g", "me"))
    assert message in str(caught.value)


def test_runs_with_further_axes_are_stored_and_read_back(store_path: Path) -> None:
    runs = [clocked(at(f, threads=8)) for f in CLOCKS[:3]]
    odd = replace(runs[0], configuration=at(threads=8), extra={"gpu_power_w": "much"})
    with Writer(store_path) as writer:
        writer.add_observations("app", "default", [*runs, odd])
    with Reader(store_path) as reader:
        stored = [s.observation for s in reader.observations("app", "default")]
    assert stored == [*runs, odd]


# -- models ----------------------------------------------------------------------------------------


def errors(fitted: Sequence[Option], truth: Callable[[Configuration], Observation]) -> list[float]:
    return [
        error
        for o in fitted
        for known in (truth(o.configuration),)
        for error in (
            abs(o.time_s / known.time_s - 1),
            abs(o.energy_j / (known.energy_j or math.nan) - 1),
        )
    ]


def test_a_gpus_clock_obeys_the_laws_of_a_clock() -> None:
    space = SearchSpace.of("g", [at(f, threads=8) for f in CLOCKS])
    runs = [clocked(at(f, threads=8)) for f in CLOCKS[::2]]
    fit = fit_options(runs, space=space)
    assert max(errors(fit.predicted, clocked)) < 0.03
    assert any("not bound to the GPU clock" in note for note in fit.notes)
    assert any("power follows GPU clock^2" in note for note in fit.notes)


def test_a_power_limit_behaves_as_the_clock_it_leads_to() -> None:
    space = SearchSpace.of("g", [at(limit=w) for w in LIMITS])
    fit = fit_options([limited(at(limit=w)) for w in LIMITS[::2]], space=space)
    assert max(errors(fit.predicted, limited)) < 0.05
    as_clock = [replace(limited(at(limit=w)), configuration=at(1000 * w)) for w in LIMITS[::2]]
    assert (
        max(errors(fit.predicted, limited))
        < max(
            errors(
                [
                    replace(
                        o,
                        configuration=at(limit=dict(o.configuration.extra)["gpu_freq_khz"] // 1000),
                    )
                    for o in fit_options(as_clock).predicted
                ],
                limited,
            )
        )
        + 0.05
    )


def test_clocks_of_processor_and_gpu_vary_together() -> None:
    def both(c: Configuration) -> Observation:
        run = clocked(replace(c, freq_khz=0))
        slower = 1 + 0.2 * (2_000_000 / c.freq_khz - 1)
        return replace(run, configuration=c, time_s=run.time_s * slower)

    freqs = (1_000_000, 1_500_000, 2_000_000)
    cells = [at(f, threads=8, freq=khz) for f in CLOCKS for khz in freqs]
    runs = [both(c) for i, c in enumerate(cells) if i % 2 == 0]
    fit = fit_options(runs, space=SearchSpace.of("g", cells))
    times = [abs(o.time_s / both(o.configuration).time_s - 1) for o in fit.predicted]
    assert len(fit.options) == 30 and np.mean(times) < 0.03
    assert fit.stats["time"]["r2"] > 0.98


@pytest.mark.parametrize("model", ["physical", "bspline", "polynomial", "neural"])
def test_every_model_takes_further_axes(model: str) -> None:
    cells = [at(f, threads=t, limit=w) for f in CLOCKS[::3] for t in (4, 8) for w in (200, 300)]
    fit = fit_options([clocked(c) for c in cells], model=model)
    assert len(fit.options) == len(cells) and all(o.time_s > 0 for o in fit.options)


def test_runs_that_do_not_state_an_axis_ran_at_its_highest() -> None:
    runs = [clocked(at(f, threads=8)) for f in (*CLOCKS[::2], TOP)]
    unsaid = replace(runs[-1], configuration=at(threads=8))
    node = NodeType("g", cores=8, gpus=Gpus("G", 1, freq_khz=CLOCKS))
    fit = fit_options([*runs[:-1], unsaid], node_type=node)
    assert at(TOP, threads=8) in {o.configuration for o in fit.options if o.measured}
    assert any("count as runs at GPU clock 1.4 GHz" in note for note in fit.notes)


def test_the_inventory_names_further_clocks() -> None:
    runs = [clocked(at(f, threads=8)) for f in CLOCKS[::3]]
    node = NodeType("g", cores=8, gpus=Gpus("G", 1, freq_khz=CLOCKS))
    fit = fit_options(runs, node_type=node)
    assert [dict(o.configuration.extra)["gpu_freq_khz"] for o in fit.options] == list(CLOCKS)
    assert fit.stats["space"] == "inventory"
    far = far_from([at(900_000), at(1_000_000)], [at(f) for f in CLOCKS])
    assert far == {at(f) for f in CLOCKS if not 782_000 < f < 1_151_000}


def test_neighbours_are_those_along_each_axis() -> None:
    cells = [at(f, threads=t) for f in CLOCKS for t in (2, 4, 6, 8)]
    times = {c: math.log(clocked(c).time_s) for c in cells}
    spoilt = at(900_000, threads=4)
    assert broken(times) == {} and set(broken({**times, spoilt: times[spoilt] + 0.5})) == {spoilt}
    options = [option(at(f, threads=t)) for t in (2, 4, 6) for f in CLOCKS[:3]]
    assert disturbed(options) == frozenset()
    slow = replace(options[4], time_s=30.0, confirmed=False)
    assert disturbed([*options[:4], slow, *options[5:]]) == {4}


# -- shown, not applied ----------------------------------------------------------------------------

SITE = """\
version: 1
node_types:
  g: {cores: 8, memory_mb: 64 GB, nodes: "g[1-2]", partitions: [batch], feature: g,
      gpus: {count: 1, freq_khz: {min: 500 MHz, max: 1400 MHz, step: 100 MHz}}}
default_partition: batch
applications: [{name: app, match: {executable: app}, threads_unset: all-cores}]
"""


@pytest.fixture
def fitted(tmp_path: Path, store_path: Path, advisor: Advisor) -> Path:
    """A store where fewer threads and lower GPU clocks both save energy."""
    (tmp_path / "site.yaml").write_text(SITE)
    (tmp_path / "policy.yaml").write_text(
        "version: 1\nmode: apply\ngoal: min_energy\naxes: {threads: override}\n"
    )
    for kind in ("site", "policy"):
        done = advisor(kind, "apply", "--config-dir", tmp_path, "--db", store_path)
        assert done.code == 0, done.err
    rows = []
    for threads in (4, 6, 8):
        for clock in CLOCKS[::3]:
            run = clocked(at(clock, threads=8))
            energy = (run.energy_j or 0.0) * (0.7 + 0.3 * threads / 8)
            rows.append(f"1,1,{threads},0,{clock},,{run.time_s:.4f},{energy:.3f}")
    file = csv(tmp_path / "runs.csv", *rows)
    words = ("--application", "app", "--node-type", "g", "--db", store_path)
    assert advisor("import", file, *words).code == 0
    done = advisor("fit", "app", "--db", store_path)
    assert done.code == 0, done.err
    return store_path


def test_options_have_every_axis_under_its_name(fitted: Path, advisor: Advisor) -> None:
    data = advisor("options", "app", "--all", "--json", "--db", fitted).json()
    clocks = {o["gpu_freq_khz"] for o in data["options"]}
    assert clocks == set(CLOCKS) and data["models"][0]["baseline"]["gpu_freq_khz"] == TOP
    text = advisor("options", "app", "--all", "--db", fitted).out
    assert "GPU clock" in text and "0.8 GHz" in text
    assert "options with a lower GPU clock are for jobs that ask for GPUs" in text


def test_what_gpus_took_is_shown_with_the_options_that_ran(
    fitted: Path, tmp_path: Path, advisor: Advisor
) -> None:
    rows = []
    for clock in CLOCKS[::3]:
        run = clocked(at(clock, threads=8))
        joules = run.energy_j or 0.0
        rows.append(f"1,1,8,0,{clock},,{run.time_s:.4f},{joules:.3f},{0.75 * joules:.3f}")
    file = csv(tmp_path / "metered.csv", *rows, head=f"{HEAD},energy_gpu_j")
    words = ("--application", "metered", "--node-type", "g", "--db", fitted)
    assert advisor("import", file, *words).code == 0
    assert advisor("fit", "metered", "--db", fitted).code == 0
    options = advisor("options", "metered", "--all", "--json", "--db", fitted).json()["options"]
    for o in options:
        ran = o["gpu_freq_khz"] in CLOCKS[::3]
        assert (o["energy_gpu_j"] is not None) == ran
        assert not ran or o["energy_gpu_j"] == pytest.approx(0.75 * o["energy_j"], rel=0.05)
    for name, shown_too in (("metered", True), ("app", False)):
        lines = advisor("options", name, "--all", "--db", fitted).out.splitlines()
        [head] = [line for line in lines if "known by" in line]
        assert ("GPUs" in head.split()) == shown_too
    other = advisor("options", "app", "--all", "--json", "--db", fitted).json()["options"]
    assert {o["energy_gpu_j"] for o in other} == {None}
    with Reader(fitted) as reader:
        (model,) = reader.find_models("metered", None, None)
        shown = load(reader, "metered", "default", Person("ada")).by_type["g"]
    highest = shown.find(at(threads=8))
    assert highest is not None and "of which GPUs took" in detail(shown, highest)[1]
    board = board_of(view_of(model), "g", None, None)
    for clock in (CLOCKS[3], CLOCKS[4]):
        number = board.find(at(clock, threads=8))
        assert number is not None
        where, figures, _ = detail(board, number)
        assert f"GPU clock {clock / 1e6:.1f} GHz" in where
        assert ("of which GPUs took" in figures) == (clock == CLOCKS[3])


def test_a_decision_keeps_the_axis_that_nothing_writes(
    fitted: Path, tmp_path: Path, advisor: Advisor
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH -N 1 -n 1\n#SBATCH --exclusive\nsrun ./app\n")
    words = ("--scheduler", "slurm", "--db", fitted, "--json")
    data = advisor("explain", script, *words).json()
    assert data["baseline"]["threads_per_node"] == 8
    assert data["chosen"], data["explanation"]
    assert data["chosen"]["threads_per_node"] == 4
    assert "gpu_freq_khz" not in data["chosen"] and "gpu-freq" not in data["rewrite"]
    assert data["predicted"]["energy_pct"] == pytest.approx(-15, abs=2), "at the GPU's own clock"
    assert "axis-bound" in data["reasons"]
    assert "GPU clock is kept: the job asks for no GPUs" in data["explanation"]


def test_a_job_that_sets_the_axis_itself_stays_as_it_is(
    fitted: Path, tmp_path: Path, advisor: Advisor
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH -N 1 -n 1\n#SBATCH --exclusive --gpu-freq=900\nsrun ./app\n"
    )
    words = ("--scheduler", "slurm", "--db", fitted, "--json")
    data = advisor("explain", script, *words).json()
    assert data["chosen"] is None and data["rewrite"] == {}
    assert "baseline-outside-model" in data["reasons"], data["explanation"]
    assert any("GPU clock by --gpu-freq" in sentence for sentence in data["explanation"])


def test_a_model_below_the_clock_that_jobs_get_changes_none(
    fitted: Path, tmp_path: Path, advisor: Advisor
) -> None:
    site = (tmp_path / "site.yaml").read_text().replace("1400 MHz", "1500 MHz")
    (tmp_path / "site.yaml").write_text(site)
    assert advisor("site", "apply", "--config-dir", tmp_path, "--db", fitted).code == 0
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH -N 1 -n 1\n#SBATCH --exclusive\nsrun ./app\n")
    words = ("--scheduler", "slurm", "--db", fitted, "--json")
    data = advisor("explain", script, *words).json()
    assert data["chosen"] is None and "baseline-outside-model" in data["reasons"]
    assert any("GPU clock 1.5 GHz" in sentence for sentence in data["explanation"])


def test_what_ifs_and_views_of_jobs_know_the_highest_clock_only(fitted: Path) -> None:
    with Reader(fitted) as reader:
        (model,) = reader.find_models("app", None, None)
    pruned, base = prune(model, at(threads=8))
    assert pruned is not None and base == at(threads=8)
    assert all(row.extra == () for row in pruned.rows())
    written = view_of(model, at(threads=8), further=False)
    assert {o.configuration.extra for o in written.options} == {()}
    whole = view_of(model, at(threads=8))
    assert dict(whole.baseline.configuration.extra) == {"gpu_freq_khz": TOP}
    lower = whole.beside(at(800_000, threads=8)).baseline
    assert lower.configuration == at(800_000, threads=8)
