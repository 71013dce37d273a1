"""The installed cli_filter without Slurm: whom it asks when, and what it assigns or leaves."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from advisor.core.protocol import OFF
from tests.schemas import check_request
from tests.unit.hook_lua.installed import DECISION, LATE_S, STAMP, Installed, Job, answer
from tests.unit.hook_lua.modules import LUAS

pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")

CAP = "1200000-1900000"
PLAN = answer(
    {"constraint": "old", "cpu-freq": CAP, "cpus-per-task": "10"}, {"OMP_NUM_THREADS": "9"}
)
OURS = ("ADVISOR_", "SLURM_ADVISOR_", "OMP_", "MKL_", "SLURM_CPU")


def ours(job: Job) -> dict[str, str]:
    """Return the variables that the filter may have touched."""
    return {name: value for name, value in job.env.items() if name.startswith(OURS)}


def assert_as_written(job: Job, options: Mapping[str, str], **env: str) -> None:
    """Check that nothing of a job is anybody's but its user's."""
    assert {k: v for k, v in job.values.items() if k != "type"} == dict(options)
    assert ours(job) == env
    assert job.results == ["0"]


def test_a_whole_plan_is_assigned(installed: Installed) -> None:
    installed.reply = lambda _: PLAN
    job = installed.filter(
        {"cpus-per-task": "14", "cpu-freq": "1200000-2000000"},
        OMP_NUM_THREADS="12",
        MKL_NUM_THREADS="2",
    )
    assert job.values == {
        "type": "sbatch",
        "constraint": "old",
        "cpu-freq": CAP,
        "cpus-per-task": "10",
    }
    assert ours(job) == {
        "ADVISOR_DECISION": DECISION,
        "ADVISOR_STAMP": STAMP,
        "OMP_NUM_THREADS": "9",
        "MKL_NUM_THREADS": "2",
        "ADVISOR_SET": "OMP_NUM_THREADS=9<12 SLURM_CPUS_PER_TASK=10<14"
        f" SLURM_CPU_FREQ_REQ={CAP}<1200000-2000000",
    }
    assert (job.said, job.log, job.results) == ("", [], ["0"])
    [request] = job.requests
    check_request(request)
    names = ("v", "op", "scheduler", "hook", "cluster", "type", "het", "argv")
    assert {name: request[name] for name in names} == {
        "v": 1,
        "op": "decide",
        "scheduler": "slurm",
        "hook": "cli_filter",
        "cluster": "alpha",
        "type": "sbatch",
        "het": False,
        "argv": ["job.sh"],
    }
    assert request["options"]["cpus-per-task"] == "14"


def test_an_answer_without_changes_only_stamps(installed: Installed) -> None:
    options = {"nodelist": "a1", "no-such-option": "x"}
    job = installed.filter(options)
    assert_as_written(job, options, ADVISOR_DECISION=DECISION, ADVISOR_STAMP=STAMP)
    installed.reply = lambda _: answer(stamp=None)
    assert_as_written(installed.filter(options), options, ADVISOR_DECISION=DECISION)


@pytest.mark.parametrize("export", ["NONE", "PATH", "NIL", "ALLUSERS", "PATH,CALL"])
def test_what_is_set_travels_where_not_all_is_exported(installed: Installed, export: str) -> None:
    installed.reply = lambda _: answer({"cpu-freq": CAP}, {"OMP_NUM_THREADS": "4"})
    job = installed.filter({"export": export}, OMP_NUM_THREADS="7")
    assert job.values["export"] == f"{export},OMP_NUM_THREADS=4"
    assert ours(job) == {
        "ADVISOR_DECISION": DECISION,
        "SLURM_ADVISOR_STAMP": STAMP,
        "OMP_NUM_THREADS": "4",
        "SLURM_ADVISOR_SET": f"OMP_NUM_THREADS=4 SLURM_CPU_FREQ_REQ={CAP}",
    }
    installed.reply = lambda _: answer({"cpu-freq": CAP})
    assert installed.filter({"export": export}).values["export"] == export


def test_of_an_export_of_all_nothing_is_changed(installed: Installed) -> None:
    installed.reply = lambda _: answer({}, {"OMP_NUM_THREADS": "4"})
    for export in ("ALL", "all,A=1"):
        job = installed.filter({"export": export})
        assert job.values["export"] == export
        assert ours(job)["ADVISOR_SET"] == "OMP_NUM_THREADS=4"


def test_what_was_there_is_kept_in_one_word_whatever_is_in_it(installed: Installed) -> None:
    installed.reply = lambda _: answer({}, {"OMP_NUM_THREADS": "4"})
    set_ = ours(installed.filter(OMP_NUM_THREADS=" 2;%<,\u00e9"))["ADVISOR_SET"]
    assert set_ == "OMP_NUM_THREADS=4<%202%3b%25%3c,%c3%a9"
    installed.reply = lambda _: answer()
    job = installed.filter(OMP_NUM_THREADS="4", ADVISOR_SET=set_)
    assert ours(job)["OMP_NUM_THREADS"] == " 2;%<,\u00e9"


@pytest.mark.parametrize("word", OFF)
def test_off_is_off(installed: Installed, word: str) -> None:
    installed.reply = lambda _: PLAN
    for value in (word, word.upper()):
        job = installed.filter({"cpus-per-task": "14"}, ADVISOR=value)
        assert not job.requests
        assert_as_written(job, {"cpus-per-task": "14"}, **{})
        # inside an advised job what that one was given is taken out nevertheless
        job = installed.filter(
            {"cpus-per-task": "14"},
            ADVISOR=value,
            ADVISOR_SET="OMP_NUM_THREADS=4<2",
            OMP_NUM_THREADS="4",
        )
        assert not job.requests
        assert_as_written(job, {"cpus-per-task": "14"}, OMP_NUM_THREADS="2")


@pytest.mark.parametrize("prefix", ["", "SLURM_"])
@pytest.mark.parametrize("name", ["ADVISOR_STAMP", "ADVISOR_SET"])
def test_off_takes_out_what_an_outer_job_was_given(
    installed: Installed, prefix: str, name: str
) -> None:
    """Each for itself: job_submit takes a stamp for the job's own."""
    given = cast(dict[str, Any], {prefix + name: "x"})
    job = installed.filter(ADVISOR="off", **given)
    assert not job.requests and prefix + name not in job.env


@pytest.mark.parametrize("word", ["on", "", "offf", "of", "off no", "[", "."])
def test_what_is_not_off_is_asked_about(installed: Installed, word: str) -> None:
    assert len(installed.filter(ADVISOR=word).requests) == 1


@pytest.mark.parametrize(
    ("kind", "options", "env", "offsets"),
    [
        ("srun", {}, {"SLURM_JOB_ID": "7"}, [0]),
        ("srun", {}, {"SLURM_JOBID": "7"}, [0]),
        ("srun", {"jobid": "7"}, {}, [0]),
        ("scrun", {}, {}, [0]),
        ("sbatch", {}, {}, [1]),
    ],
)
def test_steps_and_later_components_are_left_alone(
    installed: Installed,
    kind: str,
    options: dict[str, str],
    env: dict[str, Any],
    offsets: list[int],
) -> None:
    installed.reply = lambda _: PLAN
    set_: dict[str, Any] = {"ADVISOR_STAMP": "x", "ADVISOR_SET": "GOMAXPROCS=4", "GOMAXPROCS": "4"}
    job = installed.filter(options, kind=kind, offsets=offsets, **env, **set_)
    assert not job.requests
    assert job.env["GOMAXPROCS"] == "4"
    assert_as_written(job, options, ADVISOR_STAMP="x", ADVISOR_SET="GOMAXPROCS=4")


def test_a_batch_job_of_a_job_is_a_job(installed: Installed) -> None:
    assert len(installed.filter(SLURM_JOB_ID="7", SLURM_JOBID="7").requests) == 1


def test_what_an_outer_job_was_given_is_taken_out(installed: Installed) -> None:
    set_ = f"OMP_NUM_THREADS=4 MKL_NUM_THREADS=2<%20x%2Cy SLURM_CPU_FREQ_REQ={CAP} GOMAXPROCS=3<1"
    for name in ("ADVISOR_SET", "SLURM_ADVISOR_SET"):
        job = installed.filter(
            OMP_NUM_THREADS="4",
            MKL_NUM_THREADS="2",
            SLURM_CPU_FREQ_REQ=CAP,
            GOMAXPROCS="5",
            ADVISOR_STAMP="advisor:{}",
            SLURM_ADVISOR_STAMP="advisor:{}",
            ADVISOR_DECISION="x",
            **cast(dict[str, Any], {name: set_}),
        )
        assert ours(job) == {
            "MKL_NUM_THREADS": " x,y",
            "ADVISOR_DECISION": DECISION,
            "ADVISOR_STAMP": STAMP,
        }
        assert job.env["GOMAXPROCS"] == "5"  # changed since: its user's own
        assert job.requests[0]["env"].get("OMP_NUM_THREADS") is None
    # the outer job's stamp goes with no job but that one
    installed.reply = lambda _: b'{"v":1,"error":"busy"}\n'
    job = installed.filter(
        ADVISOR_STAMP="advisor:{}", SLURM_ADVISOR_STAMP="advisor:{}", ADVISOR_DECISION="x"
    )
    assert_as_written(job, {})


@pytest.mark.parametrize("kind", ["srun", "salloc", "sbatch"])
def test_the_daemon_is_told_the_id_of_what_carries_no_stamp(
    installed: Installed, kind: str
) -> None:
    job = installed.filter(kind=kind, posts=[1, 0, 0])
    assert (job.results, job.log) == (["0"] * 4, [])
    told = [r for r in job.requests if r["op"] == "submitted"]
    one = {"v": 1, "op": "submitted", "decision": DECISION, "job": "4294967200"}
    assert told == ([] if kind == "sbatch" else [one])
    # a submission that was not asked about tells nothing of the one before
    assert len(installed.filter(kind=kind, posts=[0], explicit="").requests) == 0
    replies = [answer(), b'{"v":1,"error":"busy"}\n']
    installed.reply = lambda _: replies.pop(0)
    job = installed.filter(kind=kind, offsets=[0, 0], posts=[0])
    assert [r["op"] for r in job.requests] == ["decide", "decide"]


def test_a_job_does_not_wait_for_an_answer_to_its_id(installed: Installed) -> None:
    done = threading.Event()

    def reply(request: dict[str, Any]) -> bytes:
        if request["op"] == "submitted":
            done.wait(LATE_S)
        return answer()

    installed.reply = reply
    begin = time.monotonic()
    installed.filter(kind="salloc", posts=[0])
    done.set()
    assert time.monotonic() - begin < LATE_S


@pytest.mark.parametrize(
    ("answer_", "options", "why"),
    [
        (answer({"constraint": "none"}), {}, "and feature none"),
        (answer({"constraint": "new"}), {"partition": "debug"}, "partition debug has no"),
        (answer({"constraint": "old"}), {"nodelist": "a1"}, "--nodelist binds it"),
        (answer({"constraint": "old"}), {"no-such": "a1"}, "--no-such is not understood"),
        (answer({"cpu-freq": "1200000-2000000"}), {"constraint": "old"}, "no frequency step"),
        (answer({}, {"OMP_NUM_THREADS": "15"}), {"cpus-per-task": "14"}, "more threads"),
        (answer({"cpus-per-task": "15"}), {"cpus-per-task": "14"}, "15 cores a task are more"),
        (answer({"nodes": "1"}), {}, "is not one the advisor writes"),
    ],
)
def test_a_plan_that_must_not_be_is_not_assigned(
    installed: Installed, answer_: bytes, options: dict[str, str], why: str
) -> None:
    installed.reply = lambda _: answer_
    job = installed.filter(options)
    assert_as_written(job, options)
    [line] = job.log
    assert line.startswith("<12>advisor: submitted unchanged: ") and why in line
    assert job.said == ""


def test_variables_bind_as_options_do(installed: Installed) -> None:
    installed.reply = lambda _: answer({"constraint": "old"})
    job = installed.filter(SBATCH_REQ_SWITCH="1")
    assert "constraint" not in job.values and "SBATCH_REQ_SWITCH binds it" in job.log[0]
    job = installed.filter(kind="srun", SBATCH_REQ_SWITCH="1")  # srun does not read it
    assert job.values["constraint"] == "old"


def test_what_slurm_has_set_is_not_what_the_user_asked_for(installed: Installed) -> None:
    """Options have values that nobody gave: only those in Slurm's JSON are the user's."""
    installed.reply = lambda _: answer({"constraint": "new"}, {"OMP_NUM_THREADS": "80"})
    job = installed.filter(more={"partition": "debug", "cpus-per-task": "3", "export": "NONE"})
    assert (job.values["constraint"], job.values["export"]) == ("new", "NONE")
    assert ours(job)["ADVISOR_STAMP"] == STAMP


@pytest.mark.parametrize("line", [b"hello\n", b"\n", b'{"v":2}\n', answer(decision="x")])
def test_a_daemon_that_answers_garbage_is_not_asked_for_a_while(
    installed: Installed, line: bytes
) -> None:
    installed.reply = lambda _: line
    job = installed.filter({"time": "1"})
    assert_as_written(job, {"time": "1"})
    assert "(not asked again for 30 s)" in job.log[0]
    breaker = installed.runtime / "advisor-breaker"
    assert breaker.exists()
    job = installed.filter({"time": "1"}, ADVISOR_DEBUG="1")
    assert (job.requests, job.log) == ([], [])  # no line for each of thousands
    assert job.said == (
        "advisor: submitted unchanged: the daemon hung a moment ago and is not asked\n"
    )
    os.utime(breaker, (1, 1))
    assert len(installed.filter().requests) == 1


def test_an_error_of_the_daemon_is_not_garbage(installed: Installed) -> None:
    installed.reply = lambda _: b'{"v":1,"error":"busy\\u0007"}\n'
    job = installed.filter({"time": "1"}, ADVISOR_DEBUG="1")
    assert_as_written(job, {"time": "1"}, ADVISOR_DEBUG="1")
    assert job.log == ["<12>advisor: submitted unchanged: the daemon says: busy "]
    assert job.said == "advisor: submitted unchanged: the daemon says: busy \n"
    assert not (installed.runtime / "advisor-breaker").exists()


@pytest.mark.parametrize("name", ["constraint", "cpu-freq", "cpus-per-task", "export"])
def test_what_was_assigned_is_taken_back_where_slurm_does_not_take_the_rest(
    installed: Installed, name: str
) -> None:
    installed.reply = lambda _: PLAN
    options = {
        "cpus-per-task": "14",
        "cpu-freq": "1200000-2000000",
        "export": "PATH",
        "constraint": "big",
    }
    job = installed.filter(options, fails=name, OMP_NUM_THREADS="12")
    assert_as_written(job, options, OMP_NUM_THREADS="12")
    assert job.log == ["<12>advisor: submitted unchanged: Slurm does not take it"]


def test_people_read_the_message_and_programs_do_not(installed: Installed) -> None:
    installed.reply = lambda _: answer(message="advisor: hello", to="always")
    assert installed.filter().said == "advisor: hello\n"
    assert installed.filter({"quiet": ""}).said == ""
    assert installed.filter(more={"quiet": ""}).said == "advisor: hello\n"
    installed.reply = lambda _: answer(message="advisor: hello")
    assert installed.filter().said == ""  # standard error is no terminal
    installed.reply = lambda _: answer(to="always")
    assert installed.filter().said == ""


@pytest.mark.parametrize("text", ["", "x", "[]", " {", "{", 'x{"argv":[]}'])
def test_slurm_does_not_say_what_was_asked_for(installed: Installed, text: str) -> None:
    installed.reply = lambda _: PLAN
    job = installed.filter({"cpus-per-task": "14"}, explicit=text)
    assert_as_written(job, {"cpus-per-task": "14"})
    assert len(job.log) == 1


@pytest.mark.parametrize("value", ["{}", '["14"]'])
def test_options_that_cannot_be_read_leave_a_job_as_it_is(installed: Installed, value: str) -> None:
    installed.reply = lambda _: answer({"cpus-per-task": "10"})
    options = {"cpus-per-task": "14"}
    explicit = f'{{"cpus-per-task":{value},"argv":["job.sh"]}}'
    job = installed.filter(options, explicit=explicit)
    assert_as_written(job, options)
    assert job.log[0].endswith(": what Slurm says the user asked for cannot be read")


def test_json_over_several_lines_and_with_raw_characters(installed: Installed) -> None:
    installed.reply = lambda _: answer({"constraint": "old"})
    lines = '{\n\t"time":"1",\n\t"argv":[\n\t\t"job.sh",\n\t\t"a"\n\t]\n}\n'
    job = installed.filter(explicit=lines)
    assert job.requests[0]["options"] == {"time": "1", "argv": ["job.sh", "a"]}
    assert job.requests[0]["argv"] == ["job.sh", "a"]
    assert job.values["constraint"] == "old"
    job = installed.filter(explicit='{"comment":"a\nb\tc\x01","argv":["job.sh"]}')
    assert job.requests[0]["options"]["comment"] == "a\nb\tc\x01"
    assert job.requests[0]["argv"] == ["job.sh"]
    assert installed.filter(explicit='{"time":"1"}').requests[0]["argv"] == []


def test_a_script_and_choices_go_along(installed: Installed, tmp_path: Path) -> None:
    (installed.folder / "job.sh").write_text("#!/bin/sh\nsrun ./app\n")
    places: list[tuple[Path, dict[str, Any]]] = [
        (tmp_path / "x", {"XDG_CONFIG_HOME": str(tmp_path / "x"), "HOME": "/nowhere"}),
        (tmp_path / "h/.config", {"XDG_CONFIG_HOME": "relative", "HOME": str(tmp_path / "h")}),
        (tmp_path / "h/.config", {"HOME": str(tmp_path / "h")}),
    ]
    for folder, env in places:
        (folder / "advisor").mkdir(parents=True, exist_ok=True)
        (folder / "advisor" / "choices.json").write_text("{}")
        [request] = installed.filter(**env).requests
        assert (request["choices"], request["script"]) == ("{}", "#!/bin/sh\nsrun ./app\n")
    [request] = installed.filter(kind="salloc").requests
    assert (request["script"], request["choices"], request["type"]) == (None, "", "salloc")
    assert request["script_path"] == ""


@pytest.mark.parametrize(
    ("kind", "words", "het"),
    [
        ("sbatch", [":", "-N1", "job.sh"], True),
        ("sbatch", ["-N1", "job.sh"], False),
        ("sbatch", ["-N1", ":", "job.sh", "a", "b"], True),
        ("sbatch", ["job.sh", ":"], False),
        ("sbatch", ["-N1", "job.sh", "a", ":", "b"], False),
        ("sbatch", ["-N1", ":"], False),  # the script's own name
        ("srun", ["a", ":", "b"], True),
        ("srun", ["a", "b"], False),
    ],
)
def test_one_component_is_no_base(
    installed: Installed, kind: str, words: list[str], het: bool
) -> None:
    installed.reply = lambda r: answer({} if r["het"] else {"constraint": "old"})
    argv = words[words.index("job.sh") :] if "job.sh" in words else words[-1:]
    job = installed.filter(kind=kind, words=words, argv=argv)
    assert [r["het"] for r in job.requests] == [False, True] if het else [False]
    assert job.values.get("constraint") == (None if het else "old")


def test_another_program_than_the_measured_one_is_asked_about_once(installed: Installed) -> None:
    app = installed.folder / "app"
    app.write_bytes(b"another")
    app.chmod(0o755)
    program = {"path": "./app", "size": "7", "mtime": "1", "build": "adler:00000000:7"}

    def reply(request: dict[str, Any]) -> bytes:
        if "program" in request:
            return answer(program=program)
        return answer({"constraint": "old"}, program=program)

    installed.reply = reply
    job = installed.filter()
    assert "constraint" not in job.values and ours(job)["ADVISOR_STAMP"] == STAMP
    assert len(job.requests) == 2
    check_request(job.requests[1])
    found = job.requests[1]["program"]
    assert found.pop("mtime").isdecimal() and found.pop("build").startswith("adler:")
    assert found == {"path": "./app", "size": "7", "instead": DECISION}
    installed.reply = lambda _: answer({"constraint": "old"}, program=program)
    job = installed.filter()  # a daemon that never ends asking
    assert len(job.requests) == 2
    status = app.stat()
    program["mtime"] = str(int(status.st_mtime))
    job = installed.filter()
    assert len(job.requests) == 1 and job.values["constraint"] == "old"


SITE = """\
function slurm_cli_pre_submit(options, offset)
  if options["job-name"] == "forbidden" then return slurm.ERROR end
  if options["job-name"] == "silent" then return nil end
  options.comment = "by site"
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def test_a_site_s_own_script_comes_first(installed: Installed) -> None:
    installed.reply = lambda _: answer({"constraint": "old"})
    installed.site("cli_filter.lua", SITE)
    job = installed.filter(posts=[0])
    assert (job.values["comment"], job.values["constraint"]) == ("by site", "old")
    assert (job.results, job.said, len(job.requests)) == (["0", "0"], "", 1)
    job = installed.filter({"job-name": "forbidden"})
    assert (job.results, job.requests) == (["-1"], [])
    assert_as_written(
        installed.filter({"job-name": "x", "comment": "by site"}, ADVISOR="off"),
        {"job-name": "x", "comment": "by site"},
    )
    job = installed.filter({"job-name": "silent"})
    assert (job.results, len(job.requests)) == (["nil"], 1)


RULES = """\
function slurm_cli_setup_defaults(options, early)
  options.account = early and "early" or "late"
  return slurm.SUCCESS
end
function slurm_cli_pre_submit(options, offset)
  if options["job-name"] == "mistake" then
    options["job-name"] = nil
    error("the site's mistake", 0)
  end
  if offset > 0 then return slurm_cli_pre_submit(options, 0) end
  return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job_id, step_id)
  io.stderr:write(("by site: %d %.0f %d\\n"):format(offset, job_id, step_id))
  return 2001
end
"""


def test_all_three_functions_of_a_site_s_own_script_count(installed: Installed) -> None:
    installed.site("cli_filter.lua", RULES, copy="return slurm.SUCCESS")
    job = installed.filter(kind="salloc", posts=[0])
    assert (job.values["account"], job.results) == ("early", ["0", "2001"])
    assert job.said == "by site: 0 4294967200 7\n"
    assert [r["op"] for r in job.requests] == ["decide", "submitted"]
    # by Slurm's name a site's function calls the site's own, which asks nobody
    job = installed.filter(offsets=[1])
    assert (job.results, job.requests) == (["0"], [])


def test_a_mistake_of_a_site_s_own_script_is_its_own(installed: Installed) -> None:
    installed.site("cli_filter.lua", RULES)
    job = installed.filter({"job-name": "mistake"}, offsets=[0, 0])
    assert (job.results, len(job.requests)) == (["error: the site's mistake", "0"], 1)


def test_of_a_site_s_script_that_does_not_load_nothing_is_left(installed: Installed) -> None:
    broken = "function slurm_cli_post_submit() return 2001 end error('at load')"
    for copy in (SITE, broken):
        installed.site("cli_filter.lua", broken, copy)
        assert installed.filter(posts=[0]).results == ["0", "0"]


@pytest.mark.parametrize("broken", ["function (", "error('at load')", "return slurm.ERROR"])
def test_a_copy_stands_in_for_a_site_s_script_that_does_not_load(
    installed: Installed, broken: str
) -> None:
    installed.site("cli_filter.lua", broken, SITE)
    job = installed.filter()
    assert job.values["comment"] == "by site" and len(job.requests) == 1
    assert job.said.startswith("advisor: the site's own script does not load: ")
    assert job.said.endswith("\n")
    installed.site("cli_filter.lua", broken)
    assert installed.filter().results == ["0"]


def test_without_modules_a_job_goes_on(installed: Installed) -> None:
    module = installed.folder / "advisor" / "id" / "filter.lua"
    text = module.read_text()
    module.write_text("error('x')")
    job = installed.filter({"time": "1"})
    assert_as_written(job, {"time": "1"})
    assert job.said == ""
    said = installed.filter(ADVISOR_DEBUG="1").said
    assert said.startswith("advisor: submitted unchanged: ") and "hook install" in said
    module.write_text(text)
    assert len(installed.filter().requests) == 1
    (module.parent / "log.lua").write_text("error('x')")  # the last that could be told of it
    installed.reply = lambda _: b"hello\n"
    assert_as_written(installed.filter({"time": "1"}), {"time": "1"})


def test_no_daemon_is_no_harm(installed: Installed) -> None:
    config = installed.folder / "advisor" / "id" / "config.lua"
    config.write_text(config.read_text().replace(str(installed.socket), "/nowhere/s"))
    job = installed.filter({"time": "1"})
    assert_as_written(job, {"time": "1"})
    assert "/nowhere/s: " in job.log[0] and "(is advisor serve running?)" in job.log[0]
    assert not (installed.runtime / "advisor-breaker").exists()


def test_of_a_long_problem_comes_the_beginning(installed: Installed) -> None:
    installed.reply = lambda _: json.dumps({"v": 1, "error": "e" * 9000}).encode() + b"\n"
    assert (
        len(installed.filter().log[0])
        == len("<12>advisor: submitted unchanged: the daemon says: ") + 200
    )
