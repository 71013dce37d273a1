"""A reader who looks for a name finds one thing, and a local says what it holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.lint.project import CODE, Project, Violation

VAGUE = {"found", "kept", "told", "said"}
"""Of what? Locals are nouns."""


def classes_of_one_name(project: Project) -> Iterator[Violation]:
    """No public class, and no alias of a type, has the name of another."""
    first: dict[str, str] = {}
    for source in project.files("advisor", "tui/advisor_tui", "lab/advisor_lab"):
        types = _types(source.body)
        for name, line in types.items():
            if other := first.get(name):
                yield source.violation(line, f"{name} is a class of {other} too")
            first.setdefault(name, source.name)


def _types(body: list[ast.stmt]) -> dict[str, int]:
    """Return the public classes and aliases of a module, those behind a condition too."""
    lines: dict[str, int] = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            lines[node.name] = node.lineno
        elif isinstance(node, ast.If):
            lines |= _types(node.body) | _types(node.orelse)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            lines |= {t.id: node.lineno for t in targets if isinstance(t, ast.Name)}
    return {n: at for n, at in lines.items() if re.match("[A-Z]", n) and not n.isupper()}


def locals_that_say_what_they_hold(project: Project) -> Iterator[Violation]:
    """No function binds a word that fits whatever there is."""
    for source in project.files(*CODE):
        for function in source.nodes:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for name, line in _bound(function):
                    if name in VAGUE:
                        yield source.violation(line, f"say what it is that is {name}: a noun")


def _bound(function: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a function binds, parameters and locals, and their lines."""
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
