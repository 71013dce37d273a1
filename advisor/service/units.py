"""systemd's units as this host needs them, made of those in ``config/systemd``, and their check."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.core.check import Check
from advisor.interpreter import this_python
from advisor.paths import share

FOLDER = Path("/etc/systemd/system")
LOOKED_INTO = (FOLDER, Path("/run/systemd/system"), Path("/usr/lib/systemd/system"))
"""Where systemd looks for units, the first that has one wins; a package's are in the last."""


def program() -> Path:
    """Return the absolute path of the ``advisor`` that runs."""
    sibling = this_python().with_name("advisor")
    return sibling if sibling.exists() else Path(sys.argv[0]).absolute()


def units(command: Path, *, sets_uid: bool) -> dict[str, str]:
    """Return the units' texts by name.

    ``command`` is the program; ``sets_uid``: the scheduler's commands need a setuid program, so
    that the services may gain privileges.
    """
    texts = {}
    for path in sorted(share("config/systemd").iterdir()):
        text = path.read_text(encoding="utf-8")
        ours = re.compile(r"^ExecStart=(?:/usr/bin/env )?advisor ", re.M)
        text = ours.sub(lambda _: f"ExecStart={command} ", text)
        text = text.replace("ExecReload=kill ", "ExecReload=/bin/kill ")
        if sets_uid:
            text = re.sub("^NoNewPrivileges=yes$", "NoNewPrivileges=no", text, flags=re.M)
        texts[path.name] = text
    return texts


_SERVICES = ("advisor.service", "advisor-collect.service")
_INSTALL = "advisor service install && systemctl restart advisor"


def check_units(folders: Sequence[Path], command: Path) -> Iterator[Check]:
    """Check the services in the first of ``folders`` that has them; nothing where none has.

    ``command`` is the ``advisor`` that runs now.
    """
    for name in _SERVICES:
        path = next((f / name for f in folders if (f / name).exists()), None)
        if path is not None:
            yield _check(path, command)


def _check(path: Path, command: Path) -> Check:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Check("service", "warn", f"{path} cannot be read: {error}", _INSTALL)
    match = re.search(r"^ExecStart=[-@:+!]*(\S+)", text, re.M)
    program = Path(match[1]) if match else Path()
    if match is None or not program.is_absolute():
        return Check("service", "fail", f"{path} names no program by its whole path", _INSTALL)
    if why := _fault_of(program):
        return Check("service", "fail", f"{path} cannot start: {why}", _INSTALL)
    if program.resolve() != command.resolve():
        problem = f"{path} runs {program}, this command is {command}"
        return Check("service", "warn", problem, f"call {program}, or: {_INSTALL}")
    return Check("service", "ok", f"{path} runs {program}")


def _fault_of(program: Path) -> str:
    """Return why a program cannot be started, "" where it can as far as its file tells."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError as error:
        return f"{program}: {error.strerror}"
    if not os.access(program, os.X_OK):
        return f"{program} may not be executed"
    words = first[2:].split() if first.startswith(b"#!") else []
    interpreter = os.fsdecode(words[0]) if words else ""
    if interpreter and not os.access(interpreter, os.X_OK):
        return f"the interpreter of {program}, {interpreter}, is not there: install it again"
    return ""
