"""The posed meters: integrates each node's watts into its pm_counters files.

One process serves every node: `silicon TESTBED_DIR`. A node counts next to nothing at rest, or else
its active loads; a load is a file `<pid>.load` with `watts start end pid` in the node's `loads`
folder (monotonic seconds), and counts exactly from start to end, or until its process has gone.
Once it has begun, it counts a little ahead: a busy machine may let this process sleep while a step
ends and its energy is read. Before that it counts nothing: Slurm may not have looked yet.
The joules only grow and are written over the last ones, as they change with every tick; the watts
are replaced by rename: a reader never sees an empty file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from . import law

TICK_S = 0.05
AHEAD_S = 0.25
#: Joules on the meter at start: Slurm takes 0 for "no meter".
START_J = 1000.0


class Meter:
    """The energy and power counters of one posed node."""

    def __init__(self, root: Path, node: str) -> None:
        self.idle_w = law.node_type_of(node).idle_w
        self.loads = root / "nodes" / node / "loads"
        self.counters = root / "nodes" / node / "sys" / "cray" / "pm_counters"
        self.energy_j = START_J
        self.last = time.monotonic()
        self._energy = os.open(self.counters / "energy", os.O_WRONLY)
        self._counted: dict[Path, float] = {}
        self._shown_w = ""

    def tick(self) -> None:
        """Integrate from the last tick until now and show the result."""
        now = time.monotonic()
        rests = not self._counted
        power_w = self.idle_w
        for path in self.loads.iterdir():  # not glob, at 20 Hz on nodes that mostly rest
            if path.suffix != ".load" or not path.name[0].isdecimal():
                continue
            try:
                watts, start, end, pid = (float(word) for word in path.read_text().split())
            except (OSError, ValueError):
                path.unlink(missing_ok=True)
                continue
            counted = self._counted.get(path, start)
            until = min(end, now + AHEAD_S) if start <= now else start
            self.energy_j += watts * max(0.0, until - counted)
            self._counted[path] = max(counted, until)
            if end <= now or not Path(f"/proc/{int(pid)}").exists():
                path.unlink(missing_ok=True)
                self._counted.pop(path, None)
            else:
                power_w += watts
        if rests and not self._counted:
            self.energy_j += law.REST_W * (now - self.last)
        self.last = now
        os.pwrite(self._energy, b"%d J\n" % self.energy_j, 0)
        text = f"{round(power_w)} W\n"
        if self._shown_w != text:
            partial = self.counters / ".power"
            partial.write_text(text)
            partial.rename(self.counters / "power")
            self._shown_w = text


def main(argv: list[str]) -> int:
    """Serve all nodes of the testbed in directory `argv[0]` until killed."""
    root = Path(argv[0])
    meters = [Meter(root, node) for t in law.NODE_TYPES.values() for node in t.nodes]
    while (root / "nodes").is_dir():
        for meter in meters:
            meter.tick()
        time.sleep(TICK_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
