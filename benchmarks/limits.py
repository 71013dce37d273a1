"""What one user's attack costs the others: their answers' median and 99th percentile.

Starts the real daemon with 400 descriptors. As one user it asks for a known job every 5 ms, a new
connection each, as sbatch does; as another it attacks meanwhile, in each of the ways below. Prints
the times, how many of the asked jobs were answered, the daemon's memory and its lines of log, and
how much of a second the daemon works: what is left of it nobody waits for, however busy the machine
is otherwise.

Those times hold the attacker's own work, too, which takes a processor from everybody. What the
daemon itself lets others wait are the stretches that its loop works without looking who is there:
the 99th percentile of what a line that comes at any moment waits for them (``loop p99``), and the
longest one, both in the processor's time.

The first row is the machine: every processor busy, what a moment waits for one that the system, or
under a virtual machine its host, has taken away. What others wait beyond it is ours.
Needs root, to be two users.

    python benchmarks/limits.py [--seconds 3] [--json] [ATTACK ...]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from decide import fill, request

VICTIM, ATTACKER = 1, 65534
DESCRIPTORS = 400
JOB = json.loads(request(0))


TRACED = """
import asyncio, atexit, json, selectors, sys, time
stretches, begun = [], [None]

class Traced(selectors.DefaultSelector):
    def select(self, timeout=None):
        if begun[0] is not None:
            stretches.append((time.monotonic(), time.thread_time() - begun[0]))
        try:
            return super().select(timeout)
        finally:
            begun[0] = time.thread_time()

def write():
    with open(traced_to, "w") as file:
        json.dump(stretches, file)

traced_to = sys.argv.pop(1)
selectors.DefaultSelector = Traced
atexit.register(write)
from advisor.cli import main
sys.exit(main())
"""
"""Runs the daemon and notes each stretch of its loop's work: when it ended, and how long it was."""


def connect(path: str) -> socket.socket:
    """Connect as the filter does: where many wait to be accepted, the kernel lets it wait, too."""
    connection = socket.socket(socket.AF_UNIX)
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 5, 0))
    connection.connect(path)
    return connection


def ask(path: str, line: bytes) -> bytes:
    """Send a line on a new connection, return the answer; b"" where there is none."""
    try:
        with connect(path) as connection:
            connection.sendall(line)
            return connection.makefile("rb").readline()
    except OSError:
        return b""


def job(**changes: object) -> bytes:
    return json.dumps({**JOB, **changes}).encode() + b"\n"


def again(line: bytes) -> Callable[[str], None]:
    """Return an attack that asks the same over and over."""

    def attack(path: str) -> None:
        while True:
            ask(path, line)

    return attack


def script(text: str) -> Callable[[str], None]:
    return again(job(script=text))


def hold_idle(path: str) -> None:
    held = []
    while True:
        try:
            held.append(connect(path))
        except OSError:
            held = held[-200:]


def hold_halves(path: str) -> None:
    held = []
    while True:
        try:
            held.append(connect(path))
            held[-1].sendall(b"x" * 900_000)
        except OSError:
            held = held[-200:]


def storm(path: str) -> None:
    while True:
        try:
            connect(path).close()
        except OSError:
            continue


def never_read(path: str) -> None:
    while True:
        try:
            connection = connect(path)
            while True:
                connection.sendall(job(op="explain") * 50)
        except OSError:
            continue


def drip(path: str) -> None:
    """Send a byte at a time on many connections."""
    held: list[socket.socket] = []
    while True:
        try:
            held.append(connect(path))
            for connection in held[-32:]:
                connection.send(b" ")
        except OSError:
            held = held[-31:]


def distinct(path: str) -> None:
    for number in itertools.count():
        ask(path, job(script=f"srun ./app0 {number}\n" + "#" * 4000))


def limits_of_time(path: str) -> None:
    for number in itertools.count():
        options = {**JOB["options"], "time": str(60 + number)}
        ask(path, job(options=options, script="srun ./app0 input.dat\n"))


def observe(path: str) -> None:
    configuration = {
        "node_type": "bdw",
        "nodes": 1,
        "ranks_per_node": 1,
        "threads_per_node": 4,
        "freq_khz": 0,
    }
    run = {"configuration": configuration, "time_s": 1.0}
    line = {"v": 1, "op": "observe", "application": "a", "workload": "w"}
    again(json.dumps({**line, "observations": [run] * 1000}).encode() + b"\n")(path)


def bad_lines(path: str) -> None:
    again(b"\xff{" * 100 + b"\n")(path)


ATTACKS: dict[str, Callable[[str], None]] = {
    "same job": again(job()),
    "distinct scripts": distinct,
    "distinct time limits": limits_of_time,
    "explain": again(job(op="explain")),
    "idle connections": hold_idle,
    "half lines of 900 kB": hold_halves,
    "connect and hang up": storm,
    "a byte at a time": drip,
    "answers never read": never_read,
    "lines that are no JSON": bad_lines,
    "JSON in JSON in JSON": again(b"[" * 900_000 + b"\n"),
    "300,000 empty lists": again(job(x=[[]] * 300_000)),
    "a;a;a; of 900 kB": script("a;" * 450_000),
    "a;a;a; of 60 kB": script("a;" * 30_000),
    "doubling variables": script(
        "A0=aaaaaaaaaaaaaaaa\n"
        + "".join(f"A{i + 1}={f'$A{i}' * 10}\n" for i in range(10))
        + "srun $A10\n"
    ),
    "a variable in itself": script("export " + "A=$A$A " * 8000),
    "words with two readings": script("x " + "$aa" * 20_000 + "'"),
    "quotes in parentheses": script('"$(' * 20_000),
    "nested brackets": script("(" * 60_000),
    "wrappers of wrappers": script("nice " * 12_000 + "x"),
    "lists of cores": script("x " + "OMP_PLACES=" * 5000),
    "here-documents": script("cat " + " ".join(f"<<A{i}" for i in range(9000)) + "\n"),
    "#ADVISOR of 100 kB": script("#ADVISOR " + "a=b " * 25_000),
    "200,000 arguments": again(job(type="srun", script=None, argv=["a"] * 200_000)),
    "a list of 400,000 partitions": again(
        job(options={**JOB["options"], "partition": "a," * 400_000})
    ),
    "40,000 options": again(job(options={f"a{i}": "1" for i in range(40_000)})),
    "choices of 64 kB": again(
        job(choices=json.dumps({"workloads": {f"a{i}/b": {"goal": "edp"} for i in range(1900)}}))
    ),
    "observations": observe,
}


def as_user(uid: int, work: Callable[[], None]) -> int:
    """Do something in a process of another user; return its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        work()
    finally:
        os._exit(0)


def ask_steadily(path: str, seconds: float, results: Path) -> None:
    """Ask every 5 ms; write the times in ms, and how many were answered with a decision."""
    line, times, answered = job(), [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        answered += b'"decision"' in ask(path, line)
        times.append((time.perf_counter() - start) * 1e3)
        time.sleep(0.005)
    results.write_text(json.dumps([sorted(times), answered]))


def as_its_unit() -> None:
    """Make the daemon as nice as its systemd unit does, and give it few descriptors."""
    os.nice(-5)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def processor_s(pid: int) -> float:
    """Return the processor's time that a process has taken, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loop_ms(stretches: list[float], seconds: float) -> tuple[float, float]:
    """Return what 99 % of the moments wait for the loop at most, and the longest stretch, in ms.

    A moment within a stretch waits for the rest of it; one between them does not wait.
    """
    lo, hi = 0.0, max(stretches, default=0.0)
    longest = hi
    while hi - lo > 1e-6:
        middle = (lo + hi) / 2
        late = sum(s - middle for s in stretches if s > middle)
        lo, hi = (middle, hi) if late > 0.01 * seconds else (lo, middle)
    return hi * 1e3, longest * 1e3


def stolen(folder: Path, seconds: float) -> dict[str, Any]:
    """Return the machine's row: what busy processes wait that nobody of us keeps waiting."""

    def spin(processor: int) -> None:
        os.sched_setaffinity(0, {processor})
        gaps, last = [], time.perf_counter()
        end = last + seconds
        while last < end:
            now = time.perf_counter()
            gaps += [now - last] if now - last > 1e-4 else []
            last = now
        (folder / f"gaps{processor}").write_text(json.dumps(gaps))

    spinning = [as_user(0, partial(spin, number)) for number in os.sched_getaffinity(0)]
    for pid in spinning:
        os.waitpid(pid, 0)
    waits = [loop_ms(json.loads(file.read_text()), seconds) for file in folder.glob("gaps*")]
    return {
        "attack": "the machine alone",
        "p99_ms": round(max(p99 for p99, _ in waits), 3),
        "max_ms": round(max(longest for _, longest in waits), 3),
    }


def measure(folder: Path, name: str | None, seconds: float) -> dict[str, Any]:
    """Return one row: a fresh daemon, an attack (None: nobody) and somebody who asks."""
    path, results = str(folder / "s"), folder / "open" / "times"
    results.unlink(missing_ok=True)
    log = folder / "log"
    with log.open("w") as stderr:
        daemon = subprocess.Popen(
            [
                sys.executable,
                "-c",
                TRACED,
                str(folder / "stretches"),
                "serve",
                "--socket",
                path,
                "--watch",
                "0",
                "--db",
                str(folder / "a.db"),
            ],
            stderr=stderr,
            cwd=Path(__file__).resolve().parent.parent,
            preexec_fn=as_its_unit,
        )
    attackers: list[int] = []
    try:
        while b"pong" not in ask(path, b'{"v": 1, "op": "ping"}\n'):
            time.sleep(0.05)
        if name is not None:
            attackers = [as_user(ATTACKER, lambda: ATTACKS[name](path))]
            time.sleep(0.3)
        worked, began = processor_s(daemon.pid), time.monotonic()
        steady = as_user(VICTIM, lambda: ask_steadily(path, seconds, results))
        os.waitpid(steady, 0)
        ended = time.monotonic()
        works = (processor_s(daemon.pid) - worked) / (time.monotonic() - began)
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        memory = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    finally:
        for pid in attackers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        daemon.terminate()
        daemon.wait()
    times, answered = json.loads(results.read_text())
    stretches = json.loads((folder / "stretches").read_text())
    loop_p99, loop_max = loop_ms([s for at, s in stretches if began < at < ended], ended - began)
    return {
        "attack": name or "nobody attacks",
        "asked": len(times),
        "answered": answered,
        "p50_ms": round(statistics.median(times), 3),
        "p99_ms": round(times[int(len(times) * 0.99)], 3),
        "max_ms": round(times[-1], 3),
        "loop_p99_ms": round(loop_p99, 3),
        "loop_max_ms": round(loop_max, 3),
        "works_ms_a_s": round(1e3 * works),
        "memory_mb": memory,
        "log_lines": sum("event=decision" not in line for line in log.read_text().splitlines()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS])
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("this benchmark needs root: one user cannot be two")
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="limits-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "open").mkdir(mode=0o777)
        (folder / "open").chmod(0o777)
        fill(folder / "a.db", 3)
        if not args.json:
            print(
                f"{'attack':30} answered  p50 ms  p99 ms  max ms  loop p99  loop max  works ms/s"
                "  memory MB  log lines"
            )
        rows.append(stolen(folder, args.seconds))
        if not args.json:
            print("{attack:30}                   {p99_ms:7.2f} {max_ms:7.2f}".format(**rows[0]))
        for attack in [None, *(args.attacks or ATTACKS)]:
            row = measure(folder, attack, args.seconds)
            rows.append(row)
            if not args.json:
                form = (
                    "{attack:30} {answered:4}/{asked:4} {p50_ms:7.2f} {p99_ms:7.2f} {max_ms:7.2f} "
                    "{loop_p99_ms:9.2f} {loop_max_ms:9.2f} {works_ms_a_s:11} {memory_mb:10} "
                    "{log_lines:10}"
                )
                print(form.format(**row), flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
