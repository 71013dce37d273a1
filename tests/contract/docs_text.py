"""What the hand-written pages say, as data: code, commands, words in backticks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


def pages(root: Path) -> list[Path]:
    """Return the pages that people write; docs/cli.md and docs/reference are generated."""
    readme = (path for path in (root / "README.md",) if path.exists())
    return sorted(p for p in (*readme, *(root / "docs").glob("*.md")) if p.stem != "cli")


PAGES = pages(ROOT)


@dataclass(frozen=True, slots=True)
class Command:
    """``advisor ...`` in a page's ``line``; ``whole``: in a block, so that it can be pasted."""

    line: str
    words: tuple[str, ...]
    whole: bool


def inline(text: str) -> list[str]:
    """Return what stands in backticks, line breaks as blanks."""
    prose = re.sub(r"^    .*$", "", _FENCE.sub("", text), flags=re.MULTILINE)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]


def block_lines(text: str) -> Iterator[str]:
    """Yield the commands' lines of all blocks: those after a ``$`` where a block has such."""
    for fence in _FENCE.findall(text):
        lines = fence.splitlines()[1:-1]
        typed = [line for line in lines if line.startswith("$ ")]
        yield from (line.removeprefix("$ ") for line in typed or lines if line[:1] != " ")
    yield from re.findall(r"^    (\S.*)$", _FENCE.sub("", text), re.MULTILINE)


def commands(page: Path) -> Iterator[Command]:
    """Yield every ``advisor ...`` of a page."""
    text = page.read_text(encoding="utf-8")
    for whole, lines in ((False, inline(text)), (True, block_lines(text))):
        for line in lines:
            words = _words(line)
            while words and _ASSIGNMENT.fullmatch(words[0]):
                words = words[1:]
            if words[:1] in (["srun"], ["sudo"]) and "advisor" in words:
                words = words[words.index("advisor") :]
            if words[:1] == ["advisor"]:
                yield Command(line, tuple(words[1:]), whole)


def _words(line: str) -> list[str]:
    command = re.split(r"\s{3,}|\s[|>]\s", line)[0]  # then comes an explanation, or a pipe
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()
