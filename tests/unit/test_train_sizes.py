"""``advisor train --sizes``: where a script writes a size, and what is run at each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.recognise import ApplicationRule
from advisor.errors import InputError, UsageError
from advisor.store.reader import Reader
from advisor.training.progress import read, spent_in_series
from advisor.training.sizes import AskedSizes, SizedText, sized_texts
from advisor.training.state import newest_of, series_of
from advisor.training.training_job import TrainingSite, recognised_by_site

RULE = ApplicationRule.from_dict(
    {
        "name": "lj",
        "executable": ["lmp"],
        "arguments": [r"-v x (?P<size>\S+)"],
        "parameters": {"n": "{size}"},
        "ignore": ["seed"],
    }
)


def at(asked: str, text: str | None, *words: str) -> list[SizedText]:
    site = TrainingSite(rules=(RULE,))

    def workload(one: SizedText) -> str:
        return recognised_by_site("local", site, None, one.text, one.words).workload

    return sized_texts(SizedText(text, words), AskedSizes.read(asked), workload)


@pytest.mark.parametrize(
    ("asked", "text", "last"),
    [
        ("n=1e6,2e6,4e6", "srun -n 4 ./app -n 1000000 -s 4\n", "srun -n 4 ./app -n 4000000 -s 4\n"),
        ("n=1e6,2e6,4e6", "srun ./app --n=1e6\n", "srun ./app --n=4e6\n"),
        ("n=1e6,2e6,4e6", "srun ./app --n=1e6 # 1e6\n", "srun ./app --n=4e6 # 1e6\n"),
        ("n=1M,2M,4M", "N=1M # cells\nsrun ./app n=$N\n", "N=4M # cells\nsrun ./app n=$N\n"),
        ("in=1K,2K,4K", "srun ./app in_2K.txt\n", "srun ./app in_4K.txt\n"),
        ("arg1.2=8,16,32", "srun ./app 8x8x8\n", "srun ./app 8x32x8\n"),
        (
            "n=2,4,8",
            "#SBATCH -N 2\nsrun -n 2 ./app -n 2 -k 2\n",
            "#SBATCH -N 2\nsrun -n 2 ./app -n 8 -k 2\n",
        ),
        ("n=1,2,3", "#ADVISOR size.n=2\nsrun ./app -k 2\n", "#ADVISOR size.n=3\nsrun ./app -k 3\n"),
        ("n=1e3,2e3,4e3", "srun lmp -v x 1000 -seed 1000\n", "srun lmp -v x 4000 -seed 1000\n"),
        ("n=0.5,1,1.5", "srun ./app -n 1\n", "srun ./app -n 1.5\n"),
    ],
)
def test_a_size_is_changed_where_the_script_writes_it(asked: str, text: str, last: str) -> None:
    found = at(asked, f"#!/bin/bash\n{text}")
    assert len(found) == 3
    assert found[-1].text == f"#!/bin/bash\n{last}"


def test_a_size_is_changed_in_arguments_and_commands() -> None:
    assert at("n=1,2,4", "srun ./app -n $1\n", "2")[-1] == SizedText("srun ./app -n $1\n", ("4",))
    assert at("n=1,2,4", None, "./app", "-n", "2")[0].words == ("./app", "-n", "1")


@pytest.mark.parametrize(
    ("asked", "text", "why"),
    [
        ("m=1,2,4", "srun ./app -n 4\n", "m is not a parameter of this job"),
        ("n=1,2,4", "#ADVISOR size.n=4\nsrun ./app deck.in\n", "nowhere in this job"),
        ("n=1,2,4", "N=4\nsrun ./app -n $N -k $N\n", "nowhere in this job"),
    ],
)
def test_what_cannot_be_changed_alone_is_one_line(asked: str, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        at(asked, text)


@pytest.mark.parametrize("asked", ["n", "n=1,2", "n=1,2,2", "n=1,2,x", "=1,2,3", "n=1,2,-3"])
def test_bad_sizes(asked: str) -> None:
    with pytest.raises(UsageError, match="--sizes"):
        AskedSizes.read(asked)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    kernel = work / "kernel"
    slow = '[ "$OMP_NUM_THREADS" = 1 ] && sleep 0.2\n'
    kernel.write_text(f'#!/bin/sh\necho "$2" >> ran\n{slow}sleep 0.$2\n')
    kernel.chmod(0o755)
    path = work / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH -t 5\nN=2\n./kernel -n $N\n")
    return path


def test_every_size_is_run_and_the_largest_gets_the_model(
    advisor: Callable[..., Any], script: Path, store_path: Path
) -> None:
    argv = (
        "train",
        script,
        "--scheduler",
        "local",
        "--sizes",
        "n=1,2,4",
        "--threads",
        "1",
        "--meter",
        "estimate",
        "--json",
    )
    plan = advisor(*argv, "--estimate", "10s", "--dry-run")
    assert plan.code == 0, plan.err
    sweeps = plan.json()["sweeps"]
    assert [len(s["runs"]) for s in sweeps] == [2, 2, 6]
    assert [s["confirm"] for s in sweeps] == [0, 0, 1]
    assert "in all 3 sizes" in plan.err and not (script.parent / "ran").exists()
    refused = advisor(*argv, "--estimate", "90h", "--yes")
    assert refused.code == 3 and "budget_node_hours" in refused.err
    done = advisor(*argv, "--yes")
    assert done.code == 0, done.err
    sweeps = done.json()["sweeps"]
    assert [s["workload"] for s in sweeps] == ["-n 1", "-n 2", "-n 4"]
    assert [s["model_id"] is None for s in sweeps] == [True, True, False]
    assert sorted((script.parent / "ran").read_text().split())[:4] == ["1", "1", "2", "2"]
    with Reader(store_path) as reader:
        (model,) = reader.size_models("kernel")
    assert model.about_sizes["measured"] == {"n": [1, 2, 4]}
    few = advisor("fit", "kernel", "--db", store_path)
    assert "configurations measured, a model needs 4 (its runs serve the law" in few.err


def test_what_is_left_of_a_series_is_resumed(
    advisor: Callable[..., Any], script: Path, tmp_path: Path
) -> None:
    argv = (
        "train",
        script,
        "--scheduler",
        "local",
        "--sizes",
        "n=1,2,4",
        "--threads",
        "1",
        "--meter",
        "none",
        "--yes",
    )
    kernel = script.parent / "kernel"
    text = kernel.read_text()
    kernel.write_text(text.replace("sleep 0.$2", "[ $2 = 1 ] || exit 1; sleep 0.$2"))
    failed = advisor(*argv)
    assert failed.code and "the job as written does not run" in failed.err
    kernel.write_text(text)
    root = tmp_path / "state" / "advisor" / "sweeps"
    states = {s.state: s for s in newest_of(root)}
    assert set(states) == {"fitted", "failed", "requested"}
    left = series_of(root, states["failed"])
    assert len(left) == 2
    assert spent_in_series(root, left) == read(states["fitted"].folder).spent.node_hours > 0
    done = advisor("train", "--resume", "--json")
    assert done.code == 0, done.err
    assert done.json()["workload"] == "-n 4"
