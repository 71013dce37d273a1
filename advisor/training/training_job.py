"""What is to be trained: application, workload, how it is started, and its own baseline."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.core import program
from advisor.core.axes import AxisWriting, writings_of
from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.observation import RunMethod
from advisor.core.protocol import MAX_SCRIPT
from advisor.core.rate import RateRule
from advisor.core.reasons import reason
from advisor.core.recognise import ApplicationRule, Recognised, clean_name, names_job, recognise
from advisor.core.request import JobRequest, environment_files_of, understood_of
from advisor.core.requested_configuration import (
    UnclearError,
    bound,
    configuration_of,
    cores_kept,
    fills_nodes,
    partition_of,
    possible_node_types,
    states_what_it_has,
    threads_kept,
    use_of,
)
from advisor.core.script import Command, advisor_lines
from advisor.core.script_use import CAP_VARIABLE, THREAD_VARIABLES, ScriptUse
from advisor.core.settings import stated
from advisor.core.units import format_count
from advisor.errors import InputError, UnknownNameError, UsageError
from advisor.schedulers.submission import SCRIPT_ENDINGS, read_script
from advisor.schedulers.translators import Translator, translator

_FROM_ENVIRONMENT = frozenset({"account", "constraint", "partition", "qos", "time"})
"""Options that the submitting environment may set and a sweep takes over."""
_SRUN = re.compile(r"^[^#\n]*\bsrun\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TrainingSite:
    """What the store knows of the site, as far as training needs it."""

    inventory: Inventory = field(default_factory=Inventory)
    rules: tuple[ApplicationRule, ...] = ()
    default_node_types: Mapping[str, str] = field(default_factory=dict)
    understood_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    axes: Mapping[str, AxisWriting] = field(default_factory=dict)
    """How it has further axes written, where that is not as the scheduler does."""
    environment_files: tuple[str, ...] = ()
    """Files that scripts may source."""

    @classmethod
    def from_store(cls, inventory: Inventory, site: Mapping[str, object]) -> TrainingSite:
        """Read the compiled site file."""
        rules, defaults = site.get("applications"), site.get("default_node_types")
        return cls(
            inventory,
            tuple(ApplicationRule.from_dict(r) for r in rules) if isinstance(rules, list) else (),
            {str(k): str(v) for k, v in defaults.items()} if isinstance(defaults, Mapping) else {},
            understood_of(site),
            writings_of(site),
            environment_files_of(site),
        )


@dataclass(frozen=True, slots=True)
class TrainingSubject:
    """What somebody wants measured: a script or a command, and their words on it.

    ``application`` and ``workload`` win over what is recognised; ``fallback`` names the application
    when nothing is; ``options`` are the scheduler's, given beside the script.
    """

    script: Path | None = None
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    application: str = ""
    workload: str = ""
    node_type: str = ""
    fallback: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """An application to train, and the job that shows how it is run.

    ``launcher`` is the first launcher in the script ("" for none); ``threads_kept`` says why the
    number of threads cannot be varied, "" when it can; ``request`` is the script's job as the
    hooks would see it. ``method``: a job that has its nodes for itself gets its threads by the
    variables ``threads_from``, one that shares them by a smaller request. ``program``: the facts of
    the application's file, where it can be found.
    """

    application: str
    workload: str
    node_type: NodeType
    baseline: Configuration
    request: JobRequest
    script: Path | None = None
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    launcher: str = ""
    threads_kept: str = ""
    freq_kept: str = ""
    partition: str = ""
    method: RunMethod = "variables"
    threads_from: tuple[str, ...] = THREAD_VARIABLES
    left_alone: str = ""
    """Why the advisor will not change this script's jobs, whatever is measured."""
    how: str = ""
    program: Mapping[str, object] = field(default_factory=dict)
    rate: RateRule | None = None
    """How the program's own rate is read from its output."""
    understood_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the site says of options that the advisor does not know."""
    environment_files: tuple[str, ...] = ()
    """Files that the site's scripts may source."""
    fills_cores: bool = False
    """The site vouches that it uses all of its cores while ``threads_from`` are unset."""


def script_named(subject: str, command: Sequence[str]) -> Path | None:
    """Return the job script that is named, None where the name is an application's.

    A name may be that of a file in this folder and yet be an application's: where the ``command``
    runs that very file, or the file is a compiled program.
    """
    path = Path(subject)
    if not subject or not path.is_file():
        return None
    plain = "/" not in subject and path.suffix not in SCRIPT_ENDINGS
    if plain and command:
        if any(Path(word).is_file() and path.samefile(word) for word in command):
            return None
        with contextlib.suppress(OSError), path.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                return None
    return path


def current_user() -> str:
    """Return the name of the user this process runs as (never from the environment)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()


def script_text(path: Path) -> str:
    """Return a job script's text. Raises InputError for what could never be advised."""
    text, truncated = read_script(path)
    if not text.strip():
        raise InputError(f"{path} is empty")
    if "\0" in text:
        raise InputError(f"{path} is not a job script", hint="after --, give a command to run")
    if truncated:
        raise InputError(
            f"{path} is larger than {MAX_SCRIPT // 1024} KB; the advisor leaves its jobs alone",
            hint="move the data it contains into files of their own",
        )
    return text


def understand(
    subject: TrainingSubject,
    *,
    scheduler: str,
    site: TrainingSite,
    this_machine: NodeType | None = None,
    options: Mapping[str, str] | None = None,
    gives_whole_nodes: Callable[[str], bool] = lambda _: False,
) -> TrainingJob:
    """Work out what a script or command runs, where, and with which configuration by default.

    The baseline is what the job itself asks for, at the frequency it gets without asking.
    ``this_machine`` is the node type of the local scheduler; ``gives_whole_nodes`` tells of a
    partition whether its jobs have their nodes for themselves; ``options`` are all that the job
    has, where they were read before. Raises InputError or UsageError.
    """
    script, arguments, command = subject.script, subject.arguments, subject.command
    text = script_text(script) if script is not None else None
    language = translator(scheduler)
    if options is None:
        submit_options = {
            **(_from_environment(language) if scheduler != "local" else {}),
            **language.read_arguments(subject.options),
        }
        options = {
            **(language.read_directives(text, submit_options) if text else {}),
            **submit_options,
        }
    request = _request(scheduler, options, text, script, arguments, command)
    if request.het:
        raise InputError(
            f"{script} is a heterogeneous job: its parts ask for different nodes",
            hint="train a script with one of the parts",
        )
    request = request.with_understood(site.understood_options).with_written(site.axes)
    request = request.with_environment_files(site.environment_files)
    recognition, named_by_user = _recognised(subject, text, request.job_name, site.rules)
    name = recognition.application or subject.fallback
    if not name:
        raise UsageError(
            f"no application is recognised in {script or 'the command'}",
            hint="name it with --application",
        )
    binds = request.binds
    if why := binds.get("all") or binds.get("shape") or ", ".join(request.not_understood):
        raise InputError(
            f"the advisor does not change jobs with {why}, so a sweep is of no use",
            hint="remove the option, or train a script without it",
        )
    chosen = _node_type(subject.node_type, request, site, this_machine)
    partition = _partition(request, chosen, site.inventory)
    vouched = named_by_user or bool(recognition.rule and recognition.rule.executable)
    use = use_of(request, recognition.threads_from, named=vouched)
    if use.freq_khz:  # the launcher's own option goes before the job's
        request = replace(request, freq_khz=use.freq_khz)
    if "place" not in request.options and gives_whole_nodes(partition):
        request = replace(request, exclusive=True)  # what a PBS job says goes before its queue
    whole_nodes = scheduler == "local" or request.exclusive or fills_nodes(request, chosen, use)
    baseline = _baseline(request, chosen, use, local=scheduler == "local")
    is_unset = whole_nodes and not language.SETS_THREADS
    if is_unset and states_what_it_has(request, baseline, (chosen,), use):
        request = replace(request, explicit=request.explicit - {"threads"})
    launcher = recognition.command.launcher if recognition.command else ""
    if not launcher and text is not None and _SRUN.search(text):
        launcher = "srun"  # called in a way that reading alone does not follow
    by_script = "" if CAP_VARIABLE in use.frequency else use.frequency  # which a sweep sets
    freq_kept = by_script or bound(request, "frequency")
    if not whole_nodes:
        freq_kept = "the job shares its nodes"
    launcher_options = recognition.command.launcher_options if recognition.command else ()
    if any(option.startswith("--cpu-freq") for option in launcher_options):
        freq_kept = f"{launcher} --cpu-freq sets it"
    return TrainingJob(
        application=name,
        workload=recognition.workload,
        node_type=chosen,
        baseline=baseline,
        request=request,
        script=None if script is None else script.resolve(),
        arguments=arguments,
        command=command,
        options=options,
        launcher=launcher,
        threads_kept=threads_kept(request, use, recognition.threads_from)
        if whole_nodes
        else cores_kept(request, use),
        freq_kept=freq_kept,
        partition=partition,
        method="variables" if whole_nodes else "request",
        threads_from=recognition.threads_from,
        left_alone=reason(*use.obstacle).cause if use.obstacle[0] else "",
        how="; ".join(r.text for r in recognition.how),
        program=_program(recognition.command, text, options),
        rate=recognition.rule.rate if recognition.rule else None,
        understood_options=site.understood_options,
        environment_files=site.environment_files,
        fills_cores=recognition.fills_cores,
    )


def _recognised(
    subject: TrainingSubject, text: str | None, job_name: str, rules: Sequence[ApplicationRule]
) -> tuple[Recognised, bool]:
    """Return what a script, or without one a command, is; and whether its user named it."""
    stated_settings = dict(stated(os.environ, advisor_lines(text) if text else {}).values)
    for key, value in (("application", subject.application), ("workload", subject.workload)):
        if value:
            stated_settings[key] = (value, "you")
    recognition = recognise(
        text,
        job_name=job_name,
        script_arguments=subject.arguments,
        command=subject.command if text is None else (),
        stated={k: v for k, v in stated_settings.items() if names_job(k)},
        rules=rules,
    )
    return recognition, "application" in stated_settings


def recognised_by_site(
    scheduler: str,
    site: TrainingSite,
    script: Path | None,
    text: str | None,
    words: Sequence[str],
    application: str = "",
) -> Recognised:
    """Return what a script of that text and arguments, or a command, would be recognised as."""
    directives = translator(scheduler).read_directives(text) if text else {}
    name = directives.get("job-name", script.name if script else "")
    arguments, command = (words, ()) if text is not None else ((), words)
    subject = TrainingSubject(script, tuple(arguments), tuple(command), application)
    return _recognised(subject, text, name, site.rules)[0]


def of_experiment(job: TrainingJob) -> TrainingJob:
    """Return the job of an experiment's script, its threads to vary where it only reads them.

    The sweep sets the variable that the script reads; nothing else does.
    """
    only_read = any(
        job.threads_kept == f"the script uses {name} itself"
        and f"{name}=" not in (job.request.script or "")
        for name in job.threads_from
    )
    return replace(job, threads_kept="") if only_read else job


def _program(
    command: Command | None, text: str | None, options: Mapping[str, str]
) -> dict[str, object]:
    """Return the facts of the file a job runs, from this process's folder and PATH."""
    place = program.where(command, text, moved="chdir" in options)
    return program.find(place, Path.cwd())


def _request(
    scheduler: str,
    options: Mapping[str, str],
    text: str | None,
    script: Path | None,
    arguments: Sequence[str],
    command: Sequence[str],
) -> JobRequest:
    language = translator(scheduler)
    argv = [str(script), *arguments] if script is not None else list(command)
    job_options = dict(options)
    if "exclusive" in job_options:
        job_options["exclusive"] = job_options["exclusive"] or "exclusive"
    if script is not None:
        job_options.setdefault("job-name", script.name)
    payload = {
        "hook": "train",
        "type": language.SUBMIT,
        "options": job_options,
        "script": text,
        "script_path": str(script or ""),
        "argv": argv,
        "env": {k: v for k, v in os.environ.items() if k == "OMP_NUM_THREADS"},
    }
    try:
        request = language.parse_request(payload, user=current_user(), uid=os.getuid(), choices={})
    except ValueError as error:
        raise InputError(f"{script or 'the job'}: {error}") from error
    if scheduler != "local":
        return request
    # whatever the script says of partitions, a machine without a scheduler is its user's own
    return replace(request, scheduler=scheduler, partition="", constraint="", exclusive=True)


def _from_environment(language: Translator) -> dict[str, str]:
    """Return the options that sbatch takes from its environment; they win over the script's."""
    options = language.environment_options()
    return {name: value for name, value in options.items() if name in _FROM_ENVIRONMENT and value}


def _node_type(
    name: str, request: JobRequest, site: TrainingSite, this_machine: NodeType | None
) -> NodeType:
    """Return the node type asked for, else the one the job would land on first."""
    known_types = site.inventory.node_types
    if name:
        if name in known_types:
            return known_types[name]
        if this_machine is not None and name == this_machine.name:
            return this_machine
        raise UnknownNameError(
            f"node type {name!r} is not in the inventory",
            hint=f"known: {', '.join(sorted(known_types)) or 'none; run advisor site discover'}",
        )
    if this_machine is not None:
        return known_types.get(this_machine.name, this_machine)
    node_types = possible_node_types(request, site.inventory, site.default_node_types)
    if not known_types:
        raise InputError("the inventory is empty", hint="run advisor site discover")
    if not node_types:
        raise InputError(
            "no node type has the partition and constraint of the job"
            if request.partition or request.constraint
            else "the script names no partition, and site.yaml sets no default_partition",
            hint=f"give --node-type, one of: {', '.join(sorted(known_types))}",
        )
    return node_types[0]


def _partition(request: JobRequest, node_type: NodeType, inventory: Inventory) -> str:
    """Return the partition to submit to: the job's own if it has the node type."""
    partition = partition_of(request, inventory)
    if partition in node_type.partitions or not node_type.partitions:
        return partition
    return node_type.partitions[0]


def _baseline(
    request: JobRequest, node_type: NodeType, use: ScriptUse, *, local: bool
) -> Configuration:
    """Return what the job asks for. A machine without a scheduler is its user's own: all of it.

    Raises InputError when that is not clear, or when the node type has fewer cores.
    """
    try:
        base = configuration_of(request, node_type, use)
    except UnclearError as error:
        raise InputError(f"it is not clear {error}", hint="state it in the script") from None
    limit = node_type.cores * node_type.threads_per_core
    if base.threads_per_node > limit:
        raise InputError(
            f"the job asks for {format_count(base.threads_per_node, 'thread')} per node, "
            f"{node_type.name} has {limit}",
            hint="choose another --node-type",
        )
    return replace(base, nodes=1) if local else base


def named(text: str) -> str:
    """Return a name given on the command line, cleaned. Raises UsageError if it names nothing."""
    name = clean_name(text)
    if not any(character.isalnum() for character in name):
        raise UsageError(f"{text!r} is not a name")
    return name
