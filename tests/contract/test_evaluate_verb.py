"""``advisor lab evaluate``: the contract's JSON from a grid file, and its mistakes told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.models.neural import Neural
from tests.golden.published import as_csv, stencil64
from tests.pictures import kept

pytestmark = pytest.mark.slow
Advisor = Callable[..., Any]
HEADER = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j"


def rows(nodes: tuple[int, ...] = (1,)) -> list[str]:
    """A program whose cores and clock help less and less, on a node with idle power."""
    found = []
    for n in nodes:
        for t in range(4, 33, 4):
            for mhz in range(1200, 2401, 200):
                clock = mhz / 2400
                time = (30 / (t * clock) + 25 / (t + 4) + 2) / n**0.8
                energy = n * time * (100 + t * (0.8 + 2.4 * clock**2.5))
                found.append(f"{n},1,{t},{mhz}000,{time:.5f},{energy:.3f}")
    return found


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.csv"
    path.write_text("\n".join([HEADER, *rows()]) + "\n")
    return path


def test_statistics_and_forms_of_tables(advisor: Advisor, grid: Path, tmp_path: Path) -> None:
    """Each zone has its own error limit; what a view shows is in the JSON answer, too."""
    evaluate = ("evaluate", grid, "--model", "polynomial")
    seen = advisor(*evaluate, "--forecast-error", 10, "--view", "spearman", "--json").json()
    assert (seen["front"]["error_pct"], seen["front"]["forecast_error_pct"]) == (5, 10)
    rho = {(r["of"], r["with"]): r["rho"] for r in seen["statistics"]["spearman"]}
    assert rho["time", "cores"] < -0.7
    text = advisor(*evaluate, "--format", "csv", "--forecast-error", 10).out
    assert (
        "\nresponse,model,runs,R2," in text and "\n# trade-off zone at 5 % (forecast 10 %)" in text
    )
    for view, header in (
        ("spearman", "of,with,rho"),
        ("clusters", 'option,cluster,"time, s","energy, J",nearest goal'),
        ("qq", "standard normal quantile,value"),
        ("histogram", "from and to,density"),
    ):
        table = advisor(*evaluate, "--view", view, "--format", "csv").out
        assert f"\n{header}\n" in table and "┤" not in table and "-0.0," not in table, view
    refused = advisor(*evaluate, "--view", "repeats")
    assert refused.code == 1 and "no configuration was run twice" in refused.err
    advisor("import", grid, "--application", "app", "--node-type", "t", "--db", tmp_path / "s.db")
    fit = ("fit", "app", "--model", "polynomial", "--db", tmp_path / "s.db")
    shown = advisor(*fit, "--view", "clusters")
    assert "power" in shown.out and "performance" in shown.out and shown.code == 0


def test_the_contract(advisor: Advisor, grid: Path) -> None:
    result = advisor("evaluate", grid, "--json")
    assert result.code == 0
    data = result.json()
    assert data["schema"] == "advisor/evaluate/1"
    assert data["model"] == "auto"
    assert list(data["responses"]) == ["energy", "time"]
    for score in data["responses"].values():
        assert score["n_train"] == 12
        assert score["r2"] == pytest.approx(1.0, abs=1e-3)
        assert 0 < score["total_rmse_pct"] < 50
        assert 0 <= score["pareto_rmse_pct"] < 25
        assert 0 <= score["interval_coverage"] <= 1
    front = data["front"]
    assert len(front["by_distance"]) == 5
    assert sum(front["by_distance"]) + front["farther"] == front["forecast_points"]
    assert front["observed_points"] > 0
    for name in ("energy", "time"):
        for key in ("baseline", "p_min", "p_max"):
            assert set(front["responses"][name][key]) == {"observed", "forecast"}
    decision = data["decision"]
    assert decision["baseline"]["threads_per_node"] == 32
    assert decision["baseline"]["freq_khz"] == 2_400_000
    assert decision["runs"] in (12, 13)
    assert decision["true_saving"] <= decision["best_saving"]
    assert decision["true_slowdown"] <= 0.05
    assert (decision["true_saving"] == 0.0) == (decision["chosen"] == decision["baseline"])


def test_people_get_tables_and_a_verdict(advisor: Advisor, grid: Path) -> None:
    result = advisor("evaluate", grid, "--model", "polynomial")
    assert result.code == 0
    assert result.out.startswith("polynomial trained on 12 of 56 cells (uniform)")
    for text in (
        "pareto RMSE",
        "search steps from the observed one",
        "p_min",
        "baseline    1 node, 32 threads",
    ):
        assert text in result.out
    # What the model proposed first is not what is recommended once runs have confirmed it.
    assert "\nproposed " in result.out and "\nrecommended " in result.out


def test_design_samples_limits_and_seed_are_taken(advisor: Advisor, grid: Path) -> None:
    evaluate = ("evaluate", grid, "--model", "bspline")
    for design in ("random", "lhs"):
        argv = (*evaluate, "--design", design, "--samples", 13, "--json")
        one, same, other = (advisor(*argv, "--seed", seed).json()["trained"] for seed in (1, 1, 2))
        assert len(one) == 13
        assert one == same != other
    strict = advisor(*evaluate, "--max-slowdown", 0, "--json").json()["decision"]
    loose = advisor(*evaluate, "--max-slowdown", 60, "--json").json()["decision"]
    assert strict["true_slowdown"] <= 0
    assert loose["best_saving"] > strict["best_saving"]
    none = advisor(*evaluate, "--min-saving", 99, "--json").json()["decision"]
    assert none["recommended"] is None
    assert none["chosen"] == none["baseline"]
    narrow, wide = (
        advisor(*evaluate, "--error", e, "--json").json()["front"]["observed_points"]
        for e in (1, 20)
    )
    assert narrow < wide


def test_several_node_counts(advisor: Advisor, tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("\n".join([HEADER, *rows((1, 2, 4, 8))]) + "\n")
    data = advisor("evaluate", path, "--samples", 32, "--json").json()
    assert len(data["trained"]) == 32
    assert data["decision"]["baseline"]["nodes"] == 8
    assert data["responses"]["time"]["total_rmse_pct"] < 30


def test_mistakes_are_told(advisor: Advisor, grid: Path, tmp_path: Path) -> None:
    missing = advisor("evaluate", tmp_path / "no.csv")
    assert missing.code == 1
    assert "no.csv cannot be read" in missing.err
    bad = tmp_path / "bad.csv"
    bad.write_text(f"{HEADER}\n1,1,4,1200000,-3,10\n")
    result = advisor("evaluate", bad)
    assert (result.code, result.out) == (1, "")
    assert "line 2, time_s" in result.err
    few = tmp_path / "few.csv"
    few.write_text("\n".join([HEADER, *rows()[:3]]) + "\n")
    assert "a model needs 4" in advisor("evaluate", few).err
    blind = tmp_path / "blind.csv"
    blind.write_text("\n".join([HEADER, *(r.rpartition(",")[0] + "," for r in rows())]) + "\n")
    assert "no energy to judge by" in advisor("evaluate", blind).err
    assert "all 56 configurations" in advisor("evaluate", grid, "--samples", 56).err
    assert "no model is called" in advisor("evaluate", grid, "--model", "magic").err
    for argv in ((), (grid, "--samples", "0"), (grid, "--design", "sobol")):
        assert advisor("evaluate", *argv).code == 2


def test_models_are_compared_on_the_same_cells(
    advisor: Advisor, grid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Neural.__init__.__kwdefaults__
    assert defaults is not None and defaults["steps"] > 50
    monkeypatch.setitem(defaults, "steps", 50)  # a whole training takes as long as all the others
    data = advisor("evaluate", grid, "--compare", "--json").json()
    models = [c["model"] for c in data["cases"]]
    assert {"auto", "bspline", "polynomial"} <= {*models}
    assert len({str(c["trained"]) for c in data["cases"]}) == 1
    assert [m["model"] for m in data["means"]] == models
    told = advisor("evaluate", grid, "--compare", "--samples", 14).out
    for text in ("bspline forecast", "  error %", "polynomial:", "recommended"):
        assert text in told
    assert max(len(line) for line in told.splitlines() if not line.startswith("note")) <= 110


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    """A training over batch size and GPU power limit, the batch size in a column of its own."""
    header = (
        "nodes,ranks_per_node,threads_per_node,freq_khz,gpu_power_w,batch,number,time_s,energy_j"
    )
    found = [header]
    for i, (batch, watts) in enumerate(
        (b, w) for b in (8, 16, 32, 64) for w in range(100, 300, 25)
    ):
        time_s = (40 + 900 / batch) * (1 + 20 / watts) * (1 + 0.003 * (-1) ** i)
        found.append(f"1,1,1,0,{watts},{batch},{i},{time_s:.4f},{time_s * (60 + 0.8 * watts):.2f}")
    path = tmp_path / "training.csv"
    path.write_text("\n".join(found) + "\n")
    return path


def test_a_further_column_that_acts_is_named_and_can_be_an_axis(
    advisor: Advisor, batches: Path
) -> None:
    """Runs of four batch sizes were averaged as repeats, and nothing said so."""
    mixed = advisor("evaluate", batches, "--samples", 6, "--json")
    assert mixed.err.count("\n") == 1 and "batch acts like an axis" in mixed.err
    assert "--axis batch makes it one" in mixed.err and "number" not in mixed.err
    done = advisor("evaluate", batches, "--axis", "batch", "--json")
    assert done.err == "advisor: training.csv: batch stands where threads are\n"
    answer = done.json()
    assert len({c["threads_per_node"] for c in answer["trained"]}) > 2
    assert "trained on 12 of 32 cells" in advisor("evaluate", batches, "--axis", "batch").out
    for axis, why in (
        ("batches", "there is no further column 'batches' (did you mean batch?)"),
        ("number", "run 1: number is 0, an axis needs whole numbers of 1 or more"),
    ):
        refused = advisor("evaluate", batches, "--axis", axis)
        assert refused.code == 1 and why in refused.err and refused.err.count("\n") == 1


def test_values_of_an_option_are_compared_and_drawn(
    advisor: Advisor, grid: Path, tmp_path: Path
) -> None:
    """As figures 5.2 and 5.3 of the thesis: what a polynomial's degree does to its errors."""
    polynomial = ("evaluate", grid, "--model", "polynomial")
    picture = tmp_path / "degrees.svg"
    done = advisor(*polynomial, "--vary", "degree=1,3", "--plot", picture)
    assert done.code == 0, done.err
    assert done.out.startswith("degree=1, degree=3 trained on 12 of 56 cells (uniform)")
    for shown in (done.out, picture.read_text()):
        for words in ("degree=3", "error of energy, %", "of all cells", "of the front"):
            assert words in shown
    cases = advisor(*polynomial, "--vary", "degree=1,3", "--json").json()["cases"]
    assert [c["variant"] for c in cases] == ["degree=1", "degree=3"]
    three = advisor(*polynomial, "--model-option", "degree=3", "--json").json()
    alone = three["responses"]["time"]
    assert cases[1]["responses"]["time"] == alone
    assert cases[0]["responses"]["time"]["total_rmse_pct"] > alone["total_rmse_pct"]
    samples = advisor(*polynomial, "--vary", "samples=6,9")
    assert "samples=6, samples=9 trained on 6 to 9 of 56 cells" in samples.out
    assert "samples=6, samples=9" in advisor("evaluate", grid.parent, "--vary", "samples=6,9").out
    for wrong, why in (
        (("--vary", "degree"), "write NAME=VALUE,VALUE"),
        (("--vary", "samples=6,few"), "'few' is not a number"),
        (("--vary", "degree=1,9"), "9 is out of range"),
        (("--vary", "degree=1", "--model-option", "degree=2"), "its value is given, too"),
        (("--vary", "degree=1", "--kfold", 3), "two comparisons"),
        (("--vary", "degree=1,2", "--view", "lines"), "--vary has one picture"),
    ):
        refused = advisor(*polynomial, *wrong)
        assert refused.code in (1, 2) and why in refused.err and refused.err.count("\n") == 1


def test_a_folder_and_seeds_give_means(advisor: Advisor, grid: Path) -> None:
    (grid.parent / "other.csv").write_text(grid.read_text().replace(",1.", ",2."))
    argv = ("evaluate", grid.parent, "--model", "bspline", "--design", "lhs", "--seeds", 3)
    data = advisor(*argv, "--json").json()
    assert [(c["grid"], c["seed"]) for c in data["cases"]] == [
        (g, s) for g in ("grid", "other") for s in (0, 1, 2)
    ]
    (mean,) = data["means"]
    errors = [c["responses"]["time"]["total_rmse_pct"] for c in data["cases"]]
    assert mean["mean"]["time_total_rmse_pct"] == pytest.approx(sum(errors) / 6)
    assert mean["spread"]["time_total_rmse_pct"] > 0
    told = advisor(*argv).out
    assert "means over 2 grids with 3 seeds each" in told
    assert "other: bspline trained on 12 of 56 cells" in told


def test_folds_predict_each_cell_once(advisor: Advisor, grid: Path) -> None:
    argv = ("evaluate", grid, "--model", "bspline", "--kfold", 3)
    data = advisor(*argv, "--json").json()
    assert data["model"] == "bspline"
    (told,) = data["kfold"]
    for folds in told["responses"].values():
        assert [f["n_test"] for f in folds] == [19, 19, 18]
        assert all(f["n_train"] + f["n_test"] == 56 for f in folds)
        assert all(0 <= f["within_pct"]["5"] <= f["within_pct"]["20"] <= 100 for f in folds)
        assert all(0 < f["rmse_pct"] < 30 for f in folds)
    assert "cross validation of energy" in advisor(*argv).out


def test_what_cannot_be_compared_is_told(advisor: Advisor, grid: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "there are no *.csv files" in advisor("evaluate", empty).err
    assert "seeds change nothing" in advisor("evaluate", grid, "--seeds", 2).err
    assert "cannot be split" in advisor("evaluate", grid, "--kfold", 40).err
    both = advisor("evaluate", grid, "--compare", "--model-option", "df=4")
    assert both.code == 2
    (tmp_path / "few.csv").write_text("\n".join([HEADER, *rows()[:3]]) + "\n")
    assert "few: " in advisor("evaluate", tmp_path).err


@pytest.mark.parametrize("view", ["pareto", "observed", "lines", "surface"])
def test_pictures_of_an_evaluation(advisor: Advisor, tmp_path: Path, view: str) -> None:
    path, grid = tmp_path / "picture.svg", tmp_path / "stencil on 64 nodes.csv"
    grid.write_text(as_csv(stencil64()))
    argv = ("evaluate", grid, "--model", "bspline", "--view", view)
    done = advisor(*argv, "--plot", path)
    assert done.code == 0, done.err
    assert "stencil on 64 nodes, bspline, 12 runs" in path.read_text()
    axis = "time against the job as written" if view == "pareto" else "time (s)"
    assert axis in done.out
    if view != "observed":
        for word in ("job as written", "recommended", "fastest", "least energy", "5 % slower"):
            assert word in done.out and word in path.read_text(), word
    assert ("front as observed" in done.out) is (view == "pareto")
    kept(path, view)
    if view == "lines":
        over = advisor(*argv, "--over", "frequency", "--plot", path)
        assert "frequency (GHz)" in over.out and "cores per node" not in over.out
        assert "44 cores" in over.out and "44 cores" in path.read_text()


def test_a_picture_of_several_evaluations_is_refused_before_they_begin(
    advisor: Advisor, grid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor_lab.evaluation.compare_models.compare", None)
    for several in (("--compare",), ("--design", "lhs", "--seeds", 2)):
        done = advisor("evaluate", grid, *several, "--plot", grid.with_name("picture.svg"))
        assert done.code == 2
        assert "a picture is of one evaluation, there are " in done.err


@pytest.fixture(scope="module")
def sized_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Work n on cores and clock, five sizes; the smallest cells take less than a second."""
    found = [f"{HEADER},n"]
    for n in (1, 2, 4, 8, 16):
        for t in (2, 4, 8, 16):
            for mhz in (1200, 1800, 2400):
                time = 0.2 + 6 * n * (0.02 + 0.98 / t) * 2400 / mhz
                energy = time * (90 + t * (1 + 4 * (mhz / 2400) ** 3))
                found.append(f"1,1,{t},{mhz}000,{time:.4f},{energy:.2f},{n}")
    path = tmp_path_factory.mktemp("sized") / "sized.csv"
    path.write_text("\n".join(found) + "\n")
    return path


def test_extrapolation_to_larger_sizes(advisor: Advisor, sized_grid: Path) -> None:
    argv = ("evaluate", sized_grid, "--parameter", "n", "--train-to", 4, "--samples", 18)
    data = advisor(*argv, "--min-time", 6, "--json").json()
    assert data["answer"] == "ok"
    assert [s["at"] for s in data["extrapolation"]] == [8, 16]
    assert [s["factor"] for s in data["extrapolation"]] == [2.0, 4.0]
    assert data["trained_runs"] == 18
    for score in data["extrapolation"]:
        assert score["median_error_pct"]["time"] < 15
        assert 0 <= score["interval_coverage"]["energy"] <= 1
        assert score["half_width_pct"]["time"] > 0
        decision = score["decision"]
        assert decision["true_slowdown"] <= 0.07
        assert decision["true_saving"] <= decision["best_saving"]
    short = [s["cells"] for s in data["extrapolation"]]
    assert short[0] < 12, "cells below --min-time do not count"


def test_extrapolation_of_bad_input(advisor: Advisor, sized_grid: Path) -> None:
    def err(*argv: object) -> str:
        result = advisor("evaluate", sized_grid, *argv)
        assert result.code in (1, 2)
        assert result.err.count("\n") == 1
        return str(result.err)

    assert "no column 'm'" in err("--parameter", "m", "--train-to", 4)
    assert "a law needs 3" in err("--parameter", "n", "--train-to", 2)
    assert "no run has more than 16 n" in err("--parameter", "n", "--train-to", 16)
    assert "--train-to" in err("--parameter", "n")
    assert "--parameter" in err("--train-to", 4)
    assert "give 18 or 36" in err("--parameter", "n", "--train-to", 4, "--samples", 20)
