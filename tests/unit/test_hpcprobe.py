"""HPCProbe's two files: an experiment becomes a job script and axes, a summary becomes runs."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.placement import in_order
from advisor.errors import InputError
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob
from advisor.store.csvfile import Terms
from advisor.training.experiment import Experiment
from advisor_lab.hpcprobe.experiment import read_experiments
from advisor_lab.hpcprobe.extraction import read_rules
from advisor_lab.hpcprobe.postprocess import PostProcessing, PostProcessor
from advisor_lab.hpcprobe.summary import SummaryRun, write_summary
from advisor_lab.importers.hpcprobe import Objectives, read_summary

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


def one(path: Path, scheduler: str) -> Experiment:
    (experiment,) = read_experiments(path, scheduler)
    return experiment


TERMS = Terms("xc", "ada", "climate", "all")


def written(tmp_path: Path, text: str, name: str = "e.ini") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_an_experiment_is_a_job_script_and_its_axes(tmp_path: Path) -> None:
    found = one(written(tmp_path, STENCIL), "slurm")
    assert (found.name, found.nodes, found.repeats) == ("exp.stencil", 20, 1)
    assert found.threads == tuple(range(4, 45, 4))
    assert found.freqs_khz == tuple(range(1_200_000, 2_200_001, 100_000))
    lines = found.script.splitlines()
    for line in (
        "#SBATCH --nodes=20",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --cpus-per-task=22",
        "#SBATCH --time=08:00:00",
        "#SBATCH --account=climate",
        "module load perftools",
        "module list",
        "export PAT_RT_PERFCTR=PM_ENERGY:NODE,PM_POWER:NODE",
    ):
        assert line in lines
    assert lines[-1] == (
        "srun $HOME/bin/stencil ${OMP_NUM_THREADS:-22} 5 200000 of $((${OMP_NUM_THREADS:-22} * 40))"
    )
    assert (
        subprocess.run(["bash", "-n"], input=found.script, text=True, check=False).returncode == 0
    )
    assert "export OMP_PROC_BIND=close" in lines
    assert "#ADVISOR workload=200000-compact" in lines
    assert [n.split()[0] for n in found.notes] == ["threadPlacement", "its"]
    assert found.after["post_exec"].startswith("mv ") and found.after["parameters"]["nodePEs"] == 2


def test_an_experiment_on_pbs_is_written_for_pbs(tmp_path: Path) -> None:
    lines = one(written(tmp_path, STENCIL), "pbs").script.splitlines()
    for line in (
        "#PBS -N exp.stencil",
        "#PBS -l select=20:ncpus=44:mpiprocs=2:ompthreads=22",
        "#PBS -l place=scatter:excl",
        "#PBS -l walltime=08:00:00",
        "#PBS -A climate",
        "#PBS -q long",
    ):
        assert line in lines
    assert lines[-1].startswith("mpiexec -n 40 $HOME/bin/stencil ")


def test_every_mistake_of_an_experiment_is_told_at_once(tmp_path: Path) -> None:
    text = (
        "[Experiment]\nexpexec = x\nthreadCount = 7,1,2\nnodes = two\nbatch = yes\n"
        "execParam = 1,3,1\nenv = =3\nwalltime = soon\n"
    )
    with pytest.raises(InputError) as told:
        one(written(tmp_path, text), "slurm")
    said = str(told.value)
    assert "mistakes, nothing is run" in said
    for place in (
        "line 2, expexec: is not an option of an experiment; is it expExec?",
        "expExec is missing",
        "line 3, threadCount",
        "line 4, nodes: 'two'",
        "line 5, batch",
        "line 7, env",
        "line 8, walltime",
    ):
        assert place in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("threadCount = 3\n", "line 1: no section yet"),
        ("[Other]\na = 1\n", "no section [Experiment]"),
        ("[Experiment]\nnodes = 1\nnodes = 2\n", "line 3: nodes is given twice"),
        ("[Experiment]\nexpExec = a\nthreds = 4\n", "line 3, threds: is not an option"),
        ("[Experiment]\nexpExec = a\ngpuCap = 4\n", "known: accCopyLi, accWaitLi, account"),
        ("[Experiment]\nexpExec = a\nthreadPlacement = X\n", "known: C, S, R"),
        ("[Experiment]\nexpExec = a\nnodePlacement = R\n", "known: C, S"),
        ("[Experiment]\nexpExec = a\nruntime = lam\n", "known: cray_mpi, intel_mpi, open_mpi"),
        ("[Experiment]\nexpExec = a\ncpuBinding = fast\n", "cpu, depth, numa_node, none"),
        ("[Experiment]\nexpExec = a\ncpuBinding = none\n", "sets no frequency cap"),
        ("[Experiment]\nexpExec = a\nlimits = mem=4gb,gold=1\n", "line 3, limits: 'gold'"),
        (
            "[Experiment]\nexpExec = a\nenv = PAT_RT_PERFCTR=PAPI_TOT_INZ\n",
            "line 3, env: there is no counter PAPI_TOT_INZ; known are PAPI's presets",
        ),
        ("[Experiment]\nexpExec = a\npostExec = x %(path)s\n", "line 3, postExec: %(path)s"),
        ("[Experiment]\nexpExec = a\nnodePlacement = C\nthreadCount = 4\n", "needs ppn"),
        ("[Experiment]\nexpExec = a $p\n", "there is no execParam"),
        ("[Experiment]\nexpExec = a\nnodes = 3\nthreadCount = 4\n", "do not spread evenly"),
        ("[Experiment]\nexpExec = a\nppn = 4\nthreadCount = 8\n", "but ppn is 4"),
        (
            "[Experiment]\nexpExec = a\ncpuBinding = 0-7\nthreadCount = 4,8,4\n",
            "line 4, threadCount: threads are not varied where cpuBinding lists cores",
        ),
    ],
)
def test_what_an_experiment_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        one(written(tmp_path, text), "slurm")
    assert said in str(told.value)


def test_base2_counts_nodes(tmp_path: Path) -> None:
    text = "[Experiment]\nexpExec = a\nppn = 4\nnodes = 8\nbase2 = True\nthreadCount = 3\n"
    assert one(written(tmp_path, text), "slurm").threads == (4,)


def test_a_list_of_cores_fixes_the_threads(tmp_path: Path) -> None:
    """Fewer threads than ppn beside a list of cores: the job has ppn, the list says how many run.

    A sweep of them was refused by the name of --threads, which nobody gave.
    """
    text = "[Experiment]\nexpExec = a\nppn = 28\nnodePEs = 2\nthreadCount = 14\n"
    assert one(written(tmp_path, text), "slurm").threads == (14,)
    listed = one(written(tmp_path, f"{text}cpuBinding = 0-6:7-13\n"), "slurm")
    assert listed.threads == ()
    assert "export SLURM_CPU_BIND=mask_cpu:0x7f,0x3f80" in listed.script


def test_each_parameter_and_number_of_nodes_is_a_sweep(tmp_path: Path) -> None:
    text = (
        "[Experiment]\nexpExec = a $p $fq\nppn = 4\nnodes = 4\nbase2 = True\nthreadCount = 0,2,1\n"
        "execParam = 10,30,20\ncpuFrequency = 1200000,1900000,700000\nretries = 2\n"
        "limits = mem=8gb,walltime=1:00:00\ncpuBinding = 0-1:2-3\nsocketRings = 2\n"
        'env = PAT_RT_PERFCTR="PM_ENERGY:NODE,PAPI_TOT_INS"\n'
    )
    found = read_experiments(written(tmp_path, text), "slurm")
    assert [(f.after["parameters"]["execParam"], f.nodes, f.threads) for f in found] == [
        (p, n, ()) for p in (10, 30) for n in (1, 2, 4)
    ]
    lines = found[-1].script.splitlines()
    for line in (
        "#ADVISOR workload=30",
        "export SLURM_CPU_BIND=mask_cpu:0x3,0xc",
        "#SBATCH --mem=2097152K",
        "#SBATCH --time=1:00:00",
        "srun a 30 ${ADV_SWEEP_CAP_KHZ:-1900000}",
    ):
        assert line in lines
    assert {(f.attempts, f.events) for f in found} == {(3, ("PAPI_TOT_INS",))}
    on_pbs = read_experiments(written(tmp_path, text.replace("0-1:2-3", "numa_node")), "pbs")
    # one node, four nodes: PBS refuses memory beside select, each chunk gets its part
    assert "#PBS -l select=1:ncpus=4:mpiprocs=1:ompthreads=4:mem=8gb\n" in on_pbs[0].script
    assert "#PBS -l select=4:ncpus=4:mpiprocs=1:ompthreads=4:mem=2097152kb\n" in on_pbs[2].script
    assert "#PBS -l walltime=1:00:00\n" in on_pbs[0].script
    assert "export I_MPI_PIN_DOMAIN=numa" in on_pbs[0].script


def test_arguments_are_part_of_the_name_beside_a_placement(tmp_path: Path) -> None:
    def named(command: str) -> str:
        text = f"[Experiment]\nexpExec = {command}\nthreadPlacement = S\n"
        lines = one(written(tmp_path, text), "slurm").script.splitlines()
        return next(line for line in lines if line.startswith("#ADVISOR"))

    assert named("a --size 2e6 in.dat") == "#ADVISOR workload=--size_2e6_in.dat-scatter"
    assert named("a --size 4e6 in.dat") == "#ADVISOR workload=--size_4e6_in.dat-scatter"
    assert named("a") == "#ADVISOR workload=scatter"


def test_compact_nodes_are_the_fewest_that_hold_the_threads_evenly(tmp_path: Path) -> None:
    text = "[Experiment]\nexpExec = a\nppn = 44\nnodePEs = 2\nnodePlacement = C\nthreadCount = {}\n"
    found = read_experiments(written(tmp_path, text.format("44,132,44")), "slurm")
    assert [(f.nodes, f.threads) for f in found] == [(1, (44,)), (2, (44,)), (3, (44,))]
    found = read_experiments(written(tmp_path, text.format("80")), "slurm")
    assert [(f.nodes, f.threads) for f in found] == [(2, (40,))]


def test_cores_are_taken_as_the_placement_says() -> None:
    node = [(cpu, cpu // 4) for cpu in range(8)]  # two sockets of four cores, two rings each
    assert in_order(node, "C") == [0, 1, 2, 3, 4, 5, 6, 7]
    assert in_order(node, "S") == [0, 4, 1, 5, 2, 6, 3, 7]
    assert in_order(node, "R", rings=2) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert in_order([(cpu, 0) for cpu in range(8)], "S", sockets=2) == [0, 4, 1, 5, 2, 6, 3, 7]


RULES = """\
run:
  program:
    counters:
      - {name: appRate, regex: 'rate:\\s*([\\d.]+)', findall: true}
      - {name: secret, regex: 'secret (\\w+)', hide: true}
post:
  report:
    groups:
      - {name: loop, regex: 'LOOP@li\\.{0}\\n(.*?)\\n\\n', param: execLoopLi}
      - {name: wait, regex: 'WAIT@li\\.{0}\\n(.*?)\\n\\n', param: accWaitLi}
    counters:
      - {regex: '^(PM_\\w+|PAPI_\\w+)\\s+([\\d,]+)', findall: true}
"""


def test_counters_are_taken_from_a_runs_output_as_the_counter_file_says(tmp_path: Path) -> None:
    rules = read_rules(written(tmp_path, RULES, "hpcprobe.yml"))
    found, hidden = rules.read("run", "rate: 2.5\nrate: 4\nsecret x\n", {})
    assert (found, hidden) == ({"appRate": 6.5, "secret": "x"}, {"secret"})
    report = "LOOP@li.27\nPM_A 1,000\nPAPI_B 7\n\nWAIT@li.9\nPM_A 5\n\n"
    assert rules.read("post", report, {"execLoopLi": 27})[0] == {
        "loop.PM_A": 1000.0,
        "loop.PAPI_B": 7.0,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("walk: {}\n", "line 1: 'walk' is not known; known: run, post"),
        ("run:\n  a:\n    counts: []\n", "line 3: 'counts' is not known; known: groups, counters"),
        (
            "run:\n  a:\n    counters:\n    - {name: x, regex: '('}\n",
            "line 4: '(' is not a regular",
        ),
        ("run:\n  a:\n    groups:\n    - {regex: x, param: li}\n", "param 'li' is not known"),
        ("run:\n  a:\n    counters:\n    - {regex: x}\n", "line 4: the counter has no name"),
        ("run: [\n", "not YAML"),
    ],
)
def test_what_a_counter_file_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        read_rules(written(tmp_path, text, "hpcprobe.yml"))
    assert said in str(told.value) and "hpcprobe.yml" in str(told.value)


def test_a_summary_is_read_with_its_statistics_as_it_was_written(tmp_path: Path) -> None:
    c = Configuration("xc", 2, 2, 40, 1_900_000)
    runs = [
        SummaryRun(c, RunResult(i, 1, True, t, e, "measured"), {"PAPI_TOT_INS": 5.0})
        for i, (t, e) in enumerate([(10, 100), (12, 100), (11, 130)])
    ]
    estimated = RunResult(9, 1, True, 5.0, 7.0, "estimated")
    slow = SummaryRun(Configuration("xc", 2, 2, 2, 0), estimated, {})
    path = tmp_path / "summary.yml"
    write_summary(path, [*runs, slow], {"execParam": 5, "threadPlacement": "C"})
    found = read_summary(path, TERMS, Objectives(), {})
    first, second = found.observations
    assert (first.configuration, first.time_s, first.energy_j) == (c, 11, 100)
    assert (second.time_s, second.energy_j) == (5.0, None)  # an estimate is not measured
    stats = first.extra["stats"]
    assert isinstance(stats, dict)
    assert stats["totalTime"]["mean"] == pytest.approx(11)
    assert stats["totalTime"]["harmonicMean"] == pytest.approx(3 / (1 / 10 + 1 / 11 + 1 / 12))
    assert stats["totalTime"]["confidence"] == pytest.approx(4.302653 / 3**0.5)  # t(0.975, 2)
    assert first.extra["threadPlacement"] == "C"


KEYS = st.sampled_from(
    [
        "threadCount",
        "nodes",
        "ppn",
        "env",
        "expExec",
        "nodePEs",
        "odd",
        "omp",
        "limits",
        "cpuBinding",
        "postExec",
        "base2",
        "nodePlacement",
    ]
)


@settings(
    max_examples=30,
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
        read_experiments(path, "slurm")
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
    text = summary(
        run(80, 1_900_000, 12.5, 5000.0, execParam=5), run(88, 2_200_000, 11.0, 5600.0, execParam=5)
    )
    found = read_summary(written(tmp_path, text, "s.yml"), TERMS, Objectives(), {})
    first = found.observations[0]
    assert first.configuration == Configuration("xc", 2, 2, 40, 1_900_000)
    assert (first.time_s, first.energy_j, first.fom) == (12.5, 5000.0, 7.0)
    assert first.extra == {"execParam": 5}
    assert (first.contributor, first.scope, first.source) == ("ada", "all", "import")


def test_other_names_are_told_and_taken(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "- parameters: {nd: 1, tn: 4, fq: 1.2e6}\n  objectives: {wall: 3, joule: 9}\n",
        "s.yml",
    )
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


def test_an_estimate_in_a_summary_stays_one(tmp_path: Path) -> None:
    """What the advisor's summaries call estimated is not read back as measured."""
    result = RunResult(0, 1, True, 2.0, 70.0, "estimated")
    write_summary(tmp_path / "s.yml", [SummaryRun(Configuration("xc", 1, 1, 4, 0), result, {})], {})
    (run,) = read_summary(tmp_path / "s.yml", TERMS, Objectives(), {}).observations
    assert (run.time_s, run.energy_j, run.energy_quality) == (2.0, 70.0, "estimated")


def test_postprocessing_knows_each_runs_parameters(tmp_path: Path) -> None:
    """Those of the summary, and in hpcprobe.yml, too."""
    text = STENCIL.replace('mv "%(dataPath)s"', "mv %(threadCount)s %(totalPEs)s %(execParam)s")
    after = PostProcessing.from_dict(one(written(tmp_path, text), "slurm").after)
    (tmp_path / "design" / "output").mkdir(parents=True)
    (tmp_path / "design" / "output" / "run-0-1.log").write_text("PEs 6 rate 7\n")
    rules = "run: {p: {groups: [{regex: 'PEs {} (.*)', param: totalPEs}], counters: ["
    (tmp_path / "h.yml").write_text(rules + "{name: appRate, regex: 'rate ([0-9]+)'}]}}\n")
    command = "echo %(threadCount)s %(nodePEs)s %(totalPEs)s %(cpuFrequency)s"
    settings = replace(after, rules=str(tmp_path / "h.yml"), post_exec=command)
    processor = PostProcessor(settings, tmp_path, tmp_path)
    run = PlannedRun(0, "design", Configuration("xc", 2, 3, 12, 1_200_000))
    result = RunResult(0, 1, True, 2.0, 70.0, "measured")
    job = SweepJob("s", "design", tmp_path / "design", tmp_path, NodeType("xc"), (run,))
    assert processor.take(job, run, result) == ""
    assert processor.kept["0"]["appRate"] == 7.0
    assert (tmp_path / "design/output/post-0-1.log").read_text() == "24 3 6 1200000\n"


def test_every_mistake_of_a_summary_is_told(tmp_path: Path) -> None:
    text = (
        "- parameters: {nodes: 2, threadCount: 5}\n  objectives: {totalTime: 1}\n"
        "- parameters:\n    nodes: 0\n    threadCount: 4\n    cpuFrequency: 2200\n"
        "  objectives:\n    totalTime: -1\n"
    )
    with pytest.raises(InputError) as told:
        read_summary(written(tmp_path, text, "s.yml"), TERMS, Objectives(), {})
    for place in (
        "line 1, threadCount",
        "line 4, nodes",
        "line 6, cpuFrequency",
        "line 8, totalTime",
    ):
        assert place in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a: 1\n", "a results summary is a list"),
        ("- 3\n", "a run must be keys and values"),
        ("- parameters: {}\n", "has no objectives"),
        ("- results: {}\n  inputs: {}\n", "no parameters, but results, inputs"),
        (
            "- {parameters: {}, objectives: {}, stats: {tt: {mean: x}}}\n",
            "line 1, stats of tt: 'x'",
        ),
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
    max_examples=30,
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
