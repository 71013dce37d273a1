"""Which program a model was measured with, and whether a job runs the same one.

The *facts* of a program's file are ``path``, ``size`` (bytes), ``mtime`` (whole seconds since the
epoch) and ``build``: the GNU build id in hex where the file is ELF and has one, else
``adler:SUM:SIZE`` of its first 64 KiB, as for scripts and programs that are linked statically.
A model keeps the facts of all programs that count as the one it was measured with, newest last.
hooks/slurm/advisor/program.lua and hooks/pbs/qsub.py read builds in the same way.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import stat
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from advisor.core.script import Command
from advisor.core.wrappers import INSIDE, INTERPRETERS

SameProgram = Literal["same", "rebuilt", "other", "unknown"]

HEAD = 65536
"""Bytes of a file without a build id that tell its build."""
_MAX_NOTES = 65536
"""Bytes read of one ELF note segment; a build id takes some dozen."""
_MAX_HEADERS = 64
"""ELF program headers looked at; a program has about a dozen."""
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3
_BUILD = re.compile(r"[0-9a-f]{8,128}|adler:[0-9a-f]{8}:\d{1,15}")
_MAX_PATH = 1000
"""Characters of a program's path in a record."""
_MOST = 20
"""Programs that a model keeps."""

_HOME = re.compile(r"\$(?:HOME|\{HOME\})/")
_FOLDER = r"\$\{?(?:SLURM_SUBMIT_DIR|PBS_O_WORKDIR)\}?"
_SUBMIT = re.compile(f"{_FOLDER}/")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f$`*?\[\]{}\"'\\]+")
_MOVES = re.compile(
    rf"(?:^|[;&|(\s])(?:cd|pushd)\s+(?!\"?{_FOLDER}\"?\s*(?:$|[;&|]))", re.MULTILINE
)
_CHANGES_PATH = re.compile(
    r"\bPATH=|(?:^|[;&|(])[ \t]*(?:module|ml|source|\.|spack|conda|mamba|eval|use)[ \t]", re.M
)


def where(command: Command | None, script: str | None, *, moved: bool = False) -> str:
    """Return where to look for a command's file, "" where the script leaves it open.

    Absolute, ``~/...`` (the user's home), relative to the folder of the submission, or a bare
    name to be searched for in PATH. ``moved``: the job starts in another folder.
    """
    if command is None or any(_name(w) in INSIDE for w in command.wrappers):
        return ""
    word, text = command.word, script or ""
    if "/" not in word and any(INTERPRETERS.match(_name(w)) for w in command.wrappers):
        word = f"./{word}"  # which is not searched for in PATH
    word, at_home = _HOME.subn("~/", word, 1) if word.startswith("$") else (word, 0)
    submit = _SUBMIT.match(word)
    if submit:
        word = "./" + word[submit.end() :]
    if len(word) > _MAX_PATH or not _PLAIN.fullmatch(word):
        return ""
    if word.startswith("/") or at_home or word.startswith("~/") or submit:
        return word
    if "/" in word:
        return "" if moved or _MOVES.search(text) else word
    return "" if _CHANGES_PATH.search(text) else word


def _name(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def find(place: str, folder: Path) -> dict[str, object]:
    """Return the facts of the program at :func:`where`'s answer, for this process's user.

    ``folder`` is the folder of the submission. Empty when there is no such file or it cannot be
    read.
    """
    if not place:
        return {}
    program = place if "/" in place else shutil.which(place)
    try:
        path = folder / Path(program or "").expanduser()
        # Without O_NONBLOCK a pipe that a user has put there would hold the open for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return {}
            build = build_of(file, status.st_size)
    except (OSError, RuntimeError, ValueError):  # no such file, no home, no path at all
        return {}
    return {
        "path": os.path.normpath(path),
        "size": status.st_size,
        "mtime": int(status.st_mtime),
        "build": build,
    }


def build_of(file: BinaryIO, size: int) -> str:
    """Return the build of an open file of ``size`` bytes. Raises OSError."""
    file.seek(0)
    head = file.read(HEAD)
    try:
        notes = _notes(file, head)
    except struct.error:
        notes = []
    for note in notes:
        build = _build_id(note)
        if build:
            return build
    return f"adler:{zlib.adler32(head):08x}:{size}"


def _notes(file: BinaryIO, head: bytes) -> list[bytes]:
    """Return the note segments of a 64-bit little-endian ELF file, none for others."""
    if head[:6] != b"\x7fELF\x02\x01":
        return []
    (start,) = struct.unpack_from("<Q", head, 32)
    length, count = struct.unpack_from("<HH", head, 54)
    notes = []
    for number in range(min(count, _MAX_HEADERS)):
        header_offset = start + number * length
        (kind,) = struct.unpack_from("<I", head, header_offset)
        if kind == _PT_NOTE:
            (offset,) = struct.unpack_from("<Q", head, header_offset + 8)
            (length_of,) = struct.unpack_from("<Q", head, header_offset + 32)
            if offset < 1 << 52:  # else in no file, and seek() takes no more than 63 bits
                file.seek(offset)
                notes.append(file.read(min(length_of, _MAX_NOTES)))
    return notes


def _build_id(notes: bytes) -> str:
    offset = 0
    while offset + 12 <= len(notes):
        name, size, kind = struct.unpack_from("<III", notes, offset)
        start = offset + 12 + (name + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and notes[offset + 12 : offset + 16] == b"GNU\0" and name == 4:
            identity = notes[start : start + size]
            return identity.hex() if 4 <= len(identity) == size <= 64 else ""
        offset = start + (size + 3) // 4 * 4
    return ""


def checked(data: object, folder: str = "") -> dict[str, object]:
    """Return facts that came from elsewhere, in their form; empty when they make no sense.

    A relative path is taken from ``folder``.
    """
    if not isinstance(data, Mapping):
        return {}
    path, build = data.get("path"), data.get("build")
    if not isinstance(path, str) or not isinstance(build, str) or not _BUILD.fullmatch(build):
        return {}
    path = posixpath.normpath(posixpath.join(folder, path))
    if not path.startswith("/") or len(path) > _MAX_PATH or not path.isprintable():
        return {}
    try:
        size, mtime = int(data.get("size", -1)), int(data.get("mtime", -1))
    except (TypeError, ValueError, OverflowError):
        return {}
    # What a number of JSON, and one of Lua in the hooks, holds exactly.
    if not (0 <= size < 1 << 53 and abs(mtime) < 1 << 53):
        return {}
    return {"path": path, "size": size, "mtime": mtime, "build": build}


def sent(programs: object, command: Command | None) -> dict[str, object]:
    """Return the facts of a command's file among those a client sent of all it saw, by word."""
    if command is None or not isinstance(programs, Mapping):
        return {}
    if any(_name(w) in INSIDE for w in command.wrappers):
        return {}
    return checked(programs.get(command.word))


def known(programs: object) -> list[dict[str, object]]:
    """Return the programs a model's stats name, newest last; none where nothing is known."""
    listed = programs if isinstance(programs, list | tuple) else ()
    return [facts for facts in map(checked, listed) if facts]


def joined(programs: Iterable[object]) -> list[dict[str, object]]:
    """Return each build among facts once, as it was seen last; the last ones of too many."""
    by_build: dict[object, dict[str, object]] = {}
    for facts in map(checked, programs):
        if facts:
            by_build.pop(facts["build"], None)
            by_build[facts["build"]] = facts
    return list(by_build.values())[-_MOST:]


def compare(programs: Sequence[Mapping[str, object]], facts: Mapping[str, object]) -> SameProgram:
    """Tell how a job's program stands to those a model was measured with.

    The same build at another path is the same program; another build at a known path was built
    again; all else is another program. ``unknown`` where either says nothing.
    """
    if not programs or not facts:
        return "unknown"
    if any(p["build"] == facts["build"] for p in programs):
        return "same"
    return "rebuilt" if any(p["path"] == facts["path"] for p in programs) else "other"


def expected(
    programs: Sequence[Mapping[str, object]], place: str, folder: str = ""
) -> dict[str, str]:
    """Return what a hook is to look at and what it should find; empty to look at nothing.

    ``size`` and ``mtime`` are those of this very file when it was seen last, and spare reading it
    (0 where it never was); ``build`` holds every build that counts, separated by blanks.
    ``folder`` is that of the submission.
    """
    if not place or not programs:
        return {}
    if "/" in place and not place.startswith("~/"):
        place = posixpath.normpath(posixpath.join(folder, place))
        place = place if "/" in place else f"./{place}"
    end = place[1:] if place.startswith("~/") else place if "/" in place else f"/{place}"
    absolute = place.startswith("/")
    last = next(
        (
            p
            for p in reversed(programs)
            if p["path"] == place or (not absolute and str(p["path"]).endswith(end))
        ),
        {"size": 0, "mtime": 0},
    )
    return {
        "path": place,
        "size": str(last["size"]),
        "mtime": str(last["mtime"]),
        "build": " ".join(str(p["build"]) for p in programs),
    }
