"""The hooks beside a site's own scripts, with the real daemon, and how they come off."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hook_daemon import STAMP, HookDaemon, answer
from hooked_cluster import ROOT, Hooked
from testbed.daemons import go_first, wait_until

from advisor import __version__
from advisor.core.stamp import read_stamp
from advisor.schedulers.slurm.health import _options, unknown_options

SITE_FILTER = """\
-- a site's own
GREETING = "site"
local function greet(text) io.stderr:write(GREETING, " ", text, "\\n") end
function slurm_cli_setup_defaults(options, early) greet("defaults") return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
  greet("pre")
  if options["job-name"] == "forbidden" then return slurm.ERROR end
  if options["job-name"] == "broken" then error("site's own error") end
  options["comment"] = "by site"
  return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job_id, step_id) greet("post") return slurm.SUCCESS end
return slurm.SUCCESS
"""
SITE_SUBMIT = """\
WORD = "site"
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "rejected" then slurm.log_user("no such jobs") return 2000 end
  job_desc.admin_comment = WORD .. " says so"
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm_job_submit(job_desc, part_list, modify_uid)
end
return slurm.SUCCESS
"""


@pytest.fixture
def with_site(hooked: Hooked, daemon: HookDaemon) -> Iterator[list[str]]:
    """The hooks installed over a site's own scripts; what these say alone of a job."""
    folder = hooked.testbed.conf_dir
    hooked.hook("remove")
    noop = {n: (folder / n).read_text() for n in ("cli_filter.lua", "job_submit.lua")}
    hooked.testbed.install_hook("cli_filter.lua", SITE_FILTER)
    hooked.testbed.install_hook("job_submit.lua", SITE_SUBMIT)
    alone = hooked.sbatch("-n1").stderr.splitlines()
    assert alone.count("site pre") == alone.count("site post") == 1
    hooked.hook("install")
    yield alone
    hooked.hook("remove")
    assert (folder / "cli_filter.lua").read_text() == SITE_FILTER
    assert (folder / "job_submit.lua").read_text() == SITE_SUBMIT
    for name, text in noop.items():
        hooked.testbed.install_hook(name, text)
    hooked.hook("install")


def test_a_sites_own_scripts_work_as_before(
    hooked: Hooked, daemon: HookDaemon, with_site: list[str]
) -> None:
    daemon.reply = lambda _: answer({"constraint": "milan"}, message="advisor: hello", to="always")
    done = hooked.sbatch("-n1")
    said = done.stderr.splitlines()
    said.remove("advisor: hello")
    assert said == with_site
    job = hooked.job(done)
    assert (job["Comment"], job["Features"]) == ("by site", "milan")
    assert job["AdminComment"] == f"site says so {STAMP}"
    update = ["scontrol", "update", f"JobId={done.job_id}", "TimeLimit=5"]
    hooked.testbed.run(update)
    assert hooked.job(done)["TimeLimit"] == "00:05:00"
    # its rejections are its own, and nobody is asked about such jobs
    count = len(daemon.requests)
    refused = hooked.testbed.sbatch("-Jforbidden", "--wrap=true", check=False, env=hooked.env())
    assert refused.job_id == 0
    assert len(daemon.requests) == count
    refused = hooked.testbed.sbatch("-Jrejected", "--wrap=true", check=False, env=hooked.env())
    assert refused.job_id == 0
    assert "no such jobs" in refused.stderr
    # its errors too: Slurm prints them and submits
    done = hooked.sbatch("-Jbroken")
    assert "site's own error" in done.stderr


def test_a_sites_script_broken_later_is_stood_in_for(
    hooked: Hooked, daemon: HookDaemon, with_site: list[str]
) -> None:
    folder = hooked.testbed.conf_dir
    (folder / "cli_filter.site.lua").write_text("function (")
    (folder / "job_submit.site.lua").write_text("error('at load')")
    later = (folder / "job_submit.lua").stat().st_mtime + 2
    os.utime(folder / "job_submit.lua", (later, later))
    done = hooked.sbatch()
    assert "the site's own script does not load" in done.stderr
    assert "site pre" in done.stderr
    assert hooked.job(done)["AdminComment"] == f"site says so {STAMP}"
    assert "its copy of the last install is used" in hooked.testbed.slurmctld_log()
    (folder / "cli_filter.site.lua").write_text(SITE_FILTER)
    (folder / "job_submit.site.lua").write_text(SITE_SUBMIT)


# -- with the real daemon -------------------------------------------------------------------------


def test_the_real_daemon_stamps_what_it_does_not_know(hooked: Hooked) -> None:
    log = hooked.folder / "serve.log"
    with log.open("w") as output:
        command = ["serve", "--socket", str(hooked.socket), "--db", str(hooked.folder / "a.db")]
        serving = subprocess.Popen(
            [sys.executable, "-m", "advisor", *command], cwd=ROOT, stderr=output
        )
        go_first(serving.pid)
        try:
            wait_until(lambda: "event=serving" in log.read_text(), 20, "the daemon")
            done = hooked.sbatch("-n2", "-Jsweep one", script="srun ./nobody-knows-me\n")
            stamp = read_stamp(hooked.job(done)["AdminComment"])
            srun = hooked.run(["srun", "-n1", "true"])
            assert srun[0] == ""
        finally:
            serving.terminate()
            assert serving.wait(20) == 0
    assert stamp is not None
    assert f"event=decision id={stamp.id} user=root" in log.read_text()
    assert "no-model" in stamp.codes
    assert "bad-request" not in log.read_text()
    job = str(done.job_id)
    hooked.testbed.run(["scancel", job])


# -- the command ---------------------------------------------------------------------------------


def test_all_options_of_this_slurm_are_known(hooked: Hooked, tmp_path: Path) -> None:
    found = hooked.run(["sbatch", "--help"])[0] + hooked.run(["srun", "--help"])[0]
    assert len(found) > 5000
    assert unknown_options(found + hooked.run(["salloc", "--help"])[0]) == []
    assert unknown_options(found + "  --new_way=x, -y,--other") == ["--new-way", "--other"]
    done = hooked.advisor("doctor", "--db", str(tmp_path / "a.db"), "--json", conf=True)
    said = {c["name"]: c["text"] for c in json.loads(done.stdout)["checks"]}
    assert said["options"] == "all options of this sbatch, srun and salloc are known"


def test_doctor_says_which_key_an_option_of_the_site_s_own_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "  --project-code=x  billed project\n  --new_way\n"
    monkeypatch.setattr("advisor.schedulers.slurm.health.ask", lambda *_, **__: text)
    [check] = _options(())
    assert check.state == "warn" and "--new-way, --project-code" in check.text
    assert "understood_options: {new-way: harmless}" in check.todo
    [check] = _options({"new-way"})
    assert "--new-way" not in check.text and "{project-code: harmless}" in check.todo
    [check] = _options({"new-way", "project-code"})
    assert check.state == "ok" and check.text.endswith("--new-way, --project-code from site.yaml")
    ours, check = _options({"new-way", "project-code", "cpu-freq"})
    assert ours.state == "warn" and "cpu-freq does; that changes nothing" in ours.text
    assert check.state == "ok" and "cpu-freq" not in check.text


def test_doctor_names_what_users_cannot_read_and_hooks_of_another_advisor(
    hooked: Hooked, tmp_path: Path
) -> None:
    folder = hooked.testbed.conf_dir

    def hooks() -> list[dict[str, str]]:
        done = hooked.advisor("doctor", "--db", str(tmp_path / "a.db"), "--json", conf=True)
        return [c for c in json.loads(done.stdout)["checks"] if c["name"] == "hook"]

    def mended(path: Path, text: str) -> None:
        [check] = [c for c in hooks() if c["state"] == "fail"]
        assert check["text"].startswith(f"other users cannot read {path}: {text}")
        subprocess.run(["sh", "-c", check["todo"]], check=True)
        assert [c["state"] for c in hooks()] == ["ok", "ok"]

    assert [c["state"] for c in hooks()] == ["ok", "ok"]
    stub = folder / "cli_filter.lua"
    stub.chmod(0o600)
    refused = hooked.testbed.sbatch("--hold", script="true\n", user="nobody", check=False)
    assert refused.job_id == 0 and "cli_filter" in refused.stderr
    mended(stub, "each of their submissions fails")
    taken = hooked.testbed.sbatch("--hold", script="true\n", user="nobody")
    hooked.testbed.run(["scancel", str(taken.job_id)])
    [name] = re.findall(r'"/advisor/([^"]+)"', stub.read_text())
    modules = folder / "advisor" / name
    (modules / "rewrite.lua").chmod(0o640)
    mended(modules, "their jobs run as written")
    modules.parent.chmod(0o700)
    mended(modules, "their jobs run as written")
    source = (modules / "rewrite.lua").read_bytes()
    (modules / "rewrite.lua").write_bytes(source + b"-- another release\n")
    stub.write_text(stub.read_text().replace(f"advisor {__version__} (", "advisor 0.1.0 ("))
    found = hooks()
    assert [c["state"] for c in found] == ["warn", "warn"]
    assert f"{stub} (0.1.0) and its modules are not those of this advisor" in found[0]["text"]
    assert found[0]["todo"] == f"advisor hook install --scheduler slurm --dir {folder}"
    hooked.hook("install")
    assert [c["state"] for c in hooks()] == ["ok", "ok"]


def test_status_says_how_it_is(hooked: Hooked, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: b'{"v":1,"pong":true,"version":"0"}\n'
    status = json.loads(hooked.hook("status", "--json").stdout)
    assert status["hooks"]["cli_filter.lua"]["state"] == "advisor"
    assert status["hooks"]["cli_filter.lua"]["calls"] == "cli_filter.site.lua"
    assert status["modules"] == "load (native)"
    assert status["inventory"] == "current"
    assert status["settings"]["socket"] == str(hooked.socket)
