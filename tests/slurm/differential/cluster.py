"""The site the shapes are tried on: a posed cluster, an advisor free to change all it may."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from advised import AdvisedSite
from testbed import NODE_TYPES, Testbed, TestbedError, predict
from testbed.law import NodeType

HERE = Path(__file__).resolve().parent
PROGRAMS = ("app", "pool", "uncounted", "packed", "pre", "post", "other")
#: What starts programs, or stands in front of them, as far as it depends on the job.
LAUNCHERS = ("mpirun", "torchrun", "perf")
#: The programs with a model, by the one name that program and application have.
MODELLED = PROGRAMS[:4]
USERS = ("nobody", "daemon")
RUNS_AT_ONCE = "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,bf_continue"
RUNS_NOTHING = (
    "defer,batch_sched_delay=86400,sched_interval=-1,sched_min_interval=2000000000,"
    "bf_interval=-1,default_queue_depth=0"
)
#: As strong as a policy can be: what the advisor may change at all, it changes.
POLICY = """\
version: 1
mode: apply
goal: min_energy
max_slowdown: 40%
min_saving: 1%
confidence: 80%
holdout: 0%
allocation: shrink
node_type_change: no-later
axes: {frequency: override, threads: override, node_type: override}
training: {mode: "off"}
"""
PARTITIONS = """\
FirstJobId=700001
Licenses=matlab:2
AccountingStorageEnforce=associations,limits,qos
PartitionName=whole Nodes=ALL OverSubscribe=EXCLUSIVE DefaultTime=5
PartitionName=memory Nodes=ALL DefMemPerCPU=100 DefaultTime=5
PartitionName=memorynode Nodes=ALL DefMemPerNode=2000 DefaultTime=5
PartitionName=maxmemory Nodes=ALL MaxMemPerCPU=60 DefaultTime=5
PartitionName=narrow Nodes=ALL MaxNodes=1 MaxCPUsPerNode=28 DefaultTime=5
PartitionName=old Nodes=bdw[1-4],skl[1-2] DefaultTime=5
PartitionName=oversubscribed Nodes=ALL OverSubscribe=FORCE:2 DefaultTime=5
PartitionName=sharing Nodes=ALL OverSubscribe=YES:2 DefaultTime=5
PartitionName=peruser Nodes=ALL ExclusiveUser=YES DefaultTime=5
PartitionName=brief Nodes=ALL DefaultTime=2
PartitionName=briefest Nodes=ALL DefaultTime=1
PartitionName=most Nodes=ALL MaxTime=2
"""
#: Named once their QOS are there: the controller does not start without them.
NODE_CAP = """\
Prolog={0}
Epilog={0}
PrologFlags=Alloc
""".format(HERE.parents[2] / "hooks/slurm/advisor-node-cap")
LIMITED = """\
PartitionName=limits Nodes=ALL QOS=small DefaultTime=5
PartitionName=tight Nodes=ALL QOS=tight
"""
#: How long the program takes as the law has it: with all cores of a bdw node 99 s, so that limits
#: of one and two minutes, which Slurm counts in, leave out a part of what the policy accepts.
SCALE = 60.0
#: Ranks on a node which the model was measured with.
RANKS = (1, 2, 4, 14, 28)
THREADS = (1, 2, 4, 7, 10, 14, 20, 28, 40, 64)


class Cluster:
    """A testbed with partitions, limits and a reporting program, and the advisor on it."""

    def __init__(self, testbed: Testbed, site: AdvisedSite) -> None:
        self.testbed, self.site, self.users = testbed, site, USERS
        self._state = "plain"
        self._leave: Callable[[], None] = lambda: None
        self.no_filter = site.folder / "no_filter"
        self.work = testbed.directory / "work"

    def set_up(self) -> None:
        """Build the program, make the limits and import what was measured of the program."""
        testbed, binaries = self.testbed, self.testbed.directory / "bin"
        subprocess.run(
            ["cc", "-O1", "-pthread", "-o", binaries / "app", HERE / "programs" / "app.c"],
            check=True,
        )
        for name in PROGRAMS[1:]:
            shutil.copy(binaries / "app", binaries / name)
        for name in LAUNCHERS:
            shutil.copy(HERE / "programs" / name, binaries / name)
            (binaries / name).chmod(0o755)
        self.work.mkdir(mode=0o755)
        (self.work / "nodes").write_text("bdw2\n")
        for command in (
            ["add", "qos", "small"],
            ["modify", "qos", "small", "set", "MaxTRESPerJob=cpu=28"],
            ["add", "qos", "tight", "set", "MaxWall=00:02:00"],
            ["modify", "user", *USERS, "set", "qos+=small,tight"],
            ["modify", "user", USERS[1], "set", "MaxTRESPerJob=cpu=56,node=2"],
        ):
            testbed.run(["sacctmgr", "-i", *command])
        with (testbed.conf_dir / "slurm.conf").open("a") as conf:
            conf.write(LIMITED)
        testbed.run(["scontrol", "reconfigure"])
        for node_type in NODE_TYPES.values():
            for application in MODELLED:
                grid = self.site.folder / f"{application}-{node_type.name}.csv"
                write_grid(grid, node_type, application)
                where = ["--application", application, "--node-type", node_type.feature]
                self.site.advisor("import", grid, *where)
        self.site.counted("app")
        self.site.counted("packed")
        self.site.counted("pool", workers=7)
        for application in MODELLED:
            self.site.advisor("fit", application, "--model", "bspline")
        self.site.settle()
        self.no_filter.mkdir()

    # Scheduling

    def pause(self) -> None:
        """Let the controller accept jobs and start none."""
        self._parameters(RUNS_NOTHING)

    def resume(self) -> None:
        """Let the controller start jobs again."""
        self._parameters(RUNS_AT_ONCE)

    def _parameters(self, parameters: str) -> None:
        conf = self.testbed.conf_dir / "slurm.conf"
        text = re.sub(
            "(?m)^SchedulerParameters=.*$", f"SchedulerParameters={parameters}", conf.read_text()
        )
        text = re.sub(
            r"(?m)^(PartitionName=(?!.*(?:DefaultTime|MaxTime=\d|QOS)).*)$",
            r"\1 DefaultTime=5",
            text,
        )
        conf.write_text(text)
        (self.no_filter / "slurm.conf").write_text(re.sub("(?m)^CliFilter.*$", "", text))
        self.testbed.run(["scontrol", "reconfigure"])

    # States

    def enter(self, state: str) -> None:
        """Bring the site into a state; it stays until another one is entered."""
        if state == self._state:
            return
        self._leave()
        self._leave = STATES[state](self)
        self._state = state
        self.restart_daemon()

    def restart_daemon(self) -> None:
        """Start the daemon again, so that it knows what the nodes are like now."""
        site = self.site
        assert site.daemon is not None
        site.daemon.terminate()
        site.daemon.wait(10)
        site.start_daemon()
        site.settle()

    def drain(self, nodes: str) -> Callable[[], None]:
        """Drain nodes; returns what undoes it."""
        update = ["scontrol", "update", f"NodeName={nodes}"]
        self.testbed.run([*update, "State=DRAIN", "Reason=broken"])
        return lambda: void(self.testbed.run([*update, "State=RESUME"]))

    def occupy(self, nodes: str, count: int) -> Callable[[], None]:
        """Let other jobs take nodes for longer than any shape waits; returns what undoes it."""
        job = self.testbed.sbatch(
            f"-N{count}",
            f"-w{nodes}",
            "--exclusive",
            "-t1-0",
            "-Jothers",
            "--wrap=sleep 7200",
            env={"ADVISOR": "off"},
        )
        _until(lambda: self.testbed.scontrol_job(job.job_id)["JobState"] == "RUNNING")
        return lambda: void(self.testbed.run(["scancel", str(job.job_id)]))

    def reserve(self, name: str, nodes: str, *more: str) -> Callable[[], None]:
        """Reserve nodes; returns what undoes it."""
        words = [f"ReservationName={name}", f"Nodes={nodes}", *more]
        self.testbed.run(["scontrol", "create", *words])
        return lambda: void(self.testbed.run(["scontrol", "delete", words[0]]))

    def enforce(self) -> Callable[[], None]:
        """Let the policy enforce itself; users submit past the filter."""
        self.apply(POLICY + "enforce: true\n")
        return lambda: self.apply(POLICY)

    def apply(self, policy: str) -> None:
        """Apply a policy and wait until the daemon holds it."""
        (self.site.config / "policy.yaml").write_text(policy)
        self.site.advisor("policy", "apply")
        self.site.settle()

    def environment(self, state: str) -> dict[str, str]:
        """What the commands of the state's users get in addition."""
        return {"SLURM_CONF": str(self.no_filter / "slurm.conf")} if state == "enforced" else {}


def void(_: object) -> None:
    """Forget a result."""


def _all(*undo: Callable[[], None]) -> Callable[[], None]:
    def every() -> None:
        for one in undo:
            one()

    return every


#: What brings a site into a state; each returns what undoes it.
STATES: dict[str, Callable[[Cluster], Callable[[], None]]] = {
    "plain": lambda _: lambda: None,
    # the two better node types cannot be had now: drained, and taken by others
    "unavailable": lambda c: _all(c.drain("mil[1-2]"), c.occupy("skl[1-2]", 2)),
    # they are idle, but not for these users, or not for long
    "reserved": lambda c: _all(
        c.reserve("theirs", "skl[1-2]", "Users=root", "StartTime=now", "Duration=1:00:00"),
        c.reserve("mine", "bdw3", "Users=nobody", "StartTime=now", "Duration=1:00:00"),
        c.reserve(
            "work",
            "mil[1-2]",
            "Users=root",
            "StartTime=now+3minutes",
            "Duration=1:00:00",
            "Flags=MAINT,IGNORE_JOBS",
        ),
    ),
    "one-left": lambda c: _all(c.drain("mil1"), c.occupy("skl1", 1), c.drain("bdw4")),
    "enforced": Cluster.enforce,
}


def _until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TestbedError("a state of the site was not reached")
        time.sleep(0.05)


def law(
    program: str, node_type: NodeType, nodes: int, threads: int, freq_khz: int
) -> tuple[float, float]:
    """Return how long a program takes with so many threads on each node, and a node's power, W.

    All are memory-bound, so that there is much to gain; packed is fastest with half of the cores.
    """
    time_s, watts = predict("stencil", node_type, nodes, threads, freq_khz, SCALE)
    beyond = max(0.0, 2 * threads / node_type.cores - 1) if program == "packed" else 0.0
    return time_s * (1 + 0.5 * beyond**2), watts


def write_grid(path: Path, node_type: NodeType, program: str) -> None:
    """Write a fully measured grid of a program."""
    freqs = node_type.frequencies_khz
    steps = sorted({*freqs[:: max(1, len(freqs) // 3)], freqs[-1]})
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["nodes", "ranks_per_node", "threads_per_node", "freq_khz", "time_s", "energy_j"]
        )
        for nodes in (1, 2):
            for ranks in RANKS:
                most = node_type.cores // ranks
                for threads in (n for n in THREADS if n <= most):
                    for freq in steps:
                        time_s, watts = law(program, node_type, nodes, ranks * threads, freq)
                        energy_j = time_s * watts * nodes
                        writer.writerow(
                            [
                                nodes,
                                ranks,
                                ranks * threads,
                                freq,
                                f"{time_s:.3f}",
                                f"{energy_j:.1f}",
                            ]
                        )


@contextmanager
def cluster(*, node_cap: bool = False) -> Iterator[Cluster]:
    """Start the whole: testbed, advisor, program, limits; nothing is left of it afterwards.

    `node_cap`: its nodes cap whole jobs, what srun does not start included.
    """
    configuration = PARTITIONS + (NODE_CAP if node_cap else "")
    with Testbed(users=USERS, more_configuration=configuration) as testbed:
        # It compares what becomes of jobs that were advised: a machine too busy to answer within
        # 250 ms would let them through as they are, and the trial would show nothing.
        site = AdvisedSite(testbed, POLICY, watch_s=1, deadline="5s")
        try:
            site.set_up()
            made = Cluster(testbed, site)
            made.set_up()
            yield made
        finally:
            site.tear_down()
