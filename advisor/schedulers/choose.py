"""Which scheduler to use: by name, or the one this machine has."""

from __future__ import annotations

import logging

from advisor import plugins
from advisor.errors import InputError
from advisor.schedulers.base import JobHere, Scheduler

log = logging.getLogger("advisor.schedulers")


def create(name: str) -> Scheduler:
    """Return a scheduler. Raises InputError for a name nobody registered, and for a broken one."""
    backend = plugins.load("schedulers", name)
    try:
        scheduler: Scheduler = backend()
        _ = scheduler.NAME, scheduler.LABEL, scheduler.DESCRIPTION, scheduler.RANK
    except Exception as error:
        raise InputError(
            f"scheduler {name!r} ({backend.__module__}) cannot be used: {error}",
            hint="mend or remove the package that offers it",
        ) from error
    return scheduler


def every() -> list[Scheduler]:
    """Return all schedulers that load, in the order in which they are asked.

    One that does not is only logged: a broken package of a site's own must not take the others
    along. Raises InputError where none is registered: in a checkout that nobody installed.
    """
    schedulers = []
    for name in plugins.names("schedulers"):
        try:
            schedulers.append(create(name))
        except InputError as error:
            log.warning("event=plugin-broken error=%r", str(error))
    if not schedulers:
        raise InputError("no scheduler is registered", hint="install the advisor: pip install .")
    return sorted(schedulers, key=lambda s: s.RANK)


def default() -> Scheduler:
    """Return the first scheduler that can be used here; the embedded one always can."""
    schedulers = every()
    return next((s for s in schedulers if s.available() is None), schedulers[-1])


def job_here() -> JobHere | None:
    """Return the job that this process runs in, as its scheduler shows it; None in no job."""
    return next((job for s in every() if (job := s.job_here()) is not None), None)


def installed() -> Scheduler:
    """Return the first scheduler whose commands are here, up or down; else the first of all."""
    schedulers = every()
    return next((s for s in schedulers if s.installed()), schedulers[0])
