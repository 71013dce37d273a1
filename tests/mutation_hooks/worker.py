"""Runs the tests of one hook for one mutant after the other; its folder is a copy of the checkout.

python -m tests.mutation_hooks.worker SOURCE TEST...

Reads the mutants' texts from standard input, a line of JSON each, and writes what became of each.
Tests are collected once; a child runs them for each mutant: those that reach its lines, first the
quick ones and those that noticed others, of the same lines above all.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import IO, Any

import pytest
from _pytest import main as pytest_main

LIMIT_S = 90.0
"""For the tests of one mutant; one that needs longer hangs, and that is noticed. Ten times as long
where they note the lines that they reach."""
SLOW = (
    "no_message_can_steer",
    "both_libraries",
    "other_pythons",
    "older_pythons",
    "time_spent",
    "stands_still",
    "as_the_daemon_would_read_it",
    "the_key_that_the_plan_has",
    "exact_in_every_lua",
)
"""Tests that take seconds and notice nothing that others do not."""


LINES, NOTICED = Path("lines").resolve(), Path("noticed").resolve()
"""Where the first exists, each test and hook notes the test, the lines that it reaches and how
long it takes, as a line of JSON. The second has the test that noticed the last mutant."""
TRACED = """
import os, sys
def trace(frame, *_):
    if frame.f_code.co_filename != __file__:
        return None
    line = frame.f_lineno
    if line not in lines and os.path.exists({lines!r}):
        lines.add(line)
        with open({lines!r}, "a") as notes:
            notes.write({test!r}.replace('%d', str(line)))
    return trace
lines = set()
sys.settrace(trace)
sys._getframe(1).f_trace = trace
"""
"""What makes a program that a test starts note its lines."""


class Tries:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, source: Path, texts: IO[str], answers: IO[str]) -> None:
        self.source, self.texts, self.answers = source, texts, answers
        self.reached: dict[str, set[int]] = {}
        self.took_s, self.noticed = Counter[str](), Counter[tuple[str, int]]()
        self.everybody = set[int]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note in the child how long a test took, and which one noticed a mutant."""
        if LINES.exists():
            note(report.nodeid, set(), report.duration)
        elif report.failed:
            NOTICED.write_text(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note which lines of the source a test reaches in its own process."""
        if not LINES.exists():
            return (yield)
        lines, path = set[int](), str(self.source.resolve())
        sys.settrace(tracer(path, lines))
        try:
            return (yield)
        finally:
            sys.settrace(None)
            note(item.nodeid, lines)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each text."""
        items = session.items
        for line in self.texts:
            text, first, last = json.loads(line)
            self.source.write_text(text)
            near = set(range(first - 1, last + 2))
            if self.reached:  # else this is the source as it is, and the tests' lines are noted
                session.items = [
                    item
                    for item in sorted(items, key=lambda item: self.place(item, near))
                    if near & (self.reached[item.nodeid] or near) or near & self.everybody
                ]
            NOTICED.unlink(missing_ok=True)
            self.answers.write(outcome(session) + "\n")
            self.answers.flush()
            if NOTICED.exists():
                self.noticed.update((NOTICED.read_text(), line) for line in {0, *near})
            if LINES.exists():
                self.reached = {item.nodeid: set() for item in items}
                for line in LINES.read_text().splitlines():
                    test, lines, took_s = json.loads(line)
                    self.reached[test].update(lines)
                    self.took_s[test] += took_s
                self.everybody = outside(text) if self.source.suffix == ".py" else set()
                LINES.unlink()
        return True

    def place(self, item: pytest.Item, near: set[int]) -> float:
        """Return what is less for tests that are quicker, and for those that noticed more."""
        noticed = sum(self.noticed[item.nodeid, line] for line in near)
        return self.took_s[item.nodeid] / (1 + self.noticed[item.nodeid, 0] + 100 * noticed)


def note(test: str, lines: set[int], took_s: float = 0.0) -> None:
    """Note lines that a test reached, and time that it took."""
    with LINES.open("a") as notes:
        notes.write(json.dumps([test, sorted(lines), took_s]) + "\n")


def tracer(path: str, lines: set[int]) -> Callable[..., Any]:
    """Return what notes the lines of a file that run."""

    def trace(frame: FrameType, *_: object) -> Any:
        if frame.f_code.co_filename != path:
            return None
        lines.add(frame.f_lineno)
        return trace

    return trace


def outside(text: str) -> set[int]:
    """Return the lines of a Python source outside its functions: whoever loads it reaches them."""
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    inside = {line for n in functions for line in range(n.lineno + 1, (n.end_lineno or 0) + 1)}
    return set(range(1, text.count("\n") + 2)) - inside


def outcome(session: pytest.Session) -> str:
    """Return what became of the mutant that is in the folder now."""
    child = os.fork()
    if child == 0:
        os.setsid()
        code = 1
        try:
            pytest_main.pytest_runtestloop(session)
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + LIMIT_S * (10 if LINES.exists() else 1)
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what tests have left
            return "survived" if status == 0 else "killed"
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


@functools.cache
def compiled(path: str, name: str = "<embedded code object>", optimize: int = 2) -> CodeType:
    """Compile once for all tests of a mutant what each of them would compile."""
    return compile(Path(path).read_text(), name, "exec", optimize=optimize)


def forked(hook: Path, events: str, environment: dict[str, str], folder: Path) -> SimpleNamespace:
    """Run a hook as tests/pbs/interpreters.py does, in a child of this very process."""
    runner = str(Path(__file__).parents[1] / "pbs/hook_run.py")
    test, code = os.environ["PYTEST_CURRENT_TEST"], compiled(str(hook))
    noting = LINES.exists() and hook.samefile(sys.argv[1])  # not the lines of another source
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(environment)
                sys.argv, sys.stdin, sys.stdout = [runner, str(hook)], io.StringIO(events), output
                names = {
                    "__name__": "__main__",
                    "__file__": runner,
                    "compile": lambda *_: code,
                }
                lines = set[int]()
                if noting:
                    sys.settrace(tracer("<embedded code object>", lines))
                exec(compiled(runner, runner), names)
                sys.settrace(None)
                output.flush()
                if noting:
                    note(test.rpartition(" ")[0], lines)
                status = 0
            finally:
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        return SimpleNamespace(returncode=status, stdout=output.read(), stderr="")


def traced(make: Callable[..., str]) -> Callable[..., str]:
    """Let the program before qsub, which each test writes anew, note its lines."""

    def text(*words: object) -> str:
        test = json.dumps(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])
        code = TRACED.format(lines=str(LINES), test=f"[{test}, [%d], 0]\n")
        return make(*words).replace("\nimport os\n", f"\nimport os; exec({code!r})\n", 1)

    return lambda *words: text(*words) if LINES.exists() else make(*words)


def main(source: str, *tests: str) -> None:
    """Serve until standard input ends."""
    from advisor.schedulers.pbs import hooks
    from advisor.schedulers.slurm import hook_files
    from tests.unit.hook_lua import modules

    posed = pytest.MonkeyPatch()
    posed.syspath_prepend("tests/pbs")
    interpreters = importlib.import_module("interpreters")
    posed.setattr(interpreters, "run", forked)
    posed.setattr(interpreters, "start", lambda: None)
    native = hook_files._native(Path("hooks/slurm/advisor/native.c").resolve())
    posed.setattr(hooks, "client_text", traced(hooks.client_text))
    posed.setattr(hook_files, "_native", lambda _: native)
    programs = {name: hook_files.lua_programs(name)[:1] for name in ("lua", "luac")}
    posed.setattr(hook_files, "lua_programs", programs.__getitem__)
    posed.setattr(modules, "LUAS", modules.LUAS[:1])
    LINES.touch()
    texts, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2 if os.environ.get("MUTANTS_DEBUG") else os.open(os.devnull, os.O_WRONLY), 1)
    options = ["-x", "-p", "no:xdist", "--tb=no", "-k", " and ".join(f"not {n}" for n in SLOW)]
    gc.freeze()
    pytest.main([*options, *tests], plugins=[Tries(Path(source), texts, answers)])


if __name__ == "__main__":
    main(*sys.argv[1:])
