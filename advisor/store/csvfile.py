"""Read measured runs from a CSV file, and say every mistake in it at once."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from advisor.core.axes import AXES, Axis, Extra
from advisor.core.configuration import Configuration
from advisor.core.observation import GPU_ENERGY, Observation, Quality, Scope
from advisor.core.units import format_count, parse_freq_khz
from advisor.errors import InputError

REQUIRED = ("nodes", "ranks_per_node", "threads_per_node", "freq_khz", "time_s", "energy_j")
OPTIONAL = ("fom",)
_SHOWN, _COUNT_LIMIT = 100, 10_000_000
"""Mistakes that are listed; more nodes, ranks or threads than this are a mistake."""
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

    def run(
        self,
        place: tuple[int, int, int, int],
        time_s: float,
        energy_j: float | None,
        fom: float | None,
        extra: Mapping[str, object],
        axes: Extra = (),
    ) -> Observation:
        """Return one run; ``place`` is nodes, ranks and threads per node, kHz."""
        return Observation(
            Configuration(self.node_type, *place, axes),
            time_s,
            energy_j,
            fom,
            "missing" if energy_j is None else self.energy_quality,
            "" if energy_j is None else self.meter,
            "import",
            self.contributor,
            self.account,
            self.scope,
            "",
            extra,
        )


@dataclass(frozen=True, slots=True)
class RunsFile:
    """A file's runs, the extra columns kept with each, and the file's SHA-256."""

    observations: tuple[Observation, ...]
    extra_columns: tuple[str, ...]
    sha256: str


Parsed = TypeVar("Parsed")

ReadStep = Callable[[int, int], None]
"""Called now and then with how many rows are read, and of how many (0: not known yet)."""
_EACH = 2000
"""Rows between two calls."""


def _no_step(rows: int, total: int) -> None:
    """Nobody looks."""


def read_csv(path: Path, terms: Terms, step: ReadStep = _no_step) -> RunsFile:
    """Read measured runs from a CSV file.

    Columns nodes, ranks_per_node, threads_per_node, freq_khz (kHz, 0 where no cap can be set),
    time_s (s), energy_j (J over all nodes; blank or 0: not measured), optional fom (a rate), and
    the further axes of :data:`advisor.core.axes.AXES` (blank or 0: not set); all
    others are kept as extra. Raises InputError that lists every mistake by line and column.
    """
    table = read_table(path, step)
    _check_header(path, table)
    problems = table.problems
    columns = {name: table.parsed(name, parse) for name, parse in _PARSERS.items()}
    pairs = zip(columns["ranks_per_node"], columns["threads_per_node"], strict=True)
    for line, (ranks, threads) in zip(table.rows, pairs, strict=True):
        if isinstance(ranks, int) and isinstance(threads, int) and threads < ranks:
            message = f"{threads} is less than the {ranks} ranks per node; count ranks x threads"
            problems.append(RowProblem(line, "threads_per_node", message))
    names = [n for n in table.names if n and n not in _PARSERS]
    if "node_type" in names:
        table.parsed("node_type", partial(_own_node_type, terms.node_type))
    axes = {n: table.parsed(n, partial(_axis_value, AXES[n])) for n in sorted(AXES) if n in names}
    gpu_energies = table.parsed(GPU_ENERGY, _energy_value) if GPU_ENERGY in names else []
    if problems:
        raise InputError(listing(path, problems))
    if not table.rows:
        raise InputError(f"{path}: there are no runs in it, only a header")
    extra = [n for n in names if n not in ("node_type", GPU_ENERGY, *axes)]
    columns |= {n: table.parsed(n, _plain) for n in extra}
    runs = []
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        if number % _EACH == 0:
            step(number, len(table.rows))
        more = dict(zip(extra, row[7:], strict=True))
        if gpu_energies and (gpu_j := gpu_energies[number]):
            more[GPU_ENERGY] = gpu_j
        further = tuple((n, v) for n, values in axes.items() if (v := values[number]))
        runs.append(terms.run(row[:4], row[4], row[5], row[6], more, further))
    return RunsFile(tuple(runs), tuple(n for n in names if n not in axes), table.sha256)


def one_program(path: Path, runs: RunsFile) -> RunsFile:
    """Return what was read if it is of one program. Raises InputError for a file of several."""
    for column in ("application", "workload"):
        names = sorted({str(o.extra.get(column, "")) for o in runs.observations})
        if len(names) > 1:
            some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            raise InputError(
                f"{path}: the runs are of {len(names)} different ones by their column {column} "
                f"({some}), and no model holds for several",
                hint="make a file of the rows of each",
            )
    return runs


@dataclass(frozen=True, slots=True)
class TextTable:
    """A CSV file as text: the cells of each row, as many as ``names``, by the line it starts on.

    Rows of another length than the header are only in ``problems``.
    """

    names: list[str]
    rows: dict[int, list[str]]
    header_line: int
    problems: list[RowProblem]
    sha256: str

    def parsed(self, name: str, parse: Callable[[str], Parsed]) -> list[Parsed | None]:
        """Return a column's cells, parsed; an optional column that is not there is blank.

        Where ``parse`` raises ValueError the mistake is added, and the cell is None.
        """
        place = self.names.index(name) if name in self.names else None
        cells = ["" if place is None else row[place] for row in self.rows.values()]
        values: dict[str, Parsed] = {}
        mistakes: dict[str, str] = {}
        for text in set(cells):
            try:
                values[text] = parse(text.strip())
            except ValueError as error:
                mistakes[text] = str(error)
        if mistakes:
            self.problems.extend(
                RowProblem(line, name, mistakes[text])
                for line, text in zip(self.rows, cells, strict=True)
                if text in mistakes
            )
        return list(map(values.get, cells))


def read_table(path: Path, step: ReadStep = _no_step) -> TextTable:
    """Read a CSV file with a header; blank lines do not count. ``step``: see :data:`ReadStep`.

    Raises InputError where it cannot be read, is empty, or is not CSV in UTF-8.
    """
    content = read_bytes(path)
    reader = csv.reader(io.StringIO(_decode(path, content), newline=""), strict=True)
    line = 1
    rows: dict[int, list[str]] = {}
    try:
        for cells in reader:
            if "".join(cells).strip():
                rows[line] = cells
                if len(rows) % _EACH == 0:
                    step(len(rows), 0)
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {line}: not CSV: {error}") from None
    if not rows:
        raise InputError(f"{path} is empty", hint="the first line names the columns")
    header_line = next(iter(rows))
    names = [name.strip() for name in rows.pop(header_line)]
    uneven = [line for line, cells in rows.items() if len(cells) != len(names)]
    problems = [
        RowProblem(
            line, "", f"{len(rows.pop(line))} cells, but the header has {len(names)} columns"
        )
        for line in uneven
    ]
    return TextTable(names, rows, header_line, problems, hashlib.sha256(content).hexdigest())


def read_bytes(path: Path) -> bytes:
    """Return a file's content. Raises InputError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8 text",
            hint="save the file as UTF-8 text",
        ) from None


def listing(path: Path, problems: list[RowProblem]) -> str:
    """Return a file's mistakes, by line, as lines for people."""
    count = format_count(len(problems), "mistake")
    lines = [f"{path}: {count}, nothing was imported"]
    lines += [f"  {problem}" for problem in sorted(problems, key=lambda p: p.line)[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"  and {len(problems) - _SHOWN} more")
    return "\n".join(lines)


def _check_header(path: Path, table: TextTable) -> None:
    names = table.names
    if len(names) == 1 or not set(names) & set(REQUIRED):
        first = ",".join(names)
        for mark, mark_name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if first.count(mark) > first.count(","):
                raise InputError(
                    f"{path}, line {table.header_line}: columns are separated by {mark_name}, "
                    "not commas",
                    hint="export as CSV with commas, and with points in decimal numbers",
                )
    wrong = {name: "column given twice" for name in sorted(names) if name and names.count(name) > 1}
    unknown = [name for name in names if name not in (*REQUIRED, *OPTIONAL)]
    for name in REQUIRED:
        if name not in names:
            near = difflib.get_close_matches(name, unknown, 1, 0.7) or [
                n for n in unknown if n.lower() == name
            ]
            wrong[name] = "column is missing" + (f"; is it {near[0]!r}?" if near else "")
    if wrong:
        problems = [RowProblem(table.header_line, *place) for place in wrong.items()]
        raise InputError(listing(path, problems), hint=f"the columns are {', '.join(REQUIRED)}")


def _own_node_type(stated_type: str, text: str) -> None:
    if text not in ("", stated_type):
        raise ValueError(f"{text!r}, but --node-type says {stated_type!r}")


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
        raise ValueError(f"{text!r} is not a frequency in kHz; 1.9 GHz is 1900000")
    return round(value)


def _axis_value(axis: Axis, text: str) -> int:
    """Return a value of a further axis, 0 where it was not set."""
    if not text:
        return 0
    try:
        value: float = parse_freq_khz(text) if axis.name.endswith("_khz") else _number(text)
    except ValueError:
        value = _number(text)  # says what is wrong
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number")
    if value and not axis.least <= value <= axis.most:
        span = f"{axis.shown(axis.least)} to {axis.shown(axis.most)}"
        raise ValueError(f"{text!r} is not a {axis.words} in {axis.unit}; it is {span}")
    return int(value)


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


def _energy_value(text: str) -> float:
    """Return an energy, 0 where none was measured."""
    return _energy(text) or 0.0


def _fom(text: str) -> float | None:
    return _positive(text) if text else None


def _plain(text: str) -> object:
    """Return an extra cell as the number it plainly is, else as text."""
    if text[:1].isalpha():
        return text
    try:
        number = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return text
        return value if math.isfinite(value) else text
    return number if str(number) == text else text


_PARSERS: dict[str, Callable[[str], object]] = {
    "nodes": _count,
    "ranks_per_node": _count,
    "threads_per_node": _count,
    "freq_khz": _freq,
    "time_s": _positive,
    "energy_j": _energy,
    "fom": _fom,
}
"""What each column holds, in the order of :meth:`Terms.run`."""
