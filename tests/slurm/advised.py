"""A posed site that runs the advisor: inventory, policy, daemon and hooks on the testbed."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed import NODE_TYPES, Testbed, predict
from testbed.daemons import go_first

from advisor.core.protocol import call
from advisor.errors import AdvisorError
from advisor.store.reader import Reader

POLICY = """\
version: 1
mode: apply
estimated_node_types: accept
goal: min_energy
max_slowdown: 10%
min_saving: 3%
confidence: 90%
holdout: 0%
message: always
"""


class AdvisedSite:
    """The advisor on a testbed, in a folder of its own; commands run as root, the admin."""

    def __init__(
        self, testbed: Testbed, policy: str = POLICY, *, watch_s: float = 0, deadline: str = "250ms"
    ) -> None:
        self.testbed = testbed
        self.watch_s = watch_s
        self.deadline = deadline
        self.folder = Path(tempfile.mkdtemp(prefix="advised-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.store = self.folder / "advisor.db"
        self.socket = self.folder / "s"
        self.config = self.folder / "config"
        self.config.mkdir()
        self.policy = policy
        self.daemon: subprocess.Popen[bytes] | None = None

    def environment(self) -> dict[str, str]:
        """The environment of an admin on this site."""
        return {
            **self.testbed.env(),
            "ADVISOR_DB": str(self.store),
            "ADVISOR_CONFIG_DIR": str(self.config),
            "ADVISOR_SOCKET": str(self.socket),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_RUNTIME_DIR": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "xdg"),
        }

    def set_up(self) -> None:
        """Do what docs/admin.md says: inventory, site file, policy, daemon, hooks."""
        self.advisor("site", "discover")
        (self.config / "site.yaml").write_text(site_file())
        self.advisor("site", "apply")
        (self.config / "policy.yaml").write_text(self.policy)
        self.advisor("policy", "apply")
        self.start_daemon()
        self.install_hooks()

    def start_daemon(self) -> None:
        """Start `advisor serve` and wait until it answers."""
        with (self.folder / "serve.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "advisor",
                    "serve",
                    "--refresh",
                    "0.1",
                    "--watch",
                    f"{self.watch_s:g}",
                ],
                env=self.environment(),
                stderr=log,
            )
        go_first(self.daemon.pid)
        end = time.monotonic() + 20
        while not self._answers():
            if time.monotonic() > end or self.daemon.poll() is not None:
                raise RuntimeError((self.folder / "serve.log").read_text())
            time.sleep(0.05)
        if self.watch_s:
            self.watched()

    def _answers(self) -> bool:
        """Tell whether the daemon answers: its socket is there before it listens."""
        try:
            return bool(call(self.socket, {"op": "ping"}))
        except AdvisorError:
            return False

    def watched(self) -> dict[str, Any]:
        """Wait until the daemon has read the cluster's state afresh; return its status of that."""
        began = time.monotonic()
        while True:
            status: Any = call(self.socket, {"op": "status"})["availability"]
            age = status["age_s"]
            if status["limits_known"] and age is not None and age + 0.1 < time.monotonic() - began:
                found: dict[str, Any] = status
                return found
            if time.monotonic() > began + 30:
                raise AssertionError(f"{status}\n{(self.folder / 'serve.log').read_text()}")
            time.sleep(0.05)

    def refusals(self) -> int:
        """Return how often the daemon has begun to refuse a user who asked too much."""
        return (self.folder / "serve.log").read_text().count(" event=too-much ")

    def install_hooks(self) -> None:
        """Install both hooks where the testbed's Slurm looks for them."""
        where = ["--scheduler", "slurm", "--dir", str(self.testbed.conf_dir)]
        self.advisor(
            "hook", "install", *where, "--socket", self.socket, "--deadline", self.deadline
        )

    def tear_down(self) -> None:
        """Remove the hooks, stop the daemon, delete the folder."""
        where = ["--scheduler", "slurm", "--dir", str(self.testbed.conf_dir)]
        self.advisor("hook", "remove", *where, check=False)
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def advisor(
        self,
        *arguments: object,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run one advisor command; a failure shows what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *map(str, arguments)],
            env={**self.environment(), **(env or {})},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            command = " ".join(map(str, arguments))
            raise AssertionError(
                f"advisor {command}: {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def counted(self, application: str = "%", *, workers: int = 0) -> None:
        """Have an application's stored runs say what a sweep counts with variables unset.

        All threads are used by the ranks themselves, whether or not they knew their cores, or by
        `workers` processes of each rank.
        """
        runs = "workload_id IN (SELECT id FROM workloads WHERE application LIKE ?)"
        with sqlite3.connect(self.store) as store:
            places = "SELECT DISTINCT ranks_per_node, threads_per_node FROM observations WHERE "
            for ranks, threads in store.execute(places + runs, (application,)).fetchall():
                each = threads // ranks
                by_rank = [1] + [max(1, each // workers)] * workers if workers else [each]
                use = json.dumps({"unset": True, "threads": by_rank * ranks, "knows_cores": True})
                store.execute(
                    "UPDATE observations SET extra = json_set(extra, '$.thread_use', json(?))"
                    f" WHERE ranks_per_node = ? AND threads_per_node = ? AND {runs}",
                    (use, ranks, threads, application),
                )

    def import_law(self, kernel: str, node_type: str, scale: float = 1.0, **names: object) -> None:
        """Import what a kernel's law says of every fourth thread count and step, and fit it.

        ``names`` are options of ``advisor import``. Threads are counted as in a sweep.
        """
        posed, grid = NODE_TYPES[node_type], self.folder / f"{kernel}.csv"
        with grid.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["nodes", "ranks_per_node", "threads_per_node", "freq_khz", "time_s", "energy_j"]
            )
            for threads in range(4, posed.cores + 1, 4):
                for freq in posed.frequencies_khz:
                    time_s, watts = predict(kernel, node_type, 1, threads, freq, scale)
                    writer.writerow([1, 1, threads, freq, f"{time_s:.4f}", f"{time_s * watts:.2f}"])
        options = [f"--{name}={value}" for name, value in names.items()]
        self.advisor("import", grid, "--node-type", posed.feature, *options)
        self.counted()
        self.advisor("fit", names["application"])
        self.settle()

    def settle(self) -> None:
        """Wait until the daemon has taken over what was last written into the store."""
        with Reader(self.store) as reader:
            models = reader.model_stamps()  # what is forgotten was not the newest
            wanted = max(models, default=0), len(models), reader.policy().version
        end = time.monotonic() + 20
        while True:
            status = call(self.socket, {"op": "status"})
            if tuple(status[k] for k in ("newest_model", "models", "policy_version")) == wanted:
                if self.watch_s:
                    self.watched()
                return
            if time.monotonic() > end:
                raise AssertionError((self.folder / "serve.log").read_text())
            time.sleep(0.05)

    def json(self, *arguments: object) -> dict[str, Any]:
        """Run one advisor command with --json and return what it says."""
        data: dict[str, Any] = json.loads(self.advisor(*arguments, "--json").stdout)
        return data

    def script(self, name: str, body: str, *directives: str) -> Path:
        """Write a job script."""
        path = self.folder / name
        lines = ["#!/bin/bash", *(f"#SBATCH {d}" for d in directives), "", body, ""]
        path.write_text("\n".join(lines))
        return path


@contextmanager
def advised_site(
    testbed: Testbed, policy: str = POLICY, *, watch_s: float = 0, deadline: str = "250ms"
) -> Iterator[AdvisedSite]:
    """Set a site up on the shared cluster; afterwards nothing is left of it."""
    site = AdvisedSite(testbed, policy, watch_s=watch_s, deadline=deadline)
    try:
        site.set_up()
        yield site
    finally:
        site.tear_down()
        testbed.reset()


def site_file() -> str:
    """The hand-written site file: what Slurm does not tell, here the frequency steps."""
    lines = ["version: 1", "node_types:"]
    for posed in NODE_TYPES.values():
        steps = ", ".join(str(f) for f in posed.frequencies_khz)
        lines += [f"  {posed.feature}:", f"    freq_khz: [{steps}]"]
    return "\n".join(lines) + "\n"
