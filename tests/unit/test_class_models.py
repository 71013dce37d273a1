"""Models of applications never swept: made, renewed and retired with what they follow from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.observation import Scope
from advisor.core.option import Z90, Option
from advisor.core.reasons import BY_CLASS
from advisor.core.signature import Signature
from advisor.loop.outcomes import unmetered
from advisor.schedulers.slurm.translator import parse_request, read_arguments, read_directives
from advisor.service.decide import decide
from advisor.service.snapshot import StoreSource
from advisor.store.records import CLASS, StoredModel
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer

CORES, TOP = 16, 2_400_000
STEPS = (1_200_000, 1_600_000, 2_000_000, TOP)
THREADS = (4, 8, 12, 16)
NODE_TYPE = NodeType(
    "cpu", feature="cpu", partitions=("batch",), cores=CORES, freq_khz=STEPS, default_freq_khz=TOP,
    nodes=("n1", "n2"), default_partition="batch", memory_mb=64000,
)  # fmt: skip
OWN = Configuration("cpu", 1, 1, CORES, TOP)


def law(memory: float, threads: int, khz: int) -> tuple[float, float]:
    """Time and power of an application that waits for memory for a share ``memory`` of its time."""
    share, clock = threads / CORES, khz / TOP
    time = 100 * ((1 - memory) / (share * clock) + memory)
    return time, 100 + 200 * share * (1 - 0.6 * memory) * clock**2


def swept(memory: float) -> list[Option]:
    made = []
    for threads in THREADS:
        for khz in STEPS:
            t, power = law(memory, threads, khz)
            e, d = t * power, math.exp(Z90 * 0.01)
            where = Configuration("cpu", 1, 1, threads, khz)
            made.append(Option(where, t, t / d, t * d, e, e / d, e * d, confirmed=True))
    return made


def signature(memory: float, **more: object) -> Signature:
    time, power = law(memory, CORES, TOP)
    values = {"configuration": OWN, "source": "ear", "contributor": "ada", "scope": "all"} | more
    return Signature(gbs=200 * memory, power_w=power, time_s=time, **values)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Writer]:
    with Writer(tmp_path / "advisor.db") as writer:
        writer.save_node_types([NODE_TYPE], source="test")
        for i in range(8):
            sweep(writer, f"app{i}", 0.1 + 0.1 * i)
        yield writer


def sweep(
    writer: Writer, name: str, memory: float, scope: Scope = "all", owner: str = ""
) -> StoredModel:
    save_signatures(writer, name, "default", [signature(memory, job_id=f"s{name}")])
    return writer.save_model(
        name, "default", "cpu", scope=scope, owner=owner, name="physical",
        energy_quality="measured", n_train=12, stats={}, options=swept(memory),
    )  # fmt: skip


def of(writer: Writer, name: str) -> list[StoredModel]:
    return writer.find_models(name, "default")


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

SCRIPT = "#!/bin/bash\nsrun ./new\n"


def policy(writer: Writer, **cold: Any) -> None:
    base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, "max_slowdown": 0.10}
    base["cold_start"] = cold
    writer.apply_config(
        "policy", path="p.yaml", text=repr(cold), compiled={"base": base, "rules": []}, by="test"
    )


def ask(
    writer: Writer, script: str = SCRIPT, env: dict[str, str] | None = None, user: str = "ada"
) -> Decision:
    options = read_directives(script) | read_arguments(["-N1", "--exclusive", "--mem=2G"])
    request = parse_request(
        {"type": "sbatch", "options": options, "script": script, "script_path": "/home/job.sh",
         "argv": ["/home/job.sh"], "env": env or {}},
        user=user, uid=1000, choices={},
    )  # fmt: skip
    source = StoreSource(Path(writer.path))
    source.refresh()
    found = decide(request, source.snapshot, chance=lambda: 1.0)
    source.close()
    return found


@pytest.fixture
def known(store: Writer) -> Writer:
    policy(store, mode="apply", classes=["unknown"])
    save_signatures(store, "new", "default", [signature(0.75)])
    return store


def test_a_job_is_advised_by_those_like_it(known: Writer) -> None:
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
    assert said.startswith("never measured: estimated from 8 applications (")
    assert said.endswith("by one job's counters")
    again = Decision.from_dict(decision.to_dict())
    assert again.chosen is not None
    assert again.chosen.estimated
    assert not unmetered(again)


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
        assert "no-model" in wish.codes
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
