"""What users measured, on its way into the store: one file each, whole or not there at all.

The daemon writes such files into its spool; where it only reads, users keep them in a folder of
their own until ``advisor collect`` on the store's host takes them (:data:`FOLDER`).
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.protocol import ProtocolError
from advisor.drafts import write_whole
from advisor.errors import AdvisorError

DeliveryKind = Literal["runs", "profiles", "phases"]

FOLDER = "to-collect"
"""A user's folder of what waits for the store's host."""

MAX_RUNS = 1000
"""Runs of one file."""

VARIABLE = "ADVISOR_RESULTS"
"""Says in a job's environment or comment where its owner leaves what was measured."""

_MARK = re.compile(rf"{VARIABLE}=(/[\w.~%/+:@-]{{1,4000}})", re.ASCII)


def place_mark(folder: Path) -> str:
    """Return the words by which a sweep's job says where its results are left."""
    return f"{VARIABLE}={quote(str(folder))}"


def marked_place(*texts: str) -> str:
    """Return the folder that :func:`place_mark` put into one of the texts, "" for none."""
    matches = (_MARK.search(text) for text in texts if VARIABLE in text)
    folders = (unquote(match[1]) for match in matches if match)
    return next((folder for folder in folders if folder.isprintable()), "")


def new_name(kind: DeliveryKind, note: str = "") -> str:
    """Return a name no other file has; names of one kind sort by age."""
    return f"{kind}-{time.time_ns()}-{secrets.token_hex(4)}{note}.json"


def write_delivery(folder: Path, name: str, text: str, *, make: bool = True) -> Path:
    """Write one file of the folder whole or not at all, mode 0600. Raises AdvisorError.

    ``make`` the folder where there is none. It is opened once, so that a file system that is
    unmounted meanwhile gets the file whole, or not at all, too.
    """
    draft = f".{name.removesuffix('.json')}"
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            descriptor = os.open(draft, flags, 0o600, dir_fd=place)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=place)
            raise
        finally:
            with suppress(OSError):  # some shared file systems cannot sync a folder
                os.fsync(place)  # what was left elsewhere is removed once this lies here
            os.close(place)
    except OSError as error:
        raise AdvisorError(f"{folder}: {error.strerror}", hint="nothing was kept") from None
    return folder / name


def write_spool_file(folder: Path, text: str, kind: DeliveryKind = "runs", note: str = "") -> Path:
    """Write a new file of the folder, whole or not at all. Raises AdvisorError."""
    return write_delivery(folder, new_name(kind, note), text)


def move_waiting(folder: Path, other: Path) -> None:
    """Move what waits in a folder into another one that is there. Raises AdvisorError."""
    for path in sorted(folder.glob("*.json")):
        try:
            try:
                path.rename(other / path.name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                write_whole(other / path.name, path.read_bytes(), 0o600, exactly=True, sync=True)
                path.unlink()
        except FileNotFoundError:  # taken meanwhile
            continue
        except OSError as error:
            raise AdvisorError(f"{path}: it cannot be moved to {other}: {error.strerror}") from None


def own_folder(folder: Path) -> Path:
    """Make the caller's folder for what waits, closed to others. Raises AdvisorError."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            raise AdvisorError(f"{folder} is not yours", hint="move it away")
        folder.chmod(0o700)
    except OSError as error:
        raise AdvisorError(f"{folder}: {error.strerror}") from None
    return folder


def delivered_runs(sent: Mapping[str, object], contributor: str) -> dict[str, object]:
    """Return a user's measured runs as a file holds them. Raises ProtocolError on bad ones."""
    runs = sent.get("observations")
    if not isinstance(runs, list) or not 0 < len(runs) <= MAX_RUNS:
        raise ProtocolError(f"observations must be a list of 1 to {MAX_RUNS} runs")
    for number, run in enumerate(runs):
        _check_run(number, run)
    for key in ("application", "workload"):
        if not isinstance(sent.get(key), str) or not sent[key]:
            raise ProtocolError(f"{key} is missing")
    space = sent.get("space")
    if space is not None:
        try:
            space = SearchSpace.from_dict("", space).to_dict()
        except ValueError as error:
            raise ProtocolError(f"space: {error}") from None
    return {
        "application": sent["application"],
        "workload": sent["workload"],
        "account": str(sent.get("account") or ""),
        "contributor": contributor,
        "fit": bool(sent.get("fit")),
        "space": space,
        "observations": runs,
    }


def _check_run(number: int, run: object) -> None:
    if not isinstance(run, Mapping) or not isinstance(run.get("configuration"), Mapping):
        raise ProtocolError(f"run {number} has no configuration")
    try:
        Configuration.from_dict(run["configuration"])
        time_s = float(run["time_s"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"run {number}: {error}") from None
    if not (math.isfinite(time_s) and time_s > 0):
        raise ProtocolError(f"run {number}: time_s must be above 0")
