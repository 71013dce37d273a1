"""Where things are: the store, the configuration, the socket, the shipped files.

Order: command-line flag, ``ADVISOR_*`` variable, system place for root, else the user's XDG
folders. Who has no store of their own reads the site's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from advisor.database import DatabaseAddress, is_readable, store_at
from advisor.errors import AdvisorError, StoreError

_PACKAGE = Path(__file__).resolve().parent
SYSTEM = Path("/")
"""Below it lie etc, run, var/cache and var/lib; tests put another folder here."""

_ASK_S = 0.3
"""How long a daemon may take to name its store; one that is well takes a millisecond."""


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


def store_path(flag: str | None = None, *, own: bool = False, socket: str | None = None) -> Path:
    """Return the store's file: ``--db``, ``ADVISOR_DB``, else the caller's own, else the site's.

    The caller's own is /var/lib/advisor/advisor.db for root, in XDG data for others. Without one,
    the site's is the store that the daemon answers from, else the one in /var/lib/advisor, if the
    caller may read it. ``own``: never the site's. ``socket``: the daemon to ask. Raises StoreError
    where the file system of the one named, or of the site's, does not answer; the former is not
    asked for one's ``own``: the daemon waits for it.
    """
    chosen = flag or os.environ.get("ADVISOR_DB")
    if chosen:
        place = store_at(chosen)
        if not own and not isinstance(place, DatabaseAddress):
            from advisor.mounts import ANOTHER_STORE, check_answers

            check_answers(place, hint=ANOTHER_STORE)
        return place
    system = SYSTEM / "var/lib/advisor/advisor.db"
    own_store = (
        system if _is_root() else _xdg("XDG_DATA_HOME", ".local/share") / "advisor/advisor.db"
    )
    if own or os.path.exists(own_store):  # noqa: PTH110  a folder that is closed to us is no error
        return own_store
    existing = (store for store in (_daemons_store(socket), system) if store and is_readable(store))
    return next(existing, own_store)


def whole_store(flag: str | None = None, *, hint: str = "") -> Path:
    """Return the store, for who needs all of it or writes to it.

    Raises StoreError where that is the site's and closed to the caller: nobody shall get an empty
    store of their own instead. ``hint``: what to do in place of it.
    """
    store = store_path(flag)
    if flag or os.environ.get("ADVISOR_DB") or _is_root() or os.path.exists(store):  # noqa: PTH110
        return store
    site = closed_store()
    if site is not None:
        raise StoreError(
            f"{site}: this is the site's store, and only its owner may open it",
            hint=f"{hint or 'ask your admin'}; for a store of your own: --db FILE",
        )
    return store


def closed_store() -> Path | None:
    """Return the store that the daemon answers from where the caller may not read it."""
    store = _daemons_store(None)
    return store if store is not None and not is_readable(store) else None


def only_read_here(store: Path) -> bool:
    """Tell whether the daemon of this host answers from a store and only reads it.

    It is a published copy then: written to, it could never be published again.
    """
    status = _status(None)
    return status.get("takes_results") is False and status.get("store") == str(store.absolute())


def _daemons_store(flag: str | None) -> Path | None:
    """Return the store that the daemon answers from; None when none answers.

    Raises StoreError where its file system hangs: whoever looked at it would hang, too.
    """
    status = _status(flag)
    store = store_at(str(status.get("store") or ""))
    if status.get("store_hangs"):
        raise StoreError(
            f"{store}: its file system does not answer",
            hint="jobs are submitted as ever, the daemon decides from memory; try again later",
        )
    return store if isinstance(store, DatabaseAddress) or store.is_absolute() else None


def _status(flag: str | None) -> Mapping[str, object]:
    """Return how the daemon does, nothing when none answers."""
    from advisor.core.protocol import call

    daemon = socket_path(flag)
    if not os.path.exists(daemon):  # noqa: PTH110
        return {}
    try:
        return call(daemon, {"op": "status"}, timeout_s=_ASK_S)
    except AdvisorError:
        return {}


def config_dir(flag: str | None = None) -> Path:
    """Return the folder of policy.yaml and site.yaml: flag, variable, /etc/advisor or XDG."""
    chosen = flag or os.environ.get("ADVISOR_CONFIG_DIR")
    if chosen:
        return Path(chosen)
    system = SYSTEM / "etc/advisor"
    if _is_root() or system.is_dir():
        return system
    return _xdg("XDG_CONFIG_HOME", ".config") / "advisor"


def socket_path(flag: str | None = None) -> Path:
    """Return the daemon's socket: flag, variable, /run/advisor or the user's runtime folder."""
    chosen = flag or os.environ.get("ADVISOR_SOCKET")
    if chosen:
        return Path(chosen)
    system = SYSTEM / "run/advisor/advisor.sock"
    if _is_root() or system.exists():
        return system
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) if runtime.startswith("/") else Path(f"/tmp/advisor-{os.getuid()}")
    return base / "advisor" / "advisor.sock"


def state_dir() -> Path:
    """Return the folder for sweeps in progress: XDG state, or beside the system's store."""
    if _is_root() and not os.environ.get("XDG_STATE_HOME"):
        return SYSTEM / "var/lib/advisor"
    return _xdg("XDG_STATE_HOME", ".local/state") / "advisor"


def beside(store: Path) -> Path:
    """Return the folder of this host for what stands beside a store: its spool and its locks."""
    if isinstance(store, DatabaseAddress):
        from hashlib import sha256

        return state_dir() / f"postgresql-{sha256(store.url.encode()).hexdigest()[:12]}"
    return store.parent


def cache_dir() -> Path:
    """Return the folder for what can be made again, like compiled C sources: XDG cache."""
    if _is_root() and not os.environ.get("XDG_CACHE_HOME"):
        return SYSTEM / "var/cache/advisor"
    return _xdg("XDG_CACHE_HOME", ".cache") / "advisor"


def choices_path() -> Path:
    """Return the user's own choices file."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "advisor" / "choices.json"
