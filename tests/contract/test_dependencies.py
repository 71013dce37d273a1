"""What pyproject requires is imported, and what is imported is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions

from advisor.loop.health import IMPORTED
from advisor.paths import share

ROOT = share("config").parent
OWN = {"advisor", "advisor_tui", "db"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PARTS = {"pydantic-core"}
"""Halves of what is declared, in a version that the other half prescribes."""


def named(requirements: Iterable[str]) -> set[str]:
    """Return the distributions that requirements name, as pip writes them."""
    return {re.split(r"[<>=!~;\[ ]", text)[0].replace("_", "-").lower() for text in requirements}


def imported() -> dict[str, str]:
    """Return the distribution that each foreign top-level module of the package is from."""
    modules = set()
    for folder in ("advisor", "tui/advisor_tui", "db"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    modules |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    modules.add(node.module.split(".")[0])
    foreign = modules - OWN - sys.stdlib_module_names
    by_module = packages_distributions()
    return {m: named(by_module[m]).pop() for m in foreign}


def test_what_is_required_is_imported_and_what_is_imported_is_declared() -> None:
    required, optional = named(PROJECT["dependencies"]), named(EXTRAS["plot"] + EXTRAS["ml"])
    assert set(imported().values()) - PARTS == required | optional


def test_doctor_looks_for_what_is_declared() -> None:
    by_module = packages_distributions()
    required = {named(by_module[m]).pop() for m, package in IMPORTED.items() if not package}
    assert required == named(PROJECT["dependencies"])
    optional = {m: package for m, package in IMPORTED.items() if package}
    assert {m: {package} for m, package in optional.items()} == {
        m: named(by_module[m]) for m in optional
    }
    extras = [name for extra, names in EXTRAS.items() if extra != "dev" for name in names]
    assert set(optional.values()) == named(extras)
