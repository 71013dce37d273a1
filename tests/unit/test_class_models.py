"""Models of applications never swept: made, renewed and retired with what they follow from."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.reasons import BY_CLASS
from advisor.core.signature import Signature
from advisor.derive.worker import derive
from advisor.loop.health_site import check_classes
from advisor.loop.outcomes import unmetered
from advisor.models.design import uniform
from advisor.schedulers.local.scheduler import Local
from advisor.store.reader import Reader
from advisor.store.records import CLASS
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer
from advisor.training.planning import Budget, SweepWish, plan_sweep
from advisor.training.site_context import load_known
from advisor.views import tradeoff
from advisor.views.preview import Person
from advisor.views.training import plan_lines
from tests.unit.never_swept import (
    CORES,
    NODE_TYPE,
    OWN,
    SCRIPT,
    STEPS,
    THREADS,
    TOP,
    ask,
    law,
    of,
    policy,
    signature,
    sweep,
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("swept") / "advisor.db"
    with Writer(path) as writer:
        writer.save_node_types([NODE_TYPE], source="test")
        for i in range(8):
            sweep(writer, f"app{i}", 0.1 + 0.1 * i)
    return path


@pytest.fixture
def store(swept: Path, tmp_path: Path) -> Iterator[Writer]:
    shutil.copy(swept, tmp_path / "advisor.db")
    with Writer(tmp_path / "advisor.db") as writer:
        yield writer


def test_a_signature_makes_a_model(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.65)])
    (model,) = of(store, "new")
    assert (model.name, model.scope, model.energy_quality) == (CLASS, "all", "measured")
    assert model.cold_start["applications"] == 8
    assert model.cold_start["signature"]["gbs"] == pytest.approx(130)
    options = model.options()
    assert not any(o.confirmed for o in options)
    own = next(o for o in options if o.configuration == OWN)
    assert own.measured
    assert own.time_s == pytest.approx(law(0.65, CORES, TOP)[0])
    for o in options:
        c = o.configuration
        if c.threads_per_node >= 8 and c != OWN:
            assert o.estimated
            time, power = law(0.65, c.threads_per_node, c.freq_khz)
            assert o.time_lo_s <= time <= o.time_hi_s
            assert o.energy_lo_j <= time * power <= o.energy_hi_j
            assert o.time_s == pytest.approx(time, rel=0.1)


def test_runs_at_the_own_point_are_averaged(store: Writer) -> None:
    some = [signature(0.5, job_id=str(i)) for i in range(3)]
    save_signatures(store, "new", "default", some)
    other = signature(0.5, job_id="9", configuration=Configuration("cpu", 1, 1, 8, TOP))
    save_signatures(store, "new", "default", [other])
    (model,) = of(store, "new")
    assert model.cold_start["own"]["threads_per_node"] == 8
    assert max(o.configuration.threads_per_node for o in model.options()) == 8


def test_a_job_that_was_changed_is_no_point_of_its_own(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.5, job_id="1")])
    for job, changed in (("2", False), ("3", True)):
        decided = replace(ask(store), id=f"decision{job}")
        assert not decided.changed
        if changed:
            decided = replace(decided, rewrite={"cpu-freq": "1200000"})
        store.save_decision(decided, job_id=job)
    fewer = Configuration("cpu", 1, 1, 8, TOP)
    save_signatures(store, "new", "default", [signature(0.5, job_id="3.0", configuration=fewer)])
    (model,) = of(store, "new")
    assert model.cold_start["own"]["threads_per_node"] == CORES
    save_signatures(store, "new", "default", [signature(0.5, job_id="2.0", configuration=fewer)])
    (model,) = of(store, "new")
    assert model.cold_start["own"]["threads_per_node"] == 8


def test_counters_of_an_earlier_run_stay(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.5, job_id="1", tpi=0.1, release="6")])
    plain = replace(signature(0.5, job_id="2", source="accounting"), gbs=None, cpu_util=99.0)
    save_signatures(store, "new", "default", [plain])
    (model,) = of(store, "new")
    assert set(model.cold_start["signature"]) == {"cpu_util", "gbs", "power_w", "time_s", "tpi"}


def test_ranks_are_kept(store: Writer) -> None:
    place = Configuration("cpu", 2, 16, 16, TOP)
    save_signatures(store, "new", "default", [signature(0.5, configuration=place)])
    (model,) = of(store, "new")
    found = {o.configuration for o in model.options()}
    assert {(c.nodes, c.ranks_per_node, c.threads_per_node) for c in found} == {(2, 16, 16)}
    assert {c.freq_khz for c in found} == set(STEPS)
    own = next(o for o in model.options() if o.measured)
    assert own.energy_j == pytest.approx(2 * math.prod(law(0.5, 16, TOP)))


def test_a_sweep_takes_its_place(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.5)])
    sweep(store, "new", 0.5)
    assert [m.name for m in of(store, "new")] == ["physical"]


def test_a_sweep_starts_where_those_like_it_do_best(
    store: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law at 0.75: 1.6 GHz takes 12.5 % longer and 20 % less energy, 2 GHz 5 and 12 %."""
    save_signatures(store, "new", "default", [signature(0.75)])
    assert derive(store)
    policy(store, mode="advise")
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH -N1 --exclusive -c16 -t 600\nsrun ./new\n")
    monkeypatch.setattr(Local, "frequency_kept", lambda *a: "")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    path = Path(store.path)
    wish = SweepWish(
        subject=str(script),
        command=(),
        application=None,
        workload="default",
        scheduler="local",
        node_type="cpu",
        nodes=None,
        samples=6,
        budget=Budget(),
        design="uniform",
        threads=THREADS,
        freqs_khz=(),
        repeat_baseline=0,
        estimate_s=None,
        limit_s=None,
        model="auto",
        meter="none",
        options=(),
        experiment=None,
    )
    plan = plan_sweep(wish, load_known(path), tmp_path, path)
    best = Configuration("cpu", 1, 1, CORES, 2_000_000)
    runs = [r.configuration for r in plan.state.stages["design"].runs]
    assert plan.by_class[0] == best
    assert len(runs) == len(set(runs)) == 6
    assert runs[0] == OWN
    assert set(plan.by_class) < set(runs)
    assert any("2 GHz" in note and "8 applications" in note for note in plan.notes)
    assert "from the job it knows" in plan_lines(plan)[2]
    adaptive = plan_sweep(
        replace(wish, design="adaptive", samples=None, budget=Budget(runs=8)),
        load_known(path),
        tmp_path,
        path,
    )
    settings = adaptive.state.settings
    assert (settings.design, settings.most_runs, settings.confirm) == ("adaptive", 8, 0)
    runs = [r.configuration for r in adaptive.state.stages["design"].runs]
    assert (len(runs), runs[0]) == (3, OWN) and set(adaptive.by_class) == {best} < set(runs)
    other = replace(wish, workload="other")
    assert not plan_sweep(other, load_known(path), tmp_path, path).by_class
    assert best not in uniform(plan.state.space, 6, OWN)


def test_another_sweep_renews_it(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.5)])
    before = of(store, "new")[0]
    sweep(store, "late", 0.45)
    after = of(store, "new")[0]
    assert after.version == before.version + 1
    assert after.cold_start["applications"] == 9


def test_what_changes_nothing_renews_nothing(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.5)])
    before = of(store, "new")[0]
    with store.batch():
        store.touch("app1", "default")
        store.touch("new", "default")
    assert of(store, "new")[0] == before


def test_a_users_signature_advises_that_user_only(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.5, scope="own", contributor="eve")])
    (model,) = of(store, "new")
    assert (model.scope, model.owner) == ("own", "eve")


def test_a_users_sweeps_teach_that_user_only(store: Writer) -> None:
    sweep(store, "private", 0.5, "own", "eve")
    save_signatures(store, "new", "default", [signature(0.5)])
    save_signatures(store, "new", "default", [signature(0.5, scope="own", contributor="eve")])
    taught = {m.owner: m.cold_start["applications"] for m in of(store, "new")}
    assert taught == {"": 8, "eve": 9}


def test_without_power_or_time_there_is_none(store: Writer) -> None:
    save_signatures(store, "new", "default", [Signature(gbs=9.0, configuration=OWN, time_s=5.0)])
    save_signatures(store, "odd", "default", [Signature(gbs=9.0, configuration=OWN, power_w=5.0)])
    assert of(store, "new") == of(store, "odd") == []


def test_with_two_swept_applications_there_is_none(tmp_path: Path) -> None:
    with Writer(tmp_path / "advisor.db") as writer:
        writer.save_node_types([NODE_TYPE], source="test")
        for i in range(2):
            sweep(writer, f"app{i}", 0.3 * i)
        save_signatures(writer, "new", "default", [signature(0.5)])
        assert of(writer, "new") == []


def test_it_goes_with_what_it_followed_from(store: Writer) -> None:
    save_signatures(store, "new", "default", [signature(0.5)])
    for i in range(6):
        store.set_model_state(of(store, f"app{i}")[0].id, "suspended")
    assert of(store, "new") == []


# -- decisions -------------------------------------------------------------------------------------


@pytest.fixture
def known(store: Writer) -> Writer:
    policy(store, mode="apply", classes=["unknown"], trials=0)
    save_signatures(store, "new", "default", [signature(0.75)])
    assert derive(store)
    return store


UNSEEN = {"mode": "apply", "classes": ["unknown"], "trials": 0}


def test_a_job_is_advised_by_those_like_it(known: Writer) -> None:
    policy(known, 0.20, 0.85, **UNSEEN)
    decision = ask(known)
    assert decision.chosen is not None
    assert decision.chosen.estimated
    assert not decision.chosen.confirmed
    assert decision.rewrite or decision.environment
    assert BY_CLASS in decision.codes
    assert "training-ask" in decision.codes
    assert decision.energy_quality == "estimated"
    assert decision.chosen.time.hi <= 0.20
    cold = decision.to_dict()["cold_start"]
    assert isinstance(cold, dict)
    assert (cold["applications"], cold["class"], cold["trial"]) == (8, "unknown", None)
    assert cold["intervals"]["energy"] == [decision.chosen.energy.lo, decision.chosen.energy.hi]
    said = next(r.text for r in decision.reasons if r.code == BY_CLASS)
    assert said.startswith("application never measured: estimated from 8 applications (")
    assert said.endswith("by one job's counters")
    again = Decision.from_dict(decision.to_dict())
    assert again.chosen is not None
    assert again.chosen.estimated
    assert not unmetered(again)


@pytest.mark.parametrize(
    ("slowdown", "confidence", "code"),
    [
        (0.20, 0.90, "class-unseen"),  # at 90 % nine applications are needed, eight are known
        (0.10, 0.85, "class-doubted"),  # most of the others would break the bound there
    ],
)
def test_unseen_nothing_is_used_on_weak_grounds(
    known: Writer, slowdown: float, confidence: float, code: str
) -> None:
    policy(known, slowdown, confidence, **UNSEEN)
    decision = ask(known)
    assert code in decision.codes
    assert not (decision.rewrite or decision.environment)
    policy(known, slowdown, confidence, **UNSEEN | {"trials": 2})
    assert "class-trial" in ask(known).codes
    policy(known, slowdown, confidence, mode="advise")
    assert ask(known).chosen is not None


def test_its_options_are_shown_as_estimates_with_their_intervals(known: Writer) -> None:
    policy(known, mode="advise")
    with Reader(Path(known.path)) as reader:
        found = tradeoff.load(reader, "new", "default", Person("ada"))
    board = found.by_type["cpu"]
    number = board.find(Configuration("cpu", 1, 1, CORES, 2_000_000))
    assert number is not None
    _, figures, words = tradeoff.detail(board, number)
    assert "time about" in figures
    assert "estimated from applications like it: 90 % energy −1" in words
    assert board.guessed(board.options[number]) and not board.guessed(board.options[board.baseline])
    assert "not sent there" not in board.verdict.applied


@pytest.mark.parametrize(
    ("cold", "code"),
    [
        ({}, "cold-start-advise"),
        ({"mode": "advise", "classes": ["unknown"]}, "cold-start-advise"),
        ({"mode": "apply"}, "class-not-listed"),
        ({"mode": "apply", "classes": ["unknown"], "min_applications": 9}, "class-few"),
        ({"mode": "off"}, "no-model"),
    ],
)
def test_the_policy_says_whose_jobs_change(known: Writer, cold: dict[str, Any], code: str) -> None:
    policy(known, **cold)
    decision = ask(known)
    assert code in decision.codes
    assert not decision.rewrite
    assert not decision.environment
    assert (decision.chosen is None) == (code == "no-model")


def test_a_user_may_refuse_and_not_ask_for_more(known: Writer) -> None:
    for wish in (
        ask(known, env={"ADVISOR_COLD_START": "off"}),
        ask(known, SCRIPT.replace("\n", "\n#ADVISOR cold_start=off\n", 1)),
    ):
        assert {"class-off", "no-model"} <= set(wish.codes)
        assert not wish.rewrite
    policy(known, mode="advise", classes=["unknown"])
    more = ask(known, env={"ADVISOR_COLD_START": "apply"})
    assert "setting-refused" in more.codes
    assert not more.rewrite


def test_another_users_signature_advises_nobody_else(store: Writer) -> None:
    policy(store, mode="apply", classes=["unknown"])
    save_signatures(store, "new", "default", [signature(0.75, scope="own", contributor="eve")])
    assert "no-model" in ask(store, user="ada").codes
    assert ask(store, user="eve").chosen is not None


def test_what_was_swept_goes_first(known: Writer) -> None:
    sweep(known, "new", 0.75)
    decision = ask(known)
    assert decision.chosen is not None
    assert decision.chosen.confirmed
    assert BY_CLASS not in decision.codes
    save_signatures(known, "new", "big", [signature(0.75)])
    bigger = ask(known, SCRIPT.replace("\n", "\n#ADVISOR workload=big\n", 1))
    assert bigger.workload == "default"
    assert BY_CLASS not in bigger.codes


def test_a_suspended_one_changes_nothing(known: Writer) -> None:
    known.set_model_state(of(known, "new")[0].id, "suspended", "worse")
    assert "suspended" in ask(known).codes
    sweep(known, "late", 0.2)
    assert of(known, "new")[0].state == "suspended"


def test_what_all_may_use_informs_a_users_own_model_too(store: Writer) -> None:
    plain = replace(signature(0.5, scope="own", contributor="eve", source="accounting"), gbs=None)
    save_signatures(store, "new", "default", [plain, signature(0.5)])
    found = {m.owner: set(m.cold_start["signature"]) for m in of(store, "new")}
    assert found == {"": {"gbs", "power_w", "time_s"}, "eve": {"gbs", "power_w", "time_s"}}


def test_broken_class_files_leave_the_last_good_class(
    store: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ridge 900 / 190 = 4.7: a job of 50 GFLOP/s and 150 GB/s is beyond 75 % of the peak."""
    classes = tmp_path / "classes"
    classes.mkdir()
    file = classes / "roofline.cpu.data"
    file.write_text("190 900\n")
    monkeypatch.setenv("ADVISOR_CONFIG_DIR", str(tmp_path))
    save_signatures(store, "new", "default", [signature(0.75, gflops=50.0, job_id="1")])
    found = of(store, "new")[0].cold_start
    assert (found["class"], found["strategy"]) == ("memory-bound", "roofline")
    for text in ("", "190 nan\n", "190\n", "900 190\n"):
        file.write_text(text)
        save_signatures(store, "new", "default", [signature(0.75, gflops=60.0, job_id=text or "2")])
        (model,) = of(store, "new")
        assert model.cold_start["signature"]["gflops"] > found["signature"]["gflops"]
        assert (model.cold_start["class"], model.cold_start["strategy"]) == (
            "memory-bound",
            "roofline",
        )
        assert "event=class-files-broken" in caplog.text
        assert str(file) in caplog.text
        caplog.clear()
        (check,) = check_classes(store, store.inventory())
        assert check.state == "warn" and str(file) in check.text
    file.write_text("190 900\n")
    assert not list(check_classes(store, store.inventory()))
    save_signatures(store, "new", "default", [signature(0.1, gflops=500.0, job_id="9")])
    assert of(store, "new")[0].cold_start["strategy"] == "roofline"
