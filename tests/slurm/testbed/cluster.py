"""The testbed itself: a private Slurm cluster which starts, works and stops."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from . import daemons
from .client import Client
from .config import ACCOUNT, NOOP_HOOKS, Ports, claim_ports, write_configuration
from .daemons import TestbedError, spawn, wait_until
from .law import NODE_TYPES
from .posed import (
    build_cgroups,
    build_nodes,
    build_programs,
    processes_on_posed_nodes,
    remove_cgroups,
    slurmd_command,
    slurmd_environ,
)
from .requirements import program, requirements

NODES = tuple(node for node_type in NODE_TYPES.values() for node in node_type.nodes)
SLURMDS = tuple(f"slurmd.{node}" for node in NODES)
SERVICES = ("silicon", "install", "slurmdbd", "mariadbd", "munged")
DAEMONS = frozenset({*SLURMDS, *SERVICES, "slurmctld"} - {"install"})
PREFIX = "slurm-testbed-"
FOLDERS = (
    "etc",
    "run",
    "log",
    "state",
    "spool",
    "db",
    "nodes",
    "bin",
    "lib",
    "munge",
    "home",
    "tmp",
)
OWNED = ".slurm-testbed"
START_S = 120.0
"""Until when a daemon that still runs may answer, on a machine that does much else."""


class Testbed(Client):
    """A real Slurm cluster with posed nodes in one private directory.

    Use it as a context manager, or call `start` and `stop`; `stop` may be called at any time and
    any number of times, also by another process with the same directory. Without a directory it
    makes one of its own under the temporary folder and removes it when stopped. `lua_hooks`
    turns JobSubmitPlugins=lua and CliFilterPlugins=lua on, with hooks that do nothing until
    others are installed in `conf_dir`. `users` are existing unprivileged users which get the
    account `proj`, as root does. `cluster` is its ClusterName. `more_configuration` is written at
    the end of slurm.conf. Each node of the type bdw has so many `gpus`. `bound`: Slurm binds each
    job to cores of its own by a real cpuset (cgroups of version 1), which works for as many cores
    as this machine has.
    """

    __test__ = False

    def __init__(
        self,
        directory: Path | None = None,
        *,
        lua_hooks: bool = True,
        users: Sequence[str] = ("nobody", "daemon"),
        cluster: str = "testbed",
        more_configuration: str = "",
        gpus: int = 0,
        bound: bool = False,
    ) -> None:
        self._temporary = directory is None
        folder = Path(tempfile.mkdtemp(prefix=PREFIX)) if directory is None else directory
        super().__init__(folder.resolve(), users)
        self.lua_hooks = lua_hooks
        self.cluster = cluster
        self.more_configuration, self.gpus, self.bound = more_configuration, gpus, bound
        self._complaint = ""
        self._claim: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # Life

    def start(self) -> None:
        """Start every daemon and return when all nodes are idle; TestbedError when it cannot be.

        Leftovers of an earlier testbed in the same directory are stopped and removed first, and so
        are temporary testbeds whose owner has died; a directory with anything else is refused.
        """
        if reason := requirements():
            raise TestbedError(reason)
        if self._temporary:
            remove_orphans()
        self.stop(remove=False)
        root = self.directory
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()) and not (root / OWNED).exists():
            raise TestbedError(f"{root} is not empty and not a testbed's")
        root.chmod(0o755)
        marker = root / f"{OWNED}.new"
        marker.write_text(daemons.identity(os.getpid()) if self._temporary else "kept")
        marker.rename(root / OWNED)
        atexit.register(self.stop)
        try:
            self._start()
        except TestbedError as error:
            self.stop(remove=False)
            raise TestbedError(f"{error}; logs in {root}/log; {self._complaint}") from error
        except BaseException:
            self.stop(remove=False)
            raise

    def _start(self) -> None:
        root = self.directory
        for folder in FOLDERS:
            shutil.rmtree(root / folder, ignore_errors=True)
            (root / folder).mkdir()
        for private in ("munge", "db", "state"):
            (root / private).chmod(0o700)
        for user in ("root", *self.users):
            account = pwd.getpwnam(user)
            self.home(user).mkdir()
            os.chown(self.home(user), account.pw_uid, account.pw_gid)
        ports, self._claim = claim_ports()
        more = self.more_configuration
        write_configuration(
            root, ports, self.lua_hooks, self.cluster, more, self.gpus, bound=self.bound
        )
        if self.bound:
            build_cgroups(root)
        install = spawn(
            root,
            "install",
            [
                _need("mariadb-install-db"),
                f"--defaults-file={root}/etc/my.cnf",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
        )
        spawn(
            root,
            "munged",
            [
                _need("munged"),
                "--foreground",
                "--force",
                f"--socket={root}/run/munge.socket",
                f"--key-file={root}/munge/munge.key",
                f"--seed-file={root}/munge/seed",
                f"--pid-file={root}/run/munged.self.pid",
                f"--log-file={root}/log/munged.log",
                "--num-threads=2",
            ],
        )
        build_nodes(root)
        build_programs(root)
        spawn(root, "silicon", [f"{root}/bin/silicon", str(root)], timed=True)
        if install.wait() != 0:
            raise TestbedError("mariadb-install-db failed")
        self._start_accounting(ports)
        self._start_slurmctld("-i")
        for node_type in NODE_TYPES.values():
            for node in node_type.nodes:
                command = slurmd_command(root, node, _need("slurmd"))
                environ = self.env() | slurmd_environ(root, node_type)
                spawn(root, f"slurmd.{node}", command, environ, timed=True)
        self._started(self._all_idle, "all nodes idle")

    def _started(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a part of the start; TestbedError names the daemons that ended by themselves."""

        def holds() -> bool:
            if condition():
                return True
            for file in (self.directory / "run").glob("*.pid"):
                name = file.name.removesuffix(".pid")
                if name in DAEMONS and not daemons.alive(file):
                    log = (self.directory / "log" / f"{name}.out").read_text("utf-8", "replace")
                    lines = log.splitlines() or ["no output"]
                    # The reason need not be its last word: others of its threads still log.
                    reasons = [line for line in lines if "fatal:" in line or "error:" in line]
                    raise TestbedError(f"{name} ended: {(reasons or lines)[-1]}")
            return False

        wait_until(holds, START_S, what)

    def _start_accounting(self, ports: Ports) -> None:
        root = self.directory
        (root / "etc" / "init.sql").write_text(
            "CREATE USER slurm@127.0.0.1 IDENTIFIED BY 'testbed';\n"
            "GRANT ALL ON *.* TO slurm@127.0.0.1;\n"
        )
        mariadbd = [_need("mariadbd"), f"--defaults-file={root}/etc/my.cnf"]
        spawn(root, "mariadbd", [*mariadbd, f"--init-file={root}/etc/init.sql"])
        self._started((root / "run" / "mariadb.socket").exists, "mariadbd")
        self._started((root / "run" / "munge.socket").exists, "munged")
        spawn(root, "slurmdbd", [_need("slurmdbd"), "-D"], self.env())
        self._started(lambda: self._sacctmgr("add", "cluster", self.cluster), "slurmdbd")
        self._sacctmgr("add", "account", ACCOUNT, f"cluster={self.cluster}")
        names = ",".join(("root", *self.users))
        self._started(
            lambda: self._sacctmgr("add", "user", names, f"account={ACCOUNT}"), "accounts"
        )
        self._sacctmgr("modify", "user", "root", "set", f"defaultaccount={ACCOUNT}")

    def _sacctmgr(self, *args: str) -> bool:
        return self._succeeds("sacctmgr", "-i", *args)

    def _succeeds(self, *command: str) -> bool:
        done = self.run(command, check=False)
        self._complaint = done.stderr.strip()
        return done.returncode == 0

    def _start_slurmctld(self, *args: str) -> None:
        spawn(self.directory, "slurmctld", [_need("slurmctld"), "-D", *args], self.env())
        self._started(lambda: self._succeeds("scontrol", "ping"), "slurmctld")

    def _all_idle(self) -> bool:
        states = self.run(["sinfo", "-h", "-N", "-p", "batch", "-o", "%N %t"]).stdout.split("\n")
        return sum(line.endswith(" idle") for line in states) == len(NODES)

    def stop(self, remove: bool | None = None) -> None:
        """Stop every process of this testbed, jobs included; safe at any time, any number of times.

        Removes the directory if the testbed made it itself, or as `remove` says.
        """
        root = self.directory
        if not (root / OWNED).exists():
            if self._temporary and remove is None:
                shutil.rmtree(root, ignore_errors=True)
            return
        daemons.stop(root, ["slurmctld"], grace_s=0.0)
        daemons.terminate(processes_on_posed_nodes(root), grace_s=0.0)
        daemons.stop(root, [*SLURMDS, *SERVICES], grace_s=0.0)
        daemons.terminate(processes_on_posed_nodes(root), grace_s=0.0)
        remove_cgroups(root)
        atexit.unregister(self.stop)
        if self._claim is not None:
            self._claim.close()
        if remove if remove is not None else self._temporary:
            shutil.rmtree(root, ignore_errors=True)

    def restart_slurmctld(self) -> None:
        """Stop the controller in order and start it again with its state; jobs go on."""
        daemons.stop(self.directory, ["slurmctld"], grace_s=20.0)
        self._start_slurmctld()
        wait_until(self._all_known, START_S, "nodes known again")

    def _all_known(self) -> bool:
        states = self.run(["sinfo", "-h", "-N", "-p", "batch", "-o", "%t"]).stdout.split()
        return len(states) == len(NODES) and not any("*" in s or "unk" in s for s in states)

    def processes(self) -> list[int]:
        """Every process of this testbed that lives now: daemons, posed nodes and their jobs."""
        files = (self.directory / "run").glob("*.pid")
        found = {pid for file in files if (pid := daemons.alive(file)) is not None}
        return sorted(found | set(processes_on_posed_nodes(self.directory)))

    def install_hook(self, name: str, text: str | None) -> None:
        """Write a Lua hook beside slurm.conf; None puts the one that does nothing back."""
        target = self.conf_dir / name
        partial = target.with_suffix(".new")
        partial.write_text(NOOP_HOOKS[name] if text is None else text)
        # slurmctld reads a hook again only when it is newer than the one before
        later = int(max(time.time(), target.stat().st_mtime if target.exists() else 0)) + 1
        os.utime(partial, (later, later))
        partial.replace(target)

    def reset(self) -> None:
        """Cancel every job, make the hooks do nothing again, and wait until all nodes are idle."""
        if self.lua_hooks:
            for name in NOOP_HOOKS:
                self.install_hook(name, None)
        for breaker in self.directory.glob("home/*/advisor-breaker"):
            breaker.unlink()
        self.empty()

    def empty(self) -> None:
        """Cancel every job and wait until all nodes are idle; installed hooks stay."""
        for state in ("PENDING", "RUNNING"):  # of several --state, scancel heeds the last
            self.run(["scancel", "--quiet", f"--state={state}"])
        wait_until(self._all_idle, START_S, "all nodes idle")


def remove_orphans() -> None:
    """Stop and remove temporary testbeds whose owning process was killed."""
    for marker in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNED}"):
        try:
            owner = marker.read_text()
            orphaned = marker.stat().st_uid == 0 and owner != "kept" and not daemons.is_alive(owner)
        except OSError:
            continue
        if orphaned:
            Testbed(marker.parent).stop(remove=True)


def _need(name: str) -> str:
    path = program(name)
    if path is None:
        raise TestbedError(f"{name} is not installed")
    return path
