"""A number with a name says what it is: a reader need not guess its meaning or its unit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.lint.project import CODE, Project, Source, Violation


def explained_constants(project: Project) -> Iterator[Violation]:
    """A comment, or the sentence below, explains every constant that is a number.

    A sentence below several assignments without a blank line between them is of all of them.
    """
    for source in project.files(*CODE):
        yield from _unexplained(source)


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


def _unexplained(source: Source) -> Iterator[Violation]:
    lines, body = source.text.splitlines(), source.body
    for i, node in enumerate(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_number(node.value):
            continue
        if not any(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in _names(node)):
            continue
        before_and_beside = lines[max(0, node.lineno - 2) : node.end_lineno]
        below: ast.stmt = node
        for following in body[i + 1 :]:
            if following.lineno > (below.end_lineno or 0) + 1:
                break
            below = following
            if not isinstance(following, ast.Assign | ast.AnnAssign):
                break
        if not isinstance(below, ast.Expr) and not any("#" in line for line in before_and_beside):
            what = f"say what {ast.unparse(node)} is, in a comment or a sentence below it"
            yield source.violation(node.lineno, what)
