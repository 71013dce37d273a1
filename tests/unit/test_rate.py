"""A program's own rate: read from its output, kept with its runs, shown beside time and energy."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.rate import RateRule, RateTake, Work, read_rate
from advisor.core.recognise import ApplicationRule, recognise
from advisor.models.fit import fit_options
from advisor.policy.load import check_text
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob
from advisor.schedulers.results import rated
from advisor.store.reader import Reader
from advisor.store.writer import Writer

Run = Callable[..., Any]
OUTPUT = b"start\nrate: 2.0 GF/s\nrate: 3.0 GF/s rate: 4.0 GF/s\nend\n"


@pytest.mark.parametrize(("take", "value"), [("last", 4), ("first", 2), ("mean", 3), ("sum", 9)])
def test_which_match_counts(take: RateTake, value: float) -> None:
    assert read_rate(RateRule(r"rate: (\S+)", take), io.BytesIO(OUTPUT)) == (value, "")


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("1.5e9", 1.5e9),
        ("1.5D+09", 1.5e9),
        ("12,345.6", 12345.6),
        (".5", 0.5),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("fast", None),
        ("1_0", None),
        ("1,5", None),
    ],
)
def test_numbers_as_programs_print_them(printed: str, value: float | None) -> None:
    found, why = read_rate(RateRule(r"is (\S+)"), io.BytesIO(f"\nit is {printed}\n".encode()))
    assert found == value
    assert not why if value else why == f"line 2 of its output: '{printed}' is not a rate above 0"


def test_a_run_without_its_match_names_its_last_line() -> None:
    _, why = read_rate(RateRule("speed (.)"), io.BytesIO(OUTPUT))
    assert why == "no line of its output matches the rate 'speed (.)' (the last is line 4: 'end')"
    assert "(none)" in read_rate(RateRule("(.)"), io.BytesIO(b""))[1]
    long = b"x" * 10**6 + b"\nrate: 7\n"
    assert read_rate(RateRule(r"x (.*)|rate: (?P<rate>\d)"), io.BytesIO(long)) == (7, "")


@pytest.mark.parametrize(
    ("pattern", "why"), [("rate", "has no group"), ("(rate", "is not a regular expression")]
)
def test_an_expression_that_cannot_give_a_number_is_refused(
    pattern: str, why: str, advisor: Run
) -> None:
    for verb in (("run",), ("train", "mine")):
        done = advisor(*verb, "--rate", pattern, "--", "true")
        assert done.code == 2 and f"advisor: --rate: '{pattern}' {why}" in done.err
        assert done.err.count("\n") == 1
    head = "version: 1\napplications:\n  - name: a\n    match: {executable: a}\n"
    site = f"{head}    rate: '{pattern}'\n"
    for text in (site, site.replace(f"'{pattern}'", f"{{match: '{pattern}'}}")):
        compiled, (problem,) = check_text(text, "site.yaml", "site")
        assert compiled is None and problem.line == 5 and why in problem.message


def test_a_site_rule_says_how_a_rate_is_read() -> None:
    text = (
        "version: 1\napplications:\n"
        "  - {name: a, match: {executable: a}, rate: 'r (.*)'}\n"
        "  - {name: b, match: {executable: b}, rate: {match: 'r (.*)', take: sum, unit: GF/s}}\n"
        "  - {name: c, match: {executable: c}}\n"
    )
    compiled, problems = check_text(text, "site.yaml", "site")
    assert compiled and not problems
    rules = [ApplicationRule.from_dict(r) for r in compiled["applications"]]  # type: ignore[attr-defined]
    assert [r.rate for r in rules] == [RateRule("r (.*)"), RateRule("r (.*)", "sum", "GF/s"), None]
    found = recognise(None, command=["./b"], rules=rules)
    assert found.rule and found.rule.rate and RateRule.from_dict(found.rule.rate.to_dict())


def test_a_sweep_run_without_a_rate_has_failed(tmp_path: Path) -> None:
    configuration = Configuration("t", 1, 1, 2, 0)
    job = SweepJob(
        "s",
        "design",
        tmp_path,
        tmp_path,
        NodeType("t"),
        (PlannedRun(0, "baseline", configuration),),
        rate=RateRule(r"rate: (\S+)"),
    )
    result = RunResult(0, 1, True, 12.0)
    assert "cannot be read: No such file" in rated(job, result).detail
    job.output(0, 1).parent.mkdir()
    job.output(0, 1).write_bytes(OUTPUT)
    assert rated(job, result).rate == 4.0
    job.output(0, 1).write_text("done\n")
    failed = rated(job, result)
    assert not failed.ok and failed.final and job.given_up(job.runs[0], [failed])
    assert "line 1: 'done'" in failed.detail and str(job.output(0, 1)) in failed.detail


def test_run_passes_output_on_and_stores_rates(advisor: Run, store_path: Path) -> None:
    script = "echo rate: 5.0; echo low >&2; printf 'rate: 6.5'"
    done = advisor(
        "run",
        "--record",
        "--application",
        "app",
        "--workload",
        "w",
        "--threads",
        1,
        "--meter",
        "none",
        "--rate",
        r"rate: (\S+)",
        "--rate-unit",
        "GF/s",
        "--json",
        "--",
        "sh",
        "-c",
        script,
    )
    assert done.code == 0, done.err
    assert (done.json()["rates"], done.json()["rate_unit"]) == ([6.5], "GF/s")
    with Reader(store_path) as reader:
        (stored,) = reader.observations("app", "w")
    assert stored.observation.fom == 6.5 and stored.observation.extra["rate_unit"] == "GF/s"
    failed = advisor("run", "--record", "--rate", "speed (.)", "--", "sh", "-c", script)
    assert failed.code == 1
    assert "matches the rate 'speed (.)' (the last is line" in failed.err
    assert "nothing is recorded" in failed.err


IDLE_W = 40.037
"""No round number: energies that are all multiples of one look like those of a coarse meter."""


def runs(unit: str = "GF/s") -> list[Observation]:
    """Programs that run as long as they are told: the rate alone tells configurations apart."""
    return [
        Observation(
            Configuration("t", 1, 1, c, f),
            60.0,
            60.0 * (IDLE_W + 2 * c * f / 1e6),
            10.0 * c * f / 1e6,
            contributor="ann",
            extra={"rate_unit": unit},
        )
        for c in (2, 4, 8, 16)
        for f in (1_200_000, 1_800_000, 2_400_000)
    ]


@pytest.fixture(scope="module")
def fitted() -> Any:
    return fit_options(runs(), model="polynomial")


def test_models_of_rated_runs_compare_equal_work(fitted: Any) -> None:
    work = Work.of_stats(fitted.stats)
    assert work is not None and work.unit == "GF/s" and work.per_joule == "GF/J"
    option = next(o for o in fitted.options if o.configuration.threads_per_node == 16)
    f = option.configuration.freq_khz / 1e6
    assert work.amount / option.time_s == pytest.approx(160 * f, rel=1e-6)
    assert work.amount / option.energy_j == pytest.approx(160 * f / (IDLE_W + 32 * f), rel=1e-6)
    rate, low, high = work.done(option.time_s, option.time_lo_s, option.time_hi_s)
    assert low < rate < high


def test_options_show_and_draw_rates(advisor: Run, store_path: Path, fitted: Any) -> None:
    with Writer(store_path) as writer:
        writer.add_observations("app", "w", runs())
        for application, stats in (
            ("app", fitted.stats),
            ("plain", {**fitted.stats, "rate": None}),
        ):
            writer.save_model(
                application,
                "w",
                "t",
                scope="all",
                owner="",
                name=fitted.model,
                energy_quality="measured",
                n_train=fitted.n_train,
                stats=stats,
                options=fitted.options,
            )
    done = advisor("options", "app", "--rate", "--sort", "rate-per-joule")
    assert done.code == 0, done.err
    assert "rate (GF/s)  rate per joule (GF/J)" in done.out and "rate against the job" in done.out
    data = advisor("options", "app", "--json", "--view", "surface").json()
    assert data["models"][0]["rate_unit"] == "GF/s"
    assert max(o["rate"] for o in data["options"]) == pytest.approx(384, rel=1e-6)
    assert "rate per joule (GF/J)" in advisor("options", "app", "--rate", "--view", "lines").out
    refused = advisor("options", "plain", "--rate")
    assert refused.code == 3 and "the program's own rate is not known" in refused.err


def test_evaluate_judges_rates_beside_time_and_energy(advisor: Run, tmp_path: Path) -> None:
    grid = tmp_path / "grid.csv"
    rows = ["nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j,fom"]
    for o in runs():
        c = o.configuration
        rows.append(f"1,1,{c.threads_per_node},{c.freq_khz},{o.time_s},{o.energy_j},{o.fom}")
    grid.write_text("\n".join(rows) + "\n")
    argv = ("evaluate", grid, "--model", "polynomial", "--samples", 8)
    scores = advisor(*argv, "--json").json()["responses"]
    assert list(scores) == ["energy", "time", "rate_per_joule", "rate"]
    assert scores["rate"]["n_train"] == scores["time"]["n_train"]
    text = advisor(*argv).out
    assert "rate per joule" in text and "p_max" in text
