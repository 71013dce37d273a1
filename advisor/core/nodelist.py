"""Node lists as sites write them: the names in ``bdw[1-4,7],skl[001-012]``."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_NODES = 200_000
"""More names than any machine has nodes: a longer list is a typing mistake."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def expand(text: str) -> tuple[str, ...]:
    """Return the node names of a list, in the order written, each once.

    Ranges keep their zero padding (``n[08-11]``), may hold commas, and may occur several times
    in a name (``r[1-2]n[1-4]``). Raises ValueError for anything that is not a node list.
    """
    names: dict[str, None] = {}
    for word in _words(text):
        for name in _expand_word(word, text):
            if not _NAME.fullmatch(name):
                raise ValueError(f"not a node name: {name!r}")
            names[name] = None
            if len(names) > MAX_NODES:
                raise ValueError(f"{text[:60]!r} has more than {MAX_NODES} nodes")
    return tuple(names)


def _words(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {text!r}")
        if character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    if depth:
        raise ValueError(f"brackets do not match in {text!r}")
    if text[start:].strip() or start:
        yield text[start:].strip()


def _expand_word(word: str, text: str) -> Iterator[str]:
    if not word:
        raise ValueError(f"an empty name in {text!r}")
    head, bracket, rest = word.partition("[")
    if not bracket:
        yield head
        return
    inside, _, tail = rest.partition("]")
    tails = list(_expand_word(tail, text)) if tail else [""]
    for item in inside.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match:
            raise ValueError(f"not a range of numbers: {item!r} in {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"the range {item!r} in {text!r} runs backwards")
        # Before any name is made: n[1-9999999999] would fill the memory.
        if (last - first + 1) * len(tails) > MAX_NODES:
            raise ValueError(f"{text[:60]!r} has more than {MAX_NODES} nodes")
        for number in range(first, last + 1):
            for end in tails:
                yield f"{head}{number:0{len(match[1])}d}{end}"
