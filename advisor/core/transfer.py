"""Options on a node type where an application never ran, from those of one where it did.

A ranking tells the ratio ``R`` of the run times on one full node of each type at its nominal
frequency. An option of the base node type with the share ``s`` of the cores and ``f`` of the
nominal frequency stands for the same shares of the other one:

    T' = R T(s, f),    E' = R_E E(s, f)

and what is not known becomes standard errors of the logarithms, joined with the option's own:

- the ratio's own error and the method's, joined by :func:`log_error`;
- away from the full node at nominal frequency, where node types saturate and draw power
  differently, :data:`TIME_ERROR` and :data:`ENERGY_ERROR` times ``|ln s|`` and ``|ln f|``;
- where the shares cannot be met (whole cores, frequency steps, ranks that must stay), time is
  between proportional to what is missing and independent of it: the middle of both is taken and
  the 90 % interval spans from one to the other;
- of several nodes the ratio holds for each node's own work. The parallel inefficiency
  ``i = 1 - T(1) / (n T(n))`` may be communication, which another node does not change: the
  interval spans from all of the time scaled to ``1 - i`` of it; without a run on one node, to none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.mark_front import place
from advisor.core.node_type_estimate import NodeTypeEstimate, log_error
from advisor.core.option import Z90, Option
from advisor.core.power import stated_power_w

STATED_POWER_ERROR = 0.15
"""Standard error of a ratio of two node types' stated power: it knows nothing of the application.
An assumption: full-node power of different codes on one node type differs by about so much."""


@dataclass(frozen=True, slots=True)
class AwayError:
    """Standard error of a logarithm per unit of |ln share of cores| and |ln share of frequency|."""

    share: float
    frequency: float

    def at(self, share: float, frequency: float) -> float:
        """Return the standard error at shares of cores and of nominal frequency."""
        return math.hypot(self.share * math.log(share), self.frequency * math.log(frequency))


TIME_ERROR = AwayError(0.41, 0.28)
ENERGY_ERROR = AwayError(0.41, 0.48)
"""The 90 % intervals hold at every distance over drawn node types and applications whose time is
a smooth maximum of computing and memory (``benchmarks/transfer.py``)."""

_FAR = 0.15
"""A frequency whose share of the nominal is farther off than this is not stood for."""


class TransferError(ValueError):
    """There can be no options by transfer; the message says why."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an option lands: what is missing there (logarithms), and how far from nominal."""

    configuration: Configuration
    missing_cores: float
    missing_frequency: float
    share: float
    frequency: float

    @property
    def shift(self) -> float:
        """The logarithm of time by the middle between proportional and independent."""
        return 0.5 * (self.missing_cores + self.missing_frequency)

    @property
    def sigma(self) -> float:
        """The standard error whose 90 % interval spans both."""
        return 0.5 * math.hypot(self.missing_cores, self.missing_frequency) / Z90


def transfer(
    options: Sequence[Option],
    base: NodeType,
    target: NodeType,
    ranked: NodeTypeEstimate,
    *,
    error: float = 0.05,
) -> tuple[Option, ...]:
    """Return the options of ``base`` on ``target``, placed in a zone of their own.

    Only what the inventory's entry of ``target`` allows; ``error`` is the zone's limit. An option
    is ``estimated`` (usable) where the one it stands for is confirmed, and never ``confirmed``.
    Energy follows the profiles, else the site's stated power. Raises TransferError when neither is
    known, or no configuration fits.
    """
    if any(math.isnan(o.energy_j) for o in options):
        raise TransferError(f"no energy is known of it on {base.name}")
    if ranked.energy_source != "profiles" and None in (
        stated_power_w(base, base.cores),
        stated_power_w(target, target.cores),
    ):
        raise TransferError(
            f"its energy on {target.name} is not known: the profiles have none, and the site "
            f"states no base_power_w and core_power_w of both {base.name} and {target.name}"
        )
    alone = {
        (c.threads_per_node, c.freq_khz): o.time_s
        for o in options
        if (c := o.configuration).nodes == 1
    }
    highest = max((o.configuration.freq_khz for o in options), default=0)
    best: dict[Configuration, tuple[bool, float, Option]] = {}
    for option in options:
        target_place = _place(option.configuration, base, target, highest)
        if target_place is None:
            continue
        candidate = _carry(option, target_place, base, target, ranked, alone)
        # Several options may land on one place: a confirmed one stands for it, else the surest.
        rank = (not option.confirmed, candidate.time_sigma)
        incumbent = best.get(target_place.configuration)
        if incumbent is None or rank < incumbent[:2]:
            best[target_place.configuration] = (*rank, candidate)
    if not best:
        raise TransferError(f"no option of {base.name} fits {target.name}")
    return place([best[c][2] for c in sorted(best)], error)


def _place(c: Configuration, base: NodeType, target: NodeType, highest_khz: int) -> _Place | None:
    """Return where a configuration lands, None when it does not fit."""
    # An inventory without a list of nodes does not say how many there are.
    if target.nodes and c.nodes > len(target.nodes):
        return None
    share = c.threads_per_node / base.cores
    # A program that had more threads than cores used hardware threads: it may there, too.
    room = target.cores * (target.threads_per_core if share > 1 else 1)
    threads_per_rank = max(
        1, round(c.threads_per_node / c.ranks_per_node * target.cores / base.cores)
    )
    threads_per_rank = min(threads_per_rank, room // c.ranks_per_node)
    if not threads_per_rank:
        return None
    threads = c.ranks_per_node * threads_per_rank
    nominal = base.default_freq_khz or max(base.freq_khz, default=highest_khz)
    freq_ratio = c.freq_khz / nominal if c.freq_khz and nominal else 1.0
    top = target.default_freq_khz or max(target.freq_khz, default=0)
    steps = target.freq_khz or (top,)
    freq = min(steps, key=lambda step: abs(step - freq_ratio * top))
    step_ratio = freq / top if top else 1.0
    if abs(math.log(freq_ratio / step_ratio)) > _FAR:
        return None
    new_share = threads / target.cores
    return _Place(
        Configuration(target.name, c.nodes, c.ranks_per_node, threads, freq),
        math.log(share / new_share),
        math.log(freq_ratio / step_ratio),
        new_share,
        step_ratio,
    )


def _carry(
    option: Option,
    target_place: _Place,
    base: NodeType,
    target: NodeType,
    ranked: NodeTypeEstimate,
    alone: Mapping[tuple[int, int], float],
) -> Option:
    old, new = option.configuration, target_place.configuration
    scaling, kept_sigma = _several_nodes(option, ranked.time_ratio, alone)
    ratio = ranked.time_ratio * scaling * math.exp(target_place.shift)
    ranked_sigma = log_error(ranked.error_pct)
    off = (target_place.sigma, kept_sigma)
    away = target_place.share, target_place.frequency
    time_sigma = math.hypot(option.time_sigma, ranked_sigma, TIME_ERROR.at(*away), *off)
    target_w = stated_power_w(target, new.threads_per_node, new.freq_khz)
    base_w = stated_power_w(base, old.threads_per_node, old.freq_khz)
    if ranked.energy_source == "profiles" and ranked.energy_ratio is not None:
        energy = ranked.energy_ratio * scaling
        ranked_sigma = log_error(ranked.energy_error_pct or 0.0)
    else:
        # transfer() refuses node types without it
        assert target_w is not None and base_w is not None
        energy = ratio * target_w / base_w
        ranked_sigma = math.hypot(ranked_sigma, STATED_POWER_ERROR)
    energy_sigma = math.hypot(option.energy_sigma, ranked_sigma, ENERGY_ERROR.at(*away), *off)
    t, e = option.time_s * ratio, option.energy_j * energy
    dt, de = math.exp(Z90 * time_sigma), math.exp(Z90 * energy_sigma)
    return Option(new, t, t / dt, t * dt, e, e / de, e * de, estimated=option.confirmed)


def _several_nodes(
    option: Option, ratio: float, alone: Mapping[tuple[int, int], float]
) -> tuple[float, float]:
    """Return by what the ratio is corrected for several nodes, and the error of doing so."""
    c = option.configuration
    if c.nodes == 1:
        return 1.0, 0.0
    one_node_s = alone.get((c.threads_per_node, c.freq_khz))
    idle = (
        1.0
        if one_node_s is None
        else min(1.0, max(0.0, 1.0 - one_node_s / (c.nodes * option.time_s)))
    )
    # Waiting for other nodes need not shrink with the processor's time. How much of the idle share
    # does is not known: half of it is taken, and the way to either end is the error at 90 %.
    spread = math.log((ratio * (1.0 - idle) + idle) / ratio)
    return math.exp(0.5 * spread), 0.5 * abs(spread) / Z90
