"""Run a scheduler's own command."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from advisor.errors import SchedulerError


def run_command(argv: Sequence[str], *, timeout_s: float = 60.0) -> str:
    """Run a scheduler's command and return its stdout. Raises SchedulerError with its stderr."""
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError:
        raise SchedulerError(f"{argv[0]} is not installed here") from None
    except OSError as error:
        raise SchedulerError(f"{argv[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"{argv[0]} gave no answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        said = " ".join(lines[-1].split()) if lines else f"exit code {done.returncode}"
        raise SchedulerError(f"{argv[0]}: {said.removeprefix(f'{argv[0]}: ')}")
    return done.stdout.decode(errors="replace")
