"""What stands beside a published copy: its number, size and checksum, and when it was published.

A host fetches a copy once for each number, and takes none that is not what was announced. Standard
library only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from advisor.core.codec import Record
from advisor.drafts import write_whole
from advisor.errors import StoreError
from advisor.store import rows as _rows

_MOST = 4096
"""Bytes of an announcement."""
_BLOCK = 1 << 20
"""Bytes read at once."""


@dataclass(frozen=True, slots=True)
class Announcement(Record):
    """``number`` counts the copies that differ, from 1; ``published_at`` is ISO 8601, UTC."""

    number: int
    bytes: int
    sha256: str
    published_at: str

    @property
    def published_s(self) -> float:
        """When it was published, in seconds of the epoch."""
        return datetime.fromisoformat(self.published_at).timestamp()

    def same_copy(self, other: Announcement | None) -> bool:
        """Tell whether another announces the same content, when ever it was published."""
        return other is not None and replace(other, published_at=self.published_at) == self


def place_of(copy: Path) -> Path:
    """Return where the announcement of a copy stands."""
    return copy.with_name(f"{copy.name}.announced")


def announce(copy: Path, checked: Path) -> Announcement:
    """Announce a copy that was just put in its place; ``checked`` holds the same.

    A copy that is published again only gets younger. Raises OSError.
    """
    size, digest = checked.stat().st_size, sha256_of(checked)
    try:
        former = read_announcement(copy)
    except StoreError:  # none yet, or a damaged one
        former = None
    announcement = Announcement(former.number + 1 if former else 1, size, digest, _rows.now())
    if former is not None and (former.bytes, former.sha256) == (size, digest):
        announcement = replace(announcement, number=former.number)
    keep(copy, announcement)
    return announcement


def keep(copy: Path, announcement: Announcement) -> None:
    """Write the announcement of a copy. Raises OSError."""
    write_whole(place_of(copy), json.dumps(announcement.to_dict()) + "\n", 0o644, exactly=True)


def read_announcement(copy: Path) -> Announcement:
    """Return what a copy's announcement says. Raises StoreError where it says nothing of sense."""
    place = place_of(copy)
    try:
        with place.open("rb") as file:
            announcement = Announcement.from_dict(json.loads(file.read(_MOST)))
        _ = announcement.published_s
    except OSError as error:
        raise StoreError(
            f"{place}: {error.strerror}",
            hint="on the store's host: advisor store publish",
        ) from None
    except (ValueError, OverflowError) as error:  # FieldError is one
        raise StoreError(
            f"{place} announces no copy: {error}", hint="publish again on the store's host"
        ) from None
    return announcement


def sha256_of(file: Path) -> str:
    """Return a file's checksum in hex. Raises OSError."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
