"""What physics says of time and power: families of laws with prior weights, no free constants.

A law gives the logarithm of a response up to a constant. Its parameters take values on a grid
that spans what programs and machines do; how much each combination counts is for the data to say
(:mod:`advisor.models.process`). Cores, nodes and frequency are measured against the largest asked
for, so the grids need no units.

Time is Amdahl's law for the part that follows the clock, plus a part that does not (memory,
network, disks) whose parallel speed ends at a bandwidth ceiling:

    t = (1 - m) (s + (1 - s) / p) / f + m (s + (1 - s) / min(p, ceiling)),    over nodes^g

``p`` is the number of cores, or W / ceil(W / p) where the program hands out W equal pieces of
work: the last round then leaves cores idle, so that time falls in steps.

Power is that of an idle node, a part of which (caches, interconnect) follows the clock, plus that
of the busy cores: leakage and a power of the frequency, from 1 (voltage fixed) to 3 (voltage
rising with it). Nodes add up.

Where a power limit is what varies, it stands in the frequency's place. It behaves as the clock that
it leads to, which follows what the limit leaves above a floor: nearly in proportion at first, where
the voltage stands still, and flatter towards a saturation, from which on the limit changes nothing.
Power is then what the program would take of itself, as far as the limit lets it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.models.base import Matrix, Vector

# Grids of parameters, without unit; ours, to span what programs and machines do.
_SERIAL = (0.0, 0.003, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.75, 1.0)
"""Serial shares of the time on one core, s. Of an axis of thousands (batch sizes) smaller ones,
too, each a third of the last: else what it speeds up would have ended long before its most."""
_CLOCKLESS = (0.0, 0.08, 0.2, 0.4, 0.65, 0.9, 1.0)
"""Shares of the time that do not follow the clock, m."""
_CEILING, _CEILING_WEIGHT = (0.5, 0.25, 0.125), 1 / 3
"""Cores that use up the bandwidth, as shares of the most; prior weight of there being a ceiling."""
_PIECES, _PIECES_WEIGHT = (0.5, 1.0, 2.0, 4.0, 8.0), 0.3
"""Pieces of work W, as multiples of the most cores; prior weight of there being pieces."""
_SCALING = (0.0, 0.4, 0.7, 0.9, 1.0)
"""Powers g of the number of nodes."""
_IDLE = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""Shares of the node's full power that it takes idle."""
_EXPONENT, _LEAKAGE = (1.0, 2.0, 3.0), (0.0, 0.25, 0.5, 0.75)
"""Powers of the frequency in the cores' power; shares of it that do not follow the clock."""
_UNCORE = (0.0, 0.5, 1.0)
"""Shares of the idle power that follow the clock."""
_FLOOR, _SATURATION, _FLATTENING = (0.1, 0.2, 0.3), (0.4, 0.55, 0.7, 0.85, 1.0), (1.0, 2.0, 3.0)
"""Of a power limit, as shares of the highest: what a device takes at its lowest clock, from where
on the limit changes nothing; and the power of what is left to it with which the clock's loss ends.
At 1 the clock rises in proportion up to there; above, ever less."""
_FLOOR_OF_MANY, _FLATTENING_OF_MANY = (0.2,), (1.0, 2.0)
"""The same where core counts vary, too: the laws would be too many."""
_SATURATION_W = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
"""What a program takes of itself at most, in laws of power under a limit."""
_LEAST_CLOCK = 0.02
"""Least clock that a power limit leads to, as a share of the highest."""
_LEAST_POWER = 1e-3
"""Least power, as a share of full power, so that its logarithm is finite."""


@dataclass(frozen=True, slots=True)
class LawAxes:
    """The reach of the axes: what is trained on and what is asked for together."""

    first_nodes: float
    most_nodes: float
    least_cores: float
    most_cores: float
    least_freq: float
    most_freq: float
    further: tuple[tuple[float, float], ...] = ()
    """Least and greatest value of each further axis, all of which vary."""
    limited: bool = False
    """What stands in the frequency's place is a power limit."""

    @classmethod
    def of(cls, x: Matrix, *, limited: bool = False) -> LawAxes:
        """Return the reach of rows of [nodes, threads, frequency], then further axes."""
        low, high = x[:, :3].min(axis=0), x[:, :3].max(axis=0)
        nodes, cores, freqs = ((float(a), float(b)) for a, b in zip(low, high, strict=True))
        further = tuple((float(c.min()), float(c.max())) for c in x[:, 3:].T)
        return cls(*nodes, *cores, *freqs, further, limited)

    def along(self, x: Matrix) -> tuple[Vector, ...]:
        """Return where rows are on each further axis, from -1/2 to 1/2 in logarithms."""
        return tuple(
            np.log(np.maximum(values, 1.0) / most) / math.log(most / max(1.0, least)) + 0.5
            for values, (least, most) in zip(x[:, 3:].T, self.further, strict=True)
        )

    @property
    def nodes_vary(self) -> bool:
        """Whether there are several node counts."""
        return self.most_nodes > self.first_nodes

    @property
    def cores_vary(self) -> bool:
        """Whether there are several core counts."""
        return self.most_cores > self.least_cores

    @property
    def freq_varies(self) -> bool:
        """Whether there are several frequencies."""
        return self.most_freq > self.least_freq > 0


@dataclass(frozen=True, slots=True)
class Placements:
    """Configurations as laws and kernels see them, every vector of length m.

    ``freq`` is a share of the highest; ``along`` goes from -1/2 at the lowest frequency to 1/2 at
    the highest, in logarithms; ``top`` is 1 at the highest of several, which often means turbo.
    ``further`` has the same as ``along`` of each further axis; ``limited``: ``freq`` is a limit.
    """

    cores: Vector
    freq: Vector
    log_cores: Vector
    log_nodes: Vector
    along: Vector
    top: Vector
    further: tuple[Vector, ...] = ()
    limited: bool = False

    def some(self, part: slice) -> Placements:
        """Return a part of the places."""
        return Placements(
            self.cores[part],
            self.freq[part],
            self.log_cores[part],
            self.log_nodes[part],
            self.along[part],
            self.top[part],
            tuple(along[part] for along in self.further),
            self.limited,
        )

    @classmethod
    def of(cls, x: Matrix, axes: LawAxes) -> Placements:
        """Return rows of [nodes, threads, frequency] in these terms."""
        cores = np.maximum(x[:, 1], 1.0)
        log_nodes = np.log(np.maximum(x[:, 0], 1.0) / max(1.0, axes.first_nodes))
        if not axes.freq_varies:
            ones = np.ones(len(x))
            return cls(cores, ones, np.log(cores), log_nodes, 0 * ones, 0 * ones, axes.along(x))
        freq = np.maximum(x[:, 2], 1.0) / axes.most_freq
        along = np.log(freq) / math.log(axes.most_freq / axes.least_freq) + 0.5
        top = (x[:, 2] >= axes.most_freq).astype(np.float64)
        logs = np.log(cores), log_nodes
        return cls(cores, freq, *logs, along, top, axes.along(x), axes.limited)


class TimeParameters(NamedTuple):
    """Parameters of a law of time, each of shape (1, laws).

    ``serial`` is the share of the work that one core does, ``apart`` the share that does not follow
    the clock and is bound to no more cores than ``ceiling``. Work comes in ``pieces``, infinity: in
    none. ``scaling`` is the exponent of nodes. Under a power limit the clock is lost below
    ``saturation`` as the ``flattening``-th power of what is missing of it above ``floor``.
    """

    serial: Matrix
    apart: Matrix
    ceiling: Matrix
    pieces: Matrix
    scaling: Matrix
    floor: Matrix
    saturation: Matrix
    flattening: Matrix


class PowerParameters(NamedTuple):
    """Parameters of a law of power, each of shape (1, laws).

    ``idle`` is the share that does not follow the cores in use, of ``most``, and ``uncore`` the
    part of it that follows the clock; ``leak`` is the part of the cores' share that does not.
    ``exponent`` is the clock's. ``saturation`` is what all cores would take without a limit.
    """

    idle: Matrix
    exponent: Matrix
    leak: Matrix
    uncore: Matrix
    most: Matrix
    saturation: Matrix


@dataclass(frozen=True, slots=True)
class LawFamily:
    """Laws by row of ``parameters``, whose columns are those of ``kind``, with their log prior
    weights (k,).

    ``shown`` names the first columns of the parameters, those that mean something to people.
    """

    shown: tuple[str, ...]
    parameters: Matrix
    log_prior: Vector
    law: Callable[[Placements, Any], Matrix]
    """Takes places and what ``kind`` makes of the columns of some parameters."""
    kind: type[TimeParameters] | type[PowerParameters]
    pieces: Vector | None = None
    """Of each law, in how many equal pieces its work comes; infinity: in no pieces."""

    def evaluate(self, places: Placements, rows: NDArray[np.intp] | None = None) -> Matrix:
        """Return the laws' log responses (m, k or number of ``rows``), up to a constant each."""
        chosen = self.parameters if rows is None else self.parameters[rows]
        return self.law(places, self.kind(*(column[None] for column in chosen.T)))


def time_laws(axes: LawAxes) -> LawFamily:
    """Return the laws of time for such axes: only those that their values can distinguish."""
    rounds = {2.0 ** round(math.log2(axes.most_cores * share)) for share in _PIECES}
    pieces = [math.inf, *sorted(w for w in rounds if w >= 2 and axes.cores_vary)]
    serials, ceilings = (
        (_serials(axes.most_cores), (math.inf, *_CEILING))
        if axes.cores_vary
        else ((1.0,), (math.inf,))
    )
    scaling = _SCALING if axes.nodes_vary else (0.0,)
    # At one frequency nobody can tell what follows the clock; a second value still lets time end
    # at a bandwidth ceiling, which binds only what does not.
    clockless = _CLOCKLESS if axes.freq_varies else (0.0, 0.4)
    rows, weights = [], []
    for serial, apart, share, work, scale, limit in itertools.product(
        serials, clockless, (math.inf, *ceilings), pieces, scaling, _limits(axes)
    ):
        # No ceiling is felt where nothing is bound to it or nothing is parallel: the same law
        # twice would weigh twice. The same of pieces.
        if (apart == 0 or serial == 1) and share != math.inf:
            continue
        if serial == 1 and work != math.inf:
            continue
        weight = 1 - _CEILING_WEIGHT if share == math.inf else _CEILING_WEIGHT / len(_CEILING)
        if len(pieces) > 1:
            chopped = _PIECES_WEIGHT / (len(pieces) - 1)
            weight *= 1 - _PIECES_WEIGHT if work == math.inf else chopped
        rows.append((serial, apart, share * axes.most_cores, work, scale, *limit))
        weights.append(weight)
    prior, parameters = np.log(np.array(weights) / sum(weights)), np.array(rows)
    piece_counts = parameters[:, TimeParameters._fields.index("pieces")]
    return LawFamily(
        ("serial", "clockless"), parameters, prior, _time, TimeParameters, piece_counts
    )


def power_laws(axes: LawAxes) -> LawFamily:
    """Return the laws of power for such axes."""
    clocked = axes.freq_varies and not axes.limited
    exponents = _EXPONENT if clocked else (1.0,)
    leakage = _LEAKAGE if clocked else (0.0,)
    saturations = _SATURATION_W if axes.limited and axes.freq_varies else (1.0,)
    rows = [
        (idle, exponent, leak, uncore, axes.most_cores, saturation)
        for idle, exponent, leak, saturation in itertools.product(
            _IDLE, exponents, leakage, saturations
        )
        for uncore in (_UNCORE if idle and clocked else (0.0,))
    ]
    prior = np.full(len(rows), -math.log(len(rows)))
    return LawFamily(("idle", "exponent"), np.array(rows), prior, _power, PowerParameters)


def _serials(most: float) -> tuple[float, ...]:
    """Return the serial shares that so many cores can tell from none."""
    smaller = takewhile(lambda s: s * most >= 1, (_SERIAL[1] / 3**k for k in itertools.count(1)))
    return *_SERIAL, *smaller


def _limits(axes: LawAxes) -> list[tuple[float, float, float]]:
    """Return floors, saturations and flattenings of a limit; of a frequency what leaves it so."""
    if not (axes.limited and axes.freq_varies):
        return [(0.0, 1.0, 1.0)]
    floors, flattenings = (
        (_FLOOR_OF_MANY, _FLATTENING_OF_MANY) if axes.cores_vary else (_FLOOR, _FLATTENING)
    )
    return list(itertools.product(floors, _SATURATION, flattenings))


def _time(places: Placements, p: TimeParameters) -> Matrix:
    cores, freq = places.cores[:, None], places.freq[:, None]
    if places.limited:
        clock_share = (freq - p.floor) / (p.saturation - p.floor)
        clock_loss = (1 - np.clip(clock_share, 0.0, 1.0)) ** p.flattening
        freq = np.maximum(1 - clock_loss, _LEAST_CLOCK)
    # infinity over infinity, of laws without pieces, is not taken
    with np.errstate(invalid="ignore"):
        busy = np.where(np.isinf(p.pieces), cores, p.pieces / np.ceil(p.pieces / cores))
    clocked = (p.serial + (1 - p.serial) / busy) / freq
    unclocked = p.serial + (1 - p.serial) / np.minimum(cores, p.ceiling)
    spent: Matrix = np.log((1 - p.apart) * clocked + p.apart * unclocked)
    return spent - p.scaling * places.log_nodes[:, None]


def _power(places: Placements, p: PowerParameters) -> Matrix:
    cores = places.cores[:, None]
    if places.limited:  # what the program would take, as far as the limit lets it
        load = p.saturation * (p.idle + (1 - p.idle) * cores / p.most)
        watts: Matrix = np.log(np.minimum(places.freq[:, None], load) + _LEAST_POWER)
        return watts + places.log_nodes[:, None]
    clock = places.freq[:, None] ** p.exponent
    busy = (1 - p.idle) * cores / p.most * (p.leak + (1 - p.leak) * clock)
    watts = np.log(p.idle * (1 - p.uncore + p.uncore * clock) + busy + _LEAST_POWER)
    return watts + places.log_nodes[:, None]
