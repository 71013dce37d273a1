"""``advisor predict``: a size that never ran, from the sizes of its family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.store.writer import Writer

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


def test_a_larger_size(advisor: Advisor, store: Path) -> None:
    data = advisor("predict", "lines", "--at", "n=8M", "--db", store, "--json").json()
    assert data["schema"] == "advisor/predict/1"
    assert data["family"] == "-n {} --seed {}"
    assert data["beyond"] == {"n": 2.0}
    assert data["at"] == {"n": 8e6, "nodes": 1}
    assert any("seed has no effect" in note for note in data["notes"])
    assert data["shared_error_pct"] > 0
    (base,) = [o for o in data["options"]
               if (o["threads_per_node"], o["freq_khz"]) == (16, 2_400_000)]  # fmt: skip
    truth = 800 * (0.01 + 0.99 / 16)
    assert base["time_s"] == pytest.approx(truth, rel=0.1)
    assert base["time_interval"][0] <= truth <= base["time_interval"][1]
    assert base["relative_pct"] == 0
    assert len(data["options"]) == 6


def test_what_cannot_be_predicted_is_one_line(advisor: Advisor, store: Path) -> None:
    def err(*argv: object) -> str:
        result = advisor("predict", *argv, "--db", store)
        assert result.code in (1, 2, 3)
        assert result.err.count("\n") == 1
        return str(result.err)

    few = err("few", "--at", "size=8e6")
    assert "2 values of size were measured, a law needs 3" in few
    assert "few-sizes: measure more than 1e+06, 2e+06" in few
    assert "1 value of nodes was measured" in err("lines", "--at", "n=4e6,nodes=8")
    assert "no family has the parameters m" in err("lines", "--at", "m=4")
    assert "'x' is not a number" in err("lines", "--at", "n=x")
    assert "has a column 'k'" in err("lines", "--at", "n=8e6", "--parameters", "k")
    assert "there is no family 'x'" in err("lines", "--at", "n=8e6", "--family", "x")
    assert "no scaling model is called 'magic'" in err("lines", "--at", "n=8e6", "--model", "magic")
