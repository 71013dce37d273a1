"""Run the tests that reach a fault, in a fork of a process that has loaded everything once."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
CPU_S, MEMORY = 15, 8 << 30
"""Processor seconds and bytes that one mutant may take; then it hangs, and counts as killed."""
LONGEST_S = 1.0
"""Tests that take more processor time are left out."""


class Reached:
    """Which lines of the files each test executes, and how long it takes."""

    def __init__(self, files: list[Path]) -> None:
        self.files = {str(file) for file in files}
        self.lines: dict[str, dict[int, set[pytest.Item]]] = {
            file: defaultdict(set) for file in self.files
        }
        self.seconds: dict[pytest.Item, float] = {}
        self._item: pytest.Item | None = None

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        return self._line if frame.f_code.co_filename in self.files else None

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and self._item is not None:
            self.lines[frame.f_code.co_filename][frame.f_lineno].add(self._item)
        return self._line

    def run(self, items: list[pytest.Item], caches: list[Any]) -> list[str]:
        """Run all tests once; return the names of those that fail, which tell nothing."""
        failed = []
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        for item, following in zip(items, [*items[1:], None], strict=True):
            _clear(caches)
            self._item, start = item, time.process_time()
            if any(r.failed for r in runtestprotocol(item, log=False, nextitem=following)):
                failed.append(item.nodeid)
            else:
                self.seconds[item] = time.process_time() - start
        sys.settrace(None)
        threading.settrace(None)
        return failed

    def by(self, file: Path, mutant: Mutant) -> list[pytest.Item]:
        """Return the tests that reach a mutant, the fastest first."""
        lines = self.lines[str(file)]
        items = set(self.seconds)
        if mutant.in_body:
            numbers = range(mutant.line, mutant.last_line + 1)
            items = set().union(*(lines.get(n, set()) for n in numbers))
        fast = (i for i in items if self.seconds.get(i, LONGEST_S) < LONGEST_S)
        return sorted(fast, key=lambda i: (self.seconds[i], i.nodeid))


def install(module: ModuleType, code: CodeType) -> None:
    """Let the module, and whoever imported from it, have what the code defines."""
    new = ModuleType(module.__name__)
    new.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    exec(code, new.__dict__)
    for name, value in vars(new).items():
        old = module.__dict__.get(name)
        if name.startswith("__") or old is value:
            continue
        if getattr(old, "__module__", None) == module.__name__ and hasattr(old, "__name__"):
            _patch(old, value)
        elif old != value:
            for other in list(sys.modules.values()):
                if getattr(other, "__dict__", {}).get(name, install) is old:
                    setattr(other, name, value)


def _patch(old: Any, new: Any) -> None:
    old, new = (getattr(x, "fget", None) or getattr(x, "__wrapped__", x) for x in (old, new))
    if isinstance(old, FunctionType):
        old.__code__ = new.__code__
        old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    elif isinstance(old, type):
        for name, value in vars(new).items():
            if name in vars(old) and (hasattr(value, "__code__") or isinstance(value, property)):
                _patch(vars(old)[name], value)


class Plugin:
    """Runs mutants in place of the tests; ``survivors`` are those that no test fails for."""

    def __init__(self, files: list[Path], jobs: int, most_s: float) -> None:
        self.files, self.jobs, self.most_s = files, jobs, most_s
        self.survivors: list[tuple[Path, Mutant, int]] = []
        self.counts: dict[Path, int] = dict.fromkeys(files, 0)
        self._running: dict[int, tuple[Path, Mutant, int, str]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """A failure is enough: hypothesis need not find the smallest example."""
        settings.register_profile(
            "mutants", settings.get_profile("advisor"), phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once, then for each mutant those that reach it."""
        reached = Reached(self.files)
        caches = [x for x in gc.get_objects() if isinstance(x, functools._lru_cache_wrapper)]
        failed = reached.run(session.items, caches)
        print(f"{len(session.items)} tests, {len(failed)} of which fail without a mutant", *failed)
        gc.freeze()
        for file in self.files:
            tree = ast.parse(file.read_text())
            module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
            for mutant in mutants(tree):
                self.counts[file] += 1
                tests = reached.by(file, mutant)
                folder = tempfile.mkdtemp(prefix="mutant-")
                child = os.fork()
                if child == 0:
                    _try(session, tree, module, tests, caches, folder, self.most_s)
                self._running[child] = file, mutant, len(tests), folder
                while len(self._running) >= self.jobs:
                    self._wait()
        while self._running:
            self._wait()
        return True

    def _wait(self) -> None:
        child, status = os.wait()
        file, mutant, tests, folder = self._running.pop(child)
        shutil.rmtree(folder, ignore_errors=True)
        if status == 0:
            self.survivors.append((file, mutant, tests))


def _try(
    session: pytest.Session,
    tree: ast.Module,
    module: ModuleType,
    tests: list[pytest.Item],
    caches: list[Any],
    folder: str,
    most_s: float,
) -> None:
    """In the child: end with 0 if all tests pass."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        session.config._tmp_path_factory._basetemp = Path(folder)  # type: ignore[attr-defined]
        install(module, compile(tree, str(module.__file__), "exec"))
        _clear(caches)
        code = int(not all(_passes(tests, time.process_time() + most_s)))
    finally:
        os._exit(code)


def _clear(caches: list[Any]) -> None:
    """Forget what functions of ours remember: a mutant's answer may differ."""
    for cache in caches:
        if (cache.__module__ or "").startswith("advisor"):
            cache.cache_clear()


def _passes(tests: list[pytest.Item], end_s: float) -> Iterator[bool]:
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        if time.process_time() > end_s:
            return
        yield not any(r.failed for r in runtestprotocol(item, log=False, nextitem=following))
