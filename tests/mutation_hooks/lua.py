"""Mutants of a Lua source: what a slip of the pen could have made of it, one at a time."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

from tests.mutation_hooks.mutants import Mutant, unique

TOKEN = re.compile(
    r"(?P<comment>--[^\n]*)|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<number>\b\d+(?:\.\d+)?(?:e\d+)?\b)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>\.\.\.?|==|~=|<=|>=|[-+*/%<>])"
)
SWAPPED = {
    "==": ("~=",),
    "~=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("*",),
    "and": ("or",),
    "or": ("and",),
    "not": ("",),
    "true": ("false",),
    "false": ("true",),
    "min": ("max",),
    "max": ("min",),
    "floor": ("ceil",),
    "ceil": ("floor",),
    "pcall": ("(function(f, ...) return true, f(...) end)",),
    "break": ("",),
}
MESSAGE = re.compile(r"[a-z] [a-z%]|^. [a-z]")
"""Texts that people read."""


def mutants(text: str) -> Iterator[Mutant]:
    """Yield the mutants of a source that still compile."""
    yield from (m for m in unique(text, _all(text)) if _compiles(m.text))


def _all(text: str) -> Iterator[Mutant]:
    tokens = [m for m in TOKEN.finditer(text) if m.lastgroup != "comment"]
    for token in tokens:
        for new in _instead(token):
            yield Mutant.of(text, token.start(), token.end(), new)
    for index, token in enumerate(tokens):
        if token[0] in ("if", "elseif", "while"):
            end = next(t for t in tokens[index:] if t[0] in ("then", "do"))
            condition = text[token.end() : end.start()].strip()
            for always in ("true", "false"):
                if token[0] != "while" or always == "false":
                    yield Mutant.of(text, token.end(), end.start(), f" {always} ", condition)
    at = 0
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if stripped and not stripped.startswith(("--", "end", "else", "local function")):
            yield Mutant.of(text, at, at + len(line), "\n")
        at += len(line)


def _instead(token: re.Match[str]) -> Iterator[str]:
    word = token[0]
    if token.lastgroup == "number":
        yield f"{word} + 1" if "." in word or "e" in word else str(int(word) + 1)
        if word != "0":
            yield f"({word} - 1)"
    elif token.lastgroup == "string" and not MESSAGE.search(word):
        inner = word[1:-1]
        yield word[0] + (inner[:-1] if inner.endswith("$") else inner + "~") + word[0]
        if inner.startswith("^"):
            yield word[0] + inner[1:] + word[0]
    else:
        yield from SWAPPED.get(word, ())


def _compiles(text: str) -> bool:
    compiler = next(c for v in ("5.1", "5.3", "5.4") if (c := shutil.which(f"luac{v}")))
    done = subprocess.run([compiler, "-p", "-"], input=text.encode(), capture_output=True)
    return done.returncode == 0
