"""What a job runs on: a configuration, and the grid of configurations to choose from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.core.axes import AXES, Extra
from advisor.core.codec import JsonForm, wire

MAX_THREADS = 12
"""Thread counts of a rank in a grid that nobody stated."""
MAX_FREQS = 16
"""Frequencies in a grid that nobody stated."""
MAX_CELLS = 5000
"""Configurations of a grid that is read from outside."""
_MOST = 1 << 30
"""Nodes, ranks, threads or kHz that a configuration read from outside has at most."""


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """One point of the search space.

    ``threads_per_node`` counts the cores a job uses on each node (ranks x threads per rank);
    ``freq_khz`` is the frequency cap in kHz, 0 where no cap can be set; ``extra`` are its further
    axes by name (:data:`advisor.core.axes.AXES`), none for most.
    """

    node_type: str
    nodes: int
    ranks_per_node: int
    threads_per_node: int
    freq_khz: int
    extra: Extra = ()

    @property
    def threads_per_rank(self) -> int:
        """Threads of one rank, at least 1."""
        return max(1, self.threads_per_node // max(1, self.ranks_per_node))

    @property
    def cores(self) -> int:
        """Cores used over all nodes."""
        return self.nodes * self.threads_per_node

    def slowdown_bound(self, baseline: Configuration) -> float:
        """Return how many times longer than the baseline a run takes at worst: perfect scaling.

        Time goes at worst with 1 / (cores x frequency), and so with each further axis; a larger
        configuration counts as no faster.
        """
        ratio = baseline.cores / self.cores
        if baseline.freq_khz and self.freq_khz:
            ratio *= baseline.freq_khz / self.freq_khz
        own_values = dict(self.extra)
        for name, value in baseline.extra:
            ratio *= value / own_values.get(name, value)
        return max(1.0, ratio)

    def to_dict(self) -> dict[str, str | int]:
        """Return the JSON form, with the columns of ``advisor import`` and threads_per_rank."""
        return {
            "node_type": self.node_type,
            "nodes": self.nodes,
            "ranks_per_node": self.ranks_per_node,
            "threads_per_node": self.threads_per_node,
            "threads_per_rank": self.threads_per_rank,
            "freq_khz": self.freq_khz,
            **dict(self.extra),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Configuration:
        """Read the JSON form back. Raises KeyError or ValueError on a missing or bad field."""

        def number(key: str) -> int:
            value = data[key]
            return value if type(value) is int else int(str(value))

        return cls(
            str(data["node_type"]),
            number("nodes"),
            number("ranks_per_node"),
            number("threads_per_node"),
            number("freq_khz") if data.get("freq_khz") else 0,
            tuple((name, number(name)) for name in sorted(AXES.keys() & data.keys())),
        )


def size_of(c: Configuration) -> tuple[int, int, int, int, Extra]:
    """Return what configurations are ordered by: nodes, cores, ranks, frequency, further axes."""
    return c.nodes, c.threads_per_node, c.ranks_per_node, c.freq_khz, c.extra


def largest_of(cells: Iterable[Configuration]) -> Configuration:
    """Return what jobs are compared with where nothing says what was asked for.

    That is the one with most nodes, cores and ranks, the highest frequency and the most of each
    further axis, which is what a job gets that states none.
    """
    return max(cells, key=size_of)


def thread_counts(cores: int, ranks: int = 1) -> tuple[int, ...]:
    """Return core counts per node worth trying: multiples of ``ranks``, at most 12, ascending.

    Steps divide the node's cores evenly where that leaves at least six values, so that sockets
    fill evenly: 28 cores give 4, 8, ..., 28.
    """
    per_rank = cores // ranks
    if per_rank <= MAX_THREADS:
        return tuple(ranks * t for t in range(1, per_rank + 1))
    smallest = math.ceil(per_rank / MAX_THREADS)
    step = next(
        (s for s in range(smallest, per_rank // 6 + 1) if per_rank % s == 0),
        smallest,
    )
    return tuple(sorted(ranks * t for t in range(per_rank, 0, -step)))


def thin(values: Sequence[int], most: int) -> tuple[int, ...]:
    """Return at most ``most`` of the values, evenly, first and last included."""
    if len(values) <= most:
        return tuple(values)
    last = len(values) - 1
    return tuple(values[round(i * last / (most - 1))] for i in range(most))


@dataclass(frozen=True, slots=True)
class SearchSpace(JsonForm):
    """The grid a model is evaluated on: node counts x (ranks, threads) pairs x frequency caps."""

    JSON = ("nodes", "threads", "freqs_khz", "extra")

    node_type: str
    nodes: tuple[int, ...]
    threads: tuple[tuple[int, int], ...]
    """Pairs (ranks_per_node, threads_per_node), ascending."""
    freqs_khz: tuple[int, ...]
    extra: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), metadata=wire(omit=True))
    """The values of further axes, by name."""

    @classmethod
    def of(cls, node_type: str, configurations: Iterable[Configuration]) -> SearchSpace:
        """Return the smallest full grid that holds every given configuration.

        All of them have the same further axes.
        """
        points = list(configurations)
        return cls(
            node_type,
            tuple(sorted({c.nodes for c in points})),
            tuple(
                sorted(
                    {(c.ranks_per_node, c.threads_per_node) for c in points},
                    key=lambda pair: (pair[1], pair[0]),
                )
            ),
            tuple(sorted({c.freq_khz for c in points})),
            tuple(
                (name, tuple(sorted({dict(c.extra)[name] for c in points})))
                for name, _ in points[0].extra
            )
            if points
            else (),
        )

    @classmethod
    def from_dict(cls, node_type: str, data: object) -> SearchSpace:
        """Read the JSON form back, as anybody may have written it. Raises ValueError."""
        if not isinstance(data, Mapping):
            raise ValueError("a search space is a mapping")
        pairs = data.get("threads")
        if not isinstance(pairs, list) or not all(
            isinstance(p, list) and len(p) == 2 for p in pairs
        ):
            raise ValueError("threads of a search space are pairs: ranks and threads per node")
        nodes, freqs = _whole(data.get("nodes"), 1), _whole(data.get("freqs_khz"), 0)
        threads = {(ranks, count) for ranks, count in (_whole(p, 1) for p in pairs)}
        if any(ranks > count for ranks, count in threads):
            raise ValueError("a search space has more ranks than threads")
        space = cls(
            node_type,
            tuple(sorted(set(nodes))),
            tuple(sorted(threads, key=lambda pair: (pair[1], pair[0]))),
            tuple(sorted(set(freqs))),
            _further(data.get("extra", [])),
        )
        if not 0 < len(space) <= MAX_CELLS:
            raise ValueError(
                f"a search space has {len(space)} configurations, not 1 to {MAX_CELLS}"
            )
        return space

    def __len__(self) -> int:
        further = math.prod(len(values) for _, values in self.extra)
        return len(self.nodes) * len(self.threads) * len(self.freqs_khz) * further

    def __iter__(self) -> Iterator[Configuration]:
        axes = [[(name, value) for value in values] for name, values in self.extra]
        for n, (ranks, threads), f in itertools.product(self.nodes, self.threads, self.freqs_khz):
            for extra in itertools.product(*axes):
                yield Configuration(self.node_type, n, ranks, threads, f, extra)


def _further(data: object) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return further axes of a search space. Raises ValueError for anything else."""
    if not isinstance(data, list) or not all(
        isinstance(axis, list) and len(axis) == 2 and axis[0] in AXES and axis[1] for axis in data
    ):
        raise ValueError("further axes of a search space are pairs: a name and its values")
    names = [str(name) for name, _ in data]
    if len(set(names)) < len(names):
        raise ValueError("a search space has an axis twice")
    return tuple(sorted((name, tuple(sorted(set(_whole(v, 1))))) for name, v in data))


def _whole(values: object, least: int) -> list[int]:
    """Return a list of whole numbers. Raises ValueError for anything else."""
    if not isinstance(values, list) or not all(
        type(v) is int and least <= v <= _MOST for v in values
    ):
        raise ValueError(f"a search space has whole numbers from {least} on")
    return values
