"""Each scheduler has a room of its own: nobody else names it or imports from it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from advisor.paths import share

ROOT = share("config").parent
ROOMS = sorted(p.parent.name for p in (ROOT / "advisor/schedulers").glob("*/__init__.py"))
assert {"local", "pbs", "slurm"} <= set(ROOMS)
NAMED = "|".join(room for room in ROOMS if room != "local")
"""Schedulers with a name of their own; ``local`` is an ordinary word, but a room like theirs."""
ELSEWHERE = sorted(
    path
    for folder in ("advisor", "tui", "lab")
    for path in (ROOT / folder).rglob("*.py")
    if not any((ROOT / "advisor" / "schedulers" / room) in path.parents for room in ROOMS)
)


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_scheduler_is_named_outside_its_room(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(rf"""["'](?:{NAMED})["']""", text)
    assert not re.findall(rf"advisor\.schedulers\.(?:{'|'.join(ROOMS)})\b", text)
    assert not re.findall(rf"from advisor\.schedulers import .*\b(?:{'|'.join(ROOMS)})\b", text)
    assert not re.search(NAMED, path.stem)


VARIABLES = re.compile(r"\b(?:SLURM|SBATCH|PBS)_[A-Z]|\bNCPUS\b")
READ_IN_SCRIPTS = ("launchers.py", "program.py", "script.py", "script_use.py")
"""Scripts are read by one grammar, which knows what all schedulers' scripts mention: it costs one
pass over a script, in every submission, and a script may be written for more than one scheduler."""


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_schedulers_variables_and_commands_stand_in_its_room(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.parent == ROOT / "advisor" / "core" and path.name in READ_IN_SCRIPTS:
        return
    assert not VARIABLES.findall(text)
    assert not re.findall(r"""["'](?:scancel|squeue|sacct|scontrol|qstat|qdel|qmgr)["']""", text)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_no_other_room(room: str) -> None:
    others = "|".join(r for r in ROOMS if r != room)
    for path in (ROOT / "advisor" / "schedulers" / room).glob("*.py"):
        assert not re.findall(rf"advisor\.schedulers\.(?:{others})\b", path.read_text()), path


INSTRUMENTS = re.compile(
    r"(valgrind|trace|microbench|characterise\w*|twin|symbols|native|bench|evaluate)(\.\w+)?"
)


def test_the_instruments_have_a_room_of_their_own() -> None:
    may = [ROOT / "advisor" / room for room in ("instruments", "cli", "views", "schedulers")]
    outside = [
        path
        for path in (ROOT / "advisor").rglob("*")
        if "__pycache__" not in path.parts
        and INSTRUMENTS.fullmatch(path.name)
        and not any(room in path.parents for room in may)
    ]
    assert not outside


def _types(body: list[ast.stmt]) -> list[str]:
    """Return the classes and aliases of a module, those behind a condition too."""
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.If):
            names += _types(node.body) + _types(node.orelse)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [t.id for t in targets if isinstance(t, ast.Name)]
    return [n for n in names if re.match(r"_?[A-Z]", n) and not n.isupper() and n != "T"]


def test_no_class_and_no_alias_has_the_name_of_another() -> None:
    times = Counter[str]()
    for folder in ("advisor", "tui/advisor_tui", "lab/advisor_lab"):
        for path in (ROOT / folder).rglob("*.py"):
            times.update(set(_types(ast.parse(path.read_text(encoding="utf-8")).body)))
    assert [name for name, n in times.items() if n > 1] == []


def test_locals_say_what_they_hold() -> None:
    vague = {"found", "kept", "told", "said"}
    for room in ("advisor", "tui", "lab", "hooks", "db"):
        for path in (ROOT / room).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                    assert not vague & _bound(function), f"{path}:{function.lineno}"


def _bound(function: ast.AST) -> set[str]:
    """Return the names that a function binds: parameters and locals."""
    nodes = list(ast.walk(function))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.arg for n in nodes if isinstance(n, ast.arg)}
