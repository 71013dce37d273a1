"""The store's records go in and come out the same, and its rules hold."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor import paths
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.policy import PolicySet
from advisor.errors import InputError, StoreError
from advisor.store.connection import MIGRATIONS
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel, TrainingRequest, TrainingRun, Workload
from advisor.store.schema import load_migrations, schema_sql
from advisor.store.writer import Writer

C = Configuration("hsw", 2, 4, 24, 2_400_000)


def options(*times: float, node_type: str = "hsw") -> list[Option]:
    return [
        Option(
            Configuration(node_type, 1, 1, n + 1, 0), t, t / 1.1, t * 1.1, math.nan, math.nan, 9.0
        )
        for n, t in enumerate(times)
    ]


def save(store: Writer, application: str = "stencil", **changes: object) -> StoredModel:
    terms: dict[str, object] = {
        "scope": "all",
        "owner": "",
        "name": "bspline",
        "energy_quality": "missing",
        "n_train": 12,
        "stats": {"time": {"r2": 0.99}},
        "options": options(1.0, 2.0),
        **changes,
    }
    return store.save_model(application, "default", "hsw", **terms)  # type: ignore[arg-type]


# -- schema --------------------------------------------------------------------------------------


def test_schema_text_is_what_the_migrations_make() -> None:
    assert paths.share("db/schema.sql").read_text(encoding="utf-8") == schema_sql()


def test_the_program_knows_every_migration() -> None:
    assert tuple(m.name for m in load_migrations()._migrations) == MIGRATIONS


def test_runs_and_models_of_earlier_versions_are_marked_with_how_they_were_measured(
    store_path: Path,
) -> None:
    def seen(**more: str) -> Observation:
        return Observation(C, 1.0, scope="all", **more)  # type: ignore[arg-type]

    with Writer(store_path) as store:
        for name, runs in {
            "swept": [seen(source="sweep", job_id="7"), seen(source="import")],
            "here": [seen(source="confirm")],
            "imported": [seen(source="import")],
            "advised": [seen(source="job", job_id="8")],
        }.items():
            store.add_observations(name, "default", runs)
            save(store, name)
        save(store, "swept", scope="own", owner="ann")
        base = {"transfer": {"base": "hsw"}}
        store.save_model(
            "swept", "default", "skl", scope="all", owner="", name="transfer", n_train=0,
            energy_quality="missing", stats=base, options=options(1.0, node_type="skl"),
        )  # fmt: skip
        store.save_decision(decision("d1", rewrite={"cpus-per-task": "4"}))
    db = sqlite3.connect(store_path)
    db.execute("UPDATE observations SET extra = '{\"decision\": \"d1\"}' WHERE source = 'job'")
    db.execute("ALTER TABLE observations DROP COLUMN method")
    db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm0006_method'")
    db.commit()
    db.close()
    with Writer(store_path) as store:
        how = {
            name: [o.observation.method for o in store.observations(name)]
            for name in ("swept", "here", "imported", "advised")
        }
        assert how == {
            "swept": ["request", ""], "here": ["variables"], "imported": [""],
            "advised": ["request"],
        }  # fmt: skip
        models = {name: [m.method for m in store.find_models(name)] for name in how}
        assert models == {
            "swept": ["request", "request", "request"], "here": ["variables"], "imported": [""],
            "advised": ["request"],
        }  # fmt: skip


def test_a_store_has_the_printed_schema(store_path: Path) -> None:
    Writer(store_path).close()
    db = sqlite3.connect(store_path)
    statements = [r[0] for r in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    db.close()
    assert len(statements) > 10
    for statement in statements:
        assert f"\n{statement};\n" in schema_sql()


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys; import advisor.store.reader, advisor.store.journal, advisor.store.publish;"
        "heavy = {'numpy', 'pandas', 'sqlite_utils', 'yaml', 'pydantic'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_store_that_is_up_to_date_opens_without_sqlite_utils(store_path: Path) -> None:
    Writer(store_path).close()
    code = (
        "import sys; from advisor.store.writer import Writer; Writer(sys.argv[1]).close();"
        "sys.exit('sqlite_utils' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(store_path)]).returncode == 0


# -- observations --------------------------------------------------------------------------------

positive = st.floats(1e-6, 1e12, allow_nan=False)
name = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    ranks = draw(st.integers(1, 64))
    energy = draw(st.none() | positive)
    return Observation(
        Configuration(
            draw(name),
            draw(st.integers(1, 9999)),
            ranks,
            ranks * draw(st.integers(1, 8)),
            draw(st.integers(0, 5_000_000)),
        ),
        draw(positive),
        energy,
        draw(st.none() | positive),
        "missing" if energy is None else draw(st.sampled_from(["measured", "estimated"])),
        draw(st.text(max_size=10)),
        draw(st.sampled_from(["import", "sweep", "confirm", "job", "run"])),
        draw(name),
        draw(st.text(max_size=10)),
        draw(st.sampled_from(["own", "account", "all"])),
        draw(st.text("0123456789_", max_size=8)),
        draw(st.dictionaries(name, st.integers() | positive | st.text(max_size=8), max_size=3)),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(run=observations())
def test_observations_come_out_as_they_went_in(
    run: Observation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Writer(tmp_path_factory.getbasetemp() / "round" / "a.db") as store:
        [number] = store.add_observations("app", "default", [run])
        found = {o.id: o.observation for o in store.observations("app")}
    assert found[number] == run


@pytest.mark.parametrize(
    "changes",
    [
        {"time_s": 0.0},
        {"time_s": math.nan},
        {"time_s": math.inf},
        {"energy_j": -1.0},
        {"energy_j": 0.0},
        {"fom": math.nan},
        {"configuration": replace(C, threads_per_node=3)},
        {"configuration": replace(C, nodes=0)},
        {"configuration": replace(C, node_type="")},
    ],
)
def test_impossible_runs_are_refused_and_nothing_of_the_batch_stays(
    store_path: Path, changes: dict[str, object]
) -> None:
    good = Observation(C, 1.0)
    with Writer(store_path) as store:
        with pytest.raises(InputError):
            store.add_observations("app", "default", [good, replace(good, **changes)])  # type: ignore[arg-type]
        assert store.observations("app") == []
        assert store.workloads() == []


def test_a_run_without_energy_is_stored_as_missing(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations("app", "default", [Observation(C, 1.0, energy_quality="measured")])
        assert store.observations("app")[0].observation.energy_quality == "missing"


@pytest.mark.parametrize("bad", ["", "a\nb", "a\x1b[31m", " a", "a" * 201])
def test_names_that_cannot_be_printed_are_refused(store_path: Path, bad: str) -> None:
    with Writer(store_path) as store:
        with pytest.raises(InputError):
            store.add_observations(bad, "default", [Observation(C, 1.0)])
        with pytest.raises(InputError):
            store.add_observations("app", bad, [Observation(C, 1.0)])


def run_of(contributor: str, account: str, scope: str) -> Observation:
    return Observation(C, 1.0, contributor=contributor, account=account, scope=scope)  # type: ignore[arg-type]


def seen_by(store: Reader, user: str, account: str = "") -> set[str]:
    found = store.observations("app", user=user, account=account)
    return {o.observation.contributor for o in found}


def test_scope_says_whose_jobs_a_run_may_advise(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations(
            "app",
            "default",
            [
                run_of("ann", "climate", "own"),
                run_of("bob", "climate", "account"),
                run_of("cid", "", "account"),
                run_of("dan", "bio", "account"),
                run_of("eve", "", "all"),
            ],
        )
        assert len(store.observations("app")) == 5
        assert seen_by(store, "ann", "climate") == {"ann", "bob", "eve"}
        assert seen_by(store, "zoe", "climate") == {"bob", "eve"}
        assert seen_by(store, "zoe", "") == {"eve"}  # no account is nobody's account
        assert seen_by(store, "cid", "") == {"cid", "eve"}


def test_promote_only_widens(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations(
            "app", "default", [run_of("ann", "climate", "own"), run_of("bob", "", "own")]
        )
        store.add_observations("app", "big", [run_of("cid", "", "all")])
        store.add_observations("other", "default", [run_of("ann", "climate", "own")])
        assert store.promote("app", scope="account") == 1  # bob's run carries no account
        assert store.promote("app", "big", scope="account") == 0
        assert seen_by(store, "zoe", "climate") == {"ann", "cid"}
        assert store.promote("app", scope="all", contributor="bob") == 1
        assert seen_by(store, "zoe") == {"bob", "cid"}
        assert store.promote("app", scope="all") == 1
        assert store.observations("other", user="zoe", account="climate") == []


def test_filters_and_workloads(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations("b", "w2", [Observation(C, 1.0)])
        store.add_observations("b", "w1", [Observation(C, 2.0), Observation(C, 3.0)])
        store.add_observations("a", "w1", [Observation(replace(C, node_type="skl"), 4.0)])
        assert store.workloads() == [
            Workload(3, "a", "w1", 1), Workload(2, "b", "w1", 2), Workload(1, "b", "w2", 1),
        ]  # fmt: skip
        assert [w.name for w in store.workloads("b")] == ["w1", "w2"]
        assert [o.observation.time_s for o in store.observations("b")] == [1.0, 2.0, 3.0]
        assert [o.observation.time_s for o in store.observations("b", "w1")] == [2.0, 3.0]
        assert store.observations("a", "w1", "hsw") == []
        assert len(store.observations("a", "w1", "skl")) == 1


# -- models --------------------------------------------------------------------------------------


def test_a_new_model_replaces_the_one_of_the_same_key(store_path: Path) -> None:
    with Writer(store_path) as store:
        first = save(store)
        own = save(store, scope="own", owner="ann")
        second = save(store, options=options(3.0))
        assert (first.version, own.version, second.version) == (1, 1, 2)
        assert [m.id for m in store.models()] == [own.id, second.id]
        assert set(store.model_stamps()) == {own.id, second.id}
        [old] = store.models([first.id])
        assert old.state == "replaced"
        assert old.updated_at > first.updated_at
        assert second.options()[0].time_s == 3.0
        assert second.stats == {"time": {"r2": 0.99}}


def test_a_model_is_suspended_and_taken_back(store_path: Path) -> None:
    with Writer(store_path) as store:
        made = save(store)
        store.set_model_state(made.id, "suspended", "2 of 3 jobs were slower")
        [found] = store.find_models("stencil")
        assert (found.state, found.state_reason) == ("suspended", "2 of 3 jobs were slower")
        assert store.model_stamps()[made.id] == found.updated_at != made.updated_at
        store.set_model_state(made.id, "fitted")
        assert store.find_models("stencil", "default", "hsw")[0].state_reason == ""
        assert store.find_models("stencil", "other") == []
        with pytest.raises(StoreError, match="no model 99"):
            store.set_model_state(99, "suspended")


def test_more_models_than_one_batch(store_path: Path) -> None:
    with Writer(store_path) as store:
        made = [save(store, f"app{n:04}", options=options(float(n + 1))).id for n in range(505)]
        assert [m.id for m in store.models()] == made
        assert [m.id for m in store.models(reversed(made))] == made
        assert [m.options()[0].time_s for m in store.models(made[499:502])] == [500, 501, 502]


def test_a_model_needs_options_of_its_own_node_type(store_path: Path) -> None:
    with Writer(store_path) as store:
        with pytest.raises(InputError, match="another node type"):
            save(store, options=options(1.0, node_type="skl"))
        huge = replace(options(1.0)[0], configuration=Configuration("hsw", 2**40, 1, 1, 0))
        with pytest.raises(InputError):
            save(store, options=[huge])
        assert store.workloads() == []


@pytest.mark.parametrize("blob", [b"\x01123", b"\x07" + b"\0" * 100])
def test_options_that_cannot_be_read_are_one_clear_error(store_path: Path, blob: bytes) -> None:
    with Writer(store_path) as store:
        torn = replace(save(store), options_blob=blob)
    with pytest.raises(StoreError, match=r"model 1 of stencil.*advisor fit stencil"):
        torn.options()


def test_options_that_were_packed_without_a_version_stay_readable(store_path: Path) -> None:
    with Writer(store_path) as store:
        before = save(store)
    db = sqlite3.connect(store_path)
    db.execute("UPDATE models SET options = substr(options, 2)")
    db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm0008_options_version'")
    db.commit()
    db.close()
    with Writer(store_path) as store:
        assert list(store.models()) == [before] and before.options()


# -- policy, site, inventory ---------------------------------------------------------------------


def apply(store: Writer, text: str, mode: str = "apply") -> int:
    compiled = {"base": {"mode": mode}, "rules": []}
    return store.apply_config("policy", path="p.yaml", text=text, compiled=compiled, by="root")


def test_policy_versions(store_path: Path) -> None:
    with Writer(store_path) as store:
        assert store.policy() == PolicySet()
        assert store.config("policy") is None
        assert apply(store, "one", "observe") == 1
        assert apply(store, "two") == 2
        assert apply(store, "two") == 2  # what is active is not stored twice
        assert (store.policy().base.mode, store.policy().version) == ("apply", 2)
        store.activate_config("policy", 1, "ann")
        assert (store.policy().base.mode, store.policy().version) == ("observe", 1)
        history = [(v.version, v.active, v.applied_by) for v in store.config_history("policy")]
        assert history == [(1, True, "ann"), (2, False, "root")]
        with pytest.raises(InputError, match=r"no policy version 7.*known: 1, 2"):
            store.activate_config("policy", 7, "ann")
        assert store.policy().version == 1
        second = store.config("policy", 2)
        assert second is not None and second.text == "two"
        assert store.site() == {}


def test_a_compiled_policy_that_cannot_be_used_is_one_clear_error(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.apply_config("policy", path="p", text="x", compiled={"base": {"no": 1}}, by="root")
        with pytest.raises(StoreError, match="policy version 1 cannot be used"):
            store.policy()


def test_inventory(store_path: Path) -> None:
    hsw = NodeType("hsw", partitions=("p",), cores=24, freq_khz=(1_200_000,), nodes=("n1",))
    with Writer(store_path) as store:
        store.save_node_types([hsw, NodeType("skl")], source="slurm")
        store.save_node_types([NodeType("knl")], source="site")
        assert store.inventory().node_types["hsw"] == hsw
        store.save_node_types([NodeType("skl", cores=40)], source="slurm", replace=True)
        assert sorted(store.inventory().node_types) == ["knl", "skl"]
        assert store.inventory().node_types["skl"].cores == 40
        store.save_node_types([], source="slurm", replace=True)
        assert sorted(store.inventory().node_types) == ["knl"]


# -- decisions and outcomes ----------------------------------------------------------------------


def decision(number: str, at: str = "2026-01-01T00:00:00Z", **more: object) -> Decision:
    return Decision.from_dict({"decision": number, "created_at": at, "user": "ann", **more})


def test_decisions(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_decision(decision("d1", message="full record"))
        store.save_decision(decision("d2", "2026-01-02T00:00:00Z", user="bob"), job_id="12")
        store.save_decision(decision("d3", "2026-01-03T00:00:00Z"), job_id="12")
        assert [d.id for d in store.decisions()] == ["d3", "d2", "d1"]
        assert [d.id for d in store.decisions(user="ann", limit=1)] == ["d3"]
        assert [d.id for d in store.decisions(offset=1, limit=1)] == ["d2"]
        assert [d.id for d in store.decisions_of("12", "bob")] == ["d2"]
        assert store.link_job("d1", "11") is True
        assert store.link_job("unknown", "11") is False
        assert store.decision_for_job("11") == decision("d1", message="full record", job_id="11")
        latest = store.decision_for_job("12_7")
        assert latest is not None and latest.id == "d3"
        assert store.decision_for_job("") is None
        assert store.decision_for_job("99") is None
        assert store.decision("d9") is None


def test_a_decision_that_comes_twice_keeps_the_fuller_record_and_the_job(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_decision(decision("d1"), job_id="11")  # as stamped on the job
        store.save_decision(decision("d1", rewrite={"nodes": "1"}))  # as the daemon made it
        store.save_decision(decision("d1"))
        found = store.decision("d1")
        assert found is not None
        assert (found.rewrite, found.job_id) == ({"nodes": "1"}, "11")
        with pytest.raises(InputError):
            store.save_decision(decision(""))


def test_outcomes(store_path: Path) -> None:
    first = Outcome(
        "11", "slurm", "2026-01-01", "d1", "ann", "", "COMPLETED", 2, "n[1-2]", 10.0, None,
        "missing", None, 2_400_000, "better", {"step": 1}, "2026-01-02",
    )  # fmt: skip
    again = replace(first, submitted_at="2026-03-01", decision_id="")  # job ids start over
    with Writer(store_path) as store:
        store.save_outcome(first)
        store.save_outcome(replace(first, energy_j=5.0, energy_quality="measured"))
        assert [o.energy_j for o in store.outcomes()] == [5.0]
        store.save_outcome(again)
        assert store.outcome("11") == again
        assert len(store.outcomes()) == 2
        assert store.outcomes("submitted_at >= ?", ("2026-02-01",)) == [again]
        assert store.outcome("12") is None


# -- training ------------------------------------------------------------------------------------


def test_training(store_path: Path) -> None:
    request = TrainingRequest(
        "t1", "app", "default", "hsw", "ann", "slurm", "requested", "", {"runs": 13}, "", ""
    )
    with Writer(store_path) as store:
        store.save_training_request(request)
        [made] = store.training_requests()
        assert made.id == "t1" and made.plan == {"runs": 13} and made.created_at
        store.save_training_request(replace(made, state="running", detail="3 of 13"))
        [found] = store.training_requests(state="running")
        assert (found.application, found.created_at) == ("app", made.created_at)
        assert store.training_requests(state="failed") == []
        store.save_training_run(TrainingRun("t1", 1, "confirm", C, "planned"))
        store.save_training_run(TrainingRun("t1", 0, "design", C, "running", 1))
        [number] = store.add_observations("app", "default", [Observation(C, 1.0)])
        store.save_training_run(TrainingRun("t1", 0, "design", C, "done", 2, number))
        assert store.training_runs("t1") == [
            TrainingRun("t1", 0, "design", C, "done", 2, number),
            TrainingRun("t1", 1, "confirm", C, "planned"),
        ]
        with pytest.raises(StoreError, match="FOREIGN KEY"):
            store.save_training_run(TrainingRun("t9", 0, "design", C, "planned"))
        with pytest.raises(StoreError, match="CHECK"):
            store.save_training_run(replace(store.training_runs("t1")[0], state="no"))  # type: ignore[arg-type]
