"""How many job scripts the advisor's advice reaches: decided one by one on a posed site.

Every script below a folder is read, never run: its request is made as ``advisor explain`` makes it,
and the daemon's own decision is asked. The site is posed around the script: its partitions,
constraint, hosts and selectors exist, all nodes are idle, and no queue or account has limits. So is
the model of whatever program is recognised: the job as written, and beside it one option that takes
as long. Five questions are asked of each script, each with a model of its own:

    threads     half of the threads of each rank, 30 % less energy; of a script that runs several
                programs one after the other, for each, and each model knows its program's build
    cap         a frequency cap, 20 % less energy; if a cap reached whatever a job runs
    cap lands   the same cap, promised only where it reaches the job's program
    node type   another node type of the same partition, 30 % less energy
    history     a cap by the script's own earlier jobs, of which the recognised step of srun took
                90 %, with 20 % less energy for it; of the rest nothing is known
    steps       threads or cap as above for steps of srun that are looked up where they start, of
                every program that the script is read to start so; the job is left as written
    trials      with ``--trials``: a cap that earlier jobs of the script tried, with 20 % less
                energy of all that they ran, or of their steps of srun where they have any; no
                program of it has a model

Threads, cap lands and any count what reaches a script by any way: at submission, by its history,
at its steps, or by trials.

The posed policy is the built-in one with ``mode: apply``, ``goal: min_energy`` and no holdout.
``--trials`` also lets recurring scripts try caps (``cold_start: {cap_trials: 20}``).
``--threads cap`` also lets it lower threads that a job states. ``--unset unknown`` poses a model
whose runs counted no threads, as imported grids have it. Sites: ``whole`` gives whole nodes in each
partition, ``shared`` where the job asks for them, ``shared-caps`` is shared, and its site.yaml says
``shared_caps: accept``. The nodes of ``whole`` have as many cores as a script that asks for several
a task asks for on each, for steps as any that says so: such a request fills them. ``--node-cap``:
Slurm's nodes run the prolog that caps whole jobs, and bind jobs to their cores, so that on
``shared-caps`` it caps these.

Files count whose text has lines of options (#SBATCH, #PBS); equal ones count once, and the files of
least SHA-1 of their path within FOLDER come first. Without FOLDER it reads the examples here.

    python benchmarks/reach.py [FOLDER] [--scheduler slurm|pbs] [--site whole|shared|shared-caps]
        [--node-cap] [--trials] [--unset measured|unknown] [--threads fill|cap]
        [--half even|odd|all] [--most N] [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from advisor.core import script
from advisor.core.availability import (
    Availability,
    JobLimits,
    NodeKind,
    PartitionState,
    Queue,
    Room,
)
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory, NodeType
from advisor.core.job_history import LEAST_JOBS, JobHistory, JobPart, PastJob
from advisor.core.job_identity import job_identity
from advisor.core.nodelist import expand
from advisor.core.option import Option, pack_options
from advisor.core.policy import Axes, AxisRule, ColdStart, Policy, PolicySet
from advisor.core.protocol import MAX_SCRIPT
from advisor.core.reading import JobReading
from advisor.core.reasons import SEVERAL_PROGRAMS, WHOLE_JOB
from advisor.core.recognise import Recognised, clean_name, programs_of
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import UnclearError, shape, threads_stated
from advisor.core.script import commands
from advisor.core.step_commands import StepCommand, job_steps
from advisor.core.step_plan import PlannedStep
from advisor.schedulers.pbs.chunks import asked
from advisor.schedulers.submission import payload_of
from advisor.schedulers.translators import translator
from advisor.service.decide import decide, decide_again
from advisor.service.snapshot import Snapshot
from advisor.store.records import StoredModel

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCHEDULERS = ("slurm", "pbs")
SITES = ("whole", "shared", "shared-caps")
SETS_ENVIRONMENT = ("ADVISOR", "OMP_", "SBATCH_", "SLURM_", "PBS", "QSUB")
"""How variables begin that would be taken for the job's: whoever measures may be inside of one."""
NODE_CAP = {
    **dict.fromkeys(("Prolog", "Epilog"), "/etc/slurm/advisor-node-cap"),
    "PrologFlags": "Contain",
    "JobSubmitPlugins": "lua",
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainCores": "yes",
}
"""Of a Slurm that runs the program, and binds each job to its own cores."""
FREQ_KHZ = (1_600_000, 2_000_000, 2_400_000)
CAP_KHZ, TOP_KHZ = FREQ_KHZ[0], FREQ_KHZ[-1]
NODES, CORES, MEMORY_MB, SOCKETS = 4096, 128, 4 << 20, 2
"""Of each posed node type: as large as any site's, so that jobs fit."""
MOST_NODES = 1 << 30
"""Where no job runs."""
POSED, OTHER, QUEUE = "posed", "other", "batch"
"""The node type that jobs land on, another one, and the partition of jobs that name none."""
TIME_S, ENERGY_J, ERROR = 1.0, 100.0, 0.001
"""Of the job as written, which ends within any time limit; and the relative error of both."""
KINDS = ("threads", "cap", "cap_lands", "node_type")
"""The kinds of advice."""
WAYS = ("at_submission", "history", "steps", "trials")
"""By which advice reaches a script."""
ADVICE = ("threads", "cap_lands", "node_type")
"""Those that the daemon gives to a script that it understands."""
HISTORY_SHARE = 0.9
"""What the recognised program took of the time of a script's own earlier jobs."""
MOST_TRIED = 20
"""The policy's ``cap_trials`` where scripts try caps."""
HISTORY_CAP_KHZ = FREQ_KHZ[1]
"""The rest takes 1.2 times as long at it, where nothing is known of that."""
OPENMP = re.compile(r"^[^#\n]*\bOMP_NUM_THREADS=|^#PBS\b.*\bompthreads=", re.MULTILINE)
UNDERSTOOD = (
    "application-",
    "baseline-node-type",
    "setting-refused",
    "several-runs",
    "workload-fallback",
)
"""How reasons begin that say how a job was read, not why it stays."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What of the advice reaches one script; ``reason``: the first one why nothing does, or ""."""

    file: str
    scheduler: str
    application: str = ""
    workload: str = ""
    threads: bool = False
    cap: bool = False
    cap_lands: bool = False
    node_type: bool = False
    history: bool = False
    """A cap by what its own earlier jobs did, where its script is not understood."""
    at_submission: bool = False
    """Advice to the whole job by what its script says."""
    steps: bool = False
    """Threads or a cap for steps of srun, by a plan that the job carries."""
    trials: bool = False
    """A cap that its own earlier jobs tried."""
    srun: bool = False
    """It starts some program by srun, as far as is read."""
    openmp: bool = False
    """It sets OMP_NUM_THREADS or asks for several cores a task."""
    sets_threads: bool = False
    """It sets OMP_NUM_THREADS itself."""
    in_order: bool = False
    """It runs several programs without srun, each once and one after the other."""
    programs: bool = False
    """Fewer threads for all of these, each of which has a model."""
    reason: str = ""
    detail: str = ""
    why: Mapping[str, str] = field(default_factory=dict)
    """Of each advice that does not reach it at submission: the first reason's code."""

    @property
    def any(self) -> bool:
        """Whether any advice reaches it."""
        return self.threads or self.cap_lands or self.node_type


@dataclass(frozen=True, slots=True)
class Pose:
    """What is posed around each script.

    ``site`` is one of SITES; ``measured``: the model's runs had their thread variables unset and
    used as many threads as the job is taken to use; ``threads`` is the policy's ``axes.threads``.
    """

    site: str = "whole"
    measured: bool = True
    threads: AxisRule = "fill"
    node_cap: bool = False
    """Slurm's nodes run the program that caps whole jobs."""
    trials: bool = False
    """The policy lets recurring scripts try caps."""

    def snapshot(self, request: JobRequest, *models: StoredModel, cores: int = CORES) -> Snapshot:
        """Return a site that has all that a request asks for, and the models' node types.

        The first node type is the one that the job lands on as it is written.
        """
        named = request.partition.partition("@")[0].split(",") if request.partition else []
        places = tuple(filter(None, named)) or (QUEUE,)
        names = list(dict.fromkeys(m.node_type for m in models)) or [POSED]
        node_types = [self._node_type(n, request, places, cores) for n in names]
        queues = {place: Queue(place) for place in places}
        whole = self.site == "whole"
        state = PartitionState(whole_nodes=whole, default=True, default_memory_mb=(0.0, 0.0))
        cold_start = ColdStart(cap_trials=MOST_TRIED if self.trials else 0)
        axes = Axes(threads=self.threads)
        policy = Policy("apply", "min_energy", holdout=0.0, axes=axes, cold_start=cold_start)
        snapshot = Snapshot(
            PolicySet(policy),
            Inventory.of(node_types),
            availability=Availability(
                request.scheduler,
                {(t.name, place): self._room(t, request) for t in node_types for place in places},
                dict.fromkeys(places, state),
                {**queues, "": Queue("", destinations=places[:1])},
                JobLimits(enforced=False),
                settings=NODE_CAP if self.node_cap else {},
            ),
        )
        snapshot.take(models)
        return snapshot

    def _node_type(
        self, name: str, request: JobRequest, places: tuple[str, ...], cores: int
    ) -> NodeType:
        first = name == POSED
        feature = f"node_type={name}" if request.scheduler == "pbs" else name
        if first and request.scheduler != "pbs":
            feature = request.constraint or feature
        node_type = NodeType(
            name,
            feature=feature,
            partitions=places,
            sockets=SOCKETS,
            cores=cores,
            memory_mb=MEMORY_MB,
            freq_khz=FREQ_KHZ,
            default_freq_khz=TOP_KHZ,
            nodes=(*_named(request.node_list if first else ""), *_numbered(name)),
            weight=1 if first else 2,
            default_partition="" if request.partition else QUEUE,
        )
        shared_caps: Literal["accept", "refuse"]
        shared_caps = "accept" if self.site == "shared-caps" else "refuse"
        return replace(node_type, shared_caps=shared_caps)

    def _room(self, node_type: NodeType, request: JobRequest) -> Room:
        """Return a room of idle nodes; on PBS they are what the job's chunks select."""
        count = len(node_type.nodes)
        kinds: frozenset[NodeKind] = frozenset()
        if request.scheduler == "pbs":
            sharing = "force_exclhost" if self.site == "whole" else "default_shared"
            resources = {node_type.feature}
            if node_type.name == POSED:
                selectors = asked(request.options, request.host_resources).selectors()
                resources |= {f"{name}={value}" for name, value in selectors.items()}
            kinds = frozenset({NodeKind(frozenset(resources), CORES, (sharing,))})
        return Room(count, count, ((math.inf, count),), kinds)

    def model(self, program: Decision | StepCommand | Recognised, *options: Option) -> StoredModel:
        """Return a model of a program, of one node type's options.

        The first option is the job as it is written.
        """
        c = options[0].configuration
        shape = [c.nodes, c.ranks_per_node, c.threads_per_node]
        return StoredModel(
            id=1 if c.node_type == POSED else 2,
            application=program.application,
            workload=program.workload,
            node_type=c.node_type,
            scope="all",
            owner="",
            version=1,
            name="posed",
            state="fitted",
            state_reason="",
            energy_quality="measured",
            n_train=12,
            stats={
                "gpus_metered": True,  # what it saves is of the whole node, GPUs and all
                **(
                    {key: [shape] for key in ("threads_unset", "threads_of_cores")}
                    if self.measured
                    else {}
                ),
            },
            options_blob=pack_options(options),
            created_at="",
            updated_at="",
        )


@cache
def _numbered(name: str) -> tuple[str, ...]:
    return tuple(f"{name}{i}" for i in range(NODES))


def _named(node_list: str) -> tuple[str, ...]:
    """Return the hosts that a job asks for by name, as far as that is a node list."""
    try:
        return expand(node_list) if node_list else ()
    except ValueError:
        return ()


def _option(configuration: Configuration, share: float) -> Option:
    """Return an option that takes as long as the job as written, and this share of its energy."""
    energy_j, low, high = share * ENERGY_J, 1 - ERROR, 1 + ERROR
    return Option(
        configuration,
        TIME_S,
        low * TIME_S,
        high * TIME_S,
        energy_j,
        low * energy_j,
        high * energy_j,
        measured=True,
        confirmed=True,
        in_zone=True,
    )


def reach_of(path: Path, name: str, scheduler: str, pose: Pose) -> Reach:
    """Return what reaches one script, at submission, by its history or at its steps.

    ``name`` is what the script is listed by. Raises InputError where it cannot be read.
    """
    reach, request = _at_submission(path, name, scheduler, pose)
    reach = replace(reach, at_submission=reach.any)
    if request is None:
        return reach
    steps = job_steps(request, ()).commands
    threads, cap = _at_steps(request, steps, pose)
    tried = pose.trials and _by_trials(request, bool(steps), pose)
    capped = reach.history or cap or tried
    reach = replace(
        reach,
        trials=tried,
        srun=bool(steps),
        steps=threads or cap,
        threads=reach.threads or threads,
        cap=reach.cap or capped,
        cap_lands=reach.cap_lands or capped,
    )
    return replace(reach, reason="", detail="") if reach.any else reach


def _at_submission(
    path: Path, name: str, scheduler: str, pose: Pose
) -> tuple[Reach, JobRequest | None]:
    """Decide for one script, once for each kind of advice; None for one that asks for nonsense."""
    language = translator(scheduler)
    payload = payload_of(path, user="root", scheduler=scheduler)
    payload |= {"hook": "explain", "choices": "", "env": {}}
    sets = OPENMP.search(str(payload["script"])) is not None
    reach = Reach(name, scheduler, openmp=sets, sets_threads=sets)
    try:
        request = language.parse_request(payload, user="someone", uid=1000, choices={})
    except ValueError as error:
        return replace(reach, reason="bad-request", detail=str(error)), None
    several = scheduler == "slurm" and (request.cpus_per_task or 1) > 1
    program = decide(request, pose.snapshot(request), chance=_never)
    reach = replace(
        reach,
        application=program.application,
        workload=program.workload,
        openmp=reach.openmp or several,
    )

    filled = pose.site == "whole" and (request.cpus_per_task or 1) > 1
    cores = _cores_asked_for(request) if filled else CORES

    def ask(*models: StoredModel) -> Decision:
        return decide(request, pose.snapshot(request, *models, cores=cores), chance=_never)

    reach = replace(reach, history=_by_history(request, program, pose))
    nowhere = _option(Configuration(POSED, MOST_NODES, 1, 1, TOP_KHZ), 1.0)
    first = ask(pose.model(program, nowhere))
    apart = program.reading.apart if program.reading else ()
    if apart:
        fewer_for_all = _for_all(request, apart, pose, cores)
        reach = replace(reach, in_order=True, programs=fewer_for_all, threads=fewer_for_all)
    c = first.baseline
    if c is None or "baseline-outside-model" not in first.codes:
        code, detail = _reason(first)
        why = {kind: code for kind in ADVICE if not getattr(reach, kind)}
        unless = "" if reach.any else code
        return replace(reach, reason=unless, detail=unless and detail, why=why), request
    written = _option(c, 1.0)
    half = c.ranks_per_node * (c.threads_per_rank // 2)
    fewer = [_option(replace(c, threads_per_node=half), 0.7)] if half else []
    cap_model = pose.model(program, written, _option(replace(c, freq_khz=CAP_KHZ), 0.8))
    decisions = {
        "threads": ask(pose.model(program, written, *fewer)),
        "cap_lands": ask(cap_model),
        "node_type": ask(
            pose.model(program, written),
            pose.model(program, _option(replace(c, node_type=OTHER, freq_khz=TOP_KHZ), 0.7)),
        ),
    }
    capped = decisions["cap_lands"]
    cap = capped.changed
    if not cap and capped.request and capped.reading and capped.reading.uncapped:
        landing = replace(capped.reading, uncapped="")  # as if caps reached whatever a job runs
        site = pose.snapshot(request, cap_model, cores=cores)
        cap = decide_again(capped.request, landing, site, chance=_never).changed
    reach = replace(
        reach,
        threads=decisions["threads"].changed,
        cap=cap,
        cap_lands=capped.changed,
        node_type=decisions["node_type"].changed,
        why={kind: _reason(d)[0] for kind, d in decisions.items() if not d.changed},
    )
    if reach.any:
        return reach, request
    reasons = [_reason(d) for d in decisions.values()]
    code, detail = next((r for r in reasons if r[0] != "no-candidates"), reasons[0])
    return replace(reach, reason=code, detail=detail), request


def _for_all(request: JobRequest, apart: Sequence[JobReading], pose: Pose, cores: int) -> bool:
    """Tell whether a job's several programs get half of their threads, where each has a model.

    Each model knows its program's build, so that a hook would have to look at the file.
    """
    try:
        nodes, ranks = shape(request, cores)
    except UnclearError:
        return False
    each = request.cpus_per_task or (cores // ranks if ranks <= SOCKETS else 1)
    written = Configuration(POSED, nodes, ranks, ranks * each, TOP_KHZ)
    options = _option(written, 1.0), _option(_half_the_threads(written), 0.7)
    names = {(r.application, r.workload): r for p in apart if (r := p.recognised)}
    models = []
    for number, recognised in enumerate(names.values(), 1):
        model = replace(pose.model(recognised, *options), id=number)
        build = f"adler:{zlib.adler32(recognised.application.encode()):08x}:1"
        facts = {"path": f"/{recognised.application}", "size": 1, "mtime": 1, "build": build}
        models.append(replace(model, stats={**model.stats, "program": [facts]}))
    site = pose.snapshot(request, *models, cores=cores)
    decision = decide(request, site, chance=_never)
    return decision.changed and SEVERAL_PROGRAMS in decision.codes


def _at_steps(
    request: JobRequest, commands: Sequence[StepCommand], pose: Pose
) -> tuple[bool, bool]:
    """Tell whether steps of a job's script get fewer threads, and a cap, where they start."""
    cores = _cores_asked_for(request) if pose.site == "whole" else CORES
    try:
        nodes, of_job = shape(request, cores)
    except UnclearError:
        return False, False
    answers = []
    for change, share in ((_half_the_threads, 0.7), (_capped, 0.8)):
        models = []
        for number, command in enumerate(commands, 1):
            ranks = (command.ranks or 0) // nodes or of_job
            threads = max(1, cores // ranks)
            written = Configuration(POSED, nodes, ranks, ranks * threads, TOP_KHZ)
            options = [_option(written, 1.0)]
            options += [_option(c, share) for c in (change(written),) if c != written]
            models.append(replace(pose.model(command, *options), id=number))
        site = pose.snapshot(request, *models, cores=cores)
        plan = decide(request, site, chance=_never).plan
        steps = plan.steps if plan else ()
        answers.append(any(step.changes and _may_be_so(step, request) for step in steps))
    return answers[0], answers[1]


def _may_be_so(step: PlannedStep, request: JobRequest) -> bool:
    """Tell whether a script sets the threads of its steps to what one is planned for.

    Not where it leaves open to what.
    """
    reading = script.read(request.script or "", request.command[1:])
    if step.variable not in reading.assigned:
        return step.unset
    threads = reading.threads
    if threads.all_cpus:
        return step.ranks == (request.nodes or 1)
    stated = threads_stated(request) or request.cpus_per_task or 1
    return not threads.unclear and stated == step.threads


def _half_the_threads(c: Configuration) -> Configuration:
    half = c.threads_per_rank // 2 or c.threads_per_rank
    return replace(c, threads_per_node=half * c.ranks_per_node)


def _capped(c: Configuration) -> Configuration:
    return replace(c, freq_khz=CAP_KHZ)


def _cores_asked_for(request: JobRequest) -> int:
    """Return the cores that a script asks for on each node, those of every posed one if nothing."""
    per_node = request.ntasks_per_node
    if not per_node and request.ntasks:
        per_node = math.ceil(request.ntasks / (request.nodes or 1))
    if not per_node and not request.cpus_per_task:
        return CORES
    return min((per_node or 1) * (request.cpus_per_task or 1), 1 << 12)


def _by_history(request: JobRequest, program: Decision, pose: Pose) -> bool:
    """Tell whether a script gets a cap by its own history, where nothing else would decide.

    Only what srun starts is a step of its own in the accounting.
    """
    identity, text = program.identity, request.script or ""
    started = [c for c in commands(text, request.command[1:]) if c.launcher == "srun"]
    if not identity or not started:
        return False
    name = clean_name(started[0].executable)
    ranks, stated = request.ntasks_per_node or 1, threads_stated(request) or request.cpus_per_task
    threads = max(ranks, min(ranks * stated if stated else CORES, CORES))
    place = Configuration(POSED, request.nodes or 1, ranks, threads, TOP_KHZ)
    options = _option(place, 1.0), _option(replace(place, freq_khz=HISTORY_CAP_KHZ), 0.8)
    named = [p for p in programs_of(text, request.command[1:], "", ()) or () if p.name == name]
    models = [
        replace(
            pose.model(program, *options), id=i + 1, application=p.application, workload=p.workload
        )
        for i, p in enumerate(named)
    ]
    part = JobPart(name, ranks, CORES, 1, TIME_S, ENERGY_J)
    job = PastJob(POSED, place.nodes, TIME_S / HISTORY_SHARE, ERROR * TIME_S, ranks, CORES, (part,))
    snapshot = pose.snapshot(request, *models)
    record = json.dumps(JobHistory((job,) * LEAST_JOBS).to_dict())
    snapshot.histories[identity] = ("", record)
    decision = decide(request, snapshot, chance=_never)
    return decision.changed and WHOLE_JOB in decision.codes


def _by_trials(request: JobRequest, has_steps: bool, pose: Pose) -> bool:
    """Tell whether a script gets a cap that its own earlier jobs tried.

    They are known by all that they ran where the accounting has no steps of srun, else by these.
    """
    identity = job_identity(request)
    whole = not has_steps or request.scheduler == "pbs"
    ranks, cpus = (0, 0) if whole else (request.ntasks_per_node or 1, CORES)
    nodes = request.nodes or 1

    def job(khz: int, share: float) -> PastJob:
        part = JobPart("" if whole else "a", ranks, cpus, 1, TIME_S, share * ENERGY_J)
        resolution_s = ERROR * TIME_S
        return PastJob(POSED, nodes, TIME_S, resolution_s, ranks, cpus, (part,), khz, whole)

    tried = (job(HISTORY_CAP_KHZ, 0.8),) * LEAST_JOBS
    history = JobHistory((job(0, 1.0),) * LEAST_JOBS, tried=tried, trials=MOST_TRIED)
    snapshot = pose.snapshot(request)  # without a model of any program
    snapshot.histories[identity] = ("", json.dumps(history.to_dict()))
    decision = decide(request, snapshot, chance=_never, trials=False)
    return bool(identity) and decision.changed and WHOLE_JOB in decision.codes


def _reason(decision: Decision) -> tuple[str, str]:
    """Return code and text of the first reason why a job stays as it is."""
    why = [r for r in decision.reasons if not r.code.startswith(UNDERSTOOD)]
    return (why[0].code, why[0].cause) if why else ("", "")


def _never() -> float:
    return 1.0


@dataclass(slots=True)
class Scripts:
    """The scripts below a folder: which file comes next, and what of others was left out."""

    folder: Path
    scheduler: str = ""
    half: str = "all"
    skipped: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0

    def __iter__(self) -> Iterator[tuple[Path, str, str]]:
        """Yield path, name within the folder, and scheduler of each script."""
        contents: set[bytes] = set()
        for digest, path in sorted((_digest(self._name(p)), p) for p in self._paths()):
            if self.half != "all" and digest[-1] % 2 != (self.half == "odd"):
                continue
            raw, why = _content(path)
            if why:
                self.skipped[why] += 1
                continue
            scheduler = self._scheduler_of(raw)
            if not scheduler:
                continue
            content = hashlib.sha1(raw, usedforsecurity=False).digest()
            if content in contents:
                self.duplicates += 1
                continue
            contents.add(content)
            yield path, self._name(path), scheduler

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _paths(self) -> Iterator[Path]:
        """Yield all files, and links to folders, which are not followed."""

        def unreadable(_: OSError) -> None:
            self.skipped["unreadable"] += 1

        for top, folders, files in os.walk(self.folder, onerror=unreadable):
            links = [name for name in folders if (Path(top) / name).is_symlink()]
            folders[:] = [name for name in folders if name != ".git"]
            yield from (Path(top) / name for name in (*files, *links))

    def _scheduler_of(self, raw: bytes) -> str:
        """Return whose lines of options a text has, "" for none: the first scheduler that has."""
        for name in (self.scheduler,) if self.scheduler else SCHEDULERS:
            directive = translator(name).DIRECTIVE.encode()
            if any(line.startswith(directive) for line in raw.splitlines()):
                return name
        return ""


def _digest(name: str) -> bytes:
    return hashlib.sha1(os.fsencode(name), usedforsecurity=False).digest()


def _content(path: Path) -> tuple[bytes, str]:
    """Return a file's bytes, or why it is left out: it is a link, special, huge or binary."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b"", "link" if path.is_symlink() else "unreadable"
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            return b"", "special"
        if status.st_size > MAX_SCRIPT:
            return b"", "huge"
        try:
            raw = file.read(MAX_SCRIPT)
        except OSError:
            return b"", "unreadable"
    return (b"", "binary") if b"\0" in raw else (raw, "")


def reaches(scripts: Scripts, pose: Pose, most: int) -> list[Reach]:
    """Decide for each script, ``most`` of them at most (0: all)."""
    answers: list[Reach] = []
    for path, name, scheduler in scripts:
        try:
            answers.append(reach_of(path, name, scheduler, pose))
        except Exception as error:  # a defect of ours: it is shown, and the others count
            answers.append(Reach(name, scheduler, reason="error", detail=repr(error)))
        if len(answers) == most:
            break
    return answers


def report(answers: Sequence[Reach], scripts: Scripts, pose: Pose) -> dict[str, Any]:
    """Return the JSON form: counts of scripts, and what of the advice reaches each."""
    hybrid = [a for a in answers if a.openmp]
    kept = [a for a in hybrid if not a.threads]
    counts = {kind: sum(getattr(a, kind) for a in answers) for kind in (*KINDS, "any", *WAYS)}
    return {
        "schema": "advisor/reach/1",
        "site": pose.site,
        "unset": "measured" if pose.measured else "unknown",
        "axes_threads": pose.threads,
        "node_cap": pose.node_cap,
        "cap_trials": pose.trials,
        "scripts": len(answers),
        "recognised": sum(bool(a.application) for a in answers),
        **counts,
        "hybrid_or_openmp": len(hybrid),
        "hybrid_threads": sum(a.threads for a in hybrid),
        "srun": sum(a.srun for a in answers),
        "hybrid_srun": sum(a.srun for a in hybrid),
        "hybrid_in_order": sum(a.in_order for a in hybrid),
        "hybrid_programs": sum(a.programs for a in hybrid),
        "hybrid_kept": {
            who: _most_common(
                a.why.get("threads", a.reason) for a in kept if a.sets_threads == sets
            )
            for who, sets in (("set", True), ("unset", False))
        },
        "reasons": _most_common(a.reason for a in answers if a.reason),
        "reasons_by": {
            kind: _most_common(a.why[kind] for a in answers if kind in a.why) for kind in ADVICE
        },
        "skipped": dict(scripts.skipped),
        "duplicates": scripts.duplicates,
        "scripts_by": [_as_json(a) for a in answers],
    }


def _most_common(codes: Iterable[str]) -> dict[str, int]:
    return dict(Counter(codes).most_common())


def _as_json(reach: Reach) -> dict[str, Any]:
    return {name: getattr(reach, name) for name in reach.__slots__}


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of shares, then of reasons."""
    scripts, hybrid = result["scripts"], result["hybrid_or_openmp"]
    yield (
        f"{scripts} scripts; site {result['site']}, unset threads {result['unset']}, "
        f"axes.threads {result['axes_threads']}{', nodes cap jobs' if result['node_cap'] else ''}"
        f"{', scripts try caps' if result['cap_trials'] else ''}"
    )
    left = {**result["skipped"], "duplicates": result["duplicates"]}
    yield "left out: " + ", ".join(f"{n} {why}" for why, n in sorted(left.items()))
    for kind in ("recognised", *KINDS, "any", *WAYS, "hybrid_or_openmp"):
        yield _share(kind, result[kind], scripts)
    yield _share("hybrid_threads", result["hybrid_threads"], hybrid) + " of these"
    yield _share("hybrid_srun", result["hybrid_srun"], hybrid) + " of these"
    for kind in ("hybrid_in_order", "hybrid_programs"):
        yield _share(kind, result[kind], hybrid) + " of these"
    yield _share("srun", result["srun"], scripts)
    yield ""
    kept = {f"hybrid, {who}": codes for who, codes in result["hybrid_kept"].items()}
    columns = {"no advice at all": result["reasons"], **result["reasons_by"], **kept}
    yield f"{'first reason against':<24}" + "".join(f"{name:>18}" for name in columns)
    codes: Counter[str] = sum((Counter(c) for c in columns.values()), Counter())
    for code, _ in codes.most_common():
        yield f"{code:<24}" + "".join(f"{c.get(code, 0):>18}" for c in columns.values())


def _share(kind: str, count: int, of: int) -> str:
    return f"{kind.replace('_', ' '):<18}{count:>6}{100 * count / of if of else 0:>7.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description="how many job scripts the advice reaches")
    parser.add_argument("folder", nargs="?", type=Path, default=EXAMPLES, metavar="FOLDER")
    parser.add_argument("--scheduler", choices=SCHEDULERS, default="", help="its scripts alone")
    parser.add_argument("--site", choices=SITES, default="whole")
    parser.add_argument("--node-cap", action="store_true", help="Slurm's nodes cap whole jobs")
    parser.add_argument("--trials", action="store_true", help="recurring scripts try caps")
    parser.add_argument("--unset", choices=("measured", "unknown"), default="measured")
    parser.add_argument("--threads", choices=("fill", "cap"), default="fill", help="axes.threads")
    parser.add_argument("--half", choices=("even", "odd", "all"), default="all")
    parser.add_argument("--most", type=int, default=0, help="scripts at most; 0: all")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder: name one with job scripts")
    for name in [n for n in os.environ if n.startswith(SETS_ENVIRONMENT)]:
        del os.environ[name]
    script.DEADLINE_S = 1.0  # scripts are counted, not what this machine's processor reads in time
    pose = Pose(args.site, args.unset == "measured", args.threads, args.node_cap, args.trials)
    scripts = Scripts(args.folder, args.scheduler, args.half)
    result = report(reaches(scripts, pose, args.most), scripts, pose)
    if args.json:
        print(json.dumps(result))
    else:
        print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
