"""YAML text to plain data that remembers the line of every key and item.

Every scalar stays the text it is written as, so that ``mode: off``, ``account: no``,
``user: 0123`` and ``5%`` reach the schema unharmed (YAML 1.1 would make the first two False and
the third 83). The schema then says which texts are numbers and which are true or false.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from advisor.policy.problems import Path, Problem, key_text

MAX_BYTES = 1_000_000
"""Largest file that is read; a policy has a few kilobytes."""
MAX_VALUES = 50_000
"""Values after aliases are resolved: more is an alias bomb, not a configuration."""
MAX_DEPTH = 20
"""Levels of nesting; deeper files are refused."""

_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "null", "bool", "int", "float", "timestamp", "value", "merge", "map", "seq")
)
_SYNTAX_HINTS = (
    ("mapping values are not allowed", "check the indentation; a value with ': ' needs quotes"),
    ("could not find expected ':'", "write 'key: value', with a blank after the colon"),
    ("cannot start any token", "a value that begins with % @ ` or a tab needs quotes or blanks"),
    ("expected <block end>", "check the indentation of this line and the one before"),
    ("undefined alias", 'a pattern that begins with * needs quotes, like "*wrf"'),
    ("alphabetic or numeric character", "a pattern that begins with * or & needs quotes"),
    ("expected a single document", "keep one document: remove the '---' line"),
    ("flow", "a [ or { is not closed, or a comma is missing"),
    ("quoted scalar", "a quote is not closed"),
    ("tag", "a value that begins with ! needs quotes"),
)


@dataclass(slots=True)
class Document:
    """A file's data (nested dict, list, str), the line of each path, and what was wrong."""

    path: str
    data: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of a path, else of the nearest enclosing one that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def report(self, path: Path, message: str, *, line: int = 0, **more: Any) -> None:
        """Add a problem at a path."""
        self.problems.append(
            Problem(self.path, line or self.line(path), key_text(path), message, **more)
        )


def decode(raw: bytes, path: str) -> tuple[str, list[Problem]]:
    """Return the text of a file's bytes, or a problem naming the line that is not UTF-8 text."""
    if len(raw) > MAX_BYTES:
        message = f"larger than {MAX_BYTES // 1_000_000} MB: not a configuration file"
        return "", [Problem(path, 0, "", message)]
    try:
        return raw.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8 text"
        return "", [Problem(path, line, "", what, "save the file as UTF-8")]


def parse(text: str, path: str) -> Document:
    """Return the document of a YAML text; syntax errors and duplicate keys are its problems."""
    document = Document(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        document.problems = _syntax_problems(error, text, path)
        return document
    except RecursionError:
        document.report((), "nested too deeply")
        return document
    if node is None:
        document.report((), "the file is empty", hint="it needs at least the line 'version: 1'")
        return document
    _Builder(document).build(node)
    return document


class _Builder:
    """Turns YAML nodes into plain data; problems on the way go into the document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.open: set[int] = set()
        self.values = 0

    def build(self, node: yaml.Node) -> None:
        try:
            self.document.data = self._value(node, ())
        except _TooLargeError as error:
            self.document.data = None
            self.document.report((), str(error))

    def _value(self, node: yaml.Node, path: Path) -> object:
        self.values += 1
        if self.values > MAX_VALUES:
            raise _TooLargeError(f"the aliases expand to more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            raise _TooLargeError("nested too deeply")
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _TAGS:
            tag = node.tag.removeprefix("tag:yaml.org,2002:")
            line = node.start_mark.line + 1
            hint = "remove it, or quote the value"
            self.document.report(path, f"the tag {tag!r} means nothing here", line=line, hint=hint)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self.open:
            line = node.start_mark.line + 1
            self.document.report(path, "an alias refers to itself", line=line)
            return ""
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            items = []
            for index, item in enumerate(node.value):
                self.document.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self._value(item, (*path, index)))
            return items
        finally:
            self.open.discard(id(node))

    @staticmethod
    def _scalar(node: yaml.ScalarNode) -> str | None:
        if node.tag == _NULL and node.style is None:
            return None
        return str(node.value)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        plain_values: dict[str, object] = {}
        merged: dict[str, object] = {}
        key_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE:
                for name, value in self._merged(value_node, path).items():
                    merged.setdefault(name, value)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.document.report(path, "a key must be plain text", line=line)
                continue
            key = str(key_node.value)
            key_path = (*path, key)
            if key in key_lines:
                self.document.report(
                    key_path,
                    f"given twice, first in line {key_lines[key]}",
                    line=line,
                    hint="keep one of the two",
                )
                continue
            key_lines[key] = line
            self.document.lines[key_path] = line
            plain_values[key] = self._value(value_node, key_path)
        self.document.lines.update({(*path, key): line for key, line in key_lines.items()})
        # What a mapping says itself goes before what it merges in.
        return {**merged, **plain_values}

    def _merged(self, node: yaml.Node, path: Path) -> dict[str, object]:
        """Return the keys a ``<<:`` brings in: one mapping, or a list of them, first wins."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, object] = {}
        for part in nodes:
            value = self._value(part, path) if isinstance(part, yaml.MappingNode) else None
            if not isinstance(value, dict):
                line = part.start_mark.line + 1
                self.document.report(path, "'<<' needs a mapping (an alias of one)", line=line)
                continue
            for name, item in value.items():
                merged.setdefault(name, item)
        return merged


class _TooLargeError(Exception):
    pass


def _syntax_problems(error: yaml.YAMLError, text: str, path: str) -> list[Problem]:
    """Return the parser's complaint, and every line indented with a tab."""
    tabs = [
        Problem(path, number, "", "indented with a tab", "YAML allows blanks only")
        for number, line in enumerate(text.splitlines(), 1)
        if "\t" in line[: len(line) - len(line.lstrip())] and line.strip()
    ]
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        far = ("end of stream", "stream end", "could not find expected")
        if error.context_mark and any(words in (error.problem or "") for words in far):
            mark = error.context_mark
        line = mark.line + 1 if mark else 0
        message = (error.problem or error.context or "").removeprefix("but ")
        description = f"{error.context or ''} {error.problem or ''}"
    else:
        position = getattr(error, "position", 0)
        line = text[:position].count("\n") + 1
        character = getattr(error, "character", "?")
        code = character if isinstance(character, int) else ord(str(character)[:1])
        message = description = f"a control character (code {code}) is not allowed"
    if any(p.line == line for p in tabs):
        return tabs
    hint = next((hint for part, hint in _SYNTAX_HINTS if part in description), "")
    return sorted(
        [*tabs, Problem(path, line, "", f"not YAML: {message}", hint)], key=lambda p: p.line
    )
