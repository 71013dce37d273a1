"""Names for addresses in programs: functions and source lines, by binutils' addr2line."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_CLONE = re.compile(r"(\.(_omp_fn|omp_outlined|isra|constprop|part|cold|lto_priv|extracted)\b.*)$")


@dataclass(frozen=True, slots=True)
class Symbol:
    """What lies at an address: the linker's name, the function as people write it, the line.

    ``raw`` and ``function`` are "" and ``line`` is 0 where they are not known.
    """

    raw: str = ""
    function: str = ""
    source: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """``file.c:12``, "" when not known."""
        return f"{Path(self.source).name}:{self.line}" if self.line else ""


def look_up(file: Path, offsets: Iterable[int]) -> Mapping[int, Symbol]:
    """Return the symbol at each offset of a program; all unknown without addr2line."""
    wanted = sorted(set(offsets))
    tool = shutil.which("addr2line")
    if tool is None or not wanted or not file.is_file():
        return {}
    done = subprocess.run(
        [tool, "-f", "-e", str(file)],
        input="\n".join(map(hex, wanted)),
        capture_output=True,
        text=True,
        errors="replace",
    )
    lines = done.stdout.splitlines()
    if len(lines) != 2 * len(wanted):
        return {}
    raws = [name.partition(" ")[0] if name != "??" else "" for name in lines[::2]]
    pretty = _demangled(raws)
    symbols = {}
    for offset, raw, function, place in zip(wanted, raws, pretty, lines[1::2], strict=True):
        source, _, rest = place.rpartition(":")
        number = rest.split(" ")[0]
        known = number.isdecimal() and source not in ("", "??")
        place_of = (source, int(number)) if known else ("", 0)
        symbols[offset] = Symbol(raw, function, *place_of)
    return symbols


def _demangled(raws: list[str]) -> list[str]:
    plain = [_CLONE.sub("", raw) for raw in raws]
    tool = shutil.which("c++filt")
    if tool is not None and any(raw.startswith("_Z") for raw in plain):
        done = subprocess.run(
            [tool, "-p"], input="\n".join(plain), capture_output=True, text=True, errors="replace"
        )
        lines = done.stdout.splitlines()
        plain = lines if len(lines) == len(plain) else plain
    return plain
