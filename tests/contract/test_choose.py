"""``advisor choose``: every value is checked before anything is written."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.paths import share
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.examples import example_store

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("example") / "advisor.db"
    example_store(store, "ann")
    with Writer(store) as writer:  # what docs/user.md speaks of
        run = Observation(Configuration("broadwell", 1, 1, 28, 0), 1.0, 1.0)
        writer.add_observations("stencil", "n64", [run])
        writer.apply_config(
            "site",
            path="site.yaml",
            text="s",
            by="test",
            compiled={"applications": [{"name": "by-rule", "match": {"executable": ["x"]}}]},
        )
    return store


@pytest.fixture(autouse=True)
def store(example: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_DB", str(example))
    return example


@pytest.fixture
def file() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "advisor" / "choices.json"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("nosuchapp", "'nosuchapp' is not known (known: by-rule, cg-solver"),
        ("cg-solvr --goal edp", "did you mean cg-solver?"),
        ("cg-solver --workload n=4e7 --goal edp", "did you mean n=4e6"),
        ("--workload n=4e6 --goal edp", "--workload needs an application"),
        ("--goal best", "goal: 'best' is not known (allowed: "),
        ("--goal balancd", "did you mean 'balanced'?"),
        ("--goal ''", "goal: '' is not known"),
        ("--max-slowdown nan%", "'nan%' is not a percentage"),
        ("--max-slowdown inf", "is not a percentage"),
        ("--max-slowdown 5", "write 5%, or 0.05"),
        ("--max-slowdown=-5%", "out of range (allowed: from 0% to 100%)"),
        ("--max-slowdown ''", "is not a percentage"),
        ("--estimated-node-types maybe", "allowed: accept, refuse"),
        ("--freq 1.9", "write 1.9 GHz"),
        ("--freq=-1.9GHz", "is not a frequency"),
        ("cg-solver --freq 1.85GHz", "1.85 GHz is not a frequency step of"),
        ("cg-solver --node-type milan --freq 1.8GHz", "not a frequency step of milan (1.5 GHz"),
        ("cg-solver --threads-per-node -4", "-4 is out of range (allowed: 1 to 28)"),
        ("cg-solver --threads-per-node 0", "0 is out of range"),
        ("cg-solver --threads-per-node 29", "29 is out of range (allowed: 1 to 28)"),
        ("cg-solver --threads-per-node 16.5", "'16.5' is not a whole number"),
        ("cg-solver --threads-per-node 1e1", "'1e1' is not a whole number"),
        ("cg-solver --node-type brodwell", "did you mean broadwell?"),
        ("cg-solver --node-type ''", "node type '' is not known"),
        ("cg-solver --nodes 2", "a pin needs threads, a frequency or a node type"),
        ("cg-solver --nodes 0 --threads-per-node 4", "nodes: 0 is out of range"),
        ("cg-solver --nodes 25 --threads-per-node 4", "nodes: 25 is out of range"),
        ("cg-solver --goal edp --freq fast", "'fast' is not a frequency"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(
    advisor: Run, file: Path, arguments: str, said: str
) -> None:
    for before in (None, '{"version": 1, "goal": "power"}'):
        if before is not None:
            file.parent.mkdir(parents=True)
            file.write_text(before)
        done = advisor("choose", *shlex.split(arguments))
        assert (done.code, done.out) == (2, "")
        assert done.err.count("\n") == 1 and said in done.err, done.err
        assert (file.read_text() if file.exists() else None) == before


def test_names_of_on_and_off_are_checked_too(advisor: Run, file: Path) -> None:
    for verb in ("on", "off"):
        done = advisor(verb, "cg-solvr")
        assert done.code == 2 and "did you mean cg-solver?" in done.err
    assert not file.exists()
    assert advisor("off", "by-rule").code == 0
    assert json.loads(file.read_text())["workloads"] == {"by-rule/*": {"off": True}}


def test_what_is_chosen_can_be_taken_back_whatever_the_store_knows(
    advisor: Run, file: Path
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"workloads": {"gone/*": {"off": True}, "old/w": {"goal": "edp"}}}))
    assert advisor("on", "gone").code == 0
    cleared = advisor("choose", "old", "--workload", "w", "--clear")
    assert cleared.code == 0 and "old/w" not in cleared.out
    assert json.loads(file.read_text())["workloads"] == {}


def test_a_pin_has_the_inventorys_names_and_numbers(advisor: Run, file: Path) -> None:
    done = advisor(
        "choose",
        "cg-solver",
        "--node-type",
        "bdw",
        "--threads-per-node",
        "16",
        "--nodes",
        "2",
        "--freq",
        "1800 MHz",
        "--max-slowdown",
        "2%",
    )
    assert (done.code, done.err) == (0, "")
    pin = {"node_type": "broadwell", "nodes": 2, "threads_per_node": 16, "freq_khz": 1_800_000}
    assert json.loads(file.read_text())["workloads"] == {
        "cg-solver/*": {"max_slowdown": "2%", "pin": pin}
    }


def test_a_node_type_without_a_model_is_said(advisor: Run, store: Path) -> None:
    with Reader(store) as reader:
        modelled = reader.modelled()
    lone = next(a for a, t in modelled if t == "skylake" and (a, "milan") not in modelled)
    done = advisor("choose", lone, "--node-type", "milan")
    assert done.code == 0
    assert f"{lone} has no model on milan: such jobs stay as written" in done.err


def test_without_a_store_nothing_is_chosen_that_only_a_store_can_check(
    advisor: Run, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADVISOR_DB", str(tmp_path / "none.db"))
    assert advisor("choose", "any", "--threads-per-node", "-4").code == 2
    assert not file.exists()
    for words in (
        ("choose", "any", "--goal", "edp"),
        ("choose", "--threads-per-node", "4"),
        ("off", "any"),
        ("on", "any"),
    ):
        done = advisor(*words)
        assert (done.code, done.out) == (1, ""), words
        assert done.err.count("\n") == 1 and "there is no store" in done.err
        assert not file.exists()
    for one in (("choose", "--goal", "edp"), ("off",), ("on",)):
        quiet = advisor(*one)
        assert (quiet.code, quiet.err) == (0, "")


def test_the_examples_of_the_users_page_work_when_pasted(advisor: Run, file: Path) -> None:
    text = share("docs/user.md").read_text(encoding="utf-8")
    section = text.split("## Your choices")[1].split("\n## ")[0]
    pasted = [line.strip() for line in section.splitlines() if line.startswith("    advisor ")]
    assert len(pasted) >= 7
    for line in pasted:
        done = advisor(*shlex.split(line, comments=True)[1:])
        assert (done.code, done.err) == (0, ""), line
    left = json.loads(file.read_text())
    assert left["goal"] == "min_energy" and left["workloads"]["stencil/*"] == {"off": True}
