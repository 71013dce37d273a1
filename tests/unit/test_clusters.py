"""Several clusters in one store: no job, node type or sum of one is taken for another's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from advisor.core.availability import Availability
from advisor.core.cluster_name import cluster_name, is_federated, read_cluster_name
from advisor.core.configuration import Configuration
from advisor.core.inventory import Gpus, NodeType
from advisor.core.signature import Signature
from advisor.core.worth import Tariff
from advisor.errors import InputError, SchedulerError, UsageError
from advisor.loop.collect import Collected, collect
from advisor.loop.day_sums import sum_days, whole_days
from advisor.loop.outcome_metrics import outcome_metrics
from advisor.loop.report import report
from advisor.loop.why import why
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.translator import parse_request
from advisor.service.snapshot import StoreSource
from advisor.store.clusters import clusters, take_in
from advisor.store.schema import load_migrations
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer
from advisor.views.jobs import page
from advisor.views.recent import recent_jobs
from tests.unit.collect.jobs import BDW, NOW, Accounting, decided, decision, job, model

LONG_AGO = NOW - timedelta(days=300)


class Cluster(Accounting):
    """The accounting of one cluster, and what waits in its queue."""

    def __init__(
        self, name: str, jobs: Sequence[JobRecord] = (), waiting: Sequence[JobRecord] = ()
    ) -> None:
        super().__init__([replace(j, cluster=name) for j in jobs])
        self.name, self.waiting = name, waiting

    def cluster_name(self) -> str:
        return self.name

    def unfinished_jobs(self) -> Sequence[JobRecord]:
        return self.waiting

    def job(self, job_id: str) -> JobRecord | None:
        return next((j for j in self.jobs if j.job_id == job_id), None)


def collected(store: Writer, name: str, *jobs: JobRecord) -> Collected:
    return collect(store, Cluster(name, jobs), LONG_AGO, name)  # type: ignore[arg-type]


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        yield writer


@pytest.fixture
def both(store: Writer) -> Writer:
    """A store with a job 11 of two clusters, submitted in the same second by the same user."""
    store.save_node_types([BDW], source="slurm", cluster="alpha")
    store.save_node_types([BDW], source="slurm", cluster="beta")
    m = model(store)
    for number, name, energy_j in ((1, "alpha", 9_000.0), (2, "beta", 10_900.0)):
        stamp = decided(store, replace(decision(number, m.id), cluster=name))
        result = collected(store, name, job(11, stamp, energy_j=energy_j))
        assert (result.cluster, result.known, len(result.outcomes)) == (name, 0, 1)
    return store


def test_jobs_of_one_id_do_not_collide(both: Writer) -> None:
    found = {o.cluster: o for o in both.outcomes()}
    assert {c: (o.decision_id[-1], o.verdict) for c, o in found.items()} == {
        "alpha": ("1", "as-promised"),
        "beta": ("2", "worse"),
    }
    for name, number in (("alpha", "1"), ("beta", "2")):
        assert (d := both.decision_for_job("11", name)) and d.id[-1] == number
        assert (o := both.outcome("11", name)) and o.cluster == name
    runs = both.observations("stencil", "n64")
    assert sorted(r.observation.cluster for r in runs) == ["alpha", "beta"]
    assert len(both.rows("SELECT 1 FROM signatures")) == 2


def test_collecting_again_changes_nothing(both: Writer) -> None:
    before = both.outcomes()
    for name, energy_j in (("alpha", 9_000.0), ("beta", 10_900.0)):
        assert collected(both, name, job(11, energy_j=energy_j)).known == 1
    assert both.outcomes() == before
    assert len(both.observations("stencil", "n64")) == 2


def test_lists_show_each_job_with_its_own_outcome(both: Writer) -> None:
    jobs, complete = recent_jobs(
        both, NOW.replace(year=NOW.year - 1), "ann", report(both, since="").tariff
    )
    assert complete and sorted((j.cluster, j.verdict) for j in jobs) == [
        ("alpha", "as-promised"),
        ("beta", "worse"),
    ]
    assert sorted((j.decision.cluster, j.verdict) for j in page(both)) == [
        ("alpha", "as-promised"),
        ("beta", "worse"),
    ]
    other = replace(decision(3, None), cluster="beta")
    both.save_decision(other, job_id="12")
    collected(both, "alpha", job(12, decided(both, replace(decision(4, None), cluster="alpha"))))
    shown = recent_jobs(both, LONG_AGO, "ann", Tariff())[0]
    waiting = [(j.cluster, j.job) for j in shown if j.verdict is None]
    assert waiting == [("beta", "12")]


def test_why_names_the_clusters_where_it_cannot_tell(both: Writer) -> None:
    with pytest.raises(InputError) as caught:
        why("11", both, None)
    assert "of each of these clusters: alpha, beta" in str(caught.value)
    assert caught.value.hint == "name one: advisor why 11 --cluster alpha"
    for answer in (
        why("11", both, None, cluster="beta"),
        why("11", both, Cluster("beta")),  # type: ignore[arg-type]
    ):
        assert answer.outcome is not None
        assert (answer.cluster, answer.outcome.verdict) == ("beta", "worse")


def test_a_stamp_of_another_cluster_is_not_believed(both: Writer) -> None:
    stolen = decided(both, replace(decision(7, 1), cluster="alpha"))
    collected(both, "beta", job(70, stolen))
    outcome = both.outcome("70", "beta")
    assert outcome is not None and outcome.record["trust"] == "unverified"
    assert outcome.record["trust_why"] == "its stamp names a decision made for cluster alpha"


def test_a_federated_job_may_run_on_another_cluster(both: Writer) -> None:
    number = (2 << 26) + 5  # submitted to the second cluster of the federation
    stamp = decided(both, replace(decision(7, 1), cluster="alpha"))
    collected(both, "beta", job(5, stamp, job_id=str(number)))
    outcome = both.outcome(str(number), "alpha")
    assert outcome is not None and (outcome.cluster, outcome.record["trust"]) == (
        "beta",
        "verified",
    )
    assert why(str(number), both, None).cluster == "beta"


def test_reports_and_metrics_of_each_cluster(both: Writer) -> None:
    sum_days(both)
    since = "2000-01-01"
    assert len(whole_days(both, since)) == 1
    for name, verdict in (("alpha", "as-promised"), ("beta", "worse")):
        for summed in (True, False):
            if not summed:  # read job by job: the same
                both.change("DELETE FROM days")
            of_cluster = report(both, since=since, cluster=name)
            assert (of_cluster.jobs, dict(of_cluster.verdicts)) == (1, {verdict: 1})
        sum_days(both)
    assert report(both, since=since).jobs == 2
    text = outcome_metrics(Path(both.path))
    assert 'advisor_jobs{cluster="alpha",verdict="as-promised"} 1' in text
    assert 'advisor_jobs{cluster="beta",verdict="worse"} 1' in text
    assert "alpha" not in outcome_metrics(Path(both.path), "beta")


def test_a_trial_waits_for_its_own_cluster(store: Writer) -> None:
    at = "2001-01-01T00:00:00Z"
    for n, name in enumerate(("alpha", "beta")):
        store.change(
            "INSERT INTO cap_trials (decision_id, identity, user, created_at, cluster)"
            " VALUES (?, ?, 'ann', ?, ?)",
            (f"d{n}", f"i{n}", at, name),
        )
    result = collected(store, "alpha")
    assert result.trials["freed"] == 1
    assert [r[0] for r in store.rows("SELECT cluster FROM cap_trials")] == ["beta"]


# -- node types ------------------------------------------------------------------------------------


def test_a_node_type_of_two_clusters_is_one_with_the_nodes_of_both(store: Writer) -> None:
    far = replace(BDW, nodes=("far1",), partitions=("far",), memory_mb=1)
    store.save_node_types([replace(BDW, memory_mb=2)], source="slurm", cluster="alpha")
    store.save_node_types([far], source="slurm", cluster="beta")
    assert store.inventory("beta").node_types == {"bdw": far}
    assert store.inventory("alpha").node_types["bdw"].nodes == BDW.nodes
    everywhere = store.inventory().node_types["bdw"]
    assert everywhere.nodes == (*BDW.nodes, "far1") and everywhere.memory_mb == 1
    assert everywhere.nodes_in("far") == 1 and everywhere.nodes_in("batch") == len(BDW.nodes)


@pytest.mark.parametrize(
    "change", [{"cores": 32}, {"sockets": 2}, {"threads_per_core": 2}, {"gpus": Gpus("A100", 4)}]
)
def test_other_hardware_needs_another_name(store: Writer, change: dict[str, Any]) -> None:
    def discovered(node_type: NodeType, cluster: str) -> None:
        hardware = {node_type.name: node_type.hardware}
        store.save_node_types([node_type], source="slurm", cluster=cluster, hardware=hardware)

    discovered(BDW, "alpha")
    # what a site file adds is the same for both, whichever is brought up to date first
    store.save_node_types([replace(BDW, cores=24)], source="slurm", cluster="alpha")
    discovered(BDW, "beta")
    with pytest.raises(InputError) as caught:
        discovered(replace(BDW, **change), "gamma")
    text = str(caught.value)
    assert text.startswith("node type bdw of cluster gamma has ")
    assert "; on alpha it has 1 x 28 cores, 1 threads each (models go by the node type: " in text
    assert "name one of them otherwise in site.yaml" in str(caught.value.hint)
    assert store.inventory("gamma").node_types == {}
    discovered(replace(BDW, name="bdw2", **change), "gamma")


def test_reading_one_cluster_leaves_the_others_node_types(store: Writer) -> None:
    skl = NodeType("skl", nodes=("skl1",), cores=40)
    store.save_node_types([BDW], source="slurm")  # of a store that knew no clusters
    store.save_node_types([skl], source="slurm", cluster="beta", replace=True)
    assert set(store.inventory("beta").node_types) == {"bdw", "skl"}
    store.save_node_types([BDW], source="slurm", cluster="alpha", replace=True)
    assert {c: set(i.node_types) for c, i in store.inventories().items()} == {
        "alpha": {"bdw"},
        "beta": {"skl"},
    }
    store.save_node_types([], source="slurm", cluster="beta", replace=True)
    assert set(store.inventories()) == {"alpha"}


def test_decisions_know_the_nodes_of_the_jobs_own_cluster(store_path: Path) -> None:
    skl = NodeType("skl", nodes=("skl1",), cores=40, partitions=("batch",))
    with Writer(store_path) as store:
        store.save_node_types([BDW], source="slurm", cluster="alpha")
    source = StoreSource(store_path)
    source.refresh()
    assert source.snapshot.of_cluster("beta") is source.snapshot  # one cluster: nothing to tell
    with Writer(store_path) as store:
        store.save_node_types([skl], source="pbs", cluster="beta")
    source.refresh()
    source.take(Availability("slurm", cluster="alpha"))
    alpha, beta, other = (source.snapshot.of_cluster(n) for n in ("alpha", "beta", "nobody"))
    assert set(alpha.inventory.node_types) == {"bdw"} and set(beta.inventory.node_types) == {"skl"}
    assert other.inventory.node_types == {} and source.snapshot.of_cluster("alpha") is alpha
    assert source.snapshot.of_cluster("") is alpha  # whoever does not say is where the daemon looks
    assert alpha.availability is not None and not alpha.availability.problem
    assert beta.availability is not None
    assert beta.availability.problem == "nobody looks at cluster beta"
    for n in range(50):  # made-up names are not kept
        source.snapshot.of_cluster(f"x{n}")
    assert len(source.snapshot._clusters) == 2
    source.close()


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["alpha", "a", "pbs.example.org", "c_1-x", "A" * 64])
def test_names(text: str) -> None:
    assert cluster_name(f" {text}\n") == text == read_cluster_name(text)


@pytest.mark.parametrize(
    "text",
    ["", "a,b", "all,", "-x", "a b", "a;rm", "$(x)", "../etc", "a\nb", "'", "ä", "A" * 65, "a\0"],
)
def test_what_is_no_name(text: str) -> None:
    assert cluster_name(text) == ""
    with pytest.raises(UsageError, match="is not a cluster's name"):
        read_cluster_name(text)


@pytest.mark.parametrize(
    ("option", "here", "cluster"),
    [
        (None, "Alpha", "alpha"),
        ("beta", "alpha", "beta"),
        ("beta,gamma", "alpha", ""),
        ("$(reboot)", "alpha", ""),
        (None, "x" * 500, ""),
        (None, ["alpha"], ""),
        (None, None, ""),
    ],
)
def test_the_cluster_of_a_request(option: str | None, here: object, cluster: str) -> None:
    payload = {"options": {"clusters": option} if option else {}, "cluster": here}
    request = parse_request(payload, user="ann", uid=1, choices={})
    assert request.cluster == cluster
    assert request.binds == ({"all": "--clusters"} if option else {})


@pytest.mark.parametrize(
    ("job_id", "federated"),
    [("11", False), ("67043327", False), ("67108864", True), ("134217733_4", True), ("x", False)],
)
def test_federated_ids(job_id: str, federated: bool) -> None:
    assert is_federated(job_id) is federated


def test_the_accounting_names_the_cluster_or_it_is_asked_for(store: Writer) -> None:
    one = replace(job(1, decided(store, decision(1, None))), cluster="alpha")
    accounting = Accounting([one])
    accounting.unfinished_jobs = list  # type: ignore[attr-defined]
    assert collect(store, accounting, LONG_AGO).cluster == "alpha"  # type: ignore[arg-type]
    accounting.jobs.append(replace(job(2), cluster="beta"))
    with pytest.raises(SchedulerError) as caught:
        collect(store, accounting, LONG_AGO)  # type: ignore[arg-type]
    assert "jobs of several clusters: alpha, beta" in str(caught.value)
    assert "--cluster NAME" in str(caught.value.hint)


# -- stores that knew no clusters ------------------------------------------------------------------


@pytest.fixture
def former(store_path: Path) -> Path:
    """A store of the version before, with a row in every table that changed."""
    with closing(sqlite3.connect(store_path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("BEGIN")
        load_migrations().apply(
            Database(db, recursive_triggers=False), stop_before="m0027_clusters"
        )
        db.execute("INSERT INTO workloads (id, application, created_at) VALUES (1, 'stencil', '')")
        for n in range(3):
            db.execute(
                "INSERT INTO outcomes (job_id, scheduler, submitted_at, decision_id, user, state,"
                " nodes, energy_quality, record, collected_at) VALUES (?, 'slurm',"
                " '2026-01-01T00:00:00Z', ?, 'ann', 'COMPLETED', 1, 'missing', '{}', ?)",
                (str(n), f"d{n}", f"2026-01-0{n + 1}"),
            )
        db.execute(
            "INSERT INTO decisions (id, created_at, scheduler, hook, user, mode, changed, holdout,"
            " policy_version, record, job_id)"
            " VALUES ('d0', '', 'slurm', '', 'ann', '', 0, 0, 0, '{}', '0')"
        )
        db.execute("INSERT INTO node_types VALUES ('bdw', '{\"name\": \"bdw\"}', 'slurm', 'then')")
        db.execute("INSERT INTO days VALUES ('2026-01-01', 1, '[[\"jobs\", 3]]')")
        sums = ", ".join("0" for _ in db.execute("PRAGMA table_info(day_sums)").fetchall()[4:])
        db.execute(
            f"INSERT INTO day_sums VALUES ('2026-01-01', 'stencil', 'default', '[]', {sums})"
        )
        db.execute("INSERT INTO months VALUES ('2025-12', 'stencil', 'bdw', 5, 4, 3, 2, 1.5, 0.5)")
        db.execute("COMMIT")
    return store_path


def test_a_former_store_keeps_everything(former: Path) -> None:
    with Writer(former) as store:
        rows = store.rows("SELECT rowid, job_id, cluster, collected_at FROM outcomes ORDER BY 1")
        assert [tuple(r) for r in rows] == [
            (n + 1, str(n), "", f"2026-01-0{n + 1}") for n in range(3)
        ]
        assert [tuple(r) for r in store.rows("SELECT day, whole, counts FROM days")] == [
            ("2026-01-01", 1, '[["jobs", 3]]')
        ]
        (summed,) = store.rows("SELECT * FROM day_sums")
        assert (summed["cluster"], summed["application"], summed["counts"]) == ("", "stencil", "[]")
        (month,) = store.rows("SELECT * FROM months")
        assert tuple(month) == ("2025-12", "", "stencil", "bdw", 5, 4, 3, 2, 1.5, 0.5)
        assert set(store.inventory().node_types) == {"bdw"}
        named = {row[0] for row in store.rows("SELECT name FROM sqlite_master")}
        assert {"outcome_added", "outcomes_by_identity", "outcomes_by_model"} <= named


def test_the_first_cluster_takes_over_the_jobs_that_name_none(former: Path) -> None:
    with Writer(former) as store:
        take_in(store, "alpha", "slurm")
        take_in(store, "beta", "slurm")
        take_in(store, "pbs1", "pbs")
        assert [(c.name, c.scheduler) for c in clusters(store)] == [
            ("alpha", "slurm"),
            ("beta", "slurm"),
            ("pbs1", "pbs"),
        ]
        for table in ("outcomes", "decisions"):
            assert {r[0] for r in store.rows(f"SELECT cluster FROM {table}")} == {"alpha"}
        assert whole_days(store, "2026-01-01") == []  # summed up again, by cluster
        sum_days(store)
        assert report(store, since="2026-01-01", cluster="alpha").jobs == 3
        with pytest.raises(UsageError):
            take_in(store, "no name", "slurm")


def test_a_signature_of_a_job_of_two_clusters(store: Writer) -> None:
    place = Configuration("bdw", 1, 1, 28, 0)
    for name in ("alpha", "beta", "alpha"):
        one = Signature(cpu_util=50.0, configuration=place, source="ear", job_id="77", cluster=name)
        save_signatures(store, "stencil", "n64", [one])
    rows = store.rows("SELECT job_id, cluster FROM signatures ORDER BY cluster")
    assert [tuple(r) for r in rows] == [("77", "alpha"), ("77", "beta")]
