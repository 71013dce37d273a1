"""Recognise the application and the workload of a job.

Order: what the user states (``ADVISOR_APPLICATION``, ``#ADVISOR application=``), the site's
rules, the first launcher line's executable, else the last command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple, cast

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
ALL_CORES = "all-cores"
"""What a rule's ``threads_unset`` says of a program that uses all of its cores by itself."""


@dataclass(frozen=True, slots=True)
class ApplicationRule:
    """A site's rule: glob patterns on executable and job name, a regex on the arguments.

    ``workload`` may use the regex's named groups, like ``n{size}``; ``threads_from`` names the
    variables that set the program's threads, where that is not OMP_NUM_THREADS; ``fills_cores``
    vouches that while these are unset each rank uses as many threads as it has cores; ``rate``
    reads the program's own rate from its output; ``parameters`` are templates of the numbers that
    its size is, and those named in ``ignore`` do not count.
    """

    name: str
    executable: tuple[str, ...] = ()
    job_name: tuple[str, ...] = ()
    arguments: tuple[re.Pattern[str], ...] = ()
    workload: str = ""
    threads_from: tuple[str, ...] = ()
    rate: RateRule | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    fills_cores: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> ApplicationRule:
        """Build a rule from the compiled site file."""

        def strings(key: str) -> tuple[str, ...]:
            value = data.get(key) or ()
            return tuple(str(v) for v in value) if isinstance(value, list | tuple) else ()

        return cls(
            str(data["name"]),
            strings("executable"),
            strings("job_name"),
            tuple(re.compile(p) for p in strings("arguments")),
            str(data.get("workload") or ""),
            strings("threads_from"),
            RateRule.from_dict(data.get("rate")),
            dict(cast("Mapping[str, str]", data.get("parameters") or {})),
            strings("ignore"),
            data.get("threads_unset") == ALL_CORES,
        )


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
            name = clean_name(word.rsplit("/", 1)[-1])
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
    return clean_name(re.sub(r"\{(\w+)\}", lambda m: groups.get(m[1], m[0]), template))
