"""The queuejob hook in a fresh interpreter against a strict stand-in: what it asks and writes,
and that nothing that goes wrong ever touches a job."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hooked import (
    DECISION,
    HOOKS,
    STAMP,
    Outcome,
    answering,
    daemon,
    dripping,
    hanging,
    job,
    plan,
    run_hook,
)

HOOK = "advisor_queuejob.py"
WHOLE = {"select": "1:ncpus=28:mpiprocs=1:node_type=bdw", "place": "excl", "walltime": "1:00:00"}
REWRITE = {
    "select": "1:ncpus=20:mpiprocs=1:node_type=bdw",
    "place": "excl",
    "cpu_freq_mhz": "1900",
}
Behaviour = Callable[[socket.socket, bytes], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def settings(path: Path, tmp_path: Path) -> dict[str, object]:
    return {"socket": str(path), "breaker": str(tmp_path / "breaker"), "deadline_s": 0.25}


def untouched(outcome: Outcome, event: Mapping[str, Any]) -> bool:
    """Whether the job was accepted just as it was submitted."""
    given = event["job"]
    return (
        outcome["answer"] == ["accept", ""]
        and outcome["failure"] is None
        and outcome["exit"] == "0"
        and outcome["resources"] == {k: str(v) for k, v in given["Resource_List"].items()}
        and outcome["variables"] == given["Variable_List"]
    )


def test_a_plan_is_written_whole(tmp_path: Path, path: Path, settings: dict[str, object]) -> None:
    with daemon(path, answering(plan(REWRITE))):
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert done["answer"] == ["accept", ""]
    assert done["resources"] == {**WHOLE, **REWRITE, "advisor_stamp": STAMP}
    assert done["variables"]["ADVISOR_DECISION"] == DECISION
    assert done["log"] == [f"advisor: job.sh: job rewritten, decision {DECISION}"]


def test_a_decision_to_change_nothing_is_stamped_too(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    with daemon(path, answering(plan())):
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert done["written"] == ["advisor_stamp"]
    assert done["resources"] == {**WHOLE, "advisor_stamp": STAMP}
    assert done["log"] == []


@pytest.mark.parametrize(
    ("resources", "rewrite", "after"),
    [
        (
            {"ncpus": 4, "mem": "8gb"},
            {"select": "1:ncpus=2:mem=8gb", "place": "pack:excl", "ncpus": "", "mem": ""},
            {"select": "1:ncpus=2:mem=8gb", "place": "pack:excl"},
        ),
        (
            {"nodes": "2:ppn=14"},
            {"select": "2:ncpus=10:mpiprocs=14", "place": "scatter:excl", "nodes": ""},
            {"select": "2:ncpus=10:mpiprocs=14", "place": "scatter:excl"},
        ),
        ({}, {"cpu_freq_mhz": "1200"}, {"cpu_freq_mhz": "1200"}),
        (
            {},
            {"select": "1:ncpus=1", "place": "pack:excl", "cpu_freq_mhz": "1200"},
            {"select": "1:ncpus=1", "place": "pack:excl", "cpu_freq_mhz": "1200"},
        ),
    ],
)
def test_older_forms_give_way_to_a_select(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    resources: dict[str, str | int],
    rewrite: dict[str, str],
    after: dict[str, str],
) -> None:
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [job(resources)], settings, folder=tmp_path)
    assert done["resources"] == {**after, "advisor_stamp": STAMP}, done["log"]


def test_what_is_asked(tmp_path: Path, path: Path, settings: dict[str, object]) -> None:
    event = job(
        WHOLE,
        {"ADVISOR_GOAL": "power", "SECRET": "x", "ADVISOR_QSUB": "packed", "ADVISOR_STAMP": "y"},
        queue="workq", Account_Name="climate", project="p1", array_indices_submitted="1-4",
    )  # fmt: skip
    with daemon(path, answering(plan())) as asked:
        [done] = run_hook(
            HOOK, [event], {**settings, "host_resources": ["node_type"]}, folder=tmp_path
        )
    question = json.loads(asked[0])
    assert question == {
        "v": 1, "op": "decide", "scheduler": "pbs", "hook": "queuejob", "type": "qsub",
        "user": "root", "host_resources": ["node_type"], "executable": "", "argument_list": "",
        "options": {
            **WHOLE, "queue": "workq", "account": "climate", "job-name": "job.sh",
            "project": "p1", "array": "1-4",
        },
        "submit_arguments": "<jsdl-hpcpa:Argument>job.sh</jsdl-hpcpa:Argument>",
        "client": "packed", "env": {"ADVISOR_GOAL": "power"}, "cwd": "/home/alice",
    }  # fmt: skip
    assert "ADVISOR_QSUB" not in done["variables"]
    assert done["variables"]["SECRET"] == "x"


@pytest.mark.parametrize(
    "event",
    [
        job(WHOLE, interactive=1),
        job(WHOLE, {"ADVISOR": "off"}),
        job(WHOLE, {"ADVISOR": "NO"}),
    ],
)
def test_interactive_jobs_and_those_who_opted_out_are_not_asked_about(
    tmp_path: Path, path: Path, settings: dict[str, object], event: dict[str, Any]
) -> None:
    with daemon(path, answering(plan(REWRITE))) as asked:
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert asked == []
    assert untouched(done, event)
    assert done["log"] == []


# -- what goes wrong ---------------------------------------------------------------------------


def test_no_daemon(tmp_path: Path, path: Path, settings: dict[str, object]) -> None:
    event = job(WHOLE)
    done, again = run_hook(HOOK, [event, event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert untouched(again, event)
    assert done["log"] == [
        f"advisor: job goes on unchanged: no daemon answers at {path}: No such file or directory"
    ]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))  # nobody listens
    [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    listener.close()
    assert untouched(done, event)
    assert "Connection refused" in done["log"][0]
    assert not (tmp_path / "breaker").exists()


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (hanging, "did not answer in time"),
        (dripping(plan(REWRITE), 0.05), "did not answer in time"),
        (answering(b"garbage\n"), "is not JSON"),
        (answering(b"\xff\xfe\n"), "is not JSON"),
        (answering(b"[" * 50_000 + b"\n"), "is not JSON"),
        (answering(b"[]\n"), "is not an object"),
        (answering(b"x" * 100_000), "too long"),
        (answering(plan(REWRITE, v=2)), "protocol version 1"),
        (answering(plan(REWRITE, decision="nope")), "no decision"),
        (answering(plan(REWRITE, decision=7)), "no decision"),
        (answering(plan(REWRITE, env={"PATH": "/x"})), "not one for PBS"),
        (answering(plan().replace(b"{}", b"[]", 1)), "not one for PBS"),
        (answering(plan(REWRITE, stamp="advisor:{'}")), "stamp is malformed"),
        (answering(plan(REWRITE, stamp=None)), "no stamp"),
        (answering(plan(REWRITE, stamp="advisor:{" + "x" * 2000 + "}")), "no stamp"),
        (answering(plan({"select": 4})), "makes no sense"),  # type: ignore[dict-item]
        (answering(plan({"select": "1:ncpus=4;rm"})), "not one the advisor writes"),
        (answering(plan({"select": "0:ncpus=4"})), "not one the advisor writes"),
        (answering(plan({"select": ""})), "not one the advisor writes"),
        (answering(plan({"place": "everywhere"})), "not one the advisor writes"),
        (answering(plan({"cpu_freq_mhz": "-1"})), "not one the advisor writes"),
        (answering(plan({"cpu_freq_mhz": "19e3"})), "not one the advisor writes"),
        (answering(plan({"walltime": "1:00"})), "not one the advisor writes"),
        (answering(plan({"executable": "/bin/rm"})), "not one the advisor writes"),
    ],
)
def test_a_daemon_that_misbehaves_is_asked_once(
    tmp_path: Path, path: Path, settings: dict[str, object], behave: Behaviour, said: str
) -> None:
    event = job(WHOLE)
    with daemon(path, behave) as asked:
        done, again = run_hook(HOOK, [event, event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert untouched(again, event)
    assert len(asked) == 1
    assert said in done["log"][0]
    assert done["log"][0].endswith("(not asked again for 30 s)")
    assert again["log"] == ["advisor: the daemon hung a moment ago and is not asked"]


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (lambda connection, _: None, "hung up"),
        (answering(b'{"v":1,"error":"no such user\\n\\u001b[2J"}\n'), "no such user"),
        (answering(plan({"bigmem": ""})), "not the advisor's to take out"),
        (answering(plan({"walltime": ""})), "not the advisor's to take out"),
        (answering(plan({"nosuch": ""})), "there is no resource nosuch"),
        (answering(plan({"select": "1:ncpus=64"})), "there is no inventory"),
        (answering(plan({"select": "2:ncpus=28"})), "there is no inventory"),
        (answering(plan({"select": "1:ncpus=28:node_type=skl"})), "there is no inventory"),
        (answering(plan({"select": "1:ncpus=28:nosuch=1"})), "there is no inventory"),
        (answering(plan({"place": "scatter:group=rack"})), "does not group"),
        (answering(plan({"place": "excl:excl:"})), "bad place"),
    ],
)
def test_a_plan_that_cannot_be_is_not_begun(
    tmp_path: Path, path: Path, settings: dict[str, object], behave: Behaviour, said: str
) -> None:
    event = job(WHOLE)
    with daemon(path, behave):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert done["written"] == []
    assert said in done["log"][0]
    assert "\x1b" not in done["log"][0]
    assert not (tmp_path / "breaker").exists()


INVENTORY = {
    "default": "workq",
    "queues": {
        "workq": [
            {"nodes": 2, "resources": {"ncpus": 28, "mem": 64 << 30, "node_type": "bdw"}},
            {"nodes": 1, "resources": {"ncpus": 64, "mem": 256 << 30, "node_type": "skl"}},
        ],
    },
}


@pytest.mark.parametrize(
    ("select", "place", "possible"),
    [
        ("2:ncpus=28:node_type=bdw", "scatter", True),
        ("3:ncpus=28:node_type=bdw", "scatter", False),
        ("3:ncpus=14:node_type=bdw", "free", True),
        ("5:ncpus=14:node_type=bdw", "free", False),
        ("1:ncpus=64:node_type=skl", "excl", True),
        ("1:ncpus=65:node_type=skl", "excl", False),
        ("1:ncpus=28:mem=128gb:node_type=bdw", "excl", False),
        ("1:ncpus=28:mem=128gb", "excl", True),
        ("1:ncpus=28:node_type=rome", "excl", False),
        ("1:ncpus=28:ngpus=1", "excl", False),
    ],
)
def test_the_inventory_says_what_can_run(
    tmp_path: Path, path: Path, settings: dict[str, object], select: str, place: str, possible: bool
) -> None:
    event = job({"select": "1:ncpus=1", "place": "free"})
    settings["inventory"] = json.dumps(INVENTORY)
    with daemon(path, answering(plan({"select": select, "place": place}))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    if possible:
        assert done["resources"]["select"] == select, done["log"]
    else:
        assert untouched(done, event)
        assert "has no nodes for" in done["log"][0]


def test_an_unknown_queue_is_left_alone(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    event = job({"select": "1:ncpus=1"}, queue="gpuq")
    settings["inventory"] = json.dumps(INVENTORY)
    with daemon(path, answering(plan({"select": "1:ncpus=28"}))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert "queue gpuq is not in the inventory" in done["log"][0]


def test_the_alarm_in_the_middle_of_it_lets_the_job_go(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    event = job(WHOLE)
    settings["deadline_s"] = 5.0

    def interrupt(connection: socket.socket, _: bytes) -> None:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        os.kill(struct.unpack("3i", peer)[0], signal.SIGINT)
        hanging(connection, _)

    with daemon(path, interrupt):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert "KeyboardInterrupt" in done["log"][0]


def test_a_write_that_fails_takes_the_others_back(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """The resource vanishes between the check and the write, as when an admin deletes it."""
    event = job({"ncpus": 4, "mem": "1gb"})
    hook = tmp_path / "broken.py"
    text = (HOOKS / HOOK).read_text()
    assert "variables[DECISION] = plan" in text
    hook.write_text(text.replace("variables[DECISION] = plan", "variables['PBS_O_X'] = plan"))
    rewrite = {"select": "1:ncpus=2:mem=1gb", "place": "pack:excl", "ncpus": "", "mem": ""}
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(str(hook), [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert len(done["written"]) == 10
    assert "readonly" in done["log"][-1]


@pytest.mark.parametrize("config", ["{", "[]", '{"deadline_s": "soon"}', '{"socket": null}'])
def test_broken_settings(tmp_path: Path, config: str) -> None:
    event = job(WHOLE)
    (tmp_path / "c.json").write_text(config)
    [done] = run_hook(HOOK, [event], tmp_path / "c.json", folder=tmp_path)
    assert untouched(done, event)
    assert len(done["log"]) == 1


def test_settings_that_are_gone(tmp_path: Path) -> None:
    event = job(WHOLE)
    [done] = run_hook(HOOK, [event], tmp_path / "nosuch.json", folder=tmp_path)
    assert untouched(done, event)
    assert "No such file" in done["log"][0]


def test_without_settings_the_server_s_environment_names_the_socket(
    tmp_path: Path, path: Path
) -> None:
    with daemon(path, answering(plan(REWRITE))):
        [done] = run_hook(
            HOOK, [job(WHOLE)], folder=tmp_path, environment={"ADVISOR_SOCKET": str(path)}
        )
    assert done["resources"]["cpu_freq_mhz"] == "1900"


def test_a_breaker_file_of_somebody_else_is_not_believed(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    (tmp_path / "breaker").symlink_to(tmp_path / "elsewhere")
    with daemon(path, answering(plan(REWRITE))) as asked:
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert len(asked) == 1
    assert done["resources"]["cpu_freq_mhz"] == "1900"
    with daemon(tmp_path / "h", hanging):
        settings["socket"] = str(tmp_path / "h")
        run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "breaker").is_symlink()


def test_it_is_python_3_6_and_standard_library() -> None:
    text = (HOOKS / HOOK).read_text(encoding="ascii")
    tree = ast.parse(text, feature_version=(3, 6))
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported - {"pbs"} <= {"json", "os", "re", "socket", "stat", "time"}
    assert not any(isinstance(node, ast.Assert | ast.NamedExpr) for node in ast.walk(tree))


def pythons() -> Iterator[str]:
    """Yield other Pythons of this machine that a PBS may be built with."""
    for minor in (6, 7, 8, 9, 10, 12, 13):
        managed = Path.home() / ".pyenv" / "versions"
        places: list[str | Path | None] = [shutil.which(f"python3.{minor}")]
        places += managed.glob(f"3.{minor}.*/bin/python")
        for python in [p for p in places if p]:
            try:
                done = subprocess.run([python, "-c", "1"], capture_output=True, check=False)
            except OSError:
                continue
            if done.returncode == 0:
                yield str(python)
                break


def test_other_pythons_of_this_machine_run_it(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    found = list(pythons())
    if not found:
        pytest.skip("this machine has one Python")
    for python in found:
        with daemon(path, answering(plan(REWRITE))):
            [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path, python=python)
        path.unlink()
        assert done["resources"]["cpu_freq_mhz"] == "1900", python
