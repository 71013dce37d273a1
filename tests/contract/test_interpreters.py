"""No process of ours runs what somebody else put into the folder in which it starts.

That no other module starts an interpreter is a rule of `make lint` (tests/lint/processes.py).
"""

from __future__ import annotations

import os
import pwd
import re
import site
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest

from advisor.core.protocol import call
from advisor.errors import AdvisorError
from advisor.interpreter import (
    absolute_only,
    own_environment,
    own_python,
    search_absolute_folders,
    trusted_folders,
)
from advisor.paths import share
from advisor.schedulers.command import session_environment
from advisor.service.spool import Spool
from advisor.views import sweeps
from tests.plants import Planted, as_nobody, planted
from tests.waiting import wait_for

ROOT = share("config").parent
OLD = ROOT / "tests/golden/store_0_2_0.sql"
SYSTEM_PYTHON = Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="one user cannot be two")


def test_what_is_installed_runs_isolated() -> None:
    """The command of the packages, and the program before qsub."""
    tree = (ROOT / "release/tree.py").read_text()
    assert "#!/{prefix}/bin/python -I\n" in tree
    qsub = (ROOT / "hooks/pbs/qsub.py").read_text().splitlines()[0]
    assert qsub == "#!/usr/bin/python3 -IS"
    for path in (ROOT / "hooks/slurm").rglob("*.lua"):
        code = re.sub(r"--.*", "", path.read_text())
        assert not re.search(r"\brequire\b|\bdofile\b", code), path


# -- plants --------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Planted]:
    with planted() as found:
        yield found


def let_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take an interpreter that every user can run, wherever the one that runs the tests lies."""
    if SYSTEM_PYTHON.exists():
        monkeypatch.setattr(sys, "executable", str(SYSTEM_PYTHON))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(site.getsitepackages()))


def plain(environment: Mapping[str, str]) -> dict[str, str]:
    dropped = ("ADVISOR", "XDG", "PYTHON")
    return {n: v for n, v in environment.items() if not n.startswith(dropped)}


def test_the_plants_run_where_python_is_started_as_usual(shared: Planted) -> None:
    """So this is what all others would see."""
    subprocess.run([sys.executable, "-m", "advisor"], cwd=shared.folder, check=False)
    assert "advisor/__init__.py" in shared.ran() and "advisor/__main__.py" in shared.ran()


@pytest.mark.parametrize("nobody", [False, True])
@pytest.mark.parametrize("variables", ["none", "relative"])
def test_a_module_that_is_started_in_a_shared_folder(
    shared: Planted, nobody: bool, variables: str
) -> None:
    environment = plain(os.environ)
    if variables == "relative":
        there = str(shared.folder)
        environment |= {
            "PYTHONPATH": ":.",
            "PYTHONSTARTUP": f"{there}/random.py",
            "PYTHONUSERBASE": there,
        }
    command = own_python("advisor", "completion", "bash")
    done = subprocess.run(
        as_nobody(command) if nobody else command,
        cwd=shared.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_advisor" in done.stdout, done.stderr
    assert shared.ran() == ""


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_a_daemon_that_is_started_in_a_shared_folder(shared: Planted, user: str) -> None:
    """Its children are what upgrades the store, takes what users sent, and watches the scheduler.

    The folder is first in PATH, too: ``.`` and an empty part both mean it.
    """
    if user == "root" and os.geteuid():
        pytest.skip("only root can be root")
    place = shared.folder.parent / "site"
    place.mkdir()
    store, path, log = place / "a.db", place / "s", place / "log"
    with closing(sqlite3.connect(store)) as db:
        db.executescript(OLD.read_text())
        db.execute("PRAGMA journal_mode = WAL")
    if user == "nobody" and os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        for file in (place, *place.iterdir()):
            os.chown(file, entry.pw_uid, entry.pw_gid)
    program = Path(sys.executable).with_name("advisor")
    command = [
        str(program),
        "serve",
        "--socket",
        str(path),
        "--db",
        str(store),
        "--refresh",
        "0.05",
        "--watch",
        "0.2",
    ]
    daemon = subprocess.Popen(
        as_nobody(command) if user == "nobody" else command,
        cwd=shared.folder,
        stderr=log.open("w"),
        env={**plain(os.environ), "PATH": f".::{os.environ['PATH']}", "LD_LIBRARY_PATH": ":."},
    )
    try:

        def status() -> Mapping[str, object]:
            with suppress(AdvisorError):
                return call(path, {"op": "status"})
            return {}

        wait_for(lambda: status().get("models") == 1, shown=log.read_text)
        run = {
            "time_s": 1.0,
            "configuration": {
                "node_type": "bdw",
                "nodes": 1,
                "ranks_per_node": 1,
                "threads_per_node": 4,
                "freq_khz": 0,
            },
        }
        sent: dict[str, object] = {
            "op": "observe",
            "application": "a",
            "workload": "w",
            "observations": [run],
        }
        assert call(path, sent)["stored"] == 1
        wait_for(lambda: not list((place / "spool").glob("runs-*")), shown=log.read_text)
        wait_for(
            lambda: "event=watch-failed" in log.read_text() or "event=watching" in log.read_text(),
            shown=log.read_text,
        )
        assert Path(f"/proc/{_pid(status())}/cwd").readlink() == Path("/")
    finally:
        daemon.terminate()
        daemon.wait(30)
    assert "event=store-older" in log.read_text()
    assert "set aside" not in log.read_text() and "collect-failed" not in log.read_text()
    assert shared.ran() == ""


def _pid(status: Mapping[str, object]) -> int:
    assert isinstance(status["pid"], int)
    return status["pid"]


@needs_root
def test_a_sweep_that_the_daemon_starts_in_a_jobs_folder(
    shared: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submitting user's process reads the script there, and runs nothing else of it."""
    nobody = pwd.getpwnam("nobody")
    (shared.folder / "job.sh").write_text("#!/bin/bash\nsrun ./kernel one\n")
    let_users_run_it(monkeypatch)
    spool = Spool(tmp_path / "spool", tmp_path / "a.db", tmp_path / "s")
    spool._train(
        {
            "scheduler": "local",
            "script": None,
            "path": "job.sh",
            "arguments": [],
            "options": "-t 5",
            "uid": nobody.pw_uid,
            "cwd": str(shared.folder),
        }
    )
    (sweep,) = spool._sweeps
    spool._sweeps = []  # its thread would remove the folder
    sweep.process.wait(60)
    sweep.output.seek(0)
    said = sweep.output.read().decode()
    assert "kernel" in said or "advisor:" in said, said
    assert "cannot read job.sh" not in said, said
    assert shared.ran() == "", said
    assert not sweep.runs()


@needs_root
def test_a_jobs_folder_is_entered_by_the_user_and_not_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is the user's word: root's rights do not lead there."""
    let_users_run_it(monkeypatch)
    closed = tmp_path / "closed"
    (closed / "open").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "open").chmod(0o777)
    command = own_python("advisor", "--version", folder=str(closed / "open"))
    done = subprocess.run(
        as_nobody(command, reads=False), cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"advisor: cannot go into {closed}/open: Permission denied\n"
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("advisor ")


def test_a_sweep_that_the_tui_plans_in_a_shared_folder(shared: Planted) -> None:
    (shared.folder / "job.sh").write_text("#!/bin/bash\n#SBATCH -t 5\nsrun ./kernel one\n")
    with suppress(AdvisorError):
        sweeps.plan(["job.sh", "--scheduler", "local", "--threads", "1"], shared.folder)
    assert shared.ran() == ""


# -- where ours import from ----------------------------------------------------------------------


def test_relative_parts_of_lists_are_dropped() -> None:
    assert absolute_only(":/usr/bin:.:bin::/bin:") == "/usr/bin:/bin"
    given = {
        "PATH": ".:/bin",
        "LD_LIBRARY_PATH": ":",
        "LD_PRELOAD": "x.so",
        "PYTHONHOME": "/h",
        "PYTHONPATH": "/p",
        "HOME": "/root",
        "SLURM_CONF": "/etc/slurm.conf",
    }
    assert own_environment(given) == {
        "PATH": "/bin",
        "HOME": "/root",
        "SLURM_CONF": "/etc/slurm.conf",
    }


def test_root_looks_in_absolute_folders_and_jobs_get_what_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job's own programs may lie beside it: what it is given is not changed."""
    code = (
        "import os\nfrom advisor.interpreter import search_absolute_folders\n"
        "from advisor.schedulers.command import session_environment\n"
        "search_absolute_folders()\n"
        "print(os.environ['PATH'], session_environment()['PATH'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": ".:/usr/bin:"},
    )
    assert done.stdout == "/usr/bin .:/usr/bin:\n"
    monkeypatch.setenv("PATH", "/changed/later")
    search_absolute_folders()
    assert session_environment()["PATH"] == "/changed/later"


def test_libraries_of_environment_modules_are_found_and_open_folders_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, everybodys = tmp_path / "mine", tmp_path / "everybodys"
    for folder, mode in ((mine, 0o755), (everybodys, 0o777)):
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.setenv("PYTHONPATH", f":{mine}:.:{everybodys}:lib")
    assert trusted_folders()[:2] == [str(ROOT), str(mine)]
    assert str(everybodys) not in trusted_folders()
    if os.geteuid() == 0:
        os.chown(mine, pwd.getpwnam("nobody").pw_uid, -1)
        assert str(mine) not in trusted_folders()


def test_an_installation_that_is_only_in_pythonpath_is_found(tmp_path: Path) -> None:
    """As environment modules have it: the child has the same libraries, behind Python's own."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "of_the_site.py").write_text("print('of the site')\n")
    (tmp_path / "lib" / "random.py").write_text("print('shadowed')\n")
    code = (
        "import subprocess\nfrom advisor.interpreter import own_python\n"
        "subprocess.run(own_python('of_the_site'), check=True)\n"
        "subprocess.run(own_python('random'), check=True, stdout=subprocess.DEVNULL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**plain(os.environ), "PYTHONPATH": f"{ROOT}:{tmp_path / 'lib'}"},
    )
    assert done.stdout == "of the site\n"
