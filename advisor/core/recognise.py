"""Recognise the application and the workload of a job.

Order: what the user states (``ADVISOR_APPLICATION``, ``#ADVISOR application=``), the site's
rules, the first launcher line's executable, else the last command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple

from advisor.core.codec import KeyPath, Record, wire
from advisor.core.keys import Written
from advisor.core.parameters import parse_number, sized_line
from advisor.core.rate import RateRule
from advisor.core.reasons import Reason, reason
from advisor.core.script import Command, command_of, commands, main_command
from advisor.core.script_use import THREAD_VARIABLES

_UNSAFE = re.compile(r"[^\w.+:=,@%/\- ]")
MAX_NAME = 200
"""Characters of an application's name that are kept."""
SIZE = "size."
"""How settings begin that state a parameter: ``#ADVISOR size.n=4e6``."""
ThreadsUnset = Literal["", "all-cores"]


def _compiled_arguments(
    data: Mapping[str, Any], key: str, path: KeyPath
) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(expression) for expression in data.get(key, ()))


# Each key of an application in site.yaml is defined once, here (core/keys.py says how).


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How an application is recognised: all the given conditions must hold."""

    executable: Annotated[tuple[str, ...], Written.PATTERNS, "the program's file name"] = ()
    job_name: Annotated[tuple[str, ...], Written.PATTERNS, "the job's name"] = ()
    arguments: Annotated[
        tuple[re.Pattern[str], ...],
        Written.EXPRESSIONS,
        "regular expressions to find in the arguments; named groups fill `workload`",
    ] = field(default=(), metadata=wire(read=_compiled_arguments))


@dataclass(frozen=True, slots=True)
class ApplicationRule(Conditions, Record):
    """An application the site knows by name; the first whose match holds wins."""

    name: Annotated[str, Written.NAME, "the name models are kept under"]
    workload: Annotated[
        str,
        Written.WORKLOAD,
        "its input: a name, or a template filled from named groups, like n{size}",
    ] = ""
    threads_from: Annotated[
        tuple[str, ...],
        Written.THREAD_VARIABLES,
        "the variables that set its threads, where that is not OMP_NUM_THREADS",
    ] = ()
    threads_unset: Annotated[
        ThreadsUnset,
        "`all-cores`: while these variables are unset, each of its ranks uses as many threads as "
        "it has cores. Without this line, the advisor only sets a variable that a job leaves unset "
        "where a measured run with it unset used that many threads. Never say so of programs that "
        "start workers, like joblib, torchrun, Ray, Dask or Spark",
    ] = ""
    parameters: Annotated[
        Mapping[str, str],
        Written.TEMPLATES,
        "the numbers that make up its size, each a template filled from named groups: "
        "{n: '{size}'}",
    ] = field(default_factory=dict)
    ignore: Annotated[
        tuple[str, ...], Written.WORDS, "names of numbers in its line without effect, like seed"
    ] = ()
    rate: Annotated[
        RateRule | None,
        "how its own rate is read from its output by `advisor run` and `train`: "
        "{match, take, unit}, or the expression alone",
    ] = None

    @property
    def fills_cores(self) -> bool:
        """Whether the site vouches for what it does while its variables are unset."""
        return self.threads_unset == "all-cores"


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a job runs. ``application`` is "" when nothing was recognised."""

    application: str
    workload: str
    command: Command | None
    how: tuple[Reason, ...]
    rule: ApplicationRule | None = None
    """The site's rule for the application."""

    @property
    def threads_from(self) -> tuple[str, ...]:
        """The variables that set the program's threads."""
        return (self.rule.threads_from if self.rule else ()) or THREAD_VARIABLES

    @property
    def fills_cores(self) -> bool:
        """Whether the site vouches for what it does while those variables are unset."""
        return self.rule is not None and self.rule.fills_cores


class StepProgram(NamedTuple):
    """A program that a script starts: by ``name`` its steps stand in the accounting."""

    name: str
    application: str
    workload: str


MOST_PROGRAMS = 40
"""Programs of a script that are told apart, by all names of their steps."""


def programs_of(
    script: str, arguments: Sequence[str], job_name: str, rules: Sequence[ApplicationRule]
) -> tuple[StepProgram, ...] | None:
    """Return what a script starts, as far as reading follows, by each name its steps may have.

    ``srun python -u train.py`` is a step named python, of the application train.py. None of a
    script that starts too many.
    """
    programs: dict[StepProgram, None] = {}
    for command in commands(script, tuple(arguments)):
        words = (command.executable, *command.arguments)
        recognised = recognise(None, job_name=job_name, command=words, rules=rules)
        for word in (command.executable, *command.wrappers):
            name = clean_name(word.partition(" ")[0].rsplit("/", 1)[-1])
            # Options of an interpreter stand among the wrappers and name no step.
            if name and not name.startswith("-"):
                program = StepProgram(name, recognised.application, recognised.workload)
                programs[program] = None
        if len(programs) > MOST_PROGRAMS:
            return None
    return tuple(programs)


_SECRET_NAME = re.compile(
    r"(?:token|passw(?:or)?d|passphrase|secret|credentials?|(?:api|access|private|auth)[-_]?key)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"(?<=://)[^/@\s]+(?=@)|(?<=Bearer )\S+"  # user and password in an address, a header
    r"|\b(?:gh[pousr]_|glpat-|hf_|sk-|xox[abp]-|AKIA)[\w-]{12,}|\beyJ[\w-]{10,}\.[\w.-]+"
)
"""What some services' keys begin with, and signed tokens."""
_DOTS = "..."


def clean_name(text: str) -> str:
    """Return a name safe to print and store: no control or shell characters, bounded length."""
    return _UNSAFE.sub("_", " ".join(text.split()))[:MAX_NAME].strip()


def names_job(setting: str) -> bool:
    """Tell whether a setting says what a job runs."""
    return setting in ("application", "workload") or setting.startswith(SIZE)


def recognise(
    script: str | None,
    *,
    job_name: str = "",
    script_arguments: Sequence[str] = (),
    command: Sequence[str] = (),
    submit_line: str = "",
    stated: Mapping[str, tuple[str, str]] | None = None,
    rules: Sequence[ApplicationRule] = (),
) -> Recognised:
    """Tell application and workload of a job.

    ``command`` is the words after srun (or of --wrap) for jobs without a script; where neither it
    nor the script is known, rules look for arguments in ``submit_line``. ``stated`` maps
    ``application``, ``workload`` and ``size.NAME`` to (value, where it was stated).
    """
    stated = stated or {}
    main = command_of(command) if command else None
    if main is None and script is not None:
        main = main_command(script, script_arguments)
    line = " ".join(main.arguments) if main else ""
    application, workload = "", ""
    sizes: dict[str, tuple[str, str]] = {}
    named: ApplicationRule | None = None
    how: list[Reason] = []
    for rule in rules:
        groups = _match(rule, main, job_name, line if main else submit_line)
        if groups is None:
            continue
        application, named = rule.name, rule
        workload = _fill(rule.workload, groups)
        sizes = {n: (_fill(t, groups), "site rule") for n, t in rule.parameters.items()}
        how.append(reason("application-rule", rule.name))
        break
    else:
        if main is not None:
            application = clean_name(main.executable)
            code = "application-launcher" if main.launcher or command else "application-command"
            how.append(reason(code, application))
    if "application" in stated:
        application, where = clean_name(stated["application"][0]), stated["application"][1]
        # What is stated counts alone: the rule that matched has decided nothing.
        how = [reason("application-stated", application, where)]
        named = next((r for r in rules if r.name == application), None)
    if "workload" in stated:
        workload = clean_name(stated["workload"][0])
    workload = workload or clean_name(without_secrets(main.arguments if main else ())) or "default"
    sizes |= {k.removeprefix(SIZE): v for k, v in stated.items() if k.startswith(SIZE)}
    if sizes or (named and named.ignore):
        workload, wrong = _with_sizes(workload, sizes, named.ignore if named else ())
        how += wrong
    return Recognised(application, workload, main, tuple(how), named)


def without_secrets(arguments: Sequence[str]) -> str:
    """Return arguments as one line, dots for what looks like a password or a token.

    A workload is named by its arguments, and its name stands in stamps that others can see.
    """
    words = []
    hidden = False
    for word in arguments:
        name, equals, _ = word.partition("=")
        # Behind `--token` an option may follow in place of a value, which hides nothing.
        if hidden and not word.startswith("-"):
            words.append(_DOTS)
            hidden = False
        elif _SECRET_NAME.search(name) and (equals or name.startswith("-")):
            words.append(f"{name}={_DOTS}" if equals else name)
            hidden = not equals
        else:
            words.append(_SECRET_VALUE.sub(_DOTS, word))
            hidden = word == "Bearer"
    return " ".join(words)


def _with_sizes(
    workload: str, sizes: Mapping[str, tuple[str, str]], ignore: Sequence[str]
) -> tuple[str, list[Reason]]:
    """Return the workload's name by its sizes, and what is wrong with some of them."""
    values, wrong = {}, []
    for name, (text, where) in sizes.items():
        try:
            values[clean_name(name)] = parse_number(text)
        except ValueError as error:
            wrong.append(reason("setting-refused", f"{SIZE}{name}={text} ({where})", error))
    return clean_name(sized_line(workload, values, ignore)), wrong


def _match(
    rule: ApplicationRule, command: Command | None, job_name: str, line: str
) -> dict[str, str] | None:
    """Return the named groups of the arguments' regex if the rule matches, else None."""
    if not (rule.executable or rule.job_name or rule.arguments):
        return None
    if rule.executable and not (
        command and any(fnmatchcase(command.executable, p) for p in rule.executable)
    ):
        return None
    if rule.job_name and not any(fnmatchcase(job_name, p) for p in rule.job_name):
        return None
    groups: dict[str, str] = {}
    for pattern in rule.arguments:
        match = pattern.search(line)
        if match is None:
            return None
        groups.update({k: v for k, v in match.groupdict().items() if v is not None})
    return groups


def _fill(template: str, groups: Mapping[str, str]) -> str:
    # The placeholder of a group that took no part stays, so that the name shows what is missing.
    return clean_name(re.sub(r"\{(\w+)\}", lambda m: groups.get(m[1], m[0]), template))
