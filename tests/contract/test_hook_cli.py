"""``advisor hook``: install, remove and status in a folder of slurm.conf, no Slurm needed."""

from __future__ import annotations

import os
import shutil
import site
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.schedulers.slurm.hooks import read_hooks

HOOKS = ("cli_filter.lua", "job_submit.lua")
BOTH = "ClusterName=x\nCliFilterPlugins=lua\nJobSubmitPlugins=throttle,lua\n"
OWN = b"-- a site's own \xff\r\nfunction slurm_job_submit() return 0 end"
Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a slurm.conf, and no Slurm that would answer."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    scontrol.chmod(0o755)
    found = tmp_path / "slurm dir"
    found.mkdir()
    (found / "slurm.conf").write_text(BOTH)
    return found


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below the folder: content and mode."""
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mode)
        for p in folder.rglob("*")
        if p.is_file()
    }


def test_install_says_what_it_does_and_does_it(folder: Path, advisor: Run) -> None:
    done = advisor("hook", "install", "--dir", folder, "--socket", "/run/x.sock")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith(f"write {folder}/advisor/")
    assert f"write {folder}/cli_filter.lua" in lines
    assert lines[-1] == "done"
    assert [h.state for h in read_hooks(folder)] == ["advisor", "advisor"]
    [modules] = (folder / "advisor").iterdir()
    assert (
        'socket = "/run/x.sock", deadline = 0.25, retry = 30'
        in (modules / "config.lua").read_text()
    )
    assert all(p.stat().st_mode & 0o444 == 0o444 for p in folder.rglob("*"))


def test_the_program_that_caps_nodes_is_asked_for_and_stays(folder: Path, advisor: Run) -> None:
    program = folder / "advisor-node-cap"
    advisor("hook", "install", "--dir", folder)
    assert not program.exists()
    done = advisor("hook", "install", "--dir", folder, "--node-cap")
    assert f"write {program}" in done.out.splitlines()
    for word in (f"Prolog={program}", f"Epilog={program}", "PrologFlags=Alloc"):
        assert word in done.out
    beside = [folder / f"advisor-node-{name}" for name in ("cores", "gpus")]
    assert {path.stat().st_mode & 0o777 for path in (program, *beside)} == {0o755}
    program.write_text("an older one")
    (folder / "slurm.conf").write_text(f"{BOTH}Prolog={program}\n")
    done = advisor("hook", "install", "--dir", folder)  # renews what is there
    assert program.read_text().startswith("#!/bin/bash -p\n# advisor-node-cap")
    assert "PrologFlags" not in done.out
    done = advisor("hook", "remove", "--dir", folder)
    assert "can go once Prolog and Epilog do not name it" in done.out and program.exists()


def test_pbs_caps_nodes_by_its_own_hook(tmp_path: Path, advisor: Run) -> None:
    words = ("hook", "install", "--scheduler", "pbs", "--dir", tmp_path, "--node-cap")
    done = advisor(*words)
    assert done.code == 2 and "--node-cap is for Slurm" in done.err


def test_dry_run_writes_nothing(folder: Path, advisor: Run) -> None:
    before = tree(folder)
    done = advisor("hook", "install", "--dir", folder, "--dry-run", "--json")
    assert done.json()["done"] is False
    assert any(s.startswith("write") for s in done.json()["steps"])
    assert "would write" in advisor("hook", "install", "--dir", folder, "--dry-run").out
    assert tree(folder) == before


def test_twice_is_once(folder: Path, advisor: Run) -> None:
    (folder / "job_submit.lua").write_bytes(OWN)
    assert advisor("hook", "install", "--dir", folder).code == 0
    first = tree(folder)
    assert advisor("hook", "install", "--dir", folder).code == 0
    assert tree(folder) == first
    assert (folder / "job_submit.site.lua").read_bytes() == OWN
    assert advisor("hook", "install", "--dir", folder, "--deadline", "0.1s").code == 0
    assert len(list((folder / "advisor").iterdir())) == 2
    assert advisor("hook", "install", "--dir", folder, "--deadline", "90ms").code == 0
    assert len(list((folder / "advisor").iterdir())) == 2


@pytest.mark.parametrize("again", [1, 2])
def test_remove_puts_everything_back(folder: Path, advisor: Run, again: int) -> None:
    for name in HOOKS:
        (folder / name).write_bytes(OWN + b"\n-- " + name.encode())
        (folder / name).chmod(0o640)
    before = tree(folder)
    for _ in range(again):
        assert advisor("hook", "install", "--dir", folder).code == 0
    assert tree(folder) != before
    done = advisor("hook", "remove", "--dir", folder)
    assert (done.code, done.err) == (0, "")
    assert tree(folder) == before
    assert not (folder / "advisor").exists()
    done = advisor("hook", "remove", "--dir", folder)
    assert (done.code, done.out) == (0, "nothing to do\n")
    assert tree(folder) == before


def test_a_site_whose_script_is_a_link_gets_its_link_back(
    folder: Path, tmp_path: Path, advisor: Run
) -> None:
    real = tmp_path / "real.lua"
    real.write_bytes(OWN)
    (folder / "job_submit.lua").symlink_to(real)
    assert advisor("hook", "install", "--dir", folder).code == 0
    assert advisor("hook", "remove", "--dir", folder).code == 0
    assert (folder / "job_submit.lua").readlink() == real
    assert real.read_bytes() == OWN


def test_a_hook_slurm_needs_is_never_just_gone(folder: Path, advisor: Run) -> None:
    advisor("hook", "install", "--dir", folder)
    done = advisor("hook", "remove", "--dir", folder)
    assert "does nothing: slurm.conf says CliFilterPlugins=lua" in done.out
    assert [h.state for h in read_hooks(folder)] == ["leftover", "leftover"]
    assert "can go once slurm.conf" in advisor("hook", "remove", "--dir", folder).out
    (folder / "slurm.conf").write_text("ClusterName=x\n")
    advisor("hook", "remove", "--dir", folder)
    assert sorted(p.name for p in folder.iterdir()) == ["slurm.conf"]
    # and a leftover is no site's own script
    (folder / "slurm.conf").write_text(BOTH)
    advisor("hook", "install", "--dir", folder)
    advisor("hook", "remove", "--dir", folder)
    advisor("hook", "install", "--dir", folder)
    assert not list(folder.glob("*.site.lua"))


def test_a_site_that_put_its_own_script_over_ours_keeps_it(folder: Path, advisor: Run) -> None:
    (folder / "job_submit.lua").write_bytes(OWN)
    advisor("hook", "install", "--dir", folder)
    (folder / "job_submit.lua").write_bytes(OWN + b"\n-- newer")
    assert "is an older one" in advisor("hook", "remove", "--dir", folder, "--dry-run").out
    advisor("hook", "install", "--dir", folder)
    assert (folder / "job_submit.site.lua").read_bytes() == OWN + b"\n-- newer"
    advisor("hook", "remove", "--dir", folder)
    assert (folder / "job_submit.lua").read_bytes() == OWN + b"\n-- newer"


@pytest.mark.parametrize(
    ("conf", "missing"),
    [
        (BOTH, []),
        ("cliFilterplugins = lua # x\njobsubmitplugins=job_submit/lua\n", []),
        ("Include more.conf\nCliFilterPlugins=lua\n", []),
        ("#CliFilterPlugins=lua\nJobSubmitPlugins=lua\n", ["CliFilterPlugins=lua"]),
        ("CliFilterPlugins=syslog\n", ["CliFilterPlugins=syslog,lua", "JobSubmitPlugins=lua"]),
        ("JobSubmitPlugins=throttle,\\\nlua\nCliFilterPlugins=lua\n", []),
    ],
)
def test_lines_that_slurm_conf_lacks_are_said(
    folder: Path, advisor: Run, conf: str, missing: list[str]
) -> None:
    (folder / "slurm.conf").write_text(conf)
    (folder / "more.conf").write_text("JobSubmitPlugins=lua\n")
    before = (folder / "slurm.conf").read_bytes()
    notes = [
        n
        for n in advisor("hook", "install", "--dir", folder, "--json").json()["notes"]
        if "needs the line" in n
    ]
    assert len(notes) == len(missing)
    for note, line in zip(notes, missing, strict=True):
        assert f"{folder}/slurm.conf needs the line {line} (" in note
    assert (folder / "slurm.conf").read_bytes() == before


def test_a_cluster_that_does_not_answer_is_said(folder: Path, advisor: Run) -> None:
    notes = advisor("hook", "install", "--dir", folder, "--json").json()["notes"]
    assert any("run this again once slurmctld runs" in n for n in notes)
    [modules] = (folder / "advisor").iterdir()
    assert (modules / "inventory.lua").read_text().endswith("return {}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--dir", "/nonexistent"), 1, "/nonexistent/slurm.conf: no such file (--dir is"),
        (("--scheduler", "pbs"), 1, "qmgr is not in PATH (run this where PBS's commands are"),
        (("--login", "/usr/local/bin"), 2, "--login is for PBS"),
        (("--deadline", "soon"), 2, "--deadline soon is not a time"),
        (("--deadline", "0"), 2, "--deadline 0 is not a time"),
        (("--deadline", "1h"), 2, "--deadline 1h"),
        (("--retry", "0"), 2, "--retry is at least 1"),
        (("--socket", "/" + "x" * 120), 1, "a socket's path has at most 107 bytes"),
        (("--socket", "/a\nb"), 1, "has control characters"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    folder: Path,
    advisor: Run,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = os.environ["PATH"].split(os.pathsep)  # without PBS's commands, where there are some
    without = [p for p in places if not Path(p, "qmgr").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(without))
    before = tree(folder)
    words = arguments if "--dir" in arguments else ("--dir", str(folder), *arguments)
    done = advisor("hook", "install", *words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("advisor: ")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert tree(folder) == before


@pytest.mark.skipif(shutil.which("luac5.1") is None, reason="luac5.1 is not installed")
def test_a_site_script_that_does_not_compile_is_not_wrapped(folder: Path, advisor: Run) -> None:
    (folder / "cli_filter.lua").write_text("x = 1\nfunction (\n")
    before = tree(folder)
    done = advisor("hook", "install", "--dir", folder)
    assert done.code == 1
    assert f"{folder}/cli_filter.lua:2:" in done.err
    assert tree(folder) == before


def test_what_else_lies_in_the_modules_folder_stays(folder: Path, advisor: Run) -> None:
    (folder / "advisor").mkdir()
    (folder / "advisor" / "notes").write_text("the site's")
    before = tree(folder)
    (folder / "slurm.conf").write_text("ClusterName=x\n")
    for deadline in ("1ms", "2ms", "3ms"):
        assert advisor("hook", "install", "--dir", folder, "--deadline", deadline).code == 0
    assert len(list((folder / "advisor").iterdir())) == 3
    (folder / "advisor" / ".0.0.1-0123456789ab.new").mkdir()
    assert advisor("hook", "remove", "--dir", folder).code == 0
    (folder / "slurm.conf").write_text(BOTH)
    assert tree(folder) == before
    assert [p.name for p in (folder / "advisor").iterdir()] == ["notes"]


def test_a_foreign_file_in_the_way_is_left(folder: Path, advisor: Run) -> None:
    (folder / "job_submit.lua").write_bytes(OWN)
    (folder / "job_submit.site.lua").write_text("somebody's")
    done = advisor("hook", "install", "--dir", folder)
    assert done.code == 1
    assert "in the way" in done.err
    assert (folder / "job_submit.site.lua").read_text() == "somebody's"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_who_may_not_write_is_told(folder: Path) -> None:
    for path in (folder, *folder.parents):
        if path.owner() == "root" and str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o055)
    code = "import sys; from advisor.cli import main; sys.exit(main(sys.argv[1:]))"
    import advisor as package

    root = Path(package.__file__).resolve().parent.parent
    done = subprocess.run(
        ["/usr/bin/python3", "-c", code, "hook", "install", "--dir", str(folder)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(site.getsitepackages())},
        user="nobody",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"advisor: {folder}: no permission to write (run this as root)\n"


def test_the_stub_finds_its_modules_wherever_the_folder_is(
    folder: Path, tmp_path: Path, advisor: Run
) -> None:
    advisor("hook", "install", "--dir", folder)
    moved = tmp_path / "moved"
    folder.rename(moved)
    script = tmp_path / "try.lua"
    script.write_text(
        "slurm = { SUCCESS = 0, log_error = function(...) print(...) end }\n"
        "print(dofile(arg[1]), slurm_job_submit({}, {}, 0), slurm_job_modify({}, {}, {}, 0))\n"
    )
    lua = shutil.which("lua5.1")
    if lua is None:
        pytest.skip("lua5.1 is not installed")
    done = subprocess.run(
        [lua, script, moved / "job_submit.lua"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "0", "0"]
    shutil.rmtree(moved / "advisor")
    done = subprocess.run(
        [lua, script, moved / "job_submit.lua"], capture_output=True, text=True, check=True
    )
    assert "without a stamp" in done.stdout
    assert done.stdout.split()[-3:] == ["0", "0", "0"]


# -- status --------------------------------------------------------------------------------------


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder


def test_status_of_nothing(folder: Path, advisor: Run, runtime: Path) -> None:
    status = advisor("hook", "status", "--dir", folder, "--json").json()
    assert status["schema"] == "advisor/hook/1"
    assert {h["state"] for h in status["hooks"].values()} == {"absent"}
    assert status["modules"] == "none installed"
    assert "is `advisor serve` running?" in status["daemon"]
    (folder / "cli_filter.lua").write_bytes(OWN)
    assert (
        f"{folder}/cli_filter.lua: the site's own\n"
        in advisor("hook", "status", "--dir", folder).out
    )


def test_status_tells_what_is_wrong(folder: Path, advisor: Run, runtime: Path) -> None:
    (folder / "slurm.conf").write_text("JobSubmitPlugins=lua\n")
    path = runtime / "s"
    advisor("hook", "install", "--dir", folder, "--socket", path)
    status = advisor("hook", "status", "--dir", folder, "--json").json()
    assert status["settings"]["socket"] == str(path)
    assert (status["settings"]["deadline"], status["settings"]["retry"]) == (0.25, 30)
    assert status["hooks"]["cli_filter.lua"]["enabled"] is False
    assert "empty, so no job is rewritten" in status["inventory"]
    assert status["breaker"] == "closed"
    (runtime / "advisor-breaker").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        words = advisor("hook", "status", "--dir", folder).out
    assert "slurm.conf does not name the Lua plugin" in words
    assert "breaker: open: the daemon hung" in words
    if shutil.which("lua5.1"):
        [modules] = (folder / "advisor").iterdir()
        (modules / "filter.lua").write_text("function (")
        status = advisor("hook", "status", "--dir", folder, "--json").json()
        assert "do not load" in status["modules"]
