"""The real program: started from the command line, keys typed, the screen read."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import terminal
from advisor_tui import demo_site

pytestmark = pytest.mark.terminal
ADVISOR = [sys.executable, "-m", "advisor", "tui"]


@pytest.fixture(params=["tmux", "pty"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if reason := terminal.missing(name):
        pytest.skip(reason)
    return name


def test_a_point_is_pinned_by_typing(kind: str, at_home: dict[str, str], tmp_path: Path) -> None:
    screen = terminal.KINDS[kind](ADVISOR, at_home, 80, 24)
    try:
        text = terminal.until(screen, lambda t: "12 workloads" in t and "% less" in t)
        assert len(screen.screen()) == 24 and max(map(len, screen.screen())) <= 80
        screen.type("/")
        terminal.until(screen, lambda t: "f1 help" in t)
        screen.type("cg-sol")
        terminal.until(screen, lambda t: "2 workloads of 1 application," in t)
        screen.key("Enter")
        terminal.until(screen, lambda t: "c choose" in t)
        screen.key("Down")
        terminal.until(screen, lambda t: "cg-solver / n=4e6" in t)
        screen.key("Enter")
        text = terminal.until(screen, lambda t: "★" in t and "time (s)" in t)
        assert "░" in text and "◆" in text and "[★]" in text
        screen.key("Right")
        terminal.until(screen, lambda t: "[●]" in t)
        screen.type("c")
        terminal.until(screen, lambda t: "export OMP_NUM_THREADS=" in t)
        screen.type("s")
        terminal.until(screen, lambda t: "[⚑]" in t)
        screen.resize(160, 50)
        text = terminal.until(screen, lambda t: "Under the cursor" in t)
        assert max(map(len, text.splitlines())) <= 160
        screen.type("q")
        terminal.until_left(screen)
    finally:
        screen.close()
    saved = json.loads((tmp_path / "home" / "advisor" / "choices.json").read_text())
    assert saved["workloads"]["cg-solver/n=4e6"]["pin"]["threads_per_node"] > 0


def test_the_demo_needs_nothing(kind: str, tmp_path: Path) -> None:
    """No store, no daemon, no configuration, and nothing is left behind."""
    places = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"}
    for name in ("ADVISOR_DB", "ADVISOR_SOCKET", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        places[name] = str(tmp_path / "none" / name)
    screen = terminal.KINDS[kind]([*ADVISOR, "--demo"], places, 160, 50)
    try:
        terminal.until(screen, lambda t: "12 workloads" in t and "demo data" in t)
        # It opens on the row with most to gain, once that is known.
        terminal.until(screen, lambda t: re.search(r"▸lbm +channel 1024", t))
        screen.key("Enter")
        terminal.until(screen, lambda t: "lbm / channel 1024" in t and "░" in t)
        screen.type("2")
        terminal.until(screen, lambda t: "[2 Jobs]" in t and "% less" in t)
        screen.type("4")
        terminal.until(screen, lambda t: "version 1, applied" in t)
        screen.type("i")
        terminal.until(screen, lambda t: "models advise" in t)
        screen.type("q")
        terminal.until_left(screen)
    finally:
        screen.close()
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("tmux")] == []


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    """A connection that breaks leaves no program behind that reads the end again and again."""
    leader, follower = pty.openpty()
    code = "import advisor_tui.app as a; a.EVERY_S = 0.1; a.start(demo=True)"
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "xterm-256color"},
    )
    os.close(follower)
    assert os.read(leader, 1)  # it has begun to paint
    os.close(leader)
    assert program.wait(60) == 128 + signal.SIGHUP


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ADVISOR, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        check=False,
    )


def test_without_a_terminal_it_says_so_in_one_line() -> None:
    done = run()
    assert done.returncode == 1
    assert done.stderr == (
        "advisor: the TUI needs a terminal (advisor options prints what it shows)\n"
    )


def test_without_textual_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ImportError('not here')\n")
    done = run(env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "install hpc-advisor again" in done.stderr


def test_an_unknown_user_is_one_line(at_home: dict[str, str]) -> None:
    screen = terminal.Pty([*ADVISOR, "--user", "no-such-user"], at_home, 80, 24)
    try:
        text = terminal.until(screen, lambda t: "no-such-user" in t)
        assert "no such user" in text and "Traceback" not in text
    finally:
        screen.close()


def test_the_other_verbs_start_without_textual() -> None:
    code = (
        "import contextlib, io, sys\nfrom advisor.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['tui', '--help'])\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('textual', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_page_loads_no_numerical_library(site: Any) -> None:
    code = (
        "import sys\nimport advisor_tui.app, advisor_tui.tradeoff, advisor_tui.choose\n"
        "heavy = ('numpy', 'pandas', 'scipy', 'yaml', 'pydantic', 'sqlite_utils')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_demos_law_is_physical() -> None:
    """More cores and a higher clock are never slower; power grows with both."""
    program, machine = demo_site.PROGRAMS[0], demo_site.MACHINES["broadwell"]
    points = [(t, f) for t in (4, 12, 28) for f in (1_200_000, 2_200_000)]
    took = {p: demo_site.law(program, machine, *p) for p in points}
    for (t, f), (seconds, joules) in took.items():
        assert seconds > 0 and joules > machine.idle_w * seconds
        for (t2, f2), (seconds2, joules2) in took.items():
            if t2 >= t and f2 >= f:
                assert seconds2 <= seconds
                assert joules2 / seconds2 >= joules / seconds
