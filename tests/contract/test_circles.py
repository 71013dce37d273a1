"""Modules that import each other can only be read and changed together: there are to be none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from advisor.paths import share

ROOT = share("config").parent


def _modules() -> dict[str, Path]:
    """Return every module of both packages by its dotted name; a package is its __init__."""
    modules = {}
    for base, package in (
        (ROOT, "advisor"),
        (ROOT / "tui", "advisor_tui"),
        (ROOT / "lab", "advisor_lab"),
    ):
        for path in (base / package).rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def _imported(path: Path) -> Iterator[str]:
    """Yield what a module imports: inside functions and for type checking only, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = _modules()
    graph = {
        name: {i for i in _imported(path) if i in modules and i != name}
        for name, path in modules.items()
    }
    assert "advisor.core.units" in graph["advisor.cli.fit"] | graph["advisor.models.fit"]
    reach = {name: _reached(graph, name) for name in graph}
    circles = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    assert [sorted(c) for c in circles] == []
