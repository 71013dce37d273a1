"""The class of a signature: phases first, then the strategy that holds for the node type."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor import plugins
from advisor.classes.base import BUSY, GPU, IO, MPI, UNKNOWN, Measured, Setup, Strategy, apart
from advisor.core.signature import Signature
from advisor.errors import InputError

ERROR = 0.03
"""Standard error of a counter's rate from run to run, where the runs themselves do not say."""
DRAWS = 50
"""Signatures drawn within the errors of a measured one: confidence comes in steps of 2 %."""
_ASKED = ("cpi", "tpi", "gflops", "gbs", "io_mbs", "mpi_calls_s", "gpu_util")
_drawn = random.Random(14)
_NOISE = [tuple(_drawn.gauss(0, 1) for _ in range(6)) for _ in range(DRAWS)]
"""The same draws for everybody, so that the same signature gets the same answer."""
_FURTHEST = max(abs(n) for row in _NOISE for n in row)


def _factors(errors: Mapping[str, float]) -> list[list[float]]:
    """Return what each draw multiplies the measures with; never below 0."""
    measure_errors = [errors.get(measure, ERROR) for measure in _ASKED[:6]]
    return [
        [max(0.0, 1 + e * n) for e, n in zip(measure_errors, row, strict=True)] for row in _NOISE
    ]


_FACTORS = _factors({})


@dataclass(frozen=True, slots=True)
class Classification:
    """The class of a signature, and how it came about.

    ``strategy`` is the one that holds, ``agreement`` the class by each that is available,
    ``stable`` the share of draws within measurement error that keep the class.
    """

    name: str
    strategy: str
    distances: Mapping[str, float]
    agreement: Mapping[str, str]
    stable: float
    reasons: tuple[str, ...]


class Classifier:
    """The strategies that are available for a node type, most preferred first."""

    def __init__(self, setup: Setup, strategy_name: str = "") -> None:
        """Find them. Raises InputError where there is no strategy of that name."""
        self.setup = setup
        kinds: list[type[Strategy]] = [
            plugins.load("strategies", name) for name in plugins.names("strategies")
        ]
        instances = [kind.of(setup) for kind in sorted(kinds, key=lambda k: -k.RANK)]
        self.available: list[Strategy] = [s for s in instances if s is not None]
        if strategy_name:
            plugins.load("strategies", strategy_name)
            strategies = [s for s in self.available if strategy_name == s.NAME]
            if not strategies:
                why = "; ".join(setup.files.problems) or (
                    f"there are no files for it with tag {setup.tag}"
                )
                raise InputError(f"strategy {strategy_name} is not available: {why}")
            self.chosen = strategies
        else:
            self.chosen = self.available

    def classify(
        self, signature: Signature, errors: Mapping[str, float] | None = None
    ) -> Classification:
        """Return a signature's class; ``errors`` are relative standard errors of its measures.

        Of the strategies the first is taken whose measures are all there.
        """
        s = signature
        cpus = s.cpus or self.setup.cpus
        point = Measured(s.cpi, s.tpi, s.gflops, s.gbs, cpus)
        agreement = {candidate.NAME: candidate.class_of(*point) for candidate in self.available}
        usable = [candidate for candidate in self.chosen if agreement[candidate.NAME] != UNKNOWN]
        strategy = (usable or self.chosen)[0]
        phase = phase_of(point, s.io_mbs, s.mpi_calls_s, s.gpu_util)
        name = phase or agreement[strategy.NAME]
        distances: Mapping[str, float] = {}
        for candidate in self.available:
            distances = distances or candidate.distances(point)
        reasons = self._reasons(s, cpus, phase, strategy, agreement, point)
        stable = self._stable(s, point, strategy, phase, agreement[strategy.NAME], errors or {})
        return Classification(name, strategy.NAME, distances, agreement, stable, tuple(reasons))

    def _stable(
        self,
        s: Signature,
        point: Measured,
        strategy: Strategy,
        phase: str,
        strategy_class: str,
        errors: Mapping[str, float],
    ) -> float:
        """Return the share of draws that keep the class; no draw where none could change it."""
        io_mbs, calls = s.io_mbs, s.mpi_calls_s
        most = _FURTHEST * max(ERROR, *errors.values()) if errors else _FURTHEST * ERROR
        phase_holds = steady(point, io_mbs, calls, most)
        if phase_holds and phase:
            return 1.0
        strategy_holds = strategy.steady(point, most)
        if phase_holds and strategy_holds:
            return 1.0
        cpi, tpi, gflops, gbs, cpus = point
        gpu, class_of, same_class = s.gpu_util, strategy.class_of, 0
        for f1, f2, f3, f4, f5, f6 in _factors(errors) if errors else _FACTORS:
            c, t, f, b = (
                cpi and cpi * f1,
                tpi and tpi * f2,
                gflops and gflops * f3,
                gbs and gbs * f4,
            )
            drawn = phase
            if not phase_holds:
                changed = Measured(c, t, f, b, cpus)
                drawn = phase_of(changed, io_mbs and io_mbs * f5, calls and calls * f6, gpu)
            same_class += (
                drawn or (strategy_class if strategy_holds else class_of(c, t, f, b, cpus))
            ) == (phase or strategy_class)
        return same_class / DRAWS

    def _reasons(
        self,
        s: Signature,
        cpus: int | None,
        phase: str,
        strategy: Strategy,
        agreement: Mapping[str, str],
        point: Measured,
    ) -> list[str]:
        reasons = []
        if phase:
            reasons.append(_PHASES[phase].format(s=s, cpus=cpus))
            if phase == "busy-waiting" and s.gpu_util:
                reasons.append(f"its GPUs work meanwhile ({s.gpu_util:g} %)")
        if agreement[strategy.NAME] != UNKNOWN:
            explanation = f"{strategy.NAME}: {strategy.why(point)}"
            if strategy.NAME == "default":
                explanation += f"; limits: {self.setup.limits_from}"
            reasons.append(explanation)
        for candidate in self.chosen:
            lacking = [name for name in candidate.USES if getattr(s, name, None) is None]
            if agreement[candidate.NAME] == UNKNOWN and lacking:
                reasons.append(f"{candidate.NAME} lacks {', '.join(lacking)}")
            elif agreement[candidate.NAME] == UNKNOWN:
                reasons.append(f"{candidate.NAME}: nothing was counted")
        if s.mpi_calls_s is None and s.mpi_percent is not None and s.mpi_percent > 50:
            reasons.append(
                f"{s.mpi_percent:g} % of the time is MPI, but without calls per second it is not "
                "known to be mpi-bound"
            )
        return [*reasons, *self.setup.files.problems, *self.setup.notes]


_PHASES = {
    "gpu": "the GPUs are used ({s.gpu_util:g} %)",
    "mpi-bound": "{s.mpi_calls_s:g} MPI calls per second, more than 20000",
    "io-bound": "{s.io_mbs:g} MB/s of input and output, more than 10",
    "busy-waiting": "CPI {s.cpi:g} with next to no memory traffic and arithmetic on {cpus} CPUs",
}


def typical(signatures: Sequence[Signature]) -> tuple[Signature, dict[str, float], int]:
    """Return one signature for several runs of a workload, its relative errors, how many runs.

    Only runs of the newest's source and release count, since their scales differ; the medians of
    their measures are taken. ``signatures`` are newest first.
    """
    from dataclasses import replace
    from statistics import median, stdev

    newest = signatures[0]
    comparable = [s for s in signatures if (s.source, s.release) == (newest.source, newest.release)]
    values: dict[str, Any] = {}
    errors: dict[str, float] = {}
    for name in sorted({m for s in comparable for m in s.measures()}):
        measured = [getattr(s, name) for s in comparable if getattr(s, name) is not None]
        values[name] = middle = median(measured)
        if len(measured) > 2 and middle:
            errors[name] = max(ERROR, stdev(measured) / middle)
    return replace(newest, **values), errors, len(comparable)


IO_MBS, MPI_CALLS_S = 10.0, 20_000.0
BUSY_CPI, BUSY_GBS, BUSY_GFLOPS = 0.4, 3.0, 0.1
"""Waiting cores: below all of these, GB/s and GFLOP/s of one CPU."""


def phase_of(
    point: Measured, io_mbs: float | None, mpi_calls_s: float | None, gpu_util: float | None
) -> str:
    """Return gpu, io-bound, busy-waiting or mpi-bound, "" for none of them.

    What was not measured is not asked, and cycles per instruction of 0 were not counted. A GPU that
    works beside waiting cores is busy-waiting.
    """
    cpi, _, gflops, gbs, cpus = point
    waits = (
        cpi is not None
        and gbs is not None
        and gflops is not None
        and cpus is not None
        and 0 < cpi < BUSY_CPI
        and gbs / cpus < BUSY_GBS
        and gflops / cpus < BUSY_GFLOPS
    )
    if gpu_util and not waits:
        return GPU
    much_mpi = mpi_calls_s is not None and mpi_calls_s > MPI_CALLS_S
    if io_mbs is not None and io_mbs > IO_MBS and not much_mpi:
        return IO
    if waits:  # also within MPI, whose libraries wait actively
        return BUSY
    return MPI if much_mpi else ""


def steady(point: Measured, io_mbs: float | None, mpi_calls_s: float | None, share: float) -> bool:
    """Whether no change of the measures by less than ``share`` of each changes the phase."""
    cpi, _, gflops, gbs, cpus = point
    return (
        apart(io_mbs, IO_MBS, share)
        and apart(mpi_calls_s, MPI_CALLS_S, share)
        and (
            cpus is None
            or (
                apart(cpi, BUSY_CPI, share)
                and apart(gbs, BUSY_GBS * cpus, share)
                and apart(gflops, BUSY_GFLOPS * cpus, share)
            )
        )
    )
