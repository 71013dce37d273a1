"""Find scheduler backends by name; a site adds one by an entry point ``advisor.schedulers``."""

from __future__ import annotations

import shutil
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from advisor.errors import InputError, SchedulerError
from advisor.schedulers.base import Scheduler

GROUP = "advisor.schedulers"
_BUILT_IN = {
    "slurm": "advisor.schedulers.slurm.scheduler:Slurm",
    "pbs": "advisor.schedulers.pbs.scheduler:Pbs",
    "local": "advisor.schedulers.local.scheduler:Local",
}
"""What a checkout that is not installed offers too."""


def names() -> tuple[str, ...]:
    """Return the names of all backends."""
    return tuple(dict.fromkeys([*_BUILT_IN, *(e.name for e in entry_points(group=GROUP))]))


def create(name: str) -> Scheduler:
    """Make a backend; InputError naming the known ones for an unknown name."""
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast(Scheduler, getattr(import_module(module), attribute)())
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return cast(Scheduler, entry.load()())
    raise InputError(f"no scheduler is called {name!r}", hint=f"choose from: {', '.join(names())}")


def default_name() -> str:
    """Return ``slurm`` or ``pbs`` where that can be asked, else ``local``."""
    return next((n for n in ("slurm", "pbs") if create(n).available() is None), "local")


def installed_name() -> str:
    """Return ``pbs`` where its commands are and Slurm's are not, else ``slurm``: up or down."""
    from advisor.schedulers.pbs.control import program

    if shutil.which("scontrol") is None:
        with suppress(SchedulerError):
            program("pbsnodes")
            return "pbs"
    return "slurm"
