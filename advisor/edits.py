"""Change a file of the user's own in one step, and take it back."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from advisor.drafts import draft
from advisor.errors import InputError


@dataclass(frozen=True, slots=True)
class Edit:
    """A change that was made: the file's content before (None: there was no file) and after.

    ``backup`` is the copy that was left beside it, if one was wanted.
    """

    path: Path
    before: bytes | None
    after: bytes
    backup: Path | None = None

    def undo(self) -> None:
        """Put back what was there. Raises InputError when somebody changed the file since."""
        if _content(self.path) != self.after:
            raise InputError(
                f"{self.path} was changed by something else since", hint="nothing was undone"
            )
        if self.before is None:
            try:
                self.path.unlink()
            except OSError as error:
                raise _write_error(self.path, error) from None
        else:
            replace(self.path, self.before)
        if self.backup is not None:
            with suppress(OSError):
                self.backup.unlink()


def replace(path: Path, content: bytes, *, backup: bool = False) -> Edit:
    """Write a whole file in one step: whoever reads it sees the old one or the new one.

    The file keeps its mode, and a link to it stays a link. With ``backup`` a copy of the old one
    is left beside it first. Raises InputError; then nothing was changed.
    """
    target = path.resolve()
    old_content = _content(target)
    copy = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if old_content is not None else 0o600
        if backup and old_content is not None:
            copy = _free_backup(target)
            _write(copy, old_content, mode)
        _write(target, content, mode)
    except OSError as error:
        if copy is not None:
            with suppress(OSError):
                copy.unlink()
        raise _write_error(path, error) from None
    return Edit(target, old_content, content, copy)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _write_error(path, error) from None


def _write(path: Path, content: bytes, mode: int) -> None:
    with draft(path.parent, path.name) as partial:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(mode)
        with suppress(OSError):  # only root can keep another owner
            owner = path.stat()
            os.chown(partial, owner.st_uid, owner.st_gid)
        partial.replace(path)


def _free_backup(path: Path) -> Path:
    """Return a name for a backup that nothing has yet."""
    number = 1
    while True:
        end = "" if number == 1 else f".{number}"
        candidate = path.with_name(f"{path.name}.before-advisor{end}")
        if not candidate.exists():
            return candidate
        number += 1


def _write_error(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: {error.strerror or error}", hint="nothing was changed")
