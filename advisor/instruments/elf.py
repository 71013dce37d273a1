"""The names of routines: from the symbol tables of ELF files, and as people write them."""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LOADED, _SYMBOLS, _DYNAMIC_SYMBOLS, _ROUTINES = 1, 2, 11, (2, 10)
_SEGMENT, _SECTION, _SYMBOL = (
    struct.Struct("<IIQQQQQQ"),
    struct.Struct("<IIQQQQIIQQ"),
    (struct.Struct("<IBBHQQ")),
)
_MOST_SYMBOLS = 2_000_000
"""Symbols read of one file; the largest programs have some hundred thousand."""
_CLONE = re.compile(r"(\.(_omp_fn|omp_outlined|isra|constprop|part|cold|lto_priv|extracted)\b.*)$")
"""What compilers append to the names of functions that they take out of another."""


def demangled(raws: Sequence[str]) -> list[str]:
    """Return names of C++ as they are written, where c++filt is installed; others as they are.

    What a compiler says of its copies of a routine is left out.
    """
    plain = [_CLONE.sub("", raw) for raw in raws]
    tool = shutil.which("c++filt")
    if tool is not None and any(raw.startswith("_Z") for raw in plain):
        process = subprocess.run(
            [tool, "-p"], input="\n".join(plain), capture_output=True, text=True, errors="replace"
        )
        lines = process.stdout.splitlines()
        plain = lines if len(lines) == len(plain) else plain
    return plain


@dataclass(slots=True)
class RoutineNames:
    """The routines of one file; empty where it is no 64-bit little-endian ELF file, or stripped.

    ``at`` takes an offset in the file and returns the routine there, "" where none is known.
    """

    path: Path
    _segments: list[tuple[int, int, int]] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)
    _routines: list[tuple[int, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            with self.path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with data:
                self._read_tables(data)
        except (OSError, ValueError, struct.error, IndexError):
            self._routines = []
        self._routines.sort()
        self._begins = [r[0] for r in self._routines]

    def _read_tables(self, data: mmap.mmap) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            return
        segments, sections = struct.unpack_from("<QQ", data, 32)
        segment_entry_b, count, section_entry_b, section_count = struct.unpack_from("<4H", data, 54)
        for i in range(count):
            kind, _, offset, address, _, size, *_ = _SEGMENT.unpack_from(
                data, segments + i * segment_entry_b
            )
            if kind == _LOADED:
                self._segments.append((offset, address, size))
        tables = [
            _SECTION.unpack_from(data, sections + i * section_entry_b) for i in range(section_count)
        ]
        symbol_tables = [t for t in tables if t[1] == _SYMBOLS] or [
            t for t in tables if t[1] == _DYNAMIC_SYMBOLS
        ]
        for table in symbol_tables:
            self._routines += _of_table(data, table, tables[table[6]])

    def at(self, offset: int) -> str:
        """Return the routine at an offset in the file, "" where none is known."""
        for begin, address, size in self._segments:
            if begin <= offset < begin + size:
                place = address + offset - begin
                number = bisect_right(self._begins, place) - 1
                if number >= 0:
                    start, length, name = self._routines[number]
                    # Symbols of assembler code often have no size.
                    if place < start + max(length, 1):
                        return name
        return ""


def _of_table(
    data: mmap.mmap, table: Sequence[int], names: Sequence[int]
) -> Iterator[tuple[int, int, str]]:
    """Yield address, size and name of the routines of a symbol table."""
    offset, size, texts = table[4], table[5], names[4]
    for symbol_offset in range(
        offset, offset + min(size, _MOST_SYMBOLS * _SYMBOL.size), _SYMBOL.size
    ):
        name, info, _, section, address, length = _SYMBOL.unpack_from(data, symbol_offset)
        if info & 15 in _ROUTINES and section and length:
            begin = texts + name
            yield address, length, data[begin : data.find(b"\0", begin)].decode(errors="replace")
