"""A job script as its scheduler's hook would send it, had the caller submitted it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.core.protocol import MAX_SCRIPT
from advisor.errors import InputError, UnknownNameError
from advisor.paths import choices_path

if TYPE_CHECKING:
    from advisor.core.request import JobRequest


SCRIPT_ENDINGS = (".sh", ".slurm", ".sbatch", ".pbs", ".job", ".bash")
"""What the names of job scripts end with."""
_OWN_PLACES = (
    "ADVISOR_DB",
    "ADVISOR_CONFIG_DIR",
    "ADVISOR_SOCKET",
    "ADVISOR_STAMP",
    "ADVISOR_PLAN",
)


def read_script(path: Path) -> tuple[str, bool]:
    """Return a script's text as hooks send it, and whether they cut it off.

    Raises InputError for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SCRIPT + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", hint="name a readable job script"
        ) from None
    return raw[:MAX_SCRIPT].decode("utf-8", "replace"), len(raw) > MAX_SCRIPT


def payload_of(
    path: Path,
    options: Sequence[str] = (),
    user: str | None = None,
    *,
    scheduler: str,
) -> dict[str, object]:
    """Return what the scheduler's hook would send for ``sbatch OPTIONS SCRIPT`` (or qsub).

    ``user`` None is the caller, with the caller's environment. Raises InputError when the script
    cannot be read or there is no such user.
    """
    from advisor.schedulers.translators import translator

    language = translator(scheduler)
    uid, name = identity(user)
    script, truncated = read_script(path)
    submit_options = language.environment_options() | language.read_arguments(options)
    submit_options = language.read_directives(script, submit_options) | submit_options
    submit_options.setdefault("job-name", path.name)
    return {
        "type": language.SUBMIT,
        "options": submit_options,
        "script": script,
        "script_path": str(path),
        "truncated": truncated,
        "argv": [str(path)],
        "env": _own_environment(),
        "choices": _choices(name if user is not None else None),
        "uid": uid,
        "cwd": str(Path.cwd()),
        "program": {} if user is not None else _program(script, moved="chdir" in submit_options),
    }


def _program(script: str, *, moved: bool) -> dict[str, object]:
    """Return the facts of the file a script runs, as the caller's own submission would see it."""
    from advisor.core.program import find, where
    from advisor.core.script import main_command

    return find(where(main_command(script), script, moved=moved), Path.cwd())


def scheduler_of(path: Path) -> str:
    """Return whose job script this is by its lines of options; this machine's where it has none."""
    from advisor.schedulers.choose import every
    from advisor.schedulers.here import installed_name
    from advisor.schedulers.translators import translator

    try:
        lines = read_script(path)[0].splitlines()
    except InputError:
        lines = []  # whoever reads it next says what is wrong
    for scheduler in every():
        if any(line.startswith(translator(scheduler.NAME).DIRECTIVE) for line in lines):
            return scheduler.NAME
    return installed_name()


def read_job(path: Path, *, scheduler: str, hook: str) -> JobRequest:
    """Return the caller's request for a script. Raises InputError for what makes no sense."""
    from advisor.core.settings import parse_choices
    from advisor.schedulers.translators import translator

    payload = {**payload_of(path, scheduler=scheduler), "hook": hook}
    uid, user = identity(None)
    choices, _ = parse_choices(str(payload["choices"]))
    try:
        request = translator(scheduler).parse_request(payload, user=user, uid=uid, choices=choices)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    return replace(request, scheduler=scheduler)


def identity(user: str | None) -> tuple[int, str]:
    """Return uid and name of a user, of the caller by default. Raises InputError."""
    if user is None:
        uid = os.getuid()
        try:
            return uid, pwd.getpwuid(uid).pw_name
        except KeyError:
            return uid, str(uid)
    try:
        return pwd.getpwnam(user).pw_uid, user
    except KeyError:
        raise UnknownNameError(f"--user {user}: no such user") from None


def _own_environment() -> dict[str, str]:
    variables = {
        k: v for k, v in os.environ.items() if k.startswith("ADVISOR") and k not in _OWN_PLACES
    }
    if "OMP_NUM_THREADS" in os.environ:
        variables["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
    return variables


def _choices(user: str | None) -> str:
    path = choices_path()
    if user is not None and user != identity(None)[1]:
        path = Path(pwd.getpwnam(user).pw_dir) / ".config" / "advisor" / "choices.json"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
