"""Where things are: the store, the configuration, the socket, the shipped files.

Order: command-line flag, ``ADVISOR_*`` variable, system place for root, else the user's XDG
folders.
"""

from __future__ import annotations

import os
from pathlib import Path

from advisor.errors import AdvisorError

_PACKAGE = Path(__file__).resolve().parent


def share(relative: str) -> Path:
    """Return a shipped file (``hooks/...``, ``db/...``, ``config/...``), installed or checkout.

    Raises AdvisorError when the installation lacks it.
    """
    for root in (_PACKAGE / "share", _PACKAGE.parent):
        path = root / relative
        if path.exists():
            return path
    raise AdvisorError(f"{relative} is not part of this installation", hint="reinstall hpc-advisor")


def _is_root() -> bool:
    return os.geteuid() == 0


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default


def store_path(flag: str | None = None) -> Path:
    """Return the store's file: ``--db``, ``ADVISOR_DB``, /var/lib/advisor or XDG data."""
    chosen = flag or os.environ.get("ADVISOR_DB")
    if chosen:
        return Path(chosen)
    if _is_root():
        return Path("/var/lib/advisor/advisor.db")
    return _xdg("XDG_DATA_HOME", ".local/share") / "advisor" / "advisor.db"


def config_dir(flag: str | None = None) -> Path:
    """Return the folder of policy.yaml and site.yaml: flag, variable, /etc/advisor or XDG."""
    chosen = flag or os.environ.get("ADVISOR_CONFIG_DIR")
    if chosen:
        return Path(chosen)
    system = Path("/etc/advisor")
    if _is_root() or system.is_dir():
        return system
    return _xdg("XDG_CONFIG_HOME", ".config") / "advisor"


def socket_path(flag: str | None = None) -> Path:
    """Return the daemon's socket: flag, variable, /run/advisor or the user's runtime folder."""
    chosen = flag or os.environ.get("ADVISOR_SOCKET")
    if chosen:
        return Path(chosen)
    system = Path("/run/advisor/advisor.sock")
    if _is_root() or system.exists():
        return system
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) if runtime.startswith("/") else Path(f"/tmp/advisor-{os.getuid()}")
    return base / "advisor" / "advisor.sock"


def state_dir() -> Path:
    """Return the folder for sweeps in progress: XDG state, or beside the system's store."""
    if _is_root() and not os.environ.get("XDG_STATE_HOME"):
        return Path("/var/lib/advisor")
    return _xdg("XDG_STATE_HOME", ".local/state") / "advisor"


def cache_dir() -> Path:
    """Return the folder for what can be made again, like compiled C sources: XDG cache."""
    if _is_root() and not os.environ.get("XDG_CACHE_HOME"):
        return Path("/var/cache/advisor")
    return _xdg("XDG_CACHE_HOME", ".cache") / "advisor"


def choices_path() -> Path:
    """Return the user's own choices file."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "advisor" / "choices.json"
