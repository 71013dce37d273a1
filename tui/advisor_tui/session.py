"""Who sits here and where things are: store, daemon, choices file, sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.errors import AdvisorError
from advisor.schedulers.submission import identity
from advisor.store.connection import StoreConnection
from advisor.store.seen import store_seen

if TYPE_CHECKING:  # what decides is loaded once the first names are on the screen
    from advisor.store.reader import Reader
    from advisor.views.preview import Person


@cache
def environment_options() -> Mapping[str, str]:
    """Return what the caller's environment adds to every job, by option of the scheduler here."""
    from advisor.schedulers.here import installed_name
    from advisor.schedulers.translators import translator

    return translator(installed_name()).environment_options()


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
    foreign: bool = False
    demo: Callable[[], None] | None = None
    """Only for example data: adds its jobs, once the first screen is there."""
    settings: Path | None = None
    arguments: tuple[str, ...] = field(default=())
    """What a child ``advisor`` needs to find the same store."""
    submitted_with: Callable[[], Mapping[str, str]] = environment_options
    """What is added to every job, by option: account, qos, job-name."""

    @classmethod
    def here(
        cls, *, db: str | None = None, socket: str | None = None, user: str | None = None
    ) -> Session:
        """Return the places of the caller, or what the caller sees of another user's.

        Raises InputError when there is no such user.
        """
        uid, name = identity(user)
        caller_name = identity(None)[1]
        return cls(
            store=store_seen(db, "options", "history", socket=socket),
            socket=paths.socket_path(socket),
            choices=paths.choices_path(),
            sweeps=paths.state_dir() / "sweeps",
            folder=Path.cwd(),
            user=name,
            uid=uid,
            foreign=name != caller_name,
            settings=paths.choices_path().with_name("tui.json"),
            arguments=("--db", db) if db else (),
        )

    def reader(self) -> Reader:
        """Open the store. Raises StoreError."""
        from advisor.store.reader import Reader

        return Reader(self.store)

    def connection(self) -> StoreConnection:
        """Open the store for its bare rows. Raises StoreError."""
        return StoreConnection(self.store)

    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """Return what is another value once the store or the choices file was written to.

        Its log says when a store was written to; one that is published is another file each time.
        """
        log = self.store.with_name(f"{self.store.name}-wal")
        return _version(self.store), _version(log), self.chosen_version()

    def chosen_version(self) -> tuple[int, ...]:
        """Return what is another value once the choices file was written to."""
        return _version(self.choices)

    def chosen(self) -> dict[str, Any]:
        """Return what is chosen; a broken file counts as none. Raises InputError for it."""
        from advisor import choices

        return {} if self.foreign else choices.read(self.choices)

    def person(self, chosen: Mapping[str, Any] | None = None) -> Person:
        """Return whose jobs are looked at, with these choices or the file's; broken ones are none.

        A broken file is also what the hooks ignore.
        """
        from advisor.views.preview import Person

        if chosen is None:
            try:
                chosen = self.chosen()
            except AdvisorError:
                chosen = {}
        given = self.submitted_with()
        account, qos, job_name = (given.get(name, "") for name in ("account", "qos", "job-name"))
        return Person(self.user, self.uid, account, chosen, qos, job_name)

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
