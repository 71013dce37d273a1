"""What the advisor really saved: jobs it rewrote against jobs it left alone at random.

Every job's measured value is taken relative to what the model predicted for the job as it was
asked for, in log space: so jobs of different sizes can be compared, and whatever the model gets
wrong is wrong on both sides and drops out. Intervals are two-sided 90 %: Welch's t for one
workload (Welch 1947), a pooled within-workload estimate for several together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from advisor.core.codec import JsonForm, wire
from advisor.core.option import Z90
from advisor.core.student import quantile

Basis = Literal["holdout", "prediction"]
"""Against what: jobs left alone at random, or the model's own prediction of the baseline."""

CONFIDENCE = 0.90
"""Probability that a comparison's interval holds."""
MIN_JOBS = 4
"""Fewer jobs than this on either side give no interval worth printing."""


@dataclass(frozen=True, slots=True)
class MeasuredChange(JsonForm):
    """A measured change as a fraction, with its interval (None: too few jobs for one).

    ``advised`` and ``left`` are the numbers of jobs on either side; ``left`` is 0 for a
    comparison with the prediction.
    """

    change: float
    lo: float | None
    hi: float | None
    advised: int
    left: int = field(metadata=wire("left_alone"))
    basis: Basis


@dataclass(frozen=True, slots=True)
class JobSample:
    """What a comparison asks of one side's jobs: how many, their mean and their variance."""

    count: int
    mean: float = 0.0
    variance: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> JobSample:
        """Return the sample of some values, exact but for its rounding."""
        if not values:
            return cls(0)
        return cls(len(values), fmean(values), variance(values) if len(values) > 1 else 0.0)

    @classmethod
    def of_sums(cls, count: float, total: float, squares: float) -> JobSample:
        """Return it by the sums of the values and of their squares."""
        if not count:
            return cls(0)
        spread = (squares - total * total / count) / (count - 1) if count > 1 else 0.0
        return cls(round(count), total / count, max(0.0, spread))

    def __len__(self) -> int:
        return self.count

    @property
    def squares(self) -> float:
        """The sum of the squares of what the values are off their mean."""
        return self.variance * (self.count - 1) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class WorkloadJobs:
    """Log ratios to the predicted baseline of one workload's jobs, rewritten and left alone.

    ``floor`` is the variance that the accounting's own resolution gives each of them: jobs that
    all took the same whole number of seconds did not take the same time.
    """

    advised: JobSample | Sequence[float]
    left: JobSample | Sequence[float] = ()
    floor: float = 0.0

    @property
    def samples(self) -> tuple[JobSample, JobSample]:
        """Both sides."""
        a, b = (
            s if isinstance(s, JobSample) else JobSample.of(s) for s in (self.advised, self.left)
        )
        return a, b

    def error(self, side: JobSample) -> float:
        """Return the squared standard error of a side's mean."""
        return max(side.variance, self.floor) / len(side)


def welch(group: WorkloadJobs) -> MeasuredChange | None:
    """Compare one workload's jobs; None when a side is empty."""
    a, b = group.samples
    if not a or not b:
        return None
    difference = a.mean - b.mean
    if min(len(a), len(b)) < MIN_JOBS:
        return _change(difference, None, len(a), len(b), "holdout")
    va, vb = group.error(a), group.error(b)
    if va + vb == 0:
        return _change(difference, 0.0, len(a), len(b), "holdout")
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = _t(freedom) * math.sqrt(va + vb)
    return _change(difference, half, len(a), len(b), "holdout")


def against_prediction(group: WorkloadJobs) -> MeasuredChange | None:
    """Compare rewritten jobs with the predicted baseline; None when there are none."""
    a, _ = group.samples
    if not a:
        return None
    half = None
    if len(a) >= MIN_JOBS:
        half = _t(len(a) - 1) * math.sqrt(group.error(a))
    return _change(a.mean, half, len(a), 0, "prediction")


def pooled(groups: Iterable[WorkloadJobs]) -> MeasuredChange | None:
    """Return the common change over all workloads that have jobs on both sides.

    The within-group least-squares estimate of one effect, with one variance for all: each
    workload weighs by ``n m / (n + m)``. Without any job left alone, the mean against the
    prediction.
    """
    every = [g for g in groups if g.advised]
    both = [g for g in every if g.left]
    if not both:
        return against_prediction(_as_one_group(every))
    if len(both) == 1:
        return welch(both[0])
    sides = [g.samples for g in both]
    weights = [len(a) * len(b) / (len(a) + len(b)) for a, b in sides]
    differences = [a.mean - b.mean for a, b in sides]
    mean = sum(w * d for w, d in zip(weights, differences, strict=True)) / sum(weights)
    advised_count, holdout_count = (sum(len(s) for s in side) for side in zip(*sides, strict=True))
    freedom = advised_count + holdout_count - len(both) - 1
    if holdout_count < MIN_JOBS or advised_count < MIN_JOBS or freedom < 1:
        return _change(mean, None, advised_count, holdout_count, "holdout")
    residual = sum(
        a.squares + b.squares + weight * (difference - mean) ** 2
        for (a, b), weight, difference in zip(sides, weights, differences, strict=True)
    )
    spread = max(residual / freedom, _as_one_group(both).floor)
    half = _t(freedom) * math.sqrt(spread / sum(weights))
    return _change(mean, half, advised_count, holdout_count, "holdout")


def _as_one_group(groups: Sequence[WorkloadJobs]) -> WorkloadJobs:
    """Return all workloads' rewritten jobs as one group."""
    sides = [g.samples[0] for g in groups]
    count = sum(len(a) for a in sides)
    if not count:
        return WorkloadJobs(JobSample(0))
    floor = sum(g.floor * len(a) for g, a in zip(groups, sides, strict=True)) / count
    mean = sum(a.mean * len(a) for a in sides) / count
    squares = sum(a.squares + len(a) * (a.mean - mean) ** 2 for a in sides)
    return WorkloadJobs(JobSample(count, mean, squares / max(1, count - 1)), (), floor)


def share_interval(inside: int, total: int) -> tuple[float, float] | None:
    """Return Wilson's 90 % interval of a share (Wilson 1927); None without any case."""
    if not total:
        return None
    z = Z90
    p = inside / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def _change(
    mean: float, half: float | None, advised_count: int, holdout_count: int, basis: Basis
) -> MeasuredChange:
    if half is None:
        return MeasuredChange(math.expm1(mean), None, None, advised_count, holdout_count, basis)
    return MeasuredChange(
        math.expm1(mean),
        math.expm1(mean - half),
        math.expm1(mean + half),
        advised_count,
        holdout_count,
        basis,
    )


def _t(freedom: float) -> float:
    """Return Student's two-sided quantile."""
    return quantile(freedom, (1 + CONFIDENCE) / 2)


def log_ratio(measured: float | None, predicted: float | None) -> float | None:
    """Return ln(measured / predicted), None unless both are positive."""
    if not measured or not predicted or measured < 0 or predicted < 0:
        return None
    return math.log(measured / predicted)


def variance(values: Sequence[float]) -> float:
    """Return the variance of a sample of two or more finite floats, exact but for its rounding.

    As :func:`statistics.variance`, in a fraction of its time: all floats are whole multiples of one
    power of two, so whole numbers do.
    """
    longest = max(x.as_integer_ratio()[1].bit_length() for x in values)
    total = squares = 0
    for x in values:
        ratio_numerator, ratio_denominator = x.as_integer_ratio()
        numerator = ratio_numerator << longest - ratio_denominator.bit_length()
        total += numerator
        squares += numerator * numerator
    count = len(values)
    return (count * squares - total * total) / (count * (count - 1) << 2 * (longest - 1))
