"""On a real Slurm: the prolog that caps whole nodes, also for what srun does not start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import NODE_TYPES, Testbed, requirements
from testbed.daemons import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "hooks/slurm/advisor-node-cap"
BDW = NODE_TYPES["bdw"]
HIGHEST, CAP = BDW.frequencies_khz[-1], 1_800_000
SHOW = "cat /sys/devices/system/cpu/cpu{0,27}/cpufreq/scaling_max_freq\n"
WHOLE = ("-N1", "--exclusive", "-p", "broadwell")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Testbed]:
    """A cluster whose nodes run the program as prolog and epilog."""
    if reason := requirements():
        pytest.skip(reason)
    lines = f"Prolog={PROGRAM}\nEpilog={PROGRAM}\nPrologFlags=Alloc\n"
    lines += "PartitionName=shared Nodes=bdw[1-4] DefaultTime=5\n"
    with Testbed(lua_hooks=False, more_configuration=lines) as made:
        yield made


def submit(cluster: Testbed, comment: str, *options: str, script: str = SHOW) -> int:
    """Submit a job under an admin comment, as root: nobody else can write one."""
    job = cluster.sbatch("--hold", *options, script=script).job_id
    cluster.run(["scontrol", "update", f"JobId={job}", f"AdminComment={comment}"])
    cluster.run(["scontrol", "release", str(job)])
    return job


def run(cluster: Testbed, comment: str, *options: str, script: str = SHOW) -> tuple[str, list[int]]:
    """Run a job; return its state and the frequencies that it saw, kHz."""
    job = submit(cluster, comment, *options, script=script)
    state = cluster.wait(job)
    return state, [int(word) for word in cluster.output(job).split() if word.isdecimal()]


def stamp(cap: object) -> str:
    return f'advisor:{{"v":1,"chg":1,"cap":{cap},"t":[1,2]}}'


def at_rest(cluster: Testbed) -> bool:
    """Whether each posed node has its highest frequency again."""
    cluster.rest()
    return all(cluster.cpufreq(f"bdw{n}") == str(HIGHEST) for n in range(1, 5))


def test_a_job_without_srun_is_capped_and_its_node_is_as_before_behind_it(cluster: Testbed) -> None:
    assert run(cluster, stamp(CAP), *WHOLE) == ("COMPLETED", [CAP, CAP])
    assert at_rest(cluster)


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "advisor:",
        '{"cap":1800000}',
        stamp(1),
        stamp(99999999),
        stamp('"1800000"'),
        stamp("1800000; touch /tmp/x"),
        'advisor:{"v":1} "cap":1800000',
        stamp(HIGHEST),
    ],
)
def test_what_is_no_cap_of_the_advisors_changes_nothing(cluster: Testbed, comment: str) -> None:
    assert run(cluster, comment, *WHOLE) == ("COMPLETED", [HIGHEST, HIGHEST])


def test_a_job_that_may_share_its_node_is_never_capped(cluster: Testbed) -> None:
    name = f"-Jx NO {stamp(CAP)}"  # what a user may write
    for options in (("-n1",), ("-n28",), ("-n1", name), ("-n1", "--comment=NO " + stamp(CAP))):
        state, seen = run(cluster, stamp(CAP), "-p", "shared", "--mem=100", *options)
        assert (state, set(seen)) == ("COMPLETED", {HIGHEST})


def test_two_nodes_are_capped_before_the_script_begins(cluster: Testbed) -> None:
    script = f"{SHOW}srun -N2 -n2 {SHOW}"
    state, seen = run(cluster, stamp(CAP), "-N2", *WHOLE[1:], script=script)
    assert (state, set(seen), len(seen)) == ("COMPLETED", {CAP}, 6)
    assert at_rest(cluster)


def test_a_step_of_srun_stays_below_the_cap_and_its_end_lifts_nothing(cluster: Testbed) -> None:
    lower = f"srun -n1 --cpu-freq={BDW.min_khz}-1500000 {SHOW}"
    script = f"{SHOW}srun -n1 {SHOW}{SHOW}{lower}{SHOW}"
    same = f"--cpu-freq={BDW.min_khz}-{CAP}"  # as the advisor writes it beside the stamp
    state, seen = run(cluster, stamp(CAP), *WHOLE, same, script=script)
    assert (state, seen[::2]) == ("COMPLETED", [CAP, CAP, CAP, 1_500_000, CAP])
    assert at_rest(cluster)
    assert cluster.cpufreq("bdw1", "scaling_min_freq") == str(BDW.min_khz)


def test_the_end_of_a_job_lifts_what_a_killed_step_left(cluster: Testbed) -> None:
    script = f"srun -n1 --cpu-freq={BDW.min_khz}-1500000 sleep 60"
    job = submit(cluster, stamp(CAP), *WHOLE, "-w", "bdw1", script=script)
    wait_until(lambda: cluster.cpufreq("bdw1") == "1500000", 60, "the cap of its step")
    steps = [p for p in Path("/proc").glob("[0-9]*/cmdline") if title_of(p) == f"[{job}.0]"]
    for path in steps:
        os.kill(int(path.parent.name), signal.SIGKILL)
    assert steps
    cluster.run(["scancel", str(job)])
    assert at_rest(cluster)


def title_of(path: Path) -> str:
    """Return which step a process of Slurm's says it is, "" of others."""
    try:
        words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace").split()
    except OSError:
        return ""
    return words[1] if words[:1] == ["slurmstepd:"] else ""


@pytest.mark.parametrize("how", ["failed", "cancelled", "requeued"])
def test_however_a_job_ends_its_node_is_as_before(cluster: Testbed, how: str) -> None:
    script = "exit 3" if how == "failed" else "sleep 60"
    job = submit(cluster, stamp(CAP), *WHOLE, "--requeue", script=script)
    if how == "failed":
        assert cluster.wait(job) == "FAILED"
        assert at_rest(cluster)
        return
    wait_until(lambda: cluster.scontrol_job(job)["JobState"] == "RUNNING", 60, "its start")
    node = cluster.scontrol_job(job)["NodeList"]
    wait_until(lambda: cluster.cpufreq(node) == str(CAP), 60, "its cap")
    if how == "requeued":
        cluster.run(["scontrol", "requeuehold", str(job)])
    cluster.run(["scancel", str(job)])
    assert at_rest(cluster)


def test_the_next_job_lifts_what_no_epilog_lifted_and_nothing_else(cluster: Testbed) -> None:
    state = cluster.directory / "nodes" / "bdw1" / "caps" / "bdw1" / "7"
    file = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    state.write_text(f"{file} {HIGHEST - 1}\n/etc/hostname 5\n{file}/../x 5\n{file} x\n")
    assert run(cluster, "", *WHOLE, "-w", "bdw1")[1] == [HIGHEST - 1, HIGHEST]
    assert not state.exists()


def test_no_node_was_drained(cluster: Testbed) -> None:
    cluster.rest()
    assert set(cluster.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()) == {"idle"}
