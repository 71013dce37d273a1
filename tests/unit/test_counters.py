"""Counters by perf_event_open: what is counted, and what is said where nothing is."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli.run_counters import signature_of
from advisor.core.configuration import Configuration
from advisor.meters import counters
from advisor.meters.counters import CounterReading, Counters
from advisor.meters.process import MeasuredProcess

C = Configuration("here", 1, 1, 2, 0)
BUSY = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
_SOFTWARE, _TASK_CLOCK = 1, 1


def counted(command: list[str]) -> float:
    """Return the processor time of a command as the kernel's software counter has it, in s."""
    with Counters() as c:
        c._own, c.notes = [], []
        if not c._group([("task-clock", _SOFTWARE, _TASK_CLOCK)]):
            pytest.skip(c.notes[0])
        subprocess.run(command, check=True)
        value, running = c.read().events["task-clock"]
    assert running == 100.0
    return value / 1e9


def test_what_the_command_starts_is_counted_with_it() -> None:
    alone = counted([sys.executable, "-c", BUSY])
    script = f"'{sys.executable}' -c '{BUSY}' & '{sys.executable}' -c '{BUSY}'; wait"
    two = counted(["sh", "-c", script])
    assert 0.2 <= alone < 2 and two >= 0.4


def test_only_the_command_is_counted() -> None:
    with Counters() as c:
        c._own = []
        if not c._group([("task-clock", _SOFTWARE, _TASK_CLOCK)]):
            pytest.skip(c.notes[0])
        sum(i * i for i in range(200_000))  # before the command: this process's own
        assert c.read().events["task-clock"] == (0.0, 0.0)


def test_nothing_stays_open_and_nothing_is_raised() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with Counters() as c:
            subprocess.run(["true"], check=True)
            reading = c.read()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    if not reading.events:
        assert any(note.startswith("cycles, instructions: ") for note in reading.notes)


@pytest.mark.parametrize(
    "number, level, words",
    [
        (errno.EACCES, 3, "sysctl kernel.perf_event_paranoid="),
        (errno.EPERM, 4, "CAP_PERFMON"),
        (errno.EPERM, 0, "seccomp"),
        (errno.EACCES, -1, "though kernel.perf_event_paranoid is -1"),
        (errno.ENOENT, 2, "a virtual machine shows none"),
        (errno.ENOSYS, 2, "offers no counters"),
        (errno.EINVAL, 2, "too few counters are free"),
    ],
)
def test_what_is_refused_is_said_with_what_to_grant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, level: int, words: str
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(counters, "_open", refuse)
    (tmp_path / "paranoid").write_text(f"{level}\n")
    monkeypatch.setattr(counters, "_PARANOID", tmp_path / "paranoid")
    device = tmp_path / "uncore_imc_0"
    (device / "events").mkdir(parents=True)
    for name, text in (
        ("type", "12\n"),
        ("cpumask", "0,36\n"),
        ("events/cas_count_read", "event=0x04,umask=0x03"),
        ("events/cas_count_read.scale", "6.103515625e-5"),
        ("events/cas_count_read.unit", "MiB"),
    ):
        (device / name).write_text(text)
    with Counters(devices=tmp_path) as c:
        notes = c.read().notes
    assert all(words in note for note in notes)
    assert [re.split(":", note)[0] for note in notes] == ["cycles, instructions", "memory traffic"]
    found = list(counters._imc_events(tmp_path))
    assert [(one[1], one[2], one[3]) for one in found] == [(12, 0x304, 0), (12, 0x304, 36)]
    assert found[0][4] == pytest.approx(64.0)


def test_a_reading_becomes_a_signature() -> None:
    events = {
        "cycles": (3e9, 100.0),
        "instructions": (2e9, 100.0),
        "scalar": (1e9, 100.0),
        "fours": (1e9, 100.0),
    }
    reading = CounterReading(events, 6.4e9, 100.0, 3.0, 4e6, 5e7, ("note",))
    measured = MeasuredProcess(0, 2.0, 500.0, "measured", "rapl")
    signature, notes = signature_of(measured, reading, C)
    assert signature.cpi == 1.5 and signature.gflops == pytest.approx(2.5)
    assert signature.gbs == pytest.approx(3.2) and signature.tpi == pytest.approx(0.05)
    assert (signature.power_w, signature.io_mbs, signature.memory_mb) == (250.0, 2.0, 50.0)
    assert signature.cpu_util == pytest.approx(75.0) and notes == ["note"]


def test_what_was_not_counted_all_of_the_time_is_dropped() -> None:
    events = {"cycles": (3e9, 60.0), "instructions": (2e9, 100.0), "scalar": (1e9, 0.0)}
    measured = MeasuredProcess(0, 2.0, None, "missing", "")
    reading = CounterReading(events, 6.4e9, 99.0, 3.0, 0.0, 0.0, ())
    signature, notes = signature_of(measured, reading, C)
    assert signature.cpi is signature.gflops is signature.gbs is signature.power_w is None
    assert [note.split(":")[0] for note in notes] == [
        "dropped cycles",
        "dropped scalar",
        "dropped memory traffic",
    ]
    absurd = CounterReading({"cycles": (9e12, 100.0)}, None, 100.0, 3.0, 0.0, 0.0, ())
    assert "is more than 2 processors can do" in signature_of(measured, absurd, C)[1][0]


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_instructions_are_those_that_valgrind_counts(tmp_path: Path) -> None:
    command = ["seq", "300000"]
    with Counters() as c:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        events = c.read().events
    if "instructions" not in events:
        pytest.skip(c.notes[0])
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp_path / 'out'}", *command]
    done = subprocess.run(tool, capture_output=True, text=True, check=True)
    truth = float(re.findall(r"Collected : (\d+)", done.stderr)[0])
    value, running = events["instructions"]
    assert running == 100.0 and value == pytest.approx(truth, rel=0.05)
