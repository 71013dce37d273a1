"""The daemon's answers over a real store: what is remembered, and what must not be."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.stamp import read_stamp
from advisor.service.handlers import Handlers
from advisor.service.peer import Peer
from advisor.service.snapshot import Source
from advisor.store.writer import Writer

NODE = NodeType(
    "bdw", feature="broadwell", partitions=("batch",), cores=16, nodes=("bdw1",),
    default_partition="batch",
)  # fmt: skip
JOB: dict[str, Any] = {
    "v": 1, "op": "decide", "scheduler": "slurm", "hook": "cli_filter", "type": "sbatch",
    "options": {"nodes": "1", "exclusive": "exclusive"}, "argv": ["job.sh"],
    "script": "srun ./stencil\n",
}  # fmt: skip
ROOT, OTHER = Peer(1, 0, 0), Peer(2, 12345, 12345)


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        writer.save_node_types([NODE], source="test")
        policy(writer)
        model(writer, scope="all")
        yield writer


def policy(writer: Writer, **settings: Any) -> None:
    base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, **settings}
    writer.apply_config(
        "policy", path="p", text=repr(settings), compiled={"base": base, "rules": []}, by="test"
    )


def model(writer: Writer, *, threads: int = 8, **key: str) -> None:
    options = [
        Option(
            Configuration("bdw", 1, 1, t, 0), 10, 9.99, 10.01, e, e * 0.999, e * 1.001,
            True, True, True, True,
        )
        for t, e in ((16, 1000.0), (threads, 800.0))
    ]  # fmt: skip
    writer.save_model(
        "stencil", "default", "bdw", name="bspline", energy_quality="measured", n_train=12,
        stats={}, options=options, **{"owner": "", **key},  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def handlers(store: Writer) -> Iterator[Handlers]:
    handlers = Handlers(Source(Path(store.path)))
    handlers.refresh()
    yield handlers
    handlers.close()


def ask(handlers: Handlers, peer: Peer = ROOT, **changes: Any) -> Any:
    return handlers.answer(json.dumps({**JOB, **changes}).encode(), peer)


def threads(answer: Any) -> str | None:
    found = answer["rewrite"].get("cpus-per-task")
    return None if found is None else str(found)


def test_a_job_submitted_again_is_a_decision_of_its_own(handlers: Handlers) -> None:
    answers = [ask(handlers) for _ in range(3)]
    stamps = [read_stamp(a["stamp"]) for a in answers]
    assert len({a["decision"] for a in answers}) == 3
    assert [s and s["decision"] for s in stamps] == [a["decision"] for a in answers]
    assert [threads(a) for a in answers] == ["8"] * 3
    assert len(handlers.source.snapshot.answered) == 1


def test_a_new_policy_or_model_is_answered_from_at_once(store: Writer, handlers: Handlers) -> None:
    assert threads(ask(handlers)) == "8"
    policy(store, mode="observe")
    handlers.refresh()
    assert threads(ask(handlers)) is None
    policy(store)
    model(store, threads=4, scope="all")
    handlers.refresh()
    assert threads(ask(handlers)) == "4"


def test_what_another_user_is_answered_is_not_remembered_for_me(
    store: Writer, handlers: Handlers
) -> None:
    model(store, threads=4, scope="own", owner="12345")
    handlers.refresh()
    for _ in range(2):
        assert threads(ask(handlers)) == "8"
        assert threads(ask(handlers, OTHER)) == "4"


def test_the_holdout_is_drawn_for_each_job(store: Writer, handlers: Handlers) -> None:
    policy(store, holdout=0.3)
    handlers.refresh()
    random.seed(11)
    left_alone = sum(threads(ask(handlers)) is None for _ in range(1000))
    assert 230 < left_alone < 370


def test_a_broken_choices_file_is_logged_each_time(
    handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert threads(ask(handlers, choices="{")) == "8"
    assert sum("choices-bad" in r.message for r in caplog.records) == 2


def test_a_stamp_is_looked_at_each_time(handlers: Handlers) -> None:
    first = ask(handlers)
    again = ask(handlers, hook="job_submit", stamp=first["stamp"])
    assert again == {"decision": first["decision"], "rewrite": {}, "message": ""}
    forged = first["stamp"].replace(first["decision"], "0" * 16)
    for _ in range(2):
        assert ask(handlers, stamp=forged)["decision"] != "0" * 16
    assert len(handlers.source.snapshot.answered) == 1


def test_memory_stays_bounded(handlers: Handlers) -> None:
    ask(handlers, script="srun ./stencil\n" + "#" * 10_000)
    assert not handlers.source.snapshot.answered
    for i in range(4200):
        ask(handlers, argv=["job.sh", str(i)])
    assert 0 < len(handlers.source.snapshot.answered) <= 4096
