"""Node lists as sites write them: ``bdw[1-4,7],skl[001-012]`` to names and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MAX_NODES = 200_000
"""More names than any machine has nodes: a longer list is a typing mistake."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_TAIL = re.compile(r"(.*?)(\d+)")


def expand(text: str) -> tuple[str, ...]:
    """Return the node names of a list, in the order written, each once.

    Ranges keep their zero padding (``n[08-11]``), may hold commas, and may occur several times
    in a name (``r[1-2]n[1-4]``). Raises ValueError for anything that is not a node list.
    """
    found: dict[str, None] = {}
    for word in _words(text):
        for name in _expand_word(word, text):
            if not _NAME.fullmatch(name):
                raise ValueError(f"not a node name: {name!r}")
            found[name] = None
            if len(found) > MAX_NODES:
                raise ValueError(f"{text[:60]!r} has more than {MAX_NODES} nodes")
    return tuple(found)


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
        if (last - first + 1) * len(tails) > MAX_NODES:
            raise ValueError(f"{text[:60]!r} has more than {MAX_NODES} nodes")
        for number in range(first, last + 1):
            for end in tails:
                yield f"{head}{number:0{len(match[1])}d}{end}"


def fold(names: Iterable[str]) -> str:
    """Return names as a short list, ``bdw[1-4,7]``: the last number of each name is folded."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in sorted(set(names)):
        match = _TAIL.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        digits = match[2]
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        groups.setdefault((match[1], width), []).append(int(digits))
    _adopt_padded(groups)
    parts = [
        f"{prefix}{_bracket(sorted(numbers), width)}"
        for (prefix, width), numbers in sorted(groups.items())
    ]
    return ",".join(plain + parts)


def _adopt_padded(groups: dict[tuple[str, int], list[int]]) -> None:
    """Move ``10`` beside ``08``: a number as wide as its padded neighbours needs no padding."""
    for prefix, width in [key for key in groups if key[1]]:
        unpadded = groups.get((prefix, 0), [])
        groups[prefix, width] += [n for n in unpadded if len(str(n)) == width]
        groups[prefix, 0] = [n for n in unpadded if len(str(n)) != width]
        if not groups[prefix, 0]:
            del groups[prefix, 0]


def _bracket(numbers: list[int], width: int) -> str:
    if len(numbers) == 1:
        return f"{numbers[0]:0{width}d}"
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    texts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs]
    return f"[{','.join(texts)}]"
