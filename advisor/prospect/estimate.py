"""What caps and fewer threads would save of a use: draws of what is not known, and their 90 %.

An accounting does not say how a program answers to a cap. So the answer is drawn from what others
published, and all that jobs share is drawn once for all of them: it does not average out.

- Time under a cap of share ``r`` of the frequency is ``1 + beta (1/r - 1)``, power
  ``1 - d (1 - r^2)``. ``beta``, how far a program slows down with its clock, is a program's own;
  ``d``, how much of the power the clock moves, is the site's, times a program's own part of it.
- A cap keeps the policy's ``max_slowdown`` and reaches its ``min_saving``, or there is none.
- Of the saving that is possible, sweeps with few runs reach a part.
- Fewer threads save what the history says, where it has several counts whose runs agree.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated

import numpy as np

from advisor.core.codec import AtLeast, AtMost, Count, JsonForm, wire
from advisor.core.inventory import Inventory
from advisor.core.policy import Policy
from advisor.core.worth import J_PER_KWH
from advisor.prior.surface import Array
from advisor.prospect.usage import GroupUse, Usage, UseGroup, workload

Portion = Annotated[float, AtLeast(0), AtMost(1)]
_SCRIPT = re.compile(r"[\w./+@%=,-]+\.(?:sh|bash|slurm|sbatch|batch|pbs|job|cmd|sub|run)")
CPU_BOUND, MEMORY_BOUND, UNKNOWN = "cpu-bound", "memory-bound", ""
BETA: Mapping[str, tuple[float, float]] = {
    CPU_BOUND: (9.0, 1.0),
    MEMORY_BOUND: (3.0, 7.0),
    UNKNOWN: (0.7, 0.4),
}
"""Beta distributions of ``beta``. Unknown programs: mean 0.64 and deviation 0.33, as 30 published
ones have (seven of PARSEC on 32 cores, 20 on a V100, three on a GV100; docs/prospect.md)."""
SITE_D = (0.2, 0.75)
"""Between these ``d`` of a site lies, each value as likely: 0.70 on the V100, 0.55 on the GV100, up
to 0.7 for the busiest programs of PARSEC."""
PROGRAM_D = (3.0, 1.0)
"""Beta distribution of a program's part of it: programs that leave cores idle have little."""
LEAST_FREQ = 0.6
"""No cap goes below this share of the frequency."""
REACHED = (13.0, 4.3)
"""Beta distribution of the part of the possible saving that sweeps of 6 to 12 runs reach: 68 to
84 % where it was measured (docs/cold_start.md)."""
SPREAD = {"partition": 0.1, "site": 0.2, "default": 0.45}
"""Standard deviation of the logarithm of an assumed power, by where it is from."""
CLASS_OF: Mapping[str, str] = {
    **dict.fromkeys(
        ("gmx*", "mdrun*", "gromacs*", "lmp*", "lammps*", "namd*", "sph_exa*", "soma*", "sweep*"),
        CPU_BOUND,
    ),
    **dict.fromkeys(("clvleaf*", "cloverleaf*", "hpgmg*", "pot3d*", "tealeaf*"), MEMORY_BOUND),
}
"""Classes that were published, by name: ARCHER2 leaves GROMACS, LAMMPS and NAMD uncapped because
a cap costs them much time; the others are SPEChpc's, by its authors' roofline."""
SWEEP_RUNS = 10
"""Runs that training takes, each about as long as a job (docs/cold_start.md: 8 to 14)."""
TRAIN_FIRST = 10
DRAWS = 4000
"""Draws of all that is not known; an end of the interval then varies by about 2 %."""
_ALONE = 300
"""Applications that are drawn one by one; smaller ones as :data:`_TOGETHER` equal ones."""
_TOGETHER = 64
_CAPS = 9
"""Caps that are tried between the least and none."""
LEAST_RUNS = 5
"""Metered runs at a thread count, from which on it counts."""
AGREEMENT = 0.05
"""Runs of one count agree if their times' logarithms deviate by no more (docs/past.md)."""
_ONE_SIDED = 1.2816
"""Standard errors of the policy's confidence, 90 % on one side."""
_SEED = 20_250_101
"""The same file gives the same answer."""


@dataclass(frozen=True, slots=True)
class Slice(JsonForm):
    """The use of an application, user group or partition; energies in kWh.

    ``saving`` is mean, 5 % and 95 % quantile; ``of_class`` is "" where none is published.
    """

    JSON = (
        "jobs",
        "node_hours",
        "kwh",
        "assumed_share",
        "actionable_jobs",
        "actionable_kwh",
        "saving_kwh",
        "saving_interval",
    )

    name: str
    jobs: Count
    node_hours: float
    kwh: float
    assumed_share: Portion = field(metadata=wire("kwh_assumed_share"))
    actionable_jobs: Count
    actionable_kwh: float
    saving: tuple[float, float, float]
    of_class: str = ""

    @property
    def saving_kwh(self) -> float:
        """The mean saving."""
        return self.saving[0]

    @property
    def saving_interval(self) -> tuple[float, float]:
        """Its 90 % interval."""
        return self.saving[1:]


@dataclass(frozen=True, slots=True)
class TrainingCandidate(JsonForm):
    """A user's program on so many nodes, worth training: what it used and would save, kWh."""

    JSON = (
        "application",
        "user",
        "account",
        "partition",
        "nodes",
        "jobs",
        "kwh",
        "saving_kwh",
        "training_kwh",
        "command",
    )

    application: str
    user: str
    account: str = field(metadata=wire("user_group"))
    partition: str
    nodes: Count
    jobs: Count
    kwh: float
    saving_kwh: float
    training_kwh: float
    submit_line: str

    @property
    def command(self) -> str:
        """The command that trains it; JOBSCRIPT where its script is not known."""
        try:
            words = shlex.split(self.submit_line)
        except ValueError:
            words = []
        script = next((w for w in words[1:] if _SCRIPT.fullmatch(w) and not w.startswith("-")), "")
        return f"advisor train {shlex.quote(script) if script else 'JOBSCRIPT'}"


@dataclass(frozen=True, slots=True)
class Prospect:
    """The whole answer; energies in kWh, ``saving`` as in :class:`Slice`, shares from 0 to 1.

    ``thread_kwh`` is what of the expected saving comes from thread counts of the history.
    ``assumed_by`` has, by where an assumed power is from, its share of all energy.
    """

    whole: Slice
    kwh_interval: tuple[float, float]
    assumed_by: Mapping[str, float]
    thread_kwh: float
    training_kwh: float
    by_application: tuple[Slice, ...]
    by_account: tuple[Slice, ...]
    by_partition: tuple[Slice, ...]
    train_first: tuple[TrainingCandidate, ...]


def class_of(application: str) -> str:
    """Return the published class of an application by its name, "" for none."""
    name = application.lower()
    return next((c for pattern, c in CLASS_OF.items() if fnmatchcase(name, pattern)), UNKNOWN)


def cap_saving(beta: Array, d: Array, policy: Policy) -> Array:
    """Return the share of energy that the best cap saves, 0 where none does; any equal shapes."""
    best = np.zeros(np.broadcast(beta, d).shape)
    # no cap below which the slowdown breaks the bound
    least = np.maximum(LEAST_FREQ, 1 / (1 + policy.max_slowdown / np.maximum(beta, 1e-9)))
    for step in range(_CAPS):
        r = least + (1 - least) * step / _CAPS
        np.maximum(best, 1 - (1 + beta * (1 / r - 1)) * (1 - d * (1 - r * r)), out=best)
    best[best < policy.min_saving] = 0.0
    return best


@dataclass(slots=True)
class _Energies:
    """Energies (J) of some groups: metered, assumed by source, and what of all can be capped.

    ``threads`` is what fewer threads would save of the energy that can be acted on.
    """

    metered: float = 0.0
    assumed: dict[str, float] | None = None
    cappable: float = 0.0
    threads: float = 0.0
    threads_variance: float = 0.0

    def add(self, use: GroupUse, cappable: bool, threads: tuple[float, float]) -> None:
        self.metered += use.energy_j - use.assumed_j
        self.assumed = self.assumed or {}
        self.assumed[use.source] = self.assumed.get(use.source, 0.0) + use.assumed_j
        saved, error = threads
        self.threads += use.energy_j * saved
        self.threads_variance += (use.energy_j * error) ** 2
        self.cappable += use.energy_j * (1 - saved) if cappable else 0.0

    def drawn(self, factors: Mapping[str, Array]) -> Array | float:
        """Return the energy in every draw."""
        return self.metered + sum(j * factors[s] for s, j in (self.assumed or {}).items() if j)

    @property
    def total(self) -> float:
        return self.metered + sum((self.assumed or {}).values())


def estimate(usage: Usage, policy: Policy | None = None) -> Prospect:
    """Return what a use would save under a policy (default: the advisor's defaults)."""
    policy = policy or Policy()
    uses = usage.uses()
    threads = thread_savings(uses, policy)
    rng = np.random.default_rng(_SEED)
    site_d = rng.uniform(*SITE_D, DRAWS)
    reached = rng.beta(*REACHED, DRAWS)
    factors = {s: np.exp(spread * rng.standard_normal(DRAWS)) for s, spread in SPREAD.items()}

    by_application: dict[str, _Energies] = {}
    for use in uses:
        if use.actionable:
            saved = threads.get(use.group, (0.0, 0.0))
            energies = by_application.setdefault(use.group.application, _Energies())
            energies.add(use, _cappable(use.group, usage.inventory), saved)
    ordered = sorted(by_application, key=lambda name: -by_application[name].total)
    shares: dict[str, Array] = {}
    rest: dict[str, Array] = {}
    for rank, name in enumerate(ordered):
        of_class = class_of(name)
        if rank < _ALONE:
            beta = rng.beta(*BETA[of_class], DRAWS)
            d = site_d * rng.beta(*PROGRAM_D, DRAWS)
            shares[name] = cap_saving(beta, d, policy) * reached
            continue
        if of_class not in rest:
            beta = rng.beta(*BETA[of_class], (_TOGETHER, DRAWS))
            d = site_d * rng.beta(*PROGRAM_D, (_TOGETHER, DRAWS))
            rest[of_class] = cap_saving(beta, d, policy).mean(axis=0) * reached
        shares[name] = rest[of_class]

    saving_j = np.zeros(DRAWS)
    of_application: dict[str, Array] = {}
    thread_j = 0.0
    for rank, name in enumerate(ordered):
        e = by_application[name]
        total = e.total or 1.0
        by_threads: Array | float = e.threads
        if e.threads_variance:  # of tens of thousands of applications few have any
            by_threads += math.sqrt(e.threads_variance) * rng.standard_normal(DRAWS)
        drawn = (shares[name] * e.cappable + by_threads) * (e.drawn(factors) / total)
        saving_j += drawn
        thread_j += e.threads
        if rank < _ALONE:
            of_application[name] = drawn

    mean_share = {name: float(share.mean()) for name, share in shares.items()}
    savings = _Savings(threads, mean_share, usage.inventory)
    spread_of = _spread(saving_j)
    slices = {
        kind: _slices(uses, kind, savings, spread_of, of_application)
        for kind in ("application", "account", "partition")
    }
    everything = _Energies()
    for use in uses:
        everything.add(use, False, (0.0, 0.0))
    site_j = np.broadcast_to(np.asarray(everything.drawn(factors)), (DRAWS,))
    (site_slice,) = _slices(uses, "", savings, spread_of, {"": saving_j})
    energy_j = everything.total or 1.0
    candidates = _candidates(uses, savings)
    return Prospect(
        site_slice,
        _quantiles(site_j / J_PER_KWH),
        {s: j / energy_j for s, j in (everything.assumed or {}).items() if j},
        thread_j / J_PER_KWH,
        sum(c.training_kwh for c in candidates),
        slices["application"],
        slices["account"],
        slices["partition"],
        tuple(candidates[:TRAIN_FIRST]),
    )


def _cappable(group: UseGroup, inventory: Inventory) -> bool:
    """Tell whether a cap may come on a group's jobs: they have none, and their nodes have steps."""
    node_type = inventory.node_types.get(group.node_type)
    if node_type is None:
        return not group.cap_khz
    if len(node_type.freq_khz) < 2:
        return False
    default = node_type.default_freq_khz or node_type.freq_khz[-1]
    return not group.cap_khz or group.cap_khz >= default


def thread_savings(uses: Iterable[GroupUse], policy: Policy) -> dict[UseGroup, tuple[float, float]]:
    """Return by group the share of energy that another thread count of its history saves.

    With its standard error. Only whole-node runs of one program and user on as many nodes and
    ranks, whose times agree at both counts, and only where the policy's bounds hold.
    """
    counts: dict[tuple[object, ...], list[GroupUse]] = {}
    for use in uses:
        g = use.group
        runs_tell = use.actionable and g.threads and use.sums.runs >= LEAST_RUNS
        if runs_tell and use.sums.log_moments()[3] <= AGREEMENT:
            counts.setdefault((*workload(g), g.ranks, g.cpus, g.cap_khz), []).append(use)
    savings: dict[UseGroup, tuple[float, float]] = {}
    for workload_uses in counts.values():
        for use in workload_uses:
            energy, energy_sd, time, _ = use.sums.log_moments()
            best = (0.0, 0.0)
            for other in workload_uses:
                if other.group.threads >= use.group.threads:
                    continue  # in whole nodes threads only become fewer
                e, sd, t, _ = other.sums.log_moments()
                change = e - energy
                error = math.sqrt(sd * sd / other.sums.runs + energy_sd**2 / use.sums.runs)
                saved = 1 - math.exp(change)
                sure = change + _ONE_SIDED * error < math.log1p(-policy.min_saving)
                if sure and t - time <= math.log1p(policy.max_slowdown) and saved > best[0]:
                    best = saved, error * math.exp(change)
            if best[0]:
                savings[use.group] = best
    return savings


def _spread(saving_j: Array) -> tuple[float, float]:
    """Return the quantiles of a saving as shares of its mean."""
    mean = float(saving_j.mean())
    if not mean:
        return 0.0, 0.0
    lo, hi = _quantiles(saving_j)
    return lo / mean, hi / mean


def _quantiles(values: Array) -> tuple[float, float]:
    lo, hi = np.quantile(values, (0.05, 0.95))
    return float(lo), float(hi)


@dataclass(frozen=True, slots=True)
class _Savings:
    """What is expected to be saved: by fewer threads of a group, by a cap of an application.

    ``threads`` are shares with their errors, ``caps`` mean shares.
    """

    threads: Mapping[UseGroup, tuple[float, float]]
    caps: Mapping[str, float]
    inventory: Inventory

    def of_use(self, use: GroupUse) -> float:
        """Return a group's expected saving, J."""
        if not use.actionable:
            return 0.0
        by_threads = self.threads.get(use.group, (0.0, 0.0))[0]
        capped = self.caps[use.group.application] if _cappable(use.group, self.inventory) else 0.0
        return use.energy_j * (by_threads + (1 - by_threads) * capped)


def _slices(
    uses: Sequence[GroupUse],
    kind: str,
    savings: _Savings,
    spread: tuple[float, float],
    drawn: Mapping[str, Array],
) -> tuple[Slice, ...]:
    """Return the use by application, account or partition, "" for all of it; most energy first.

    A part whose saving was not drawn by itself gets the whole saving's relative interval.
    """
    totals: dict[str, list[float]] = {}
    for use in uses:
        name = str(getattr(use.group, kind)) if kind else ""
        total = totals.setdefault(name, [0.0] * 7)
        jobs = use.sums.jobs
        for i, value in enumerate(
            (
                jobs,
                use.node_s,
                use.energy_j,
                use.assumed_j,
                jobs * use.actionable,
                use.energy_j * use.actionable,
                savings.of_use(use),
            )
        ):
            total[i] += value
    slices = []
    for name, (count, node_s, energy, assumed, can_jobs, can_j, saved) in totals.items():
        lo, hi = saved * spread[0], saved * spread[1]
        if name in drawn and kind in ("", "application"):
            saved = float(drawn[name].mean())
            lo, hi = _quantiles(drawn[name])
        slices.append(
            Slice(
                name,
                int(count),
                node_s / 3600,
                energy / J_PER_KWH,
                assumed / energy if energy else 0.0,
                int(can_jobs),
                can_j / J_PER_KWH,
                (saved / J_PER_KWH, lo / J_PER_KWH, hi / J_PER_KWH),
                class_of(name) if kind == "application" else "",
            )
        )
    if not kind and not slices:
        slices = [Slice("", 0, 0.0, 0.0, 0.0, 0, 0.0, (0.0, 0.0, 0.0))]
    return tuple(sorted(slices, key=lambda s: (-s.kwh, s.name)))


def _candidates(uses: Sequence[GroupUse], savings: _Savings) -> list[TrainingCandidate]:
    """Return the workloads whose saving exceeds their training's energy, the most gain first."""
    totals: dict[tuple[object, ...], tuple[list[float], GroupUse]] = {}
    for use in uses:
        if use.actionable:
            total, _ = totals.setdefault(workload(use.group), ([0.0] * 3, use))
            saved = savings.of_use(use)
            for i, value in enumerate((use.sums.jobs, use.energy_j, saved)):
                total[i] += value
    candidates = []
    for (jobs, energy, saved), use in totals.values():
        g = use.group
        training = SWEEP_RUNS * energy / jobs * use.sums.users  # each user's own sweep
        if saved > training:
            candidates.append(
                TrainingCandidate(
                    g.application,
                    g.user,
                    g.account,
                    g.partition,
                    g.nodes,
                    int(jobs),
                    energy / J_PER_KWH,
                    saved / J_PER_KWH,
                    training / J_PER_KWH,
                    use.sums.submit_line,
                )
            )
    return sorted(candidates, key=lambda c: (c.training_kwh - c.saving_kwh, c.application, c.user))
