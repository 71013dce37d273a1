"""``advisor store forget``: what goes, what stays, and what comes back for a day."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.node_type_estimate import NodeTypeEstimate
from advisor.core.observation import Observation
from advisor.core.option import Option, pack_options
from advisor.core.signature import Signature
from advisor.derive.worker import deriving
from advisor.service.handlers import Handlers
from advisor.service.peer import Peer
from advisor.service.snapshot import StoreSource
from advisor.store.forgetting import purge
from advisor.store.rankings import characterisations, rankings, save_characterisation, save_ranking
from advisor.store.reader import Reader
from advisor.store.signatures import save_signatures, signatures
from advisor.store.writer import Writer

HSW = NodeType("hsw", partitions=("batch",), cores=16, nodes=("h1",), default_partition="batch")
SKL = NodeType("skl", partitions=("batch",), cores=16, nodes=("s1",))
BASE, BETTER = Configuration("hsw", 1, 1, 16, 0), Configuration("hsw", 1, 1, 8, 0)
OPTIONS = [
    Option(c, 10, 9.99, 10.01, e, e * 0.999, e * 1.001, True, True, True, True)
    for c, e in ((BASE, 1000.0), (BETTER, 800.0))
]
LAST_YEAR = "2025-01-01T00:00:00.000000Z"


def fill(path: Path, application: str = "app", workload: str = "small") -> None:
    with deriving(path) as store:
        store.save_node_types([HSW, SKL], source="test")
        policy = {"base": {"mode": "apply", "holdout": 0.0}, "rules": []}
        store.apply_config("policy", path="p", text="x", compiled=policy, by="me")
        runs = [
            Observation(o.configuration, o.time_s, o.energy_j, contributor="ann") for o in OPTIONS
        ]
        store.add_observations(application, workload, runs)
        store.save_model(
            application,
            workload,
            "hsw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=2,
            stats={},
            options=OPTIONS,
        )
        save_characterisation(
            store, application, workload, "hsw", {"x": 1}, contributor="ann", scope="own"
        )
        found = [NodeTypeEstimate("skl", 9.0, 0.9, 5.0, None, None, 0.8, 5.0, "profiles")]
        save_ranking(
            store, application, workload, "hsw", found, method="m", contributor="ann", scope="all"
        )
        run = Signature(cpi=0.7, time_s=9.0, configuration=BASE, source="perf", contributor="ann")
        save_signatures(store, application, workload, [run])


def contents(path: Path) -> dict[str, Any]:
    """Everything that is known of applications, as it reads."""
    with Reader(path) as store:
        return {
            "workloads": [(w.application, w.name, w.observations) for w in store.workloads()],
            "models": sorted(
                (m.application, m.node_type, m.state, m.options_blob) for m in store.models()
            ),
            "observations": [
                o.observation for w in store.workloads() for o in store.observations(w.application)
            ],
            "characterisations": sorted(
                (replace(c, id=0) for c in characterisations(store)), key=lambda c: c.application
            ),
            "rankings": [replace(r, id=0) for r in rankings(store)],
            "signatures": sorted(
                (replace(s, id=0) for s in signatures(store)), key=lambda s: s.application
            ),
        }


def test_an_application_is_gone_at_once_and_back_as_it_was(
    advisor: Callable[..., Any], store_path: Path
) -> None:
    fill(store_path)
    fill(store_path, "other")
    before = contents(store_path)
    done = advisor("forget", "app", "--yes")
    assert (done.code, done.err) == (0, "")
    assert (
        "app/small: 2 models, 2 measured runs, 1 characterisation, 1 estimated node type"
        in done.out
    )
    after = contents(store_path)
    assert {w[0] for w in after["workloads"]} == {"other"}
    assert {m[0] for m in after["models"]} == {"other"}
    assert {c.application for c in after["characterisations"]} == {"other"}
    assert {r.application for r in after["rankings"]} == {"other"}
    assert {s.application for s in after["signatures"]} == {"other"}
    assert advisor("options", "app").code != 0
    assert advisor("forget", "app", "--yes").code == 2  # nothing is known of it any more

    done = advisor("forget", "app", "--undo")
    assert done.code == 0 and "2 models" in done.out
    assert contents(store_path) == before
    assert advisor("forget", "app", "--undo").code == 2


def test_the_daemon_s_next_look_finds_it_gone(
    advisor: Callable[..., Any], store_path: Path
) -> None:
    fill(store_path)
    handlers = Handlers(StoreSource(store_path))
    handlers.refresh()
    job = {
        "v": 1,
        "op": "decide",
        "scheduler": "slurm",
        "hook": "cli_filter",
        "type": "sbatch",
        "options": {"nodes": "1", "exclusive": "exclusive"},
        "argv": ["job.sh"],
        "script": "#ADVISOR workload=small\nsrun ./app\n",
    }

    def stamp() -> str:
        handlers.refresh()
        return str(json.loads(handlers.answer(json.dumps(job).encode(), Peer(1, 0, 0)))["stamp"])

    assert "no-model" not in stamp()
    advisor("forget", "app/small", "--yes")
    assert "no-model" in stamp()
    advisor("forget", "app", "--undo")
    assert "no-model" not in stamp()
    handlers.close()


def test_one_workload_only(advisor: Callable[..., Any], store_path: Path) -> None:
    fill(store_path)
    fill(store_path, workload="in/put 2")
    done = advisor("forget", "app/in/put 2", "--yes", "--json")
    data = done.json()
    assert data["schema"] == "advisor/forget/1"
    assert (data["application"], data["workload"], data["undo"]) == ("app", "in/put 2", False)
    assert data["workloads"] == [
        {
            "workload": "in/put 2",
            "models": 2,
            "observations": 2,
            "characterisations": 1,
            "rankings": 1,
            "signatures": 1,
            "trials": 0,
        }
    ]
    assert [w[1] for w in contents(store_path)["workloads"]] == ["small"]
    back = advisor("forget", "app/in/put 2", "--undo", "--json").json()
    assert back["undo"] is True and back["workloads"] == data["workloads"]


def test_only_what_was_stored_since(advisor: Callable[..., Any], store_path: Path) -> None:
    fill(store_path)
    with Writer(store_path) as store:
        for table in ("models", "observations", "characterisations", "rankings", "signatures"):
            store.change(f"UPDATE {table} SET created_at = ?", (LAST_YEAR,))
        store.add_observations("app", "small", [Observation(BASE, 99.0, contributor="bob")])
    done = advisor("forget", "app", "--since", "2025-06-01", "--yes")
    assert done.code == 0 and "fit what is left: advisor fit app" in done.out
    with Reader(store_path) as reader:
        assert [o.observation.contributor for o in reader.observations("app")] == ["ann", "ann"]
        assert len(reader.find_models("app")) == 2
    done = advisor("forget", "app", "--since", "1h", "--yes")
    assert done.code == 3 and "nothing of app was stored since 1h" in done.err
    assert advisor("forget", "app", "--undo").code == 0
    with Reader(store_path) as reader:
        assert len(reader.observations("app")) == 3
    done = advisor("forget", "app", "--since", "2024-06-01", "--yes")  # there is nothing to fit
    assert done.code == 0 and "advisor fit" not in done.out


def test_what_was_measured_since_wins_over_an_undo(
    advisor: Callable[..., Any], store_path: Path
) -> None:
    fill(store_path)
    with Reader(store_path) as reader:
        old = {m.id for m in reader.models()}
    advisor("forget", "app", "--yes")
    fill(store_path)
    with Reader(store_path) as reader:
        new = {m.id for m in reader.models()}
    assert not old & new  # decisions name models by their number
    done = advisor("forget", "app", "--undo")
    assert done.code == 0 and "2 measured runs" in done.out and "model," not in done.out
    with Reader(store_path) as reader:
        assert {m.id for m in reader.models()} == new
        assert len(reader.observations("app")) == 4
        assert len(characterisations(reader, "app")) == len(rankings(reader, "app")) == 1


def test_after_a_day_it_is_gone_for_good(
    advisor: Callable[..., Any], store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store_path)
    advisor("forget", "app", "--yes")
    with Writer(store_path) as store:
        assert purge(store) == 0
        store.change("UPDATE forgotten SET forgotten_at = ?", (LAST_YEAR,))
    assert advisor("forget", "app", "--undo").code == 2
    assert advisor("collect", "--spool").code == 0
    with Reader(store_path) as store:
        assert store.rows("SELECT count(*) FROM forgotten")[0][0] == 0
        left = store.rows("SELECT DISTINCT options FROM models")
        assert [row[0] for row in left] == [pack_options(())]


def test_unknown_names_say_which_are_near(advisor: Callable[..., Any], store_path: Path) -> None:
    fill(store_path, "stencil")
    done = advisor("forget", "stensil", "--yes")
    assert done.code == 2 and "stencil" in done.err
    done = advisor("forget", "stencil/smal", "--yes")
    assert done.code == 2 and "stencil/small" in done.err
    assert advisor("forget", "stencil", "--since", "no time", "--yes").code == 2
    assert advisor("forget", "stencil", "--since", "7d", "--undo").code == 2


def test_nobody_is_asked_where_nobody_can_answer(
    advisor: Callable[..., Any], store_path: Path
) -> None:
    fill(store_path)
    before = contents(store_path)
    done = advisor("forget", "app")
    assert done.code == 2 and "--yes" in done.err
    assert contents(store_path) == before


def test_a_published_copy_forgets_nothing(
    advisor: Callable[..., Any], store_path: Path, tmp_path: Path
) -> None:
    fill(store_path)
    copy = tmp_path / "copy.db"
    advisor("publish", copy)
    done = advisor("forget", "app", "--yes", "--db", copy)
    assert done.code == 3 and "published copy" in done.err
