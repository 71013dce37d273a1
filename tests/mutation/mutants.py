"""Small faults put into a module, one at a time: each should make a test fail."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_OTHER: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor"}
_EFFECTS = (ast.Continue, ast.Break, ast.Raise, ast.AugAssign)
_SHOWN = 90
"""Most characters of an expression that a mutant is shown with."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: where it is, the expression or statement before and after."""

    line: int
    last_line: int
    function: str
    """Dotted name of the function or class it is in, "" in the module itself."""
    change: str
    """``before -> after``; of several equal ones in a function all but the first are numbered."""
    in_body: bool
    """It is executed with the function; else when the module is loaded."""


def mutants(tree: ast.Module) -> Iterator[Mutant]:
    """Put each fault into the tree, yield what it is, and take it out again."""
    times: Counter[tuple[str, str]] = Counter()
    for path in _places(tree, (tree,)):
        node, parent = path[-1], path[-2]
        for new in _alternatives(node, parent):
            field, index = _slot(parent, node)
            shown = _outer(path)
            before = _text(shown)
            _put(parent, field, index, ast.fix_missing_locations(ast.copy_location(new, node)))
            after = _text(new if shown is node else shown)
            statement = next(n for n in reversed(path) if isinstance(n, ast.stmt))
            names = [n for n in path[:-1] if isinstance(n, ast.FunctionDef | ast.ClassDef)]
            function = ".".join(n.name for n in names)
            times[function, f"{before} -> {after}"] += 1
            number = times[function, f"{before} -> {after}"]
            suffix = f" #{number}" if number > 1 else ""
            in_body = (
                bool(names)
                and isinstance(names[-1], ast.FunctionDef)
                and not any(isinstance(n, ast.arguments) for n in path)
            )
            change = f"{before} -> {after}{suffix}"
            yield Mutant(
                getattr(node, "lineno", statement.lineno),
                _last_line(statement),
                function,
                change,
                in_body,
            )
            _put(parent, field, index, node)


def _places(node: ast.AST, path: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, ...]]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "format_spec", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield (*path, child)
                yield from _places(child, (*path, child))


def _alternatives(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                yield ast.Compare(left, [*ops[:i], _OTHER[type(op)](), *ops[i + 1 :]], comparators)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(_OTHER[type(op)](), values)
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                yield ast.BoolOp(op, rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.BinOp(left, ast.BitOr(), right):
            yield ast.BinOp(right, ast.BitOr(), left)
        case ast.BinOp(left, op, right) if type(op) in _OTHER:
            yield ast.BinOp(left, _OTHER[type(op)](), right)
        case ast.Dict(keys, values) if None in keys and len(keys) > 1:
            yield ast.Dict(keys[::-1], values[::-1])
            for i, key in enumerate(keys):
                if key is None:
                    yield ast.Dict(keys[:i] + keys[i + 1 :], values[:i] + values[i + 1 :])
        case ast.Call(function, arguments, keywords):
            match function:
                case ast.Name(name) if name in _CALLS:
                    yield ast.Call(ast.Name(_CALLS[name], ast.Load()), arguments, keywords)
                case ast.Attribute(value, name) if name in _CALLS:
                    yield ast.Call(
                        ast.Attribute(value, _CALLS[name], ast.Load()), arguments, keywords
                    )
            for i in range(len(keywords)):
                yield ast.Call(function, arguments, keywords[:i] + keywords[i + 1 :])
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            for other in dict.fromkeys((value + 1, value - 1, value * 2, 0)):
                if other != value:
                    yield ast.Constant(other)
        case ast.IfExp(_, body, otherwise):
            yield body
            yield otherwise
        case ast.comprehension(target, source, conditions, is_async):
            for i in range(len(conditions)):
                rest = conditions[:i] + conditions[i + 1 :]
                yield ast.comprehension(target, source, rest, is_async)
        case ast.If(_, body, orelse):
            yield ast.If(ast.Constant(True), body, orelse)
            yield ast.If(ast.Constant(False), body, orelse)
        case ast.While(_, body, orelse):
            yield ast.While(ast.Constant(False), body, orelse)
        case ast.Return(value) if value is not None:
            for result in (ast.Constant(None), ast.Constant(""), ast.UnaryOp(ast.Not(), value)):
                if ast.unparse(result) != ast.unparse(value):
                    yield ast.Return(result)
        case ast.Expr(ast.Call()) | ast.Assign([ast.Subscript()]):
            yield ast.Pass()
        case _ if isinstance(node, _EFFECTS):
            yield ast.Pass()


def _slot(parent: ast.AST, node: ast.AST) -> tuple[str, int | None]:
    for field, value in ast.iter_fields(parent):
        if value is node:
            return field, None
        if isinstance(value, list):
            for index, child in enumerate(value):
                if child is node:
                    return field, index
    raise AssertionError("a node is in its parent")


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _outer(path: tuple[ast.AST, ...]) -> ast.AST:
    """Return the largest part of the statement around a node that is short enough to show."""
    shown = path[-1]
    for node in reversed(path):
        if not isinstance(shown, ast.expr | ast.comprehension | ast.keyword):
            break
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.arguments | ast.Module):
            break
        if shown is not path[-1] and len(_text(node)) > _SHOWN:
            break
        shown = node
    return shown


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.comprehension):
        return ast.unparse(node).strip()
    return ast.unparse(node).partition("\n")[0]


def _last_line(statement: ast.stmt) -> int:
    """Return the last line of a statement, or of what stands before its body."""
    body: list[ast.stmt] = getattr(statement, "body", [])
    if body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno
