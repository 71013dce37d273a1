"""What few runs buy: the advisor against what a user would take instead, on measured grids.

    python benchmarks/advice.py FOLDER ... [--runs 6,10] [--noise 0.01,0.05] [--seeds 3]
        [--methods advisor,gp,tpe,rf,random,cap80] [--disturbed-baseline 1.15] [--half NAME]
        [--earlier 4] [--grids] [--explain] [--json]

Every ``*.csv`` below the folders is a grid (columns as for ``advisor import``, a GPU's clock and
power limit among them; a further numeric column takes the place of an axis that does not vary):
truth is the mean of a cell's runs. A run comes out as its cell says, time and energy each times a
lognormal error of the size ``--noise``, drawn by grid, seed, cell and how often the cell ran
before, so that all methods see the same runs. ``--disturbed-baseline`` makes the first run of the
job as written so many times longer and dearer. The policy is 5 % slowdown, minimum energy, all else
as by default; the job as written has the most of every axis.

``advisor`` is ``advisor train``'s own sweep, with its default design and a store of its own, and
``--runs`` is its ``--budget``; ``uniform`` and ``sequential`` are its other designs. ``in-one`` is
what it does where nodes set a GPU's clock or limit as a job runs. With
``--earlier`` the store has so many other workloads of the same node type: six runs of each of the
next grids, on the same machine, of which two repeat others. From these the sweep knows how much
runs scatter, and nothing else; they cost the case nothing. The other methods get
as many runs, the job as written first, and take the least energy measured within the bound: ``gp``
(scikit-learn's Gaussian process) and ``rf`` (its random forest) run next where the expected
improvement within the bound is greatest, ``tpe`` is optuna's sampler, ``random`` draws cells,
``cap80`` caps the clock at 80 % without a run. A method whose library is missing is left out.
``told`` is no method but a limit: it is told every cell's truth and the noise, and only has to
show by its runs, at the policy's confidence, that the best of the cells keeps both bounds.

captured    saving realised of the best within the bound; a mean over cases whose grid has more to
            save than the policy's least saving; 0 where the bound is broken by more than 2 points
harm        share of cases (grid, seed) whose advice breaks the bound by more than 2 points, or
            costs more energy than the job as written
changed     share of cases with a change
cost_runs   node-seconds of all runs, in runs of the job as written
coverage    share of new runs at cells that were not run within the 90 % intervals

``--explain`` splits what the advisor does not capture, in shares of the best saving: cells that it
never ran, those whose runs do not show it (chosen without confidence), those not sure at the
policy's confidence, and those sure but not confirmed.

Grids are halved by the SHA-1 of their file's name: the even ones (``--half development``) were
looked at when the design was made, the odd ones (``--half reported``) were not.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, ClassVar

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process per core is enough

import numpy as np

from advisor.core.axes import AxisWriting
from advisor.core.configuration import Configuration, SearchSpace, largest_of
from advisor.core.gpus import GpusAsked
from advisor.core.inventory import Gpus, NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.policy import Policy, Training
from advisor.core.recommend import confirmed_choice
from advisor.core.request import JobRequest
from advisor.core.select import one_sided
from advisor.errors import AdvisorError
from advisor.loop.refit import refit
from advisor.models.adaptive import ADAPTIVE
from advisor.models.decision_score import GridCell
from advisor.schedulers.base import RunResult, SweepJob, SweepStatus
from advisor.schedulers.local.scheduler import Local
from advisor.store.csvfile import Terms, read_csv
from advisor.store.writer import Writer
from advisor.training import state as states
from advisor.training.outcome import SweepOutcome
from advisor.training.plan import first_runs_of, planned
from advisor.training.planning import values_in_one
from advisor.training.result_store import LocalResults
from advisor.training.site_context import scatter_before
from advisor.training.sweep import Sweep
from advisor.training.training_job import TrainingJob, TrainingSite

POLICY = replace(Policy(), goal="min_energy", training=Training(trust="all", budget_node_hours=1e9))
LOST = ("not run", "not shown", "not sure", "not confirmed")
"""Why a saving is not captured."""
IN_ONE_COST, IN_ONE_HALF = 0.5, 0.02
"""Of a run that goes through all values: its length in runs of the job, and the 90 % half width of
what it tells of each (benchmarks/visits.py)."""
BEYOND = 0.02
"""Points by which advice may break the bound before it is harm."""
LIBRARIES = {"gp": "sklearn", "rf": "sklearn", "tpe": "optuna"}
DESIGNS = {"advisor": ADAPTIVE, "uniform": "uniform", "sequential": "sequential"}
"""By method; the advisor is its default."""
FIRST = 4
"""Runs that gp and rf begin with: the job as written and three drawn ones."""
Z90 = NormalDist().inv_cdf(0.95)
AXES = ("threads_per_node", "freq_khz", "nodes")
"""Axes that a further column may take the place of, the first that does not vary."""


@dataclass(frozen=True)
class Grid:
    """A measured grid: true time (s) and energy (J) of every cell, and the job as written."""

    name: str
    cells: Mapping[Configuration, GridCell]
    baseline: Configuration

    @property
    def half(self) -> str:
        """Which half it belongs to, by its file's name."""
        name = self.name.partition(":")[0]
        return "reported" if hashlib.sha1(name.encode()).digest()[-1] % 2 else "development"

    def against(self, c: Configuration) -> tuple[float, float]:
        """Return a cell's true slowdown and saving, fractions."""
        base, cell = self.cells[self.baseline], self.cells[c]
        return cell.time / base.time - 1, 1 - cell.energy / base.energy

    @property
    def best(self) -> float:
        """The greatest saving within the bound."""
        both = [self.against(c) for c in self.cells]
        return max(saving for slowdown, saving in both if slowdown <= POLICY.max_slowdown)


@dataclass
class Machine:
    """Runs the cells of a grid with noise, and counts what that costs."""

    grid: Grid
    noise: float
    seed: int
    disturbed: float
    times_run: dict[Configuration, int] = field(default_factory=dict)
    node_s: float = 0.0
    others: Sequence[Grid] = ()
    """Other workloads that the advisor's store knows."""
    could: Sequence[Configuration] = ()
    """What the advisor could have chosen; see :func:`could_choose`."""

    def draw(self, c: Configuration, number: int) -> tuple[float, float]:
        """Return what the ``number``-th run of a cell takes: seconds, joules."""
        words = (self.grid.name, self.seed, c, number)
        seed = int.from_bytes(hashlib.sha1(repr(words).encode()).digest()[:8])
        errors = self.noise * np.random.default_rng(seed).normal(size=2)
        cell, longer = self.grid.cells[c], 1.0
        if c == self.grid.baseline and number == 0:
            longer = self.disturbed
        time, energy = (math.exp(e) * longer for e in errors)
        return cell.time * time, cell.energy * energy

    def run(self, c: Configuration) -> tuple[float, float]:
        """Run a cell."""
        number = self.times_run.get(c, 0)
        self.times_run[c] = number + 1
        time, energy = self.draw(c, number)
        self.node_s += c.nodes * time
        return time, energy

    def in_one(self, job: SweepJob) -> dict[int, RunResult]:
        """Go through a stage's values in one run; return what is known of each, by its number."""
        base = self.grid.baseline
        base_s, base_j = self.draw(base, 0)
        self.node_s += IN_ONE_COST * base.nodes * base_s
        errors = {"share": IN_ONE_COST, "time": IN_ONE_HALF, "energy": IN_ONE_HALF}
        results = {}
        for run in job.runs:
            slowdown, saving = self.grid.against(run.configuration)
            words = (self.grid.name, self.seed, run.configuration, "in one")
            seed = int.from_bytes(hashlib.sha1(repr(words).encode()).digest()[:8])
            off = np.exp(IN_ONE_HALF / Z90 * np.random.default_rng(seed).normal(size=2))
            time_s, energy_j = base_s * (1 + slowdown) * off[0], base_j * (1 - saving) * off[1]
            results[run.seq] = RunResult(
                run.seq, 1, True, time_s, energy_j, "measured", "grid", extrapolated=errors
            )
        return results

    @property
    def cost(self) -> float:
        """What all runs took, in runs of the job as written."""
        base = self.grid.baseline
        return self.node_s / (base.nodes * self.grid.cells[base].time)

    def coverage(self, intervals: Mapping[Configuration, Sequence[tuple[float, float]]]) -> float:
        """Return the share of new runs at cells that did not run within intervals.

        ``intervals`` has low and high of time and of energy.
        """
        inside = [
            low <= value <= high
            for c in self.grid.cells
            if c not in self.times_run and c in intervals
            for value, (low, high) in zip(self.draw(c, 0), intervals[c], strict=True)
        ]
        return fmean(inside) if inside else math.nan


Advice = tuple[Configuration, float]
"""What is advised, and the coverage of the intervals (NaN: there are none)."""


# -- the advisor -----------------------------------------------------------------------------------


class Replay(Local):
    """A scheduler whose runs come out as a machine's."""

    NAME: ClassVar[str] = "local"
    POLL_S: ClassVar[float] = 0.0

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._results: dict[int, RunResult] = {}

    def submit_sweep(self, job: SweepJob) -> str:
        """Make the stage's runs."""
        if job.in_one:
            self._results |= self._machine.in_one(job)
            return ""
        for run in job.runs:
            time, energy = self._machine.run(run.configuration)
            self._results[run.seq] = RunResult(run.seq, 1, True, time, energy, "measured", "grid")
        return ""

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        """Return the stage's runs."""
        return SweepStatus("ended", tuple(self._results[run.seq] for run in job.runs))


@dataclass(slots=True)
class OnGrid(Sweep):
    """A sweep that may only run what the grid has."""

    cells: Collection[Configuration] = ()

    def _allowed_options(self, fit: Any, *, say: bool = False) -> tuple[Option, ...]:
        return tuple(
            o for o in Sweep._allowed_options(self, fit, say=say) if o.configuration in self.cells
        )


def advisor(machine: Machine, runs: int, design: str, *, in_one: bool = False) -> Advice:
    """Make a whole sweep of at most ``runs`` runs.

    ``in_one``: the second run goes through the values of a grid that has a further axis alone.
    """
    cells, base = sorted(machine.grid.cells), machine.grid.baseline
    space = SearchSpace.of(base.node_type, cells)
    further = dict(space.extra)
    node_type = NodeType(
        base.node_type,
        cores=base.threads_per_node,
        freq_khz=space.freqs_khz,
        default_freq_khz=space.freqs_khz[-1],
        nodes=("n1",),
        partitions=("p",),
        gpus=Gpus("posed", 1, further.get("gpu_freq_khz", ()), further.get("gpu_power_w", ())),
    )
    request = JobRequest(
        "local", "train", "someone", 1, exclusive=True, partition="p", gpus=GpusAsked(count=1)
    )
    subject = TrainingJob(
        "grid", "w", node_type, base, request, partition="p", method="variables", fills_cores=True
    )
    first, most = first_runs_of(design, space, runs, base, cells)
    curve: tuple[Configuration, ...] = ()
    if in_one and base.extra and len({replace(c, extra=()) for c in cells}) == 1:
        curve = values_in_one(base, space)
        first = [base]
    with tempfile.TemporaryDirectory(prefix="advice-", dir=_memory()) as folder:
        store = Path(folder) / "db"
        with Writer(store) as writer:
            measure_others(machine, writer)
        settings = states.SweepSettings(
            "local",
            "someone",
            design=design,
            most_runs=most,
            elsewhere=scatter_before(store, subject, POLICY),
            axes={name: AxisWriting() for name in further},
            curve=curve,
        )
        state = states.new(
            Path(folder), subject, space, settings, planned(first, base, alone=not most)
        )
        states.begin(state)
        sink = LocalResults(Writer(store), user="someone", trust="all")
        sweep = OnGrid(
            state,
            Replay(machine),
            sink,
            POLICY,
            TrainingSite(),
            lambda event: None,
            cells=set(cells),
        )
        outcome = sweep.run()
        sink.close()
    intervals = {
        o.configuration: ((o.time_lo_s, o.time_hi_s), (o.energy_lo_j, o.energy_hi_j))
        for o in outcome.fit.predicted
    }
    machine.could = could_choose(machine, sweep, outcome)
    choice = outcome.recommended
    return base if choice is None else choice.configuration, machine.coverage(intervals)


def measure_others(machine: Machine, writer: Writer) -> None:
    """Store and fit six runs of each other workload, two of which repeat others."""
    for grid in machine.others:
        there = Machine(grid, machine.noise, machine.seed, 1.0)
        cells = sorted(c for c in grid.cells if c != grid.baseline)
        order = np.random.default_rng(machine.seed).permutation(len(cells))
        chosen = [grid.baseline, *(cells[i] for i in order[:3])]
        runs = [Observation(c, *there.run(c), scope="all") for c in [*chosen, *chosen[:2]]]
        node_type = grid.baseline.node_type
        writer.add_observations("other", grid.name, runs)
        refit(writer, "other", grid.name, node_type, "all", "")


def could_choose(machine: Machine, sweep: Sweep, outcome: SweepOutcome) -> list[Configuration]:
    """Return the best cell that ran, and the choice among all that ran without and with confidence.

    Neither asks for a confirmation.
    """
    grid = machine.grid
    ran = [c for c in machine.times_run if grid.against(c)[0] <= POLICY.max_slowdown]
    options = [
        replace(o, confirmed=o.confirmed or o.measured) for o in sweep._allowed_options(outcome.fit)
    ]
    choices = [
        confirmed_choice(options, outcome.baseline, replace(POLICY, confidence=confidence))
        for confidence in (0.5, POLICY.confidence)
    ]
    return [
        max(ran, key=lambda c: grid.against(c)[1], default=grid.baseline),
        *(c or grid.baseline for c in choices),
    ]


def _memory() -> str | None:
    """Return a folder in memory where there is one: a sweep waits for the disk at every step."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# -- the others ------------------------------------------------------------------------------------


def thriftiest(seen: Mapping[Configuration, tuple[float, float]], base: Configuration) -> Advice:
    """Return what a user takes: the least energy measured within the bound."""
    limit = seen[base][0] * (1 + POLICY.max_slowdown)
    within = [c for c, (time, _) in seen.items() if time <= limit]
    return min(within, key=lambda c: seen[c][1]), math.nan


def by_surrogate(machine: Machine, runs: int, predict: Callable[..., Any]) -> Advice:
    """Run where the expected improvement within the bound is greatest, by a model of both logs."""
    grid = machine.grid
    cells, base = sorted(grid.cells), grid.baseline
    x = np.array(
        [
            (c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz, *(v for _, v in c.extra))
            for c in cells
        ]
    )
    x = np.log(np.maximum(x, 1.0))
    x = (x - x.min(axis=0)) / np.maximum(np.ptp(x, axis=0), 1e-9)
    order = [cells[i] for i in np.random.default_rng(machine.seed).permutation(len(cells))]
    seen = {c: machine.run(c) for c in [base, *(c for c in order if c != base)][: min(runs, FIRST)]}
    normal = NormalDist()
    while True:
        rows = [cells.index(c) for c in seen]
        logs = np.log(np.array(list(seen.values())) / np.array(seen[base]))
        (time, time_sigma), (energy, energy_sigma) = (
            predict(x[rows], logs[:, k], x, machine.seed) for k in range(2)
        )
        if len(seen) >= min(runs, len(cells)):
            break
        bound = math.log1p(POLICY.max_slowdown)
        best = min(e for t, e in logs if t <= bound)
        worth = [
            -math.inf
            if c in seen
            else normal.cdf((bound - time[i]) / time_sigma[i])
            * energy_sigma[i]
            * _gain((best - energy[i]) / energy_sigma[i], normal)
            for i, c in enumerate(cells)
        ]
        c = cells[int(np.argmax(worth))]
        seen[c] = machine.run(c)
    intervals = {
        c: tuple(
            (
                seen[base][k] * math.exp(m[i] - Z90 * s[i]),
                seen[base][k] * math.exp(m[i] + Z90 * s[i]),
            )
            for k, (m, s) in enumerate(((time, time_sigma), (energy, energy_sigma)))
        )
        for i, c in enumerate(cells)
    }
    return thriftiest(seen, base)[0], machine.coverage(intervals)


def _gain(z: float, normal: NormalDist) -> float:
    return z * normal.cdf(z) + normal.pdf(z)


def gp(x: Any, y: Any, wanted: Any, seed: int) -> tuple[Any, Any]:
    """Return mean and standard deviation of new runs by a Gaussian process (Matern 5/2)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel(1.0) * Matern(np.ones(x.shape[1]), nu=2.5) + WhiteKernel(1e-3)
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of settings that end at their bounds
        mean, sigma = model.fit(x, y).predict(wanted, return_std=True)
    return mean, np.maximum(sigma, 1e-6)


def rf(x: Any, y: Any, wanted: Any, seed: int) -> tuple[Any, Any]:
    """Return mean and standard deviation over the trees of a random forest."""
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(100, random_state=seed).fit(x, y)
    trees = np.array([tree.predict(wanted) for tree in forest.estimators_])
    return trees.mean(axis=0), np.maximum(trees.std(axis=0), 1e-6)


def tpe(machine: Machine, runs: int) -> Advice:
    """Let optuna's tree-structured Parzen estimator choose, the bound as a constraint."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    grid, base = machine.grid, machine.grid.baseline
    axes = {name: sorted({getattr(c, name) for c in grid.cells}) for name in AXES}
    cells = {tuple(getattr(c, name) for name in AXES): c for c in grid.cells}
    seen: dict[Configuration, tuple[float, float]] = {base: machine.run(base)}
    sampler = optuna.samplers.TPESampler(seed=machine.seed, n_startup_trials=FIRST - 1)
    study = optuna.create_study(sampler=sampler)
    spread: dict[str, Any] = {
        n: optuna.distributions.IntDistribution(0, len(v) - 1) for n, v in axes.items()
    }

    def value(c: Configuration) -> float:
        beyond = seen[c][0] / seen[base][0] - 1 - POLICY.max_slowdown
        return seen[c][1] / seen[base][1] + 10 * max(0.0, beyond)

    place = {n: v.index(getattr(base, n)) for n, v in axes.items()}
    study.add_trial(
        optuna.trial.create_trial(params=place, distributions=spread, value=value(base))
    )
    for _ in range(20 * runs):  # holes of the grid and repeats cost no run
        if len(seen) >= runs:
            break
        trial = study.ask(spread)
        c = cells.get(tuple(axes[n][trial.params[n]] for n in AXES))
        if c is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        if c not in seen:
            seen[c] = machine.run(c)
        study.tell(trial, value(c))
    return thriftiest(seen, base)


def drawn(machine: Machine, runs: int) -> Advice:
    """Run cells at random."""
    cells, base = sorted(machine.grid.cells), machine.grid.baseline
    order = np.random.default_rng(machine.seed).permutation(len(cells))
    some = [base, *(cells[i] for i in order if cells[i] != base)][:runs]
    return thriftiest({c: machine.run(c) for c in some}, base)


def cap80(machine: Machine, runs: int) -> Advice:
    """Cap the clock at 80 % of its highest, unseen."""
    base = machine.grid.baseline
    clocks = {
        c: c.extra[0][1] / base.extra[0][1] if base.extra else c.freq_khz / max(1, base.freq_khz)
        for c in machine.grid.cells
        if replace(c, freq_khz=base.freq_khz, extra=base.extra) == base
    }
    lower = [c for c, share in clocks.items() if share <= 0.8]
    return max(lower, key=clocks.__getitem__, default=base), math.nan


def told(machine: Machine, runs: int) -> Advice:
    """Show what it was told to be best, by half of the runs, against the job as written.

    It knows how much runs scatter, and what every cell truly takes: of all it takes the one whose
    saving, times the probability that its runs show it, is greatest. It advises that if they do at
    the policy's confidence.
    """
    grid, base, normal = machine.grid, machine.grid.baseline, NormalDist()
    as_written, tried = (runs + 1) // 2, runs // 2
    sigma = max(machine.noise, 1e-9) * math.sqrt(1 / as_written + 1 / tried)
    z = one_sided(POLICY.confidence)
    room = math.log1p(POLICY.max_slowdown), math.log1p(-POLICY.min_saving)

    def shown(times: float, energies: float) -> tuple[float, float]:
        """Return by how many standard errors both bounds are kept beyond the confidence."""
        logs = math.log(times), math.log(energies)
        return tuple((most - log) / sigma - z for most, log in zip(room, logs, strict=True))  # type: ignore[return-value]

    def worth_showing(c: Configuration) -> float:
        slowdown, saving = grid.against(c)
        return saving * math.prod(map(normal.cdf, shown(1 + slowdown, 1 - saving)))

    within = [c for c in grid.cells if c != base and grid.against(c)[0] <= POLICY.max_slowdown]
    if not within:
        return base, math.nan
    best = max(within, key=worth_showing)
    means = [
        [math.fsum(math.log(v) for v in column) / times for column in zip(*seen, strict=True)]
        for c, times in ((base, as_written), (best, tried))
        for seen in ([machine.run(c) for _ in range(times)],)
    ]
    ratios = [math.exp(there - here) for here, there in zip(*means, strict=True)]
    return (best if min(shown(*ratios)) > 0 else base), math.nan


METHODS: dict[str, Callable[[Machine, int], Advice]] = {
    **{name: lambda m, n, d=d: advisor(m, n, d) for name, d in DESIGNS.items()},  # type: ignore[misc]
    "in-one": lambda m, n: advisor(m, n, ADAPTIVE, in_one=True),
    "gp": lambda m, n: by_surrogate(m, n, gp),
    "tpe": tpe,
    "rf": lambda m, n: by_surrogate(m, n, rf),
    "random": drawn,
    "cap80": cap80,
    "told": told,
}
USUAL = "advisor,gp,tpe,rf,random,cap80"


# -- grids, cases, rows ----------------------------------------------------------------------------


def grids_below(folders: Sequence[Path]) -> Iterator[Grid]:
    """Return every grid below folders. Raises AdvisorError for a file that is none."""
    files = sorted({p for f in folders for p in ([f] if f.is_file() else f.rglob("*.csv"))})
    if not files:
        raise AdvisorError(f"there are no *.csv files below {' '.join(map(str, folders))}")
    for path in files:
        read = read_csv(path, Terms("grid", "benchmark"))
        runs = list(read.observations)
        further = [n for n in read.extra_columns if _varies(n, runs)]
        yield from _grids(path.stem, path.name, runs, further)


def _varies(name: str, runs: Sequence[Observation]) -> bool:
    """Tell whether a further column is an axis: numbers, and more than one."""
    values = {o.extra.get(name) for o in runs}
    return len(values) > 1 and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in values
    )


def _grids(
    stem: str, name: str, runs: Sequence[Observation], further: Sequence[str]
) -> Iterator[Grid]:
    """Put further columns in the place of axes that do not vary; one grid a value for the rest."""
    for column in further:
        free = [a for a in AXES if len({getattr(o.configuration, a) for o in runs}) == 1]
        values = sorted({float(str(o.extra[column])) for o in runs})
        if not free:
            for v in values:
                some = [o for o in runs if float(str(o.extra[column])) == v]
                rest = [n for n in further if n != column]
                yield from _grids(f"{stem} {column} {v:g}", name, some, rest)
            return
        whole = all(v == int(v) for v in values)
        place: dict[float, Any] = {v: int(v) if whole else i + 1 for i, v in enumerate(values)}
        if free[0] == "threads_per_node":
            runs = [
                replace(o, configuration=replace(o.configuration, ranks_per_node=1)) for o in runs
            ]
        runs = [
            replace(
                o,
                configuration=replace(
                    o.configuration, **{free[0]: place[float(str(o.extra[column]))]}
                ),
            )
            for o in runs
        ]
    by_cell: dict[Configuration, list[Observation]] = {}
    for o in runs:
        if o.energy_j is not None:
            by_cell.setdefault(o.configuration, []).append(o)
    cells = {
        c: GridCell(fmean(o.time_s for o in some), fmean(o.energy_j or 0.0 for o in some))
        for c, some in by_cell.items()
    }
    base = largest_of(cells)
    cells = {c: v for c, v in cells.items() if c.ranks_per_node == base.ranks_per_node}
    if len(cells) > 1:
        yield Grid(f"{name}:{stem}", cells, base)


@dataclass(frozen=True)
class Case:
    """One grid and seed for one method."""

    grid: Grid
    method: str
    runs: int
    noise: float
    seed: int
    disturbed: float
    others: Sequence[Grid] = ()


@dataclass(frozen=True)
class Judged:
    """What a method's advice came to on one case; ``best`` is the most that could be saved."""

    case: Case
    chosen: Configuration
    slowdown: float
    saving: float
    best: float
    cost: float
    coverage: float
    could: Sequence[Configuration] = ()

    @property
    def broken(self) -> bool:
        """Whether the bound is broken by more than 2 points."""
        return self.slowdown > POLICY.max_slowdown + BEYOND

    @property
    def harm(self) -> bool:
        """Whether the advice is worse than none."""
        return self.broken or self.saving < -1e-9

    @property
    def captured(self) -> float:
        """The share of the best saving that is realised, at most all of it."""
        return self.captured_by(self.chosen)

    def captured_by(self, c: Configuration) -> float:
        """Return the same of another choice."""
        slowdown, saving = self.case.grid.against(c)
        broken = slowdown > POLICY.max_slowdown + BEYOND
        return 0.0 if broken else min(1.0, saving / self.best)

    @property
    def lost(self) -> list[float]:
        """What is not captured, by cause (:data:`LOST`)."""
        steps = [1.0, *map(self.captured_by, self.could), self.captured]
        return [before - after for before, after in pairwise(steps)]


def judge(case: Case) -> Judged:
    """Ask a method for advice, and compare it with the truth."""
    machine = Machine(case.grid, case.noise, case.seed, case.disturbed, others=case.others)
    chosen, coverage = METHODS[case.method](machine, case.runs)
    slowdown, saving = case.grid.against(chosen)
    return Judged(
        case, chosen, slowdown, saving, case.grid.best, machine.cost, coverage, machine.could
    )


def worth(judged: Judged) -> bool:
    """Tell whether a case's grid has enough to save."""
    return judged.best > POLICY.min_saving


def row(method: str, runs: int, noise: float, judged: Sequence[Judged]) -> dict[str, object]:
    """Return one row of the table: means over cases; None where there is nothing to average."""
    captured = [j.captured for j in judged if worth(j)]
    covered = [j.coverage for j in judged if not math.isnan(j.coverage)]
    return {
        "method": method,
        "runs": runs,
        "noise": noise,
        "grids": len({j.case.grid.name for j in judged}),
        "captured": round(fmean(captured), 4) if captured else None,
        "harm": round(fmean(j.harm for j in judged), 4),
        "changed": round(fmean(j.chosen != j.case.grid.baseline for j in judged), 4),
        "cost_runs": round(fmean(j.cost for j in judged), 2),
        "coverage": round(fmean(covered), 4) if covered else None,
    }


def at_shares(judged: Judged) -> str:
    """Return what was advised, each axis as a share of the job as written's."""
    chosen, base = judged.chosen, judged.case.grid.baseline
    places = [(getattr(chosen, a), getattr(base, a)) for a in AXES[:2]]
    places += [(a, b) for (_, a), (_, b) in zip(chosen.extra, base.extra, strict=True)]
    return " ".join(f"{a / b:.2f}" for a, b in places if b)


def numbers(parse: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [parse(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="what few runs buy on measured grids")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--runs", type=numbers(int), default=[6, 10])
    parser.add_argument("--noise", type=numbers(float), default=[0.01, 0.05], help="fractions")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--disturbed-baseline", type=float, default=1.0, metavar="FACTOR")
    parser.add_argument("--methods", type=numbers(str), default=USUAL.split(","))
    parser.add_argument("--half", choices=("all", "development", "reported"), default="all")
    parser.add_argument("--earlier", type=int, default=0, help="workloads measured before")
    parser.add_argument("--grids", action="store_true", help="a line for each case, too")
    parser.add_argument("--explain", action="store_true", help="where savings are lost")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.folders:
        parser.exit(message="no folder of measured grids is named: nothing to do\n")
    if unknown := set(args.methods) - set(METHODS):
        parser.error(f"--methods: {', '.join(sorted(unknown))}; choose from {', '.join(METHODS)}")
    if min(args.runs) < 2 or args.seeds < 1 or min(args.noise) < 0 or args.earlier < 0:
        parser.error("--runs from 2, --seeds from 1, --noise and --earlier from 0")
    try:
        grids = [g for g in grids_below(args.folders) if args.half in ("all", g.half)]
    except AdvisorError as error:
        raise SystemExit(f"advice.py: {error}") from None
    others = {
        g.name: [o for o in (*grids[i:], *grids[:i]) if len(o.cells) > 3][1 : args.earlier + 1]
        for i, g in enumerate(grids)
    }
    methods = []
    for method in args.methods:
        library = LIBRARIES.get(method, "json")
        if find_spec(library) is None:
            print(f"{method} is left out: {library} is not installed", file=sys.stderr)
        else:
            methods.append(method)
    rows = []
    out = contextlib.nullcontext(sys.stderr if args.json else sys.stdout)
    with out as lines, ProcessPoolExecutor(os.cpu_count()) as pool:
        for method, runs, noise in product(methods, args.runs, args.noise):
            cases = [
                Case(g, method, runs, noise, s, args.disturbed_baseline, others[g.name])
                for g in grids
                for s in range(args.seeds)
            ]
            judged = list(pool.map(judge, cases))
            rows.append(row(method, runs, noise, judged))
            if args.explain and (split := [j.lost for j in judged if j.could and worth(j)]):
                means = [round(fmean(values), 4) for values in zip(*split, strict=True)]
                rows[-1]["lost"] = dict(zip(LOST, means, strict=True))
            if args.grids:
                for j in judged:
                    print(
                        f"  {j.case.grid.name[:40]:<42}{j.case.seed:>3}  saved {j.saving:7.3f} of "
                        f"{j.best:6.3f}, slower {j.slowdown:7.3f}, cost {j.cost:5.1f}, coverage "
                        f"{j.coverage:5.2f}, at {at_shares(j)}"
                        f"{'  HARM' if j.harm else ''}",
                        file=lines,
                    )
            print("  ".join(f"{k} {v}" for k, v in rows[-1].items()), file=lines, flush=True)
    if args.json:
        print(json.dumps({"schema": "advisor/advice/1", "rows": rows}))


if __name__ == "__main__":
    main()
