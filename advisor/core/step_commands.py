"""What a script starts as steps, one by one, as far as reading tells before it runs.

Nothing here asks whether the whole script is understood: a step is looked up again where it starts
(:mod:`advisor.core.step_plan`), and one that is not what was read has no entry there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from advisor.core.codec import Record, wire
from advisor.core.recognise import (
    MOST_PROGRAMS,
    ApplicationRule,
    clean_name,
    recognise,
    without_secrets,
)
from advisor.core.request import JobRequest
from advisor.core.script import Command, commands, threads_of
from advisor.core.script_limits import ends_programs
from advisor.core.script_use import lists_cores, ranks_of_step, reads_cap, use_of_command
from advisor.core.step_plan import ANY
from advisor.core.wrappers import program_at_step

SRUN = "srun"
_UNRESOLVED = frozenset("$`")
_CUT = "the part of it that is not known"


@dataclass(frozen=True, slots=True)
class StepCommand(Record):
    """A program that a job starts as a step; ``arguments`` are cleaned, ANY where not known.

    ``ranks`` are those of all nodes that its line states, None for the job's own number, 0 for any.
    ``variable`` sets its threads, ``fills_cores`` is the site's word for while that is unset, and
    ``threads_kept`` says why the threads stay, "" where they may change.
    """

    program: str
    arguments: str
    application: str
    workload: str
    ranks: int | None
    variable: str
    fills_cores: bool
    threads_kept: str


@dataclass(frozen=True, slots=True)
class JobSteps(Record):
    """The programs that a script starts as steps, each once, and what the whole script keeps.

    ``threads`` are the numbers of threads that it states for a rank, None where they are open, and
    ``ends`` is what in it may end a program after a time.
    """

    commands: tuple[StepCommand, ...]
    threads: tuple[int, ...] | None = ()
    threads_kept: str = ""
    frequency_kept: str = ""
    ends: str = field(default="", metadata=wire(omit=True))


def job_steps(request: JobRequest, rules: Sequence[ApplicationRule]) -> JobSteps:
    """Return what a job's script starts by srun, as far as reading follows."""
    script = request.script or ""
    ends = _CUT if request.script_truncated else ends_programs(script, request.command[1:])
    if SRUN not in script:
        return JobSteps((), ends=ends)
    # A dictionary keeps the order in which they stand, of which the plan's room takes the first.
    steps: dict[StepCommand, None] = {}
    for command in commands(script, request.command[1:]):
        if command.launcher == SRUN and len(steps) < MOST_PROGRAMS:
            step = _step_of(command, request.job_name, rules)
            if step is not None:
                steps[step] = None
    threads = threads_of(script, request.command[1:])
    stated = None if threads.unclear else tuple(filter(None, (threads.count,)))
    threads_kept = "the script binds threads to a list of cores" if lists_cores(script) else ""
    return JobSteps(tuple(steps), stated, threads_kept, reads_cap(script), ends)


def step_names(request: JobRequest) -> set[str]:
    """Return the programs' names alone, which is much quicker."""
    script = request.script or ""
    if SRUN not in script:
        return set()
    return {c.executable for c in commands(script, request.command[1:]) if c.launcher == SRUN}


def _step_of(
    command: Command, job_name: str, rules: Sequence[ApplicationRule]
) -> StepCommand | None:
    """Return a command as a step, None for one that is not looked up or runs other programs."""
    # What stands in front of srun (`time srun`) is no part of the step's own words.
    front = command.wrappers[command.before_launcher :]
    if program_at_step([*front, command.word]) != len(front):
        return None  # the hook at the step takes another word for its program
    ranks, unclear = ranks_of_step(command)
    is_resolved = _UNRESOLVED.isdisjoint("".join(command.arguments))
    step = named_step(
        command.executable, command.arguments if is_resolved else None, job_name, rules
    )
    return step and replace(step, ranks=0 if unclear else ranks)


def named_step(
    program: str,
    arguments: Sequence[str] | None,
    job_name: str,
    rules: Sequence[ApplicationRule],
) -> StepCommand | None:
    """Return a program as a step of any number of ranks; ``arguments`` None: not known.

    None where it cannot be told apart: several variables set its threads, what it is depends on
    arguments that are not known, or it starts other programs. Unknown arguments may set threads.
    """
    if arguments is None and not _is_told_by_name(program, rules):
        return None
    words = (program, *(arguments or ()))
    recognised = recognise(None, job_name=job_name, command=words, rules=rules)
    # An entry of the plan has one variable for the threads.
    if not recognised.application or len(recognised.threads_from) != 1:
        return None
    vouched = recognised.rule is not None and bool(recognised.rule.executable)
    use = use_of_command(words, recognised.threads_from, named=vouched)
    if use.obstacle[0]:
        return None
    return StepCommand(
        clean_name(program),
        ANY if arguments is None else clean_name(without_secrets(arguments)),
        recognised.application,
        recognised.workload,
        0,
        recognised.threads_from[0],
        recognised.fills_cores,
        use.threads if arguments is not None else "its arguments are not known, and may set them",
    )


def _is_told_by_name(program: str, rules: Sequence[ApplicationRule]) -> bool:
    """Tell whether the site's rules name a program's application whatever its arguments are."""
    for rule in rules:
        if not rule.executable or any(fnmatchcase(program, p) for p in rule.executable):
            if rule.arguments or rule.parameters or rule.ignore:
                return False
            if rule.executable and not rule.job_name:
                return True
    return True
