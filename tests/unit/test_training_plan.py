"""Planning a sweep: what is trained, which axes vary, what it may cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.axes import AxisWriting
from advisor.core.configuration import Configuration, thin, thread_counts
from advisor.core.inventory import Gpus, Inventory, NodeType
from advisor.core.observation import Observation
from advisor.core.policy import Axes, Policy, PolicySet
from advisor.core.recognise import ApplicationRule
from advisor.core.request import JobRequest
from advisor.errors import InputError, UsageError
from advisor.models.design import uniform
from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.slurm import translator as slurm_options
from advisor.schedulers.slurm.driver import driver_text
from advisor.schedulers.slurm.scheduler import Slurm
from advisor.training import state as states
from advisor.training.plan import axes, cost, payback_runs, planned
from advisor.training.planning import Budget, PlannedSweep, SweepWish, plan_sweep
from advisor.training.site_context import SiteContext
from advisor.training.state import SweepSettings
from advisor.training.table import tabulate
from advisor.training.training_job import TrainingJob, TrainingSite, TrainingSubject, understand

BDW = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch", "big"),
    sockets=2,
    cores=28,
    freq_khz=(1_200_000, 1_700_000, 2_200_000),
    default_freq_khz=2_200_000,
    nodes=("b1", "b2", "b3", "b4"),
    default_partition="batch",
)
SKL = replace(BDW, name="skl", feature="skylake", partitions=("new",), cores=40, nodes=("s1",))
SITE = TrainingSite(Inventory.of([BDW, SKL]))


def script(folder: Path, text: str) -> Path:
    path = folder / "job.sh"
    path.write_text(f"#!/bin/bash\n{text}\n")
    return path


def subject(folder: Path, text: str, **wishes: Any) -> TrainingJob:
    others = {n: wishes.pop(n) for n in ("gives_whole_nodes",) if n in wishes}
    return understand(
        TrainingSubject(script(folder, text), **wishes), scheduler="slurm", site=SITE, **others
    )


def test_a_script_tells_what_it_runs_and_how(tmp_path: Path) -> None:
    found = subject(
        tmp_path,
        "#SBATCH -N2 --ntasks-per-node=2 -c 14 -t 30 -A proj -p batch\nsrun ./cfd big.in",
    )
    assert (found.application, found.workload, found.launcher) == ("cfd", "big.in", "srun")
    assert found.baseline == Configuration("bdw", 2, 2, 28, 2_200_000)
    assert (found.partition, found.request.account) == ("batch", "proj")
    assert found.request.time_limit_s == 1800
    assert found.threads_kept == "" and found.freq_kept == ""


def test_names_given_win_over_what_is_recognised(tmp_path: Path) -> None:
    found = subject(tmp_path, "srun ./cfd big.in", application="CFD", workload="big")
    assert (found.application, found.workload) == ("CFD", "big")


def test_an_option_of_the_site_s_own_is_trained_with_once_it_is_understood(tmp_path: Path) -> None:
    text = script(tmp_path, "#SBATCH -N1 --exclusive --project-code=a1\nsrun ./cfd")
    with pytest.raises(InputError, match="--project-code"):
        understand(TrainingSubject(text), scheduler="slurm", site=SITE)
    site = replace(SITE, understood_options={"project-code": ()})
    found = understand(TrainingSubject(text), scheduler="slurm", site=site)
    assert found.request.options["project-code"] == "a1"


def test_the_site_names_applications(tmp_path: Path) -> None:
    rule = ApplicationRule("wrf", executable=("wrf*",), workload="conus")
    site = replace(SITE, rules=(rule,))
    path = script(tmp_path, "srun ./wrf.exe")
    found = understand(TrainingSubject(path), scheduler="slurm", site=site)
    assert (found.application, found.workload) == ("wrf", "conus")


def test_what_the_script_fixes_is_noticed(tmp_path: Path) -> None:
    own = subject(tmp_path, "#SBATCH --exclusive\nexport OMP_NUM_THREADS=8\nsrun ./cfd")
    assert "OMP_NUM_THREADS" in own.threads_kept
    assert own.baseline.threads_per_node == 8
    capped = subject(tmp_path, "#SBATCH --exclusive\nsrun --cpu-freq=1200000 ./cfd")
    assert "cpu-freq" in capped.freq_kept
    odd = subject(tmp_path, '#SBATCH --exclusive\nRUN="srun -u"\n$RUN ./cfd', application="cfd")
    assert odd.launcher == "srun"


def test_node_type_and_partition(tmp_path: Path) -> None:
    assert subject(tmp_path, "#SBATCH -p new\nsrun ./cfd").node_type.name == "skl"
    elsewhere = subject(tmp_path, "#SBATCH -p big\nsrun ./cfd", node_type="skl")
    assert (elsewhere.node_type.name, elsewhere.partition) == ("skl", "new")
    with pytest.raises(InputError, match="not in the inventory"):
        subject(tmp_path, "srun ./cfd", node_type="knl")
    with pytest.raises(InputError, match="no node type has the partition and constraint"):
        subject(tmp_path, "#SBATCH -C knl\nsrun ./cfd")


def test_more_cores_than_a_node_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"56 threads per node, bdw has 28"):
        subject(tmp_path, "#SBATCH -N1 --ntasks-per-node=2 -c 28\nsrun ./cfd")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"\x7fELF\0\0", "not a job script"),
        (b"#" * 5_000_000, "larger"),
    ],
)
def test_what_is_no_script(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        understand(TrainingSubject(path), scheduler="slurm", site=SITE)


def test_what_cannot_be_trained_or_is_trained_by_its_first_task(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="heterogeneous"):
        subject(tmp_path, "#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\nsrun ./cfd")
    found = subject(tmp_path, "#SBATCH --exclusive --array=3-9%2\nsrun ./cfd")
    job = SweepJob("x", "design", tmp_path, tmp_path, BDW, (), options=found.options)
    assert slurm_options.array_task(job.first_task)["SLURM_ARRAY_TASK_ID"] == "3"


def test_sbatchs_own_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "new")
    monkeypatch.setenv("SBATCH_ACCOUNT", "other")
    found = subject(tmp_path, "#SBATCH -p batch -A proj\nsrun ./cfd")
    assert (found.node_type.name, found.request.account) == ("skl", "other")
    told = subject(tmp_path, "srun ./cfd", options=("-A", "third", "-p", "batch"))
    assert (told.node_type.name, told.request.account) == ("bdw", "third")


def test_a_script_with_nothing_to_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no application"):
        subject(tmp_path, "echo hello")
    with pytest.raises(InputError, match="time"):
        subject(tmp_path, "#SBATCH --time=soon\nsrun ./cfd")


@given(st.integers(1, 512), st.integers(1, 64))
def test_thread_counts(cores: int, ranks: int) -> None:
    counts = thread_counts(max(cores, ranks), ranks)
    assert 1 <= len(counts) <= 12
    assert list(counts) == sorted(set(counts))
    assert all(c % ranks == 0 and 0 < c <= max(cores, ranks) for c in counts)
    assert counts[-1] == max(cores, ranks) // ranks * ranks


@pytest.mark.parametrize(
    ("text", "wishes"),
    [
        ("#SBATCH -n 4 -c 7\nsrun ./cfd", {"gives_whole_nodes": lambda _: True}),
        ("#SBATCH -n 4 -c 7\nsrun ./cfd", {}),
        ("#SBATCH --exclusive --project-code=7\nsrun ./cfd", {}),
        ("#SBATCH --exclusive\n./run ./cfd", {}),
        ("#SBATCH --exclusive\nsrun ./cfd", {"options": ("--mem=4G", "-p", "big")}),
    ],
)
def test_a_sweep_s_job_is_the_same_when_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, wishes: dict[str, Any]
) -> None:
    """Whatever site, partition and environment said when it began: they are not asked again."""
    monkeypatch.setenv("SBATCH_ACCOUNT", "proj")
    rules = (ApplicationRule(name="cfd", executable=("cfd",)),)
    site = replace(SITE, rules=rules, understood_options={"project-code": ("frequency",)})
    wanted = TrainingSubject(script(tmp_path, text), options=wishes.pop("options", ()))
    job = understand(wanted, scheduler="slurm", site=site, **wishes)
    space, settings = axes(job).space, SweepSettings("slurm", "ann")
    state = states.new(tmp_path / "sweeps", job, space, settings, ())
    states.begin(state)
    monkeypatch.delenv("SBATCH_ACCOUNT")
    again = states.load(state.folder).subject
    request, once = asdict(again.request), asdict(state.subject.request)
    assert request["options"].pop("job-name") == "script" and once["options"].pop("job-name")
    assert {n for n in once if once[n] != request[n]} == {"script_path", "command"}
    assert replace(again, how=job.how, request=state.subject.request) == state.subject


def test_thread_counts_of_real_nodes() -> None:
    assert thread_counts(28) == (4, 8, 12, 16, 20, 24, 28)
    assert thread_counts(64) == (8, 16, 24, 32, 40, 48, 56, 64)
    assert thread_counts(2) == (1, 2)
    assert thread_counts(28, 2) == (4, 8, 12, 16, 20, 24, 28)
    assert thread_counts(28, 28) == (28,)


def test_thin_keeps_the_ends() -> None:
    assert thin(range(16), 16) == tuple(range(16))
    few = thin(range(40), 16)
    assert len(few) == 16 and (few[0], few[-1]) == (0, 39)


def test_axes_of_an_openmp_job(tmp_path: Path) -> None:
    found = subject(tmp_path, "#SBATCH --exclusive -N2 --ntasks-per-node=1\nsrun ./cfd")
    grid = axes(found)
    assert grid.space.nodes == (2,)
    assert grid.space.threads == tuple((1, t) for t in (4, 8, 12, 16, 20, 24, 28))
    assert grid.space.freqs_khz == BDW.freq_khz
    assert grid.notes == ()
    wide = axes(found, threads=(14, 28), freqs_khz=(1_200_000,))
    assert wide.space.nodes == (2,)
    assert wide.space.threads == ((1, 14), (1, 28))
    assert wide.space.freqs_khz == (1_200_000, 2_200_000)  # the baseline stays on the grid


def test_axes_that_cannot_vary_say_why(tmp_path: Path) -> None:
    own = subject(tmp_path, "#SBATCH --exclusive\nexport OMP_NUM_THREADS=8\nsrun ./cfd")
    grid = axes(own, freq_kept="no srun")
    assert grid.space.threads == ((1, 8),) and grid.space.freqs_khz == (2_200_000,)
    assert len(grid.notes) == 2
    with pytest.raises(InputError, match="threads cannot be varied"):
        axes(own, threads=(4,))
    with pytest.raises(InputError, match="freqs cannot be varied"):
        axes(own, freqs_khz=(1_200_000,), freq_kept="no srun")


GPUS = Gpus("A", 4, tuple(range(600_000, 1_400_001, 50_000)), (150, 200, 250, 300))
ON_GPUS = "#SBATCH --exclusive -N1 -n1 --gres=gpu:2\nsrun ./train.py"


def planned_sweep(
    folder: Path,
    text: str,
    *,
    kept: str = "",
    policy: Policy | None = None,
    gpus: Gpus = GPUS,
    wishes: Mapping[str, Any] | None = None,
    site_axes: Mapping[str, AxisWriting] | None = None,
) -> tuple[PlannedSweep, list[str]]:
    """The sweep of a script on nodes with GPUs, and the launchers that Slurm was asked about."""
    asked = []

    class Posed(Slurm):
        def available(self) -> None:
            return None

        def frequency_kept(self, node_type: NodeType, launcher: str) -> str:
            return ""

        def energy_source(self, job: SweepJob) -> str:
            return "posed"

        def axis_kept(self, writing: AxisWriting, launcher: str, nodes: int) -> str:
            asked.append(launcher)
            return kept

    site = TrainingSite(Inventory.of([replace(BDW, gpus=gpus)]), axes=site_axes or {})
    wish = SweepWish(
        subject=str(script(folder, text)),
        command=(),
        application="net",
        workload="default",
        scheduler="slurm",
        node_type="",
        nodes=None,
        samples=None,
        budget=Budget(),
        design=None,
        threads=(),
        freqs_khz=(),
        repeat_baseline=0,
        estimate_s=None,
        limit_s=None,
        model="auto",
        meter="auto",
        options=(),
        experiment=None,
    )
    wish = replace(wish, **(wishes or {}))
    context = SiteContext(PolicySet(base=policy or Policy()), site)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("advisor.training.planning.create", lambda _: Posed())
        plan = plan_sweep(wish, context, folder / "sweeps", folder / "none.db")
    return plan, asked


def test_a_job_on_gpus_is_swept_over_their_clocks(tmp_path: Path) -> None:
    plan, asked = planned_sweep(tmp_path, ON_GPUS)
    state = plan.state
    assert asked == ["srun"] and set(state.settings.axes) == {"gpu_freq_khz"}
    (name, values) = state.space.extra[0]
    assert name == "gpu_freq_khz" and len(values) == 16
    assert (values[0], values[-1]) == (600_000, 1_400_000)
    assert len(state.space.threads) == len(state.space.freqs_khz) == 1
    clocks = [dict(r.configuration.extra)[name] for r in state.stages["design"].runs]
    assert clocks == [1_400_000, 700_000, 1_100_000]
    assert any("GPU power limit is not varied: the GPU clock is" in note for note in plan.notes)
    # the job as written sets none; each of the others its own
    job = state.job("design")
    assert [job.axes_to_set(run) for run in job.runs] == [{}, {name: 700_000}, {name: 1_100_000}]
    calls = [line for line in driver_text(job, [(r, 1) for r in job.runs]).splitlines()]
    numbers = [line.split() for line in calls if re.match(r"run \d", line)]
    assert [words[:7][6:] for words in numbers[1:]] == [["700"], ["1100"]]
    # and it is the same sweep when it is read again
    states.begin(state)
    again = states.load(state.folder)
    assert (again.space, again.settings) == (state.space, state.settings)
    assert again.subject.baseline == state.subject.baseline
    # what is asked for beside it varies, too
    more, _ = planned_sweep(tmp_path, ON_GPUS, wishes={"threads": (14, 28)})
    assert len(more.state.space.threads) == 2


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        (ON_GPUS, {"kept": "Slurm meters no energy"}, "Slurm meters no energy"),
        (ON_GPUS, {"policy": Policy(axes=Axes(gpu="keep"))}, "the policy keeps"),
        (ON_GPUS, {"gpus": Gpus("A", 4)}, "the inventory lists none for bdw"),
        (ON_GPUS.replace("gpu:2", "gpu:2 --gpu-freq=900"), {}, "--gpu-freq binds it"),
        (ON_GPUS.replace("--exclusive ", ""), {}, "the job shares its nodes"),
        (ON_GPUS.replace("gpu:2", "gpu:2 --gpus=2"), {}, "its options name GPUs more than once"),
    ],
)
def test_what_keeps_a_jobs_gpus_is_said(
    tmp_path: Path, text: str, more: dict[str, Any], why: str
) -> None:
    plan, _ = planned_sweep(tmp_path, text, **more)
    assert plan.state.space.extra == () and not plan.state.settings.axes
    assert any("GPU clock is not varied" in note and why in note for note in plan.notes), plan.notes
    assert len(plan.state.space.threads) > 1 or plan.state.subject.method == "request"


BY_NODES = {"gpu_freq_khz": AxisWriting("", "", nodes=True)}


def test_where_nodes_set_clocks_one_run_goes_through_them(tmp_path: Path) -> None:
    plan, _ = planned_sweep(tmp_path, ON_GPUS, site_axes=BY_NODES)
    note = "GPU clock: the second run goes through its values between its iterations"
    assert note in plan.notes
    state = plan.state
    assert [r.configuration for r in state.stages["design"].runs] == [state.subject.baseline]
    values = [dict(c.extra)["gpu_freq_khz"] for c in state.settings.curve]
    # from the top to the half of it, as the first runs of other sweeps
    assert values == [1_350_000, 1_250_000, 1_150_000, 1_050_000, 900_000, 800_000, 700_000]
    states.begin(state)
    assert states.load(state.folder).settings == state.settings
    runs = tuple(PlannedRun(1 + i, "design", c) for i, c in enumerate(state.settings.curve))
    state.stages[states.CURVE] = states.Stage(runs)
    library = state.preload
    library.parent.mkdir()
    library.touch()
    job = state.job(states.CURVE)
    assert job.in_one and job.attempts == 1 and not state.job("design").in_one
    text = driver_text(job, [(runs[0], 1)], metered=True)
    assert "roles=([1]=values" in text and "advisor.training.visiting" in text
    names = ",".join(f"curve-{i}-1" for i in range(1, 8))
    assert f"--names {names} --setter" not in text and f"--names {names}" in text
    assert 'beside+=(--setter "/run/advisor-gpus/${SLURMD_NODENAME:-node}.$SLURM_JOB_ID")' in text


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        (ON_GPUS, {}, "only nodes set it as a job runs (nodes: true)"),
        (ON_GPUS.replace("-N1 -n1", "-N2 -n2"), {"site_axes": BY_NODES}, "on all nodes at once"),
        (ON_GPUS, {"site_axes": BY_NODES, "wishes": {"threads": (14, 28)}}, "cores or the"),
        (ON_GPUS, {"site_axes": BY_NODES, "wishes": {"complete": True}}, "its runs are complete"),
        (
            ON_GPUS,
            {"site_axes": BY_NODES, "wishes": {"design": "uniform"}},
            "its runs are complete",
        ),
    ],
)
def test_where_each_clock_has_a_run_of_its_own_the_plan_says_why(
    tmp_path: Path, text: str, more: dict[str, Any], why: str
) -> None:
    plan, _ = planned_sweep(tmp_path, text, **more)
    assert not plan.state.settings.curve and len(plan.state.stages["design"].runs) > 1
    [note] = [n for n in plan.notes if "each value has a run of its own" in n]
    assert note.startswith("GPU clock: ") and why in note


def test_a_job_without_gpus_hears_nothing_of_them(tmp_path: Path) -> None:
    plan, asked = planned_sweep(tmp_path, ON_GPUS.replace(" --gres=gpu:2", ""))
    assert asked == [] and not any("GPU" in note for note in plan.notes)


def test_ranks_are_the_jobs_own(tmp_path: Path) -> None:
    mpi = subject(tmp_path, "#SBATCH -N1 --ntasks-per-node=28\nsrun ./cfd")
    grid = axes(mpi)
    assert grid.space.threads == ((28, 28),)
    assert any("every rank has one CPU" in note for note in grid.notes)
    hybrid = axes(subject(tmp_path, "#SBATCH -N1 --ntasks-per-node=2 -c 14\nsrun ./cfd"))
    assert {ranks for ranks, _ in hybrid.space.threads} == {2}


WHOLE = [
    "#SBATCH --exclusive -n1",
    "#SBATCH --exclusive -n1 -c 14",
    "#SBATCH -N1 -n 28",
    "#SBATCH -N2 --ntasks-per-node=2 -c 14",
]
SHARED = [
    "#SBATCH -n1 -c 14",
    "#SBATCH --exclusive=user -n1 -c 4",
    "#SBATCH -n 4",
    # Its tasks may be spread over nodes of others.
    "#SBATCH -n 28",
]


@pytest.mark.parametrize("lines", [*WHOLE, *SHARED])
def test_whole_nodes_are_measured_by_variables_and_shared_ones_by_requests(
    tmp_path: Path, lines: str
) -> None:
    found = subject(tmp_path, f"{lines}\nsrun ./cfd")
    assert found.method == ("variables" if lines in WHOLE else "request")
    own = found.baseline.threads_per_node
    most = max(threads for _, threads in axes(found).space.threads)
    assert most == own  # never more than the job has
    if most < 28:
        with pytest.raises(InputError, match=f"the job has {most} per node"):
            axes(found, threads=(28,))
    assert subject(tmp_path, f"{lines}\nsrun ./cfd", gives_whole_nodes=bool).method == "variables"


@pytest.mark.parametrize(
    ("lines", "stated"),
    [
        ("#SBATCH --exclusive -n1 -c 28\n./cfd", False),
        ("#SBATCH -N1 -n1 -c 28\n./cfd", False),
        ("#SBATCH --exclusive -n1 -c 14\n./cfd", True),
        ("#SBATCH --exclusive -n1 -c 28\nsrun ./cfd", True),
        ("#SBATCH --exclusive -n1 -c 28\n./cfd $SLURM_CPUS_PER_TASK", True),
    ],
)
def test_a_sweep_confirms_fewer_threads_where_its_job_states_just_what_it_has(
    tmp_path: Path, lines: str, stated: bool
) -> None:
    assert ("threads" in subject(tmp_path, lines).request.explicit) == stated


def test_a_job_that_the_advisor_leaves_alone_is_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = slurm_options.parse_request

    def bound(*args: Any, **more: Any) -> JobRequest:
        return replace(usual(*args, **more), binds={"all": "--licenses=cfd"})

    monkeypatch.setattr(slurm_options, "parse_request", bound)
    with pytest.raises(InputError, match=r"does not change jobs with --licenses=cfd"):
        subject(tmp_path, "#SBATCH --exclusive\nsrun ./cfd")


def test_it_says_beforehand_in_plain_words_that_a_scripts_jobs_are_left_alone(
    tmp_path: Path,
) -> None:
    found = subject(tmp_path, "#SBATCH --exclusive\nsrun ./solve.sh")
    assert axes(found).notes[0] == (
        "the advisor will not change this script's jobs: the advisor cannot follow the script: "
        "its program solve.sh is a script that may run anything"
    )
    found = subject(tmp_path, "#SBATCH --exclusive\nfor i in 1 2; do srun ./cfd; done")
    assert axes(found).notes[0] == (
        "the advisor will not change this script's jobs: the script runs its program in a loop"
    )


def test_the_allocation_is_the_jobs_own_with_what_binds(tmp_path: Path) -> None:
    text = (
        "#SBATCH --exclusive -n 4 -c 7 -x b4 --reservation=r --mem=3G --gres=nvme:1 -t 10\n"
        "#SBATCH -o out --mail-type=ALL -d singleton --comment=mine --licenses=cfd -J x\n"
        "srun ./cfd"
    )
    found = subject(tmp_path, text)
    runs = (PlannedRun(0, "baseline", found.baseline),)
    job = SweepJob(
        "x",
        "design",
        tmp_path,
        tmp_path,
        BDW,
        runs,
        options=found.options,
        method=found.method,
        estimate_s=60,
        baseline=found.baseline,
    )
    words = Slurm()._options(job, list(runs))
    for kept in (
        "--exclusive",
        "--ntasks=4",
        "--cpus-per-task=7",
        "--exclude=b4",
        "--mem=3G",
        "--reservation=r",
        "--gres=nvme:1",
        "--licenses=cfd",
        "--constraint=broadwell",
        "--time=2",
    ):
        assert kept in words
    assert not any(w.startswith(("--mail", "--dependency", "--comment", "--nodes")) for w in words)
    assert f"--output={tmp_path}/job-%j.log" in words and "--job-name=adv-x-design" in words
    smaller = Slurm()._options(replace(job, method="request"), list(runs))
    assert "--nodes=1-1" in smaller and "--exclusive" in smaller
    assert not any(w.startswith(("--ntasks", "--cpus-per-task")) for w in smaller)


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        ("broadwell", "broadwell"),
        ("broadwell&nvme", "broadwell&nvme"),
        ("", "broadwell"),
        ("broadwell|skylake", "broadwell"),
        ("skylake", "broadwell"),
    ],
)
def test_the_node_type_is_pinned_and_what_else_was_asked_of_it_stays(
    tmp_path: Path, wanted: str, asked: str
) -> None:
    job = SweepJob("x", "design", tmp_path, tmp_path, BDW, (), options={"constraint": wanted})
    assert f"--constraint={asked}" in Slurm()._options(job, [])


@pytest.mark.parametrize(
    "wish",
    [{"threads": (29,)}, {"threads": (0,)}, {"freqs_khz": (1_300_000,)}],
)
def test_values_the_node_type_does_not_have(tmp_path: Path, wish: dict[str, tuple[int]]) -> None:
    found = subject(tmp_path, "#SBATCH --exclusive\nsrun ./cfd")
    with pytest.raises(InputError, match=r"bdw has|is not a step of bdw"):
        axes(found, **wish)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="5 nodes: bdw has 4"):
        axes(subject(tmp_path, "#SBATCH --exclusive -N5\nsrun ./cfd"))


def test_the_baseline_is_run_first_and_once(tmp_path: Path) -> None:
    found = subject(tmp_path, "#SBATCH --exclusive\nsrun ./cfd")
    design = uniform(axes(found).space, 12, must_include=found.baseline)
    runs = planned(design, found.baseline, repeat_baseline=2)
    assert runs[0] == PlannedRun(0, "baseline", found.baseline)
    assert [r.role for r in runs].count("baseline") == 3
    assert len(runs) == 14 and [r.seq for r in runs] == list(range(14))
    assert len({r.configuration for r in runs}) == 12


def test_few_configurations_are_run_three_times() -> None:
    pair = [Configuration("local", 1, 1, t, 0) for t in (1, 2)]
    runs = planned(pair, pair[1])
    assert [r.configuration.threads_per_node for r in runs] == [2, 1, 2, 1, 2, 1]


def configuration(nodes: int = 1, threads: int = 28, freq: int = 2_200_000) -> Configuration:
    return Configuration("bdw", nodes, 1, threads, freq)


def test_no_run_takes_longer_than_perfect_scaling_says() -> None:
    base = configuration()
    assert configuration(threads=14).slowdown_bound(base) == 2
    assert configuration(freq=1_100_000).slowdown_bound(base) == 2
    assert configuration(nodes=2).slowdown_bound(base) == 1
    assert configuration(freq=0).slowdown_bound(configuration(freq=0)) == 1


def test_cost_is_an_upper_bound() -> None:
    base = configuration()
    runs = [
        PlannedRun(0, "baseline", base),
        PlannedRun(1, "design", configuration(threads=7)),
        PlannedRun(2, "design", configuration(nodes=2)),
    ]
    full = cost(runs, base, baseline_s=3600, limit_s=None, basis="x", baseline_j=1000)
    assert full.node_hours == pytest.approx(1 + 4 + 2)
    assert full.time_s == pytest.approx(6 * 3600)
    assert full.energy_j == pytest.approx(7000)
    assert full.equal_runs == pytest.approx(7)
    limited = cost(runs, base, baseline_s=3600, limit_s=7200, basis="x")
    assert limited.node_hours == pytest.approx(1 + 2 + 2)
    by_limit = cost(runs, base, baseline_s=None, limit_s=7200, basis="x")
    assert by_limit.node_hours == pytest.approx(2 + 2 + 4)
    unknown = cost(runs, base, baseline_s=None, limit_s=None, basis="x")
    assert (unknown.node_hours, unknown.runs) == (None, 3)


def test_payback() -> None:
    assert payback_runs(100, 30) == 4
    assert payback_runs(1, 30) == 1
    assert payback_runs(100, 0) is None
    assert payback_runs(100, -5) is None


def observed(
    threads: int, time_s: float, energy_j: float | None, source: str = "sweep", **more: str
) -> Observation:
    quality = more.pop("quality", "measured" if energy_j else "missing")
    return Observation(
        Configuration("local", 1, 1, threads, 0),
        time_s,
        energy_j,
        energy_quality=quality,  # type: ignore[arg-type]
        source=source,  # type: ignore[arg-type]
    )


def test_a_table_of_runs_where_no_model_can_be_fitted() -> None:
    runs = [observed(2, t, 50 * t) for t in (1.0, 1.02, 0.98)]
    runs += [observed(1, t, 30 * t) for t in (1.01, 1.03, 0.99)]
    fit = tabulate(runs)
    one, two = fit.options
    assert one.time_s == pytest.approx(1.01, abs=0.01) and one.energy_j < two.energy_j
    assert one.time_lo_s < one.time_s < one.time_hi_s
    assert one.measured and not one.confirmed
    assert fit.predicted[0].time_hi_s > one.time_hi_s
    assert tabulate([*runs, observed(1, 1.0, 30.5, "confirm")]).options[0].confirmed
    assert not tabulate([*runs, observed(1, 1.4, 42, "confirm")]).options[0].confirmed
    assert not tabulate([*runs, observed(1, 1.0, 60, "confirm")]).options[0].confirmed


def test_a_table_mixes_no_qualities() -> None:
    mixed = [observed(1, 1, 30), observed(2, 1, 50, quality="estimated")]
    assert tabulate(mixed).energy_quality == "missing"
    both = [*mixed, observed(1, 1, 31, quality="estimated")]
    fit = tabulate(both)
    assert fit.energy_quality == "estimated"
    assert fit.options[0].energy_j == pytest.approx(31)
    with pytest.raises(InputError, match="no run"):
        tabulate([])
