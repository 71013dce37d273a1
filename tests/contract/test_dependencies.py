"""What pyproject requires is imported, and what is imported is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from typing import Any, get_args

import advisor_lab
from advisor import __version__, laboratory, plugins
from advisor.loop.health import IMPORTED
from advisor.paths import share

ROOT = share("config").parent
OWN = {"advisor", "advisor_tui", "advisor_lab", "db"}


def project(folder: str) -> dict[str, Any]:
    """Return what a distribution's pyproject says of it."""
    text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = tomllib.loads(text)["project"]
    return data


PROJECT = project("")
EXTRAS = PROJECT["optional-dependencies"]
PARTS = {"pydantic-core"}
"""Halves of what is declared, in a version that the other half prescribes."""


def named(requirements: Iterable[str]) -> set[str]:
    """Return the distributions that requirements name, as pip writes them."""
    return {re.split(r"[<>=!~;\[ ]", text)[0].replace("_", "-").lower() for text in requirements}


def imported(*folders: str) -> dict[str, str]:
    """Return the distribution that each foreign top-level module of these folders is from."""
    modules = set()
    for folder in folders:
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
    required, optional = (
        named(PROJECT["dependencies"]),
        named(
            EXTRAS["tui"]
            + EXTRAS["plot"]
            + EXTRAS["ml"]
            + EXTRAS["nvml"]
            + EXTRAS["postgresql"]
            + EXTRAS["dask"]
            + EXTRAS["history"]
        ),
    )
    packages = imported("advisor", "tui/advisor_tui", "db")
    assert set(packages.values()) - PARTS == required | optional


def test_the_laboratory_requires_what_it_imports_and_this_very_version_of_the_advisor() -> None:
    lab = project("lab")
    assert advisor_lab.__version__ == __version__
    assert f"hpc-advisor=={__version__}" in lab["dependencies"]
    packages = set(imported("lab/advisor_lab").values())
    assert packages - {"textual"} == named(lab["dependencies"]) - {"hpc-advisor"}
    assert EXTRAS["lab"] == [lab["name"]]


def test_what_the_advisor_says_of_the_laboratory_is_what_it_registers() -> None:
    registered = project("lab")["entry-points"]
    assert list(registered["advisor.verbs"]) == list(laboratory.VERBS)
    assert list(registered["advisor.importers"]) == list(laboratory.IMPORTERS)
    assert list(registered["advisor.models"]) == list(laboratory.MODELS)
    assert list(registered["advisor.panels"]) == list(laboratory.PANELS)
    assert list(registered["advisor.after_run"]) == list(laboratory.AFTER_RUN)
    assert {f"advisor.{kind}" for kind in get_args(plugins.PluginKind)} >= set(registered)


def test_doctor_looks_for_what_is_declared() -> None:
    by_module = packages_distributions()
    required = {named(by_module[m]).pop() for m, package in IMPORTED.items() if not package}
    assert required == named(PROJECT["dependencies"])
    optional = {m: package for m, package in IMPORTED.items() if package}
    assert {m: {package} for m, package in optional.items()} == {
        m: named(by_module[m]) for m in optional
    }
    others = {"dev", "lab", "site"}  # of who works on it, and another distribution
    extras = [n for extra, names in EXTRAS.items() if extra not in others for n in names]
    assert set(optional.values()) == named(extras)
