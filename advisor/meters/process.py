"""Measure one child process: its time, its energy, on so many cores."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.core.observation import Quality
from advisor.core.placement import in_order
from advisor.core.power import is_possible
from advisor.errors import MeterError, SchedulerError
from advisor.meters.base import ACCELERATOR, Load, Meter
from advisor.meters.counters import Counters
from advisor.meters.events import named_event

GRACE_S = 3.0
"""How long a process may take to end when asked."""
_UPDATES = 10
"""Updates of its meter that a run should take at least (Endrei 2019, appendix A)."""
_USER = 0.95
"""Of its processor time, what a program should spend itself and not the system for it (there)."""
_LEAST_CPU_S = 0.5
"""Processor time below which starting the program is most of it."""


@dataclass(frozen=True, slots=True)
class MeasuredProcess:
    """One measured child process: exit code (negative: signal), seconds, joules if known."""

    exit_code: int
    time_s: float
    energy_j: float | None
    energy_quality: Quality
    meter: str
    detail: str = ""
    timed_out: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[tuple[str, float], ...] = ()
    """The joules by part of the node, as far as the meter knows them apart."""
    user_s: float = 0.0
    system_s: float = 0.0
    """Processor time of the child and those that it waited for: its own, the system's for it."""
    update_s: float = 0.0
    """How often the meter's counters move; 0: not known."""

    def doubts(self) -> list[str]:
        """Say why a measurement is worth less than it looks: too short a run, too much overhead."""
        sentences = []
        if self.energy_j is not None and self.time_s < _UPDATES * self.update_s:
            percent = 100 * self.update_s / self.time_s
            sentences.append(
                f"{self.time_s:.2g} s are fewer than {_UPDATES} updates of {self.meter}, one each "
                f"{self.update_s:g} s: its energy may be off by {percent:.0f} %; measure a longer "
                "run"
            )
        cpu_s = self.user_s + self.system_s
        if cpu_s > _LEAST_CPU_S and self.user_s < _USER * cpu_s:
            sentences.append(
                f"the system took {100 * self.system_s / cpu_s:.0f} % of its processor time "
                "(files, memory, starting processes): more than work is measured"
            )
        return sentences

    @property
    def gpu_j(self) -> float | None:
        """The joules of the node's accelerators, None where none was metered."""
        gpus = [part_j for name, part_j in self.parts if name.startswith(ACCELERATOR)]
        return sum(gpus) if gpus else None


def usable_cpus(root: Path = Path("/sys")) -> list[int]:
    """Return the CPUs this process may use, one of each physical core first."""
    cpus = sorted(os.sched_getaffinity(0))
    core_names: set[str] = set()
    first: list[int] = []
    rest: list[int] = []
    for cpu in cpus:
        file = root / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            core = file.read_text().strip()
        except OSError:
            core = str(cpu)
        (rest if core in core_names else first).append(cpu)
        core_names.add(core)
    return first + rest


ALL_TO_STDERR = (2, 2)
"""Streams of a command whose output is not to stand in this process's own."""


@dataclass(frozen=True, slots=True)
class MeasuredCommand:
    """A command, and how it runs: on so many cores, with what, and for how long at most."""

    argv: tuple[str, ...]
    threads: int
    freq_khz: int = 0
    """The cap that it runs under, for meters that estimate; 0: none."""
    placement: tuple[str, int, int] = ("", 0, 0)
    """How its cores are chosen, of how many sockets (0: the machine's), core rings of each."""
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    output: Path | None = None
    """Takes its stdout and stderr; it then has a session of its own."""
    streams: tuple[int | None, int | None] = (None, None)
    """Its stdout and stderr without ``output``, as descriptors; None: this process's own."""
    stdin: int | None = None
    """None: this process's own, nothing with ``output``."""
    limit_s: float | None = None

    def cpus(self) -> list[int]:
        """Return the CPUs that it runs on. Raises SchedulerError where there are too few."""
        cpus = usable_cpus()
        if self.threads > len(cpus):
            raise SchedulerError(
                f"{self.threads} threads asked for, this machine offers {len(cpus)} CPUs"
            )
        if self.placement[0]:
            cpus = _placed_cpus(cpus, *self.placement)
        return cpus[: self.threads]


def measure(
    command: MeasuredCommand,
    meter: Meter | None,
    *,
    events: tuple[str, ...] = (),
    note: Path | None = None,
    started: Callable[[int], None] | None = None,
) -> MeasuredProcess:
    """Run a command and measure its time (monotonic) and, with a meter, its energy.

    The child inherits the affinity of this thread, which is narrowed around the start only.
    ``events`` are counted where they can be; ``note`` names the process while it runs, ``started``
    is called with its id. Raises SchedulerError when it cannot be started or this machine has too
    few cores.
    """
    cpus, folder, output = command.cpus(), command.folder, command.output
    allowed = os.sched_getaffinity(0)
    load = Load(command.threads, command.freq_khz)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(output.open("ab")) if output else None
        out, err = command.streams
        if meter is not None:
            meter.start(load)
        counters = stack.enter_context(_counters(events)) if events else None
        usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        os.sched_setaffinity(0, cpus)
        try:
            child = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL if output and command.stdin is None else command.stdin,
                stdout=file or out,
                stderr=file or err,
                cwd=folder,
                env=None if command.environment is None else dict(command.environment),
                start_new_session=output is not None,
            )
        except OSError as error:
            if meter is not None:
                with contextlib.suppress(MeterError):
                    meter.stop()
            folder_failed = folder is not None and str(error.filename) == str(folder)
            what = f"enter {folder}" if folder_failed else f"run {command.argv[0]}"
            raise SchedulerError(f"cannot {what}: {error.strerror}") from error
        finally:
            os.sched_setaffinity(0, allowed)
        own_group = output is not None
        limit = _Limit(child, command.limit_s, own_group)
        try:
            if note is not None:
                note.write_text(json.dumps({"pid": child.pid, "start": start_ticks(child.pid)}))
            if started is not None:
                started(child.pid)
            code = child.wait()  # without a timeout: that would poll, and be late by up to 50 ms
        except BaseException:
            _kill(child, own_group)
            raise
        finally:
            elapsed = time.perf_counter() - begin
            timed_out = limit.end()
            if note is not None:
                note.unlink(missing_ok=True)
        counted = {n: v for n, (v, _) in counters.read().events.items()} if counters else {}
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured = MeasuredProcess(
        code,
        elapsed,
        None,
        "missing",
        "",
        "no meter",
        timed_out,
        counted,
        user_s=usage_after.ru_utime - usage_before.ru_utime,
        system_s=usage_after.ru_stime - usage_before.ru_stime,
    )
    if meter is None:
        return measured
    try:
        reading = meter.stop()
    except MeterError as error:
        return replace(measured, meter=meter.NAME, detail=str(error))
    if not is_possible(reading.energy_j, elapsed, 1):
        why = f"{reading.meter} says {reading.energy_j:.4g} J, which is impossible"
        return replace(measured, meter=meter.NAME, detail=why)
    return replace(
        measured,
        energy_j=reading.energy_j,
        energy_quality=reading.quality,
        meter=reading.meter,
        detail=reading.detail,
        parts=reading.parts,
        update_s=meter.UPDATE_S,
    )


def _counters(names: tuple[str, ...]) -> Counters:
    events = (named_event(name) for name in names)
    return Counters(wanted=tuple(event for event in events if event is not None))


def _placed_cpus(
    cpus: list[int], placement: str, sockets: int, rings: int, root: Path = Path("/sys")
) -> list[int]:
    """Return the CPUs in the order of a placement, second threads of cores last."""
    core_names: set[str] = set()
    cores: list[tuple[int, int]] = []
    for cpu in cpus:
        folder = root / f"devices/system/cpu/cpu{cpu}/topology"
        try:
            core = (folder / "thread_siblings_list").read_text().strip()
            socket = int((folder / "physical_package_id").read_text())
        except (OSError, ValueError):
            core, socket = str(cpu), 0
        if core not in core_names:
            cores.append((cpu, socket))
        core_names.add(core)
    ordered = in_order(cores, placement, sockets, rings or 2)
    return ordered + [cpu for cpu in cpus if cpu not in set(ordered)]


def start_ticks(pid: int) -> str:
    """Return when a process started (ticks since boot), "" when it is gone: pids are reused."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name, in parentheses, may hold blanks and parentheses; behind it the 22nd field is the
    # 20th.
    return stat.rpartition(")")[2].split()[19]


class _Limit:
    """Ends a child that runs longer than it may, from a thread of its own."""

    def __init__(
        self, child: subprocess.Popen[bytes], limit_s: float | None, own_group: bool
    ) -> None:
        self._child, self._limit_s, self._own_group = child, limit_s, own_group
        self._ended = threading.Event()
        self._struck = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if limit_s is not None:
            self._thread.start()

    def _watch(self) -> None:
        if not self._ended.wait(self._limit_s):
            self._struck = True
            _signal(self._child, signal.SIGTERM, self._own_group)
            if not self._ended.wait(GRACE_S):
                _signal(self._child, signal.SIGKILL, self._own_group)

    def end(self) -> bool:
        """Stand down; tell whether the limit was exceeded."""
        self._ended.set()
        if self._limit_s is not None:
            self._thread.join()
        if self._struck and self._own_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)  # whoever ignored the first signal
        return self._struck


def _signal(child: subprocess.Popen[bytes], number: signal.Signals, own_group: bool) -> None:
    """Signal a child and, where it has a session of its own, all it started."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number) if own_group else os.kill(child.pid, number)


def _kill(child: subprocess.Popen[bytes], own_group: bool) -> None:
    """End a child: ask first, then do not."""
    _signal(child, signal.SIGTERM, own_group)
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _signal(child, signal.SIGKILL, own_group)
        child.wait()


def exit_text(code: int) -> str:
    """Return an exit code in words: ``exit code 2`` or ``killed by SIGSEGV``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
