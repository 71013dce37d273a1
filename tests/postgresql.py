"""A private PostgreSQL server for tests, where Debian's package is installed.

It listens on a socket in a folder of its own alone, as an unprivileged user, and is gone with the
tests. What a kill does to its files is real: the kernel has what a killed process wrote.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.database import DatabaseAddress
from tests.waiting import wait_for


def programs() -> Path | None:
    """Return the folder of the newest PostgreSQL's programs, None where there is none."""
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(folders, key=lambda p: int(p.parts[-3])) or [Path(shutil.which("initdb") or "")]
    return found[-1].parent if found[-1].is_file() else None


def why_none() -> str:
    """Return why no server can be started here, "" where one can."""
    if programs() is None:
        return "PostgreSQL is not installed here (make test-packages, as root on Debian)"
    try:
        import psycopg
    except ImportError:
        return "psycopg is not installed here: hpc-advisor[postgresql]"
    assert psycopg
    return ""


class Server:
    """A server and its databases, ``DatabaseAddress`` each."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = folder
        self._durable = durable
        self.listen, self.port = "", 5432
        self._count = 0
        root = os.geteuid() == 0
        self._user = pwd.getpwnam("nobody") if root else pwd.getpwuid(os.geteuid())
        if root:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        folder.chmod(0o755)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "advisor")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = f"-c listen_addresses={self.listen} -c port={self.port}"
        settings += f" -c unix_socket_directories={self.folder}"
        if not self._durable:
            settings += " -c fsync=off"
        log = str(self.folder / "log")
        data = str(self.folder / "data")
        arguments = ("-D", data, "-l", log, "-o", settings, "-w", "-t", "120", "start")
        # of one that was killed the kernel may still hold the memory
        wait_for(
            lambda: self._said("pg_ctl", *arguments)[0] == 0,
            120,
            shown=lambda: (self.folder / "log").read_text(),
        )

    def stop(self) -> None:
        """Stop it at once, as a shutdown of its host does."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop", check=False)

    def kill(self) -> None:
        """Kill every process of it."""
        processes = self._processes()
        for process in processes:
            os.kill(process, signal.SIGKILL)
        wait_for(lambda: not any(Path(f"/proc/{p}/exe").exists() for p in processes))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of it: SIGSTOP hangs it, SIGCONT lets it go on."""
        for process in self._processes():
            os.kill(process, number)

    @property
    def pid(self) -> int:
        """The process of which all others of it are children."""
        return int((self.folder / "data/postmaster.pid").read_text().split()[0])

    def _processes(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def database(self, template: str = "template0", user: str = "advisor") -> DatabaseAddress:
        """Make a database, empty or a copy of another, and return its address."""
        self._count += 1
        name = f"advisor_{self._count}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.address(name, user)

    def address(self, name: str, user: str = "advisor") -> DatabaseAddress:
        """Return the address of a database."""
        port = "" if self.port == 5432 else f"&port={self.port}"
        return DatabaseAddress(f"postgresql://{user}@/{name}?host={self.folder}{port}")

    def sql(self, text: str, database: str = "postgres") -> str:
        """Run statements with the server's own program, and return what it prints."""
        address = str(self.address(database))
        return self._run("psql", "-v", "ON_ERROR_STOP=1", "-qAtc", text, address)

    def _run(self, program: str, *arguments: str, check: bool = True) -> str:
        code, out = self._said(program, *arguments)
        assert not check or code == 0, (self.folder / "said").read_text()
        return out

    def _said(self, program: str, *arguments: str) -> tuple[int, str]:
        folder = programs()
        assert folder is not None
        with (self.folder / "said").open("a+") as said:  # a server keeps what it inherits open
            done = subprocess.run(
                [str(folder / program), *arguments],
                stdout=subprocess.PIPE if program == "psql" else said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                text=True,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                user=self._user.pw_uid,
                group=self._user.pw_gid,
                extra_groups=(),
            )
        return done.returncode, done.stdout or ""


@contextmanager
def server(*, durable: bool = True) -> Iterator[Server]:
    """Start a server in a folder of its own, whose name is short enough for a socket.

    One that is not ``durable`` waits for no disk, as a site's does: after a kill that would ask
    each file of all databases to be written, a minute for those of sixty tests. What was committed
    survives a kill all the same, as long as the machine runs.
    """
    with tempfile.TemporaryDirectory(prefix="adv-pg-", dir="/tmp") as folder:
        started = Server(Path(folder), durable=durable)
        try:
            yield started
        finally:
            started.stop()
