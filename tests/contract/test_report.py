"""``advisor report``: totals, savings with intervals, and notes that name the line to change."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import bars
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.option import Option
from advisor.loop.execution import NO_STEP, NOT_METERED, SHARED
from advisor.store.records import Outcome
from advisor.store.writer import Writer

Run = Callable[..., Any]

NOW = datetime.now(UTC).replace(microsecond=0)
BASE = Configuration("bdw", 1, 1, 28, 2_200_000)
TO = Configuration("bdw", 1, 1, 28, 1_900_000)
COUNT = itertools.count(1)


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        yield writer


def outcome(
    *reasons: str,
    changed: bool = False,
    time_s: float = 100.0,
    energy_j: float | None = 10_000.0,
    user: str = "ann",
    application: str = "stencil",
    workload: str = "n64",
    verdict: str = "left-alone",
    age: timedelta = timedelta(hours=2),
    **record: object,
) -> Outcome:
    number = next(COUNT)
    at = (NOW - age).isoformat().replace("+00:00", "Z")
    details: dict[str, Any] = {
        "application": application,
        "workload": workload,
        "partition": "batch",
        "trust": "verified",
        "changed": changed,
        "holdout": "holdout" in reasons,
        "reasons": list(reasons),
        "baseline": {**BASE.to_dict(), "time_s": 100.0, "energy_j": 10_000.0},
        "elapsed_s": time_s,
        "chosen": TO.to_dict() if changed else None,
        "promised": {
            "time_s": [102.0, 100.0, 104.0],
            "energy_j": [9_000.0, 8_800.0, 9_200.0],
            "energy_quality": "measured",
        },
        "mismatch": "",
        "ran": {"whole_nodes": True, "energy_note": ""},
        **record,
    }
    return Outcome(
        str(number),
        "slurm",
        "",
        at,
        f"{number:016x}",
        user,
        "proj",
        "COMPLETED",
        1,
        "n1",
        time_s,
        energy_j,
        "missing" if energy_j is None else "measured",
        None,
        None,
        verdict,
        details,
        at,
    )


def advised(time_s: float = 102.0, energy_j: float | None = 9_000.0, **changes: Any) -> Outcome:
    verdict = changes.pop("verdict", "as-promised")
    return outcome(
        "chosen", changed=True, time_s=time_s, energy_j=energy_j, verdict=verdict, **changes
    )


def fill(store: Writer, *outcomes: Outcome) -> None:
    with store.batch():
        for o in outcomes:
            store.save_outcome(o)


@pytest.mark.parametrize(
    ("scheduler", "cause", "advice", "never"),
    [
        ("slurm", NO_STEP, "with srun", "-l place"),
        ("slurm", SHARED, "PartitionName=batch in slurm.conf", "-l place"),
        ("slurm", NOT_METERED, "AcctGatherEnergyType=", "advisor_exec"),
        ("pbs", SHARED, "-l place=excl", "slurm.conf"),
        ("pbs", NOT_METERED, "advisor_exec", "slurm.conf"),
    ],
)
def test_jobs_without_energy_get_their_own_schedulers_advice(
    advisor: Run, store: Writer, scheduler: str, cause: str, advice: str, never: str
) -> None:
    ran = {"whole_nodes": True, "energy_note": cause}
    jobs = [advised(energy_j=None, ran=ran) for _ in range(3)]
    fill(store, *(replace(job, scheduler=scheduler) for job in jobs))
    [note] = [n for n in advisor("report", "--json").json()["notes"] if "no energy" in n]
    assert note.startswith("no energy for 3 completed jobs in partition batch: ")
    assert advice in note and never not in note


def many(store: Writer, count: int, left: int) -> None:
    """Jobs that save 8 % and take 2 % longer, with a run-to-run noise of 3 %."""
    rng = random.Random(5)
    fill(
        store,
        *(advised(102 * rng.gauss(1, 0.01), 9_200 * rng.gauss(1, 0.03)) for _ in range(count)),
        *(
            outcome("holdout", time_s=100 * rng.gauss(1, 0.01), energy_j=1e4 * rng.gauss(1, 0.03))
            for _ in range(left)
        ),
    )


def test_promised_and_measured_saving_with_their_interval(
    advisor: Run, store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(store, 60, 12)
    data = advisor("report", "--json").json()
    assert data["schema"] == "advisor/report/1"
    assert (data["jobs"], data["advised"], data["holdout"]) == (72, 60, 12)
    assert data["promised"]["energy"] == pytest.approx(-0.10)
    energy = data["measured"]["energy"]
    assert energy["basis"] == "holdout" and energy["left_alone"] == 12
    assert energy["lo"] < -0.08 < energy["hi"] < 0
    assert data["measured"]["time"]["lo"] < 0.02 < data["measured"]["time"]["hi"]
    saved = data["measured"]["saved_kwh"]
    assert saved["lo"] < saved["value"] < saved["hi"]
    assert saved["value"] == pytest.approx(60 * 800 / 3.6e6, rel=0.3)
    hours = data["measured"]["worth"]["node_hours"]
    assert hours == pytest.approx(-60 * 2 / 3600, rel=0.5)
    out = advisor("report").out
    for part in ("72 jobs seen", "60 jobs against 12 unchanged at random", "−10.0 %"):
        assert part in out, part
    assert "█" not in out  # nor in any other pipe
    monkeypatch.setattr(bars, "coloured", lambda: True)
    assert "█" in advisor("report").out


def test_few_jobs_give_no_interval(advisor: Run, store: Writer) -> None:
    many(store, 20, 3)
    assert "too few jobs for an interval (n=3)" in advisor("report").out
    assert advisor("report", "--json").json()["measured"]["energy"]["lo"] is None


def test_without_holdout_it_is_said_to_be_against_a_prediction(advisor: Run, store: Writer) -> None:
    many(store, 10, 0)
    result = advisor("report")
    assert "against the prediction for the job as written" in result.out
    assert "holdout: 2% at holdout: in policy.yaml" in result.out
    data = advisor("report", "--json").json()
    assert data["measured"]["energy"]["basis"] == "prediction"
    assert data["workloads"][0]["energy"]["basis"] == "prediction"


def test_calibration_counts_what_lay_inside(advisor: Run, store: Writer) -> None:
    fill(store, *(advised() for _ in range(8)), *(advised(130.0, None) for _ in range(7)))
    data = advisor("report", "--json").json()
    assert (data["calibration"]["time"]["inside"], data["calibration"]["time"]["total"]) == (8, 15)
    assert (data["calibration"]["energy"]["inside"], data["calibration"]["energy"]["total"]) == (
        8,
        8,
    )
    assert any("time intervals are too narrow: 8 of 15" in note for note in data["notes"])


def test_what_cannot_be_compared_is_left_out(advisor: Run, store: Writer) -> None:
    many(store, 10, 5)
    before = advisor("report", "--json").json()["measured"]["energy"]
    fill(
        store,
        advised(500.0, 90_000.0, trust="unverified"),
        advised(500.0, 90_000.0, mismatch="it ran on 2 nodes, not 1"),
        advised(500.0, 90_000.0, reasons=["pinned"]),
        advised(500.0, 90_000.0, ran={"whole_nodes": False}),
    )
    data = advisor("report", "--json").json()
    assert data["measured"]["energy"] == before and data["unverified"] == 1
    assert any("left out: 1 job with the stamp of another job" in note for note in data["notes"])


def test_notes_name_the_line_to_change(advisor: Run, store: Writer) -> None:
    text = "version: 1\ngoal: balanced\nmode: advise   # for now\nholdout: 0%\n"
    store.apply_config("policy", path="/etc/advisor/policy.yaml", text=text, compiled={}, by="me")
    text = "version: 1\n\napplications:\n  - {name: wrf}\n"
    store.apply_config("site", path="/etc/advisor/site.yaml", text=text, compiled={}, by="me")
    fill(
        store,
        *(outcome("unrecognised", application="") for _ in range(5)),
        *(outcome("no-model", "training-ask", application="gromacs") for _ in range(3)),
        *(outcome("chosen", "mode-advise", chosen=TO.to_dict()) for _ in range(2)),
    )
    data = advisor("report", "--json").json()
    assert data["left_alone"] == {"unrecognised": 5, "no-model": 3, "mode-advise": 2}
    notes = "\n".join(data["notes"])
    assert (
        "50 % of jobs unrecognised" in notes and "/etc/advisor/site.yaml:3 (applications:)" in notes
    )
    assert "gromacs (3 jobs)" in notes and "training: in /etc/advisor/policy.yaml" in notes
    assert "/etc/advisor/policy.yaml:3 (mode: advise   # for now)" in notes
    assert "2 jobs only advised or observed" in notes
    # what is set already is not advised
    many(store, 10, 0)
    place = "/etc/advisor/policy.yaml"
    for holdout, advised in ((0.0, True), (0.02, False)):
        base = {"mode": "apply", "holdout": holdout}
        store.apply_config("policy", path=place, text=text, compiled={"base": base}, by="me")
        out = advisor("report").out
        assert "set mode" not in out and ("set holdout: 2% at" in out) is advised


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("no step was started with srun", "start the program with srun"),
        ("other jobs may have run on its nodes", "OverSubscribe=EXCLUSIVE at PartitionName=batch"),
        ("the nodes' energy is not known", "AcctGatherEnergyType="),
    ],
)
def test_missing_energy_names_its_cause(advisor: Run, store: Writer, why: str, said: str) -> None:
    fill(store, advised(energy_j=None, ran={"energy_note": why, "whole_nodes": True}))
    assert said in advisor("report").out


def test_suspended_models_are_named(advisor: Run, store: Writer) -> None:
    model = store.save_model(
        "stencil",
        "n64",
        "bdw",
        scope="all",
        owner="",
        name="bspline",
        energy_quality="measured",
        n_train=12,
        stats={},
        options=[Option(BASE, 1.0, 0.9, 1.1, 1.0, 0.9, 1.1)],
    )
    store.set_model_state(model.id, "suspended", "worse than promised: job 7 (time +40 %)")
    fill(store, advised())
    out = advisor("report").out
    assert "job 7 (time +40 %)" in out and "advisor fit stencil --workload n64" in out
    assert advisor("report", "--application", "other", "--json").json()["suspended"] == []


def test_filters(advisor: Run, store: Writer) -> None:
    fill(
        store,
        advised(user="bob"),
        advised(application="wrf"),
        advised(age=timedelta(days=20)),
        advised(age=timedelta(days=40)),
    )

    def jobs(*arguments: str) -> int:
        return int(advisor("report", "--json", *arguments).json()["jobs"])

    assert jobs() == 3
    assert jobs("--user", "bob") == 1 and jobs("--application", "stencil") == 2
    assert jobs("--since", "7d") == 2 and jobs("--since", "60d") == 4
    assert jobs("--since", (NOW - timedelta(days=30)).strftime("%Y-%m-%d")) == 3
    assert advisor("report", "--since", "soon").code == 2


def test_an_empty_store_and_none_at_all(advisor: Run, store_path: Path) -> None:
    result = advisor("report")
    assert result.code == 1 and result.err.count("\n") == 1
    Writer(store_path).close()
    result = advisor("report")
    assert result.code == 0 and "none that the advisor knows of" in result.out
    assert advisor("report", "--json").json()["jobs"] == 0


def test_a_stopped_collection_is_noticed(advisor: Run, store: Writer) -> None:
    old = NOW - timedelta(days=3)
    waiting = {"decision": "a" * 16, "created_at": old.isoformat(), "scheduler": "slurm"}
    store.save_decision(Decision.from_dict({**waiting, "user": "ann", "mode": "apply"}))
    assert "nothing was collected ever, and 1 decision waits" in advisor("report").out
    fill(store, outcome("unrecognised"))
    assert "nothing was collected" not in advisor("report").out


def test_a_user_without_jobs_may_ask_and_one_whom_nobody_knows_is_a_misspelt_name(
    advisor: Run, store: Writer
) -> None:
    fill(store, advised(), outcome("no-model", user="left", age=timedelta(days=90)))
    for user in ("daemon", "left"):  # of this host, and of the store alone
        result = advisor("report", "--user", user)
        assert result.code == 0 and "none that the advisor knows of" in result.out
        assert advisor("report", "--user", user, "--json").json()["jobs"] == 0
    result = advisor("report", "--user", "nope")
    assert (result.code, result.out) == (2, "")
    assert result.err == "advisor: --user nope: no such user\n"
    assert advisor("report", "--user", "ann").code == 0
