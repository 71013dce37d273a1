"""Sweeps on a real Slurm: what really ran, what it was metered at, kill, cancel and resume."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testbed import NODE_TYPES, Testbed, predict

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.errors import SchedulerError
from advisor.paths import share
from advisor.schedulers.base import JobRecord, PlannedRun, RunResult, SweepJob
from advisor.schedulers.slurm import accounting as sacct
from advisor.schedulers.slurm.scheduler import Slurm
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.waiting import wait_for

ROOT = share("config").parent
POSED = NODE_TYPES["bdw"]
BDW = NodeType(
    "broadwell", feature="broadwell", partitions=("batch", "broadwell"), sockets=2, cores=28,
    memory_mb=8000, freq_khz=POSED.frequencies_khz, default_freq_khz=POSED.max_khz,
    nodes=tuple(POSED.nodes), default_partition="batch",
)  # fmt: skip
TOP = POSED.max_khz


@pytest.fixture
def slurm(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """The backend, pointed at the cluster."""
    for name in [n for n in os.environ if n.startswith(("SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, testbed.env()[name])
    return Slurm()


def configuration(
    threads: int = 28, freq: int = TOP, nodes: int = 1, ranks: int = 1
) -> Configuration:
    return Configuration("broadwell", nodes, ranks, threads, freq)


def make_job(folder: Path, text: str, *runs: Configuration, **more: Any) -> SweepJob:
    script = folder / "script"
    script.write_text(f"#!/bin/bash\n{text}\n")
    planned = tuple(PlannedRun(i, "design" if i else "baseline", c) for i, c in enumerate(runs))
    options = {"exclusive": "", "nodes": str(runs[0].nodes), **more.pop("options", {})}
    chosen = {"launcher": "srun", "estimate_s": 3.0, "baseline": runs[0], **more}
    job = SweepJob(
        id=f"t{time.time_ns()}", stage="design", folder=folder / "design", working_folder=folder,
        node_type=BDW, runs=planned, script=script, partition="batch",
        options=options, **chosen,
    )  # fmt: skip
    job.folder.mkdir()
    return job


def finish(slurm: Slurm, job: SweepJob, handle: str) -> list[RunResult]:
    deadline = time.monotonic() + 90
    while (status := slurm.poll(job, handle)).state != "ended":
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    return list(status.results)


def printed(job: SweepJob, result: RunResult) -> list[dict[str, str]]:
    """What the simulated application says it had, one entry per step."""
    text = (job.folder / "output" / f"run-{result.seq}-{result.attempt}.log").read_text()
    return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in text.splitlines() if "watts" in line]


def test_each_run_gets_its_configuration_and_its_own_energy(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(
        tmp_path,
        'echo "advisor=$ADVISOR omp=$OMP_NUM_THREADS mkl=$MKL_NUM_THREADS arg=$1"\n'
        "env | grep -E '^(SLURM_(JOB_)?(N|CPUS|TASKS|MEM)|SRUN_)' | sort > given.$OMP_NUM_THREADS\n"
        "srun simapp --kernel stencil --scale 0.4\n"
        "srun -J mine simapp --kernel nbody --scale 0.1",
        configuration(28, ranks=2, nodes=2),
        configuration(14, 1_500_000, ranks=2, nodes=2),
        arguments=("$(touch pwned); 'x'\ny",),
        options={"ntasks-per-node": "2", "cpus-per-task": "14"},
        threads_from=("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    )
    handle = slurm.submit_sweep(job)
    results = finish(slurm, job, handle)
    assert [(r.seq, r.ok, r.attempt) for r in results] == [(0, True, 1), (1, True, 1)]
    for result, run in zip(results, job.runs, strict=True):
        c = run.configuration
        for step in printed(job, result):
            assert step["nodes"] == str(c.nodes)
            assert step["ranks_per_node"] == str(c.ranks_per_node)
            assert step["threads_per_node"] == str(c.threads_per_node)
            assert step["freq_khz"] == str(c.freq_khz)
        assert len(printed(job, result)) == 2
        law = [
            predict(kernel, POSED, c.nodes, c.threads_per_node, c.freq_khz, scale)
            for kernel, scale in (("stencil", 0.4), ("nbody", 0.1))
        ]
        assert result.time_s is not None
        assert result.time_s >= sum(t for t, _ in law)
        assert (result.energy_quality, result.meter, result.job_id) == ("measured", "slurm", handle)
        assert result.account == "proj"
    # the energy is that of the run's own steps, found by number although one has its own name
    record = slurm.job(handle)
    assert record is not None
    steps = {s.step_id: s for s in record.steps if s.numbered}
    assert [s.name for s in steps.values()].count("mine") == 2
    assert results[0].energy_j == sacct.total_energy_j([steps["0"], steps["1"]])
    assert results[1].energy_j == sacct.total_energy_j([steps["2"], steps["3"]])
    assert [steps[i].freq_requested_khz for i in "0123"] == [None, None, 1_500_000, 1_500_000]
    assert {s.cpus for s in steps.values()} == {56}  # the allocation's, whatever the threads are
    text = (job.folder / "output" / "run-1-1.log").read_text()
    assert "advisor=off omp=7 mkl=7 arg=$(touch pwned); 'x'\ny" in text
    assert not (tmp_path / "pwned").exists()
    # the job as written sets nothing, and what Slurm tells a run of the allocation is the same
    assert "omp= mkl= arg" in (job.folder / "output" / "run-0-1.log").read_text()
    own = (tmp_path / "given.").read_text()
    assert "SLURM_NTASKS_PER_NODE=2" in own and (tmp_path / "given.7").read_text() == own


def test_smaller_requests_are_stood_in_for_on_whole_nodes(slurm: Slurm, tmp_path: Path) -> None:
    """A job that shares its node: every step gets the CPUs that the smaller job would have."""
    job = make_job(
        tmp_path,
        'echo "$SLURM_NTASKS $SLURM_CPUS_PER_TASK $OMP_NUM_THREADS $SLURM_CPUS_ON_NODE"\n'
        "srun simapp --kernel stencil --scale 0.4",
        configuration(12),
        configuration(4, 1_500_000),
        options={"cpus-per-task": "12"},
        method="request",
    )
    handle = slurm.submit_sweep(job)
    results = finish(slurm, job, handle)
    assert [r.ok for r in results] == [True, True]
    assert [printed(job, r)[0]["threads_per_node"] for r in results] == ["12", "4"]
    record = slurm.job(handle)
    assert record is not None and record.cpus == 28
    assert [s.cpus for s in record.steps if s.numbered] == [12, 4]
    assert {r.energy_quality for r in results} == {"measured"}
    text = (job.folder / "output" / "run-1-1.log").read_text()
    assert text.splitlines()[0] == "1 4 4 4"


def test_failed_attempts_are_made_again_and_a_run_that_never_works_is_left_out(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = make_job(
        tmp_path,
        "[ $OMP_NUM_THREADS = 20 ] && exit 3\n"
        "[ $OMP_NUM_THREADS = 24 ] && [ ! -e once ] && touch once && srun false\n"
        "[ $OMP_NUM_THREADS = 16 ] && exec sleep 60\n"
        "srun simapp --kernel nbody --scale 0.2",
        *(configuration(t) for t in (28, 20, 24, 16)),
        attempts=2,
        run_limit_s=4.0,
    )
    results = finish(slurm, job, slurm.submit_sweep(job))
    assert [(r.seq, r.attempt, r.ok) for r in results] == [
        (0, 1, True), (1, 1, False), (1, 2, False), (2, 1, False), (2, 2, True), (3, 1, False),
    ]  # fmt: skip
    assert "exit code 3" in results[1].detail
    assert "an srun ended with exit code 1" in results[3].detail
    assert "stopped after its limit of 4 s" in results[5].detail and results[5].final
    assert job.open_runs(results) == []


def test_an_srun_that_cannot_be_seen_is_said(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(
        tmp_path, '"$(type -P -a srun | tail -1)" simapp --kernel nbody --scale 0.1',
        configuration(), configuration(14), attempts=1,
    )  # fmt: skip
    (only,) = finish(slurm, job, slurm.submit_sweep(job))  # without a baseline nothing else
    assert not only.ok and "no srun of the script was seen" in only.detail


def test_a_script_without_srun_is_put_into_one_step(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(
        tmp_path, "PATH=/usr/bin:$PATH\nsimapp --kernel stencil --scale 0.5",
        configuration(28), configuration(12), launcher="",
    )  # fmt: skip
    assert "no srun" in slurm.frequency_kept(BDW, "")
    assert slurm.frequency_kept(BDW, "srun") == ""
    results = finish(slurm, job, slurm.submit_sweep(job))
    assert [r.ok for r in results] == [True, True]
    assert {r.energy_quality for r in results} == {"measured"}
    assert [printed(job, r)[0]["threads_per_node"] for r in results] == ["28", "12"]


def test_another_launcher_is_timed_whole_and_its_energy_estimated(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = make_job(tmp_path, "sleep 1", configuration(), configuration(14), launcher="mpirun")
    job = replace(job, node_type=replace(BDW, base_power_w=100.0, core_power_w=2.0))
    assert "mpirun is not metered" in slurm.energy_source(job)
    results = finish(slurm, job, slurm.submit_sweep(job))
    assert [r.energy_quality for r in results] == ["estimated", "estimated"]
    for result, threads in zip(results, (28, 14), strict=True):
        assert result.time_s is not None and result.energy_j is not None
        assert result.energy_j == pytest.approx((100 + 2 * threads) * result.time_s)


def test_steps_that_overlap_have_no_energy_of_their_own(slurm: Slurm, tmp_path: Path) -> None:
    one = "srun -n1 -c4 --overlap simapp --kernel nbody --scale 0.1"
    job = make_job(tmp_path, f"{one} &\n{one} &\nwait", configuration(8))
    (result,) = finish(slurm, job, slurm.submit_sweep(job))
    assert result.ok and result.energy_j is None
    assert "overlap" in result.detail
    assert result.time_s is not None


def test_a_sweep_that_was_submitted_is_not_submitted_twice(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(tmp_path, "srun sleep 2", configuration())
    handle = slurm.submit_sweep(job)
    assert Slurm().submit_sweep(job) == handle
    slurm.cancel(job, handle)
    status = slurm.poll(job, handle)
    deadline = time.monotonic() + 30
    while status.state != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.5)
        status = slurm.poll(job, handle)
    assert "CANCELLED" in status.detail
    slurm.cancel(job, handle)  # of a job that has ended: no error
    slurm.cancel(job, "99999999")


def test_what_slurm_refuses_is_said_in_one_line(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(tmp_path, "srun true", configuration(), options={"licenses": "no;such"})
    with pytest.raises(SchedulerError, match=r"sbatch refused the sweep: .*license") as caught:
        slurm.submit_sweep(job)
    assert "\n" not in str(caught.value)


def test_a_brief_job_is_finished_once_its_record_is_whole(slurm: Slurm, testbed: Testbed) -> None:
    """Slurm's database takes in the end of such a job before its start, seconds apart."""
    for _ in range(3):
        submitted = testbed.sbatch("-N1", "-pbroadwell", "-t1", "-Jbrief", "--wrap=srun true")
        deadline = time.monotonic() + 60
        ended: list[JobRecord] = []
        while not ended:
            assert time.monotonic() < deadline
            everybody = slurm.finished_jobs("2020-01-01T00:00:00+00:00")
            ended = [r for r in everybody if r.job_id == str(submitted.job_id)]
        (record,) = ended
        assert (record.name, record.partition) == ("brief", "broadwell")
        assert record.submit_line.startswith("sbatch -N1 -pbroadwell")


def test_accounting_of_all_jobs(slurm: Slurm, testbed: Testbed) -> None:
    name = "odd|name\nwith\x1fmarks"
    submitted = testbed.sbatch(
        f"--job-name={name}", "--comment=a|b", "-N1", "--exclusive", "--wait",
        "--wrap=srun --cpu-freq=1200000-1600000 simapp --kernel stencil",
        env={"ADVISOR_DECISION": "d1"},
    )  # fmt: skip
    record = slurm.job(str(submitted.job_id))
    # the job's environment reaches the accounting last
    deadline = time.monotonic() + 60
    while record is None or not (record.finished and record.stamp):
        assert time.monotonic() < deadline, record
        time.sleep(0.5)
        record = slurm.job(str(submitted.job_id))
    assert (record.name, record.comment, record.user) == (name, "a|b", "root")
    assert record.freq_requested_khz == 1_600_000
    assert record.energy_j is not None and record.energy_j > 0
    assert record.stamp["ADVISOR_DECISION"] == "d1"
    found = slurm.finished_jobs("2020-01-01T00:00:00+00:00")
    assert str(submitted.job_id) in {r.job_id for r in found}
    assert slurm.job("99999999") is None
    slurm.finished_jobs("2100-01-01T00:00:00")  # another host's clock may be ahead


# -- the whole command ---------------------------------------------------------------------------


class Command:
    """Runs ``advisor train`` on the cluster with a store that knows its node types."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed, self.folder = testbed, folder
        self.store = folder / "advisor.db"
        self.script = folder / "job.sh"
        with Writer(self.store) as writer:
            writer.save_node_types([BDW], source="test")
            # times of short runs on a shared machine must not decide what is recommended
            base = {"goal": "min_energy", "max_slowdown": 3.0, "training": {"trust": "all"}}
            writer.apply_config(
                "policy", path="p", text="t", compiled={"base": base, "rules": []}, by="root"
            )
        self.env = {
            **testbed.env(), "ADVISOR_DB": str(self.store), "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(folder / "state"), "ADVISOR_SOCKET": str(folder / "no.sock"),
        }  # fmt: skip

    def start(self, *argv: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "advisor", "train", *map(str, argv)],
            env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *argv: str | Path) -> dict[str, Any]:
        child = self.start(*argv, "--json")
        out, err = child.communicate(timeout=180)
        assert child.returncode == 0, err
        data: dict[str, Any] = json.loads(out)
        return data

    def sweep_jobs(self, sweep: str) -> list[dict[str, str]]:
        """The sweep's allocations, with the names of their steps."""
        done = self.testbed.run(
            ["sacct", "-n", "-P", "-o", "JobID,JobName,State", "-S", "2020-01-01"]
        )
        rows = [line.split("|") for line in done.stdout.splitlines() if sweep in line]
        return [{"id": i, "name": name, "state": state} for i, name, state in rows]

    def designs(self, sweep: str) -> list[str]:
        """The states of the design's allocations; the accounting lags behind Slurm."""
        jobs = [j for j in self.sweep_jobs(sweep) if "." not in j["id"]]
        return [j["state"].split()[0] for j in jobs if j["name"].endswith("design")]

    def finished(self) -> int:
        files = self.folder.glob("state/advisor/sweeps/*/design/events")
        return sum(f.read_text().count("end\t") for f in files)


@pytest.fixture
def command(testbed: Testbed, tmp_path: Path) -> Command:
    return Command(testbed, tmp_path)


def test_train_a_script_from_nothing_to_a_confirmed_model(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH -J cfd -N1 -n1 --exclusive -C broadwell -A proj -t 3\n"
        "srun simapp --kernel stencil\n"
    )
    result = command.run(
        command.script, "--yes", "--samples", "6", "--threads", "12,20,28",
        "--freqs", "1.5GHz,2.2GHz", "--estimate", "3s",
    )  # fmt: skip
    assert result["scheduler"] == "slurm" and result["energy_quality"] == "measured"
    assert (result["application"], result["workload"]) == ("simapp", "--kernel stencil")
    assert result["baseline"]["threads_per_node"] == 28
    assert result["recommended"] is not None
    chosen = result["recommended"]

    # less energy by the law too, not by chance
    def law_j(option: dict[str, Any]) -> float:
        time_s, watts = predict("stencil", POSED, 1, option["threads_per_node"], option["freq_khz"])
        return time_s * watts

    assert law_j(chosen) < law_j(result["baseline"])
    assert [r["role"] for r in result["runs"]] == ["baseline"] + ["design"] * 5 + ["confirm"]
    for run in result["runs"]:
        time_s, watts = predict("stencil", POSED, 1, run["threads_per_node"], run["freq_khz"])
        assert run["energy_j"] == pytest.approx(time_s * watts, abs=10)
        assert time_s <= run["time_s"]
    confirm = result["runs"][-1]
    assert confirm["threads_per_node"] == chosen["threads_per_node"]
    assert confirm["freq_khz"] == chosen["freq_khz"]
    assert (result["state"], result["confirmed"]) == ("confirmed", True), result["attempts"]

    # one allocation for the design, one for the run that confirms
    def allocations() -> list[str]:
        return [job["id"] for job in command.sweep_jobs(result["id"]) if "." not in job["id"]]

    wait_for(lambda: len(allocations()) == 2)
    # the runs follow one another within them, and no second is counted twice
    elapsed_s = sum(int(command.testbed.sacct(int(i))[0]["ElapsedRaw"]) for i in allocations())
    assert sum(run["time_s"] for run in result["runs"]) < elapsed_s + 2
    with Reader(command.store) as reader:
        observations = [o.observation for o in reader.observations("simapp")]
        assert {(o.account, o.scope, o.meter) for o in observations} == {("proj", "all", "slurm")}
        assert [o.source for o in observations].count("confirm") == 1
        (model,) = reader.find_models("simapp")
        assert (model.node_type, model.scope) == ("broadwell", "all")


def test_killed_while_it_waits_and_resumed(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\n"
        "srun simapp --kernel nbody --scale 0.5\n"
    )
    child = command.start(command.script, "--yes", "--threads", "7,14,21,28", "--freqs", "2.2GHz")
    wait_for(lambda: command.finished() >= 1)
    child.kill()
    child.communicate()
    result = command.run("--resume")
    wait_for(lambda: command.designs(result["id"]) == ["COMPLETED"])
    seen = command.sweep_jobs(result["id"])
    steps = [j["name"] for j in seen if "." in j["id"] and "design" in j["name"]]
    assert sorted(steps) == sorted(set(steps)) and len(steps) == 4
    assert [r["threads_per_node"] for r in result["runs"]][:4] == [28, 7, 14, 21]


def test_an_allocation_that_is_lost_is_made_anew_for_what_is_missing(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\n"
        "srun simapp --kernel nbody --scale 0.5\n"
    )
    child = command.start(command.script, "--yes", "--threads", "7,14,21,28", "--freqs", "2.2GHz")
    wait_for(lambda: command.finished() >= 2)
    (folder,) = command.folder.glob("state/advisor/sweeps/*")
    handle = json.loads((folder / "sweep.json").read_text())["stages"]["design"]["handles"][-1]
    command.testbed.run(["scancel", handle])
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "runs are missing" in err and "CANCELLED" in err
    assert f"advisor train --resume {folder.name}" in err and err.count("advisor: ") == 1
    result = command.run("--resume", folder.name)
    wait_for(lambda: command.designs(folder.name) == ["CANCELLED", "COMPLETED"])
    seen = command.sweep_jobs(folder.name)
    good = [
        j["name"] for j in seen
        if "." in j["id"] and "design" in j["name"] and j["state"] == "COMPLETED"
    ]  # fmt: skip
    assert len({n.rsplit("-", 1)[0] for n in good}) == len(good) == 4
    assert result["state"] == "fitted"  # fewer threads save nothing of nbody
    assert result["recommended"] is None and result["attempts"] == []


def test_interrupted_the_allocation_is_given_back(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\nsrun simapp --kernel nbody\n"
    )
    child = command.start(command.script, "--yes", "--threads", "14,28", "--freqs", "2.2GHz")
    wait_for(lambda: bool(list(command.folder.glob("state/*/sweeps/*/design/events"))))
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    (folder,) = command.folder.glob("state/advisor/sweeps/*")
    assert f"advisor train --resume {folder.name}" in err and "Traceback" not in err

    def given_back() -> bool:
        jobs = [j for j in command.sweep_jobs(folder.name) if "." not in j["id"]]
        return [j["state"].split()[0] for j in jobs] == ["CANCELLED"]

    wait_for(given_back)
    with Reader(command.store) as reader:
        assert [r.id for r in reader.training_requests("stopped")] == [folder.name]


def test_an_ordinary_user_trains_through_the_daemon(command: Command, slurm: Slurm) -> None:
    """Slurm runs the sweep as the user; the store, which only root may write, gets the runs."""
    testbed = command.testbed
    user = testbed.user
    public = Path(tempfile.mkdtemp(prefix="train-user-"))
    public.chmod(0o755)
    store, path = public / "advisor.db", public / "s"
    daemon = None
    try:
        shutil.copyfile(command.store, store)
        daemon = subprocess.Popen(
            [sys.executable, "-m", "advisor", "serve", "--socket", str(path), "--refresh", "0.2"],
            env={**command.env, "ADVISOR_DB": str(store)},
            stderr=subprocess.DEVNULL,
        )
        wait_for(path.exists)
        script = testbed.home(user) / "trained.sh"
        script.write_text(
            "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\n"
            "srun simapp --kernel nbody --scale 0.4\n"
        )
        # may read this checkout and its Python wherever they are, but write only its own
        reader = ["setpriv", f"--reuid={user}", "--clear-groups", "--inh-caps=+dac_read_search",
                  "--ambient-caps=+dac_read_search"]  # fmt: skip
        done = testbed.run(
            [*reader, sys.executable, "-m", "advisor", "train", script, "--yes", "--json",
             "--threads", "7,14,21,28", "--freqs", "2.2GHz", "--workload", "theirs"],
            env={"ADVISOR_DB": str(store), "ADVISOR_SOCKET": str(path), "PYTHONPATH": str(ROOT),
                 "HOME": str(testbed.home(user)), "USER": user},
            cwd=testbed.home(user), timeout=180,
        )  # fmt: skip
        result = json.loads(done.stdout)
        assert result["model_id"] is None
        record = slurm.job(result["runs"][0]["job_id"])
        assert record is not None and record.user == user

        def arrived() -> bool:
            with Reader(store) as opened:
                return bool(opened.find_models("simapp", "theirs"))

        wait_for(arrived)
        with Reader(store) as opened:
            runs = [o.observation for o in opened.observations("simapp", "theirs")]
        assert {o.contributor for o in runs} == {user}
        assert sum(o.source == "sweep" for o in runs) == 4
        assert {o.energy_quality for o in runs} == {"measured"}
    finally:
        if daemon is not None:
            daemon.terminate()
            daemon.wait(10)
        shutil.rmtree(public)
