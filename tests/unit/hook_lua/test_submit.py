"""The installed job_submit without Slurm: whom it asks when, and what it writes into job_desc."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.protocol import OFF
from advisor.schedulers.slurm.hook_files import stub
from advisor.schedulers.slurm.table import OPTIONS
from tests.schemas import check_request
from tests.unit.hook_lua.installed import DECISION, STAMP, Installed, answer
from tests.unit.hook_lua.modules import LUAS

pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")

NO_VAL16, NO_VAL, INFINITE = 65534, 4294967294, 4294967295
CAP = "1200000-1900000"
PLAN = answer({"constraint": "old", "cpu-freq": CAP}, {"OMP_NUM_THREADS": "9"})
UNSET: dict[str, object] = {
    "user_id": 1000,
    "script": "#!/bin/sh\nsrun ./app\n",
    "argc": 2,
    "argv": {0: "job.sh", 1: "x"},
    "work_dir": "/home/alice",
    "environment": {},
    "min_nodes": NO_VAL,
    "max_nodes": NO_VAL,
    "time_limit": NO_VAL,
    "shared": NO_VAL16,
    "priority": NO_VAL,
    "begin_time": 0,
    "het_job_offset": NO_VAL,
    "cpus_per_task": NO_VAL16,
    "num_tasks": NO_VAL,
    "ntasks_per_node": NO_VAL16,
    "pn_min_cpus": NO_VAL16,
    "cpu_freq_min": NO_VAL,
    "cpu_freq_max": NO_VAL,
    "cpu_freq_gov": NO_VAL,
    "contiguous": NO_VAL16,
    "immediate": 0,
    "features": "",
}


def desc(environment: dict[str, str] | None = None, **fields: object) -> dict[str, object]:
    """Return a job_desc of a batch job that asks for nothing but these."""
    return {**UNSET, "environment": environment or {}, **fields}


@pytest.fixture
def enforced(installed: Installed) -> Iterator[Installed]:
    """The hooks where the policy says `enforce`."""
    Path(f"{installed.socket}.enforce").touch()
    installed.reply = lambda _: PLAN
    yield installed


def untouched(installed: Installed, job: dict[str, object]) -> dict[str, Any]:
    """Let the plugin see a job that it must leave alone; return what was asked of the daemon."""
    seen = installed.submit(job)
    assert seen.env == job["environment"]
    assert seen.values == {k: v for k, v in job.items() if isinstance(v, str)}
    assert seen.results == ["0"]
    return seen.requests[0] if seen.requests else {}


def test_nobody_is_asked_unless_the_daemon_says_so(installed: Installed) -> None:
    installed.reply = lambda _: PLAN
    assert untouched(installed, desc()) == {}


def test_a_stamp_goes_into_the_admin_comment(installed: Installed) -> None:
    for name in ("ADVISOR_STAMP", "SLURM_ADVISOR_STAMP"):
        job = installed.submit(desc({name: STAMP}))
        assert job.values["admin_comment"] == STAMP
        job = installed.submit(desc({name: STAMP}, admin_comment="site"))
        assert job.values["admin_comment"] == f"site {STAMP}"
    room = 4000 - len(STAMP) - 1
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}, admin_comment="x" * room))
    assert len(job.values["admin_comment"]) == 4000
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}, admin_comment="x" * (room + 1)))
    assert job.values["admin_comment"] == "x" * (room + 1)
    for forged in ("hello", "advisor:{}\nx", "advisor:{" + "x" * 1991 + "}", "xadvisor:{}"):
        job = installed.submit(desc({"ADVISOR_STAMP": forged}))
        assert "admin_comment" not in job.values
        assert job.said == "info advisor: uid 1000: ADVISOR_STAMP is not a stamp: left out\n"
    longest = "advisor:{" + "x" * 1990 + "}"
    assert len(longest) == 2000
    job = installed.submit(desc({"ADVISOR_STAMP": longest}))
    assert (job.values["admin_comment"], job.said) == (longest, "")


def test_what_a_sweeps_job_has_its_nodes_set_is_a_stamp_of_its_own(installed: Installed) -> None:
    gpus = '{"gpu_power_w":200}'
    several = '{"gpu_freq_khz":"1400000/1200000"}'
    chosen = installed.submit(desc({"ADVISOR": "off", "SLURM_ADVISOR_GPUS": several}))
    assert chosen.values["admin_comment"] == f'advisor:{{"v":1,"gpus":{several}}}'
    seen = installed.submit(desc({"ADVISOR": "off", "SLURM_ADVISOR_GPUS": gpus}))
    assert seen.values["admin_comment"] == f'advisor:{{"v":1,"gpus":{gpus}}}'
    assert seen.requests == []
    # beside a decision's own it says nothing
    both = installed.submit(desc({"ADVISOR_STAMP": STAMP, "SLURM_ADVISOR_GPUS": gpus}))
    assert both.values["admin_comment"] == STAMP


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "200",
        '{"gpu_power_w":200} advisor:{"cap":1200000}',
        '{"a":{"b":1}}',
        '{"gpu_power_w":200}\n',
        '{"gpu_power_w":"$(reboot)"}',
        '{"' + "a" * 200 + '":1}',
    ],
)
def test_what_is_no_list_of_axes_makes_no_stamp(installed: Installed, text: str) -> None:
    untouched(installed, desc({"ADVISOR": "off", "SLURM_ADVISOR_GPUS": text}))


def test_of_a_heterogeneous_job_the_leader_has_the_stamp(enforced: Installed) -> None:
    for offset, stamped in ((0, True), (1, False)):
        job = enforced.submit(desc({"ADVISOR_STAMP": STAMP}, het_job_offset=offset))
        assert ("admin_comment" in job.values) == stamped
        assert not job.requests and job.values["features"] == ""


def test_srun_and_salloc_have_no_environment(enforced: Installed) -> None:
    job = enforced.submit({"user_id": 1, "script": "x", "features": ""})
    assert (job.requests, job.results, job.said) == ([], ["0"], "")
    assert untouched(enforced, desc(script="")) == {}
    assert untouched(enforced, {k: v for k, v in desc().items() if k != "script"}) == {}


@pytest.mark.parametrize("word", [*OFF, "OFF", "Never"])
def test_off_is_off(enforced: Installed, word: str) -> None:
    assert untouched(enforced, desc({"ADVISOR": word})) == {}


def test_what_cannot_be_seen_is_left_alone(enforced: Installed) -> None:
    for export in ("NONE", "PATH", "NIL", "PATH,X=ALL", "ALLUSERS"):
        assert untouched(enforced, desc({"SLURM_EXPORT_ENV": export})) == {}
        stamped = desc({"SLURM_EXPORT_ENV": export, "ADVISOR_STAMP": STAMP})
        assert len(enforced.submit(stamped).requests) == 1
    for export in ("ALL", "all,A=1"):
        assert len(enforced.submit(desc({"SLURM_EXPORT_ENV": export})).requests) == 1
    for word in ("on", "[", "."):
        assert len(enforced.submit(desc({"ADVISOR": word})).requests) == 1


def test_a_plan_is_written_into_the_job(enforced: Installed) -> None:
    mine = {"OMP_NUM_THREADS": "12", "SLURM_CPU_FREQ_REQ": ""}
    enforced.reply = lambda _: answer(
        {"constraint": "old", "cpu-freq": CAP}, {"OMP_NUM_THREADS": "9"}, message="m", to="always"
    )
    job = enforced.submit(desc(mine, cpus_per_task=14))
    assert job.env == {
        "OMP_NUM_THREADS": "9",
        "SLURM_CPU_FREQ_REQ": CAP,
        "ADVISOR_DECISION": DECISION,
        "ADVISOR_STAMP": STAMP,
        "ADVISOR_SET": f"OMP_NUM_THREADS=9<12 SLURM_CPU_FREQ_REQ={CAP}",
    }
    assert (job.values["features"], job.values["admin_comment"]) == ("old", STAMP)
    assert job.said == f"info advisor: uid 1000: job rewritten, decision {DECISION}\nuser m\n"
    assert job.results == ["0"]
    [request] = job.requests
    check_request(request)
    assert request == {
        "v": 1,
        "op": "decide",
        "scheduler": "slurm",
        "hook": "job_submit",
        "cluster": "alpha",
        "type": "sbatch",
        "uid": 1000,
        "stamp": "",
        "options": {"cpus-per-task": "14"},
        "argv": ["job.sh", "x"],
        "script": "#!/bin/sh\nsrun ./app\n",
        "truncated": False,
        "script_path": "job.sh",
        "env": mine,
        "choices": "",
        "cwd": "/home/alice",
        "het": False,
    }
    enforced.reply = lambda _: answer({"constraint": "old"}, message="m")
    job = enforced.submit(desc())
    assert "user" not in job.said  # only what is for everybody
    assert set(job.env) == {"ADVISOR_DECISION", "ADVISOR_STAMP"}


def test_what_a_plan_does_not_say_stays_the_user_s(enforced: Installed) -> None:
    enforced.reply = lambda _: answer({"cpu-freq": CAP})
    job = enforced.submit(desc(features="old"))
    assert job.values["features"] == "old" and job.env["SLURM_CPU_FREQ_REQ"] == CAP
    enforced.reply = lambda _: answer({}, {"OMP_NUM_THREADS": "4"})
    job = enforced.submit(desc({"SLURM_CPU_FREQ_REQ": CAP}, features="old"))
    assert job.values["features"] == "old" and job.env["OMP_NUM_THREADS"] == "4"
    assert job.env["SLURM_CPU_FREQ_REQ"] == CAP


def test_a_plan_without_a_stamp(enforced: Installed) -> None:
    enforced.reply = lambda _: answer({"constraint": "old"}, stamp=None)
    job = enforced.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert job.values["features"] == "old" and "admin_comment" not in job.values
    assert job.env["ADVISOR_STAMP"] == STAMP


def test_without_changes_the_daemon_s_stamp_counts_where_there_is_none(enforced: Installed) -> None:
    other = STAMP.replace("0123", "4567")
    enforced.reply = lambda _: answer(stamp=other)
    job = enforced.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert (job.values["admin_comment"], job.env) == (STAMP, {"ADVISOR_STAMP": STAMP})
    assert job.requests[0]["stamp"] == STAMP
    job = enforced.submit(desc())
    assert (job.values["admin_comment"], job.env, job.said) == (other, {}, "")


FIELDS = {
    "account": "account",
    "array": "array_inx",
    "batch": "batch_features",
    "bb": "burst_buffer",
    "clusters": "clusters",
    "constraint": "features",
    "container": "container",
    "cpus-per-gpu": "cpus_per_tres",
    "dependency": "dependency",
    "exclude": "exc_nodes",
    "extra": "extra",
    "gpus": "tres_per_job",
    "gpus-per-socket": "tres_per_socket",
    "gres": "tres_per_node",
    "job-name": "name",
    "licenses": "licenses",
    "mem-per-gpu": "mem_per_tres",
    "network": "network",
    "nodelist": "req_nodes",
    "partition": "partition",
    "prefer": "prefer",
    "qos": "qos",
    "reservation": "reservation",
    "tres-bind": "tres_bind",
    "tres-per-task": "tres_per_task",
    "wckey": "wckey",
}
NUMBERS = {
    "cores-per-socket": ("cores_per_socket", NO_VAL16),
    "cpus-per-task": ("cpus_per_task", NO_VAL16),
    "delay-boot": ("delay_boot", NO_VAL),
    "mem": ("min_mem_per_node", NO_VAL),
    "mem-per-cpu": ("min_mem_per_cpu", NO_VAL),
    "ntasks": ("num_tasks", NO_VAL),
    "ntasks-per-core": ("ntasks_per_core", NO_VAL16),
    "ntasks-per-gpu": ("ntasks_per_tres", NO_VAL16),
    "ntasks-per-node": ("ntasks_per_node", NO_VAL16),
    "ntasks-per-socket": ("ntasks_per_socket", NO_VAL16),
    "sockets-per-node": ("sockets_per_node", NO_VAL16),
    "switches": ("req_switch", NO_VAL),
    "threads-per-core": ("threads_per_core", NO_VAL16),
    "time-min": ("time_min", NO_VAL),
    "tmp": ("pn_min_tmp_disk", NO_VAL),
    "contiguous": ("contiguous", NO_VAL16),
    "immediate": ("immediate", NO_VAL16),
    "reboot": ("reboot", NO_VAL16),
}


def asked(enforced: Installed, **fields: Any) -> dict[str, str]:
    """Return the options that the daemon is told of."""
    enforced.reply = lambda _: answer()
    options: dict[str, str] = enforced.submit(desc(**fields)).requests[0]["options"]
    assert set(options) <= set(OPTIONS)
    return options


def test_every_field_that_is_set_is_sent(enforced: Installed) -> None:
    texts = {field: f"value of {field}" for field in FIELDS.values()}
    numbers = {field: none - 1 for field, none in NUMBERS.values()}
    assert asked(enforced, **texts, **numbers) == {
        **{option: texts[field] for option, field in FIELDS.items()},
        **{option: str(none - 1) for option, (_, none) in NUMBERS.items()},
    }
    assert asked(enforced, **dict(NUMBERS.values())) == {}  # all are as Slurm leaves them
    assert asked(enforced, **{field: "" for field in FIELDS.values()}) == {}
    flags = {"contiguous": 0, "immediate": 0, "reboot": 0}
    assert asked(enforced, **flags, num_tasks=0) == {"ntasks": "0"}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"min_nodes": 2, "max_nodes": 2}, {"nodes": "2"}),
        ({"min_nodes": 2, "max_nodes": 4}, {"nodes": "2-4"}),
        ({"min_nodes": 2}, {"nodes": "2"}),
        ({"max_nodes": 2}, {"nodes": "2"}),
        ({"time_limit": INFINITE}, {"time": "UNLIMITED"}),
        ({"time_limit": 90}, {"time": "90"}),
        ({"shared": 0}, {"exclusive": "exclusive"}),
        ({"shared": 1}, {"oversubscribe": "oversubscribe"}),
        ({"shared": 2}, {}),
        ({"priority": 0}, {"hold": "set"}),
        ({"priority": 1}, {}),
        ({"begin_time": 1800000000}, {"begin": "1800000000"}),
        ({"begin_time": 1}, {"begin": "1"}),
        ({"cpu_freq_min": 1200000, "cpu_freq_max": 1900000}, {"cpu-freq": CAP}),
        ({"cpu_freq_max": 1900000}, {"cpu-freq": "1900000"}),
        ({"cpu_freq_max": 2147483648}, {"cpu-freq": "high"}),
        ({"cpu_freq_min": 1, "cpu_freq_max": 2147483649}, {"cpu-freq": "high"}),
        ({"cpu_freq_max": 2147483647}, {"cpu-freq": "2147483647"}),
        ({"cpu_freq_gov": 8}, {"cpu-freq": ":userspace"}),
        ({"cpu_freq_max": 5, "cpu_freq_gov": 8}, {"cpu-freq": "5:userspace"}),
        ({"cpu_freq_gov": 0}, {}),
        ({"pn_min_cpus": 2}, {"mincpus": "2"}),
        ({"pn_min_cpus": 1}, {}),
        (
            {"pn_min_cpus": 6, "cpus_per_task": 3, "ntasks_per_node": 2},
            {"cpus-per-task": "3", "ntasks-per-node": "2"},
        ),
        (
            {"pn_min_cpus": 7, "cpus_per_task": 3, "ntasks_per_node": 2},
            {"cpus-per-task": "3", "ntasks-per-node": "2", "mincpus": "7"},
        ),
    ],
)
def test_what_a_job_asks_for_in_sbatch_s_words(
    enforced: Installed, fields: dict[str, object], options: dict[str, str]
) -> None:
    assert asked(enforced, **fields) == options


def test_variables_are_asked_for_by_name(enforced: Installed) -> None:
    enforced.reply = lambda _: answer()
    mine = {"OMP_PLACES": "cores", "SLURM_HINT": "x", "ADVISOR_GOAL": "power", "PATH": "/bin"}
    [request] = enforced.submit(desc({**mine, "GOMAXPROCS": "1" * 4097})).requests
    assert request["env"] == {k: v for k, v in mine.items() if k != "PATH"}
    [request] = enforced.submit(desc({"GOMAXPROCS": "1" * 4096})).requests
    assert request["env"] == {"GOMAXPROCS": "1" * 4096}


def test_of_a_long_script_comes_the_beginning(enforced: Installed) -> None:
    enforced.reply = lambda _: answer()
    for size in (131_072, 131_073):
        [request] = enforced.submit(desc(script="x" * size)).requests
        assert request["script"] == "x" * 131_072
        assert request["truncated"] == (size > 131_072)
    job = desc(argc=0)
    del job["argv"], job["work_dir"]
    [request] = enforced.submit(job).requests
    assert (request["argv"], request["script_path"], request["cwd"]) == ([], "", "")


@pytest.mark.parametrize(
    ("plan", "fields", "why"),
    [
        (answer({"cpus-per-task": "10"}), {"cpus_per_task": 14}, "cores of a job are not changed"),
        (
            answer({}, {"FOO_NUM_THREADS": "1"}),
            {"environment": {"FOO_NUM_THREADS": "2"}},
            "FOO_NUM_THREADS is the user's own",
        ),
        (
            answer({}, {"OMP_NUM_THREADS": "9"}),
            {"environment": {"OMP_NUM_THREADS": "8"}},
            "more threads than the job has: 8",
        ),
        (answer({}, {"OMP_NUM_THREADS": "15"}), {"cpus_per_task": 14}, "more threads"),
        (answer({"constraint": "new"}), {"partition": "debug"}, "partition debug has no"),
        (answer({"constraint": "old"}), {"req_nodes": "a1"}, "--nodelist binds it"),
        (answer({"constraint": "old"}), {"environment": {"SBATCH_REQ_SWITCH": "1"}}, "binds it"),
        (answer({"cpu-freq": "1200000-2000000"}), {"features": "old"}, "no frequency step"),
        (answer({"cpu-freq": CAP}), {"cpu_freq_gov": 8}, "--cpu-freq binds it"),
    ],
)
def test_a_plan_that_must_not_be_is_not_written(
    enforced: Installed, plan: bytes, fields: dict[str, object], why: str
) -> None:
    enforced.reply = lambda _: plan
    job = {**desc(), **fields}
    seen = enforced.submit(job)
    assert seen.env == job["environment"]
    assert seen.values == {k: v for k, v in job.items() if isinstance(v, str)}
    assert seen.said.startswith("error advisor: job goes on unchanged: ") and why in seen.said


def test_a_daemon_that_answers_garbage_is_not_asked_for_a_while(enforced: Installed) -> None:
    enforced.reply = lambda _: b"hello\n"
    seen = enforced.submit(desc(), desc(), desc({"ADVISOR_STAMP": STAMP}))
    assert len(seen.requests) == 1
    assert seen.values["admin_comment"] == STAMP and seen.values["features"] == ""
    assert seen.said.count("\n") == 1 and "(not asked again for 30 s)" in seen.said
    enforced.reply = lambda _: b'{"v":1,"error":"busy"}\n'
    seen = enforced.submit(desc(), desc())
    assert len(seen.requests) == 2 and seen.said.count("the daemon says: busy\n") == 2


def test_a_daemon_that_hangs_delays_one_submission(home: Path, path: Path) -> None:
    hooks = Installed(home, path.parent, deadline_s=0.4)
    Path(f"{hooks.socket}.enforce").touch()

    def late(_: dict[str, Any]) -> bytes:
        time.sleep(1.5)
        return PLAN

    hooks.reply = late
    seen = hooks.submit(desc(), desc(), desc())
    assert len(seen.requests) == 1 and seen.values["features"] == ""
    assert "no answer in time (not asked again for 30 s)" in seen.said
    job = hooks.filter({"time": "1"})
    assert len(job.requests) == 1 and "constraint" not in job.values
    assert "no answer in time (not asked again for 30 s)" in job.log[0]
    assert hooks.filter({"time": "1"}).requests == []


def test_a_daemon_that_answered_garbage_is_asked_again_later(home: Path, path: Path) -> None:
    hooks = Installed(home, path.parent, retry_s=0)
    Path(f"{hooks.socket}.enforce").touch()
    hooks.reply = lambda _: b"hello\n"
    assert len(hooks.submit(desc(), desc()).requests) == 2


def test_no_daemon_is_no_harm(enforced: Installed) -> None:
    config = enforced.folder / "advisor" / "id" / "config.lua"
    config.write_text(config.read_text().replace(str(enforced.socket), "/nowhere/s"))
    Path(f"{enforced.socket}.enforce").unlink()
    marker = enforced.folder / "x.enforce"
    marker.touch()
    config.write_text(config.read_text().replace("/nowhere/s", str(enforced.folder / "x")))
    seen = enforced.submit(desc(), desc({"ADVISOR_STAMP": STAMP}))
    assert seen.values["admin_comment"] == STAMP
    assert seen.said.count("(is advisor serve running?)") == 2


def test_without_modules_a_job_goes_on(installed: Installed) -> None:
    module = installed.folder / "advisor" / "id" / "submit.lua"
    text = module.read_text()
    module.write_text("error('x')")
    seen = installed.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert "admin_comment" not in seen.values and seen.results == ["0"]
    assert seen.said.startswith("error advisor: jobs go on unchanged and without a stamp: ")
    assert seen.said.count("\n") == 1
    module.write_text(
        text.replace("function M.job_submit(job)", "function M.job_submit(job) error('y')")
    )
    seen = installed.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert "admin_comment" not in seen.values and seen.results == ["0"]
    assert seen.said.startswith("error advisor: ") and seen.said.endswith("y\n")


def test_the_modules_are_those_beside_the_stub(installed: Installed) -> None:
    """The folder may be seen at another path than where it was installed."""
    for hook in ("job_submit.lua", "cli_filter.lua"):
        (installed.folder / hook).write_bytes(stub(hook, Path("/elsewhere"), "id", ""))
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert job.values["admin_comment"] == STAMP
    assert installed.filter().env["ADVISOR_STAMP"] == STAMP


SITE = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "rejected" then return 2000 end
  if job_desc.name == "silent" then return nil end
  job_desc.admin_comment = "by site"
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def test_a_site_s_own_script_comes_first(installed: Installed) -> None:
    installed.site("job_submit.lua", SITE, copy="return slurm.SUCCESS")
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert (job.values["admin_comment"], job.results) == (f"by site {STAMP}", ["0"])
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}, name="rejected"))
    assert "admin_comment" not in job.values and job.results == ["2000"]
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}, name="silent"))
    assert (job.values["admin_comment"], job.results) == (STAMP, ["nil"])


RULES = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "mistake" then error("the site's mistake", 0) end
  job_desc.admin_comment = ("by site for %d"):format(submit_uid)
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  if job_desc.name == "forbidden" then return 2001 end
  return slurm_job_submit(job_desc, part_list, modify_uid)
end
"""


def test_a_site_s_own_rule_for_changes_of_a_job_counts(installed: Installed) -> None:
    assert installed.modify(desc({"ADVISOR_STAMP": STAMP})).results == ["0"]
    installed.site("job_submit.lua", RULES)
    assert installed.modify(desc(name="forbidden")).results == ["2001"]
    # by Slurm's name a site's function calls the site's own, which does not stamp
    changed = installed.modify(desc({"ADVISOR_STAMP": STAMP}))
    assert (changed.values["admin_comment"], changed.results) == ("by site for 1000", ["0"])


def test_a_mistake_of_a_site_s_own_script_is_its_own_and_of_one_job(installed: Installed) -> None:
    installed.site("job_submit.lua", RULES)
    job = installed.submit(desc(name="mistake"), desc({"ADVISOR_STAMP": STAMP}))
    assert job.results == ["error: the site's mistake", "0"]
    assert (job.values["admin_comment"], job.said) == (f"by site for 1000 {STAMP}", "")


def test_of_a_site_s_script_that_does_not_load_nothing_is_left(installed: Installed) -> None:
    broken = "function slurm_job_modify() return 2001 end error('at load')"
    installed.site("job_submit.lua", broken, SITE)
    assert installed.modify(desc()).results == ["0"]


@pytest.mark.parametrize("broken", ["function (", "error('at load')", "return slurm.ERROR"])
def test_a_copy_stands_in_for_a_site_s_script_that_does_not_load(
    installed: Installed, broken: str
) -> None:
    installed.site("job_submit.lua", broken, SITE)
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert job.values["admin_comment"] == f"by site {STAMP}"
    assert "the site's own script does not load" in job.said
    assert "its copy of the last install is used" in job.said
    installed.site("job_submit.lua", broken)
    job = installed.submit(desc({"ADVISOR_STAMP": STAMP}))
    assert (job.values["admin_comment"], job.results) == (STAMP, ["0"])
