"""B-spline and polynomial on small and awkward data, and how models are found."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor import laboratory, plugins
from advisor.errors import InputError
from advisor.models import registry
from advisor.models.base import Matrix, Vector
from advisor.models.bspline import BSpline
from advisor.models.polynomial import Polynomial
from advisor.models.registry import create, names


def grid(nodes: list[int], threads: list[int], freqs: list[int]) -> Matrix:
    return np.array([(n, t, f) for n in nodes for t in threads for f in freqs], dtype=float)


def times(x: Matrix) -> Vector:
    """A run time as programs have it: less with cores and clock, with diminishing returns."""
    y: Vector = 100.0 / x[:, 0] ** 0.9 * (0.05 + 1.0 / x[:, 1]) * (1.0 + 2e6 / x[:, 2])
    return y


FREQS = [1_200_000, 1_900_000, 2_200_000]
DESIGN = grid([1], [8, 20, 32, 44], FREQS)


@pytest.mark.parametrize("name", ["bspline", "polynomial"])
@pytest.mark.parametrize(
    "x",
    [
        DESIGN,
        grid([1], [4, 44], [1_200_000, 2_200_000]),
        grid([1], [8, 20, 32, 44], [0]),
        grid([64], [1, 2, 3, 64], [2_000_000]),
        grid([1, 2], [8, 20, 44], FREQS),
        grid([20, 40, 60, 80], [8, 20, 32, 44], FREQS),
        DESIGN[[0, 2, 3, 7, 10, 11]],
    ],
    ids=["design", "corners", "threads-only", "gaps", "two-nodes", "four-nodes", "holes"],
)
def test_any_shape_of_data_is_fitted_and_predicted(name: str, x: Matrix) -> None:
    everywhere = grid([1, 3, 100], [1, 5, 200], [0, 800_000, 1_950_000, 5_000_000])
    model = create(name)
    y = times(np.maximum(x, 1))
    model.fit(x, y)
    inside, outside = model.predict(x), model.predict(everywhere)
    assert np.isfinite(outside).all()
    assert (outside > 0).all()
    assert np.abs(inside / y - 1).max() < 0.6


def test_an_axis_with_one_value_drops_out_and_two_values_make_a_line() -> None:
    model = BSpline()
    x = grid([7], [8, 44], FREQS)
    model.fit(x, times(x))
    assert set(model.knots) == {"threads", "frequency"}
    assert model.knots["threads"] == ()
    assert model.notes == ["threads: the runs have only 2 values, degree 1"]
    halfway = np.array([[7.0, 26.0, 1_900_000.0]])
    ends = model.predict(np.array([[7.0, 8.0, 1_900_000.0], [7.0, 44.0, 1_900_000.0]]))
    assert model.predict(halfway)[0] == pytest.approx(np.sqrt(ends[0] * ends[1]))


def test_nodes_and_frequency_do_not_interact() -> None:
    """Equation 4.9: with one thread count, log y is a sum of a nodes and a frequency part."""
    x = grid([1, 2, 4, 8], [16], [1_200_000, 1_600_000, 1_900_000, 2_200_000])
    model = BSpline()
    model.fit(x, times(x) * (1 + 0.1 * np.sin(x[:, 0] * x[:, 2] / 1e6)))
    log_y = np.log(model.predict(x)).reshape(4, 4)
    mixed = log_y - log_y.mean(0) - log_y.mean(1)[:, None] + log_y.mean()
    assert np.abs(mixed).max() < 1e-9


def test_four_node_counts_have_the_28_terms_of_equation_4_13() -> None:
    x = grid([20, 40, 60, 80], [8, 20, 32, 44], FREQS)
    model = BSpline()
    model.fit(x, times(x))
    assert model._design(x).shape == (48, 28)


@pytest.mark.parametrize("scale", [1e-6, 1e3, 1e9])
def test_the_unit_of_the_response_does_not_matter(scale: float) -> None:
    everywhere = grid([1], list(range(4, 45, 4)), list(range(1_200_000, 2_200_001, 100_000)))
    plain, scaled = BSpline(), BSpline()
    plain.fit(DESIGN, times(DESIGN))
    scaled.fit(DESIGN, scale * times(DESIGN))
    assert scaled.predict(everywhere) == pytest.approx(scale * plain.predict(everywhere))


def test_bounds_reach_beyond_what_was_run() -> None:
    bounds = np.array([[1.0, 4.0, 1_200_000.0], [1.0, 64.0, 2_200_000.0]])
    model = BSpline(bounds=bounds)
    model.fit(DESIGN, times(DESIGN))
    at_bound, beyond = (
        model.predict(np.array([[1.0, threads, 2_200_000.0]])) for threads in (64.0, 99.0)
    )
    assert beyond == pytest.approx(at_bound)
    assert model.predict(np.array([[1.0, 50.0, 2_200_000.0]])) != pytest.approx(at_bound)


def test_a_polynomial_gives_a_polynomial_back_exactly() -> None:
    x = grid([1], [8, 20, 32, 44], FREQS)
    y = 900 - 30 * x[:, 1] + 0.5 * x[:, 1] ** 2 + x[:, 1] * x[:, 2] / 1e6
    model = Polynomial()
    model.fit(x, y)
    other = np.array([[1.0, 12.0, 1_500_000.0]])
    assert model.predict(other)[0] == pytest.approx(900 - 360 + 72 + 18)
    assert model.notes == ["frequency: the runs have only 3 values, degree 2"]


def test_terms_that_others_make_up_are_left_out_on_request() -> None:
    x: Matrix = np.array([(1.0, c, f) for c in (8.0, 20.0, 32.0, 44.0) for f in (1.2, 1.9, 2.2)])
    y = 5.0 + x[:, 1] * x[:, 2]
    every, few = create("polynomial"), create("polynomial", vif=10.0)
    for model in (every, few):
        model.fit(x, y)
    terms = [[t["term"] for t in model.facts["inference"]["terms"]] for model in (every, few)]
    assert set(terms[1]) < set(terms[0])
    assert all((t["vif"] or 0.0) <= 10.0 for t in few.facts["inference"]["terms"])
    (note,) = (n for n in few.notes if n.startswith("left out as collinear: "))
    assert set(note.partition(": ")[2].split(", ")) == set(terms[0]) - set(terms[1])
    few.fit(x, y)
    assert len(few.notes) == len(every.notes) + 1


def test_a_polynomial_never_predicts_a_run_of_no_time() -> None:
    x = grid([1], [1, 2, 3, 64], [2_000_000])
    y = np.array([100.0, 50.0, 1.0, 90.0])
    model = Polynomial()
    model.fit(x, y)
    assert model.predict(grid([1], list(range(1, 65)), [2_000_000])).min() == pytest.approx(0.1)


def test_models_are_named_and_described() -> None:
    own = {"auto", "bspline", "formula", "neural", "physical", "polynomial"}
    assert own | {registry.DEFAULT} <= set(names())
    for name in names():
        model = registry.find(name)
        assert name == model.NAME
        assert model.DESCRIPTION
        assert all(o.parse(o.default) == o.default for o in model.OPTIONS)


def test_an_option_changes_the_model() -> None:
    everywhere = grid([1], list(range(8, 45, 4)), [1_500_000])
    line, curve = create("polynomial", degree="1"), create("polynomial", degree=3)
    for model in (line, curve):
        model.fit(DESIGN, times(DESIGN))
    steps = np.diff(line.predict(everywhere))
    assert steps == pytest.approx(np.full(len(steps), steps[0]))
    assert np.ptp(np.diff(curve.predict(everywhere))) > 0.1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "splines",
            {},
            "no model is called 'splines' .choose from: auto, bspline,",
        ),
        ("bspline", {"dgree": 2}, "model bspline has no option 'dgree' .it has: df, degree"),
        ("bspline", {"df": "two"}, "df: 'two' is not a whole number"),
        ("polynomial", {"degree": 9}, "degree: 9 is out of range .from 1 to 6"),
    ],
)
def test_a_wrong_name_or_option_is_told(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        create(name, **options)


def test_a_site_adds_a_model_by_an_entry_point(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    own = tuple(name for name in names() if name not in laboratory.MODELS)
    entries = [
        EntryPoint("cubic", "site_models:Cubic", "advisor.models"),
        EntryPoint("auto", "site_models:Cubic", "advisor.models"),  # the advisor's own stays
        EntryPoint("broken", "no.such.module:Model", "advisor.models"),
        *entry_points(group="advisor.models"),
    ]
    monkeypatch.setitem(sys.modules, "site_models", SimpleNamespace(Cubic=Polynomial))
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries)
    plugins.found.cache_clear()
    request.addfinalizer(plugins.found.cache_clear)
    assert names() == (*own, "broken", "cubic", *laboratory.MODELS)
    assert registry.find("auto").__module__ == "advisor.models.auto"
    assert isinstance(create("cubic"), Polynomial)
    with pytest.raises(InputError, match=r"model 'broken' .*cannot be loaded"):
        create("broken")
