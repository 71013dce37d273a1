"""Options of a workload that was never swept, as its prior predicts them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.mark_front import place
from advisor.core.option import Z90, Option
from advisor.prior.fit import Prior
from advisor.prior.surface import Array

_Z_USE = 1.2816
"""Where other ways doubt an option, the policy's usual confidence of 90 % must doubt it too."""
_DOUBT = 0.75
_RUN_ERROR = 0.02 / 1.96


def options(
    prior: Prior, own: Configuration, node_type: NodeType, time_s: float, power_w: float
) -> tuple[Option, ...]:
    """Return the options of a job that took ``time_s`` at ``power_w`` per node at ``own``.

    Intervals are those of Student's t, wider where another way that foretells applications about
    as well puts less trust in the option. None is confirmed; all but the job's own point are
    ``estimated``. Placed in a zone of their own.
    """
    nominal = node_type.default_freq_khz or max(node_type.freq_khz, default=0)
    nominal = nominal or own.freq_khz or 1
    energy_j = time_s * power_w * own.nodes
    own = replace(own, node_type=node_type.name)
    sigma = np.maximum(prior.half_width(0.90) / Z90, _doubted(prior))
    made = {own: _option(own, time_s, energy_j, _RUN_ERROR, _RUN_ERROR)}
    for i, (share, frequency) in enumerate(prior.points.tolist()):
        threads = round(math.exp(share) * node_type.cores)
        step = round(math.exp(frequency) * nominal) if own.freq_khz or frequency else 0
        where = replace(own, threads_per_node=threads, freq_khz=step)
        t, e = (math.exp(x) for x in prior.mean[:, i].tolist())
        option = _option(where, time_s * t, energy_j * e, *sigma[:, i].tolist())
        made.setdefault(where, replace(option, measured=False, estimated=True))
    return place([made[where] for where in sorted(made)], 0.05)


def _option(where: Configuration, time: float, energy: float, dt: float, de: float) -> Option:
    t, e = math.exp(Z90 * dt), math.exp(Z90 * de)
    return Option(where, time, time / t, time * t, energy, energy / e, energy * e, measured=True)


def _doubted(prior: Prior) -> Array:
    """Return the least standard errors (2, n) with which no other way doubts an option."""
    least = np.zeros_like(prior.mean)
    for other in prior.doubts:
        high = other.mean + other.scale * stdtrit(other.dof, _DOUBT)
        least = np.maximum(least, (high - prior.mean) / _Z_USE)
    return least
