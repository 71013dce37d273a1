"""A cluster with the hooks on, and a real daemon, for tests of what breaks around them."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from testbed import Submitted, Testbed
from testbed.daemons import go_first, wait_until

from advisor.core.decision import Decision
from advisor.core.protocol import call
from advisor.core.stamp import read_stamp
from advisor.paths import share
from advisor.schedulers.slurm.hooks import read_hooks

ROOT = share("config").parent
PLAIN = "srun true\n"
ASKED = {"Features": "(null)", "NumNodes": "1-1", "NumTasks": "1", "CPUs/Task": "1"}


class Log:
    """The system log's socket: keeps what the filter sends there."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o666)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            self.lines.append(self._socket.recv(65536).decode())

    def wait(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.lines), 10, f"{text!r} in the log")


class Cluster:
    """A cluster with the hooks on and a short way to submit a job that must be accepted."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed = testbed
        self.folder = folder
        self.socket = folder / "s"
        self.log = Log(folder / "log")
        self.runtime = self.fresh_runtime()

    def fresh_runtime(self) -> Path:
        """Give submissions a folder of their own: no breaker is open there."""
        self.runtime = Path(tempfile.mkdtemp(dir=self.folder))
        self.runtime.chmod(0o755)
        return self.runtime

    @property
    def breaker(self) -> Path:
        return self.runtime / "advisor-breaker"

    def install(self) -> None:
        """Install the hooks, and let them log where the test reads."""
        command = ["hook", "install", "--dir", str(self.testbed.conf_dir), "--retry", "600"]
        command += ["--socket", str(self.socket)]
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for path in (self.testbed.conf_dir / "advisor").glob("*/filter-*.luac"):
            path.unlink()  # has its own copy of config.lua
        for path in (self.testbed.conf_dir / "advisor").glob("*/config.lua"):
            path.write_text(path.read_text().replace("/dev/log", str(self.folder / "log")))

    @property
    def modules(self) -> Path:
        folder = self.testbed.conf_dir
        return folder / "advisor" / read_hooks(folder)[0].folder_id

    def submit(self, *args: str, **other: Any) -> Submitted:
        env = {"XDG_RUNTIME_DIR": str(self.runtime), **other.pop("env", {})}
        if not any(a.startswith("--wrap") for a in args):
            other.setdefault("script", PLAIN)
        done = self.testbed.sbatch("--hold", *args, env=env, **other)
        assert done.job_id, done.stderr
        return done

    def job(self, *args: str, **other: Any) -> dict[str, str]:
        """Submit a job and return what it asks for."""
        done = self.submit(*args, **other)
        assert done.stderr == ""
        return self.testbed.scontrol_job(done.job_id)

    def stamp(self) -> Decision | None:
        """Submit a job and return what the real daemon stamped it with."""
        return read_stamp(self.testbed.scontrol_job(self.submit().job_id)["AdminComment"])

    def unchanged(self, *args: str, **other: Any) -> None:
        """Submit a job and assert that it asks for what its user wrote."""
        job = self.job("-N1", "-n1", *args, **other)
        assert {key: job[key] for key in ASKED} == ASKED
        assert "AdminComment" not in job


class Serving:
    """The real daemon as a process of its own."""

    def __init__(self, cluster: Cluster, store: Path, *arguments: str) -> None:
        self.log = cluster.folder / "serve.log"
        self.socket = cluster.socket
        command = ["serve", "--socket", str(cluster.socket), "--db", str(store), *arguments]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "advisor", *command], cwd=ROOT, stderr=output
            )
        go_first(self.process.pid)
        wait_until(lambda: "event=serving" in self.log.read_text(), 30, "the daemon")

    def status(self) -> dict[str, Any]:
        return call(self.socket, {"v": 1, "op": "status"})

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
