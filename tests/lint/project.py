"""What the rules of `make lint` look at, and what they say of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CODE = ("advisor", "tui", "lab", "hooks", "db")
"""The folders of what is installed; the rules for our own code hold there."""


@dataclass(frozen=True)
class Violation:
    """Where a rule does not hold, as editors read it, and what to do."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Source:
    """One file by its name from the project's root on."""

    root: Path
    name: str

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.root / self.name

    @cached_property
    def text(self) -> str:
        """What the file holds."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of a module's syntax tree, the module first."""
        return tuple(ast.walk(ast.parse(self.text)))

    @property
    def body(self) -> list[ast.stmt]:
        """The statements of a module."""
        module = self.nodes[0]
        assert isinstance(module, ast.Module)
        return module.body

    def violation(self, line: int, what: str) -> Violation:
        """Return that a rule does not hold in a line of this file."""
        return Violation(self.name, line, what)

    def matches(self, pattern: str | re.Pattern[str], what: str) -> Iterator[Violation]:
        """Yield every match of a pattern in the text; ``{}`` in ``what`` is the match."""
        for match in re.finditer(pattern, self.text):
            line = self.text.count("\n", 0, match.start()) + 1
            yield self.violation(line, what.format(match[0]))

    def line_of(self, words: str) -> int:
        """Return the line where ``words`` begin, wherever the text breaks between them; else 1."""
        match = re.search(r"\s+".join(map(re.escape, words.split())), self.text)
        return self.text.count("\n", 0, match.start()) + 1 if match else 1


@dataclass(frozen=True)
class Project:
    """A tree of files; every file is read once, whatever many rules look at it."""

    root: Path
    _sources: dict[str, Source] = field(default_factory=dict)

    def source(self, path: Path) -> Source:
        """Return the file at ``path``, which is below the root."""
        name = path.relative_to(self.root).as_posix()
        return self._sources.setdefault(name, Source(self.root, name))

    def files(self, *folders: str, endings: tuple[str, ...] = (".py",)) -> list[Source]:
        """Return the files with these endings below some folders, by name."""
        paths = (p for folder in folders for p in (self.root / folder).rglob("*"))
        return [self.source(p) for p in sorted(set(paths)) if p.suffix in endings]


Rule = Callable[[Project], Iterator[Violation]]
