"""The daemon's answers over a real store: what is remembered, and what must not be."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.availability import Availability, JobLimits, PartitionState, Queue, Room
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.stamp import make_stamp, read_stamp
from advisor.service import handlers as handlers_module
from advisor.service.answered import Answered
from advisor.service.handlers import Handlers
from advisor.service.issue import issue
from advisor.service.peer import Peer
from advisor.service.snapshot import StoreSource
from advisor.store.journal import Journal
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.unset import as_measured

NODE = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch",),
    cores=16,
    nodes=("bdw1",),
    default_partition="batch",
)
JOB: dict[str, Any] = {
    "v": 1,
    "op": "decide",
    "scheduler": "slurm",
    "hook": "cli_filter",
    "type": "sbatch",
    "options": {"nodes": "1", "exclusive": "exclusive"},
    "argv": ["job.sh"],
    "script": "srun ./stencil\n",
}
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
            Configuration("bdw", 1, 1, t, 0),
            10,
            9.99,
            10.01,
            e,
            e * 0.999,
            e * 1.001,
            True,
            True,
            True,
            True,
        )
        for t, e in ((16, 1000.0), (threads, 800.0))
    ]
    writer.save_model(
        "stencil",
        "default",
        "bdw",
        name="bspline",
        energy_quality="measured",
        n_train=12,
        stats=as_measured(options),
        options=options,
        **{"owner": "", **key},  # type: ignore[arg-type]
    )


@pytest.fixture
def handlers(store: Writer) -> Iterator[Handlers]:
    handlers = Handlers(StoreSource(Path(store.path)))
    handlers.refresh()
    yield handlers
    handlers.close()


def ask(handlers: Handlers, peer: Peer = ROOT, **changes: Any) -> Any:
    return json.loads(handlers.answer(json.dumps({**JOB, **changes}).encode(), peer))


def threads(answer: Any) -> str | None:
    found = answer["env"].get("OMP_NUM_THREADS")
    return None if found is None else str(found)


def test_a_job_submitted_again_is_a_decision_of_its_own(handlers: Handlers) -> None:
    answers = [ask(handlers) for _ in range(3)]
    stamps = [read_stamp(a["stamp"]) for a in answers]
    assert len({a["decision"] for a in answers}) == 3
    assert [s and s.id for s in stamps] == [a["decision"] for a in answers]
    assert [threads(a) for a in answers] == ["8"] * 3
    assert len(handlers.source.snapshot.answered) == 1


def test_an_answer_given_again_is_what_its_own_decision_would_be_answered(
    handlers: Handlers,
) -> None:
    """Even where other texts look like what is put in anew."""
    odd = '","at":"2026-01-01T00:00:00+00:00"'
    job = {**JOB, "env": {"ADVISOR_APPLICATION": "stencil"}, "argv": ["job.sh", odd]}
    line = json.dumps(job).encode()
    handlers.answer(line, ROOT)
    known = handlers.source.snapshot.answered.get((ROOT.uid, line))
    assert known is not None
    again = issue(known.decision, "0123456789abcdef", "2031-02-03T04:05:06+00:00")
    fresh = Answered(again, known.request, known.uid, known.drawn)
    given = known.line(again.id, again.created_at)
    assert given == fresh.line(again.id, again.created_at)
    assert json.loads(given)["stamp"] == make_stamp(again)


def test_a_job_told_right_after_its_decision_is_linked_to_it(store: Writer) -> None:
    journal = Journal(store.path)
    handlers = Handlers(StoreSource(Path(store.path)), journal=journal)
    handlers.refresh()
    handlers.start()
    for job in ("17", "18"):  # worked out, and remembered
        line = {"v": 1, "op": "submitted", "decision": ask(handlers)["decision"], "job": job}
        assert json.loads(handlers.answer(json.dumps(line).encode(), ROOT)) == {"v": 1, "ok": True}
    handlers.close()
    with Reader(Path(store.path)) as reader:
        assert {d.job_id for d in reader.decisions()} == {"17", "18"}


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


def test_a_choices_file_nested_too_deeply_is_a_broken_one(
    handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    deep = '{"workloads":' + "[" * 9000 + "]" * 9000 + "}"
    assert threads(ask(handlers, choices=deep)) == "8"
    (line,) = [r.getMessage() for r in caplog.records if "choices-bad" in r.message]
    assert "nested too deeply" in line


def test_a_stamp_is_looked_at_each_time(handlers: Handlers) -> None:
    first = ask(handlers)
    again = ask(handlers, hook="job_submit", stamp=first["stamp"])
    assert again == {"v": 1, "decision": first["decision"], "rewrite": {}, "message": ""}
    forged = first["stamp"].replace(first["decision"], "0" * 16)
    for _ in range(2):
        assert ask(handlers, stamp=forged)["decision"] != "0" * 16
    assert len(handlers.source.snapshot.answered) == 1


def test_memory_stays_bounded(handlers: Handlers) -> None:
    answered = handlers.source.snapshot.answered
    answered.limit = 1 << 20
    for i in range(200):
        ask(handlers, argv=["job.sh", str(i)])
        assert answered.size <= answered.limit
    assert 30 < len(answered) < 90
    ask(handlers, argv=["job.sh", "199"])
    before = len(answered)
    ask(handlers, script="srun ./stencil\n" + "#" * 20_000)  # too long to be remembered
    assert len(answered) == before


@pytest.mark.parametrize(
    "asked",
    [
        {"script": "a;" * 450_000},
        {"script": "srun ./stencil\n", "argv": ["a"] * 10_000},
        {"options": {**JOB["options"], "partition": "a," * 400_000}},
        {"env": {f"OMP_{i}": "1" for i in range(10_000)}},
        {"options": {"nodes": [[[[[[["1"]]]]]]]}},
        {"choices": "{}" + " " * 70_000},
    ],
)
def test_what_no_hook_sends_is_not_looked_at(
    handlers: Handlers, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of 900 kB kept everybody waiting for ten seconds: nothing reads it."""
    monkeypatch.setattr(handlers_module, "parse_choices", pytest.fail)
    monkeypatch.setattr(handlers_module, "decide", pytest.fail)
    answer = ask(handlers, **asked)
    assert (answer["rewrite"], read_stamp(answer["stamp"]).reasons[-1].code) == (  # type: ignore[union-attr]
        {},
        "unrecognised",
    )


# -- nodes promised to jobs that were just answered ------------------------------------------------


class Promises:
    """Stands where the watch of a scheduler stands, and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def promise(self, node_type: str, nodes: int) -> None:
        self.heard.append((node_type, nodes))


@pytest.mark.parametrize(
    ("job", "written"),
    [
        ({}, ("constraint", "skl")),
        (
            {
                "scheduler": "pbs",
                "hook": "queuejob",
                "type": "qsub",
                "host_resources": ["skl"],
                "user": "root",
                "options": {
                    "select": "1:ncpus=16:mpiprocs=1:ompthreads=16",
                    "place": "pack:excl",
                    "queue": "batch",
                },
                "submit_arguments": "",
            },
            ("select", "1:ncpus=16:mpiprocs=1:ompthreads=8:skl=True"),
        ),
    ],
)
@pytest.mark.parametrize("own", ["bdw", "skl"])
def test_nodes_that_a_job_is_bound_to_are_promised_on_each_scheduler(
    store: Writer, job: dict[str, Any], written: tuple[str, str], own: str
) -> None:
    axes = {"threads": "override", "frequency": "keep", "node_type": "override"}
    policy(store, axes=axes, node_type_change="allow")
    skl = replace(NODE, name="skl", feature="skl", nodes=("skl1",))
    store.save_node_types([NODE, skl], source="test")
    where = {"default_node_types": {"batch": own}}
    store.apply_config("site", path="s", text="s", compiled=where, by="test")
    options = [
        Option(
            Configuration("skl", 1, 1, t, 0),
            9,
            8.99,
            9.01,
            e,
            e * 0.999,
            e * 1.001,
            True,
            True,
            True,
            True,
        )
        for t, e in ((16, 500.0), (8, 400.0))
    ]
    store.save_model(
        "stencil",
        "default",
        "skl",
        name="bspline",
        energy_quality="measured",
        n_train=12,
        stats=as_measured(options),
        options=options,
        owner="",
        scope="all",
    )
    handlers = Handlers(StoreSource(Path(store.path)), watch=Promises())  # type: ignore[arg-type]
    handlers.refresh()
    handlers.source.take(
        Availability(
            str(job.get("scheduler", "slurm")),
            {(name, "batch"): Room(1, 1, ((math.inf, 1),)) for name in ("bdw", "skl")},
            {"batch": PartitionState()},
            {"": Queue(""), "batch": Queue("batch")},
            JobLimits(enforced=False),
        )
    )
    heard = handlers.watch.heard  # type: ignore[union-attr]
    answer = ask(handlers, **job)
    assert written in answer["rewrite"].items(), answer
    assert heard == [("skl", 1)]
    assert not ask(handlers, **job, env={"ADVISOR": "off"})["rewrite"]
    assert heard == [("skl", 1)]
    handlers.close()


# -- the program a model was measured with ---------------------------------------------------------

BUILT = {"path": "/home/ada/stencil", "size": 10, "mtime": 20, "build": "aa" * 20}


def measured_with(writer: Writer, *programs: dict[str, Any]) -> None:
    found = writer.find_models("stencil")[0]
    writer.save_model(
        "stencil",
        "default",
        "bdw",
        name="bspline",
        energy_quality="measured",
        n_train=12,
        stats={"program": list(programs), **as_measured(found.options())},
        options=found.options(),
        scope="all",
        owner="",
    )


def recorded(handlers: Handlers, **changes: Any) -> Any:
    return ask(handlers, op="explain", **changes)


def test_the_hook_is_told_which_file_to_look_at(store: Writer, handlers: Handlers) -> None:
    assert "program" not in ask(handlers)
    measured_with(store, {**BUILT, "build": "bb" * 20, "path": "/old/stencil"}, BUILT)
    handlers.refresh()
    for _ in range(2):  # worked out, and remembered
        answer = ask(handlers, cwd="/home/ada")
        assert answer["program"] == {
            "path": "/home/ada/stencil",
            "size": "10",
            "mtime": "20",
            "build": f"{'bb' * 20} {'aa' * 20}",
        }
        assert answer["env"]
    assert "program" not in ask(handlers, script="cd elsewhere\nsrun ./stencil\n")
    moved = {**JOB["options"], "chdir": "/elsewhere"}
    assert "program" not in ask(handlers, options=moved)
    assert "program" not in ask(handlers, env={"ADVISOR": "off"})


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"build": "aa" * 20, "path": "/elsewhere/stencil"}, None),
        ({"build": "cc" * 20, "path": "./stencil"}, "program-rebuilt"),
        ({"build": "cc" * 20, "path": "/elsewhere/stencil"}, "other-program"),
        ({"build": "forged", "path": "./stencil"}, None),
    ],
)
def test_another_build_changes_nothing(
    store: Writer, handlers: Handlers, facts: dict[str, Any], code: str | None
) -> None:
    measured_with(store, BUILT)
    handlers.refresh()
    job: dict[str, Any] = {"program": {"size": "11", "mtime": "21", **facts}, "cwd": "/home/ada"}
    answer = ask(handlers, **job)
    assert bool(answer["env"]) == (code is None)
    assert "program" in answer if facts["build"] == "forged" else "program" not in answer
    told = recorded(handlers, **job)
    found = {"program-rebuilt", "other-program"} & set(told["reasons"])
    assert found == ({code} if code else set())
    stamp = read_stamp(answer["stamp"])
    assert stamp is not None
    assert stamp.program == told["program"]
    if code:
        assert told["program"]["build"] == "cc" * 20 and told["chosen"]


def test_of_a_job_that_was_asked_about_twice_one_decision_is_kept(store: Writer) -> None:
    measured_with(store, BUILT)
    handlers = Handlers(StoreSource(Path(store.path)), journal=Journal(store.path))
    handlers.refresh()
    handlers.start()
    first, others = ask(handlers), ask(handlers, OTHER)
    found = {"path": "/home/ada/stencil", "size": "1", "mtime": "2", "build": "cc" * 20}
    second = ask(handlers, program={**found, "instead": first["decision"]}, cwd="/home/ada")
    # nobody drops what another user was answered
    third = ask(handlers, program={**found, "instead": others["decision"]}, cwd="/home/ada")
    assert handlers.status()["decisions"] == 3 and handlers.status()["changed"] == 1
    handlers.close()
    with Reader(Path(store.path)) as reader:
        kept = {d.id for d in reader.decisions()}
    assert kept == {a["decision"] for a in (second, third, others)}


def test_where_the_user_or_the_site_names_the_application_no_file_is_another(
    store: Writer, handlers: Handlers
) -> None:
    measured_with(store, BUILT)
    handlers.refresh()
    job: dict[str, Any] = {
        "program": {"path": "/x/stencil", "size": 1, "mtime": 2, "build": "cc" * 20},
        "env": {"ADVISOR_APPLICATION": "stencil"},
    }
    assert "program-rebuilt" in recorded(handlers, **job)["reasons"]
