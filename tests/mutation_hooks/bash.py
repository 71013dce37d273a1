"""Mutants of a bash source: what a slip of the pen could have made of it, one at a time."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

from tests.mutation_hooks.mutants import Mutant, unique

TOKEN = re.compile(
    r"(?P<comment>(?<!\S)#[^\n]*)|(?P<number>(?<![\w$.{}/&-])\d+(?![\w}>#-]))|(?P<end>[$](?= ))"
    r"|(?P<operator>&&|\|\||[!=]=|<=|>=|(?<= )[<>](?= [A-Za-z])|(?<=[\[ ])!(?= ))"
)
SWAPPED = {
    "&&": ("||",),
    "||": ("&&",),
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "!": ("",),
    "$": ("",),
}
CONDITION = re.compile(r"\[\[ .*? \]\](?=[ \n;])|(?<!\$)(?<!for )\(\(.*?\)\)(?=[ \n;])")
"""Not what is calculated, and no loop's head."""
STATEMENT = re.compile(r"^[ ]+\S[^\n]*|^\w[^\n]*", re.MULTILINE)
STRUCTURE = re.compile(r"#|(?:if|for|while|case|do|done|esac|fi|else|then)\b|[}]|;;|\w+\(\) \{")


def mutants(text: str) -> Iterator[Mutant]:
    """Yield the mutants of a source that bash still reads."""
    yield from (m for m in unique(text, _all(text)) if _is_read(m.text))


def _all(text: str) -> Iterator[Mutant]:
    for token in TOKEN.finditer(text):
        for new in _instead(token):
            yield Mutant.of(text, token.start(), token.end(), new)
    for condition in CONDITION.finditer(text):
        for always in ("true", "false"):
            yield Mutant.of(text, condition.start(), condition.end(), always)
    for statement in STATEMENT.finditer(text):
        if not STRUCTURE.match(statement[0].strip()):
            yield Mutant.of(text, statement.start(), statement.end(), ":")


def _instead(token: re.Match[str]) -> Iterator[str]:
    word = token[0]
    if token.lastgroup == "number":
        yield str(int(word) + 1)
        if word != "0":
            yield str(int(word) - 1)
    elif token.lastgroup != "comment":
        yield from SWAPPED.get(word, ())


def _is_read(text: str) -> bool:
    done = subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False)
    return done.returncode == 0
