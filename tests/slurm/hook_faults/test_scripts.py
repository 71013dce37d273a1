"""Scripts, names and choices of every kind: the job is accepted as its user wrote it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from faulty_cluster import Cluster, Serving
from hook_daemon import STAMP, HookDaemon

from advisor.core.stamp import read_stamp


def test_scripts_of_every_kind(cluster: Cluster, daemon: HookDaemon) -> None:
    scripts = {
        "4 MB": b"#!/bin/sh\n" + b"# a line of a script\n" * 199_000,
        "not UTF-8": b"#!/bin/sh\n# \xff\xfe\x80 caf\xe9\nsrun true\n",
        "control characters": b"#!/bin/sh\n#" + bytes(range(1, 32)).replace(b"\r", b"") + b"\n",
        "one line": b"#!/bin/sh",
        "DOS in the middle": b'#!/bin/sh\ntrue # \\ " \x7f \xc2\x9b\n',
    }
    for name, data in scripts.items():
        path = cluster.folder / "script"
        path.write_bytes(data)
        job = cluster.job(str(path), script=None)
        assert job["AdminComment"] == STAMP, name
        request = daemon.requests[-1]
        assert request["script"] == data[:131072].decode("utf-8", "replace"), name
        assert request["truncated"] == (len(data) > 131072)


def test_scripts_that_slurm_itself_refuses_stay_refused_by_slurm(
    cluster: Cluster, daemon: HookDaemon
) -> None:
    for name, data in {"empty": b"", "binary": b"\x7fELF\0\1\2\3" * 100, "no #!": b"x\n"}.items():
        path = cluster.folder / "script"
        path.write_bytes(data)
        done = cluster.testbed.sbatch(str(path), check=False)
        alone = cluster.testbed.sbatch(str(path), check=False, env={"ADVISOR": "off"})
        assert (done.job_id, done.stderr) == (0, alone.stderr), name


def test_scripts_that_are_no_files(cluster: Cluster, daemon: HookDaemon) -> None:
    fifo = cluster.folder / "fifo"
    os.mkfifo(fifo)
    text = "#!/bin/sh\nsrun true\n"
    writer = threading.Thread(target=lambda: fifo.write_text(text))
    writer.start()
    assert cluster.job(str(fifo), script=None)["AdminComment"] == STAMP
    writer.join()
    assert daemon.requests[-1]["script"] is None
    env = {"XDG_RUNTIME_DIR": str(cluster.runtime)}
    done = cluster.testbed.run(["sbatch", "--hold", "--parsable"], input=text, env=env)
    assert cluster.testbed.scontrol_job(int(done.stdout))["AdminComment"] == STAMP
    assert (daemon.requests[-1]["script"], daemon.requests[-1]["argv"]) == (None, [])
    job = cluster.job("--wrap=srun ./app 'a b'; exit")
    assert job["AdminComment"] == STAMP
    assert daemon.requests[-1]["options"]["wrap"] == "srun ./app 'a b'; exit"


@pytest.mark.parametrize(
    "name",
    [
        "$(reboot) `id` ; | & > * ? ~",
        "a\nb\tc\x01\x1b[2Jd",
        "\"quotes' and \\ back",
        "%s %n %",
        "\u00fcml\u00e4ut \u2603",
        ":",
        '","argv":["x"]}',
    ],
)
def test_names(cluster: Cluster, serve: Callable[..., Serving], name: str) -> None:
    serving = serve()
    done = cluster.submit(f"--job-name={name}")
    stamped = cluster.testbed.run(["scontrol", "show", "job", str(done.job_id)]).stdout
    assert read_stamp(stamped) is not None
    log = serving.log.read_text()
    assert "bad-request" not in log
    assert "internal-error" not in log
    assert "\x1b" not in log


def test_names_arrive_as_they_are(cluster: Cluster, daemon: HookDaemon) -> None:
    for name in ("a\nb\tc\x01\x1b[2Jd", "\"q' \\", '","argv":["x"]}', "$(x) `y` %s", "\u2603"):
        cluster.submit(f"--job-name={name}")
        assert daemon.requests[-1]["options"]["job-name"] == name
    cluster.submit("--job-name", os.fsdecode(b"\xff\xfe"))
    assert daemon.requests[-1]["options"]["job-name"] == "\ufffd\ufffd"


def test_a_users_choices_file_of_any_kind(cluster: Cluster, daemon: HookDaemon) -> None:
    config = cluster.runtime / "advisor"
    config.mkdir()
    choices = config / "choices.json"
    env = {"XDG_CONFIG_HOME": str(cluster.runtime)}
    for data, sent in (
        (b"\xff\0{", "\ufffd\0{"),
        (b"x" * 70_000, ""),
        (b"{}", "{}"),
    ):
        choices.write_bytes(data)
        assert cluster.job(env=env)["AdminComment"] == STAMP
        assert daemon.requests[-1]["choices"] == sent
    choices.unlink()
    os.mkfifo(choices)
    assert cluster.job(env=env)["AdminComment"] == STAMP
