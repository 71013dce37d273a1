"""Without the laboratory its names answer with one line; with it, it is there by entry points."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from advisor import laboratory
from tests.contract.plain import PlainCalls, plain_advisor

Run = Callable[[str], subprocess.CompletedProcess[str]]
HOW = "part of the laboratory; pip install hpc-advisor[lab]"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run the advisor as it is without the laboratory."""
    place = tmp_path_factory.mktemp("plain")
    plain_advisor(place)
    (place / "runs.csv").write_text(
        "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
        + "".join(f"1,1,{t},2000000,{100 / t + t:.2f},{900 + 50 * t}\n" for t in (1, 2, 4, 8))
    )
    (place / "summary.yml").write_text("")
    (place / "stencil.ini").write_text("[Experiment]\n")
    calls = PlainCalls(place, {**os.environ, "ADVISOR_DB": str(place / "a.db")})
    yield lambda words: calls.run(shlex.split(words))
    calls.close()


def test_the_program_itself_says_it_too(tmp_path: Path) -> None:
    """All else here is asked of forks of one interpreter."""
    done = subprocess.run(
        [plain_advisor(tmp_path), "lab", "pareto"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, f"advisor lab pareto: {HOW}\n")


@pytest.mark.parametrize("more", ["", " --help", " show app", " --json"])
@pytest.mark.parametrize("verb", laboratory.VERBS)
def test_a_verb_of_the_laboratory_says_how_to_get_it(plain: Run, verb: str, more: str) -> None:
    done = plain(f"lab {verb}{more}")
    assert (done.returncode, done.stderr) == (2, f"advisor lab {verb}: {HOW}\n")
    former = plain(verb + more)
    assert (former.returncode, former.stderr, former.stdout) == (2, done.stderr, done.stdout)
    if "--json" not in more:
        assert done.stdout == ""
        return
    answer = json.loads(done.stdout)
    assert answer["error"] == f"lab {verb}: part of the laboratory"
    assert (answer["hint"], answer["exit_code"]) == ("pip install hpc-advisor[lab]", 2)


def test_help_says_which_verbs_are_of_the_laboratory(plain: Run) -> None:
    help_text = plain("lab --help").stdout
    words = [line.split() for line in help_text.splitlines()]
    marked = [line[0] for line in words if line[1:2] == ["[lab]"]]
    assert sorted(marked) == sorted(laboratory.VERBS)
    assert f"[lab]: {HOW}." in " ".join(help_text.split())


@pytest.mark.parametrize("name", laboratory.IMPORTERS)
def test_a_format_of_the_laboratory_says_how_to_get_it(plain: Run, name: str) -> None:
    done = plain(f"import runs.csv --from {name} --application app --node-type n")
    assert (done.returncode, done.stderr) == (2, f"advisor import --from {name}: {HOW}\n")


@pytest.mark.parametrize("name", laboratory.MODELS)
def test_a_model_of_the_laboratory_says_how_to_get_it(plain: Run, name: str) -> None:
    assert plain("import runs.csv --application app --node-type n").returncode == 0
    done = plain(f"fit app --model {name}")
    assert (done.returncode, done.stderr) == (2, f"advisor fit --model {name}: {HOW}\n")
    assert f"{name}:" not in plain("fit --list-models").stdout


def test_what_a_files_name_says_is_the_laboratorys_too(plain: Run) -> None:
    done = plain("import summary.yml --application app --node-type n")
    assert (done.returncode, done.stderr) == (2, f"advisor import of .yml files: {HOW}\n")


def test_a_view_is_refused_before_anything_is_stored(plain: Run) -> None:
    assert plain("import runs.csv --application app --node-type n").returncode == 0
    done = plain("fit app --view qq")
    assert (done.returncode, done.stderr) == (2, f"advisor fit --view: {HOW}\n")
    assert "no model" in plain("options app").stderr
    fitted = plain("fit app")
    assert (fitted.returncode, fitted.stderr) == (0, "")


def test_an_experiment_file_is_the_laboratorys(plain: Run) -> None:
    done = plain("train stencil.ini --dry-run")
    assert (done.returncode, done.stderr) == (2, f"advisor train of experiment files: {HOW}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_the_names(plain: Run, shell: str) -> None:
    done = plain(f"completion {shell}")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(verb in done.stdout for verb in laboratory.VERBS)


@pytest.mark.parametrize("verb", ["demo --json", "train --help", "import --help", "doctor --help"])
def test_all_others_are_as_before(plain: Run, verb: str) -> None:
    done = plain(verb)
    assert (done.returncode, done.stderr) == (0, "")
