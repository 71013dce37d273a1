"""The neural network: same seed, same network; a clear line without scikit-learn."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from advisor.errors import InputError, MissingExtraError
from advisor.models.base import Matrix, Vector
from advisor.models.registry import create

CORES = np.array([8.0, 20.0, 32.0, 44.0])
FREQS = np.array([1.2e6, 1.9e6, 2.2e6])
DESIGN: Matrix = np.array([(1.0, c, f) for c in CORES for f in FREQS])


def times(x: Matrix) -> Vector:
    found: Vector = 40.0 / (x[:, 1] * x[:, 2] / 2.2e6) + 3.0
    return found


def test_it_learns_a_smooth_response_and_the_seed_decides_the_network() -> None:
    pytest.importorskip("sklearn")
    between: Matrix = np.array([(1.0, c, f) for c in (12.0, 26.0, 38.0) for f in (1.5e6, 2.0e6)])
    predictions = []
    for seed in (0, 0, 1):
        model = create("neural", seed=seed)
        model.fit(DESIGN, times(DESIGN))
        assert model.predict(DESIGN) == pytest.approx(times(DESIGN), rel=0.02)
        predictions.append(model.predict(between))
    assert predictions[0] == pytest.approx(times(between), rel=0.25)
    assert predictions[0] == pytest.approx(predictions[1], rel=1e-12)
    assert predictions[0] != pytest.approx(predictions[2], rel=1e-6)


def test_one_value_on_an_axis_and_points_far_off_stay_finite() -> None:
    pytest.importorskip("sklearn")
    model = create("neural", steps=200)
    model.fit(DESIGN[DESIGN[:, 1] == 20.0], times(DESIGN[DESIGN[:, 1] == 20.0]))
    far = model.predict(np.array([[1000.0, 1e6, 1e9], [0.0, 0.0, 0.0]]))
    assert np.isfinite(far).all()
    assert (far > 0).all()


def test_without_scikit_learn_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.neural_network", None)
    with pytest.raises(MissingExtraError, match="model neural needs scikit-learn") as told:
        create("neural")
    assert told.value.hint == f"{sys.executable} -P -m pip install scikit-learn"


def predicted(**options: int | float | str) -> Vector:
    model = create("neural", **options)  # type: ignore[arg-type]
    model.fit(DESIGN, times(DESIGN))
    response: Vector = model.predict(DESIGN)
    return response


def test_layers_and_scaling_are_options_and_the_thesis_s_are_the_default() -> None:
    """Hidden units as h_units has them, scaling as in figure 5.3 (Endrei 2019)."""
    pytest.importorskip("sklearn")
    default = predicted()
    assert (predicted(hidden="10-20-10", scaling="standard") == default).all()
    changes = ({"hidden": "6"}, {"hidden": "8-8"}, {"scaling": "minmax"}, {"scaling": "none"})
    for change in changes:
        assert not (predicted(**change) == default).all(), change
    misses = [np.abs(np.log(p / times(DESIGN))).mean() for p in (default, predicted(**changes[3]))]
    assert misses[0] < misses[1], "frequencies in kHz drown the other axes"


@pytest.mark.parametrize("hidden", ["", "0", "10-", "ten", "10-2000", "\u00b2"])
def test_layers_that_are_none_are_refused(hidden: str) -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(InputError, match=r"hidden: .* is not a list of layers"):
        create("neural", hidden=hidden)
