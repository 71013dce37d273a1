"""The address of a store in PostgreSQL, where others are a file. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path, PosixPath
from typing import Self

from advisor.errors import UsageError

SCHEMA = "advisor"
"""The schema of a database that holds the store."""
ANSWERS_S = 5
"""Seconds a server may take to answer, where the address does not say (``connect_timeout``)."""
_SCHEMES = ("postgresql://", "postgres://")


class DatabaseAddress(PosixPath):
    """A ``postgresql://`` address of libpq, which stands where the path of a store's file would.

    It is as it was written, in messages and on command lines; that is why it may hold no password.
    As a file it neither can be opened nor looked at: who asks for more than whether it exists asks
    first whether the path is one.
    """

    __slots__ = ("url",)
    url: str

    def __new__(cls, url: str) -> Self:
        """Take an address. Raises UsageError for one with a password, or that makes no sense."""
        from urllib.parse import parse_qsl, urlsplit

        try:
            parts = urlsplit(url)
            known = parts.password or dict(parse_qsl(parts.query)).get("password")
        except ValueError as error:
            raise UsageError(f"the store's address makes no sense: {error}") from None
        if known:
            raise UsageError(
                "the store's address holds a password, which ps would show",
                hint="put it into ~/.pgpass, the file of PGPASSFILE, or a service file: "
                "postgresql://?service=NAME",
            )
        if not url.isprintable():
            raise UsageError(f"{url!r} is no address of a store")
        self = super().__new__(cls, url)
        self.url = url
        return self

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.url!r})"

    def __fspath__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.url,)

    def __hash__(self) -> int:
        return hash(self.url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseAddress) and self.url == other.url

    def absolute(self) -> Self:
        """Return the address itself: it is the same from every folder."""
        return self

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Tell whether the database has the advisor's tables.

        True also where it does not answer: whoever opens it then says why.
        """
        try:
            import psycopg
        except ImportError:
            return True
        known = f"SELECT to_regclass('{SCHEMA}._sqlite_migrations') IS NOT NULL"
        try:
            with psycopg.connect(self.url, connect_timeout=ANSWERS_S) as connection:
                row = connection.execute(known.encode()).fetchone()
        except psycopg.Error:
            return True
        return row is not None and bool(row[0])


def store_at(place: str | Path) -> Path:
    """Return the place of a store: a file's path or a :class:`DatabaseAddress`.

    Raises UsageError for an address that makes no sense.
    """
    if isinstance(place, Path):
        return place
    return DatabaseAddress(place) if place.startswith(_SCHEMES) else Path(place)


def is_readable(store: Path) -> bool:
    """Tell whether the caller may read a store; of a database only its server knows."""
    return isinstance(store, DatabaseAddress) or os.access(store, os.R_OK)


def is_writable(store: Path) -> bool:
    """Tell whether the caller may write a store; of a database only its server knows."""
    return isinstance(store, DatabaseAddress) or os.access(store, os.W_OK)
