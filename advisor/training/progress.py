"""How far a sweep is, for whoever looks: a small file in its folder, replaced with every event."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.database import store_at
from advisor.drafts import write_whole
from advisor.errors import AdvisorError, InputError, RefusedError
from advisor.interpreter import own_python
from advisor.training.outcome import Event, Spent
from advisor.training.state import SweepState, newest_of

NAME = "progress.json"
LOG = "log"
"""What a sweep in the background prints, in its folder."""


@dataclass(frozen=True, slots=True)
class Made:
    """One attempt at a run: where, and what came out. Seconds, joules; None where not known."""

    seq: int
    role: str
    configuration: Mapping[str, Any]
    ok: bool
    time_s: float | None
    energy_j: float | None
    energy_quality: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """A sweep as its folder shows it.

    ``alive``: a process has it now; ``done`` and ``planned`` count runs of all stages, ``note`` is
    the last sentence.
    """

    id: str
    folder: Path
    application: str
    workload: str
    node_type: str
    scheduler: str
    state: str
    created_at: str
    detail: str = ""
    alive: bool = False
    stage: str = ""
    done: int = 0
    planned: int = 0
    spent: Spent = field(default_factory=Spent)
    note: str = ""
    made: tuple[Made, ...] = ()
    store: str = ""
    """The store that its results are for, "" where that is not known."""

    @property
    def under_way(self) -> bool:
        """Whether it is being run now."""
        return self.alive and self.state in ("requested", "running")

    @property
    def resumable(self) -> bool:
        """Whether it can be gone on with."""
        return not self.alive and self.state in ("requested", "running", "stopped", "failed")


@dataclass(slots=True)
class Recorder:
    """Writes a sweep's progress with every event, then hands the event on."""

    state: SweepState
    show: Callable[[Event], None]
    _made: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    _stage: str = ""
    _note: str = ""
    _spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        """Take up what was made before."""
        for run in _read_json(self.state.folder / NAME).get("made", ()):
            self._made[run["seq"], run.get("attempt", 1)] = run

    def __call__(self, event: Event) -> None:
        """Note and show one event."""
        self._stage = event.stage or self._stage
        if event.text:
            self._note = event.text
        if event.run is not None and event.result is not None:
            run, result = event.run, event.result
            self._made[run.seq, result.attempt] = {
                "seq": run.seq,
                "attempt": result.attempt,
                "role": run.role,
                "configuration": run.configuration.to_dict(),
                "ok": result.ok,
                "time_s": result.time_s,
                "energy_j": result.energy_j,
                "energy_quality": result.energy_quality,
                "detail": result.detail,
            }
        if event.spent.runs:
            self._spent = event.spent
        self._write()
        self.show(event)

    def _write(self) -> None:
        spent = self._spent
        data = {
            "stage": self._stage,
            "note": self._note,
            "spent": [spent.runs, spent.node_hours, spent.energy_j, spent.energy_known],
            "made": list(self._made.values()),
            "updated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with contextlib.suppress(OSError):  # a full disk must not stop a sweep that can go on
            write_whole(self.state.folder / NAME, json.dumps(data))


def read(folder: Path) -> Progress:
    """Return how far the sweep in a folder is. Raises InputError when it holds none."""
    data = _read_json(folder / "sweep.json")
    try:
        subject, settings, stages = data["subject"], data["settings"], data["stages"]
        planned = sum(len(s["runs"]) for s in stages.values())
        if "confirm" not in stages:
            planned = max(planned, int(settings.get("most_runs", 0))) + int(settings["confirm"])
        recorded = _read_json(folder / NAME)
        runs = tuple(_made_run(m) for m in recorded.get("made", ()))
        return Progress(
            id=str(data["id"]),
            folder=folder,
            application=str(subject["application"]),
            workload=str(subject["workload"]),
            node_type=str(subject["node_type"]["name"]),
            scheduler=str(settings["scheduler"]),
            state=str(data["state"]),
            created_at=str(data["created_at"]),
            detail=str(data["detail"]),
            alive=holder(folder) is not None,
            stage=str(recorded.get("stage", "")),
            done=len({m.seq for m in runs if m.ok}),
            planned=planned,
            spent=Spent(*recorded["spent"]) if "spent" in recorded else Spent(),
            note=str(recorded.get("note", "")),
            made=runs,
            store=str(data.get("store", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / 'sweep.json'} is damaged: {error!r}") from None


def _made_run(data: Mapping[str, Any]) -> Made:
    return Made(**{k: v for k, v in data.items() if k in Made.__slots__})


def every(root: Path, store: Path | None = None) -> list[Progress]:
    """Return the sweeps below a folder, newest first; damaged ones are left out.

    With ``store`` only those whose results are for it, and those of which that is not known.
    """
    sweeps = []
    for path in root.glob("*/sweep.json"):
        with contextlib.suppress(InputError):
            sweeps.append(read(path.parent))
    if store is not None:
        sweeps = [p for p in sweeps if not p.store or _same_file(store_at(p.store), store)]
    return sorted(sweeps, key=lambda p: (p.created_at, p.id), reverse=True)


def _same_file(path: Path, other_path: Path) -> bool:
    try:
        return path.samefile(other_path)
    except OSError:
        return path == other_path.absolute()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def holder(folder: Path) -> str | None:
    """Return who runs a sweep now, as ``HOST PID``; None when nobody does."""
    try:
        with (folder / "lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return file.read().strip() or "?"
    except OSError:
        pass
    return None


def log_of(folder: Path) -> list[str]:
    """Return the last 200 lines at most that a sweep in the background has printed."""
    try:
        text = (folder / LOG).read_bytes()[-65536:].decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[-200:]


def in_background(state_id: str, root: Path, arguments: Sequence[str] = ()) -> int:
    """Go on with a sweep in a process of its own that outlives this one; return its pid.

    What it prints goes to the file ``log`` in the sweep's folder. Raises AdvisorError.
    """
    command = own_python(
        "advisor", "train", *arguments, "--resume", state_id, "--work-dir", str(root)
    )
    try:
        with (root / state_id / LOG).open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
    except OSError as error:
        raise AdvisorError(f"the sweep cannot be started: {error}") from None
    return child.pid


def stop(folder: Path) -> None:
    """Ask the process that runs a sweep to stop it; what was measured stays.

    Raises RefusedError when none does, or when it runs on another host.
    """
    who = holder(folder)
    if who is None:
        raise RefusedError(f"sweep {folder.name} is not being run")
    host, _, pid = who.partition(" ")
    if host != socket.gethostname() or not pid.isdecimal():
        raise RefusedError(
            f"sweep {folder.name} is run by {who}", hint="stop it there: advisor train --stop"
        )
    try:
        os.kill(int(pid), signal.SIGINT)
    except OSError as error:
        raise RefusedError(f"process {pid} cannot be stopped: {error.strerror}") from None


def spent_in_series(root: Path, open_sweeps: Sequence[SweepState]) -> float:
    """Return the node-hours that a series' other sizes took, beside ``open_sweeps``, yet to run."""
    if not open_sweeps or open_sweeps[0].settings.size is None:
        return 0.0
    series = open_sweeps[0].settings.size.series
    ids = {state.id for state in open_sweeps}
    return sum(
        read(state.folder).spent.node_hours
        for state in newest_of(root, open_sweeps[0].subject.application)
        if state.id not in ids
        and state.settings.size is not None
        and state.settings.size.series == series
    )
