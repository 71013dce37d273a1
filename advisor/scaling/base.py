"""What every scaling model offers, and the runs and places it speaks of.

A *parameter* is a number of the job's input that changes its work; a *size* is one value of every
parameter. A scaling model predicts time and energy over sizes, nodes, ranks, cores and frequency.
Its error has two parts. What all options of one job share (how long that size runs) cancels where
options of the job are compared; what each option has of its own does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.size_table import FEWEST_SIZES as FEWEST_SIZES
from advisor.core.size_table import NODES as NODES
from advisor.errors import InputError
from advisor.models.base import Matrix, Vector
from advisor.models.scatter import ASSUMED, Z95


@dataclass(frozen=True, slots=True)
class SizedPlaces:
    """Sizes with configurations, row by row: ``sizes`` (m, k) in the order of ``parameters``.

    ``ranks`` and ``cores`` are per node, ``freq_khz`` is the cap (0: none can be set). ``counted``
    is what the application's profiles say a run does there, by name (m,): all instructions, and
    those that each term of their law is alone; empty where that is not known of every row.
    """

    parameters: tuple[str, ...]
    sizes: Matrix
    nodes: Vector
    ranks: Vector
    cores: Vector
    freq_khz: Vector
    counted: Mapping[str, Vector] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nodes)

    @classmethod
    def of(
        cls,
        parameters: Sequence[str],
        rows: Sequence[tuple[Mapping[str, float], Configuration]],
        laws: CountLaws | None = None,
    ) -> SizedPlaces:
        """Return the places of sizes and configurations; ``laws`` are those of the profiles."""
        sizes = np.array([[size[p] for p in parameters] for size, _ in rows], dtype=np.float64)
        axes = [(c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz) for _, c in rows]
        table = np.array(axes, dtype=np.float64).reshape(-1, 4)
        sizes = sizes.reshape(len(rows), len(parameters))
        counted = _counted(parameters, sizes, table, laws) if laws is not None else {}
        nodes, ranks, cores, freq_khz = table.T
        return cls(tuple(parameters), sizes, nodes, ranks, cores, freq_khz, counted)

    def some(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> SizedPlaces:
        """Return some of the rows."""
        return SizedPlaces(
            self.parameters,
            self.sizes[rows],
            self.nodes[rows],
            self.ranks[rows],
            self.cores[rows],
            self.freq_khz[rows],
            {name: column[rows] for name, column in self.counted.items()},
        )

    def growing(self) -> Matrix:
        """Return what may grow (m, k + 1): every parameter, then nodes."""
        return np.column_stack([self.sizes, self.nodes])

    def configurations(self) -> Matrix:
        """Return nodes, ranks, cores and frequency (m, 4)."""
        return np.column_stack([self.nodes, self.ranks, self.cores, self.freq_khz])

    def jobs(self) -> NDArray[np.intp]:
        """Return for each row the number of its job: rows of one size and node count share it."""
        if not len(self):
            return np.zeros(0, dtype=np.intp)
        _, number = np.unique(self.growing(), axis=0, return_inverse=True)
        return number.reshape(-1)

    def reference(self) -> int:
        """Return the row of the largest configuration: most nodes, cores, ranks, frequency."""
        order = np.lexsort((self.freq_khz, self.ranks, self.cores, self.nodes))
        return int(order[-1])

    def alike(self, other: SizedPlaces) -> NDArray[np.bool_]:
        """Return which rows of the other (columns) have a row's (rows) configuration."""
        rows, columns = self.configurations(), other.configurations()
        equal: NDArray[np.bool_] = (rows[:, None] == columns[None]).all(axis=2)
        return equal


def _counted(
    parameters: Sequence[str], sizes: Matrix, configurations: Matrix, laws: CountLaws
) -> dict[str, Vector]:
    """Return what profiles say of every row, by name; {} where one is not known."""
    keys = np.column_stack([sizes, configurations[:, 0] * configurations[:, 1]])
    different, number = np.unique(keys, axis=0, return_inverse=True)
    counts = []
    for *size, processes in different.tolist():
        counts.append(laws.counts(dict(zip(parameters, size, strict=True)), processes))
        if counts[-1] is None:
            return {}
    if not counts:
        return {}
    rows = number.reshape(-1)
    table = {name: np.array([c[name] for c in counts if c]) for name in counts[0] or ()}
    return {name: column[rows] for name, column in table.items()}


@dataclass(frozen=True, slots=True)
class SizedRuns:
    """Runs at several sizes: log time (s), log energy (J; None: not every run has it), repeats.

    Runs at one place are averaged; ``counts`` says of how many each is the mean. ``sigma`` is the
    standard deviation of a single run's logarithm.
    """

    places: SizedPlaces
    log_time: Vector
    log_energy: Vector | None
    counts: Vector
    sigma: float

    def __len__(self) -> int:
        return len(self.log_time)

    def some(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> SizedRuns:
        """Return some of the rows."""
        energy = None if self.log_energy is None else self.log_energy[rows]
        return SizedRuns(
            self.places.some(rows), self.log_time[rows], energy, self.counts[rows], self.sigma
        )

    @property
    def log_power(self) -> Vector:
        """Log power (W, all nodes). Only where energy is known."""
        assert self.log_energy is not None
        return self.log_energy - self.log_time

    @classmethod
    def of(
        cls,
        parameters: Sequence[str],
        runs: Sequence[tuple[Mapping[str, float], Configuration, float, float | None]],
        *,
        measurement_error: float = ASSUMED,
        laws: CountLaws | None = None,
    ) -> SizedRuns:
        """Return runs, each (size, configuration, time in s, energy in J or None).

        ``measurement_error`` is one run's assumed 95 % half width, a fraction; repeats say more,
        the assumed error counting as four of them.
        """
        if not runs:
            raise InputError("there are no runs to learn from", hint="measure three sizes or more")
        groups: dict[tuple[tuple[float, ...], Configuration], list[tuple[float, float]]] = {}
        with_energy = all(energy for *_, energy in runs)
        for size, configuration, time, energy in runs:
            key = tuple(size[p] for p in parameters), configuration
            groups.setdefault(key, []).append((time, energy if with_energy and energy else 1.0))
        logs = [np.log(np.array(v)) for v in groups.values()]
        means = np.array([v.mean(axis=0) for v in logs])
        freedom = sum(len(v) - 1 for v in logs)
        squares = sum(float(((v[:, 0] - v[:, 0].mean()) ** 2).sum()) for v in logs)
        assumed = measurement_error / Z95
        sigma = float(np.sqrt((4 * assumed**2 + squares) / (4 + freedom)))
        places = SizedPlaces.of(
            parameters, [(dict(zip(parameters, size, strict=True)), c) for size, c in groups], laws
        )
        counts = np.array([float(len(v)) for v in logs])
        return cls(places, means[:, 0], means[:, 1] if with_energy else None, counts, sigma)


@dataclass(frozen=True, slots=True)
class ScaledResponse:
    """A response's logarithm at m places: means and standard deviations of three errors.

    ``shared`` is what all options of the row's job are off together, ``own`` what the row is off
    against the job's largest configuration, ``noise`` the error of one run.
    """

    mean: Vector
    shared: Vector
    own: Vector
    noise: Vector

    @property
    def sigma(self) -> Vector:
        """The standard deviation of a new run."""
        deviation: Vector = np.sqrt(self.shared**2 + self.own**2 + self.noise**2)
        return deviation

    def widened(self, factor: float) -> ScaledResponse:
        """Return it with a larger shared error."""
        return replace(self, shared=self.shared * factor)


@dataclass(frozen=True, slots=True)
class ScalingForecast:
    """Both responses at the places asked for; ``energy`` is None where the runs have none.

    ``terms`` are the law in words or symbols, what grows with what.
    """

    time: ScaledResponse
    energy: ScaledResponse | None
    terms: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


class ScalingModel(Protocol):
    """Time and energy over sizes and configurations; entry points ``advisor.scaling``."""

    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]

    def forecast(self, runs: SizedRuns, places: SizedPlaces) -> ScalingForecast:
        """Fit to runs and predict; InputError where the runs do not suffice."""


def growing(runs: SizedRuns) -> list[int]:
    """Return which columns of :meth:`SizedPlaces.growing` have more than one value."""
    table = runs.places.growing()
    return [j for j in range(table.shape[1]) if len(np.unique(table[:, j])) > 1]
