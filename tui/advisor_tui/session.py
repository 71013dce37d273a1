"""Who sits here and where things are: store, daemon, choices file, sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor import choices, paths
from advisor.errors import AdvisorError
from advisor.schedulers.choose import installed
from advisor.schedulers.submission import identity
from advisor.schedulers.translators import translator
from advisor.store.reader import Reader
from advisor.store.seen import store_seen
from advisor.views.preview import Person


@dataclass(slots=True)
class Session:
    """One person's places. ``foreign``: somebody else's jobs are looked at, nothing is chosen."""

    store: Path
    socket: Path
    choices: Path
    sweeps: Path
    folder: Path
    user: str
    uid: int
    account: str = ""
    qos: str = ""
    job_name: str = ""
    foreign: bool = False
    demo: Callable[[], None] | None = None
    """Only for example data: adds its jobs, once the first screen is there."""
    settings: Path | None = None
    arguments: tuple[str, ...] = field(default=())
    """What a child ``advisor`` needs to find the same store."""

    @classmethod
    def here(
        cls, *, db: str | None = None, socket: str | None = None, user: str | None = None
    ) -> Session:
        """Return the places of the caller, or what the caller sees of another user's.

        Raises InputError when there is no such user.
        """
        uid, name = identity(user)
        caller_name = identity(None)[1]
        options = translator(installed().NAME).environment_options()
        return cls(
            store=store_seen(db, "options", "history", socket=socket),
            socket=paths.socket_path(socket),
            choices=paths.choices_path(),
            sweeps=paths.state_dir() / "sweeps",
            folder=Path.cwd(),
            user=name,
            uid=uid,
            account=options.get("account", ""),
            qos=options.get("qos", ""),
            job_name=options.get("job-name", ""),
            foreign=name != caller_name,
            settings=paths.choices_path().with_name("tui.json"),
            arguments=("--db", db) if db else (),
        )

    def reader(self) -> Reader:
        """Open the store. Raises StoreError."""
        return Reader(self.store)

    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """Return what is another value once the store or the choices file was written to.

        Its log says when a store was written to; one that is published is another file each time.
        """
        log = self.store.with_name(f"{self.store.name}-wal")
        return tuple(map(_version, (self.store, log, self.choices)))

    def chosen(self) -> dict[str, Any]:
        """Return what is chosen; a broken file counts as none. Raises InputError for it."""
        return {} if self.foreign else choices.read(self.choices)

    def person(self, chosen: Mapping[str, Any] | None = None) -> Person:
        """Return whose jobs are looked at, with these choices or the file's; broken ones are none.

        A broken file is also what the hooks ignore.
        """
        if chosen is None:
            try:
                chosen = self.chosen()
            except AdvisorError:
                chosen = {}
        return Person(self.user, self.uid, self.account, chosen, self.qos, self.job_name)

    @property
    def admin(self) -> bool:
        """Whether the store is the caller's own, or the caller is root."""
        from advisor.store.opening import is_owner

        return self.demo is not None or (self.store.exists() and is_owner(self.store))


def _version(path: Path) -> tuple[int, ...]:
    """Return what changes with a file; nothing for one that is not there."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
