"""Read, with its owner's rights, a folder where a user left measurements.

It runs in a child that has become that user, so it can open and remove nothing else. Of a folder
counts only what its owner alone can have written: no links, no files of others, no files others may
write. Names are looked up in the folder that was opened, whatever becomes of its path.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice

MAX_FILE = 2 << 20
MAX_BYTES = 8_000_000
MAX_FILES = 200
"""What is read of one user at once; the rest waits for the next time."""
_SEEN = 20_000
"""Names of a folder that are looked at."""

NAME = re.compile(r"(?:runs|phases|profiles)-\d{1,20}-[0-9a-f]{1,32}\.json", re.ASCII)
REFUSED = "refused-"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _NoDeliveryError(Exception):
    """What is there is not what its owner wrote as a delivery."""


def look(wish: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, dict[str, object]]:
    """Tidy up folders, read them, and return by folder what was found.

    ``wish``: by folder the names that were ``taken``, which are removed, and those that were
    ``refused``, which are renamed. Found are ``files`` (name, text), ``refused`` (name, why), how
    many ``more`` there are than may be read at once, or an ``error``.
    """
    allowance = [MAX_FILES, MAX_BYTES]
    answer: dict[str, dict[str, object]] = {}
    for folder, handled_names in wish.items():
        try:
            answer[folder] = _list_folder(folder, handled_names, allowance)
        except (OSError, _NoDeliveryError) as error:
            answer[folder] = {"error": getattr(error, "strerror", None) or str(error)}
    return answer


def _list_folder(
    path: str, handled_names: Mapping[str, Sequence[str]], allowance: list[int]
) -> dict[str, object]:
    folder = os.open(path, _FLAGS | os.O_DIRECTORY)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid():
            raise _NoDeliveryError("it belongs to somebody else")
        if status.st_mode & _OTHERS_WRITE:
            raise _NoDeliveryError("others may write in it")
        for name in handled_names.get("taken", ()):
            _remove_file(folder, name)
        for name in handled_names.get("refused", ()):
            os.rename(name, REFUSED + name, src_dir_fd=folder, dst_dir_fd=folder)
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in islice(entries, _SEEN) if NAME.fullmatch(e.name))
        files: list[list[str]] = []
        refused: list[list[str]] = []
        listing: dict[str, object] = {"files": files, "refused": refused, "more": 0}
        for number, name in enumerate(names):
            try:
                text = _read_file(folder, name, allowance)
            except FileNotFoundError:
                continue
            except UnicodeDecodeError:
                refused.append([name, "it is not text"])
                continue
            except _NoDeliveryError as error:
                refused.append([name, str(error)])
                continue
            except OSError as error:
                listing["error"] = f"{name}: {error.strerror}"
                continue
            if text is None:
                listing["more"] = len(names) - number
                break
            files.append([name, text])
        return listing
    finally:
        os.close(folder)


def _remove_file(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _read_file(folder: int, name: str, allowance: list[int]) -> str | None:
    """Return a file's text; None where no more may be read this time."""
    try:
        file = os.open(name, _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _NoDeliveryError(f"it cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise _NoDeliveryError("it is not an ordinary file")
        if status.st_uid != os.geteuid() or status.st_nlink != 1:
            raise _NoDeliveryError("it is a link, or somebody else's")
        if status.st_mode & _OTHERS_WRITE:
            raise _NoDeliveryError("others may write it")
        if status.st_size > MAX_FILE:
            raise _NoDeliveryError(f"it is larger than {MAX_FILE >> 20} MB")
        if allowance[0] <= 0 or allowance[1] < status.st_size:
            return None
        content = b""
        while len(content) <= MAX_FILE and (part := os.read(file, 1 << 20)):
            content += part
        if len(content) > MAX_FILE:
            raise _NoDeliveryError("it grew while it was read")
        allowance[0] -= 1
        allowance[1] -= len(content)
        return content.decode()
    finally:
        os.close(file)
