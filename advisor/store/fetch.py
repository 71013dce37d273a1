"""Bring a published copy onto this host: once for each number, checked, in one step.

What touches the shared file system is a child of its own (:func:`fetch_in_child`), since nothing
that touches one that hangs can be ended; the copy that is here stays meanwhile. Standard library
only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from advisor.core.codec import Record
from advisor.drafts import draft
from advisor.errors import AdvisorError, StoreError
from advisor.interpreter import own_environment, own_python
from advisor.store.announced import Announcement, keep, read_announcement
from advisor.store.connection import is_copy
from advisor.store.publish import check_copy, synced

_BLOCK = 1 << 20
"""Bytes read at once."""
_KEPT = "the copy that is here stays as it is"


@dataclass(frozen=True, slots=True)
class Fetched(Record):
    """The copy that is here now; ``fetched``: it was brought, and not here before."""

    announced: Announcement
    fetched: bool


def fetch_in_child(copy: Path, target: Path, deadline_s: float) -> Fetched:
    """Have a child bring a copy to ``target``; it is given up after the deadline.

    Raises StoreError; the copy at ``target`` is untouched then.
    """
    command = own_python("advisor.store.fetch", str(copy), str(target))
    child = subprocess.Popen(
        command,
        env=own_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        text, _ = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        child.kill()  # one that hangs in the file system ends once that answers
        raise StoreError(
            f"{copy}: not fetched within {deadline_s:g} s: its file system hangs or is slow",
            hint=f"{_KEPT}; have the file system mounted again",
        ) from None
    try:
        answer = json.loads(text)
        if "error" not in answer:
            return Fetched.from_dict(answer)
    except (ValueError, TypeError):
        answer = {"error": f"{copy}: the process that fetches it ended ({child.returncode})"}
    raise StoreError(str(answer["error"]), hint=str(answer.get("hint") or _KEPT))


def fetch(copy: Path, target: Path) -> Fetched:
    """Bring a copy to ``target`` unless it is there, and make that as old as it is.

    Raises StoreError; what is at ``target`` is untouched then.
    """
    try:
        with target.with_name(f"{target.name}.fetching").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"{target}: somebody else fetches it, or hangs in doing so", hint=_KEPT
                ) from None
            return _fetch(copy, target)
    except OSError as error:
        where = error.filename or target
        raise StoreError(f"{where}: cannot be fetched: {error.strerror}", hint=_KEPT) from None


def _fetch(copy: Path, target: Path) -> Fetched:
    announced = read_announcement(copy)
    if target.exists() and target.samefile(copy):
        raise StoreError(f"{target} is the published copy itself", hint="name a file on this host")
    if target.exists() and not is_copy(target):
        raise StoreError(f"{target} is a store, not a copy of one", hint="name another file")
    try:
        here = read_announcement(target) if target.exists() else None
    except StoreError:
        here = None
    fresh = not announced.same_copy(here) or target.stat().st_size != announced.bytes
    if fresh:
        _bring(copy, target, announced)
    os.utime(target, (announced.published_s, announced.published_s))
    if announced != here:
        keep(target, announced)
    return Fetched(announced, fresh)


def _bring(copy: Path, target: Path, announced: Announcement) -> None:
    """Put a copy in its place here, if it is what was announced and whole."""
    digest, size = hashlib.sha256(), 0
    with draft(target.parent, target.name) as partial:
        with copy.open("rb") as source, partial.open("wb") as file:
            # never more than was announced
            while size <= announced.bytes and (block := source.read(_BLOCK)):
                digest.update(block)
                size += file.write(block)
        if (size, digest.hexdigest()) != (announced.bytes, announced.sha256):
            raise StoreError(
                f"{copy} is not the copy that was announced (number {announced.number})",
                hint=f"{_KEPT}; it may be replaced right now: try again",
            )
        check_copy(partial, target)
        partial.chmod(0o644)
        os.utime(partial, (announced.published_s, announced.published_s))
        synced(partial)
        partial.replace(target)
        synced(target.parent)


def main() -> None:
    """Fetch, and print the answer or what is wrong as one JSON object."""
    try:
        answer: dict[str, object] = fetch(*map(Path, sys.argv[1:3])).to_dict()
    except AdvisorError as error:
        answer = {"error": error.message, "hint": error.hint}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
