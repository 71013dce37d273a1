"""The program uses no private name of Textual's, which any release may change."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import advisor_tui
import pytest
import textual

FOLDER = Path(advisor_tui.__file__).parent


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def names(path: Path) -> tuple[set[str], set[str]]:
    """Return the private names that a module defines, and those that it uses."""
    defined, used = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                defined.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) | ast.alias(name=name):
                used.add(name)
    return {n for n in defined if private(n)}, {n for n in used if private(n)}


@cache
def of_textual() -> set[str]:
    """Return all private names that Textual defines."""
    folder = Path(textual.__file__).parent
    return set().union(*(names(path)[0] for path in folder.rglob("*.py")))


MODULES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_uses_a_private_name_that_is_not_its_own(path: Path) -> None:
    defined, used = names(path)
    own = set().union(*(names(module)[0] for module in MODULES))
    assert (used - defined - own) & (of_textual() - {"_", "_exit"}) == set()


def classes() -> Iterator[type]:
    for module in pkgutil.iter_modules([str(FOLDER)]):
        for _, kind in inspect.getmembers(
            importlib.import_module(f"advisor_tui.{module.name}"), inspect.isclass
        ):
            if kind.__module__ == f"advisor_tui.{module.name}":
                yield kind


def test_no_class_overrides_a_private_name_of_its_base() -> None:
    for kind in classes():
        bases = [b for b in kind.__mro__ if b.__module__.startswith("textual.")]
        inherited = {n for b in bases for n in (*vars(b), *stored(b)) if private(n)}
        own = {n for n in (*vars(kind), *stored(kind)) if private(n)}
        assert own & inherited - MADE_BY_TEXTUAL == set(), kind


MADE_BY_TEXTUAL = {
    *(
        "_css_bases",
        "_css_type_name",
        "_css_type_names",
        "_decorated_handlers",
        "_inherit_bindings",
    ),
    *("_inherit_component_classes", "_inherit_css", "_merged_bindings", "_reactives"),
    *("_computes", "_abc_impl"),
}
"""What making a class of a widget writes into it."""


@cache
def stored(kind: type) -> set[str]:
    """Return the attributes that a class's own methods assign to ``self``."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
