"""HPCProbe's two files: an experiment becomes a job script and axes, a summary becomes runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.errors import InputError
from advisor.store.csvfile import Terms
from advisor.store.hpcprobe import Objectives, read_summary
from advisor.training.experiment import read_experiment

STENCIL = """\
# MPI and OpenMP on a grid
[Experiment]
batch = True
cpuFrequency = 1200000,2200000,100000
env = PAT_RT_PERFCTR="PM_ENERGY:NODE,PM_POWER:NODE",A=b c
execParam = 200000,200000,200000
expExec = $HOME/bin/stencil \\${OMP_NUM_THREADS} 5 $p of $th
expName = exp.stencil
modules = load perftools,list
nodePEs = 2
nodePlacement = S
nodes = 20
omp = True
postExec = mv "%(dataPath)s" "%(jobResults)s"
ppn = 44
threadCount = 80,880,80
threadPlacement = C
walltime = 08:00:00
account = climate
queue = long
"""
TERMS = Terms("xc", "ada", "climate", "all")


def written(tmp_path: Path, text: str, name: str = "e.ini") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_an_experiment_is_a_job_script_and_its_axes(tmp_path: Path) -> None:
    found = read_experiment(written(tmp_path, STENCIL), "slurm")
    assert (found.name, found.nodes, found.repeats) == ("exp.stencil", 20, 1)
    assert found.threads == tuple(range(4, 45, 4))
    assert found.freqs_khz == tuple(range(1_200_000, 2_200_001, 100_000))
    lines = found.script.splitlines()
    for line in ("#SBATCH --nodes=20", "#SBATCH --ntasks-per-node=2", "#SBATCH --cpus-per-task=22",
                 "#SBATCH --time=08:00:00", "#SBATCH --account=climate", "module load perftools",
                 "module list", "export PAT_RT_PERFCTR=PM_ENERGY:NODE,PM_POWER:NODE"):  # fmt: skip
        assert line in lines
    assert lines[-1] == (
        "srun $HOME/bin/stencil ${OMP_NUM_THREADS} 5 200000 of $((${OMP_NUM_THREADS:-22} * 40))"
    )
    assert (
        subprocess.run(["bash", "-n"], input=found.script, text=True, check=False).returncode == 0
    )
    assert [n.split()[0] for n in found.notes] == ["postExec", "threadPlacement"]


def test_an_experiment_on_pbs_is_written_for_pbs(tmp_path: Path) -> None:
    lines = read_experiment(written(tmp_path, STENCIL), "pbs").script.splitlines()
    for line in ("#PBS -N exp.stencil", "#PBS -l select=20:ncpus=44:mpiprocs=2:ompthreads=22",
                 "#PBS -l place=scatter:excl", "#PBS -l walltime=08:00:00", "#PBS -A climate",
                 "#PBS -q long"):  # fmt: skip
        assert line in lines
    assert lines[-1].startswith("mpiexec -n 40 $HOME/bin/stencil ")


def test_every_mistake_of_an_experiment_is_told_at_once(tmp_path: Path) -> None:
    text = (
        "[Experiment]\nexpexec = x\nthreadCount = 7,1,2\nnodes = two\nbatch = yes\n"
        "execParam = 1,3,1\nenv = =3\nwalltime = soon\n"
    )
    with pytest.raises(InputError) as told:
        read_experiment(written(tmp_path, text), "slurm")
    said = str(told.value)
    assert "mistakes, nothing is run" in said
    for place in ("line 2, expexec: is no option of an experiment; is it expExec?",
                  "expExec is missing", "line 3, threadCount", "line 4, nodes: 'two'",
                  "line 5, batch", "line 6, execParam: 3 values are 3 workloads",
                  "line 7, env", "line 8, walltime"):  # fmt: skip
        assert place in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("threadCount = 3\n", "line 1: no section yet"),
        ("[Other]\na = 1\n", "no section [Experiment]"),
        ("[Experiment]\nnodes = 1\nnodes = 2\n", "line 3: nodes is given twice"),
        ("[Experiment]\nexpExec = a $fq\n", "does not know its frequency cap"),
        ("[Experiment]\nexpExec = a $p\n", "there is no execParam"),
        ("[Experiment]\nexpExec = a\nnodes = 3\nthreadCount = 4\n", "do not spread evenly"),
        ("[Experiment]\nexpExec = a\nppn = 4\nthreadCount = 8\n", "but ppn is 4"),
    ],
)
def test_what_an_experiment_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        read_experiment(written(tmp_path, text), "slurm")
    assert said in str(told.value)


def test_base2_counts_nodes(tmp_path: Path) -> None:
    text = "[Experiment]\nexpExec = a\nppn = 4\nnodes = 8\nbase2 = True\nthreadCount = 3\n"
    assert read_experiment(written(tmp_path, text), "slurm").threads == (4,)


KEYS = st.sampled_from(["threadCount", "nodes", "ppn", "env", "expExec", "nodePEs", "odd", "omp"])


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(KEYS, st.text(max_size=20)), max_size=8), st.text(max_size=20))
def test_no_experiment_ends_in_a_traceback(
    tmp_path: Path, pairs: list[tuple[str, str]], tail: str
) -> None:
    text = "[Experiment]\nexpExec = a\n" + "".join(f"{k} = {v}\n" for k, v in pairs) + tail
    path = tmp_path / "e.ini"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read_experiment(path, "slurm")
    except InputError as error:
        assert "e.ini" in str(error)


def summary(*runs: tuple[dict[str, object], dict[str, object]]) -> str:
    return yaml.safe_dump([{"parameters": p, "objectives": o} for p, o in runs])


def run(
    threads: int, freq: int, time: float, energy: float, **more: object
) -> tuple[dict[str, object], dict[str, object]]:
    parameters = {"threadCount": threads, "cpuFrequency": freq, "nodes": 2, "nodePEs": 2, **more}
    return parameters, {"totalTime": time, "totalEnergy": energy, "appRate": 7.0}


def test_a_summary_is_runs(tmp_path: Path) -> None:
    text = summary(run(80, 1_900_000, 12.5, 5000.0, execParam=5), run(88, 2_200_000, 11.0, 5600.0,
                   execParam=5))  # fmt: skip
    found = read_summary(written(tmp_path, text, "s.yml"), TERMS, Objectives(), {})
    first = found.observations[0]
    assert first.configuration == Configuration("xc", 2, 2, 40, 1_900_000)
    assert (first.time_s, first.energy_j, first.fom) == (12.5, 5000.0, 7.0)
    assert first.extra == {"execParam": 5}
    assert (first.contributor, first.scope, first.source) == ("ada", "all", "import")


def test_other_names_are_told_and_taken(tmp_path: Path) -> None:
    path = written(
        tmp_path, "- parameters: {nd: 1, tn: 4, fq: 1.2e6}\n  objectives: {wall: 3, joule: 9}\n",
        "s.yml",
    )  # fmt: skip
    with pytest.raises(InputError, match="wall, joule"):
        read_summary(path, TERMS, Objectives(), {})
    found = read_summary(path, TERMS, Objectives("objectives.wall", "joule"), {})
    assert found.observations[0].configuration == Configuration("xc", 1, 1, 4, 1_200_000)
    assert found.observations[0].energy_j == 9


def test_workloads_are_not_mixed(tmp_path: Path) -> None:
    path = written(
        tmp_path, summary(run(4, 0, 1, 1, execParam=1), run(4, 0, 2, 2, execParam=2)), "s.yml"
    )
    with pytest.raises(InputError, match="several workloads"):
        read_summary(path, TERMS, Objectives(), {})
    only = read_summary(path, TERMS, Objectives(), {"execParam": "2"})
    assert [o.time_s for o in only.observations] == [2]


def test_every_mistake_of_a_summary_is_told(tmp_path: Path) -> None:
    text = (
        "- parameters: {nodes: 2, threadCount: 5}\n  objectives: {totalTime: 1}\n"
        "- parameters:\n    nodes: 0\n    threadCount: 4\n    cpuFrequency: 2200\n"
        "  objectives:\n    totalTime: -1\n"
    )
    with pytest.raises(InputError) as told:
        read_summary(written(tmp_path, text, "s.yml"), TERMS, Objectives(), {})
    for place in ("line 1, threadCount", "line 4, nodes", "line 6, cpuFrequency",
                  "line 8, totalTime"):  # fmt: skip
        assert place in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a: 1\n", "a results summary is a list"),
        ("- 3\n", "a run must be keys and values"),
        ("- parameters: {}\n", "has no objectives"),
        ("- [\n", "not YAML"),
    ],
)
def test_what_a_summary_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        read_summary(written(tmp_path, text, "s.yml"), TERMS, Objectives(), {})
    assert said in str(told.value)


PLAIN = st.one_of(st.integers(-5, 50), st.floats(), st.text(max_size=5), st.none(), st.booleans())
PARTS = st.dictionaries(
    st.sampled_from(["nodes", "threadCount", "nodePEs", "cpuFrequency", "totalTime", "x"]), PLAIN
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.fixed_dictionaries({"parameters": PARTS, "objectives": PARTS}), max_size=4))
def test_no_summary_ends_in_a_traceback(tmp_path: Path, runs: list[dict[str, object]]) -> None:
    path = written(tmp_path, yaml.safe_dump(runs), "s.yml")
    try:
        found = read_summary(path, TERMS, Objectives(), {})
    except InputError as error:
        assert "s.yml" in str(error)
    else:
        assert len(found.observations) == len(runs)
