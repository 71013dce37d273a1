"""The processor's own counters for one child process and all it starts, by perf_event_open.

Groups are small enough to be counted all of the time. Cycles and instructions have counters of
their own; arithmetic takes four or five; memory traffic is counted by the memory controllers, for
the whole node. What may not be counted is named with what would allow it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import resource
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_NUMBERS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241}
"""The system call by architecture."""
_HARDWARE, _RAW = 0, 4
ATTRIBUTE_BYTES = 112
"""Of a ``perf_event_attr``, as kernels since 4.1 know it."""
_ENABLED_AND_RUNNING = 0b11
"""``PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING``."""
# Bits of a perf_event_attr's flags, in the order of linux/perf_event.h.
_DISABLED, _INHERIT, _NO_KERNEL, _NO_HYPERVISOR, _ON_EXEC = (1 << n for n in (0, 1, 5, 6, 12))
_DEVICES = Path("/sys/bus/event_source/devices")
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

_INTEL_FLOPS = (
    ("scalar", 0x03),
    ("pairs", 0x04),
    ("fours", 0x18),
    ("eights", 0x60),
    ("sixteens", 0x80),
)
"""fp_arith_inst_retired by the operations of one instruction; masks of equal weight are joined."""


@dataclass(frozen=True, slots=True)
class CounterReading:
    """What was counted, by event: value and percentage of the time; bytes to and from memory.

    ``cpu_s``, ``io_b`` and ``memory_b`` (the largest process) are the kernel's own accounting.
    ``notes`` say what could not be counted, and what would allow it.
    """

    events: dict[str, tuple[float, float]]
    traffic_b: float | None
    traffic_running: float
    cpu_s: float
    io_b: float
    memory_b: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """A counter under the name it was asked for by: the kernel's type and configuration."""

    name: str
    kind: int
    config: int


@dataclass(frozen=True, slots=True)
class _Opened:
    descriptor: int
    name: str
    scale: float = 1.0


@dataclass(slots=True)
class Counters:
    """Counters of the next process that this thread starts, and of all that it starts in turn.

    Use as a context around the start and the wait; then :meth:`read`. ``wanted`` are counted each
    by itself, instead of what a signature needs.
    """

    devices: Path = _DEVICES
    cpuinfo: Path = Path("/proc/cpuinfo")
    notes: list[str] = field(default_factory=list)
    wanted: tuple[NamedEvent, ...] = ()
    _own: list[_Opened] = field(default_factory=list)
    _traffic: list[_Opened] = field(default_factory=list)
    _before: resource.struct_rusage | None = None

    def __enter__(self) -> Self:
        """Open what can be opened; nothing is raised for what cannot."""
        self._before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for event in self.wanted:
            self._group([(event.name, event.kind, event.config)])
        if self.wanted:
            return self
        try:
            self._group([("cycles", _HARDWARE, 0), ("instructions", _HARDWARE, 1)])
            if self._own:
                self._arithmetic()
            self._controllers()
        except OSError as error:
            self.close()
            self.notes.append(f"no counters: {error.strerror}")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def opened(self) -> bool:
        """Whether anything is counted."""
        return bool(self._own or self._traffic)

    def close(self) -> None:
        """Close all counters."""
        for opened in (*self._own, *self._traffic):
            os.close(opened.descriptor)
        self._own, self._traffic = [], []

    def read(self) -> CounterReading:
        """Return what was counted until now."""
        events = {}
        for opened in self._own:
            value, running = _value(opened.descriptor)
            events[opened.name] = (value, running)
        traffic, share = None, 100.0
        for opened in self._traffic:
            value, running = _value(opened.descriptor)
            traffic, share = (traffic or 0.0) + value * opened.scale, min(share, running)
        usage, baseline = resource.getrusage(resource.RUSAGE_CHILDREN), self._before
        assert baseline is not None
        blocks = usage.ru_inblock + usage.ru_oublock - baseline.ru_inblock - baseline.ru_oublock
        cpu_s = usage.ru_utime + usage.ru_stime - baseline.ru_utime - baseline.ru_stime
        return CounterReading(
            events,
            traffic,
            share,
            cpu_s,
            # The kernel counts blocks of 512 bytes, and resident memory in KiB.
            512.0 * blocks,
            1024.0 * usage.ru_maxrss,
            tuple(self.notes),
        )

    def _group(self, events: list[tuple[str, int, int]]) -> bool:
        """Open events that are counted together or not at all; say why where they cannot be."""
        opened: list[_Opened] = []
        try:
            for name, kind, config in events:
                leader = opened[0].descriptor if opened else -1
                flags = _INHERIT | _NO_KERNEL | _NO_HYPERVISOR
                if leader == -1:
                    # What leads a group begins with the child's exec, and the others with it.
                    flags |= _DISABLED | _ON_EXEC
                opened.append(_Opened(_open(kind, config, flags, group=leader), name))
        except OSError as error:
            for event in opened:
                os.close(event.descriptor)
            self.notes.append(f"{', '.join(e[0] for e in events)}: {why_not(error)}")
            return False
        self._own += opened
        return True

    def _arithmetic(self) -> None:
        text = self.cpuinfo.read_text(errors="replace") if self.cpuinfo.exists() else ""
        if "GenuineIntel" in text:
            # Event 0xC7 is FP_ARITH_INST_RETIRED; the mask is in the byte above it.
            masks = [(name, _RAW, mask << 8 | 0xC7) for name, mask in _INTEL_FLOPS]
            if "avx512" not in text:
                masks = masks[:4]
            note_count = len(self.notes)
            if not self._group(masks) and len(masks) > 4 and self._group(masks[:4]):
                del self.notes[note_count:]
                self.notes.append(
                    "sixteens: too few counters; single precision of 512 bits is not counted"
                )
        elif "AuthenticAMD" in text:
            # Event 0x03 of Zen: retired SSE and AVX operations, of all kinds.
            self._group([("flops", _RAW, 0xFF03)])
        else:
            self.notes.append("arithmetic: this processor's events are not known")

    def _controllers(self) -> None:
        """Open the memory controllers' counters, of the whole node."""
        controllers = list(_imc_events(self.devices))
        if not controllers:
            self.notes.append("memory traffic: the kernel shows no memory controllers (uncore_imc)")
        for name, kind, config, cpu, scale in controllers:
            try:
                self._traffic.append(_Opened(_open(kind, config, 0, pid=-1, cpu=cpu), name, scale))
            except OSError as error:
                for opened in self._traffic:
                    os.close(opened.descriptor)
                self._traffic = []
                self.notes.append(f"memory traffic: {why_not(error, node=True)}")
                return


def _imc_events(devices: Path) -> Iterator[tuple[str, int, int, int, float]]:
    """Return name, type, configuration, processor, bytes per count of the controllers' events."""
    for device in sorted(devices.glob("uncore_imc*")):
        # These have no cas_count.
        if "free_running" in device.name:
            continue
        for event in ("cas_count_read", "cas_count_write"):
            try:
                kind = int((device / "type").read_text())
                event_text = (device / "events" / event).read_text()
                terms = dict(re.findall(r"(\w+)=(0x\w+|\d+)", event_text))
                cpus = re.findall(r"\d+", (device / "cpumask").read_text())
                # A column access moves a cache line of 64 bytes.
                scale = _text(device / "events" / f"{event}.scale", "64")
                unit = 2**20 if _text(device / "events" / f"{event}.unit", "") == "MiB" else 1
                config = int(terms["event"], 0) | int(terms.get("umask", "0"), 0) << 8
            except (OSError, ValueError, KeyError):
                continue
            for cpu in cpus:
                yield f"{device.name}/{event}", kind, config, int(cpu), float(scale) * unit


def _text(path: Path, default: str) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return default


def _open(
    kind: int, config: int, flags: int, *, pid: int = 0, cpu: int = -1, group: int = -1
) -> int:
    """Open one counter and return its descriptor. Raises OSError."""
    attributes = struct.pack(
        "<IIQQQQQ", kind, ATTRIBUTE_BYTES, config, 0, 0, _ENABLED_AND_RUNNING, flags
    )
    return open_event(attributes, pid=pid, cpu=cpu, group=group)


def open_event(attributes: bytes, *, pid: int = 0, cpu: int = -1, group: int = -1) -> int:
    """Open what a ``perf_event_attr`` describes and return its descriptor. Raises OSError."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    close_on_exec = 8
    descriptor: int = libc.syscall(
        number,
        attributes.ljust(ATTRIBUTE_BYTES, b"\0"),
        pid,
        cpu,
        group,
        ctypes.c_ulong(close_on_exec),
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


def open_group(events: Sequence[tuple[int, int]]) -> list[int | OSError]:
    """Open events of this thread that are counted together: each one's descriptor, or why not."""
    opened: list[int | OSError] = []
    leader = -1
    for kind, config in events:
        try:
            flags = _NO_KERNEL | _NO_HYPERVISOR
            opened.append(_open(kind, config, flags, group=leader))
        except OSError as error:
            opened.append(error)
        else:
            leader = next(d for d in opened if isinstance(d, int))
    return opened


def _value(descriptor: int) -> tuple[float, float]:
    """Return a counter's value and for how much of the time it ran, in percent."""
    value, enabled, running = struct.unpack("<QQQ", os.read(descriptor, 24))
    return float(value), 100.0 * running / enabled if enabled else 0.0


def why_not(error: OSError, *, node: bool = False) -> str:
    """Return why the kernel refused, and what would allow it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        level = "0" if node else "2"
        paranoid = _text(_PARANOID, "not known")
        if paranoid.lstrip("-").isdigit() and int(paranoid) <= int(level):
            return (
                f"not allowed, though kernel.perf_event_paranoid is {paranoid}: a container's "
                "seccomp filter forbids perf_event_open; allow it there, or count outside of the "
                "container"
            )
        return (
            f"not allowed; grant it with sysctl kernel.perf_event_paranoid={level} "
            f"(it is {paranoid}), or the capability CAP_PERFMON"
        )
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO):
        return "there are no such counters here (a virtual machine shows none)"
    if error.errno == errno.ENOSYS:
        return "the kernel offers no counters (perf_event_open)"
    if error.errno in (errno.EINVAL, errno.ENOSPC):
        return "too few counters are free to count these all of the time"
    return error.strerror or str(error)
