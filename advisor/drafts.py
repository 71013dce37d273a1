"""Files that appear whole or not at all: written beside their place, and renamed into it.

A draft has a name that no other file has, so that nothing is written over that is not ours, and two
who write the same file at once do not write into each other's draft. It names host and process;
what a killed one left is cleared by the next that writes the same file.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SIDES = ("", "-journal", "-wal", "-shm")
"""What SQLite puts beside a file that it writes."""
_ELSEWHERE_S = 86400.0
"""A draft of another host that nobody wrote to for so long is left from one that was killed."""
_CLOCKS_S = 5.0
"""A file system's clock and a process's beginning may be so far apart."""
_NAME = 40
"""Characters of the file's name that its draft has, so that a long name's fits as well."""
_TRIES = 100
"""Random names that are tried before a folder full of drafts is an error."""


READ_ONLY = "its file system is read-only"
NO_INODES = "its file system has no inodes left"
NO_SPACE = "no space left on the device"
MENDED = {
    READ_ONLY: "have the file system of {} mounted to be written",
    NO_INODES: "remove files on the file system of {}: each takes an inode, however small",
    NO_SPACE: "free some space in {}",
}
"""What is to be done in a folder where its file system takes no new file."""


@contextmanager
def draft(folder: Path, name: str, mode: int = 0o600) -> Iterator[Path]:
    """Make an empty new file in ``folder`` for what is to be ``name`` somewhere.

    In the end it is removed, if it is still there, with what SQLite put beside it. Drafts of
    ``name`` that this user's killed processes left are removed first. Raises OSError.
    """
    _clear_abandoned(folder, name)
    path = _new_draft(folder, name, mode)
    try:
        yield path
    finally:
        _remove(path)


def write_whole(
    path: Path,
    content: bytes | str,
    mode: int = 0o666,
    *,
    exactly: bool = False,
    sync: bool = False,
) -> None:
    """Write a file in one step; ``sync``: it is on the disk before it takes its place.

    Of ``mode`` the process's umask is taken off, unless it is ``exactly`` that. Text is written as
    UTF-8, with what was no text as it was. Raises OSError; what was there is untouched then.
    """
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    with draft(path.parent, path.name, mode) as partial:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if exactly:
            partial.chmod(mode)
        partial.replace(path)


def why_no_file(folder: Path, files: int = 1) -> str:
    """Return why a folder's file system takes no so many files, "" if it does or does not say."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return ""
    if status.f_flag & os.ST_RDONLY:
        return READ_ONLY
    if status.f_files and status.f_favail < files:  # some file systems count none
        return NO_INODES
    return "" if status.f_bavail else NO_SPACE


def _host_name() -> str:
    """Name this host, and the space its process numbers are of (containers have their own)."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 (a link to no path)
    except OSError:
        space = 0
    return f"{os.uname().nodename}-{space}"


def _prefix(name: str) -> str:
    return f".{name[:_NAME]}."


def _new_draft(folder: Path, name: str, mode: int) -> Path:
    """Make a file that only this call knows, as mkstemp does, but by the process's umask."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for attempt in range(_TRIES):
        path = folder / f"{_prefix(name)}{_host_name()}.{os.getpid()}.{secrets.token_hex(4)}.draft"
        try:
            os.close(os.open(path, flags, mode))
        except FileExistsError:
            if attempt == _TRIES - 1:
                raise
            continue
        except OSError as error:
            if error.errno == errno.ENOSPC and (why := why_no_file(folder)):
                raise OSError(errno.ENOSPC, why, str(path)) from None
            raise
        return path
    raise AssertionError


def _clear_abandoned(folder: Path, name: str) -> None:
    """Remove what killed processes of this user left of drafts of a name."""
    pattern = re.compile(
        re.escape(_prefix(name))
        + r"(?P<here>.+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.draft(?:-journal|-wal|-shm)?"
    )
    with suppress(OSError):
        for entry in os.scandir(folder):
            if (match := pattern.fullmatch(entry.name)) is None:
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if (
                    stat.S_ISREG(status.st_mode)
                    and status.st_uid == os.geteuid()
                    and _is_abandoned(match["here"], int(match["pid"]), status.st_mtime)
                ):
                    Path(entry.path).unlink()


def _is_abandoned(host: str, pid: int, changed_at: float) -> bool:
    """Tell whether a draft's maker is gone; another process may have its number by now."""
    if host != _host_name():
        return time.time() - changed_at > _ELSEWHERE_S
    if _began_at(pid) > changed_at + _CLOCKS_S:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it lives, and is another user's
        return False
    return False


def _began_at(pid: int) -> float:
    """Return when a process began, in seconds since 1970; 0 where that cannot be told."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        kernel = Path("/proc/stat").read_text()
        boot_s = int(kernel.partition("\nbtime ")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return boot_s + ticks / os.sysconf("SC_CLK_TCK")


def _remove(path: Path) -> None:
    for end in _SIDES:
        with suppress(OSError):
            Path(f"{path}{end}").unlink(missing_ok=True)
