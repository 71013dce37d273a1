"""What a family's jobs take at sizes that never ran, as the daemon reads it: a table.

A scaling model is evaluated when it is fitted, at knots: values of each parameter (and of nodes),
evenly spread in logarithms, for every configuration. Between knots the table is read by linear
interpolation of logarithms in logarithms, which is exact for powers; an error is the larger of both
knots'. Two errors are kept apart: the
*shared* one, of how long a size runs, cancels where configurations of one job are compared; each
configuration's *own* does not.
"""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot

from advisor.core.codec import FieldError, Record
from advisor.core.option import Row, estimated_rows

_VERSION = 1
"""First byte of a packed table."""
NODES = "nodes"
"""The axis of node counts, beside the parameters."""
FEWEST_SIZES = 3
"""Fewer different values of what grows say nothing of a law."""
PER_KNOT, PER_CELL = 4, 4
"""Of a knot: shared errors and noise of time and energy. Of a configuration there: log time, its
own error, log energy, its own error. Errors are standard deviations of logarithms."""
_ERRORS = (
    slice(0, PER_KNOT),
    slice(PER_KNOT + 1, None, PER_CELL),
    slice(PER_KNOT + 3, None, PER_CELL),
)
"""Where a knot's errors stand, shared and own."""


@dataclass(frozen=True, slots=True)
class SizeAxis(Record):
    """A parameter's knots, ascending, and its least and largest value that ran."""

    name: str
    knots: tuple[float, ...]
    low: float
    high: float

    def beyond(self, value: float) -> float:
        """Return how many times the largest that ran a value is (or the least is it); else 1."""
        return max(1.0, value / self.high, self.low / value)

    def place(self, value: float) -> tuple[int, float]:
        """Return the knot below a value and its share of the way to the next, by logarithms."""
        knots = self.knots
        i = min(max(bisect_right(knots, value) - 1, 0), len(knots) - 2)
        return i, math.log(value / knots[i]) / math.log(knots[i + 1] / knots[i])


@dataclass(frozen=True, slots=True)
class PredictedSize:
    """The rows of a size, and the share its prediction of time is off by for all together."""

    rows: list[Row]
    shared_sigma: float


@dataclass(frozen=True, slots=True)
class SizeTable:
    """The axes, and the values (float32) of every knot in turn, the last axis' running fastest."""

    axes: tuple[SizeAxis, ...]
    values: array[float]

    def pack(self) -> bytes:
        """Return the values: a version byte, then little-endian 4-byte numbers."""
        values = self.values
        if sys.byteorder == "big":
            values = array("f", values)
            values.byteswap()
        return bytes([_VERSION]) + values.tobytes()

    @classmethod
    def unpack(cls, axes: object, blob: bytes) -> SizeTable:
        """Read what a store holds. Raises ValueError where it is damaged."""
        if blob[:1] != bytes([_VERSION]) or (len(blob) - 1) % 4:
            raise ValueError(f"its table of sizes is damaged ({len(blob)} bytes)")
        try:
            read = tuple(map(SizeAxis.from_dict, axes if isinstance(axes, list) else ()))
        except FieldError:
            raise ValueError("the axes of its table of sizes are damaged") from None
        values = array("f")
        values.frombytes(blob[1:])
        if sys.byteorder == "big":
            values.byteswap()
        if not read or any(len(a.knots) < 2 for a in read):
            raise ValueError("its table of sizes has no axes")
        return cls(read, values)

    def beyond(self, size: Mapping[str, float]) -> dict[str, float]:
        """Return how many times what ran each value of a size is, of those beyond it."""
        factors = {a.name: a.beyond(size[a.name]) for a in self.axes}
        return {name: times for name, times in factors.items() if times > 1.0}

    def predict(self, measured: Sequence[Row], size: Mapping[str, float]) -> PredictedSize:
        """Return the rows of a size; ``measured`` are those of the largest, in the table's order.

        A row's interval counts all errors, its ``sigma`` only its own. What a run confirmed at the
        largest size is estimated here: nothing at this size ran. Raises ValueError where the table
        has other rows.
        """
        width = PER_KNOT + PER_CELL * len(measured)
        if len(self.values) != width * math.prod(len(a.knots) for a in self.axes):
            raise ValueError("its table of sizes has other configurations than its options")
        mixed = self._mixed(size, width)
        shared_t, shared_e, noise_t, noise_e = mixed[:PER_KNOT]
        together_t, together_e = hypot(shared_t, noise_t), hypot(shared_e, noise_e)
        nodes = round(size[NODES]) if NODES in size else 0
        columns = (mixed[i::PER_CELL] for i in range(PER_KNOT, PER_KNOT + PER_CELL))
        rows = estimated_rows(measured, nodes, columns, together_t, together_e)
        return PredictedSize(rows, shared_t)

    def _mixed(self, size: Mapping[str, float], width: int) -> Sequence[float]:
        """Return the values between the knots around a size, one axis after the other."""
        places = [a.place(size[a.name]) for a in self.axes]
        strides = [1]
        for a in reversed(self.axes[1:]):
            strides.insert(0, strides[0] * len(a.knots))

        def between(depth: int, start: int) -> Sequence[float]:
            if depth == len(places):
                return self.values[start * width : (start + 1) * width]
            i, share = places[depth]
            below = between(depth + 1, start + i * strides[depth])
            if not share:
                return below
            above = between(depth + 1, start + (i + 1) * strides[depth])
            mixed = [x + share * (y - x) for x, y in zip(below, above, strict=True)]
            # The larger error of both: at a size that ran it is small, and soon large beside it.
            for errors in _ERRORS:
                mixed[errors] = map(max, below[errors], above[errors])
            return mixed

        return between(0, 0)
