"""An option: a configuration with what it is predicted or measured to cost.

Options are evaluated when a model is fitted and stored packed, one fixed-size record each, so
that the hot path only looks them up (``pack_options`` / ``unpack_rows``; no numpy needed).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, hypot
from typing import Any, NamedTuple, cast

from advisor.core.axes import Extra
from advisor.core.configuration import Configuration

Z90 = 1.6448536269514722
"""Two-sided 90 % normal quantile: intervals are stored as 90 % intervals in log space."""

_RECORD = struct.Struct("<4i10dI")
_POINT = struct.Struct(f"<4i{_RECORD.size - 16}x")
_VERSION = 1
"""The first byte of packed options; what follows is made of ``_RECORD``."""
_FLAGS_AT = 1 + _RECORD.size - 4
_FURTHER = 2
"""The first byte where options have further axes: their number and names follow, then records with
a value of each axis at their end."""
_NAME = 32
"""Bytes of an axis' name there."""
_MEASURED, _CONFIRMED, _ZONE, _FRONT, _ESTIMATED, _EXTRAPOLATED = 1, 2, 4, 8, 16, 32
"""Bits of ``flags``."""
_USABLE = _CONFIRMED | _ESTIMATED


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration with its time (s) and energy (J, all nodes) and 90 % intervals.

    ``energy_j`` is NaN when no energy is known. ``measured``: a run at this very configuration
    is behind the numbers; ``confirmed``: that run lay within the model's predicted interval;
    ``in_zone`` and ``on_front``: place relative to the Pareto front (algorithms 5.1 to 5.4).
    ``estimated``: nothing ran on this node type; the numbers follow from a confirmed option on
    another one, by what microbenchmarks say of the two (:mod:`advisor.core.transfer`).
    ``extrapolated``: it has fewer or more cores, or a lower or higher cap, than any run.
    """

    configuration: Configuration
    time_s: float
    time_lo_s: float
    time_hi_s: float
    energy_j: float
    energy_lo_j: float
    energy_hi_j: float
    measured: bool = False
    confirmed: bool = False
    in_zone: bool = False
    on_front: bool = False
    estimated: bool = False
    extrapolated: bool = False

    @property
    def time_sigma(self) -> float:
        """Standard error of log time.

        From the side below the mean: above it reach disturbed runs, which no choice avoids.
        """
        return math.log(self.time_s / self.time_lo_s) / Z90

    @property
    def energy_sigma(self) -> float:
        """Standard error of log energy; NaN when no energy is known."""
        if math.isnan(self.energy_j):
            return math.nan
        return math.log(self.energy_j / self.energy_lo_j) / Z90


class Row(NamedTuple):
    """An option as it is stored: numbers only, with the logarithms the choice needs.

    One with further axes has them as a sixteenth value: most have none, and cost nothing for it.
    """

    nodes: int
    ranks_per_node: int
    threads_per_node: int
    freq_khz: int
    time_s: float
    time_lo_s: float
    time_hi_s: float
    energy_j: float
    energy_lo_j: float
    energy_hi_j: float
    log_time: float
    time_sigma: float
    log_energy: float
    energy_sigma: float
    flags: int

    @property
    def extra(self) -> Extra:
        """Its further axes."""
        return cast(Extra, tuple.__getitem__(self, 15)) if len(self) > 15 else ()

    @property
    def measured(self) -> bool:
        """Whether a run at this very configuration is behind the numbers."""
        return bool(self.flags & _MEASURED)

    @property
    def confirmed(self) -> bool:
        """Whether a run confirmed the option."""
        return bool(self.flags & _CONFIRMED)

    @property
    def estimated(self) -> bool:
        """Whether it follows from a confirmed option on another node type."""
        return bool(self.flags & _ESTIMATED)

    @property
    def extrapolated(self) -> bool:
        """Whether it lies outside of what was run."""
        return bool(self.flags & _EXTRAPOLATED)

    @property
    def usable(self) -> bool:
        """Whether a job may be sent there: confirmed, or estimated from what was confirmed."""
        return bool(self.flags & _USABLE)

    def configuration(self, node_type: str) -> Configuration:
        """Return the configuration, on the node type whose options these are."""
        return Configuration(
            node_type,
            self.nodes,
            self.ranks_per_node,
            self.threads_per_node,
            self.freq_khz,
            self.extra,
        )

    def option(self, node_type: str) -> Option:
        """Return the option this row stands for."""
        return Option(
            self.configuration(node_type),
            *self[4:10],
            bool(self.flags & _MEASURED),
            bool(self.flags & _CONFIRMED),
            bool(self.flags & _ZONE),
            bool(self.flags & _FRONT),
            bool(self.flags & _ESTIMATED),
            bool(self.flags & _EXTRAPOLATED),
        )


_AS_ROW: Callable[[tuple[Any, ...]], Row] = partial(tuple.__new__, Row)
"""``Row._make`` without its check of the length, which a record's fixed size makes needless."""


def row_of(option: Option) -> Row:
    """Return an option's stored form."""
    o, c = option, option.configuration
    row = Row(
        c.nodes,
        c.ranks_per_node,
        c.threads_per_node,
        c.freq_khz,
        o.time_s,
        o.time_lo_s,
        o.time_hi_s,
        o.energy_j,
        o.energy_lo_j,
        o.energy_hi_j,
        math.log(o.time_s),
        o.time_sigma,
        math.log(o.energy_j),
        o.energy_sigma,
        o.measured * _MEASURED
        + o.confirmed * _CONFIRMED
        + o.in_zone * _ZONE
        + o.on_front * _FRONT
        + o.estimated * _ESTIMATED
        + o.extrapolated * _EXTRAPOLATED,
    )
    return _AS_ROW((*row, c.extra)) if c.extra else row


def estimated_rows(
    measured: Sequence[Row],
    nodes: int,
    columns: Iterable[Sequence[float]],
    together_t: float,
    together_e: float,
) -> list[Row]:
    """Return rows' configurations on ``nodes`` (0: as they are) with predicted values.

    ``columns`` have one value a row: the log of time, its standard error that counts against other
    options of the job, the same of energy. ``together_t`` and ``together_e`` are the errors that
    all share, which intervals count, too. Nothing ran there; what a run confirmed of a row may be
    taken as an estimate.
    """
    rows = []
    for row, t, sigma_t, e, sigma_e in zip(measured, *columns, strict=True):
        time_s, around_t = exp(t), exp(Z90 * hypot(sigma_t, together_t))
        energy_j, around_e = exp(e), exp(Z90 * hypot(sigma_e, together_e))
        rows.append(
            _AS_ROW(
                (
                    nodes or row[0],
                    row[1],
                    row[2],
                    row[3],
                    time_s,
                    time_s / around_t,
                    time_s * around_t,
                    energy_j,
                    energy_j / around_e,
                    energy_j * around_e,
                    t,
                    sigma_t,
                    e,
                    sigma_e,
                    _ESTIMATED if row[14] & _CONFIRMED else 0,
                )
            )
        )
    return rows


def pack_options(options: Iterable[Option]) -> bytes:
    """Return options of one node type: a version byte, then 100 bytes each, little-endian.

    Options with further axes are packed in a form of their own, see :data:`_FURTHER`; all of them
    have the same ones, else ValueError.
    """
    rows = [row_of(o) for o in options]
    axes = {tuple(name for name, _ in row.extra) for row in rows}
    if axes <= {()}:
        return bytes([_VERSION]) + b"".join(_RECORD.pack(*row) for row in rows)
    if len(axes) > 1:
        raise ValueError("some of the options have an axis that others have not")
    names = axes.pop()
    record = _further_record(len(names))
    head = bytes([_FURTHER, len(names)]) + b"".join(n.encode().ljust(_NAME) for n in names)
    return head + b"".join(record.pack(*row[:15], *(v for _, v in row.extra)) for row in rows)


def _further_record(axes: int) -> struct.Struct:
    return struct.Struct(f"{_RECORD.format}{axes}i")


def as_written(blob: bytes) -> bytes:
    """Return the packed options that differ from jobs in no further axis.

    These are those with the highest value of each: what a job gets that asks for none. They are
    packed without these axes; options that have none come back as they are. Raises ValueError as
    unpack_rows does.
    """
    if blob[:1] != bytes([_FURTHER]):
        return blob
    rows = rows_within(blob, ())
    return bytes([_VERSION]) + b"".join(_RECORD.pack(*row) for row in rows)


def rows_within(blob: bytes, axes: Collection[str]) -> list[Row]:
    """Return the rows that differ from jobs in none but ``axes`` of their further axes.

    What a row has as jobs that ask for nothing is left out of it: its ``extra`` is what has to be
    written. Raises ValueError as unpack_rows does.
    """
    rows = unpack_rows(blob)
    if blob[:1] != bytes([_FURTHER]):
        return rows
    highest = dict(highest_axes(blob))
    matching = []
    for row in rows:
        lower = tuple((name, value) for name, value in row.extra if value != highest[name])
        if all(name in axes for name, _ in lower):
            matching.append(_AS_ROW((*row[:15], lower) if lower else row[:15]))
    return matching


def highest_axes(blob: bytes) -> Extra:
    """Return the highest value of each further axis of packed options. Raises ValueError."""
    rows = unpack_rows(blob) if blob[:1] == bytes([_FURTHER]) else []
    return tuple(max(axis) for axis in zip(*(row.extra for row in rows), strict=True))


def further_axes(blob: bytes) -> tuple[str, ...]:
    """Return the names of the further axes that packed options have, () for most."""
    if blob[:1] != bytes([_FURTHER]) or len(blob) < 2 or len(blob) < 2 + _NAME * blob[1]:
        return ()
    return tuple(
        blob[start : start + _NAME].decode("ascii", "replace").strip()
        for start in range(2, 2 + _NAME * blob[1], _NAME)
    )


def unpack_rows(blob: bytes) -> list[Row]:
    """Return the rows packed by :func:`pack_options`.

    Raises ValueError for a torn blob and for one of another version.
    """
    if blob[:1] != bytes([_FURTHER]):
        return list(map(_AS_ROW, _RECORD.iter_unpack(_records(blob))))
    names = further_axes(blob)
    record, records = _further_record(len(names)), memoryview(blob)[2 + _NAME * len(names) :]
    if not names or len(records) % record.size:
        raise ValueError(f"its packed options are damaged ({len(blob)} bytes)")
    return [
        _AS_ROW((*row[:15], tuple(zip(names, row[15:], strict=True))))
        for row in record.iter_unpack(records)
    ]


def packed_points(blob: bytes) -> list[tuple[int, int, int, int]]:
    """Return (nodes, ranks, threads, frequency) of every packed row, and nothing else of it.

    Options with further axes must be :func:`as_written`. Raises ValueError as unpack_rows does.
    """
    return list(_POINT.iter_unpack(_records(blob)))


def pick_packed(blob: bytes, also: Iterable[int]) -> bytes:
    """Return the rows a job may be sent to, and those ``also`` named by number, still packed."""
    usable_numbers = {
        i for i, flags in enumerate(blob[_FLAGS_AT :: _RECORD.size]) if flags & _USABLE
    }
    size = _RECORD.size
    starts = (1 + i * size for i in sorted(usable_numbers.union(also)))
    return blob[:1] + b"".join(blob[start : start + size] for start in starts)


def _records(blob: bytes) -> memoryview:
    if blob[:1] != bytes([_VERSION]):
        version = blob[0] if blob else "none"
        raise ValueError(f"its options are packed in format {version}, not {_VERSION}")
    if (len(blob) - 1) % _RECORD.size:
        raise ValueError(f"its packed options are damaged ({len(blob)} bytes)")
    return memoryview(blob)[1:]
