"""A sweep's own folder: everything needed to go on after a kill, written atomically."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.core.axes import AxisWriting
from advisor.core.codec import FieldError, Record
from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.inventory import Inventory, NodeType
from advisor.core.parameters import format_number
from advisor.core.program import checked
from advisor.core.rate import RateRule
from advisor.drafts import write_whole
from advisor.errors import InputError
from advisor.schedulers.base import PlannedRun, SweepJob, WatchPlan
from advisor.schedulers.early import LIBRARY
from advisor.store.records import TrainingRequest, TrainingState
from advisor.training.training_job import (
    TrainingJob,
    TrainingSite,
    TrainingSubject,
    of_experiment,
    understand,
)

VERSION = 1
"""Version of a sweep's state file."""
_UNFINISHED = ("requested", "running", "stopped")
CHECK = "check"
"""The stage that makes a run again, complete, which was ended early."""
CURVE = "curve"
"""The stage whose runs are made in one, which goes from value to value of a further axis."""
FIRST = "first"
"""The stage of the design's first runs where there was to be a curve, and is none."""
AGAIN = "again"
"""Begins the stages that make the job as written again, complete: others do not bear it out."""


@dataclass(frozen=True, slots=True)
class SeriesSize(Record):
    """One of the sizes that a job is measured at; all sweeps of one series share its name."""

    series: str
    parameter: str
    value: float
    values: tuple[float, ...]
    """All of them, ascending."""

    @property
    def largest(self) -> float:
        """The largest size of the series."""
        return self.values[-1]

    @property
    def last(self) -> bool:
        """Tell whether it is the largest size."""
        return self.value == self.largest

    @property
    def words(self) -> str:
        """The size for people: ``n 4e6``."""
        return f"{self.parameter} {format_number(self.value)}"


@dataclass(frozen=True, slots=True)
class SweepSettings(Record):
    """How a sweep is run: attempts per run, time per run (s), meter, who and for whom."""

    scheduler: str
    user: str
    account: str = ""
    attempts: int = 3
    run_limit_s: float | None = None
    estimate_s: float | None = None
    meter: str = "auto"
    model: str = "auto"
    design: str = "uniform"
    most_runs: int = 0
    """What a design that chooses its runs as it goes may grow to; 0 for others."""
    confirm: int = 1
    """Runs that confirm what a design found; 0 where the design's own runs do."""
    budget_node_hours: float | None = None
    """The most it may take by its user's word; None: as the policy says."""
    working_folder: str = ""
    extra_options: tuple[str, ...] = ()
    after: Mapping[str, Any] = field(default_factory=dict)
    """What follows each run, by an experiment file; empty for nothing."""
    events: tuple[str, ...] = ()
    """Counters to read in each run."""
    within: float = 0.0
    """How well a run's time and energy must be known to end it; 0: all are complete."""
    energy_from: str = ""
    """Where its energies come from, in the scheduler's words."""
    earlier: str = ""
    """The sweep whose complete run its job as written is paired with; "" for none."""
    size: SeriesSize | None = None
    """Which of several sizes it is."""
    elsewhere: Mapping[str, Any] = field(default_factory=dict)
    """What other workloads' repeats on the node type say, when it begins (models/scatter.py)."""
    axes: Mapping[str, AxisWriting] = field(default_factory=dict)
    """The further axes that it varies, and how its runs get them."""
    curve: tuple[Configuration, ...] = ()
    """What its second run goes through between its iterations; empty: each value has a run."""

    @property
    def fits(self) -> bool:
        """Tell whether a model of its own follows; a smaller size's runs serve the family's."""
        return self.size is None or self.size.last


@dataclass(slots=True)
class Stage(Record):
    """One stage: its runs, and the scheduler's handles of it so far, the last one live."""

    runs: tuple[PlannedRun, ...]
    handles: list[str] = field(default_factory=list)
    ended: bool = False


@dataclass(slots=True)
class SweepState:
    """A sweep as it is kept in ``sweep.json`` of its folder."""

    id: str
    folder: Path
    created_at: str
    settings: SweepSettings
    subject: TrainingJob
    space: SearchSpace
    stages: dict[str, Stage]
    state: TrainingState = "requested"
    detail: str = ""
    stored: dict[int, int] = field(default_factory=dict)
    """Observation ids by seq (0 where the store does not tell)."""
    store: str = ""
    """The store that the results are for; "" where it is not known."""

    def save(self) -> None:
        """Write the state; a crash leaves the last one."""
        write_whole(self.folder / "sweep.json", json.dumps(_to_json(self), indent=1), sync=True)

    def request(self) -> TrainingRequest:
        """Return the sweep as the store notes it."""
        subject = self.subject
        return TrainingRequest(
            self.id,
            subject.application,
            subject.workload,
            subject.node_type.name,
            self.settings.user,
            self.settings.scheduler,
            self.state,
            self.detail,
            {
                "runs": {
                    name: [r.configuration.to_dict() for r in stage.runs]
                    for name, stage in self.stages.items()
                },
                "folder": str(self.folder),
            },
            self.created_at,
            "",
        )

    @property
    def preload(self) -> Path:
        """Return the place of the library that its runs are watched with."""
        return self.folder / "watch" / LIBRARY

    def watch(self, stage: str) -> WatchPlan | None:
        """Return how a stage's runs are watched; None where all are complete."""
        complete = stage == CHECK or stage.startswith(AGAIN)
        if not self.settings.within or complete or not self.preload.is_file():
            return None
        return WatchPlan(self.preload.parent, self.preload, self.settings.within)

    def job(self, stage: str) -> SweepJob:
        """Return what a scheduler needs to run a stage."""
        subject, settings = self.subject, self.settings
        return SweepJob(
            id=self.id,
            stage=stage,
            folder=self.folder / stage,
            working_folder=Path(settings.working_folder),
            node_type=subject.node_type,
            runs=self.stages[stage].runs,
            script=subject.script,
            arguments=subject.arguments,
            command=subject.command,
            options=subject.options,
            launcher=subject.launcher,
            attempts=1 if stage == CURVE else settings.attempts,
            run_limit_s=settings.run_limit_s,
            estimate_s=settings.estimate_s,
            baseline=subject.baseline,
            partition=subject.partition,
            meter=settings.meter,
            method=subject.method,
            threads_from=subject.threads_from,
            rate=subject.rate,
            watch=self.watch(stage),
            events=settings.events,
            placement=self._placement(),
            threads_stated=bool(settings.after),
            axes=settings.axes,
            in_one=stage == CURVE,
        )

    def _placement(self) -> tuple[str, int, int]:
        """Return how an experiment places threads, "" where it does not say."""
        parameters = self.settings.after.get("parameters", {})
        if not isinstance(parameters, Mapping) or not parameters.get("threadPlacement"):
            return "", 0, 0
        sockets, rings = parameters.get("nodeSockets") or 0, parameters.get("socketRings") or 0
        return str(parameters["threadPlacement"]), int(sockets), int(rings)


def confirm_stage(round_: int) -> str:
    """Return the name of a round of confirmation: ``confirm``, ``confirm-2``, ``confirm-3``."""
    return f"confirm-{round_ + 1}" if round_ else "confirm"


def again_stage(repeats: int) -> str:
    """Return the name of a further run of the job as written: ``again-1``, ``again-2``."""
    return f"{AGAIN}-{repeats + 1}"


def further_stage(runs: int) -> str:
    """Return the name of a sequential design's further run: ``next-1``, ``next-2``."""
    return f"next-{runs + 1}"


def new(
    root: Path,
    subject: TrainingJob,
    space: SearchSpace,
    settings: SweepSettings,
    runs: tuple[PlannedRun, ...],
) -> SweepState:
    """Return the state of a sweep that nothing on the disk belongs to yet."""
    sweep_id = f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(4)}"
    return SweepState(
        sweep_id,
        root / sweep_id,
        datetime.now(UTC).isoformat(timespec="seconds"),
        settings,
        subject,
        space,
        {"design": Stage(runs)},
    )


def begin(state: SweepState) -> None:
    """Make the sweep's folder with a copy of the script. Raises InputError when it cannot be."""
    folder = state.folder
    try:
        # The copy of the script may hold what only its user may read.
        folder.mkdir(parents=True, mode=0o700)
        # Jobs run elsewhere, where a path relative to this folder leads nowhere.
        folder = state.folder = folder.resolve()
        if state.subject.script is not None:
            (folder / "script").write_bytes(state.subject.script.read_bytes())
            state.subject = replace(state.subject, script=folder / "script")
    except OSError as error:
        raise InputError(
            f"cannot make the sweep's folder {folder}: {error.strerror}",
            hint="choose another place with --work-dir",
        ) from error
    state.save()


def load(folder: Path) -> SweepState:
    """Read a sweep's state. Raises InputError when the folder holds none that can be read."""
    path = folder / "sweep.json"
    try:
        data = json.loads(path.read_text())
        if data["version"] != VERSION:
            raise InputError(f"{path} was written by another version of advisor")
        return _from_json(folder.resolve(), data)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except FieldError as error:
        raise InputError(f"{path} is damaged: {error.key}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged: {error!r}") from error


def newest_of(root: Path, application: str = "") -> list[SweepState]:
    """Return the sweeps below ``root``, of an application if one is given, the newest first."""
    sweeps = []
    for path in root.glob("*/sweep.json"):
        with contextlib.suppress(InputError):
            state = load(path.parent)
            if application in ("", state.subject.application):
                sweeps.append(state)
    return sorted(sweeps, key=lambda s: (s.created_at, s.id), reverse=True)


def latest(root: Path, application: str = "") -> SweepState | None:
    """Return the newest unfinished sweep below ``root``, of an application if one is given."""
    unfinished = (s for s in newest_of(root, application) if s.state in _UNFINISHED)
    return next(unfinished, None)


def series_of(root: Path, state: SweepState) -> list[SweepState]:
    """Return a sweep with the unfinished ones of its series, by size."""
    size = state.settings.size
    if size is None:
        return [state]
    return sorted(
        (
            s
            for s in newest_of(root, state.subject.application)
            if s.settings.size is not None
            and s.settings.size.series == size.series
            and (s.id == state.id or s.state in _UNFINISHED)
        ),
        key=lambda s: s.settings.size.value if s.settings.size else 0.0,
    )


@contextlib.contextmanager
def locked(state: SweepState) -> Iterator[None]:
    """Hold a sweep for this process, and say which that is in the file ``lock``.

    Raises InputError when another one has it.
    """
    with (state.folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"sweep {state.id} is being run by another process", hint="wait for it"
            ) from error
        # The lock, not the file, says who has it: a file that a killed process left is taken over.
        file.truncate(0)
        file.write(f"{socket.gethostname()} {os.getpid()}\n")
        file.flush()
        yield


def _to_json(state: SweepState) -> dict[str, Any]:
    subject = state.subject
    return {
        "version": VERSION,
        "id": state.id,
        "created_at": state.created_at,
        "state": state.state,
        "detail": state.detail,
        "store": state.store,
        "settings": state.settings.to_dict(),
        "subject": {
            "application": subject.application,
            "workload": subject.workload,
            "node_type": subject.node_type.to_dict(),
            "baseline": subject.baseline.to_dict(),
            "script": subject.script is not None,
            "arguments": list(subject.arguments),
            "command": list(subject.command),
            "partition": subject.partition,
            "method": subject.method,
            "threads_from": list(subject.threads_from),
            "program": dict(subject.program),
            "job_name": subject.request.job_name,
            "exclusive": subject.request.exclusive,
            "explicit": sorted(subject.request.explicit),
            "options": dict(subject.options),
            "understood_options": {n: list(a) for n, a in subject.understood_options.items()},
            "environment_files": list(subject.environment_files),
            "threads_kept": subject.threads_kept,
            "freq_kept": subject.freq_kept,
            "left_alone": subject.left_alone,
            **({"rate": subject.rate.to_dict()} if subject.rate else {}),
        },
        "space": state.space.to_dict(),
        "stages": {name: stage.to_dict() for name, stage in state.stages.items()},
        "stored": {str(k): v for k, v in state.stored.items()},
    }


def _from_json(folder: Path, data: Mapping[str, Any]) -> SweepState:
    settings = SweepSettings.from_dict(data["settings"], ("settings",))
    stages = {
        name: Stage.from_dict(stage, ("stages", name)) for name, stage in data["stages"].items()
    }
    subject = _subject(folder, data["subject"], settings)
    return SweepState(
        data["id"],
        folder,
        data["created_at"],
        settings,
        subject,
        SearchSpace.from_dict(subject.node_type.name, data["space"]),
        stages,
        data["state"],
        data["detail"],
        {int(k): v for k, v in data["stored"].items()},
        str(data.get("store", "")),
    )


def _subject(folder: Path, data: Mapping[str, Any], settings: SweepSettings) -> TrainingJob:
    """Read the script's copy again; what site and process said then is taken from the state."""
    node_type = NodeType.from_dict(data["node_type"])
    understood = {n: tuple(a) for n, a in data.get("understood_options", {}).items()}
    subject = TrainingSubject(
        folder / "script" if data["script"] else None,
        tuple(data["arguments"]),
        tuple(data["command"]),
        application=data["application"],
        workload=data["workload"],
        node_type=node_type.name,
        options=tuple(settings.extra_options),
    )
    job = understand(
        subject,
        scheduler=settings.scheduler,
        site=TrainingSite(
            Inventory.of([node_type]),
            understood_options=understood,
            environment_files=tuple(data.get("environment_files", ())),
        ),
        options=data.get("options"),
    )
    if settings.after:
        job = of_experiment(job)
    request = job.request
    request = replace(
        request,
        job_name=data.get("job_name", request.job_name),  # the copy has another name
        exclusive=data.get("exclusive", request.exclusive),  # its partition may say so
        explicit=frozenset(data.get("explicit", request.explicit)),
    )
    return replace(
        job,
        request=request,
        threads_kept=data.get("threads_kept", job.threads_kept),
        freq_kept=data.get("freq_kept", job.freq_kept),
        left_alone=data.get("left_alone", job.left_alone),
        baseline=Configuration.from_dict(data["baseline"]),
        partition=data["partition"],
        method=data.get("method", "request"),  # a sweep of an earlier version
        threads_from=tuple(data.get("threads_from", job.threads_from)),
        program=checked(data.get("program")),
        rate=RateRule.from_dict(data.get("rate")),
    )
