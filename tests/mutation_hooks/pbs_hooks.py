"""Mutants of a Python source by its syntax tree, one at a time."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator

from tests.mutation_hooks.mutants import Mutant, unique

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
MESSAGE = re.compile(r"[a-z] [a-z%]|^ [a-z]")
"""Texts that people read."""
ENCODINGS = ("ascii", "utf-8")
"""Python leaves out what is no letter and no number: `ascii~` is `ascii`."""
REPLACED = {"min": "max", "max": "min", "any": "all", "all": "any"}


def mutants(text: str) -> Iterator[Mutant]:
    """Yield the mutants of a source."""
    yield from unique(text, _all(text))


def _all(text: str) -> Iterator[Mutant]:
    tree = ast.parse(text)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    docs = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for part in ast.walk(node)
    } | {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
    }

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno and node.end_col_offset is not None
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt)) and id(node) not in docs:
            for new in _instead(node):
                yield Mutant.of(text, *span(node), new)
        for test in [node.test] if isinstance(node, (ast.If, ast.IfExp, ast.While)) else []:
            for always in ("True", "False"):
                if not isinstance(node, ast.While) or always == "False":
                    yield Mutant.of(text, *span(test), always)


def _instead(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield other words for a node; the source is ASCII, so offsets are characters."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in COMPARED[type(operator)]:
                new = copy.deepcopy(node)
                new.ops[index] = other()
                yield f"({ast.unparse(new)})"
    elif isinstance(node, ast.BoolOp):
        new_bool = copy.copy(node)
        new_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(new_bool)})"
        for index in range(len(node.values)):
            rest = node.values[:index] + node.values[index + 1 :]
            yield f"({ast.unparse(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.BinOp):
        if type(node.op) in CALCULATED:
            new_binary = copy.copy(node)
            new_binary.op = CALCULATED[type(node.op)]()
            yield f"({ast.unparse(new_binary)})"
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.Name) and node.id in REPLACED:
        yield REPLACED[node.id]
    elif isinstance(node, STATEMENTS):
        yield "pass"
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return False"):
        yield "return None"
    elif isinstance(node, ast.Try):
        body = ast.unparse(ast.Module(node.body, []))
        yield body.replace("\n", "\n" + " " * node.col_offset)


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, (int, float)):
        yield str(value + 1)
        if value:
            yield str(value - 1)
    elif isinstance(value, str) and value not in ENCODINGS and not MESSAGE.search(value):
        yield repr(value + "~")
        if value.startswith("^"):
            yield repr(value[1:])
        for end in (r"\Z", "$"):
            if value.endswith(end):
                yield repr(value[: -len(end)])
