"""The one way an interpreter of ours is started: it imports nothing from other people's folders.

Python puts the folder that ``-m`` and ``-c`` start in first on its path, before its own library,
and so it does with empty and relative parts of ``PYTHONPATH``: a file ``random.py`` or
``advisor/__init__.py`` in a folder that several people write to would run as whoever starts the
advisor there. Ours start isolated (``-I``), as this very file, which is given the folders to import
from. A user's folder is gone into by the process that is that user already, where the program that
is run needs it. Standard library only.
"""

from __future__ import annotations

import os
import site
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[1])
"""Where the package ``advisor`` lies."""

_SEARCHED = ("PATH", "LD_LIBRARY_PATH")
"""Lists of folders in which programs and libraries are found by name."""
_FOREIGN = ("PYTHON", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH")
"""How variables begin that would put other code into a process of ours."""


def this_python() -> Path:
    """Return the interpreter that runs: to name it, never to start it in another way than ours."""
    return Path(sys.executable)


def own_python(module: str, *arguments: str, folder: str = "") -> list[str]:
    """Return the command that runs a module as ``python -m`` would, from trusted folders only.

    ``folder`` is gone into before the module is run, with the rights that the process has then; ""
    stays where it is started.
    """
    start, paths = str(Path(__file__).resolve()), os.pathsep.join(trusted_folders())
    return [str(this_python()), "-I", start, paths, folder, module, *arguments]


def own_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment (by default this process's) for a process that acts for the site.

    Without what puts other code into it, and with absolute folders only where things are looked
    for by name: an empty or relative part means the folder a process happens to be in. A user's
    own programs get their own environment.
    """
    variables = os.environ if environment is None else environment
    clean = {name: value for name, value in variables.items() if not name.startswith(_FOREIGN)}
    for name in _SEARCHED:
        if name in clean:
            clean[name] = absolute_only(clean[name])
    return {name: value for name, value in clean.items() if value or name not in _SEARCHED}


def search_absolute_folders() -> None:
    """Look for programs and libraries by name in absolute folders only, from now on.

    For root, whom ``.`` in ``PATH`` would have run what lies in the folder it happens to be in.
    """
    for name in _SEARCHED:
        if name in os.environ:
            os.environ[name] = absolute_only(os.environ[name])


def as_given(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what :func:`search_absolute_folders` has changed of an environment that was given."""
    searched = {name: environment[name] for name in _SEARCHED if name in environment}
    return {n: v for n, v in searched.items() if os.environ.get(n) == absolute_only(v) != v}


def absolute_only(folders: str) -> str:
    """Return a list of folders, as in ``PATH``, without its empty and relative parts."""
    return os.pathsep.join(f for f in folders.split(os.pathsep) if f.startswith("/"))


def trusted_folders() -> list[str]:
    """Return where an interpreter of ours imports from, besides its own library and packages.

    The folder of this package, and those in which whoever started this process keeps libraries:
    absolute parts of ``PYTHONPATH`` (a site's environment modules), packages of the user's own.
    Folders that others may write to are left out.
    """
    if sys.flags.isolated:  # such a process was given trusted ones only
        return list(dict.fromkeys([_ROOT, *filter(os.path.isabs, sys.path)]))
    folders: list[str] = []
    if not sys.flags.ignore_environment:
        folders += absolute_only(os.environ.get("PYTHONPATH", "")).split(os.pathsep)
    if site.ENABLE_USER_SITE:
        folders += [site.getusersitepackages()]
    return list(dict.fromkeys([_ROOT, *filter(_trusted, folders)]))


def _trusted(folder: str) -> bool:
    """Tell whether only root, the caller and whoever installed this program write to a folder."""
    try:
        status = Path(folder).stat()
        owner = Path(__file__).stat().st_uid
    except OSError:
        return False
    if not folder.startswith("/"):
        return False
    me = os.geteuid()
    is_callers = status.st_uid == me != 0  # with a group of one's own, a umask of 002 is common
    other_writers = stat.S_IWOTH if is_callers else stat.S_IWOTH | stat.S_IWGRP
    return status.st_uid in (0, me, owner) and not status.st_mode & other_writers


def _main() -> None:
    """Be the module of the command that :func:`own_python` returned."""
    import runpy

    paths, folder, module, *arguments = sys.argv[1:]
    sys.path += [p for p in paths.split(os.pathsep) if p.startswith("/") and p not in sys.path]
    if folder:
        try:
            os.chdir(folder)
        except OSError as error:
            sys.exit(f"advisor: cannot go into {folder}: {error.strerror}")
    sys.argv[:] = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
