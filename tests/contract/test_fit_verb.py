"""``advisor fit`` and ``advisor options``: from stored runs to the table people choose from."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy  # which loads scipy.stats where a test needs it: a second

from advisor.cli import main
from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation, Scope
from advisor.models import registry
from advisor.models.base import matrix
from advisor.models.design import uniform
from advisor.store.opening import caller
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.golden.published import stencil64
from tests.pictures import kept

Advisor = Callable[..., Any]
SPACE = SearchSpace(
    "cpu", (1,), tuple((1, t) for t in (4, 8, 16, 24, 32)), (1_200_000, 1_800_000, 2_400_000)
)
BASELINE = Configuration("cpu", 1, 1, 32, 2_400_000)


def measured(c: Configuration) -> Observation:
    clock = c.freq_khz / 2.4e6
    time = 30.0 / (c.threads_per_node * clock) + 25.0 / (c.threads_per_node + 4) + 2.0
    power = 100.0 + c.threads_per_node * (0.8 + 2.4 * clock**2.5)
    return Observation(c, time, time * power, contributor="ada", scope="all")


RUNS = [measured(c) for c in uniform(SPACE)]


def whose(
    runs: list[Observation], contributor: str, scope: Scope, account: str = ""
) -> list[Observation]:
    return [replace(r, contributor=contributor, scope=scope, account=account) for r in runs]


@pytest.fixture
def store(store_path: Path) -> Path:
    with Writer(store_path) as writer:
        writer.add_observations("stencil", "default", RUNS)
    return store_path


def test_fit_stores_a_model_and_says_how_good_it_is(advisor: Advisor, store: Path) -> None:
    result = advisor("fit", "stencil", "--json")
    assert result.code == 0
    data = result.json()
    assert data["schema"] == "advisor/fit/1"
    assert data["application"] == "stencil"
    (model,) = data["models"]
    assert (model["scope"], model["owner"], model["node_type"]) == ("all", "", "cpu")
    assert (model["runs"], model["n_train"], model["energy_quality"]) == (12, 12, "measured")
    assert model["stats"]["time"]["r2"] == pytest.approx(1.0, abs=1e-3)
    assert model["stats"]["energy"]["loo_rmse_pct"] > 0
    with Reader(store) as reader:
        (stored,) = reader.find_models("stencil")
    assert (stored.id, stored.state, stored.name) == (model["id"], "fitted", "auto")
    options = stored.options()
    assert len(options) == model["stats"]["options"] == 12
    assert sum(o.in_zone for o in options) == model["stats"]["zone"] > 0
    assert all(o.measured for o in options)


def test_fit_prints_a_table(advisor: Advisor, store: Path) -> None:
    argv = ("fit", "stencil", "--model", "polynomial", "--model-option", "degree=2")
    result = advisor(*argv)
    assert result.code == 0
    header, row = result.out.splitlines()[:2]
    assert header.split()[:2] == ["workload", "node"]
    assert row.split()[:4] == ["default", "cpu", "all", "12"]
    assert row.split()[-1] == "measured"
    for form, head, term in (
        ("latex", "workload & node type & for & runs", "frequency\\textasciicircum{}2 &"),
        ("markdown", "| workload | node type | for | runs", "| frequency^2 |"),
        ("csv", "workload,node type,for,runs", "frequency^2,"),
    ):
        text = advisor(*argv, "--format", form, "--verbose").out
        assert head in text and term in text, text


def test_fit_tells_what_the_terms_of_a_polynomial_are_worth(advisor: Advisor, store: Path) -> None:
    options = ("--model", "polynomial", "--model-option")
    (model,) = advisor("fit", "stencil", *options, "degree=2", "--json").json()["models"]
    found = model["stats"]["time"]["inference"]
    terms = [t["term"] for t in found["terms"]]
    assert terms == [
        "1",
        "frequency",
        "frequency^2",
        "threads",
        "threads frequency",
        "threads^2",
    ]
    assert found["degrees_of_freedom"] == 12 - 6
    # by the normal equations, and by regressing each column on the others
    u, v = (
        2 * (a - a.min()) / np.ptp(a) - 1 for a in matrix([r.configuration for r in RUNS]).T[1:]
    )
    x = np.column_stack([u**0, v, v**2, u, u * v, u**2])
    y = np.array([r.time_s for r in RUNS])
    inverse = np.linalg.inv(x.T @ x)
    b = inverse @ x.T @ y
    rest = float(((y - x @ b) ** 2).sum()) / 6
    spread = float(y.var(ddof=1))
    assert found["r2_adjusted"] == pytest.approx(1 - rest / spread)
    for i, term in enumerate(found["terms"]):
        error = math.sqrt(rest * inverse[i, i])
        assert term["coefficient"] == pytest.approx(b[i])
        assert term["standard_error"] == pytest.approx(error)
        assert term["p_value"] == pytest.approx(2 * scipy.stats.t.sf(abs(b[i] / error), 6))
        if i:
            away = x[:, i] - x[:, i].mean()
            assert term["vif"] == pytest.approx(inverse[i, i] * float(away @ away))
    assert found["terms"][0]["vif"] is None
    (full,) = advisor("fit", "stencil", *options, "degree=6", "--json").json()["models"]
    found = full["stats"]["time"]["inference"]
    assert (found["degrees_of_freedom"], found["r2_adjusted"]) == (0, None)
    assert {t["p_value"] for t in found["terms"]} == {None}


def test_fitting_again_replaces_the_model(advisor: Advisor, store: Path) -> None:
    advisor("fit", "stencil")
    again = advisor("fit", "stencil", "--error", "20%", "--json").json()["models"][0]
    assert again["version"] == 2
    assert again["stats"]["error"] == pytest.approx(0.2)
    with Reader(store) as reader:
        assert [m.version for m in reader.find_models("stencil")] == [2]


def test_every_group_of_jobs_gets_a_model_of_what_it_may_see(advisor: Advisor, store: Path) -> None:
    with Writer(store) as writer:
        writer.add_observations("stencil", "default", whose(RUNS[:5], "bob", "own", "physics"))
        writer.add_observations("stencil", "default", whose(RUNS[5:7], "cy", "account", "physics"))
        writer.add_observations("stencil", "large", whose(RUNS, "bob", "own"))
        writer.add_observations("stencil", "tiny", whose(RUNS[:2], "bob", "own"))
    result = advisor("fit", "stencil", "--json")
    assert result.code == 0
    found = {(m["workload"], m["scope"], m["owner"]): m for m in result.json()["models"]}
    assert {key: m["runs"] for key, m in found.items()} == {
        ("default", "all", ""): 12,
        ("default", "account", "physics"): 14,
        ("default", "own", "bob"): 19,
        ("large", "own", "bob"): 12,
        ("tiny", "own", "bob"): 2,
    }
    assert found["tiny", "own", "bob"]["id"] is None
    assert "a model needs 4" in found["tiny", "own", "bob"]["problem"]
    with Reader(store) as reader:
        assert len(reader.find_models("stencil")) == 4


def test_a_promoted_users_own_model_gives_way_to_everybodys(
    advisor: Advisor, store_path: Path
) -> None:
    with Writer(store_path) as writer:
        writer.add_observations("stencil", "default", whose(RUNS, "bob", "own"))
    advisor("fit", "stencil")
    with Writer(store_path) as writer:
        writer.promote("stencil", scope="all")
    advisor("fit", "stencil")
    with Reader(store_path) as reader:
        assert [(m.scope, m.owner) for m in reader.find_models("stencil")] == [("all", "")]


def test_selection_by_workload_and_node_type(advisor: Advisor, store: Path) -> None:
    other = [replace(r, configuration=replace(r.configuration, node_type="fat")) for r in RUNS]
    with Writer(store) as writer:
        writer.add_observations("stencil", "large", other)
    by_workload = advisor("fit", "stencil", "--workload", "large", "--json").json()["models"]
    assert [(m["workload"], m["node_type"]) for m in by_workload] == [("large", "fat")]
    by_type = advisor("fit", "stencil", "--node-type", "cpu", "--json").json()["models"]
    assert [(m["workload"], m["node_type"]) for m in by_type] == [("default", "cpu")]


def test_too_little_to_fit_is_one_clear_line(advisor: Advisor, store_path: Path) -> None:
    missing = advisor("fit", "stencil")
    assert missing.code == 1
    assert "there is no store" in missing.err
    assert not store_path.exists()
    with Writer(store_path) as writer:
        writer.add_observations("stencil", "default", RUNS[:1])
    one = advisor("fit", "stencil")
    assert (one.code, one.out) == (1, "")
    assert "1 configuration measured, a model needs 4" in one.err
    unknown = advisor("fit", "amg")
    assert unknown.code == 2
    assert "nothing is stored for application 'amg' (known: stencil)" in unknown.err
    elsewhere = advisor("fit", "stencil", "--workload", "huge")
    assert elsewhere.code == 2
    assert "stencil has no workload 'huge' (known: default)" in elsewhere.err
    nowhere = advisor("fit", "stencil", "--node-type", "gpu")
    assert nowhere.code == 2 and "there is no node type 'gpu' (did you mean cpu?)" in nowhere.err


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (
            ("--model", "magic"),
            2,
            "no model is called 'magic' (choose from: auto, bspline,",
        ),
        (("--model-option", "degree"), 2, "write NAME=VALUE"),
        (("--model-option", "df=3"), 1, "model auto has no option 'df' (it has: none)"),
        (
            ("--model", "bspline", "--model-option", "knots=3"),
            1,
            "model bspline has no option 'knots'",
        ),
        (("--model", "bspline", "--model-option", "df=0"), 1, "df: 0 is out of range"),
        (("--error", "lots"), 2, "is not a percentage"),
    ],
)
def test_a_wrong_call_is_told_and_stores_nothing(
    advisor: Advisor, store: Path, argv: tuple[str, ...], code: int, message: str
) -> None:
    result = advisor("fit", "stencil", *argv)
    assert result.code == code
    assert message in result.err
    with Reader(store) as reader:
        assert reader.find_models("stencil") == []


def test_models_are_listed(advisor: Advisor, store: Path) -> None:
    text = advisor("fit", "--list-models")
    assert text.code == 0
    assert "bspline: B-splines" in text.out
    names = [m["name"] for m in advisor("fit", "--list-models", "--json").json()["models"]]
    assert {"auto", "bspline", "formula", "neural", "physical", "polynomial"} <= set(names)
    assert names == list(registry.names())
    nothing = advisor("fit")
    assert nothing.code == 2 and "no application is named" in nothing.err


# -- advisor options -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _fitted_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fitted") / "advisor.db"
    with Writer(path) as writer:
        writer.add_observations("stencil", "default", RUNS)
    assert main(["fit", "stencil", "--db", str(path)]) == 0
    return path


@pytest.fixture
def fitted(_fitted_once: Path, store_path: Path) -> Path:
    """A store of one's own with the same fitted model."""
    shutil.copyfile(_fitted_once, store_path)
    return store_path


def test_options_json_has_every_option_against_the_baseline(advisor: Advisor, fitted: Path) -> None:
    data = advisor("options", "stencil", "--json").json()
    assert data["schema"] == "advisor/options/1"
    (model,) = data["models"]
    assert model["baseline"] == BASELINE.to_dict()
    assert len(data["options"]) == 12
    (base,) = [o for o in data["options"] if o["baseline"]]
    assert (base["time_change"], base["energy_change"]) == (0.0, 0.0)
    for o in data["options"]:
        assert o["model"] == model["id"]
        assert o["time_change"] == pytest.approx(o["time_s"] / base["time_s"] - 1)
        assert o["energy_change"] == pytest.approx(o["energy_j"] / base["energy_j"] - 1)
        assert o["time_lo_s"] <= o["time_s"] <= o["time_hi_s"]
        assert {"measured", "confirmed", "in_zone", "on_front", "threads_per_rank"} <= set(o)


def test_people_see_zone_and_baseline_with_a_picture(advisor: Advisor, fitted: Path) -> None:
    result = advisor("options", "stencil")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "stencil (workload default) on cpu, for everybody's jobs"
    assert "as written" in lines[2]
    assert "◆ job as written" in lines[-2]
    assert "less energy" in result.out
    everything = advisor("options", "stencil", "--all").out
    assert len(everything.splitlines()) > len(lines)


def test_options_by_other_measures(advisor: Advisor, fitted: Path) -> None:
    data = advisor("options", "stencil", "--json").json()["options"]
    for o in data:
        assert o["edp_js"] == pytest.approx(o["energy_j"] * o["time_s"])
        assert o["node_hours"] == pytest.approx(o["nodes"] * o["time_s"] / 3600)
        assert o["cores"] == o["nodes"] * o["threads_per_node"]
        assert (o["cluster"] is not None) == o["on_front"]
        assert o["on_resource_front"] or not o["on_front"]
    lines = advisor("options", "stencil", "--all", "--sort", "edp").out.splitlines()
    assert "edp" in lines[1]
    assert any("front: balanced" in line for line in lines)
    assert advisor("options", "stencil", "--sort", "beauty").code == 2


def test_a_picture_of_the_options(advisor: Advisor, store_path: Path, tmp_path: Path) -> None:
    """Of the thesis's stencil kernel, from the twelve runs of its design."""
    runs = stencil64()
    design = uniform(SearchSpace.of("haswell", [run.configuration for run in runs]))
    with Writer(store_path) as writer:
        measured_runs = [r for r in runs if r.configuration in design]
        writer.add_observations("stencil", "default", whose(measured_runs, "ada", "all"))
    assert advisor("fit", "stencil").code == 0
    for view in ("lines", "surface"):
        drawn = advisor("options", "stencil", "--view", view)
        assert "time (s)" in drawn.out and "energy (kJ)" in drawn.out
        assert "5 % slower" in drawn.out and "fastest" in drawn.out
    answer = advisor("options", "stencil", "--all", "--json").json()
    (model,) = answer["models"]
    named = [o for o in answer["options"] if model["recommended"].items() <= o.items()]
    (recommended,) = (o for o in named if o["confirmed"])
    assert recommended["time_change"] <= 0.05 and recommended["energy_change"] < -0.03
    picture = tmp_path / "options.svg"
    assert advisor("options", "stencil", "--plot", picture).code == 0
    assert b"energy against the job as written" in picture.read_bytes()
    kept(picture, "options")
    dark = tmp_path / "options-dark.svg"
    assert advisor("options", "stencil", "--plot", dark).code == 0
    kept(dark, "options-dark")


def test_others_own_models_are_shown_on_request_only(advisor: Advisor, fitted: Path) -> None:
    with Writer(fitted) as writer:
        writer.add_observations("stencil", "default", whose(RUNS[:3], "bob", "own"))
        writer.add_observations("stencil", "default", whose(RUNS[:4], caller(), "own"))
    advisor("fit", "stencil")
    mine = advisor("options", "stencil", "--json").json()["models"]
    assert {m["owner"] for m in mine} == {"", caller()}
    bobs = advisor("options", "stencil", "--user", "bob", "--json").json()["models"]
    assert {m["owner"] for m in bobs} == {"", "bob"}
    several = advisor("options", "stencil", "--plot", "x.svg")
    assert several.code == 2
    assert "--plot shows one model, there are 2" in several.err


def test_without_energy_there_is_no_picture_but_a_table(
    advisor: Advisor, store_path: Path, tmp_path: Path
) -> None:
    blind = [replace(r, energy_j=None, energy_quality="missing") for r in RUNS]
    with Writer(store_path) as writer:
        writer.add_observations("stencil", "default", blind)
    advisor("fit", "stencil")
    result = advisor("options", "stencil")
    assert result.code == 0
    assert "energy is missing; without energy there is no trade-off" in result.out
    assert advisor("options", "stencil", "--plot", tmp_path / "x.svg").code == 3
    data = advisor("options", "stencil", "--json").json()
    assert all(o["energy_j"] is None and o["energy_change"] is None for o in data["options"])
    assert not any(math.isnan(o["time_s"]) for o in data["options"])


def test_no_saving_is_said_plainly(advisor: Advisor, store_path: Path) -> None:
    flat = [replace(r, energy_j=100.0 * r.time_s) for r in RUNS]
    with Writer(store_path) as writer:
        writer.add_observations("stencil", "default", flat)
    advisor("fit", "stencil")
    assert "no option saves energy against the job as written" in advisor("options", "stencil").out


def test_a_suspended_model_says_so(advisor: Advisor, fitted: Path) -> None:
    with Writer(fitted) as writer:
        (model,) = writer.find_models("stencil")
        writer.set_model_state(model.id, "suspended", "job 7 took 40 % longer")
    assert (
        "suspended, nothing is applied: job 7 took 40 % longer" in advisor("options", "stencil").out
    )


def test_no_model_is_one_line_with_what_to_do(advisor: Advisor, store: Path) -> None:
    unfitted = advisor("options", "stencil")
    assert unfitted.code == 3
    assert "advisor fit stencil" in unfitted.err
    misspelt = advisor("options", "stensil")
    assert misspelt.code == 2 and "did you mean stencil?" in misspelt.err


def test_single_runs_are_counted_unless_they_are_wanted(advisor: Advisor, store: Path) -> None:
    odd = [replace(r, time_s=r.time_s * 1.6) if i == 5 else r for i, r in enumerate(RUNS)]
    with Writer(store) as writer:
        writer.add_observations("odd", "default", odd)
    short, whole = advisor("fit", "odd"), advisor("fit", "odd", "--verbose")
    assert short.code == whole.code == 0
    single = [line for line in whole.out.splitlines() if line.endswith(("the fit", "ignored"))]
    assert single and not any(line in short.out for line in single)
    assert f"{len(single)} single value" in short.out
    assert "advisor fit --verbose names them" in short.out
    assert "names them" not in whole.out


def test_a_store_of_the_version_before_is_taken_along(advisor: Advisor, store: Path) -> None:
    """As with every command that writes: the store is brought up to date, and fitted."""
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm0010_months'")
        db.execute("DROP TABLE months")
        for index in ("decisions_by_user", "outcomes_by_user"):
            db.execute(f"DROP INDEX IF EXISTS {index}")
    assert "older version" in advisor("options", "stencil").err
    assert advisor("fit", "stencil").code == 0
    assert advisor("options", "stencil").code == 0
