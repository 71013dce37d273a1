"""Imports: none in a circle, and in the spine none of the laboratory's large libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.lint.project import Project, Source, Violation

PACKAGES = (("", "advisor"), ("tui/", "advisor_tui"), ("lab/", "advisor_lab"))
"""The folder of each package, and its name."""
SPINE = ("advisor", "tui", "hooks", "db")
"""What a site installs, without extras."""
LARGE = frozenset(("pandas", "patsy", "scipy", "statsmodels"))
"""The laboratory's libraries: more than twice as large as all that the spine needs."""


def spine_without_large_libraries(project: Project) -> Iterator[Violation]:
    """Nothing of the spine imports the laboratory's large libraries, in a function neither.

    A dependency would bring it to every site, and without one the import fails there.
    """
    for source in project.files(*SPINE):
        for node in source.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for library in sorted(LARGE & {name.split(".")[0] for name in _names(node)}):
                    what = f"{library} is the laboratory's: use numpy, or move it to lab/"
                    yield source.violation(node.lineno, what)


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
    imports = (node for node in source.nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return {name for node in imports for name in _names(node)}


def _names(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the modules that may be imported, dotted: of ``from a import b`` both a and a.b."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not node.module:
        return set()
    return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached
