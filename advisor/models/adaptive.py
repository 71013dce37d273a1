"""The adaptive design: near the job as written first, then each run where it is worth most.

The first runs are the job as written, and what shows soonest where something may be saved: half of
the cores, and a lower clock, of processors or GPUs. Every further run goes where it is expected to
improve most on the best measured option (:mod:`advisor.core.recommend`), what it costs taken off,
until none is expected to pay back, or until only as many runs are left as a confirmation takes.

Confirmation is part of the design. The best of many options by their measured values is best by
luck, too; what is promised therefore rests on fresh runs, made in pairs: the option, and beside it
the job as written once more, so that what drifts over time drifts for both. How many pairs it takes
follows from the spread of the runs that were repeated. A quiet machine pays one, and there the job
as written alone confirms what came out as the other runs predict; elsewhere an option is confirmed
only by a pair (:func:`advisor.models.fit.fit_options`), until all it takes are made its
confirmation goes on, and one whose pair bears nothing out gives way to the next. The design looks
only at what has been run, so it goes on after a kill as if nothing had happened.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.option import Z90, Option, row_of
from advisor.core.policy import Policy
from advisor.core.recommend import best_guess, confirmed_choice, recommend
from advisor.core.select import one_sided, weigh

ADAPTIVE = "adaptive"
"""The design's name on the command line."""

_CORES, _CLOCK = 0.5, 0.8
"""The first runs beside the job as written, as shares of its cores, and of a clock or a limit."""
_FIRST_OF_ONE = (0.5, 0.8)
"""The same where only one of them can be less."""
_ROUNDED = 0.9
"""A step may be so much of its share, as axes have few values."""
FIRST_RUNS = 3
"""The first runs, the job as written among them: so many tell where to go on."""
_PAIR = 2
"""Runs of a pair: the option, and the job as written."""
LEAST_BUDGET = FIRST_RUNS + _PAIR
"""Fewer runs than this confirm nothing."""
_MOST_PAIRS = 3
"""Pairs that an option gets at most."""
_ENOUGH = 0.02
"""Error (log) of a mean at the policy's confidence that is small enough: 2 %."""


@dataclass(frozen=True, slots=True)
class NextRuns:
    """What to run next: one run, or what ``confirms``: an option, then the job as written."""

    configurations: tuple[Configuration, ...]
    confirms: bool = False


def first_runs(
    space: SearchSpace,
    samples: int,
    must_include: Configuration,
    cells: Collection[Configuration] | None = None,
) -> list[Configuration]:
    """Return the runs to begin with, ``must_include`` (the job as written) first, at most three.

    ``cells``: what can be run, by default all of the space.
    """
    base, place = must_include, _place(must_include)
    grid = [
        c
        for c in (space if cells is None else sorted(cells))
        if c != base
        and c.nodes == base.nodes
        and all(a <= b for a, b in zip(_place(c), place, strict=True))
    ]
    # Only less than the job as written: what is first looked for are savings.
    vary = [any(_place(c)[axis] < place[axis] for c in grid) for axis in range(len(place))]
    # The last ones first: of a job on GPUs their clock or limit goes before the cores.
    axes = [axis for axis in reversed(range(len(place))) if vary[axis]][: FIRST_RUNS - 1]
    if len(axes) == 1:
        steps = [(axes[0], share) for share in _FIRST_OF_ONE]
    else:
        steps = [(axis, _steps_of(base)[axis]) for axis in sorted(axes)]
    chosen = [base]
    for axis, share in steps:
        free = [c for c in grid if c not in chosen]
        shares = [share if i == axis else 1.0 for i in range(len(place))]
        if free and len(chosen) < samples:
            # The configuration itself decides between equals, so that a plan is the same each time.
            chosen.append(min(free, key=lambda c: (_log_distance(c, base, shares), c)))
    return chosen


def _place(c: Configuration) -> tuple[int, ...]:
    """Return what of a configuration may be less: cores, cap (0 for none), further axes."""
    return c.threads_per_node, c.freq_khz, *(value for _, value in c.extra)


def _steps_of(c: Configuration) -> tuple[float, ...]:
    """Return the first runs' step along each of these, as a share."""
    return _CORES, *(_CLOCK for _ in _place(c)[1:])


def _log_distance(c: Configuration, base: Configuration, shares: Sequence[float] = ()) -> float:
    """Return how far a configuration is from such shares of another's place (log)."""
    places = zip(_place(c), _place(base), shares or [1.0] * len(_place(c)), strict=True)
    return math.hypot(*(math.log(a / (share * b)) for a, b, share in places if a and b))


def next_runs(
    options: Sequence[Option],
    baseline: Option,
    policy: Policy,
    *,
    runs_left: int,
    pairs: Mapping[Configuration, int],
    run_sigma: float,
    confirm: int = 1,
    as_predicted: Collection[Configuration] = (),
    known: Collection[Configuration] = (),
) -> NextRuns | None:
    """Return what to run next, None when no run is expected to pay back.

    ``options`` are those that the job may take, ``runs_left`` how many runs there still may be,
    ``pairs`` how many each option had (the job as written: how often it ran again), ``run_sigma``
    the standard deviation of one run's log, ``confirm`` how many pairs the policy asks for at
    least, 0 for none, ``as_predicted`` those whose runs came out as the others predict, ``known``
    those of which another run would tell as little as the one that went through them: they wait
    for what confirms.
    """
    least_pairs = max(confirm, pairs_needed(policy, run_sigma)) if confirm else 0
    base = baseline.configuration
    # The error that is left once an option had all the pairs that there are runs for.
    ahead = run_sigma / math.sqrt(max(1, min(least_pairs, runs_left // _PAIR)))
    choice = confirmed_choice(options, baseline, policy)
    sure = _score(options, choice, baseline, policy)
    measured = [o.configuration for o in options if o.measured]
    free = [o for o in options if not o.measured and _in_reach(o.configuration, measured)]
    repeatable = [
        _by_own_runs(o, run_sigma)
        for o in options
        if o.measured and pairs.get(o.configuration, 0) < _MOST_PAIRS
    ]
    standing = best_guess(repeatable, baseline, policy, sure=0.0, run_sigma=ahead)
    hope = min(sure, -standing[1]) if standing else sure
    settled = least_pairs == 1 and pairs.get(base, 0) > 0  # a run borne out needs no pair
    # The last two runs are the confirmation's.
    if runs_left > (_PAIR if confirm else 0) or (settled and runs_left == 1):
        new = [o for o in free if o.configuration not in known]
        best = recommend(new, baseline, policy, run_sigma=ahead, sure=hope)
        if best is not None:
            return NextRuns((best.configuration,))
    if runs_left < _PAIR or not confirm:
        return None
    if choice is not None and 1 < least_pairs > pairs.get(choice, 0):
        # It won by its runs; fewer pairs than are needed leave it unproved.
        return NextRuns((choice, base), confirms=True)
    borne_out = None
    if least_pairs == 1:  # what was borne out waits for the job as written alone
        likely = [
            replace(o, confirmed=o.confirmed or o.configuration in as_predicted) for o in options
        ]
        borne_out = confirmed_choice(likely, baseline, policy)
        sure = min(sure, _score(options, borne_out, baseline, policy))
    rest = [o for o in (*repeatable, *free) if o.configuration != choice]
    guess = best_guess(rest, baseline, policy, sure=sure, run_sigma=ahead)
    best = guess[0] if guess else recommend(rest, baseline, policy, run_sigma=ahead, sure=sure)
    chosen = best.configuration if best else borne_out
    return None if chosen in (None, choice) else NextRuns((chosen, base), confirms=True)


def _by_own_runs(option: Option, run_sigma: float) -> Option:
    """Return a measured option as its own runs say, of an error of one run's at most.

    Where they and the others disagree, a fit takes that for its error. But what came out otherwise
    than a few runs lead to expect is more often the model's mistake than the run's, and a pair
    tells.
    """
    least = math.exp(-Z90 * run_sigma)
    return replace(
        option,
        time_lo_s=max(option.time_lo_s, least * option.time_s),
        energy_lo_j=max(option.energy_lo_j, least * option.energy_j),
    )


def _in_reach(c: Configuration, measured: Sequence[Configuration]) -> bool:
    """Tell whether a run is no farther below all that were made than the first runs' steps.

    A memory that no longer fits or a cap that a device cannot keep is seen by nobody before it is
    run, and a run far beyond it takes many times longer.
    """
    lowest = map(min, zip(*map(_place, measured), strict=True))
    least = (_ROUNDED * step * value for step, value in zip(_steps_of(c), lowest, strict=True))
    return all(value >= bound for value, bound in zip(_place(c), least, strict=True))


def telling_run(options: Sequence[Option], measured: Collection[Configuration]) -> NextRuns | None:
    """Return the run in reach that is farthest from all that were made, None where there is none.

    For a sweep that would end before its runs make a model for those who have only the runs.
    """
    free = [o.configuration for o in options if o.configuration not in measured]
    near = [c for c in free if _in_reach(c, [*measured])]
    if not near:
        return None
    return NextRuns((max(near, key=lambda c: (min(_log_distance(c, m) for m in measured), c)),))


def _score(
    options: Sequence[Option],
    configuration: Configuration | None,
    baseline: Option,
    policy: Policy,
) -> float:
    """Return the log score of a configuration against the baseline, 0 of none."""
    option = next((o for o in options if o.configuration == configuration), baseline)
    if math.isnan(option.energy_j):
        return 0.0
    candidate = option.configuration.node_type, row_of(option)
    return min(0.0, weigh(candidate, row_of(baseline), policy.goal).score)


def is_quiet(run_sigma: float) -> bool:
    """Tell whether one pair is enough where runs scatter so, at the usual confidence."""
    return pairs_needed(Policy(), run_sigma) == 1


def pairs_needed(policy: Policy, run_sigma: float) -> int:
    """Return how many pairs make the mean of each side known to 2 % at the policy's confidence."""
    # A mean of n runs is off by 1/sqrt(n) of what one is.
    error = one_sided(policy.confidence) * run_sigma
    return min(_MOST_PAIRS, max(1, math.ceil((error / _ENOUGH) ** 2)))
