"""The point that the daemon looks up is the one that the prior would try."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtr

from advisor.core.option import row_of
from advisor.core.policy import ColdStart, Policy
from advisor.core.trial_points import TrialPoints
from advisor.prior.fit import learn
from advisor.prior.predicted_options import options
from advisor.prior.surface import WorkloadSurface
from advisor.prior.trials import TrialBounds, expected_improvement, trial
from tests.unit.never_swept import CORES, NODE_TYPE, OWN, TOP


def test_the_looked_up_trial_is_the_one_the_prior_would_try() -> None:
    """Random priors and bounds: what the daemon finds is what advisor.prior.trials finds."""
    rng = np.random.default_rng(7)
    grid = np.array([(a, b) for a in np.log([0.25, 0.5, 0.75, 1]) for b in np.log([0.5, 0.75, 1])])
    checked = 0
    for _ in range(12):
        known = [
            WorkloadSurface(
                f"a{i}",
                {"gbs": float(m), "power_w": 200.0 + 10 * i},
                grid,
                np.log((1 - m) / np.exp(grid.sum(axis=1)) + m),
                np.log(((1 - m) / np.exp(grid.sum(axis=1)) + m) * (1 + np.exp(grid.sum(axis=1)))),
            )
            for i, m in enumerate(rng.uniform(0.2, 1.0, 9))
        ]
        own = np.zeros(2)
        prior = learn(known, ("gbs", "power_w"), grid, own).prior({"gbs": 0.9, "power_w": 230.0})
        made = options(prior, OWN, NODE_TYPE, 100.0, 200.0)
        for slowdown, confidence, saving in rng.uniform((0, 0.5, 0), (0.4, 0.95, 0.1), (8, 3)):
            cold = ColdStart(confidence=round(float(confidence), 2))
            values = Policy(
                goal="min_energy",
                max_slowdown=float(slowdown),
                min_saving=float(saving),
                cold_start=cold,
            )
            bounds = TrialBounds(
                float(slowdown), float(saving), trial_confidence=cold.confidence, min_applications=1
            )
            rows = [row_of(o) for o in made.options]
            base = next(r for r in rows if r.configuration("cpu") == OWN)
            others = [r for r in rows if r is not base]
            points = TrialPoints.from_dict(made.trial_points.to_dict())
            assert points is not None
            found = points.best(rows, others, base, values)
            wanted = trial(
                prior, bounds, 0.0, [i for i, p in enumerate(prior.points) if not p.any()]
            )
            assert (found is None) == (wanted is None)
            if found is None or wanted is None:
                continue
            checked += 1
            place = np.log([found.threads_per_node / CORES, found.freq_khz / TOP])
            at = int(np.argmin(np.abs(prior.points - place).sum(axis=1)))
            gain = expected_improvement(prior.mean[1], prior.scale[1], prior.dof, 0.0)
            keeps = stdtr(prior.dof, (bounds.ln[0] - prior.mean[0]) / prior.scale[0])
            assert keeps[at] >= cold.confidence - 1e-3
            assert (gain * keeps)[at] >= 0.999 * (gain * keeps)[wanted]
    assert checked > 20


@pytest.mark.parametrize(
    "data", [None, {}, {"quantiles": [0.0], "by_option": ""}, {"by_option": "%"}, {"values": ""}, 7]
)
def test_torn_trial_points_mean_no_trial(data: object) -> None:
    assert TrialPoints.from_dict(data) is None
