"""EAR's files of one tag: roofline.TAG.data, extremes.TAG.data, medoids.TAG.data, one line each.

Peaks are GB/s and GFLOP/s of one node. Extremes are standard deviation and mean of CPI, TPI,
GFLOP/s and GB/s; medoids are standardised by them, for cpu-bound, memory-bound and mixed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from advisor.core.units import format_count
from advisor.drafts import draft
from advisor.errors import InputError

FileOrder = Literal["page", "ear"]
"""``ear``: positions 3 and 4 are GB/s and GFLOP/s, as all of EAR's sources read them."""
METRICS = ("CPI", "TPI", "GFLOPS", "MEM_GBS")
_GROUPS = ("CPU-bound", "MEMORY-bound", "MIX")
KINDS: dict[str, tuple[str, ...]] = {
    "roofline": ("peak memory bandwidth", "peak floating performance"),
    "extremes": tuple(f"{m} {what}" for m in METRICS for what in ("std", "mean")),
    "medoids": tuple(f"{group} {m}" for group in _GROUPS for m in METRICS),
}
"""What the values of each kind of file are."""
_MOST_BYTES = 65536
"""Largest file of classes that is read."""

Metrics = tuple[float, float, float, float]
"""CPI, TPI, GFLOP/s, GB/s."""


class Peaks(NamedTuple):
    """What one node can do at most."""

    gbs: float
    gflops: float

    @property
    def ridge(self) -> float:
        """Floating-point operations per byte from which on memory is not the limit."""
        return self.gflops / self.gbs


class Extremes(NamedTuple):
    """Standard deviations and means, by which a vector is standardised."""

    std: Metrics
    mean: Metrics

    def standardised(self, vector: Sequence[float]) -> Metrics:
        """Return a vector in standard deviations from the mean."""
        return tuple(  # type: ignore[return-value]
            (x - m) / s for x, m, s in zip(vector, self.mean, self.std, strict=True)
        )


class Medoids(NamedTuple):
    """The representative of each class, standardised."""

    cpu: Metrics
    memory: Metrics
    mixed: Metrics


def file_name(kind: str, tag: str) -> str:
    """Return the name that EAR looks for."""
    return f"{kind}.{tag}.data"


def tag_of(name: str) -> str:
    """Return the tag of a file's name, "" for the name of anything else."""
    match = re.fullmatch(rf"(?:{'|'.join(KINDS)})\.(.+)\.data", name)
    return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class ClassFiles:
    """The files of one tag that are there and valid; ``problems`` say what is wrong with others.

    ``folders`` are those of the kinds of files.
    """

    tag: str = ""
    folders: tuple[tuple[str, Path], ...] = ()
    peaks: Peaks | None = None
    extremes: Extremes | None = None
    medoids: Medoids | None = None
    problems: tuple[str, ...] = ()


def read_files(
    tag: str, folders: dict[str, Path], order: FileOrder = "page", *, glued: bool = False
) -> ClassFiles:
    """Read a tag's files, each from the folder of its kind.

    With ``glued``, a file is also looked for as EAR's sources do, without "/" after the folder.
    """
    by_kind: dict[str, tuple[float, ...] | None] = {}
    problems = []
    for kind, folder in folders.items():
        name = file_name(kind, tag)
        paths = [folder / name, *([Path(f"{folder}{name}")] if glued else ())]
        path = next((p for p in paths if p.exists()), None)
        try:
            by_kind[kind] = read_values(path, kind) if path else None
        except InputError as error:
            problems.append(str(error))
    peaks, extremes, medoids = (by_kind.get(kind) for kind in KINDS)
    if (extremes is None) != (medoids is None) and not problems:
        present_kind, lacking = ("medoids", "extremes") if medoids else ("extremes", "medoids")
        problems.append(
            f"{file_name(present_kind, tag)} is there without {file_name(lacking, tag)}"
        )
    return ClassFiles(
        tag,
        tuple(folders.items()),
        Peaks(*peaks) if peaks else None,
        _extremes(extremes, order) if extremes else None,
        _medoids(medoids, order) if medoids else None,
        tuple(problems),
    )


def _extremes(values: Sequence[float], order: FileOrder) -> Extremes:
    return Extremes(_vector(values[::2], order), _vector(values[1::2], order))


def _medoids(values: Sequence[float], order: FileOrder) -> Medoids:
    return Medoids(*(_vector(values[i : i + 4], order) for i in (0, 4, 8)))


def _vector(values: Sequence[float], order: FileOrder) -> Metrics:
    cpi, tpi, third, fourth = values
    return (cpi, tpi, fourth, third) if order == "ear" else (cpi, tpi, third, fourth)


def read_values(path: Path, kind: str) -> tuple[float, ...]:
    """Return the values of a file. Raises InputError that names file, line and value."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    try:
        lines = raw.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}, line 1: not a line of numbers") from None
    if any(line.strip() for line in lines[1:]):
        raise InputError(f"{path}, line 2: there is more than the one line of values")
    words = lines[0].split() if lines else []
    names = KINDS[kind]
    values = []
    for number, word in enumerate(words, 1):
        what = names[number - 1] if number <= len(names) else "too many"
        place = f"{path}, line 1, value {number} ({what})"
        values.append(_checked(place, word, kind, what))
    if len(values) != len(names):
        count = format_count(len(values), "value")
        raise InputError(f"{path}, line 1: {count}, but {kind} has {len(names)}")
    if kind == "roofline" and Peaks(*values).ridge < 1:
        raise InputError(
            f"{path}, line 1: the peaks are swapped: {values[1]:g} GFLOP/s is less than "
            f"{values[0]:g} GB/s",
            hint="memory bandwidth comes first",
        )
    return tuple(values)


def _checked(place: str, word: str, kind: str, what: str) -> float:
    if re.fullmatch(r"[+-]?\d*,\d+", word):
        raise InputError(f"{place}: {word!r} has a decimal comma; write a point")
    if mark := re.search(r"[\w.]([;|,])[\w.+-]", word):
        raise InputError(f"{place}: {word!r}: values are separated by blanks, not by {mark[1]!r}")
    try:
        value = float(word if "_" not in word else "no number")
    except ValueError:
        raise InputError(f"{place}: {word!r} is not a number") from None
    if not math.isfinite(value):
        raise InputError(f"{place}: {word!r} is not a finite number")
    if kind == "medoids":
        return value
    if value < 0:
        raise InputError(f"{place}: {word!r} is negative")
    if not value and (kind == "roofline" or what.endswith("std")):
        raise InputError(f"{place}: {word!r} cannot be 0")
    return value


def check_folder(folder: Path) -> list[str]:
    """Return the tags of a folder's files, all of which are valid.

    Raises InputError for the first mistake, and where there are no such files.
    """
    try:
        names = sorted(p.name for p in folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from None
    kinds_of: dict[str, set[str]] = {}
    for name in names:
        tag, kind = tag_of(name), name.partition(".")[0]
        if tag:
            read_values(folder / name, kind)
            kinds_of.setdefault(tag, set()).add(kind)
    if not kinds_of:
        raise InputError(
            f"{folder} has no class files", hint="they are named like roofline.TAG.data"
        )
    for tag, kinds in kinds_of.items():
        for present_kind, lacking in (("medoids", "extremes"), ("extremes", "medoids")):
            if present_kind in kinds and lacking not in kinds:
                raise InputError(
                    f"{folder / file_name(present_kind, tag)} is there "
                    f"without {file_name(lacking, tag)}"
                )
    return sorted(kinds_of)


def lines_of(
    extremes: Extremes, medoids: Medoids, order: FileOrder = "page"
) -> dict[str, Iterator[float]]:
    """Return the values of both files, in the order that is asked for."""
    std, mean = _vector(extremes.std, order), _vector(extremes.mean, order)
    return {
        "extremes": (x for pair in zip(std, mean, strict=True) for x in pair),
        "medoids": (x for medoid in medoids for x in _vector(medoid, order)),
    }


def write_files(folder: Path, tag: str, values: Mapping[str, Sequence[float]]) -> list[Path]:
    """Write files of a tag, each whole or not at all; return where they are.

    All are written beside their places first, so that a full disk changes none. Raises InputError.
    """
    ready: list[tuple[Path, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as drafts:
            for kind, numbers in values.items():
                path = folder / file_name(kind, tag)
                new = drafts.enter_context(draft(folder, path.name))
                ready.append((new, path))
                with new.open("w") as file:
                    file.write(" ".join(f"{x:.10g}" for x in numbers) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                new.chmod(0o644)
                read_values(new, kind)
            for new, path in ready:
                new.replace(path)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None
    return [path for _, path in ready]
