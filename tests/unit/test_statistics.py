"""Statistics of runs, by hand; their pictures in characters and as files."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.errors import InputError
from advisor.models.evaluation import EvaluationTerms, evaluate
from advisor.models.runs import gather
from advisor.plotting.chart import ASCII, Marks
from advisor.plotting.figure import save
from advisor.plotting.terminal import draw_panels
from advisor.views.measured_example import measured_programs
from advisor.views.tables import comma_separated, latex, markdown
from advisor_lab.evaluation.statistics import correlations, front_clusters, samples, summaries
from advisor_lab.evaluation.statistics_views import statistics_view
from tests.pictures import kept


def place(cores: int, mhz: int = 2000) -> Configuration:
    return Configuration("t", 1, 1, cores, mhz * 1000)


def option(cores: int, time_s: float, energy_j: float, *, front: bool = True) -> Option:
    return Option(
        place(cores),
        time_s,
        time_s / 1.1,
        time_s * 1.1,
        energy_j,
        energy_j / 1.1,
        energy_j * 1.1,
        on_front=front,
    )


RUNS = [
    Observation(place(cores), 64 / cores + 2 + 0.1 * r, 1000.0 + 10 * cores + r)
    for cores in (2, 4, 8, 16, 32)
    for r in range(3)
]


def test_the_means_and_intervals_of_repeats() -> None:
    """Of 1, 2, 4: deviation sqrt(7/3), z* 1.96, t* of two degrees of freedom 4.303."""
    runs = [Observation(place(4), t, None) for t in (1.0, 2.0, 4.0)]
    (found,) = summaries(runs)
    assert (found.response, found.runs) == ("time", 3)
    assert (found.arithmetic, found.geometric, found.median) == pytest.approx((7 / 3, 2.0, 2.0))
    assert found.harmonic == pytest.approx(3 / 1.75)
    assert (found.deviation, found.variance) == pytest.approx((math.sqrt(7 / 3), 7 / 3))
    error = math.sqrt(7 / 3) / math.sqrt(3)
    assert found.normal == pytest.approx((7 / 3 - 1.959964 * error, 7 / 3 + 1.959964 * error))
    assert found.student == pytest.approx((7 / 3 - 4.302653 * error, 7 / 3 + 4.302653 * error))


def test_ranks_that_only_fall_have_a_rho_of_minus_one() -> None:
    rho = correlations(RUNS)
    assert list(rho.columns) == [
        "cores",
        "time",
        "energy",
        "power",
    ]  # what never varies is left out
    assert rho.loc["cores", "time"] == pytest.approx(-1)
    assert rho.loc["cores", "energy"] == pytest.approx(1)
    with pytest.raises(InputError, match="too few configurations"):
        correlations(RUNS[:6])


def test_a_front_of_three_groups_is_cut_into_them() -> None:
    groups = [
        (16, 10.0, 400.0),
        (15, 10.2, 395.0),
        (8, 20.0, 200.0),
        (4, 41.0, 101.0),
        (3, 40.0, 100.0),
    ]
    options = [option(*g) for g in groups]
    found = front_clusters([*options, option(1, 90.0, 90.0, front=False)])
    clusters = {
        o.configuration.threads_per_node: c
        for o, c in zip(found.options, found.clusters, strict=True)
    }
    assert clusters == {
        3: "power",
        4: "power",
        8: "balanced",
        15: "performance",
        16: "performance",
    }
    assert len(found.merges) == 4 and sorted(found.order) == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="2 \\(at least 3; compare so few one by one"):
        front_clusters(options[:2])


def test_a_sample_is_of_repeats_else_of_the_models_errors() -> None:
    time, energy = samples(gather(RUNS), {})
    assert (time.kind, energy.kind) == ("repeats", "repeats")
    pairs = time.q_q()
    assert [q for q, _ in pairs] == sorted(q for q, _ in pairs)
    edges, density = time.histogram()
    area = sum(d * (b - a) for d, (a, b) in zip(density, pairwise(edges), strict=True))
    assert area == pytest.approx(1)
    single = gather([r for i, r in enumerate(RUNS) if i % 3 == 0])
    (errors,) = samples(single, {"time": [0.01, -0.02, 0.04]})
    assert (errors.response, errors.kind) == ("time", "model errors")
    with pytest.raises(InputError, match="no distribution"):
        samples(single, {"time": [0.01, 0.02]})


@pytest.mark.parametrize("view", ["qq", "histogram", "spearman", "clusters", "loss", "repeats"])
def test_every_view_is_drawn(view: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if view == "loss":
        pytest.importorskip("sklearn")
    runs, judged = RUNS, None
    if view != "repeats":  # the measured grid that ships has one run of each configuration
        runs = measured_programs()["SP"]
        judged = evaluate(runs, EvaluationTerms(model="bspline"))
    found = statistics_view(
        view,
        "SP on one node",
        "bspline",
        runs,
        judged.predicted if judged else (),
        [r for r in runs if judged and r.configuration in judged.trained],
        {"steps": "16"} if view == "loss" else {},
    )
    assert found.data and all(t.rows for t in found.tables)
    words = {"spearman": "48 runs", "loss": "neural, 12 runs", "repeats": "15 runs"}
    assert found.picture.title == f"SP on one node, {words.get(view, 'bspline, 12 runs')}"
    for width in (60, 160):
        for marks in (Marks(), ASCII):
            text = draw_panels(found.picture, width=width, marks=marks)
            assert max(map(len, text.splitlines())) <= width
            assert marks is not ASCII or text.isascii()
    path = tmp_path / "picture.svg"
    save(found.picture, path)
    kept(path, view)


def test_loss_falls_and_ends_as_the_whole_training_does() -> None:
    pytest.importorskip("sklearn")
    found = statistics_view("loss", "t", "auto", RUNS, [], RUNS, {"steps": "40"}).data
    for response in found:
        losses = [loss for _, loss in response["losses"]]
        assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_the_table_of_repeats_has_all_means_and_the_intervals() -> None:
    runs = [Observation(place(4), t, None) for t in (1.0, 2.0, 4.0)]
    means, intervals = statistics_view("repeats", "t", "auto", runs, [], runs).tables
    assert means.headers[2:] == (
        "mean",
        "geometric",
        "harmonic",
        "median",
        "deviation",
        "variance",
    )
    assert means.rows == (
        ("1 node, 4 threads, 2 GHz", 3, "2.3333", "2", "1.7143", "2", "1.5275", "2.3333"),
    )
    assert intervals.headers[2:] == ("normal", "Student's t")
    assert intervals.rows[0][2:] == ("0.60481 to 4.0619", "-1.4612 to 6.1279")


def test_a_rank_correlation_is_listed_by_its_strength() -> None:
    (table,) = statistics_view("spearman", "t", "auto", RUNS, [], RUNS).tables
    strengths = [abs(float(str(rho))) for _, _, rho in table.rows]
    assert table.headers == ("of", "with", "rho") and len(table.rows) == 6
    assert strengths == sorted(strengths, reverse=True)


def test_tables_for_papers_and_spreadsheets() -> None:
    headers, rows = ["what", "of 100 %"], [["a_b", "1.5"], ["c, d", "2"]]
    assert markdown(headers, rows) == [
        "| what | of 100 % |",
        "| --- | ---: |",
        "| a_b | 1.5 |",
        "| c, d | 2 |",
    ]
    assert latex(headers, rows) == [
        r"\begin{tabular}{lr}",
        r"\hline",
        r"what & of 100 \% \\",
        r"\hline",
        r"a\_b & 1.5 \\",
        r"c, d & 2 \\",
        r"\hline",
        r"\end{tabular}",
    ]
    assert comma_separated(headers, rows) == ["what,of 100 %", "a_b,1.5", '"c, d",2']
