"""What every scheduler backend offers: sweeps, and accounting records of finished jobs."""

from __future__ import annotations

import re
import signal
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
    TypeVar,
    final,
)

from advisor.core.availability import JobLimits
from advisor.core.axes import AxisWriting
from advisor.core.check import Check
from advisor.core.codec import Record, wire
from advisor.core.configuration import Configuration
from advisor.core.gpus import GpuUse
from advisor.core.inventory import NodeType
from advisor.core.observation import Quality, RunMethod
from advisor.core.rate import RateRule
from advisor.core.script_use import THREAD_VARIABLES
from advisor.errors import SchedulerError, UsageError
from advisor.schedulers.accounting_lines import DamagedLines
from advisor.schedulers.cluster import Cluster
from advisor.schedulers.command import CommandProcess
from advisor.schedulers.node_state import NodeReading
from advisor.schedulers.plan import Plan

Role = Literal["baseline", "design", "confirm"]
JobPhase = Literal["queued", "running", "ended"]
MeterSees = Literal["", "nodes", "processors", "gpus"]
"""What a scheduler's meter sees: whole nodes, or of them the processors or the GPUs alone."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a job in the accounting; ``energy_j`` is None when it was not metered."""

    step_id: str
    name: str
    state: str
    elapsed_s: float | None = None
    nodes: int = 0
    tasks: int = 0
    energy_j: float | None = None
    freq_requested_khz: int | None = None
    freq_observed_khz: int | None = None
    cpus: int = 0
    """CPUs of all its nodes together, 0 when the accounting does not tell."""
    threads_per_rank: int = 0
    """Threads that the request sets for each rank, 0 where it sets none."""
    energy_impossible: bool = False
    """Its meter said what its nodes cannot have used, and that was dropped."""

    @property
    def numbered(self) -> bool:
        """Whether it is an srun step: not batch, extern or interactive."""
        return self.step_id.isdecimal()


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the scheduler's accounting says about one job.

    ``elapsed_s`` has the accounting's ``resolution_s`` (Slurm: whole seconds); ``energy_j`` is the
    sum of the numbered steps, None when any of them has none, and ``whole_energy_j`` that of all
    its nodes from its start to its end, None where that is not metered. ``stamp`` holds the
    advisor's variables found in the job's recorded environment.
    """

    job_id: str
    name: str
    user: str
    account: str
    state: str
    submitted_at: str = ""
    elapsed_s: float | None = None
    nodes: int = 0
    node_list: str = ""
    energy_j: float | None = None
    freq_requested_khz: int | None = None
    freq_observed_khz: int | None = None
    node_cap_khz: int = 0
    """The cap that its nodes were to put on all that it ran, 0 where they were to put none."""
    gpus: tuple[GpuUse, ...] = ()
    """What its nodes say that its GPUs had and took; () where they say nothing."""
    gpu_count: int = 0
    """The GPUs that it had on all of its nodes, 0 where the accounting does not say."""
    meter_sees: MeterSees = ""
    """What its energies are the energy of, where it had GPUs and that is known."""
    constraint: str = ""
    comment: str = ""
    admin_comment: str = ""
    submit_line: str = ""
    ended_at: str = ""
    partition: str = ""
    qos: str = ""
    cpus: int = 0
    resolution_s: float = 1.0
    whole_nodes: bool | None = None
    """Whether its nodes were its alone, where the scheduler says so; else its CPUs tell."""
    time_limit_s: float | None = None
    """The limit it ended with, where the accounting says so."""
    restarts: int = 0
    """How often it was requeued and started again, as far as the accounting tells."""
    stamp: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[StepRecord, ...] = ()
    cpu_s: float | None = None
    """Processor time it took, ``disk_mb`` what it read and wrote, ``memory_mb`` the most that was
    resident at once; None where the accounting does not tell."""
    disk_mb: float | None = None
    memory_mb: float | None = None
    results: str = ""
    """Folder where its owner left measurements, as a sweep's job says; the user's own word."""

    finished: bool = True
    """Whether the job has ended, well or not."""
    cluster: str = ""
    """The cluster that it ran on, "" where the scheduler does not say."""
    altered: str = ""
    """What of its request was changed after the decision was written into it, "" for nothing."""
    whole_energy_j: float | None = None


class StepUse(NamedTuple):
    """What of a :class:`StepRecord` tells of use: made in a fraction of the time, for millions."""

    name: str
    elapsed_s: float
    nodes: int
    tasks: int
    cpus: int
    energy_j: float | None
    energy_impossible: bool
    freq_requested_khz: int | None
    numbered: bool = True


class JobUse(NamedTuple):
    """What of a :class:`JobRecord` tells of use: made in a fraction of the time, for millions."""

    job_id: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    ended_at: str
    elapsed_s: float
    nodes: int
    cpus: int
    node_list: str = ""
    energy_j: float | None = None
    freq_requested_khz: int | None = None
    submit_line: str = ""
    steps: Sequence[StepUse] = ()
    whole_nodes: bool | None = None


AnyStep = TypeVar("AnyStep", bound=StepRecord | StepUse)


def longest_step(steps: Sequence[AnyStep]) -> AnyStep | None:
    """Return the first of the steps that took longest, None of none."""
    if len(steps) == 1:  # of a million jobs most have one
        return steps[0]
    return max(steps, key=lambda step: step.elapsed_s or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class PlannedRun(Record):
    """One run a sweep has to make."""

    seq: int
    role: Role
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class RunResult(Record):
    """How one attempt at a planned run came out.

    ``time_s`` is what the attempt took, also when it is not ``ok`` (None: unknown); ``energy_j``
    is None when it is ``missing``; ``detail`` says why an attempt failed, or where its energy
    comes from.
    """

    seq: int
    attempt: int
    ok: bool
    time_s: float | None = None
    energy_j: float | None = None
    energy_quality: Quality = "missing"
    meter: str = ""
    job_id: str = ""
    account: str = ""
    detail: str = ""
    final: bool = False
    """A further attempt makes no sense (the run exceeds its limit)."""
    spent_s: float | None = None
    """What a run that was ended early took; ``time_s`` is then what the whole of it would."""
    spent_j: float | None = None
    extrapolated: Mapping[str, float] | None = None
    """Of a run ended early: ``share`` of its time, and the relative 90 % half widths ``time`` and
    ``energy``."""
    rate: float | None = None
    """What the program itself says that it did in a second, in its own unit."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """What the processor counted, by the names asked for."""
    thread_use: Mapping[str, object] = field(default_factory=dict)
    """How many threads worked, of a run of the job as written (see advisor.core.thread_use)."""
    gpu_j: float | None = field(default=None, metadata=wire(omit=True))
    """What of ``energy_j`` the nodes' accelerators took, where a meter knows it apart."""


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """How a sweep's runs are watched, and ended once their time is known.

    ``folder`` is the sweep's, visible on the nodes: it holds the preloaded library, the
    complete run and what is known of runs that were ended. ``within`` is the 90 % half width that
    is enough.
    """

    folder: Path
    preload: Path
    within: float


@dataclass(frozen=True, slots=True)
class SweepJob:
    """One stage of a sweep: what to run, where its files are, and within which limits.

    Either ``script`` (a job script with its ``arguments``) or ``command`` is run. ``folder`` is
    the stage's own and must be visible on the nodes. ``options`` are the script's scheduler
    options by long name; ``working_folder`` is where the job runs. ``launcher`` is the script's
    first launcher, "" for none: where it is the scheduler's own, its calls are timed, otherwise
    the whole script is. ``method`` is how a run gets its threads: by the variables ``threads_from``
    inside the allocation the job asks for, or by a smaller request. ``run_limit_s`` ends a single
    run; ``estimate_s`` is the expected time of a run at ``baseline``, which is the job as written.
    """

    id: str
    stage: str
    folder: Path
    working_folder: Path
    node_type: NodeType
    runs: tuple[PlannedRun, ...]
    script: Path | None = None
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    launcher: str = ""
    attempts: int = 3
    run_limit_s: float | None = None
    estimate_s: float | None = None
    baseline: Configuration | None = None
    partition: str = ""
    meter: str = "auto"
    method: RunMethod = "variables"
    threads_from: tuple[str, ...] = THREAD_VARIABLES
    rate: RateRule | None = None
    """How the program's own rate is read from a run's output; a run without one has failed."""
    events: tuple[str, ...] = ()
    """Counters to read where the backend can."""
    placement: tuple[str, int, int] = ("", 0, 0)
    """How threads are placed on the node's cores (see advisor.core.placement), "" for as usual;
    sockets of a node, 0 for its own; core rings of a socket, 0 for HPCProbe's two."""
    watch: WatchPlan | None = None
    """How runs are ended early; None: all are complete."""
    threads_stated: bool = False
    """Whoever asked for the runs states their threads: those of the job as written are set, too."""
    results: Path | None = None
    """Where its results are left for the store's host, if they are: its jobs say so."""
    axes: Mapping[str, AxisWriting] = field(default_factory=dict)
    """The further axes that its runs vary, and how they get them."""
    in_one: bool = False
    """Its runs differ in one further axis alone, and are made in one: the job goes from value to
    value between its iterations."""

    @property
    def first_task(self) -> str:
        """The number of the first task where the script is a job array, else ""."""
        first = re.match(r"\d+", self.options.get("array", ""))
        return first[0] if first else ""

    def output(self, seq: int, attempt: int) -> Path:
        """Return the file that takes what a run prints."""
        return self.folder / "output" / f"run-{seq}-{attempt}.log"

    def threads_to_set(self, run: PlannedRun) -> int:
        """Return the threads per rank a run sets by variables, 0 where the job's own stay."""
        c, base = run.configuration, self.baseline
        as_written = base is not None and c.threads_per_node == base.threads_per_node
        return 0 if as_written and not self.threads_stated else c.threads_per_rank

    def cap_to_set(self, run: PlannedRun) -> int:
        """Return the frequency cap a run sets, kHz; 0 where the job's own stays."""
        c, base = run.configuration, self.baseline
        return 0 if base is not None and c.freq_khz == base.freq_khz else c.freq_khz

    def axes_to_set(self, run: PlannedRun) -> dict[str, int]:
        """Return the further axes that a run sets, by name; none where the job's own stay."""
        own_values = dict(self.baseline.extra) if self.baseline is not None else {}
        return {name: v for name, v in run.configuration.extra if own_values.get(name) != v}

    def longest_s(self, run: PlannedRun) -> float | None:
        """Return how long a run may take at worst, with half as much again; None: unknown."""
        if self.estimate_s is None or self.baseline is None:
            return self.run_limit_s
        slower = 1.5 * self.estimate_s * run.configuration.slowdown_bound(self.baseline)
        return slower if self.run_limit_s is None else min(self.run_limit_s, slower)

    def given_up(self, run: PlannedRun, results: Sequence[RunResult]) -> bool:
        """Tell whether a run has failed for good."""
        tries = [r for r in results if r.seq == run.seq]
        if any(r.ok for r in tries):
            return False
        return len(tries) >= self.attempts or any(r.final for r in tries)

    def open_runs(self, results: Sequence[RunResult]) -> list[PlannedRun]:
        """Return the runs that are neither done nor given up."""
        good_seqs = {r.seq for r in results if r.ok}
        return [r for r in self.runs if r.seq not in good_seqs and not self.given_up(r, results)]


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """Where a sweep stands: every finished attempt so far, and what the scheduler says."""

    state: JobPhase
    results: tuple[RunResult, ...] = ()
    detail: str = ""

    def done(self) -> dict[int, RunResult]:
        """Return the good result of each run that has one, by seq."""
        return {r.seq: r for r in self.results if r.ok}


class Watched(Protocol):
    """Reads what jobs can have now. Every read raises SchedulerError."""

    def read(self) -> NodeReading:
        """Read nodes, partitions and queues."""

    def read_limits(self) -> JobLimits:
        """Read associations, QOS and what else bounds a user's jobs."""


class Health(Protocol):
    """Checks a scheduler for ``advisor doctor``."""

    def check_scheduler(self, understood: Collection[str]) -> tuple[Mapping[str, Any], list[Check]]:
        """Return its settings (empty where it does not answer) and the checks of them.

        ``understood``: options that are in no table but that the site knows.
        """

    def check_hooks(
        self, settings: Mapping[str, Any], frequency_steps: Mapping[str, tuple[int, ...]]
    ) -> tuple[str | None, list[Check]]:
        """Return the socket that installed hooks ask (None: none is at work), and the checks.

        ``frequency_steps`` as in :class:`HookRequest`, by what the store says now.
        """


@dataclass(frozen=True, slots=True)
class HookRequest:
    """What ``advisor hook`` was asked to do with a scheduler's hooks; times in seconds."""

    action: Literal["install", "remove", "status"]
    folder: Path | None = None
    """Where they are, None for the scheduler's usual place."""
    login: Path | None = None
    """Only what belongs on a login node, into this folder."""
    socket: str | None = None
    config_dir: Path = Path()
    deadline_s: float = 0.25
    retry_s: int = 30
    understood: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The site's own options and what they bind."""
    frequency_steps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Caps that the site's node types can have, kHz, by their feature."""
    axes: Mapping[str, AxisWriting] = field(default_factory=dict)
    """How the site has further axes written, by axis."""
    axis_steps: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """What the GPUs of its node types can be set to: axis, then feature."""
    node_cap: bool = False
    """Slurm: also the program that caps whole nodes."""


@final
class HookReport(TypedDict):
    """What is installed of a scheduler's hooks, for programs."""

    daemon: Annotated[str, "whether it answers"]
    hooks: Annotated[Mapping[str, Mapping[str, object]], "each one's state and version, by name"]
    settings: Annotated[Mapping[str, object], "what was written into them"]
    inventory: Annotated[str, "whether what they know of the cluster is as it is now"]
    breaker: Annotated[str, "whether submissions ask the daemon now"]
    dir: NotRequired[Annotated[str, "Slurm: the folder of slurm.conf"]]
    modules: NotRequired[Annotated[str, "Slurm: whether a Lua here loads them"]]
    resources: NotRequired[Annotated[str, "PBS: whether they are as the hooks need them"]]


@final
class ClientReport(TypedDict):
    """With ``--login``: whether the program before qsub is there."""

    client: Literal["goes before qsub", "not the advisor's", "not there"]


class Hooks(Protocol):
    """A scheduler's hooks."""

    folder: Path

    def plan(self) -> Plan:
        """Plan what was asked for. Raises AdvisorError where that cannot be done."""

    def status(self, ping: Callable[[Path], str]) -> tuple[HookReport | ClientReport, list[str]]:
        """Return what is installed, for programs and for people.

        ``ping`` says in words whether a daemon answers at a socket.
        """


class JobHere(Protocol):
    """The job that this process runs in, as its scheduler shows it on the node."""

    def nodes(self) -> int:
        """Return how many nodes it has; 1 where nothing says so."""

    def steps(self) -> list[str]:
        """Return the steps that the scheduler itself runs for its script now."""

    def signal(self, step: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a step; a step that is gone is no error."""


class Scheduler(Protocol):
    """A backend. Its room's class derives from it, and so does one of a site's own.

    A scheduler must define its three names and what is abstract here. The rest answers that there
    is no such thing: no hooks, no accounting, nothing to watch.

    A sweep's handle (``submit_sweep``) names it to later processes: the job id, or "" where the
    sweep lives in the calling process only. ``poll`` never repeats a finished run.
    """

    NAME: ClassVar[str]
    LABEL: ClassVar[str]
    """Its name as people write it."""
    DESCRIPTION: ClassVar[str]
    RANK: ClassVar[int] = 5
    """Schedulers of a lower rank are asked first where nobody names one."""
    WITHOUT_FEATURE: ClassVar[str] = "are refused"
    """What becomes of jobs that ask for a feature no node has."""
    POLL_S: ClassVar[float] = 1.0
    """Seconds to wait between two polls."""
    ACCOUNTING: ClassVar[str] = ""
    """What ``advisor import --from`` calls files of its accounting; "": there are none."""
    YEAR_COMMAND: ClassVar[str] = ""
    """What an admin enters to write a year of its accounting into a file."""
    ENERGY_ADVICE: ClassVar[Mapping[str, str]] = {}
    """What an admin can do for jobs without energy, by cause: step, shared, meter."""
    SETUID_COMMANDS: ClassVar[bool] = False
    """Whether its commands need programs that are setuid."""

    @abstractmethod
    def available(self) -> str | None:
        """Return why this scheduler cannot be used here, or None."""

    def installed(self) -> bool:
        """Tell whether its commands are on this machine; it may not answer now."""
        return False

    def job_here(self) -> JobHere | None:
        """Return the job that this process runs in, None where this scheduler has none."""
        return None

    def watched(self) -> Watched | None:
        """Return what reads the state of nodes and limits, None where there is nothing to read."""
        return None

    def health(self) -> Health | None:
        """Return what checks its settings and hooks, None where there is nothing to check."""
        return None

    def hooks(self, request: HookRequest) -> Hooks:
        """Return its hooks, to install, remove or look at. Raises UsageError where it has none."""
        raise UsageError(f"the advisor has no hook for {self.LABEL}")

    def this_machine(self) -> NodeType | None:
        """Return the node type of this machine where runs are made on it, else None."""
        return None

    def environment_here(
        self, configuration: Configuration, folder: Path, threads_from: Sequence[str]
    ) -> dict[str, str]:
        """Return the environment of a job script that runs on this machine in no job.

        ``threads_from`` set its threads; programs that stand in for the scheduler's go into
        ``folder``. Raises SchedulerError where scripts only run in jobs.
        """
        raise SchedulerError(f"{self.LABEL} runs no script on this machine")

    def cluster(self) -> Cluster | None:
        """Return the nodes and partitions, None where runs are made on this machine.

        Raises SchedulerError when the scheduler cannot be asked.
        """
        return None

    def cluster_name(self) -> str:
        """Return the name of the cluster whose jobs these are, "" where it has none or does not
        answer: Slurm's ClusterName, PBS's server."""
        return ""

    def of_cluster(self, name: str) -> None:
        """Ask this cluster from now on, in place of this host's own. Raises UsageError where the
        scheduler knows only one."""
        raise UsageError(f"{self.LABEL} has no clusters to choose from")

    def frequency_kept(self, node_type: NodeType, launcher: str) -> str:
        """Return why a job's frequency cannot be capped, "" when it can."""
        return f"the advisor cannot cap frequencies on {self.LABEL}"

    def axis_kept(self, writing: AxisWriting, launcher: str, nodes: int) -> str:
        """Return why no run of a sweep gets a further axis so, with its GPUs metered; "" if it can.

        ``launcher`` and ``nodes`` are the job's.
        """
        return f"a sweep cannot set it on {self.LABEL}"

    def axis_kept_in_a_run(self, writing: AxisWriting, nodes: int) -> str:
        """Return why a further axis stays as it is while a job runs; "" if a sweep may change it.

        ``nodes`` are the job's.
        """
        return f"nothing sets it as a job runs on {self.LABEL}"

    def gives_whole_nodes(self, partition: str) -> bool:
        """Tell whether every job of a partition ("" for the default) has its nodes for itself."""
        return False

    def on_a_node(
        self, node_type: NodeType, argv: Sequence[str], *, limit_s: float, name: str
    ) -> CommandProcess:
        """Start ``argv`` alone on a node of this type, for at most ``limit_s``.

        What it prints can be read from the process, which ends with it. Raises SchedulerError
        where no one command can do that.
        """
        raise SchedulerError(
            f"on {self.LABEL} a node is measured from a job on it",
            hint=f"advisor lab bench --here --node-type {node_type.name} in a job on such a node",
        )

    @abstractmethod
    def energy_source(self, job: SweepJob) -> str:
        """Say plainly where the energy of a sweep's runs will come from."""

    @abstractmethod
    def submit_sweep(self, job: SweepJob) -> str:
        """Hand a sweep over and return its handle. Raises SchedulerError."""

    @abstractmethod
    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        """Return how far a sweep is. Raises SchedulerError."""

    @abstractmethod
    def cancel(self, job: SweepJob, handle: str) -> None:
        """Stop a sweep; what it finished stays."""

    def read_accounting(self, path: Path, text: str) -> tuple[list[JobRecord], int]:
        """Return the ended jobs of a file of its accounting, and how many lines were no record.

        Raises InputError for what is no such file.
        """
        return [], 0

    def writes_accounting(self, first_line: str) -> bool:
        """Tell whether a file that begins so may be of its accounting."""
        return False

    def stream_accounting(self, path: Path, damaged: DamagedLines) -> Iterator[JobRecord | JobUse]:
        """Yield the ended jobs of a file of its accounting, whatever its size.

        They have what tells of use: who, what, where, how long, at which energy; a job that was
        started again comes once for each start. Lines that are no record are counted in
        ``damaged``. Raises InputError for what is no such file.
        """
        yield from ()

    def finished_jobs(self, since: str) -> list[JobRecord]:
        """Return the jobs that ended since a time (ISO 8601), steps included."""
        return []

    def unfinished_jobs(self) -> list[JobRecord]:
        """Return the jobs that wait or run now; user and time of submission are enough."""
        return []

    def job(self, job_id: str) -> JobRecord | None:
        """Return one job's record, None when the accounting does not know it."""
        return None
