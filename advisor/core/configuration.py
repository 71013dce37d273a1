"""What a job runs on: a configuration, and the grid of configurations to choose from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """One point of the search space.

    ``threads_per_node`` counts the cores a job uses on each node (ranks x threads per rank);
    ``freq_khz`` is the frequency cap in kHz, 0 where no cap can be set.
    """

    node_type: str
    nodes: int
    ranks_per_node: int
    threads_per_node: int
    freq_khz: int

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

        Time goes at worst with 1 / (cores x frequency); a larger configuration counts as no faster.
        """
        ratio = baseline.cores / self.cores
        if baseline.freq_khz and self.freq_khz:
            ratio *= baseline.freq_khz / self.freq_khz
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
        )


def thin(values: Sequence[int], most: int) -> tuple[int, ...]:
    """Return at most ``most`` of the values, evenly, first and last included."""
    if len(values) <= most:
        return tuple(values)
    last = len(values) - 1
    return tuple(values[round(i * last / (most - 1))] for i in range(most))


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The grid a model is evaluated on: node counts x (ranks, threads) pairs x frequency caps."""

    node_type: str
    nodes: tuple[int, ...]
    threads: tuple[tuple[int, int], ...]
    """Pairs (ranks_per_node, threads_per_node), ascending."""
    freqs_khz: tuple[int, ...]

    @classmethod
    def of(cls, node_type: str, configurations: Iterable[Configuration]) -> SearchSpace:
        """Return the smallest full grid that holds every given configuration."""
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
        )

    def __len__(self) -> int:
        return len(self.nodes) * len(self.threads) * len(self.freqs_khz)

    def __iter__(self) -> Iterator[Configuration]:
        for n, (ranks, threads), f in itertools.product(self.nodes, self.threads, self.freqs_khz):
            yield Configuration(self.node_type, n, ranks, threads, f)
