"""What advice is worth on a measured grid: recommend, make the confirmation run, learn from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.core.codec import JsonForm
from advisor.core.configuration import Configuration
from advisor.core.option import Option
from advisor.core.policy import Goal, Policy, Resources
from advisor.core.recommend import confirmed_choice, to_confirm
from advisor.models.fit import FitResult


@dataclass(frozen=True, slots=True)
class GridCell:
    """A configuration's measured time (s) and energy (J)."""

    time: float
    energy: float

    @classmethod
    def of(cls, option: Option) -> GridCell:
        """Return what an option says."""
        return cls(option.time_s, option.energy_j)


@dataclass(frozen=True, slots=True)
class AppliedOption(JsonForm):
    """One confirmation run: whether it lay within its interval and kept the bounds."""

    configuration: Configuration
    within_interval: bool
    saving: float
    slowdown: float
    keeps_bounds: bool


@dataclass(frozen=True, slots=True)
class DecisionScore(JsonForm):
    """What the advice is worth: least energy within the slowdown bound, against the baseline.

    ``recommended`` is what the model proposed first (None: nothing), ``within_interval`` whether
    its run matched, ``attempts`` all confirmation runs in order, ``chosen`` what they left of the
    advice. Savings and slowdowns are fractions: those of the attempts are their runs', the others
    the truth's; ``best_saving`` is the most the grid has within the bound. ``runs`` counts training
    and confirmation; ``why`` is a sentence. ``rule`` says that the policy chose as it does for
    jobs: for ``goal``, both bounds at its one-sided ``confidence``, ties by ``resources``.
    """

    chosen: Configuration
    true_saving: float
    true_slowdown: float
    best_saving: float
    runs: int
    recommended: Configuration | None
    within_interval: bool | None
    baseline: Configuration
    attempts: tuple[AppliedOption, ...] = ()
    why: str = ""
    rule: str = "policy"
    goal: Goal = "min_energy"
    confidence: float = 0.9
    resources: Resources = "thrifty"


def decide(
    fit: Callable[[Collection[Configuration], Collection[Configuration]], FitResult],
    trained: Collection[Configuration],
    measured: Mapping[Configuration, GridCell],
    truth: Mapping[Configuration, GridCell],
    baseline: Configuration,
    policy: Policy,
    *,
    confirmations: int,
) -> DecisionScore:
    """Follow the advice on a grid whose cells (``measured``) are what runs come out as.

    ``truth`` is what the choice is judged by, of the same cells. ``fit`` fits the model to some of
    the cells, the second of them as confirmation runs. As in a sweep the option that is expected to
    improve the decision most is run; if it is then the policy's choice, that is it. If not, the run
    joins the training set, and the next best is confirmed, ``confirmations`` times at most.
    A trained run that the others predict counts as confirmed. If nothing is, nothing is changed.
    """
    measured_base, base = measured[baseline], truth[baseline]
    runs, run_cells = len(trained), set(trained)
    repeated: set[Configuration] = set()
    attempts: list[AppliedOption] = []
    while True:
        fitted = fit(run_cells, [a.configuration for a in attempts])
        options = _options(fitted, measured, repeated)
        start = next(o for o in options if o.configuration == baseline)
        choice = confirmed_choice(options, start, policy)
        tried = [a.configuration for a in attempts]
        if len(tried) >= confirmations or choice in tried[-1:]:
            break
        c = to_confirm(options, start, policy, tried, most=confirmations)
        if c is None:
            break
        promised = next(o for o in fitted.predicted if o.configuration == c)
        cell = measured[c]
        saving, slowdown = (
            1.0 - cell.energy / measured_base.energy,
            cell.time / measured_base.time - 1.0,
        )
        attempts.append(
            AppliedOption(
                c,
                holds(promised, cell.time, cell.energy),
                saving,
                slowdown,
                slowdown <= policy.max_slowdown and saving >= policy.min_saving,
            )
        )
        runs += 1
        if c in run_cells:
            repeated.add(c)
        run_cells.add(c)
    chosen = choice or baseline
    first = attempts[0].configuration if attempts else choice
    return DecisionScore(
        chosen,
        1.0 - truth[chosen].energy / base.energy,
        truth[chosen].time / base.time - 1.0,
        max(
            1 - c.energy / base.energy
            for c in truth.values()
            if c.time / base.time - 1 <= policy.max_slowdown
        ),
        runs,
        first,
        attempts[0].within_interval if attempts else None,
        baseline,
        tuple(attempts),
        _reason(choice, attempts),
        goal=policy.goal,
        confidence=policy.confidence,
        resources=policy.resources,
    )


def holds(option: Option, time_s: float, energy_j: float) -> bool:
    """Tell whether a run lies within both intervals of an option."""
    return (
        option.time_lo_s <= time_s <= option.time_hi_s
        and option.energy_lo_j <= energy_j <= option.energy_hi_j
    )


def _options(
    fitted: FitResult,
    measured: Mapping[Configuration, GridCell],
    repeated: Collection[Configuration],
) -> Sequence[Option]:
    """Return the options of the grid's cells; what ran twice and agreed is confirmed."""
    return [
        replace(o, confirmed=o.confirmed or o.configuration in repeated)
        for o in fitted.options
        if o.configuration in measured
    ]


def _reason(choice: Configuration | None, attempts: Sequence[AppliedOption]) -> str:
    if choice is None and not attempts:
        return "no run is expected to save enough"
    tries = "1 confirmation run" if len(attempts) == 1 else f"{len(attempts)} confirmation runs"
    if choice is None:
        return f"none of {tries} matched its prediction within the bounds: nothing is changed"
    if not attempts:
        return "a training run that the others predict is within the bounds"
    if attempts[-1].configuration == choice:
        return "confirmed by its run" if len(attempts) == 1 else f"confirmed after {tries}"
    return f"an earlier run is confirmed and within the bounds; {tries} found nothing better"
