"""Which scheduler is spoken to here, told without loading one: that takes longer than to decide."""

from __future__ import annotations

from importlib import import_module

from advisor import plugins


def installed_name() -> str:
    """Return the name of :func:`~advisor.schedulers.choose.installed`.

    The packages of the advisor's own tell by themselves; where others are added, all are loaded.
    """
    entries = plugins.found("schedulers")
    if not entries or plugins.added("schedulers"):
        from advisor.schedulers.choose import installed

        return installed().NAME
    packages = {n: import_module(e.module.rpartition(".")[0]) for n, e in entries.items()}
    ranked = sorted(packages, key=lambda name: packages[name].RANK)
    return next((name for name in ranked if packages[name].installed()), ranked[0])


def named(scheduler: str) -> str:
    """Return a scheduler's name, this machine's for "": a stamp does not name it."""
    return scheduler or installed_name()
