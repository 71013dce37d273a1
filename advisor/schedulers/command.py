"""Run a scheduler's own command, or a script as a scheduler would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor.errors import SchedulerError
from advisor.interpreter import as_given

_BY_LIBRARIES = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""Variables of Intel's OpenMP that threadpoolctl and joblib set in this process."""


def session_environment() -> dict[str, str]:
    """Return the environment that this process was given, for the programs of a user's job."""
    try:
        given = Path("/proc/self/environ").read_text(errors="replace").split("\0")
    except OSError:  # no /proc here: take all
        return dict(os.environ)
    variables = dict(variable.partition("=")[::2] for variable in given)
    ours = set(_BY_LIBRARIES).difference(variables)
    return {name: value for name, value in os.environ.items() if name not in ours} | as_given(
        variables
    )


def run_command(
    argv: Sequence[str], *, timeout_s: float = 60.0, variables: Mapping[str, str] | None = None
) -> str:
    """Run a scheduler's command and return its stdout. Raises SchedulerError with its stderr.

    ``variables`` are added to this process's environment.
    """
    environment = {**os.environ, **variables} if variables else None
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False,
            env=environment,
        )  # fmt: skip
    except FileNotFoundError:
        raise SchedulerError(f"{argv[0]} is not installed here") from None
    except OSError as error:
        raise SchedulerError(f"{argv[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{argv[0]} gave no answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        message = " ".join(lines[-1].split()) if lines else f"exit code {done.returncode}"
        raise SchedulerError(f"{argv[0]}: {message.removeprefix(f'{argv[0]}: ')}")
    return done.stdout.decode(errors="replace")


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
    words = line[2:].decode(errors="replace").strip().split(None, 1)
    return words or ["/bin/sh"]
