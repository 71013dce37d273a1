"""Modules that import each other can only be read and changed together: there are to be none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.lint.project import Project, Source, Violation

PACKAGES = (("", "advisor"), ("tui/", "advisor_tui"), ("lab/", "advisor_lab"))
"""The folder of each package, and its name."""


def imports_without_circles(project: Project) -> Iterator[Violation]:
    """No module imports itself by way of others, and every import is absolute.

    Imports inside functions and for type checking only count, too.
    """
    modules = {
        _dotted(source.name.removeprefix(folder)): source
        for folder, package in PACKAGES
        for source in project.files(folder + package)
    }
    for source in modules.values():
        for node in source.nodes:
            if isinstance(node, ast.ImportFrom) and (node.level or not node.module):
                yield source.violation(node.lineno, "a relative import: write the whole name")
    graph = {name: _imported(source) & modules.keys() - {name} for name, source in modules.items()}
    reach = {name: _reached(graph, name) for name in graph}
    circles = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    for circle in circles:
        first, *others = sorted(circle)
        yield modules[first].violation(1, f"imports itself by way of {', '.join(others)}")


def _dotted(name: str) -> str:
    """Return a module's dotted name; a package is its __init__."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(source: Source) -> set[str]:
    names: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached
