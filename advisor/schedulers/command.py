"""Run a scheduler's own commands: the one way to do so, with one environment for all.

What a command prints depends on its environment: how it writes times, which columns and jobs it
shows, in which zone and language. So questions get an environment of their own
(:func:`run_command`); submissions, whose environment becomes the job's, get the user's
(:func:`submit`, and :func:`start` where what the job prints is read while it runs).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import SchedulerError
from advisor.interpreter import as_given

_BY_LIBRARIES = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""Variables of Intel's OpenMP that threadpoolctl and joblib set in this process."""


def session_environment() -> dict[str, str]:
    """Return the environment that this process was given, for the programs of a user's job."""
    try:
        entries = Path("/proc/self/environ").read_text(errors="replace").split("\0")
    except OSError:  # no /proc here: take all
        return dict(os.environ)
    variables = dict(variable.partition("=")[::2] for variable in entries)
    ours = set(_BY_LIBRARIES).difference(variables)
    return {name: value for name, value in os.environ.items() if name not in ours} | as_given(
        variables
    )


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a command that could be run left: exit code, stdout and stderr as text."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Shaping:
    """What of a scheduler's variables shapes what its commands print.

    ``prefixes`` and ``names`` are those that a question goes without; ``given`` are set for it.
    Those that choose a cluster or a server stay.
    """

    prefixes: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    given: Mapping[str, str] | None = None

    def environment(self) -> dict[str, str]:
        """Return this process's environment as a question gets it: UTC, and no language."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(self.prefixes) and name not in self.names
        }
        return {**inherited, "TZ": "UTC", "LC_ALL": "C", **(self.given or {})}


def answer(argv: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> CommandAnswer:
    """Run a command to its end, without input. Raises SchedulerError where it cannot be run."""
    try:
        process = subprocess.run(
            argv,
            capture_output=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
            env=environment,
        )
    except FileNotFoundError:
        raise SchedulerError(f"{argv[0]} is not installed here") from None
    except OSError as error:
        raise SchedulerError(f"{argv[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{argv[0]} gave no answer within {timeout_s:g} s") from None
    return CommandAnswer(
        process.returncode,
        process.stdout.decode(errors="replace"),
        process.stderr.decode(errors="replace"),
    )


def run_command(argv: Sequence[str], shaping: Shaping, *, timeout_s: float = 60.0) -> str:
    """Ask by a scheduler's command and return its stdout. Raises SchedulerError with its stderr."""
    reply = answer(argv, shaping.environment(), timeout_s)
    if reply.code != 0:
        lines = reply.err.strip().splitlines()
        message = " ".join(lines[-1].split()) if lines else f"exit code {reply.code}"
        raise SchedulerError(f"{argv[0]}: {message.removeprefix(f'{argv[0]}: ')}")
    return reply.out


class SubmissionRefusedError(SchedulerError):
    """The scheduler took no job; after other errors nobody knows whether it did."""


def submit(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Submit a sweep's job with this environment and return the command's stdout.

    Raises SubmissionRefusedError with what the command says against it, SchedulerError where it
    cannot be run or does not end.
    """
    reply = answer(argv, environment, 120.0)
    if reply.code != 0 or not reply.out.strip():
        name = Path(argv[0]).name
        message = " ".join((reply.err or reply.out).split()) or "no answer"
        raise SubmissionRefusedError(
            f"{name} refused the sweep: {message.removeprefix(f'{name}: ')}"
        )
    return reply.out


CommandProcess = subprocess.Popen[str]
"""A command that runs; stdout and stderr are pipes of text."""


def start(argv: Sequence[str], environment: Mapping[str, str]) -> CommandProcess:
    """Start a command that waits for its job; what it prints can be read while it runs.

    It is the first of a group of its own, so that signals of the terminal do not reach it. Raises
    SchedulerError where it cannot be run.
    """
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            process_group=0,
        )
    except OSError as error:
        raise SchedulerError(f"{argv[0]} cannot be run: {error.strerror}") from error


def interpreter(script: Path) -> list[str]:
    """Return what runs a script, from its first line; /bin/sh where it names nothing.

    The script need not be executable, as with sbatch. Raises SchedulerError when unreadable.
    """
    try:
        with script.open("rb") as file:
            line = file.readline(4096)
    except OSError as error:
        raise SchedulerError(f"cannot read {script}: {error.strerror}") from error
    if not line.startswith(b"#!"):
        return ["/bin/sh"]
    # The kernel, too, hands all that stands behind the interpreter over as one word.
    words = line[2:].decode(errors="replace").strip().split(None, 1)
    return words or ["/bin/sh"]
