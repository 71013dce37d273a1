"""systemd's units as this host needs them, made of those in ``config/systemd``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

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
