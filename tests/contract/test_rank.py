"""``advisor lab rank`` on files of phases and profiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Advisor = Callable[..., Any]
STREAM = {"size_kb": 1000, "stride_b": 8, "dtype_b": 8, "access": "P"}
PHASES = {
    "application": "app",
    "phases": [
        {"name": "solve", "weight": 0.6, "time_s": 6.0, "iterations": 6e6, "streams": [STREAM]},
        {
            "name": "copy",
            "weight": 0.3,
            "time_s": 3.0,
            "time_per_iter_us": 2.0,
            "streams": [{**STREAM, "size_kb": 5000}],
        },
    ],
}


def profile(node: str, us: float, size: float, name: str = "mbw1p") -> dict[str, object]:
    return {
        "microbenchmark": name,
        "node_type": node,
        "time_per_iter_us": us,
        "streams": [{**STREAM, "size_kb": size}],
    }


PROFILES = [
    profile("here", 1.0, 1000),
    profile("here", 2.0, 5000),
    profile("here", 9.0, 1000, "mbw1x"),
    profile("fast", 0.5, 1000),
    profile("fast", 1.0, 5000),
    profile("odd", 0.1, 1000),
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    phase, profiles = tmp_path / "phase.yaml", tmp_path / "profiles.yaml"
    phase.write_text(yaml.safe_dump(PHASES))
    profiles.write_text(yaml.safe_dump(PROFILES))
    return phase, profiles


def test_the_contract(advisor: Advisor, files: tuple[Path, Path]) -> None:
    phase, profiles = files
    argv = ("rank", "--phase", phase, "--profiles", profiles, "--base", "here")
    data = advisor(*argv, "--json").json()
    assert data["schema"] == "advisor/rank/1"
    assert [p["name"] for p in data["phases"]] == ["solve", "copy"]
    match = data["phases"][0]["match"]
    assert (match["microbenchmark"], match["index"]) == ("mbw1p", 125)
    assert [c["index"] for c in data["phases"][0]["candidates"]] == [125, None, None]
    first, second = data["ranking"]
    assert (first["node_type"], second["node_type"]) == ("fast", "here")
    assert first["phases_s"] == pytest.approx(4.5)
    assert first["time_s"] == pytest.approx(5.0)
    assert second["time_s"] == pytest.approx(10.0)
    assert second["error_pct"] == pytest.approx(0.0)
    assert data["missing"] == ["odd"]
    told = advisor(*argv).out
    for text in ("phase solve: 6 s", "chosen", "it ran here", "not measured", "odd has no profile"):
        assert text in told


def test_nothing_similar_says_what_is_missing(advisor: Advisor, files: tuple[Path, Path]) -> None:
    phase, profiles = files
    profiles.write_text(yaml.safe_dump([profile("here", 50.0, 1000)]))
    done = advisor("rank", "--phase", phase, "--profiles", profiles, "--base", "here")
    assert done.code == 3
    assert "phase solve needs a microbenchmark of 1000 KB, stride 8 B, private" in done.err


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("time_per_iter_us", -1, "profiles.yaml:5: [0].time_per_iter_us: must be above 0"),
        ("microbenchmark", None, "microbenchmark: must be a name"),
        ("streams", [], "streams: must be a list"),
        ("streams", [{"size_kb": 1}], "is missing"),
    ],
)
def test_mistakes_name_line_and_key(
    advisor: Advisor, files: tuple[Path, Path], key: str, value: object, said: str
) -> None:
    phase, profiles = files
    profile = {**PROFILES[0], key: value}
    if value is None:
        profile[key] = 3
    profiles.write_text(yaml.safe_dump([profile]))
    done = advisor("rank", "--phase", phase, "--profiles", profiles, "--base", "here")
    assert done.code == 1
    assert said.split(":")[-1].strip() in done.err and "profiles.yaml:" in done.err


def test_what_it_cannot_do(advisor: Advisor, files: tuple[Path, Path], tmp_path: Path) -> None:
    phase, profiles = files
    assert advisor("rank", "--profiles", profiles).code == 2
    assert advisor("rank", "--phase", phase, "--profiles", profiles).code == 2
    other = advisor("rank", "--phase", phase, "--profiles", profiles, "--base", "mars")
    assert "no profiles of base node mars" in other.err
    bad = tmp_path / "t.yaml"
    bad.write_text("size: [[3, 1], [1, 2]]\n")
    done = advisor(
        "rank", "--phase", phase, "--profiles", profiles, "--base", "here", "--thresholds", bad
    )
    assert "t.yaml: size: must be ascending steps" in done.err
