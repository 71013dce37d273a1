"""The runs of a characterisation: one that is timed, one that is traced."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.instruments import valgrind
from advisor.instruments.characterise_files import (
    TimedProcess,
    TracedProcess,
    read_phases,
    read_sites,
)
from advisor.instruments.native import SOURCES, built
from advisor.instruments.twin import SUFFIX
from advisor.meters.process import (
    ALL_TO_STDERR,
    MeasuredCommand,
    MeasuredProcess,
    exit_text,
    measure,
    usable_cpus,
)

TRACE_BYTES = 512 * 2**20
"""Most that one traced process may keep; the file is sparse, most take a few MB."""


@dataclass(frozen=True, slots=True)
class TracedCommand:
    """What is characterised: words, threads (0: as the environment says), and its input.

    ``stdin`` is a file that every run reads from ``start`` on, None for what this process has;
    ``quiet`` sends the command's output to stderr.
    """

    argv: tuple[str, ...]
    threads: int = 0
    stdin: int | None = None
    start: int = 0
    quiet: bool = False

    @property
    def cpus(self) -> int:
        """How many CPUs it may use."""
        return self.threads or len(usable_cpus())

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a run."""
        variables = {**os.environ, **extra}
        if self.threads:
            variables["OMP_NUM_THREADS"] = str(self.threads)
        return variables


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The timed run: exit code, seconds of wall time, and what its processes left."""

    exit_code: int
    time_s: float
    processes: tuple[TimedProcess, ...]


@dataclass(frozen=True, slots=True)
class TracedRun:
    """The traced run; ``stopped`` when it was ended at its time limit."""

    method: str
    time_s: float
    stopped: bool
    processes: tuple[TracedProcess, ...]


def timing_library(*, see_files: bool = False) -> Path:
    """Return the library that times fork-joins, compiled for this machine.

    With ``see_files`` it times reads and writes of files as well.
    """
    return built(
        "files.so" if see_files else "phases.so",
        [SOURCES / "trace" / "phases.c"],
        [
            *(["-DSEE_FILES"] if see_files else []),
            "-O2",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-ftls-model=initial-exec",
        ],
        headers=[SOURCES / "trace" / h for h in ("regions.h", "watch.h", "bursts.h", "files.h")],
        libraries=["-ldl", "-lpthread"],
    )


def timed_run(command: TracedCommand) -> TimedRun:
    """Run the command once, its own program untouched, under the timing library.

    Raises SchedulerError when it cannot be started. A command that fails is a result too.
    """
    with _folder() as folder:
        measured = _measure(
            command,
            {
                "ADVISOR_PHASES": str(folder),
                "LD_PRELOAD": _preloaded(timing_library(see_files=True)),
            },
        )
        return TimedRun(measured.exit_code, measured.time_s, tuple(read_phases(folder)))


def twin_of(exe: Path) -> Path:
    """Return where ``advisor cc`` puts a program's traced twin."""
    return exe.with_name(exe.name + SUFFIX)


def twin_run(command: TracedCommand, *, limit_s: float | None) -> TracedRun:
    """Run the command again, its programs replaced by their twins where there are any.

    Raises AdvisorError when it fails, which the timed run before it did not.
    """
    with _folder() as folder:
        sites = folder / "sites"
        sites.mkdir()
        measured = _measure(
            command,
            {
                "ADVISOR_TWIN": SUFFIX,
                "ADVISOR_STREAMS": str(sites),
                "ADVISOR_STREAMS_BYTES": str(_room(folder)),
                "LD_PRELOAD": _preloaded(timing_library()),
            },
            output=folder / "output",
            limit_s=limit_s,
        )
        if measured.exit_code != 0 and not measured.timed_out:
            last_line = _last_line(folder / "output")
            raise AdvisorError(
                f"the traced run failed: {exit_text(measured.exit_code)}{last_line}",
                hint="the program itself ran; build its twin again with advisor cc",
            )
        processes = tuple(read_sites(sites))
        return TracedRun("advisor cc", measured.time_s, measured.timed_out, processes)


def valgrind_run(command: TracedCommand, *, outside: bool, limit_s: float | None) -> TracedRun:
    """Run the command again as it is, under valgrind; ``outside`` for what has no regions.

    Raises AdvisorError when that cannot be done, or the command fails there.
    """
    with _folder() as folder:
        words, tools = valgrind.command(folder, outside=outside, limit_bytes=_room(folder))
        measured = _measure(
            command,
            {
                "VALGRIND_LIB": str(tools),
                "OMP_WAIT_POLICY": "passive",
                "LD_PRELOAD": _preloaded(valgrind.teams_library()),
            },
            output=folder / "output",
            limit_s=limit_s,
            prefix=words,
        )
        if measured.exit_code != 0 and not measured.timed_out:
            last_line = _last_line(folder / "output")
            hint = "build it with advisor cc instead"
            if measured.exit_code == -signal.SIGILL:
                hint = f"it has instructions valgrind does not know; {hint}"
            text = exit_text(measured.exit_code)
            raise AdvisorError(f"it fails under valgrind: {text}{last_line}", hint=hint)
        processes = tuple(read_sites(folder))
        return TracedRun("valgrind", measured.time_s, measured.timed_out, processes)


def _room(folder: Path) -> int:
    """Return how many bytes a traced process may keep."""
    return min(TRACE_BYTES, shutil.disk_usage(folder).free // 4)


def _measure(
    command: TracedCommand,
    extra: Mapping[str, str],
    *,
    output: Path | None = None,
    limit_s: float | None = None,
    prefix: Sequence[str] = (),
) -> MeasuredProcess:
    if command.stdin is not None:
        os.lseek(command.stdin, command.start, os.SEEK_SET)
    run = MeasuredCommand(
        (*prefix, *command.argv),
        command.cpus,
        environment=command.environment(extra),
        output=output,
        streams=ALL_TO_STDERR if command.quiet else (None, None),
        stdin=command.stdin,
        limit_s=limit_s,
    )
    return measure(run, None)


def _preloaded(library: Path) -> str:
    return " ".join(part for part in (str(library), os.environ.get("LD_PRELOAD", "")) if part)


def _last_line(output: Path) -> str:
    try:
        lines = output.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f': "{lines[-1][:200]}"' if lines else ""


@contextmanager
def _folder() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="advisor-characterise-") as name:
            yield Path(name)
    except OSError as error:
        raise AdvisorError(f"cannot keep a trace: {error}") from error


def input_file() -> tuple[int | None, int]:
    """Return standard input and its position if it is a file, for every run to read from there."""
    try:
        descriptor = sys.stdin.fileno()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor, os.lseek(descriptor, 0, os.SEEK_CUR)
    except (AttributeError, OSError, ValueError):
        pass
    return None, 0


def busy_note(cpus: int) -> str:
    """Return a warning when other programs keep this machine busy, "" when they do not."""
    load, core_count = os.getloadavg()[0], os.cpu_count() or 1
    if load + cpus <= core_count + 0.5:
        return ""
    return (
        f"the machine is busy (load {load:.1f} on {core_count} cores), so times come out too long"
    )
