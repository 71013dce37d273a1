"""Runs the tests of one hook for one mutant after the other; its folder is a copy of the checkout.

python -m tests.mutation_hooks.worker SOURCE TEST...

Reads the mutants' texts from standard input, a line of JSON each, and writes what became of each.
Tests are collected once; a child runs them for each mutant.
"""

from __future__ import annotations

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
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import IO, Any

import pytest
from _pytest import main as pytest_main

LIMIT_S = 90.0
"""For the tests of one mutant; one that needs longer hangs, and that is noticed."""
SLOW = (
    "no_message_can_steer", "both_libraries", "other_pythons", "older_pythons", "time_spent",
    "stands_still",
)  # fmt: skip
"""Tests that take seconds and notice nothing that others do not."""


LINES = Path("lines").resolve()
"""Where it exists, hooks note the lines that a test reaches, and the test: JSON, a line each."""


class Tries:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, source: Path, texts: IO[str], answers: IO[str]) -> None:
        self.source, self.texts, self.answers = source, texts, answers
        self.reached: dict[str, set[int]] = {}
        self.runs = Counter[str]()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each text."""
        items = session.items
        for line in self.texts:
            text, first, last = json.loads(line)
            self.source.write_text(text)
            near = set(range(first - 1, last + 2))
            if self.reached:  # else this is the source as it is, and the tests' lines are noted
                session.items = [
                    item for item in sorted(items, key=lambda i: self.runs[i.nodeid])
                    if near & self.reached.get(item.nodeid, near)
                ]  # fmt: skip
            self.answers.write(outcome(session) + "\n")
            self.answers.flush()
            if not self.reached:
                for note in LINES.read_text().splitlines() if LINES.exists() else []:
                    test, lines = json.loads(note)
                    self.reached.setdefault(test, set()).update(lines)
                    self.runs[test] += 1
                LINES.unlink(missing_ok=True)
        return True


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
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


@functools.cache
def compiled(path: str, name: str = "<embedded code object>", optimize: int = 2) -> CodeType:
    """Compile once for all tests of a mutant what each of them would compile."""
    return compile(Path(path).read_text(), name, "exec", optimize=optimize)


def forked(
    command: list[str], *, input: str, env: dict[str, str], cwd: Path, **_: object
) -> SimpleNamespace:
    """Run a hook as tests/pbs/hooked.py does, in a child that need not start a Python."""
    runner, hook = command[-2:]
    test, code = os.environ["PYTEST_CURRENT_TEST"], compiled(hook)
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.chdir(cwd)
                os.environ.clear()
                os.environ.update(env)
                sys.argv, sys.stdin, sys.stdout = [runner, hook], io.StringIO(input), output
                names = {
                    "__name__": "__main__", "__file__": runner, "compile": lambda *_: code,
                }  # fmt: skip
                lines = set[int]()

                def trace(frame: FrameType, *_: object) -> Any:
                    if frame.f_code.co_filename != "<embedded code object>":
                        return None
                    lines.add(frame.f_lineno)
                    return trace

                if LINES.exists():
                    sys.settrace(trace)
                exec(compiled(runner, runner), names)
                sys.settrace(None)
                output.flush()
                if LINES.exists():
                    with LINES.open("a") as notes:
                        notes.write(json.dumps([test.rpartition(" ")[0], sorted(lines)]) + "\n")
                status = 0
            finally:
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        return SimpleNamespace(returncode=status, stdout=output.read(), stderr="")


def main(source: str, *tests: str) -> None:
    """Serve until standard input ends."""
    from advisor.schedulers.slurm import hook_files
    from tests.unit.hook_lua import modules

    posed = pytest.MonkeyPatch()
    posed.syspath_prepend("tests/pbs")
    posed.setattr(importlib.import_module("hooked"), "subprocess", SimpleNamespace(run=forked))
    native = hook_files._native(Path("hooks/slurm/advisor/native.c").resolve())
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
