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

from advisor.schedulers.pbs.hooks import PbsHookSettings, queuejob_config
from tests.schemas import check_request
from tests.stopped import stop_peer

HOOK = "advisor_queuejob.py"
WHOLE = {"select": "1:ncpus=28:mpiprocs=1:node_type=bdw", "place": "excl", "walltime": "1:00:00"}
REWRITE = {"select": WHOLE["select"] + ":ompthreads=20", "cpu_freq_mhz": "1900"}
Behaviour = Callable[[socket.socket, bytes], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def settings(path: Path, tmp_path: Path) -> dict[str, object]:
    installed = queuejob_config(PbsHookSettings(path, deadline_s=0.25), None)
    return {**installed, "breaker": str(tmp_path / "breaker"), "host_resources": ["node_type"]}


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
    assert done["resources"] == {**WHOLE, **REWRITE, "advisor_stamp": STAMP}, done["log"]
    assert done["variables"]["ADVISOR_DECISION"] == DECISION
    assert done["log"] == [f"advisor: job.sh: job rewritten, decision {DECISION}"]


def test_an_answer_of_the_version_before_is_written_whole(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """The daemon's host may be upgraded last: the hook takes what version 0.2.0 answered."""
    answer = (
        HOOKS.parents[1] / "tests" / "golden" / "hooks_0_2_0" / "queuejob.answer"
    ).read_bytes()
    asked = {"select": "1:ncpus=28:mpiprocs=1:ompthreads=28", "place": "excl"}
    with daemon(path, answering(answer)):
        [done] = run_hook(HOOK, [job(asked)], {**settings, "deadline_s": 30}, folder=tmp_path)
    said = json.loads(answer)
    assert said["rewrite"] and done["answer"] == ["accept", ""]
    written = {**asked, **said["rewrite"], "advisor_stamp": said["stamp"]}
    assert done["resources"] == written, done["log"]


def test_a_decision_to_change_nothing_is_stamped_too(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    with daemon(path, answering(plan())):
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert done["written"] == ["advisor_stamp"]
    assert done["resources"] == {**WHOLE, "advisor_stamp": STAMP}
    assert done["log"] == []


@pytest.mark.parametrize(
    ("resources", "rewrite"),
    [
        ({"ncpus": 28, "mem": "8gb"}, {"ompthreads": "20", "cpu_freq_mhz": "1200"}),
        ({}, {"ompthreads": "1"}),
        ({"nodes": "2:ppn=14"}, {"cpu_freq_mhz": "1200"}),
        ({}, {"cpu_freq_mhz": "1200"}),
    ],
)
def test_older_forms_stay_as_they_are(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    resources: dict[str, str | int],
    rewrite: dict[str, str],
) -> None:
    """A site need not have every resource of a host: reading one it has not raises."""
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [job(resources)], settings, folder=tmp_path)
    given = {k: str(v) for k, v in resources.items()}
    assert done["resources"] == {**given, **rewrite, "advisor_stamp": STAMP}, done["log"]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("1:ncpus=28", "1:ncpus=28:ompthreads=20"),
        ("ncpus=28:ompthreads=28", "ncpus=28:ompthreads=20"),
        ("2:ncpus=4:mem=1gb+2:ncpus=4:mem=1gb", "2:ncpus=4:mem=1gb:ompthreads=2+2:ncpus=4:mem=1gb"),
        ("1:ncpus=14:mem=4gb", "1:ncpus=10:mem=4gb"),
        ("ncpus=14:mem=4gb:ompthreads=14", "ncpus=10:mem=4gb:ompthreads=10"),
    ],
)
def test_what_may_be_written_into_a_chunk(
    tmp_path: Path, path: Path, settings: dict[str, object], was: str, now: str
) -> None:
    with daemon(path, answering(plan({"select": now}))):
        [done] = run_hook(HOOK, [job({"select": was})], settings, folder=tmp_path)
    assert done["resources"]["select"] == now, done["log"]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (job({"select": "1:ncpus=28:bigmem=True"}), "does not know bigmem"),
        (job({"select": "1:ncpus=28", "energy_j": 3}, sched_hint="x"), "does not know sched_hint"),
    ],
)
def test_what_is_not_in_the_installed_list_is_not_rewritten(
    tmp_path: Path, path: Path, settings: dict[str, object], event: dict[str, Any], said: str
) -> None:
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert said in done["log"][0]


def test_a_route_to_another_server_is_left_alone(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """That server may not know the stamp's resource, and would refuse the job."""
    event = job(WHOLE, queue="far")
    with daemon(path, answering(plan(REWRITE))) as asked:
        [done] = run_hook(HOOK, [event], {**settings, "away": ["far"]}, folder=tmp_path)
    assert asked == []
    assert untouched(done, event)


def test_what_is_asked(tmp_path: Path, path: Path, settings: dict[str, object]) -> None:
    event = job(
        WHOLE,
        {"ADVISOR_GOAL": "power", "ADVISOR_SIZE_N": "4e6", "SECRET": "x",
         "ADVISOR_QSUB": "packed", "ADVISOR_STAMP": "y"},
        queue="workq", Account_Name="climate", project="p1", array_indices_submitted="1-4",
        Hold_Types="u", depend="afterok:1.pbs1", Priority="0", Mail_Points="a",
    )  # fmt: skip
    with daemon(path, answering(plan())) as asked:
        [done] = run_hook(
            HOOK, [event], {**settings, "host_resources": ["node_type"]}, folder=tmp_path
        )
    question = json.loads(asked[0])
    check_request(question)
    assert question == {
        "v": 1, "op": "decide", "scheduler": "pbs", "hook": "queuejob", "type": "qsub",
        "user": "root", "host_resources": ["node_type"], "executable": "", "argument_list": "",
        "options": {
            **WHOLE, "queue": "workq", "account": "climate", "job-name": "job.sh",
            "project": "p1", "array": "1-4",
        },
        "attributes": {"Hold_Types": "u", "depend": "afterok:1.pbs1"},
        "submit_arguments": "<jsdl-hpcpa:Argument>job.sh</jsdl-hpcpa:Argument>",
        "client": "packed", "cwd": "/home/alice",
        "env": {"ADVISOR_GOAL": "power", "ADVISOR_SIZE_N": "4e6"},
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
        (answering(plan(REWRITE, env={"PATH": "/x"})), "not a number of threads"),
        (answering(plan(REWRITE, env={"MKL_NUM_THREADS": "0"})), "not a number of threads"),
        (answering(plan(REWRITE, env={"MKL_NUM_THREADS": 4})), "not a number of threads"),
        (answering(plan(REWRITE, env=["MKL_NUM_THREADS"])), "not one for PBS"),
        (answering(plan().replace(b"{}", b"[]", 1)), "not one for PBS"),
        (answering(plan(REWRITE, stamp="advisor:{'}")), "stamp is malformed"),
        (answering(plan(REWRITE, stamp=None)), "no stamp"),
        (answering(plan(REWRITE, stamp="advisor:{" + "x" * 2000 + "}")), "no stamp"),
        (answering(plan({"select": 4})), "is not valid"),  # type: ignore[dict-item]
        (answering(plan({"select": "1:ncpus=4 rm"})), "not one the advisor writes"),
        (answering(plan({"select": "1:ncpus=4:file='x'"})), "not one the advisor writes"),
        (answering(plan({"select": ""})), "not one the advisor writes"),
        (answering(plan({"place; x": "free"})), "not one the advisor writes"),
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
        (answering(plan({"bigmem": "x"})), "not the advisor's to write"),
        (answering(plan({"node_type": "x"})), "not the advisor's to write"),
        (answering(plan({"walltime": "x"})), "not the advisor's to write"),
        (answering(plan({"place": "excl"})), "not the advisor's to write"),
        (answering(plan({"ompthreads": "4"})), "not the advisor's to write"),
        (answering(plan({"nosuch": "x"})), "there is no resource nosuch"),
        (answering(plan(env={"LD_PRELOAD": "4"})), "not the advisor's to set"),
        (answering(plan(env={"OMP_NUM_THREADS": "4"})), "not the advisor's to set"),
        (answering(plan(REWRITE, env={"PBS_O_X": "4"})), "not the advisor's to set"),
        (answering(plan({"select": "1:ncpus=64:mpiprocs=1:node_type=bdw"})), "does not write"),
        (answering(plan({"select": "2:ncpus=28:mpiprocs=1:node_type=bdw"})), "does not write"),
        (answering(plan({"select": "1:ncpus=28:mpiprocs=2:node_type=bdw"})), "does not write"),
        (answering(plan({"select": "1:ncpus=28:mpiprocs=1:node_type=skl"})), "does not write"),
        (answering(plan({"select": "1:ncpus=28:node_type=bdw"})), "takes nothing out"),
        (answering(plan({"select": WHOLE["select"] + ":nosuch=1"})), "does not write"),
        (answering(plan({"select": WHOLE["select"] + "+1:ncpus=1"})), "does not make chunks"),
        (answering(plan({"select": WHOLE["select"] + ":ompthreads="})), "does not write"),
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
    ("select", "place", "kind", "possible"),
    [
        ("2:ncpus=28", "scatter", "bdw", True),
        ("3:ncpus=28", "scatter", "bdw", False),
        ("3:ncpus=14", "free", "bdw", True),
        ("5:ncpus=14", "free", "bdw", False),
        ("1:ncpus=64", "excl", "skl", True),
        ("1:ncpus=65", "excl", "skl", False),
        ("1:ncpus=28:mem=128gb", "excl", "bdw", False),
        ("1:ncpus=28:mem=128gb", "excl", "skl", True),
        ("1:ncpus=28", "excl", "rome", False),
    ],
)
def test_the_inventory_says_what_can_run(
    tmp_path: Path, path: Path, settings: dict[str, object], select: str, place: str, kind: str,
    possible: bool,
) -> None:  # fmt: skip
    event = job({"select": select, "place": place})
    settings["inventory"] = json.dumps(INVENTORY)
    with daemon(path, answering(plan({"select": f"{select}:node_type={kind}"}))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    if possible:
        assert done["resources"]["select"] == f"{select}:node_type={kind}", done["log"]
    else:
        assert untouched(done, event)
        assert "has no nodes for" in done["log"][0]


THREADS = {"MKL_NUM_THREADS": "20", "GOMAXPROCS": "20"}


def test_variables_that_set_threads(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """They are written beside the user's own, and are not handed on to jobs from inside."""
    event = job(WHOLE, {"CASE": "7"})
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}, env=THREADS))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    before = event["job"]["Variable_List"]
    marks = {"ADVISOR_DECISION": DECISION, "ADVISOR_SET": "GOMAXPROCS=20 MKL_NUM_THREADS=20"}
    assert done["variables"] == {**before, **THREADS, **marks}
    child = job(WHOLE, {**done["variables"], "GOMAXPROCS": "3"})
    path.unlink()
    with daemon(path, answering(plan())) as asked:
        [done] = run_hook(HOOK, [child], settings, folder=tmp_path)
    assert json.loads(asked[0])["env"] == {"GOMAXPROCS": "3"}
    assert done["variables"] == {**before, "GOMAXPROCS": "3", "ADVISOR_DECISION": DECISION}


def test_a_variable_of_the_user_s_own_stays(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    event = job(WHOLE, {"MKL_NUM_THREADS": "28"})
    with daemon(path, answering(plan({"cpu_freq_mhz": "1900"}, env=THREADS))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert "MKL_NUM_THREADS is not the advisor's to set here" in done["log"][0]


def test_an_unknown_queue_is_left_alone(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    event = job({"select": "1:ncpus=1"}, queue="gpuq")
    settings["inventory"] = json.dumps(INVENTORY)
    with daemon(path, answering(plan({"select": "1:ncpus=1:node_type=bdw"}))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert "queue gpuq is not in the inventory" in done["log"][0]


def test_a_host_that_stands_still_is_not_a_daemon_that_hangs(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """The answer comes long after the deadline, but the hook did not run meanwhile."""

    def stop(connection: socket.socket, line: bytes) -> None:
        stop_peer(connection, 1.5)
        answering(plan(REWRITE))(connection, line)

    with daemon(path, stop):
        [done] = run_hook(HOOK, [job(WHOLE)], {**settings, "deadline_s": 1.0}, folder=tmp_path)
    assert done["resources"] == {**WHOLE, **REWRITE, "advisor_stamp": STAMP}, done["log"]
    assert not (tmp_path / "breaker").exists()


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
    assert text.count('"ADVISOR_DECISION"') == 1
    hook.write_text(text.replace('"ADVISOR_DECISION"', '"PBS_O_X"'))
    rewrite = {"ompthreads": "2", "cpu_freq_mhz": "1900"}
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(str(hook), [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert len(done["written"]) == 6
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
    with daemon(path, answering(plan())):
        [done] = run_hook(
            HOOK, [job(WHOLE)], folder=tmp_path, environment={"ADVISOR_SOCKET": str(path)}
        )
    assert done["resources"]["advisor_stamp"] == STAMP
    with daemon(tmp_path / "t", answering(plan(REWRITE))):
        [done] = run_hook(
            HOOK, [job(WHOLE)], folder=tmp_path, environment={"ADVISOR_SOCKET": f"{tmp_path}/t"}
        )
    assert "does not know" in done["log"][0]  # what there is to know is installed with it


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
    assert imported - {"pbs"} <= {"json", "os", "re", "select", "socket", "stat", "struct", "time"}
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
