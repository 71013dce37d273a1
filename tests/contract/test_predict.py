"""``advisor lab predict``: a size that never ran, from the sizes of its family."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.store.writer import Writer
from tests.profiled import grid_profile, write_runs

Advisor = Callable[..., Any]


def runs_of(n: float, nodes: int = 1, **extra: object) -> list[Observation]:
    """Work n on cores, 1 % serial; half of the cores at the highest cap cost least energy."""
    found = []
    for cores in (4, 8, 16):
        for cap in (1_200_000, 2_400_000):
            time = n * 1e-4 * (0.01 + 0.99 / cores) * 2_400_000 / cap
            place = Configuration("a", nodes, 1, cores, cap)
            energy = time * (60 + cores * 5 * (cap / 2_400_000) ** 2)
            found.append(Observation(place, time, energy, scope="all", extra=extra))
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sizes") / "advisor.db"
    with Writer(path) as writer:
        for i, n in enumerate((1e6, 2e6, 4e6)):
            line = f"-n {n:.0f} --seed {(7, 3, 5)[i]}"
            writer.add_observations("lines", line, runs_of(n))
        for n in (1e6, 2e6):
            writer.add_observations("few", "default", runs_of(n, size=n))
    return path


def test_another_run_with_a_second_parameter_is_not_in_the_way(
    advisor: Advisor, tmp_path: Path
) -> None:
    """What ``train --sizes`` prints as the next command names the sizes of its own line alone."""
    path = tmp_path / "advisor.db"
    with Writer(path) as writer:
        for n in (1e6, 2e6, 4e6):
            writer.add_observations("app", f"-n {n:.0f}", runs_of(n))
        for n, steps in ((1e6, 50), (2e6, 50), (4e6, 50), (4e6, 100), (2e6, 200)):
            writer.add_observations("app", f"-n {n:.0f} -s {steps}", runs_of(n * steps / 50))
    done = advisor("predict", "app", "--at", "n=8000000", "--db", path, "--json")
    assert done.code == 0 and done.json()["family"] == "-n {}", done.err


def test_a_larger_size(advisor: Advisor, store: Path) -> None:
    data = advisor("predict", "lines", "--at", "n=8M", "--db", store, "--json").json()
    assert data["schema"] == "advisor/predict/1"
    assert data["family"] == "-n {} --seed {}"
    assert data["beyond"] == {"n": 2.0}
    assert data["at"] == {"n": 8e6, "nodes": 1}
    assert any("seed has no effect" in note for note in data["notes"])
    assert data["shared_error_pct"] > 0
    (base,) = [
        o for o in data["options"] if (o["threads_per_node"], o["freq_khz"]) == (16, 2_400_000)
    ]
    truth = 800 * (0.01 + 0.99 / 16)
    assert base["time_s"] == pytest.approx(truth, rel=0.1)
    assert base["time_interval"][0] <= truth <= base["time_interval"][1]
    assert base["relative_pct"] == 0
    assert len(data["options"]) == 6


def test_a_run_with_one_more_parameter_takes_no_prediction_away(
    advisor: Advisor, tmp_path: Path
) -> None:
    path = tmp_path / "advisor.db"
    with Writer(path) as writer:
        for n in (1e6, 2e6, 4e6):
            writer.add_observations("lines", f"-n {n:.0f}", runs_of(n))
            writer.add_observations("lines", f"-n {n:.0f} -k 2", [*runs_of(n), *runs_of(n)])
    data = advisor("predict", "lines", "--at", "n=8M", "--db", path, "--json").json()
    assert data["family"] == "-n {}" and data["at"] == {"n": 8e6, "nodes": 1}


def test_what_cannot_be_predicted_is_one_line(advisor: Advisor, store: Path) -> None:
    def err(*argv: object) -> str:
        result = advisor("predict", *argv, "--db", store)
        assert result.code in (1, 2, 3)
        assert result.err.count("\n") == 1
        return str(result.err)

    few = err("few", "--at", "size=8e6")
    assert "2 values of size were measured, a law needs 3" in few
    assert "measure other sizes too, not only 1e+06, 2e+06" in few
    assert "1 value of nodes was measured" in err("lines", "--at", "n=4e6,nodes=8")
    assert "no family has the parameters m" in err("lines", "--at", "m=4")
    assert "'x' is not a number" in err("lines", "--at", "n=x")
    assert "has a column 'k'" in err("lines", "--at", "n=8e6", "--parameters", "k")
    assert "there is no family 'x'" in err("lines", "--at", "n=8e6", "--family", "x")
    assert "no scaling model is called 'magic'" in err("lines", "--at", "n=8e6", "--model", "magic")


GRID = """nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j,n,steps
1,1,8,0,10,1000,1000000,5
1,1,16,0,6,900,1000000,5
1,1,8,0,20,2000,2e6,5
"""


def test_an_import_makes_a_workload_of_each_size(advisor: Advisor, tmp_path: Path) -> None:
    (tmp_path / "grid.csv").write_text(GRID)
    store = tmp_path / "advisor.db"

    def take(*more: str, file: str = "grid.csv") -> Any:
        return advisor(
            "import",
            tmp_path / file,
            "--application",
            "sim",
            "--node-type",
            "bdw",
            "--db",
            store,
            "--json",
            *more,
        )

    data = take("--parameters", "n").json()
    assert data["workloads"] == ["n=1000000", "n=2000000"]
    assert data["imported"] == 3
    with Writer(store) as writer:
        assert [w.observations for w in writer.workloads("sim")] == [2, 1]
    assert take("--parameters", "n").json()["imported"] == 0
    assert take("--parameters", "n,steps", "--workload", "lj").json()["workloads"] == [
        "lj n=1000000 steps=5",
        "lj n=2000000 steps=5",
    ]
    assert "no column 'm'" in take("--parameters", "m").err
    runs = [{"params": {"p": p, "n": 1e3}, "value": v} for p, v in ((2, [3.5, 3.6]), (4, 2))]
    (tmp_path / "one.jsonl").write_text("\n".join(map(json.dumps, runs)))
    data = take(
        "--from", "extrap", "--configuration", "nodes=p,threads_per_node=24", file="one.jsonl"
    ).json()
    assert (data["imported"], data["workloads"]) == (3, ["n=1000"])


def test_what_lacks_memory_is_ruled_out(advisor: Advisor, store: Path, tmp_path: Path) -> None:
    db = tmp_path / "memory.db"
    with Writer(store) as writer:
        writer.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(store, db)
    profiled = []
    for n in (1_000_000, 2_000_000, 4_000_000):  # a kilobyte each
        run = grid_profile((2,), n)
        run |= {"application": "lines", "appScale": {"N": n, "NPC": 2}}
        for thread in run["threads"]:
            thread["memoryFootprint"] = {"total_distinct_addresses_byte_granularity": 500 * n}
        profiled.append(run)
    folder = write_runs(tmp_path / "runs", profiled)
    assert advisor("profile", "import", folder, "--db", db).code == 0
    predict = ("predict", "lines", "--at", "n=8M", "--db", db, "--model", "physics")
    kind = NodeType("a", cores=16, freq_khz=(1_200_000, 2_400_000), memory_mb=6000)
    for memory, code in ((6000, 3), (16_000, 0)):
        with Writer(db) as writer:
            writer.save_node_types([replace(kind, memory_mb=memory)], source="test")
        done = advisor(*predict)
        assert done.code == code, done.err
        if code:
            assert "needs 7.45 GiB of memory by the profiles, a has 5.86 GiB" in done.err
            assert done.err.count("\n") == 1 and not done.out


def test_fit_says_over_which_sizes_a_law_holds(advisor: Advisor, tmp_path: Path) -> None:
    db = tmp_path / "advisor.db"
    with Writer(db) as writer:
        for n in (1e6, 2e6, 4e6):
            every = runs_of(n) if n == 4e6 else runs_of(n)[::3]
            writer.add_observations("lines", f"-n {n:.0f}", every)
    text = advisor("fit", "lines", "--db", db, "--model", "polynomial").out
    assert "-n 1000000 on a, all: its runs serve the law over sizes" in text
    assert "-n {} on a, all: a law over n 1e6 to 4e6; " in text
    assert "measure more" not in text
