"""The program that caps a shared job's own cores, with posed cgroups and a posed /sys.

Layouts are Slurm's: of cgroups of version 1 as 22.05 makes them (``tests/slurm/test_own_cores.py``
has a real one), of version 2 as its documentation and source have them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.test_node_cap_program import CAP, CPUS, HIGHEST, LOWEST, Node, obstacle

pytestmark = pytest.mark.skipif(bool(obstacle()), reason="needs root and mount namespaces")
PROGRAM = Path(__file__).resolve().parents[2] / "hooks/slurm/advisor-node-cores"
ENTER = """\
set -e
mount --make-rprivate /
mount --bind "$1/cpu" /sys/devices/system/cpu
mount -t tmpfs none /sys/fs/cgroup 2> /dev/null || true
mount --bind "$1/cgroup" /sys/fs/cgroup
mount --bind "$1/run" /run
mount --bind "$1/commands" /usr/sbin
for file in $READ_ONLY; do mount --bind "$file" "$file"; mount -o remount,ro,bind "$file"; done
folder=$1
shift
exec "$@"
"""
V1, V1_NAMED = "cpuset/slurm/uid_1000", "cpuset/slurm_n1/uid_1000"
V2, V2_NAMED = "system.slice/slurmstepd.scope", "system.slice/n1_slurmstepd.scope"
STEPS = {V1: "step_batch", V1_NAMED: "step_batch", V2: "step_0/user", V2_NAMED: "step_0/user"}


class SharedNode(Node):
    """A node with four cores that have clocks of their own, on which job 7 has the second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        shutil.rmtree(folder / "cpu")
        for cpu in range(4):
            self.cpu(cpu)
        (folder / "cgroup").mkdir()
        (folder / "commands/scontrol").write_text(
            "#!/bin/sh\n"
            '[ "$*" = "--details show job 7" ] && cat "$POSED/job"\n'
            '[ "$*" = "show hostnames n[1-2]" ] && printf "n1\\nn2\\n"\n'
        )
        self.allocation("1")
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.program = self.programs / "advisor-node-cap"
        for program in (PROGRAM.with_name(self.program.name), PROGRAM):
            shutil.copy(program, self.programs)
        self.patience("0.0, 0.0")

    def patience(self, text: str) -> None:
        """Have the program wait for so long, and pause so long in between, s; first only once."""
        self.patient = not text.startswith("0.0")
        program = self.programs / PROGRAM.name
        program.write_text(PROGRAM.read_text().replace("= 60.0, 0.2,", f"= {text},"))

    def cpu(self, number: int, cores: str = "", domain: str = "", **names: str) -> None:
        """Pose a CPU: the threads of its core, and what has its clock."""
        folder = self.folder / f"cpu/cpu{number}"
        policy = self.folder / f"cpu/cpufreq/policy{number}"
        (folder / "topology").mkdir(parents=True, exist_ok=True)
        (folder / "topology/thread_siblings_list").write_text(f"{cores or number}\n")
        self.clock(f"cpufreq/policy{number}")
        for name in ("related_cpus", "affected_cpus"):
            (policy / name).write_text(f"{domain or number}\n")
        for name, text in names.items():
            (policy / name).write_text(f"{text}\n")
        if not (folder / "cpufreq").exists():
            (folder / "cpufreq").symlink_to(f"../cpufreq/policy{number}")

    def allocation(self, cpus: str, *more: str, shares: str = "OK", nodes: str = "n1") -> None:
        lines = [f"Nodes={nodes} CPU_IDs={cpus} Mem=100 GRES=", *more]
        lines.append(f"OverSubscribe={shares} Contiguous=0")
        self.job(more="".join(f"     {line}\n" for line in lines))

    def bind(self, cpus: str, job: str = "7", where: str = V1, process: str = "11\n") -> Path:
        """Pose what Slurm bound a job to, and a process of it."""
        folder = self.folder / "cgroup" / where / f"job_{job}"
        step = folder / STEPS.get(where, "step_batch")
        step.mkdir(parents=True, exist_ok=True)
        (folder / "cpuset.cpus").write_text(f"{cpus}\n")
        (step / "cgroup.procs").write_text(process)
        return folder

    def command(self, *words: str, **variables: str) -> tuple[list[str], dict[str, str]]:
        env = {"PATH": os.environ["PATH"], "POSED": str(self.folder), "READ_ONLY": "", **variables}
        enter = ["unshare", "-m", "sh", "-c", ENTER, "sh", str(self.folder)]
        return [*enter, *words], env

    def run(self, when: str, *read_only: str, **variables: str) -> list[str]:
        """Run the prolog or epilog as slurmd does, and all that it leaves; return what was logged.

        Slurmd waits for the end of its output, and ends its process group.
        """
        names = {
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_ID": "7",
            "SLURM_SCRIPT_CONTEXT": f"{when}_slurmd",
        }
        command, env = self.command(str(self.program), **{**names, **variables})
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
        ) as process:
            assert process.stdout is not None and process.stdout.read() == b""
            assert process.wait() == 0
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if not self.patient:
            self.settle()
        return self.logged()

    def settle(self) -> None:
        """Wait until nothing that a prolog left waits any more."""
        while (
            self.waiting() or self.waiting()
        ):  # one that begins a program has no name for a moment
            time.sleep(0.01)

    def waiting(self) -> list[str]:
        """The jobs that wait for their cores.

        A process that one of them starts has its words, too, until it runs what it is for.
        """
        processes = Path("/proc").glob("[0-9]*/cmdline")
        lines = (words_of(path) for path in processes)
        ours = str(self.programs / PROGRAM.name)
        return sorted({line[-1] for line in lines if ours in line})

    def logged(self) -> list[str]:
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    @property
    def clocks(self) -> list[int]:
        files = (self.file(cpu) for cpu in range(4))
        return [int(file.read_text()) for file in files]

    def file(self, cpu: int) -> Path:
        return self.folder / f"cpu/cpufreq/policy{cpu}/scaling_max_freq"


def words_of(path: Path) -> list[str]:
    try:
        return path.read_text().rstrip("\0").split("\0")
    except OSError:
        return []


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SharedNode]:
    made = SharedNode(tmp_path)
    yield made
    shutil.rmtree(tmp_path / "run/advisor-caps", ignore_errors=True)  # nothing waits any longer
    made.settle()


REST = [HIGHEST] * 4
OWN = [HIGHEST, CAP, HIGHEST, HIGHEST]


def line(cpu: int, khz: int = HIGHEST) -> str:
    return f"{CPUS}/cpufreq/policy{cpu}/scaling_max_freq {khz}\n"


@pytest.mark.parametrize("where", STEPS)
def test_a_jobs_own_core_is_capped_and_as_before_behind_it(node: SharedNode, where: str) -> None:
    node.bind("1", where=where)
    node.bind("0", "8", where)
    assert node.run("prolog") == []
    assert (node.clocks, node.states) == (OWN, {"cores.7": line(1)})
    state = node.folder / "run/advisor-caps/n1/cores.7"
    assert state.stat().st_mode & 0o777 == 0o600
    assert node.run("epilog") == []
    assert (node.clocks, node.states) == (REST, {})


@pytest.mark.parametrize("shares", ["OK", "USER", "MCS"])
def test_however_it_shares_its_node_its_cores_are_its_own(node: SharedNode, shares: str) -> None:
    node.allocation("1", shares=shares)
    node.bind("1")
    assert node.run("prolog") == [] and node.clocks == OWN


@pytest.mark.parametrize(
    "shares", ["YES", "NO", "TOPO", "OKAY", "YES Contiguous=0\n OverSubscribe=OK"]
)
def test_cores_that_others_may_have_too_are_not_capped(node: SharedNode, shares: str) -> None:
    node.queue("7 OK")
    node.allocation("1", "OverSubscribe=OK Contiguous=0", shares=shares)  # as its owner may write
    node.bind("1")
    assert node.run("prolog") == []
    assert (node.clocks, node.states) == (REST, {})


@pytest.mark.parametrize(
    ("allocated", "cpus", "why"),
    [
        ("1", "0-3", "its cpuset 0-3 is not the 1 CPUs of its allocation"),
        ("1-2", "1", "its cpuset 1 is not the 2 CPUs of its allocation"),
        ("1", "", "Slurm bound it to no cores of its own"),
        ("1", None, "Slurm bound it to no cores of its own"),
    ],
)
def test_a_cpuset_that_is_not_the_allocation_caps_nothing(
    node: SharedNode, allocated: str, cpus: str | None, why: str
) -> None:
    node.allocation(allocated)
    if cpus is not None:
        node.bind(cpus, where=V2)
    assert node.run("prolog") == [f"job 7: runs without its cap: {why}"]
    assert (node.clocks, node.states) == (REST, {})


@pytest.mark.parametrize(
    "more",
    [["Nodes=n1 CPU_IDs=1 Mem=1 GRES="], ["Nodes=n[1-2] CPU_IDs=0-3 Mem=1 GRES="]],
)
def test_an_allocation_that_its_owner_may_have_written_caps_nothing(
    node: SharedNode, more: Sequence[str]
) -> None:
    node.allocation("1", *more)
    node.bind("1")
    said = "job 7: runs without its cap: its allocation on this node is not clear"
    assert node.run("prolog") == [said] and node.clocks == REST


def test_a_job_of_several_nodes_has_its_own_allocation_on_each(node: SharedNode) -> None:
    node.allocation("0-1", "Nodes=n3 CPU_IDs=2 Mem=1 GRES=", nodes="n[1-2]")
    node.bind("1,3")
    assert node.run("prolog") == []
    assert node.clocks == [HIGHEST, CAP, HIGHEST, CAP], "its machine's CPUs, not those of a list"
    node.run("epilog")
    node.allocation("0", nodes="n[2-3]")
    (said,) = node.run("prolog")
    assert "not clear" in said or "not known" in said


def test_lines_that_are_no_node_list_are_none(node: SharedNode) -> None:
    """What is asked for is a list, no option, whoever wrote it."""
    node.allocation("1", "Nodes=-vn[1-2] CPU_IDs=1 Mem=1 GRES=", "Nodes=$(x) CPU_IDs=1 Mem=1 GRES=")
    node.bind("1")
    assert node.run("prolog") == [] and node.clocks == OWN


def test_no_cap_before_a_process_of_the_job_is_bound(node: SharedNode) -> None:
    node.bind("1", process="")
    assert node.run("prolog") == ["job 7: runs without its cap: no process of it was seen"]
    assert node.clocks == REST


def test_a_cgroup_that_another_than_root_can_change_is_none(node: SharedNode) -> None:
    folder = node.bind("1")
    os.chown(folder, 1, 1)
    (said,) = node.run("prolog")
    assert "no cores of its own" in said and node.clocks == REST


@pytest.mark.parametrize("where", STEPS)
@pytest.mark.parametrize("cpus", ["1", "0-3", ""])
def test_cores_of_which_another_job_has_some_are_not_capped(
    node: SharedNode, cpus: str, where: str
) -> None:
    node.bind("1")
    node.bind(cpus, "8", where)
    assert node.run("prolog") == ["job 7: runs without its cap: job 8 may run on its cores, too"]
    assert (node.clocks, node.states) == (REST, {})


def test_a_core_with_threads_of_two_jobs_is_not_capped(node: SharedNode) -> None:
    for cpu, cores in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        node.cpu(cpu, cores)
    node.allocation("0-2")
    node.bind("1-3")
    assert node.run("prolog") == [
        "job 7: 1 of its 3 CPUs have no clock of their own: they run without its cap"
    ]
    assert node.clocks == [HIGHEST, CAP, HIGHEST, CAP]


def test_an_allocation_may_be_counted_in_cores(node: SharedNode) -> None:
    for cpu, cores in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        node.cpu(cpu, cores)
    node.allocation("0")
    node.bind("1,3")
    assert node.run("prolog") == [] and node.clocks == [HIGHEST, CAP, HIGHEST, CAP]
    node.run("epilog")
    node.allocation("0-1")  # two threads of different cores: as many as its CPUs
    node.bind("0-1")
    (said,) = node.run("prolog")
    assert "2 of its 2 CPUs have no clock of their own" in said and node.clocks == REST
    node.bind("0-2")  # of as many cores, but not with all of their threads
    (said,) = node.run("prolog")
    assert "its cpuset 0-2 is not the 2 CPUs of its allocation" in said and node.clocks == REST


@pytest.mark.parametrize(
    "names",
    [
        {"domain": "0 1"},
        {"related_cpus": "0 1"},
        {"affected_cpus": "1 3"},
        {"freqdomain_cpus": "0 1 2 3"},
        {"related_cpus": ""},
        {"cores": "1-2"},
        {"domain": "1 9"},  # of an unplugged one
    ],
)
def test_a_clock_that_other_cores_have_too_is_not_capped(
    node: SharedNode, names: dict[str, str]
) -> None:
    node.cpu(1, **names)
    node.bind("1")
    said = "job 7: 1 of its 1 CPUs have no clock of their own: they run without its cap"
    assert node.run("prolog") == [said]
    assert (node.clocks, node.states) == (REST, {})


def test_a_clock_whose_cores_threads_are_not_known_is_not_capped(node: SharedNode) -> None:
    node.cpu(1, domain="1 2")
    (node.folder / "cpu/cpu2/topology/thread_siblings_list").unlink()
    node.allocation("0-1")
    node.bind("1-2")
    said = "job 7: 2 of its 2 CPUs have no clock of their own: they run without its cap"
    assert node.run("prolog") == [said] and node.clocks == REST


def test_a_clock_that_all_its_cores_have_is_capped_once(node: SharedNode) -> None:
    node.cpu(1, domain="1 2", freqdomain_cpus="1 2")
    for name in ("policy2", "../cpu2"):
        shutil.rmtree(node.folder / "cpu/cpufreq" / name)
    topology = node.folder / "cpu/cpu2/topology"
    topology.mkdir(parents=True)
    (topology / "thread_siblings_list").write_text("2\n")
    node.allocation("0-1")
    node.bind("1-2")
    assert node.run("prolog") == []
    assert node.states == {"cores.7": line(1)} and node.file(1).read_text() == f"{CAP}\n"


@pytest.mark.parametrize(("cap", "then"), [(LOWEST - 1, LOWEST), (HIGHEST - 1, HIGHEST - 1)])
def test_a_cap_is_between_the_clocks_ends(node: SharedNode, cap: int, then: int) -> None:
    node.allocation("1")
    text = (node.folder / "job").read_text()
    (node.folder / "job").write_text(text.replace(str(CAP), str(cap)))
    node.bind("1")
    node.run("prolog")
    assert node.clocks[1] == then


def test_a_cap_above_what_stands_there_changes_nothing(node: SharedNode) -> None:
    node.clock("cpufreq/policy1", CAP)
    node.bind("1")
    assert node.run("prolog") == ["job 7: no frequency can be set here: it runs without its cap"]
    assert node.clocks == OWN and node.states == {}


def test_nothing_is_capped_while_a_step_holds_its_clock(node: SharedNode) -> None:
    order = node.folder / "order"
    order.write_text(f"1 2 {CAP}\nn1 1\n{line(1).strip()} {LOWEST}\n")
    node.bind("1")
    node.file(1).write_text("1500000\n")
    node.keep(".waits.7", order.read_text())
    states = "/run/advisor-caps/n1"
    command, env = node.command(str(node.programs / PROGRAM.name), states, "n1", "7")
    subprocess.run(command, env=env, check=True)
    assert node.logged() == [
        "job 7: runs without its cap: a step of it holds the clock of its cores"
    ]
    assert (node.clocks[1], node.states) == (1_500_000, {})


def test_a_clock_that_takes_no_cap_is_named(node: SharedNode) -> None:
    node.bind("1")
    file = line(1).split()[0]
    assert node.run("prolog", READ_ONLY=file) == [f"job 7: {file} takes no cap"]
    assert node.states == {"cores.7": line(1)} and node.clocks == REST
    said = f"job 7: its cap could not be lifted: {file}"
    assert node.run("epilog", READ_ONLY=file) == [said] and set(node.states) == {"cores.7"}


def test_anothers_cap_that_cannot_be_lifted_is_named_and_stays_known(node: SharedNode) -> None:
    node.job("", "     Nodes=n1 CPU_IDs=0 Mem=1 GRES=\n")
    node.bind("1", "5")
    node.keep("cores.5", line(1))
    node.bind("1")
    file = line(1).split()[0]
    said = f"job 7: another job's cap could not be lifted: {file}"
    assert node.run("prolog", READ_ONLY=file) == [said] and set(node.states) == {"cores.5"}


def test_a_job_that_has_one_core_of_anothers_lifts_all_of_its_caps(node: SharedNode) -> None:
    node.job("", "     Nodes=n1 CPU_IDs=0 Mem=1 GRES=\n")
    node.bind("1-2", "5")
    node.bind("3", "6")
    node.keep("cores.5", line(1) + line(2))
    node.keep("cores.6", line(3))
    for cpu in (1, 2, 3):
        node.file(cpu).write_text(f"{CAP}\n")
    node.bind("1")
    assert node.run("prolog") == []
    assert node.clocks == [HIGHEST, HIGHEST, HIGHEST, CAP] and set(node.states) == {"cores.6"}
    (node.folder / "cpu/cpufreq/policy3/related_cpus").unlink()  # what has it is not known
    node.run("prolog")
    assert (node.clocks, node.states) == (REST, {})


def test_a_step_that_holds_its_clock_is_waited_for(node: SharedNode) -> None:
    node.patience("60.0, 0.01")
    folder = node.bind("1", process="")
    node.run("prolog")
    node.file(1).write_text("1500000\n")
    (folder / "step_batch/cgroup.procs").write_text("11\n")
    assert node.waiting() == ["7"] and node.clocks[1] == 1_500_000
    node.file(1).write_text(f"{HIGHEST}\n")
    node.settle()
    assert (node.clocks, node.logged()) == (OWN, [])
    assert node.states == {"cores.7": line(1)}, "what stood there before its step"


def test_the_end_of_a_job_ends_what_waits_for_it(node: SharedNode) -> None:
    node.patience("60.0, 0.01")
    assert node.run("prolog") == []
    assert node.waiting() == ["7"] and set(node.states) == {".waits.7"}
    assert node.run("epilog") == []
    node.settle()
    node.bind("1")
    assert (node.clocks, node.states, node.logged()) == (REST, {}, [])


def test_a_requeued_job_is_another_one(node: SharedNode) -> None:
    node.patience("60.0, 0.01")
    node.run("prolog")
    node.allocation("0-1")
    node.run("prolog")  # of its second start: no epilog ran
    node.bind("2-3")
    node.settle()
    assert node.clocks == [HIGHEST, HIGHEST, CAP, CAP]
    assert (node.logged(), set(node.states)) == ([], {"cores.7"})


def test_a_lock_that_is_held_keeps_it_waiting_and_does_not_stop_the_job(node: SharedNode) -> None:
    node.patience("60.0, 0.01")
    states = node.folder / "run/advisor-caps/n1"
    node.run("prolog")
    number = os.open(states, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    node.bind("1")
    time.sleep(0.1)
    assert node.clocks == REST and node.waiting() == ["7"]
    os.close(number)
    node.settle()
    assert node.clocks == OWN


def test_an_epilog_waits_for_who_caps_just_now(node: SharedNode) -> None:
    node.keep("cores.7", line(1))
    node.file(1).write_text(f"{CAP}\n")
    number = os.open(node.folder / "run/advisor-caps/n1", os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        epilog = pool.submit(node.run, "epilog")
        time.sleep(0.3)
        assert node.clocks == OWN
        os.close(number)
        assert epilog.result() == []
    assert (node.clocks, node.states) == (REST, {})


def test_the_controller_is_asked_without_the_lock(node: SharedNode) -> None:
    node.keep("cores.6", line(1))
    (node.folder / "commands/scontrol").write_text(
        "#!/bin/sh\nflock --nonblock /run/advisor-caps/n1 true && echo free >> $POSED/log\n"
    )
    assert node.run("prolog") == ["free"] and node.states == {}


def test_a_killed_one_leaves_what_the_epilog_lifts(node: SharedNode) -> None:
    node.keep("cores.7", line(1))
    node.keep(".waits.7", "1 2 1800000\n")
    node.file(1).write_text(f"{CAP}\n")
    assert node.run("epilog") == []
    assert (node.clocks, node.states) == (REST, {})


def test_a_prolog_lifts_what_ended_jobs_left_and_nothing_of_running_ones(node: SharedNode) -> None:
    node.job("")
    node.bind("0", "5", V2)
    for job, cpu in (("5", 0), ("6", 1), ("7", 2)):
        node.keep(f"cores.{job}", line(cpu))
        node.file(cpu).write_text(f"{CAP}\n")
    node.bind("3")
    node.allocation("0")
    node.job("", (node.folder / "job").read_text().partition("AdminComment")[0])
    assert node.run("prolog") == []
    assert node.clocks == [CAP, HIGHEST, HIGHEST, HIGHEST]
    assert node.states == {"cores.5": line(0)}


@pytest.mark.parametrize("cap", ["", f'advisor:{{"cap":{CAP}}}'])
def test_a_job_lifts_others_caps_on_cores_that_it_got(node: SharedNode, cap: str) -> None:
    """As of a job that it preempted: that is suspended, and has its processes still."""
    node.allocation("0")
    node.job(cap, (node.folder / "job").read_text().partition("AdminComment")[0])
    node.bind("1", "5")
    node.bind("2", "6")
    for job, cpu in (("5", 1), ("6", 2)):
        node.keep(f"cores.{job}", line(cpu))
        node.file(cpu).write_text(f"{CAP}\n")
    node.bind("1")
    said = node.run("prolog")
    assert said == ["job 7: runs without its cap: job 5 may run on its cores, too"] * bool(cap)
    assert node.clocks == [HIGHEST, HIGHEST, CAP, HIGHEST] and set(node.states) == {"cores.6"}


def test_a_job_whose_cores_are_not_known_lifts_all_caps(node: SharedNode) -> None:
    node.job("")
    node.bind("1", "5")
    node.keep("cores.5", line(1))
    node.file(1).write_text(f"{CAP}\n")
    assert node.run("prolog") == []
    assert (node.clocks, node.states) == (REST, {})


def test_jobs_that_begin_and_end_one_after_the_other_lift_their_own(node: SharedNode) -> None:
    node.bind("1")
    node.run("prolog")
    node.bind("2", "8")
    text = (node.folder / "job").read_text()
    (node.folder / "commands/scontrol").write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\n")
    node.run("prolog", SLURM_JOB_ID="8")
    assert node.clocks == [HIGHEST, CAP, CAP, HIGHEST]
    node.run("epilog")
    assert node.clocks == [HIGHEST, HIGHEST, CAP, HIGHEST]
    node.run("epilog", SLURM_JOB_ID="8")
    assert (node.clocks, node.states) == (REST, {})


@pytest.mark.parametrize("text", ["x", "1-", "1;2", "0-99999999999"])
def test_a_broken_cpuset_caps_nothing(node: SharedNode, text: str) -> None:
    node.bind(text)
    (said,) = node.run("prolog")
    why = "no CPU: " + text if text.startswith("0-") else "advisor-node-cores failed: ValueError"
    assert said.startswith("job 7: ") and why in said
    assert node.clocks == REST and "cores.7" not in node.states


def test_without_the_program_beside_it_a_line_says_so(node: SharedNode) -> None:
    (node.programs / PROGRAM.name).chmod(0o644)
    node.bind("1")
    (said,) = node.run("prolog")
    assert said.startswith("job 7: runs without its cap: no ") and node.clocks == REST
    node.job("")
    node.bind("0", "5")
    node.keep("cores.5", line(0))
    assert node.run("prolog") == [], "a job without a cap has nothing to say"


def test_a_link_to_the_prolog_finds_it(node: SharedNode) -> None:
    link = node.folder / "prolog.d"
    link.mkdir()
    node.program = link / "50-cap"
    node.program.symlink_to("../programs/advisor-node-cap")
    node.bind("1")
    assert node.run("prolog") == [] and node.clocks == OWN


def test_a_job_with_its_node_for_itself_is_capped_at_once_and_lifts_what_was_left(
    node: SharedNode,
) -> None:
    node.allocation("0-3", shares="NO")
    node.keep("cores.5", line(1, HIGHEST - 1))
    node.patience("60.0, 0.01")
    assert node.run("prolog") == []
    assert node.clocks == [CAP] * 4 and set(node.states) == {"7"}
    node.run("epilog")
    assert node.clocks == [HIGHEST, HIGHEST - 1, HIGHEST, HIGHEST]


def test_it_reads_no_environment_of_the_jobs(node: SharedNode) -> None:
    own = node.folder / "own"
    own.mkdir()
    (own / "glob.py").write_text(f"open({str(node.folder / 'ran')!r}, 'w')\n")
    node.bind("1")
    node.run("prolog", PYTHONPATH=str(own), PYTHONSTARTUP=str(own / "glob.py"))
    assert node.clocks == OWN and not (node.folder / "ran").exists()


@pytest.fixture
def program() -> ModuleType:
    """The program's functions, for what no job can be made to meet at the right moment."""
    module = ModuleType("advisor_node_cores")
    exec(compile(PROGRAM.read_text(), str(PROGRAM), "exec"), vars(module))  # no bytecode beside it
    return module


def test_an_order_that_its_jobs_end_took_is_none(program: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(program.NotYet, match="it has ended"):
        program.Order(str(tmp_path), "7")
    clock = tmp_path / "scaling_max_freq"
    clock.write_text("2200000\n")
    order_file = tmp_path / ".waits.7"
    order_file.write_text(f"cap 7 1500000\nn1 1\n{clock} 2200000 1200000\n")
    order = program.Order(str(tmp_path), "7")
    assert order.stands()
    order_file.unlink()
    assert not order.stands()
    assert not program.carry_out(order, str(tmp_path), "n1", "7", 1, False)
    assert clock.read_text() == "2200000\n" and not list(tmp_path.glob("cores.*"))


def test_an_order_stands_and_others_keep_their_caps_until_the_last_time(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program, "BOUND", ())  # the job is bound to nothing
    clock, order_file, state = (tmp_path / n for n in ("scaling_max_freq", ".waits.7", "cores.5"))
    clock.write_text(f"{CAP}\n")
    order_file.write_text(f"cap 7 1500000\nn1 1\n{clock} {HIGHEST} {LOWEST}\n")
    state.write_text(f"{clock} {HIGHEST}\n")
    order = program.Order(str(tmp_path), "7")
    assert program.carry_out(order, str(tmp_path), "n1", "7", 1, False) == program.UNBOUND
    assert order.stands() and state.exists() and clock.read_text() == f"{CAP}\n"
    assert program.carry_out(order, str(tmp_path), "n1", "7", 1, True) == program.UNBOUND
    assert not order.stands() and not state.exists() and clock.read_text() == f"{HIGHEST}\n"


def test_a_node_without_a_log_loses_a_line_and_nothing_else(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program.say("7", "runs without its cap")


def test_a_controller_that_answers_too_late_leaves_the_allocation_unclear(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\n[ -e $0.late ] && sleep 3\nprintf 'n1\\nn2\\n'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(program, "ANSWER_S", 60.0)
    assert program.allocated("n1", [("n[1-2]", "0-3")]) == 4
    (tmp_path / "scontrol.late").touch()
    monkeypatch.setattr(program, "ANSWER_S", 0.2)
    assert program.allocated("n1", [("n[1-2]", "0-3")]) == 0
