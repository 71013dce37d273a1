"""Read measured runs from a CSV file, and say every mistake in it at once."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation, Quality, Scope
from advisor.core.units import parse_freq_khz
from advisor.errors import InputError

REQUIRED = (
    "nodes",
    "ranks_per_node",
    "threads_per_node",
    "freq_khz",
    "time_s",
    "energy_j",
)
OPTIONAL = ("fom",)
_T = TypeVar("_T")
_SHOWN = 100
_COUNT_LIMIT = 10_000_000
_FREQ_KHZ = (100_000, 10_000_000)
"""Caps outside of this are a mistake of unit (MHz, Hz, GHz), not a frequency."""


@dataclass(frozen=True, slots=True)
class RowProblem:
    """One mistake in a file: its line, its column (or empty) and what is wrong."""

    line: int
    column: str
    message: str

    def __str__(self) -> str:
        place = f"line {self.line}, {self.column}" if self.column else f"line {self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every run of a file: where it ran, whose it is, how it was measured."""

    node_type: str
    contributor: str
    account: str = ""
    scope: Scope = "own"
    energy_quality: Quality = "measured"
    meter: str = ""


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A file's runs, the extra columns kept with each, and the file's SHA-256."""

    observations: tuple[Observation, ...]
    extra_columns: tuple[str, ...]
    sha256: str


def read_csv(path: Path, terms: Terms) -> CsvFile:
    """Read measured runs from a CSV file.

    Columns nodes, ranks_per_node, threads_per_node, freq_khz (kHz, 0 where no cap can be set),
    time_s (s), energy_j (J over all nodes; blank or 0: not measured), optional fom (a rate); all
    others are kept as extra. Raises InputError that lists every mistake by line and column.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    problems: list[RowProblem] = []
    runs: list[Observation] = []
    table = _Table(path, _decode(path, content))
    for line, cells in table:
        reader = _Row(line, cells, problems)
        run = reader.observation(terms, table.extra)
        if run is not None:
            runs.append(run)
    problems += table.problems
    if problems:
        raise InputError(listing(path, sorted(problems, key=lambda p: p.line)))
    if not runs:
        raise InputError(f"{path}: there are no runs in it, only a header")
    return CsvFile(tuple(runs), table.extra, hashlib.sha256(content).hexdigest())


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8",
            hint="save the file as UTF-8 text",
        ) from None


def listing(path: Path, problems: list[RowProblem]) -> str:
    """Return a file's mistakes as lines for people."""
    count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    lines = [f"{path}: {count}, nothing was imported"]
    lines += [f"  {problem}" for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"  and {len(problems) - _SHOWN} more")
    return "\n".join(lines)


class _Table:
    """The rows of a CSV text by column name, each with the line it starts on."""

    def __init__(self, path: Path, text: str) -> None:
        self.problems: list[RowProblem] = []
        self._path = path
        self._reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        self._header_line, header = self._header(text)
        self._names = [name.strip() for name in header]
        self._check_header()
        self.extra = tuple(
            name for name in self._names if name and name not in (*REQUIRED, *OPTIONAL)
        )

    def __iter__(self) -> Iterator[tuple[int, dict[str, str]]]:
        for line, cells in self._lines():
            if len(cells) != len(self._names):
                message = f"{len(cells)} cells, but the header has {len(self._names)} columns"
                self.problems.append(RowProblem(line, "", message))
                continue
            yield line, dict(zip(self._names, map(str.strip, cells), strict=True))

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        while True:
            line = self._reader.line_num + 1
            try:
                cells = next(self._reader, None)
            except csv.Error as error:
                self.problems.append(RowProblem(line, "", f"not CSV: {error}"))
                return
            if cells is None:
                return
            if any(cell.strip() for cell in cells):
                yield line, cells

    def _header(self, text: str) -> tuple[int, list[str]]:
        line, cells = next(self._lines(), (0, []))
        if self.problems:
            raise InputError(listing(self._path, self.problems))
        if not cells:
            raise InputError(
                f"{self._path} is empty", hint=f"the first line names columns: {_names(REQUIRED)}"
            )
        if len(cells) == 1 or not set(map(str.strip, cells)) & set(REQUIRED):
            first = text.lstrip().partition("\n")[0]
            for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
                if first.count(mark) > first.count(","):
                    raise InputError(
                        f"{self._path}, line {line}: columns are separated by {name}, not commas",
                        hint="export as CSV with commas, and with points in decimal numbers",
                    )
        return line, cells

    def _check_header(self) -> None:
        missing = [name for name in REQUIRED if name not in self._names]
        twice = {name for name in self._names if name and self._names.count(name) > 1}
        found = [
            RowProblem(self._header_line, name, "column given twice") for name in sorted(twice)
        ]
        for name in missing:
            unknown = [n for n in self._names if n not in (*REQUIRED, *OPTIONAL)]
            near = difflib.get_close_matches(name, unknown, 1, 0.7) or [
                n for n in unknown if n.lower() == name
            ]
            hint = f"; is it {near[0]!r}?" if near else ""
            found.append(RowProblem(self._header_line, name, f"column is missing{hint}"))
        if found:
            raise InputError(listing(self._path, found), hint=f"the columns are {_names(REQUIRED)}")


class _Row:
    """One row being read; what is wrong goes to ``problems``."""

    def __init__(self, line: int, cells: dict[str, str], problems: list[RowProblem]) -> None:
        self._line, self._cells, self._problems = line, cells, problems
        self._before = len(problems)

    def observation(self, terms: Terms, extra: tuple[str, ...]) -> Observation | None:
        """Return the row's run, or None when something is wrong with it."""
        nodes = self._read("nodes", _count)
        ranks = self._read("ranks_per_node", _count)
        threads = self._read("threads_per_node", _count)
        freq = self._read("freq_khz", _freq)
        time_s = self._read("time_s", _positive)
        energy_j = self._read("energy_j", _energy)
        fom = self._read("fom", _fom)
        if ranks and threads and threads < ranks:
            message = f"{threads} is less than the {ranks} ranks per node; count ranks x threads"
            self._problem("threads_per_node", message)
        stated = self._cells.get("node_type", "")
        if stated and stated != terms.node_type:
            self._problem("node_type", f"{stated!r}, but --node-type says {terms.node_type!r}")
        if len(self._problems) > self._before:
            return None
        assert nodes and ranks and threads and freq is not None and time_s
        return Observation(
            Configuration(terms.node_type, nodes, ranks, threads, freq),
            time_s,
            energy_j,
            fom,
            "missing" if energy_j is None else terms.energy_quality,
            "" if energy_j is None else terms.meter,
            "import",
            terms.contributor,
            terms.account,
            terms.scope,
            "",
            {name: _plain(self._cells[name]) for name in extra if name != "node_type"},
        )

    def _read(self, column: str, parse: Callable[[str], _T]) -> _T | None:
        try:
            return parse(self._cells.get(column, ""))
        except ValueError as error:
            self._problem(column, str(error))
            return None

    def _problem(self, column: str, message: str) -> None:
        self._problems.append(RowProblem(self._line, column, message))


def _number(text: str) -> float:
    if not text:
        raise ValueError("is blank")
    try:
        value = float(text if "_" not in text else "no number")
    except ValueError:
        if text.count(",") == 1 and text.replace(",", "").replace("-", "").isdecimal():
            raise ValueError(f"{text!r} has a decimal comma; write a point") from None
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def _count(text: str) -> int:
    value = _number(text)
    if value != int(value) or value < 1:
        raise ValueError(f"{text!r} is not a whole number from 1 up")
    if value > _COUNT_LIMIT:
        raise ValueError(f"{text!r} is too large")
    return int(value)


def _freq(text: str) -> int:
    if not text:
        raise ValueError("is blank; write 0 where no cap can be set")
    try:
        value: float = parse_freq_khz(text)
    except ValueError:
        value = _number(text)  # says what is wrong, or reads 1.2e6
    if value and not _FREQ_KHZ[0] <= value <= _FREQ_KHZ[1]:
        raise ValueError(f"{text!r} is no frequency in kHz; 1.9 GHz is 1900000")
    return round(value)


def _positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise ValueError(f"{text!r} is not above 0")
    return value


def _energy(text: str) -> float | None:
    if not text:
        return None
    value = _number(text)
    if value < 0:
        raise ValueError(f"{text!r} is negative; leave it blank when it was not measured")
    return value or None


def _fom(text: str) -> float | None:
    return _positive(text) if text else None


def _plain(text: str) -> object:
    """Return an extra cell as the number it plainly is, else as text."""
    try:
        number = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return text
        return value if math.isfinite(value) else text
    return number if str(number) == text else text


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)
