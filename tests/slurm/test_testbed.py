"""The testbed itself: a real cluster whose silicon follows the law."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from testbed import KERNELS, NODE_TYPES, Testbed, TestbedError, predict, requirements
from testbed.cluster import NODES
from testbed.config import LOCAL_PORT_RANGE, Ports, claim_ports


def step_rows(testbed: Testbed, job_id: int) -> list[dict[str, str]]:
    """Return the accounting records of a job's numbered steps."""
    return [row for row in testbed.sacct(job_id) if re.fullmatch(r"\d+\.\d+", row["JobID"])]


def runs(pid: int) -> bool:
    """Return whether a process lives; one that only waits to be reaped does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def simapp_report(text: str) -> dict[str, str]:
    """Return what simapp printed as fields."""
    return dict(word.split("=") for word in text.split() if "=" in word)


# The law


@pytest.mark.parametrize("node_type", NODE_TYPES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_time_falls_with_threads_and_frequency(kernel: str, node_type: str) -> None:
    """More cores and a higher clock never slow a kernel down, and never save power."""
    t = NODE_TYPES[node_type]
    for low, high in zip(t.frequencies_khz, t.frequencies_khz[1:], strict=False):
        slow, fast = (predict(kernel, t, 1, t.cores, f) for f in (low, high))
        assert slow[0] > fast[0] and slow[1] < fast[1]
    assert predict(kernel, t, 1, t.cores // 2)[0] >= predict(kernel, t, 1, t.cores)[0]


def best_saving(kernel: str, node_type: str, slowdown: float = 0.05) -> float:
    """Return the largest energy saving over threads and frequency within `slowdown`."""
    t = NODE_TYPES[node_type]
    base_s, base_w = predict(kernel, t, 1, t.cores)
    return max(
        1.0 - (time_s * watts) / (base_s * base_w)
        for threads in range(1, t.cores + 1)
        for freq in t.frequencies_khz
        for time_s, watts in [predict(kernel, t, 1, threads, freq)]
        if time_s <= base_s * (1.0 + slowdown)
    )


@pytest.mark.parametrize(
    ("kernel", "low", "high"),
    [("stencil", 0.10, 0.30), ("nbody", 0.0, 0.01), ("solver", 0.03, 0.12)],
)
@pytest.mark.parametrize("node_type", NODE_TYPES)
def test_headroom_within_five_percent(kernel: str, node_type: str, low: float, high: float) -> None:
    """The memory-bound kernel can save, the compute-bound one cannot, the third a little."""
    assert low <= best_saving(kernel, node_type) <= high


# The cluster


def test_all_nodes_are_idle(testbed: Testbed) -> None:
    """Every posed node is up with the cores and the feature it poses."""
    lines = testbed.run(["sinfo", "-h", "-N", "-p", "batch", "-o", "%N %t %c %f"]).stdout
    expected = {
        f"{node} idle {t.cores} {t.feature}" for t in NODE_TYPES.values() for node in t.nodes
    }
    assert set(lines.splitlines()) == expected


@pytest.mark.parametrize("user", [None, "nobody"])
def test_a_job_runs_and_its_energy_follows_the_law(testbed: Testbed, user: str | None) -> None:
    """sacct shows COMPLETED and the law's joules, for root and for an ordinary user."""
    job = testbed.sbatch(
        "-N2", "-C", "broadwell", "--exclusive", script="srun simapp --scale 2\n", user=user
    )
    assert testbed.wait(job.job_id) == "COMPLETED"
    (step,) = step_rows(testbed, job.job_id)
    time_s, watts = predict("stencil", "bdw", 2, 28, scale=2)
    assert step["State"] == "COMPLETED"
    assert step["Account"] == "proj"
    assert int(step["ConsumedEnergyRaw"]) == pytest.approx(2 * time_s * watts, rel=0.15)


def test_a_cap_is_really_applied(testbed: Testbed) -> None:
    """--cpu-freq=min-max sets scaling_max_freq for the step, and time and energy follow."""
    job = testbed.sbatch(
        "-N1",
        "-C",
        "broadwell",
        "--exclusive",
        script="srun --cpu-freq=1200000-1450000 simapp --kernel nbody &\n"
        "sleep 1; cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_max_freq | sort | uniq -c\n"
        "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor; wait\n",
    )
    assert testbed.wait(job.job_id) == "COMPLETED"
    text = testbed.output(job.job_id)
    assert "28 1500000" in text  # rounded up to a step
    assert "ondemand" in text
    report = simapp_report(text)
    time_s, watts = predict("nbody", "bdw", 1, 28, 1500000)
    assert report["freq_khz"] == "1500000"
    assert float(report["time_s"]) == pytest.approx(time_s, abs=0.01)
    (step,) = step_rows(testbed, job.job_id)
    assert int(step["ConsumedEnergyRaw"]) == pytest.approx(time_s * watts, rel=0.15)
    assert (step["ReqCPUFreqMin"], step["ReqCPUFreqMax"]) == ("1.20G", "1.45G")
    node = step["NodeList"]
    assert testbed.cpufreq(node) == "2200000"  # restored


def test_threads_follow_the_request(testbed: Testbed) -> None:
    """simapp uses the CPUs it is bound to, and OMP_NUM_THREADS within them."""
    shape = ("-N1", "-n2", "-c4", "-C", "skylake")
    for env, threads in ({}, "8"), ({"OMP_NUM_THREADS": "3"}, "6"), ({"OMP_NUM_THREADS": "9"}, "8"):
        done = testbed.run(["srun", *shape, "simapp", "--scale", "0.1"], env=env)
        assert simapp_report(done.stdout)["threads_per_node"] == threads


def test_a_job_submitted_again_runs_again(testbed: Testbed) -> None:
    """The same script twice gives two jobs with equal results."""
    script = "srun simapp --kernel solver --scale 0.3\n"
    jobs = [testbed.sbatch("-C", "milan", "--exclusive", script=script) for _ in range(2)]
    assert [testbed.wait(job.job_id) for job in jobs] == ["COMPLETED"] * 2
    first, second = (simapp_report(testbed.output(job.job_id)) for job in jobs)
    assert first["time_s"] == second["time_s"]


def test_at_rest_the_accounting_has_every_job(testbed: Testbed) -> None:
    """It hears of a brief job seconds after squeue shows it no more."""
    ids = [testbed.sbatch("--wrap", "true").job_id for _ in range(5)]
    for job_id in ids:
        testbed.wait(job_id)
    testbed.rest()
    # Without a beginning sacct shows today's alone, at midnight none.
    since = ["-S", "now-1days", "-o", "JobIDRaw,State,Partition"]
    rows = testbed.run(["sacct", "-a", "-X", "-n", "-P", *since]).stdout
    assert {f"{job_id}|COMPLETED|batch" for job_id in ids} <= set(rows.splitlines())


def test_hooks_are_found_beside_slurm_conf(clean_testbed: Testbed) -> None:
    """A cli_filter.lua put into conf_dir acts on the next submission."""
    clean_testbed.install_hook(
        "cli_filter.lua",
        "function slurm_cli_setup_defaults(o, e) return slurm.SUCCESS end\n"
        'function slurm_cli_pre_submit(o, n) o["comment"] = "seen" return slurm.SUCCESS end\n'
        "function slurm_cli_post_submit(n, j, s) return slurm.SUCCESS end\n"
        "return slurm.SUCCESS\n",
    )
    job = clean_testbed.sbatch("--hold", "--wrap", "true", user="nobody")
    assert clean_testbed.scontrol_job(job.job_id)["Comment"] == "seen"


def test_the_controller_restarts_with_its_state(testbed: Testbed) -> None:
    """A held job survives a restart of slurmctld and runs when released."""
    job = testbed.sbatch("--hold", "--wrap", "true")
    testbed.restart_slurmctld()
    assert testbed.scontrol_job(job.job_id)["JobState"] == "PENDING"
    testbed.run(["scontrol", "release", str(job.job_id)])
    assert testbed.wait(job.job_id) == "COMPLETED"


# Life and death


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """start() does not touch a directory which is not a testbed's."""
    if reason := requirements():
        pytest.skip(reason)
    (tmp_path / "mine").touch()
    with pytest.raises(TestbedError, match="not empty"):
        Testbed(tmp_path).start()
    assert (tmp_path / "mine").exists()


def test_no_connection_and_no_other_cluster_takes_a_daemons_port(tmp_path: Path) -> None:
    """A port between its choice and its daemon's start is not given to a connection or a cluster.

    One slurmd of a cluster found its port used by an outgoing connection of another.
    """
    low, high = map(int, LOCAL_PORT_RANGE.read_text().split())
    claims, ports = [], []
    with contextlib.ExitStack() as opened:
        for _ in range(3):
            chosen, claim = claim_ports()
            opened.callback(claim.close)
            claims.append(claim.getsockname()[1])
            ports += [chosen.mariadb, chosen.slurmdbd, chosen.slurmctld, *chosen.slurmd.values()]
        assert len({*ports, *claims}) == 3 * (4 + len(NODES))
        assert not [port for port in ports if low <= port <= high]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", claims[0]))


def test_a_cluster_that_does_not_start_names_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is in the error: the folder of the logs may be gone when somebody reads it."""
    if reason := requirements():
        pytest.skip(reason)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))

        def chosen() -> tuple[Ports, socket.socket]:
            ports, claim = claim_ports()
            return replace(ports, slurmdbd=taken.getsockname()[1]), claim

        monkeypatch.setattr("testbed.cluster.claim_ports", chosen)
        with pytest.raises(TestbedError, match=r"slurmdbd ended: .*in use"):
            Testbed(tmp_path / "cluster").start()


def test_nothing_is_left_after_stop_or_after_a_killed_owner() -> None:
    """Jobs and daemons die with stop(), also when the process that started them was killed."""
    if reason := requirements():
        pytest.skip(reason)
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from testbed import Testbed\n"
        "t = Testbed(); t.start(); t.run(['sbatch', '--wrap', 'srun sleep 1000'])\n"
        "while not t.run(['squeue', '-h', '-t', 'R']).stdout: time.sleep(0.05)\n"
        "time.sleep(0.5); print(t.directory, flush=True); time.sleep(100)\n"
    )
    folder = str(Path(__file__).resolve().parent)
    with subprocess.Popen(
        [sys.executable, "-c", program, folder], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        directory = Path(owner.stdout.readline().strip())
        os.kill(owner.pid, signal.SIGKILL)
    orphan = Testbed(directory)
    living = orphan.processes()
    assert len(living) > len(NODE_TYPES) + 6  # daemons, nodes, and the job's own processes
    orphan.stop()
    orphan.stop()
    assert orphan.processes() == []
    assert [pid for pid in living if runs(pid)] == []
    orphan.stop(remove=True)
    assert not directory.exists()


def test_requirements_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root the reason says so in one sentence."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in str(requirements())
