"""The queuejob hook in a fresh interpreter against a strict stand-in: what it asks and writes."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hooked import DECISION, HOOKS, STAMP, answering, daemon, job, plan, run_hook
from queuejob.whole import HOOK, REWRITE, WHOLE, stamped, untouched

from tests.schemas import check_request


def test_a_plan_is_written_whole(tmp_path: Path, path: Path, settings: dict[str, object]) -> None:
    with daemon(path, answering(plan(REWRITE))):
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert done["answer"] == ["accept", ""]
    assert done["resources"] == stamped(WHOLE, REWRITE), done["log"]
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
    written = stamped(asked, said["rewrite"], said["stamp"])
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
        ({"ncpus": 28, "mpiprocs": 4}, {"ompthreads": "7"}),
        ({}, {"ompthreads": "1"}),
        ({"nodes": "2:ppn=28"}, {"cpu_freq_mhz": "1200"}),
        ({"nodes": "1:ppn=14:cpp=2"}, {"cpu_freq_mhz": "1200"}),
        ({"nodes": "1:ppn=4#excl"}, {"cpu_freq_mhz": "1200"}),
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
        [done] = run_hook(HOOK, [job(resources, queue="bdw")], settings, folder=tmp_path)
    assert done["resources"] == stamped(resources, rewrite), done["log"]


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


@pytest.mark.parametrize("change", [plan({"cpu_freq_mhz": "1900"}), plan(env={"GOMAXPROCS": "1"})])
@pytest.mark.parametrize(
    ("event", "said"),
    [
        (job({"select": "1:ncpus=28:bigmem=True"}), "does not know bigmem"),
        (job({"select": "1:ncpus=28", "energy_j": 3}, sched_hint="x"), "does not know sched_hint"),
    ],
)
def test_what_is_not_in_the_installed_list_is_not_rewritten(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    event: dict[str, Any],
    said: str,
    change: bytes,
) -> None:
    with daemon(path, answering(change)):
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
        {
            "ADVISOR_GOAL": "power",
            "ADVISOR_SIZE_N": "4e6",
            "SECRET": "x",
            "ADVISOR_QSUB": "packed",
            "ADVISOR_STAMP": "y",
        },
        queue="workq",
        Account_Name="climate",
        project="p1",
        array_indices_submitted="1-4",
        Hold_Types="u",
        depend="afterok:1.pbs1",
        Priority="0",
        Mail_Points="a",
        Execution_Time="0",
        create_resv_from_job="False",
    )
    with daemon(path, answering(plan())) as asked:
        [done] = run_hook(
            HOOK,
            [event],
            {**settings, "host_resources": ["node_type"], "cluster": "pbs1"},
            folder=tmp_path,
        )
    question = json.loads(asked[0])
    check_request(question)
    assert question == {
        "v": 1,
        "op": "decide",
        "scheduler": "pbs",
        "hook": "queuejob",
        "cluster": "pbs1",
        "type": "qsub",
        "user": "root",
        "host_resources": ["node_type"],
        "executable": "",
        "argument_list": "",
        "options": {
            **WHOLE,
            "queue": "workq",
            "account": "climate",
            "job-name": "job.sh",
            "project": "p1",
            "array": "1-4",
        },
        "attributes": {"Hold_Types": "u", "depend": "afterok:1.pbs1"},
        "submit_arguments": "<jsdl-hpcpa:Argument>job.sh</jsdl-hpcpa:Argument>",
        "client": "packed",
        "cwd": "/home/alice",
        "env": {"ADVISOR_GOAL": "power", "ADVISOR_SIZE_N": "4e6"},
    }
    assert "ADVISOR_QSUB" not in done["variables"]
    assert done["variables"]["SECRET"] == "x"


def test_what_is_too_long_is_not_sent(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    event = job(
        WHOLE,
        {"ADVISOR_QSUB": "x" * 65537, "ADVISOR_GOAL": "x" * 65536},
        Submit_arguments="x" * 65537,
        depend="x" * 201,
    )
    with daemon(path, answering(plan())) as asked:
        run_hook(HOOK, [event], settings, folder=tmp_path)
    question = json.loads(asked[0])
    assert (question["client"], question["submit_arguments"]) == ("", "")
    assert question["env"] == {"ADVISOR_GOAL": "x" * 65536}
    assert question["attributes"] == {"depend": "x" * 200}


def test_a_long_question_is_sent_whole(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """More than a socket holds at once; of sizes there are twenty."""
    sizes = {f"ADVISOR_SIZE_{number:02d}": "x" * 65536 for number in range(21)}
    event = job(WHOLE, {**sizes, "ADVISOR_SIZES": "x"}, queue=None)
    with daemon(path, answering(plan(REWRITE, env=None))) as asked:
        [done] = run_hook(HOOK, [event], {**settings, "deadline_s": 10.0}, folder=tmp_path)
    question = json.loads(asked[0])
    assert sorted(question["env"]) == sorted(sizes)[:20]
    assert "queue" not in question["options"]
    assert done["resources"] == stamped(WHOLE, REWRITE), done["log"]


def test_a_stamp_may_be_as_long_as_two_thousand_characters(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    stamp = "advisor:{" + "x" * 1990 + "}"
    with daemon(path, answering(plan(stamp=stamp))):
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert done["resources"]["advisor_stamp"] == stamp


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


@pytest.mark.parametrize(
    ("select", "place", "kind", "possible"),
    [
        ("2:ncpus=28", "scatter", "bdw", True),
        ("3:ncpus=28", "scatter", "bdw", False),
        ("3:ncpus=14", "free", "bdw", True),
        ("3:ncpus=14", "scatter", "bdw", False),
        ("5:ncpus=14", "free", "bdw", False),
        ("1:ncpus=64", "excl", "skl", True),
        ("1:ncpus=65", "excl", "skl", False),
        ("1:ncpus=28:mem=128gb", "excl", "bdw", False),
        ("1:ncpus=28:mem=128gb", "excl", "skl", True),
        ("1:ncpus=28", "excl", "rome", False),
    ],
)
def test_the_inventory_says_what_can_run(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    select: str,
    place: str,
    kind: str,
    possible: bool,
) -> None:
    event = job({"select": select, "place": place})
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
    with daemon(path, answering(plan({"select": "1:ncpus=1:node_type=bdw"}))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert "queue gpuq is not in the inventory" in done["log"][0]


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
