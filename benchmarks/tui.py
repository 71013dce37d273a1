"""How long `advisor tui` takes from a cold process to its first screen, small store and large.

``python benchmarks/tui.py [--applications N] [--repeats N]`` builds stores with 10 and with N
applications (a model of 121 options each, a site, jobs and their outcomes), starts the real program
on a pseudo-terminal of 80 by 24, and waits until the first rows of the list, states and promised
savings included, are on the screen. For comparison: Python alone, and an empty Textual program.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option, pack_options
from advisor.store import rows
from advisor.store.writer import Writer

SMALL = 10
STEPS = tuple(range(1_200_000, 2_300_000, 100_000))
NODES = NodeType(
    "hsw", feature="haswell", partitions=("batch",), sockets=2, cores=24, freq_khz=STEPS,
    default_freq_khz=STEPS[-1], nodes=tuple(f"h{i}" for i in range(64)), default_partition="batch",
)  # fmt: skip
BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("promised")
Bare().run()
"""


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
                c, time_s, time_s * 0.99, time_s * 1.01, energy_j, energy_j * 0.99,
                energy_j * 1.01, seen, seen, n % 4 == 0, n % 8 == 0,
            )
        )  # fmt: skip
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


def until_painted(argv: list[str], wanted: bytes, env: dict[str, str]) -> float:
    """Return the seconds from starting a program to its writing ``wanted`` on its terminal."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    begin = time.perf_counter()
    child = subprocess.Popen(
        argv, stdin=follower, stdout=follower, stderr=follower, env=env, start_new_session=True
    )
    os.close(follower)
    seen, taken = b"", float("nan")
    while time.perf_counter() - begin < 30:
        if select.select([leader], [], [], 0.5)[0]:
            seen += os.read(leader, 1 << 16)
            if wanted in seen:
                taken = time.perf_counter() - begin
                break
    child.kill()
    child.wait()
    os.close(leader)
    if taken != taken:
        raise SystemExit(f"{argv} never painted {wanted!r}: {seen[-2000:]!r}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--applications", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {
            **os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor",
            "XDG_CONFIG_HOME": name, "XDG_STATE_HOME": name, "ADVISOR_SOCKET": f"{name}/none",
        }  # fmt: skip
        print(f"seconds from a cold process to its first screen, {args.repeats} starts each")
        print(f"{'':34}{'median':>8}{'least':>8}{'most':>8}")
        programs = {"an empty Textual program": ([sys.executable, "-c", BARE], b"promised")}
        for count in (SMALL, args.applications):
            store = folder / f"{count}.db"
            build(store, count)
            argv = [sys.executable, "-m", "advisor", "tui", "--db", str(store)]
            programs[f"advisor tui, {count} applications"] = argv, b"% less"
        for title, (argv, wanted) in programs.items():
            taken = sorted(until_painted(argv, wanted, env) for _ in range(args.repeats))
            middle = statistics.median(taken)
            print(f"{title:34}{middle:8.3f}{taken[0]:8.3f}{taken[-1]:8.3f}")


if __name__ == "__main__":
    main()
