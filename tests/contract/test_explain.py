"""``advisor explain`` and the user's own choices (``on``, ``off``, ``choose``)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.store.writer import Writer
from tests.unset import as_measured

Run = Callable[..., Any]
FREQS = (1_200_000, 1_800_000, 2_200_000)


@pytest.fixture
def script(tmp_path: Path, store_path: Path) -> Path:
    node = NodeType(
        "bdw",
        feature="broadwell",
        partitions=("batch",),
        cores=16,
        nodes=("bdw1",),
        freq_khz=FREQS,
        default_freq_khz=2_200_000,
        default_partition="batch",
    )
    options = [
        Option(
            Configuration("bdw", 1, 1, t, f),
            10,
            9.99,
            10.01,
            e,
            e * 0.999,
            e * 1.001,
            True,
            True,
            True,
            True,
        )
        for t, f, e in ((16, FREQS[2], 1000.0), (16, FREQS[1], 900.0), (8, FREQS[0], 800.0))
    ]
    with Writer(store_path) as writer:
        writer.save_node_types([node], source="test")
        base = {"mode": "apply", "goal": "min_energy"}
        writer.apply_config(
            "policy", path="p", text="p", compiled={"base": base, "rules": []}, by="test"
        )
        writer.save_model(
            "stencil",
            "default",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats=as_measured(options),
            options=options,
        )
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH -N 1\n#SBATCH --exclusive\nsrun ./stencil\n")
    return path


def test_json_has_the_contracts_keys(script: Path, advisor: Run) -> None:
    data = advisor("explain", script, "--json").json()
    assert data["schema"] == "advisor/explain/1"
    assert data["application"] == "stencil"
    assert data["workload"] == "default"
    assert data["baseline"]["threads_per_node"] == 16
    assert data["rewrite"] == {"cpu-freq": "1200000-1200000"}
    assert data["environment"] == {"OMP_NUM_THREADS": "8"}
    assert data["chosen"]["threads_per_node"] == 8
    assert data["predicted"]["energy_pct"] == -20.0
    low, high = data["predicted"]["time_pct_interval"]
    assert low < 0 < high
    assert "chosen" in data["reasons"]


def test_people_read_what_why_and_a_diff(script: Path, advisor: Run) -> None:
    result = advisor("explain", script)
    assert result.code == 0
    assert "−20.0 %" in result.out
    assert "+export OMP_NUM_THREADS=8" in result.out
    assert "confirmed by a run" in result.out


def test_options_after_a_dash_dash_count_as_the_command_line(script: Path, advisor: Run) -> None:
    data = advisor("explain", script, "--json", "--", "-c", "16").json()
    assert "user-set" in data["reasons"] and data["request"]["cpus_per_task"] == 16
    data = advisor("explain", script, "--json", "--", "--cpu-bind=cores", "-c", "16").json()
    assert data["rewrite"] == {"cpu-freq": "1200000-1800000"} and data["steps"] == []


def test_threads_that_fill_the_nodes_are_looked_at_where_the_step_starts(
    script: Path, advisor: Run
) -> None:
    data = advisor("explain", script, "--json", "--", "-c", "16").json()
    assert data["rewrite"] == {} and data["environment"] == {} and not data["changed"]
    assert {"user-set", "step-plan"} <= {*data["reasons"]} and "chosen" not in data["reasons"]
    (step,) = data["steps"]
    assert (step["program"], step["arguments"], step["ranks"]) == ("stencil", "", 1)
    assert (step["threads"], step["threads_new"], step["cap_khz"]) == (16, 8, 1_200_000)
    assert step["energy_pct"][0] == -20.0 and step["unset"]
    shown = advisor("explain", script, "--", "-c", "16").out
    assert "8 of 16 threads, at most 1.2 GHz" in shown and "others run as written" in shown


def test_several_programs_are_explained_step_by_step(script: Path, advisor: Run) -> None:
    script.write_text(script.read_text().replace("srun", "srun ./mesh\nsrun"))
    data = advisor("explain", script, "--json").json()
    assert not data["changed"] and [s["program"] for s in data["steps"]] == ["stencil"]
    assert "several-steps" in data["reasons"]
    script.write_text(script.read_text() + "#ADVISOR off\n")
    assert advisor("explain", script, "--json").json()["steps"] == []


def test_nothing_is_written_and_the_holdout_never_applies(
    script: Path, store_path: Path, advisor: Run
) -> None:
    for _ in range(20):
        assert advisor("explain", script, "--json").json()["rewrite"]
    with Writer(store_path) as store:
        assert store.decisions() == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.sh"], 1, "missing.sh"),
        (["job.sh", "--user", "no-such-user"], 2, "no-such-user"),
        (["job.sh", "--", "-N", "many"], 1, "--nodes=many"),
    ],
)
def test_mistakes_are_one_line(
    script: Path,
    advisor: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(script.parent)
    result = advisor("explain", *arguments)
    assert result.code == code
    assert message in result.err
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err


def test_without_a_store_or_a_daemon_it_says_so(tmp_path: Path, advisor: Run) -> None:
    job = tmp_path / "x.sh"
    job.write_text("srun ./a\n")
    result = advisor("explain", job)
    assert result.code == 1
    assert "advisor.db" in result.err and "--socket" in result.err


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe" * 1000, b"srun ./a\n" * 100_000])
def test_any_script_can_be_explained(script: Path, advisor: Run, content: bytes) -> None:
    script.write_bytes(content)
    data = advisor("explain", script, "--json").json()
    assert data["rewrite"] == {}
    assert data["reasons"]


def test_off_and_on_are_the_users_own(script: Path, advisor: Run) -> None:
    assert advisor("off").code == 0
    off = advisor("explain", script, "--json").json()
    assert off["rewrite"] == {} and "opted-out" in off["reasons"]
    assert advisor("on").code == 0
    assert advisor("explain", script, "--json").json()["rewrite"]
    advisor("off", "stencil")
    assert "opted-out" in advisor("explain", script, "--json").json()["reasons"]


def test_a_pinned_point_and_a_goal(script: Path, advisor: Run) -> None:
    advisor("choose", "stencil", "--threads-per-node", "16", "--freq", "1.8GHz")
    data = advisor("explain", script, "--json").json()
    assert data["rewrite"] == {"cpu-freq": "1200000-1800000"}
    assert "pinned" in data["reasons"]
    shown = advisor("choose", "--json").json()
    assert shown["choices"]["workloads"]["stencil/*"]["pin"]["freq_khz"] == 1_800_000
    advisor("choose", "stencil", "--clear")
    assert advisor("choose", "--json").json()["choices"]["workloads"] == {}
    advisor("choose", "--goal", "min_time")
    assert advisor("explain", script, "--json").json()["goal"] == "min_time"


def test_a_broken_choices_file_is_named_and_left_as_it_is(advisor: Run) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "advisor" / "choices.json"
    path.parent.mkdir(parents=True)
    path.write_text("{not json")
    result = advisor("off")
    assert result.code == 1
    assert str(path) in result.err
    assert path.read_text() == "{not json"


@pytest.mark.parametrize(
    "arguments", [["--max-slowdown", "5"], ["--freq", "fast"], ["--workload", "w"]]
)
def test_choices_that_make_no_sense(advisor: Run, arguments: list[str]) -> None:
    result = advisor("choose", *arguments, "--goal", "edp")
    assert result.code == 2
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("script")
def test_the_choices_file_is_plain_json_of_version_1(advisor: Run) -> None:
    advisor("choose", "stencil", "--workload", "default", "--goal", "edp")
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "advisor" / "choices.json"
    assert json.loads(path.read_text()) == {
        "version": 1,
        "workloads": {"stencil/default": {"goal": "edp"}},
    }
    advisor("choose", "--estimated-node-types", "refuse")
    assert json.loads(path.read_text())["estimated_node_types"] == "refuse"


def test_a_program_built_again_since_is_told(
    script: Path, store_path: Path, advisor: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    (script.parent / "stencil").write_text("new")
    old = {"path": f"{script.parent}/stencil", "size": 3, "mtime": 1, "build": "aa" * 20}
    with Writer(store_path) as store:
        for m in list(store.models()):
            store.add_program(m.id, old)
    told = advisor("explain", script, "--json").json()
    assert "program-rebuilt" in told["reasons"] and not told["environment"]
    assert "was built again" in " ".join(told["explanation"])
