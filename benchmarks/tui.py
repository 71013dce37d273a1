"""What `advisor tui` costs: processor time up to its first screen, and of every key.

``python benchmarks/tui.py [--applications N ...] [--repeats N] [--size COLUMNSxLINES] [--no-keys]``
starts the real program on a pseudo-terminal, with stores of N applications (a model of 121 options
each, a site, the decisions of 100 jobs) and with ``--demo``, and waits until the first rows of the
list are on the screen, and then until their promised savings are: on a first start, and on one
after it, which remembers them where nothing was written meanwhile. An empty Textual program,
started in turns with them, says what of it is Textual's own; so does the key that shows an empty
screen there. Times are processor seconds of all threads of the program, medians over the starts:
beside other work a clock on the wall says little.

Of a key three times are printed: until the first change of the screen that can be seen, until the
last one, and until the program rests, what it does beside the screen included. The first is what
somebody waits for; nobody should wait longer than 50 ms.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path
from typing import NamedTuple

from advisor_tui.demo_site import PROGRAMS

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option, pack_options
from advisor.schedulers.submission import identity
from advisor.store import rows
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.views.preview import AskingJob, Person, preview, site_for_preview

STEPS = tuple(range(1_200_000, 2_300_000, 100_000))
NODES = NodeType(
    "hsw",
    feature="haswell",
    partitions=("batch",),
    sockets=2,
    cores=24,
    freq_khz=STEPS,
    default_freq_khz=STEPS[-1],
    nodes=tuple(f"h{i}" for i in range(64)),
    default_partition="batch",
)
BARE = """
from textual.app import App
from textual.screen import Screen
from textual.widgets import Static
class Empty(Screen):
    BINDINGS = [("escape", "app.pop_screen", "back")]
    def compose(self):
        yield Static("pushed")
class Bare(App):
    BINDINGS = [("p", "push", "push"), ("x", "nothing", "nothing")]
    def compose(self):
        yield Static("promised")
    def action_push(self):
        self.push_screen(Empty())
    def action_nothing(self):
        pass
Bare().run()
"""
PROMISED = b"% less"
KEYS: tuple[tuple[str, str], ...] = (
    ("down", "\x1b[B"),
    ("s, sort", "s"),
    ("? help", "?"),
    ("esc, from help", "\x1b"),
    ("enter, options", "\r"),
    ("right", "\x1b[C"),
    ("v, front/all", "v"),
    ("x, axes", "x"),
    ("+ zoom", "+"),
    ("c, choose", "c"),
    ("down in choose", "\x1b[B"),
    ("esc, from choose", "\x1b"),
    ("esc, from options", "\x1b"),
    ("enter, options again", "\r"),
    ("esc, from options again", "\x1b"),
    ("2 Jobs", "2"),
    ("3 Training", "3"),
    ("4 Policy", "4"),
    ("w, which rule", "w"),
    ("esc, leave field", "\x1b"),
    ("i, what if", "i"),
    ("right in what if", "\x1b[C"),
    ("1 Applications", "1"),
    ("4 Policy again", "4"),
)
"""What is pressed one after the other, as named in the table."""
BARE_KEYS: tuple[tuple[str, str], ...] = (
    ("a key without an action", "x"),
    ("an empty screen", "p"),
    ("esc, back", "\x1b"),
)


def options(slant: float) -> list[Option]:
    """Return a memory-bound program's options: fewer cores and lower clocks cost little time."""
    made = []
    for n in range(121):
        threads, khz = 4 + 2 * (n % 11), STEPS[n // 11]
        f = khz / STEPS[-1]
        time_s = 100 * slant * ((0.5 * 24 / threads) ** 4 + (1.09 - 0.09 * f) ** 4) ** 0.25 / 1.03
        energy_j = time_s * (90 + threads * (2 + 5 * f**3))
        c = Configuration("hsw", 1, 1, threads, khz)
        seen = n % 10 == 0
        made.append(
            Option(
                c,
                time_s,
                time_s * 0.99,
                time_s * 1.01,
                energy_j,
                energy_j * 0.99,
                energy_j * 1.01,
                seen,
                seen,
                n % 4 == 0,
                n % 8 == 0,
            )
        )
    return made


def build(path: Path, applications: int) -> None:
    """Fill a store in a few transactions, as years of work would have."""
    blobs = [pack_options(options(1 + k / 50)) for k in range(20)]
    run = Observation(Configuration("hsw", 1, 1, 24, STEPS[-1]), 100.0, 2.3e4, scope="all")
    with Writer(path) as store:
        store.save_node_types([NODES], source="benchmark")
        base = {"mode": "apply", "goal": "min_energy", "max_slowdown": 0.1}
        store.apply_config(
            "policy", path="p", text="p", compiled={"base": base, "rules": []}, by="benchmark"
        )
        with store.transaction() as db:
            at = rows.now()
            columns = list(rows.observation_row(1, run, at))
            marks = ", ".join("?" * len(columns))
            for n in range(applications):
                workload = store.workload_id(db, f"app{n:05}", "w0")
                db.execute(
                    "INSERT INTO models (workload_id, node_type, scope, owner, version, name,"
                    " state, energy_quality, n_train, stats, created_at, updated_at, options)"
                    " VALUES (?, 'hsw', 'all', '', 1, 'bspline', 'fitted', 'measured', 12,"
                    " '{}', ?, ?, ?)",
                    (workload, at, at, blobs[n % len(blobs)]),
                )
                db.executemany(
                    f"INSERT INTO observations ({', '.join(columns)}) VALUES ({marks})",
                    [list(rows.observation_row(workload, run, at).values())] * 12,
                )
        decided(store, path)


def decided(store: Writer, path: Path) -> None:
    """Add the decisions of 100 jobs of whoever measures, as the daemon makes them."""
    person = Person(identity(None)[1])
    with Reader(path) as reader:
        models = reader.find_models("app00000", "w0")
        snapshot = site_for_preview(reader)
    snapshot.take(models)
    base = Configuration("hsw", 1, 1, 24, STEPS[-1])
    decision = preview(snapshot, AskingJob("app00000", "w0", base, person))
    if decision is None:
        raise SystemExit("the benchmark's own node type is not known")
    with store.batch():
        for n in range(100):
            store.save_decision(replace(decision, id=f"{n:016x}", job_id=str(1000 + n)))


UNSEEN = re.compile(rb"\x1b\][^\x07]*\x07|\x1b\[[0-9;?]*[A-Za-z]")
"""What the terminal does not show: the pointer's shape, modes, colours, places."""


class Answer(NamedTuple):
    """Processor seconds from a key to the first and to the last paint, and until all is quiet."""

    first: float
    last: float
    whole: float


class Terminal:
    """A program on a pseudo-terminal, and the processor time it has taken."""

    def __init__(self, argv: list[str], env: dict[str, str], size: tuple[int, int]) -> None:
        self._leader, follower = pty.openpty()
        ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self._child = subprocess.Popen(
            argv, stdin=follower, stdout=follower, stderr=follower, env=env, start_new_session=True
        )
        os.close(follower)
        self._seen = b""

    def cpu_s(self) -> float:
        """Return the seconds that all threads of the program have taken so far."""
        return time.clock_gettime((~self._child.pid << 3) | 2)  # clock_getcpuclockid(3) of Linux

    def _read(self, wait_s: float) -> bool:
        """Take in what is painted within some seconds; False for nothing that can be seen."""
        if not select.select([self._leader], [], [], wait_s)[0]:
            return False
        painted = os.read(self._leader, 1 << 16)
        self._seen += painted
        return bool(UNSEEN.sub(b"", painted).strip())

    def until(self, wanted: bytes) -> float:
        """Return the processor seconds from the start to ``wanted`` being painted."""
        end = time.monotonic() + 60
        while wanted not in self._seen:
            if time.monotonic() > end:
                raise SystemExit(f"never painted {wanted!r}: {self._seen[-2000:]!r}")
            self._read(0.5)
        return self.cpu_s()

    def rest(self) -> None:
        """Wait until the program has nothing to do: a fifth of a second almost without work."""
        quiet = 0
        while quiet < 4:
            before, end = self.cpu_s(), time.monotonic() + 0.05
            while (left := end - time.monotonic()) > 0:
                self._read(left)
            quiet = quiet + 1 if self.cpu_s() - before < 0.002 else 0

    def press(self, key: str) -> Answer:
        """Return the processor seconds from a key to its first and last paint, and until rest."""
        self.rest()
        before = self.cpu_s()
        os.write(self._leader, key.encode())
        painted: list[float] = []
        quiet, end = 0, time.monotonic() + (0.2 if key == "\x1b" else 0.0)
        while quiet < 4 or time.monotonic() < end:  # Textual waits for what may follow an escape
            was, until = self.cpu_s(), time.monotonic() + 0.05
            while (left := until - time.monotonic()) > 0:
                if self._read(left):
                    painted.append(self.cpu_s() - before)
            quiet = quiet + 1 if self.cpu_s() - was < 0.002 else 0
        whole = self.cpu_s() - before
        return Answer(painted[0], painted[-1], whole) if painted else Answer(0.0, 0.0, whole)

    def end(self) -> None:
        """End the program."""
        self._child.kill()
        self._child.wait()
        os.close(self._leader)


def line(title: str, taken: list[float], unit: float, against: float = 0.0) -> None:
    """Print median, least and most, and how many times ``against`` the median is."""
    figures = (statistics.median(taken), min(taken), max(taken))
    times = f"{figures[0] / against:8.2f} x" if against else ""
    print(f"{title:34}{''.join(f'{value * unit:9.1f}' for value in figures)}{times}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--applications", type=int, nargs="*", default=[10, 100])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--size", default="80x24")
    parser.add_argument("--no-keys", action="store_true")
    args = parser.parse_args()
    width, height = (int(part) for part in args.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONDONTWRITEBYTECODE": "",
            "LC_ALL": "C.UTF-8",
            "XDG_CONFIG_HOME": name,
            "ADVISOR_SOCKET": f"{name}/none",
        }
        tui = [sys.executable, "-m", "advisor", "tui"]
        first = min(program.name for program in PROGRAMS).encode()
        bare = "an empty Textual program"
        programs = {bare: ([sys.executable, "-c", BARE], b"promised", b"promised", BARE_KEYS)}
        for count in args.applications:
            build(folder / f"{count}.db", count)
            argv = [*tui, "--db", str(folder / f"{count}.db")]
            programs[f"advisor tui, {count} applications"] = argv, b"app00000", PROMISED, KEYS
        programs["advisor tui --demo"] = [*tui, "--demo"], first, PROMISED, KEYS
        starts: dict[str, list[float]] = {title: [] for title in programs}
        promised: dict[str, list[float]] = {title: [] for title in programs}
        again: dict[str, list[float]] = {title: [] for title in programs}
        keys: dict[str, dict[str, list[Answer]]] = {title: {} for title in programs}
        for turn in range(args.repeats):
            for number, (title, (argv, row, saving, pressed)) in enumerate(programs.items()):
                own_env = {**env, "XDG_STATE_HOME": f"{name}/{turn}-{number}"}
                terminal = Terminal(argv, own_env, (width, height))
                starts[title].append(terminal.until(row))
                promised[title].append(terminal.until(saving))
                terminal.end()
                terminal = Terminal(argv, own_env, (width, height))
                again[title].append(terminal.until(saving))
                if not args.no_keys:
                    time.sleep(1.5)  # it imports its other pages meanwhile
                    for does, key in pressed:
                        keys[title].setdefault(does, []).append(terminal.press(key))
                terminal.end()
        empty = statistics.median(starts[bare])
        for what, times in {
            "the first screen": starts,
            "the promised savings": promised,
            "the promised savings, the second time": again,
        }.items():
            print(f"milliseconds of processor time up to {what}, {args.repeats} starts each")
            print(f"{'':34}{'median':>9}{'least':>9}{'most':>9}")
            for title, taken in times.items():
                line(title, taken, 1000, empty)
        for title, taken_by in keys.items():
            if taken_by:
                print(f"\nmilliseconds of processor time by key: {title}")
                print(f"{'':34}{'first':>9}{'last':>9}{'whole':>9}{'slowest first':>15}")
            for does, answers in taken_by.items():
                medians = [1000 * statistics.median(part) for part in zip(*answers, strict=True)]
                most = 1000 * max(answer.first for answer in answers)
                print(f"{does:34}{''.join(f'{value:9.1f}' for value in medians)}{most:9.1f}")


if __name__ == "__main__":
    main()
