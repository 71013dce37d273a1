"""Expressions of parameters, like ``n^2*log2(p)`` or ``1 < x1 < x0``: parsed, never run as code.

They stand in setup files and come from users, so a parser of a few operators and functions reads
them. Powers are ``^`` or ``**``; brackets of functions may be square and names capital, as in
Mathematica (``N[s]^3``, ``Log2[x]``, ``#1``). Standard library only.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from advisor.core.nearest import suggestion
from advisor.errors import InputError

PLACEHOLDERS = frozenset({"x", "#"})
"""Names that stand for each parameter where an expression is a pattern of terms."""
MOST_CHARACTERS, MOST_DEPTH = 500, 40
"""Longest text, and most levels of brackets or powers: parsing stays within the stack."""

_Tree = tuple[Any, ...]
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*|#1?(?!\d))|(?P<sign>\*\*|<=|>=|[-+*/^(),<>\[\]]))"
)
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": operator.pow,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "^": 4}
MATH: dict[str, Callable[..., Any]] = {
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "sqrt": math.sqrt,
    "cbrt": lambda v: v ** (1 / 3),
    "exp": math.exp,
    "abs": abs,
    "min": min,
    "max": max,
}
"""The functions there are, on numbers; whoever has arrays passes a table of the same names."""
_ALIASES = {"ln": "log"}


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; equal ones have equal text, in which nothing superfluous stands."""

    text: str
    tree: _Tree

    @property
    def names(self) -> frozenset[str]:
        """Return the parameters it uses."""
        return frozenset(node[1] for node in _nodes(self.tree) if node[0] == "name")

    def value(
        self, values: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] = MATH
    ) -> Any:
        """Return the value at ``values``: numbers, or arrays if ``functions`` take them.

        Raises what arithmetic raises: ZeroDivisionError, ValueError, OverflowError.
        """
        return _value(self.tree, values, functions)

    def replaced(self, names: frozenset[str], substitute: str) -> Expression:
        """Return it with another parameter in the place of some."""
        return _expression_of(_with_substitute(self.tree, names, substitute))


@dataclass(frozen=True, slots=True)
class Condition:
    """Comparisons that all hold, like ``1 < x1 < x0``."""

    text: str
    parts: tuple[tuple[str, Expression, Expression], ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the parameters it uses."""
        return frozenset(n for _, a, b in self.parts for n in a.names | b.names)

    def holds(
        self, values: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] = MATH
    ) -> Any:
        """Tell whether it holds at ``values``; of arrays, where."""
        result: Any = True
        for sign, a, b in self.parts:
            holds = _COMPARISONS[sign](a.value(values, functions), b.value(values, functions))
            result = result & holds
        return result


def parse_expression(text: str) -> Expression:
    """Parse an expression. Raises InputError, which says where it ends to make sense."""
    parser = _Parser(text)
    tree = parser.sum()
    parser.end()
    return _expression_of(tree)


def parse_condition(text: str) -> Condition:
    """Parse comparisons, as many in a row as there are. Raises InputError."""
    parser = _Parser(text)
    sides, signs = [_expression_of(parser.sum())], []
    while parser.token in _COMPARISONS:
        signs.append(parser.take())
        sides.append(_expression_of(parser.sum()))
    parser.end()
    if not signs:
        raise InputError(f"{text!r} compares nothing", hint="write it like n > 5 or 1 < p < n")
    return Condition(text.strip(), tuple(zip(signs, sides, sides[1:], strict=False)))


def product(a: Expression, b: Expression) -> Expression:
    """Return a times b."""
    return _expression_of(("*", a.tree, b.tree))


def quotient(a: Expression, b: Expression) -> Expression:
    """Return a divided by b."""
    return _expression_of(("/", a.tree, b.tree))


class _Parser:
    """Recursive descent; every method reads from the token it stands at."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.kind, self.token = "", ""
        if len(text) > MOST_CHARACTERS:
            raise InputError(f"an expression has more than {MOST_CHARACTERS} characters")
        self._next_token()

    def _next_token(self) -> None:
        match = _TOKEN.match(self.text, self.at)
        if match is None or match.lastgroup is None:
            if self.text[self.at :].strip():
                self._refuse(self.text[self.at :].strip()[0])
            self.kind, self.token = "", ""
            return
        self.at, self.kind, self.token = match.end(), match.lastgroup, match[match.lastgroup]

    def _refuse(self, what: str) -> None:
        raise InputError(
            f"{self.text!r} is not an expression: {what!r} cannot stand there"
            if what
            else f"{self.text!r} is not an expression: its end is missing",
            hint="write it like n^2*log2(p)/threads",
        )

    def take(self) -> str:
        """Return the token and go on."""
        token = self.token
        self._next_token()
        return token

    def end(self) -> None:
        """Refuse what follows."""
        if self.token:
            self._refuse(self.token)

    def _left_associative(self, signs: tuple[str, ...], below: Callable[[], _Tree]) -> _Tree:
        tree = below()
        while self.token in signs and self.kind == "sign":
            tree = (self.take(), tree, below())
        return tree

    def sum(self) -> _Tree:
        """Read terms added."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise InputError(f"an expression has more than {MOST_DEPTH} brackets in each other")
        tree = self._left_associative(
            ("+", "-"), lambda: self._left_associative(("*", "/"), self._signed)
        )
        self.depth -= 1
        return tree

    def _signed(self) -> _Tree:
        signs = 0
        while self.token in ("-", "+") and self.kind == "sign":
            signs += self.take() == "-"
        tree = self._power()
        return ("neg", tree) if signs % 2 else tree

    def _power(self) -> _Tree:
        base = self._atom()
        if self.token not in ("^", "**"):
            return base
        self.take()
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise InputError(f"an expression has more than {MOST_DEPTH} powers in each other")
        tree = ("^", base, self._signed())
        self.depth -= 1
        return tree

    def _atom(self) -> _Tree:
        if self.kind == "number":
            return ("number", float(self.take()))
        if self.kind == "name":
            name = self.take()
            if self.token in ("(", "["):
                return self._call(name)
            return ("name", "#" if name.startswith("#") else name)
        if self.token != "(":
            self._refuse(self.token)
        self.take()
        tree = self.sum()
        self._close_bracket("(")
        return tree

    def _close_bracket(self, opened: str) -> None:
        if self.token != {"(": ")", "[": "]"}[opened]:
            self._refuse(self.token)
        self.take()

    def _call(self, function_name: str) -> _Tree:
        opened = self.take()
        arguments = [self.sum()]
        while self.token == ",":
            self.take()
            arguments.append(self.sum())
        self._close_bracket(opened)
        if function_name == "N" and len(arguments) == 1:
            return arguments[0]  # Mathematica's numeric value
        name = _ALIASES.get(function_name.lower(), function_name.lower())
        if name not in MATH:
            raise InputError(f"there is no function {function_name!r}", hint=suggestion(name, MATH))
        if name == "log" and len(arguments) == 2:  # base, then value, as Mathematica has it
            return ("/", ("call", name, arguments[1]), ("call", name, arguments[0]))
        if len(arguments) != 1 and name not in ("min", "max"):
            raise InputError(f"{function_name} takes one value, in {self.text!r}")
        return ("call", name, *arguments)


def _expression_of(tree: _Tree) -> Expression:
    return Expression(_text(tree), tree)


def _nodes(tree: _Tree) -> Iterator[_Tree]:
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from _nodes(part)


def _with_substitute(tree: _Tree, names: frozenset[str], substitute: str) -> _Tree:
    if tree[0] == "name":
        return ("name", substitute) if tree[1] in names else tree
    return tuple(
        _with_substitute(p, names, substitute) if isinstance(p, tuple) else p for p in tree
    )


def _value(
    tree: _Tree, values: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "name":
        return values[tree[1]]
    if kind == "call":
        return functions[tree[1]](*(_value(part, values, functions) for part in tree[2:]))
    if kind == "neg":
        return -_value(tree[1], values, functions)
    return _ARITHMETIC[kind](_value(tree[1], values, functions), _value(tree[2], values, functions))


def _text(tree: _Tree, outer: int = 0) -> str:
    """Return the shortest text; a compound that is divided keeps brackets: ``(n^2)/p``."""
    kind = tree[0]
    if kind == "number":
        return f"{tree[1]:.12g}"
    if kind == "name":
        return str(tree[1])
    if kind == "call":
        return f"{tree[1]}({','.join(_text(part) for part in tree[2:])})"
    binds = _BINDS[kind]
    if kind == "neg":
        text = f"-{_text(tree[1], binds)}"
    elif kind == "/":
        over = _text(tree[1])
        plain = tree[1][0] in ("number", "name", "call")
        text = f"{over if plain else f'({over})'}/{_text(tree[2], binds + 1)}"
    else:
        left_binds, right_binds = (
            (binds + 1, binds) if kind == "^" else (binds, binds + (kind == "-"))
        )
        text = f"{_text(tree[1], left_binds)}{kind}{_text(tree[2], right_binds)}"
    return f"({text})" if binds < outer else text
