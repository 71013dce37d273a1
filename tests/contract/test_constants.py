"""A number with a name says what it is: a reader need not guess its meaning or its unit."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from advisor.paths import share

ROOT = share("config").parent
MODULES = sorted(
    p for room in ("advisor", "tui", "lab", "hooks", "db") for p in (ROOT / room).rglob("*.py")
)


def _is_number(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return bool(elements) and all(map(_is_number, elements))
    return False


def _names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    return [t.id for t in targets if isinstance(t, ast.Name)]


def unexplained(source: str) -> list[str]:
    """Return constants of numbers that neither a comment nor the sentence below them explains.

    A sentence below several assignments without a blank line between them is of all of them.
    """
    lines, body = source.splitlines(), ast.parse(source).body
    bare = []
    for i, node in enumerate(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_number(node.value):
            continue
        if not any(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in _names(node)):
            continue
        own = lines[node.lineno - 2 : node.end_lineno] if node.lineno > 1 else lines[:1]
        below: ast.stmt = node
        for following in body[i + 1 :]:
            if following.lineno > (below.end_lineno or 0) + 1:
                break
            below = following
            if not isinstance(following, ast.Assign | ast.AnnAssign):
                break
        if not isinstance(below, ast.Expr) and not any("#" in line for line in own):
            bare.append(f"{node.lineno}: {ast.unparse(node)}")
    return bare


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_constant_says_what_it_is(path: Path) -> None:
    assert unexplained(path.read_text(encoding="utf-8")) == []


def test_what_explains_a_constant() -> None:
    text = 'A = 1\n"""s"""\n\nB, C = 1, 2\nD = 3.0\n"""s"""\n# E\nE = 5\n\nF = (1, -2)\n\nx = 1\n'
    assert unexplained(text) == ["10: F = (1, -2)"]
