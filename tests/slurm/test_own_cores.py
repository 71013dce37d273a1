"""On a real Slurm that binds jobs by real cpusets: caps of a shared job's own cores.

A node poses 28 cores, of which the two that this machine has can be bound: two jobs share it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_node_cap import CAP, HIGHEST, PROGRAM, stamp, submit
from testbed import Testbed, requirements
from testbed.daemons import wait_until

ONE = ("-p", "shared", "-n1", "-w", "bdw1", "--mem=100")
CPUSETS = Path("/sys/fs/cgroup/cpuset")
OWN = "/sys/devices/system/cpu/cpu$(awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status)"
SHOW = f"cat {OWN}/cpufreq/scaling_max_freq"
UNTIL = f"for i in {{1..600}}; do (($({SHOW}) == {CAP})) && break; sleep 0.1; done\n"
"""Waits for the cap, a minute at most."""


def without_cpusets() -> str:
    """Return why no Slurm can bind jobs by real cpusets here, "" where it can."""
    if reason := requirements():
        return reason
    if not (CPUSETS / "cpuset.cpus").exists() or len(os.sched_getaffinity(0)) < 2:
        return "needs cpusets of version 1, and two cores"
    return ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Testbed]:
    """A cluster whose nodes run the program, and bind jobs to their cores."""
    if reason := without_cpusets():
        pytest.skip(reason)
    lines = f"Prolog={PROGRAM}\nEpilog={PROGRAM}\nPrologFlags=Contain\n"
    lines += "PartitionName=shared Nodes=bdw[1-4] DefaultTime=5\n"
    lines += "PartitionName=forced Nodes=bdw[1-4] DefaultTime=5 OverSubscribe=FORCE:2\n"
    with Testbed(lua_hooks=False, more_configuration=lines, bound=True) as made:
        yield made


def clocks(cluster: Testbed) -> list[str]:
    """Return what stands on the clocks of the two real cores, and of one that is posed."""
    return [cluster.cpufreq("bdw1", cpu=cpu) for cpu in (0, 1, 2)]


def at_rest(cluster: Testbed) -> bool:
    """Whether the node is as before, and nothing is kept of its jobs."""
    cluster.rest()
    kept = list((cluster.directory / "nodes/bdw1/caps/bdw1").iterdir())
    return clocks(cluster) == [str(HIGHEST)] * 3 and kept == []


def running(cluster: Testbed, comment: str, script: str = "sleep 60", *options: str) -> int:
    """Start a job and wait until it runs."""
    job = submit(cluster, comment, *ONE, *options, script=script)
    wait_until(lambda: cluster.scontrol_job(job)["JobState"] == "RUNNING", 60, "its start")
    return job


def cpu_of(cluster: Testbed, job: int) -> int:
    """Return the CPU to which Slurm bound a job, as its cgroup says."""
    pattern = f"{cluster.directory.name}/slurm_bdw1/uid_*/job_{job}/step_*/cpuset.cpus"
    wait_until(lambda: any(CPUSETS.glob(pattern)), 60, "its cpuset")
    (cpus,) = {file.read_text().strip() for file in CPUSETS.glob(pattern)}
    return int(cpus)


def is_capped(cluster: Testbed, cpu: int) -> bool:
    return clocks(cluster)[cpu] == str(CAP)


def test_of_two_jobs_on_a_node_one_is_capped_and_the_other_never(cluster: Testbed) -> None:
    seen = f"for i in {{1..40}}; do {SHOW}; sleep 0.1; done"
    other = running(cluster, "", seen)
    job = running(cluster, stamp(CAP), f"{UNTIL}{SHOW}\nsleep 1\n{SHOW}")
    assert cluster.wait(job) == cluster.wait(other) == "COMPLETED"
    assert cluster.output(job).split() == [str(CAP)] * 2
    assert set(cluster.output(other).split()) == {str(HIGHEST)}
    assert at_rest(cluster)


def test_each_of_two_capped_jobs_lifts_its_own(cluster: Testbed) -> None:
    first, second = running(cluster, stamp(CAP)), running(cluster, stamp(CAP))
    cpus = cpu_of(cluster, first), cpu_of(cluster, second)
    assert set(cpus) == {0, 1}
    wait_until(lambda: all(is_capped(cluster, cpu) for cpu in cpus), 60, "both caps")
    cluster.run(["scancel", str(first)])
    wait_until(lambda: not is_capped(cluster, cpus[0]), 60, "the end of the first")
    assert is_capped(cluster, cpus[1]) and clocks(cluster)[2] == str(HIGHEST)
    third = running(cluster, "")
    assert cpu_of(cluster, third) == cpus[0] and not is_capped(cluster, cpus[0])
    assert is_capped(cluster, cpus[1])
    cluster.run(["scancel", str(second), str(third)])
    assert at_rest(cluster)


@pytest.mark.parametrize("how", ["cancelled", "killed", "requeued"])
def test_however_a_job_ends_its_cores_are_as_before(cluster: Testbed, how: str) -> None:
    job = running(cluster, stamp(CAP), "sleep 60", "--requeue")
    cpu = cpu_of(cluster, job)
    wait_until(lambda: is_capped(cluster, cpu), 60, "its cap")
    if how == "killed":
        cluster.run(["scancel", "--signal=KILL", "--full", str(job)])
        assert cluster.wait(job) != "RUNNING"
    elif how == "requeued":
        cluster.run(["scontrol", "requeue", str(job)])
        wait_until(lambda: cluster.scontrol_job(job)["Restarts"] == "1", 60, "its requeue")
        cluster.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=False)
    cluster.run(["scancel", str(job)])
    assert at_rest(cluster)


def test_a_job_that_ends_at_once_leaves_nothing(cluster: Testbed) -> None:
    for _ in range(3):  # two at a time: it has no more real cores
        jobs = [submit(cluster, stamp(CAP), *ONE, script="true") for _ in range(2)]
        assert {cluster.wait(job) for job in jobs} == {"COMPLETED"}
        cluster.rest()
    assert at_rest(cluster)


def test_a_step_with_a_cap_of_its_own_is_as_it_says_and_lifts_nothing(cluster: Testbed) -> None:
    step = f"srun -n1 --cpu-freq=1200000-1500000 {SHOW}"
    job = running(cluster, stamp(CAP), f"{UNTIL}{step}\n{SHOW}")
    assert cluster.wait(job) == "COMPLETED"
    assert cluster.output(job).split()[-1] == str(CAP)
    assert at_rest(cluster)


def test_a_job_whose_cores_others_may_have_too_is_not_capped(cluster: Testbed) -> None:
    options = ("-p", "forced", *ONE[2:])
    job = submit(cluster, stamp(CAP), *options, script=f"sleep 2\n{SHOW}")
    assert cluster.wait(job) == "COMPLETED"
    assert cluster.output(job).split() == [str(HIGHEST)]


def test_a_suspended_jobs_cap_does_not_hold_who_gets_its_core(cluster: Testbed) -> None:
    """Slurm gives the cores of a job that an administrator suspends to others."""
    first, second = running(cluster, stamp(CAP)), running(cluster, "")
    cpu = cpu_of(cluster, first)
    wait_until(lambda: is_capped(cluster, cpu), 60, "its cap")
    cluster.run(["scontrol", "suspend", str(first)])
    third = running(cluster, stamp(CAP), f"sleep 2\n{SHOW}")
    assert cpu_of(cluster, third) == cpu
    wait_until(lambda: not is_capped(cluster, cpu), 60, "the cap to be lifted")
    assert cluster.wait(third) == "COMPLETED"
    assert cluster.output(third).split() == [str(HIGHEST)], "two jobs are bound to its core"
    cluster.run(["scontrol", "resume", str(first)])
    cluster.run(["scancel", str(first), str(second)])
    assert at_rest(cluster)


def test_what_waits_may_be_killed(cluster: Testbed) -> None:
    """Its job then runs uncapped, and nothing stays of it."""
    job = submit(cluster, stamp(CAP), *ONE, script="sleep 60")
    waiting: list[int] = []

    def seen() -> bool:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[-2:-1] == [str(job).encode()] and b"advisor-node-cores" in words[2]:
                os.kill(int(file.parent.name), signal.SIGKILL)
                waiting.append(job)
        return bool(waiting) or is_capped(cluster, 0) or is_capped(cluster, 1)

    wait_until(seen, 60, "what waits for its cores")
    cluster.run(["scancel", str(job)])
    assert at_rest(cluster)


def test_no_node_was_drained(cluster: Testbed) -> None:
    cluster.rest()
    assert set(cluster.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()) == {"idle"}
