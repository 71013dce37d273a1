"""``advisor train`` on a real Slurm: the whole command, kill, cancel and resume."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sweeping import BDW, POSED
from testbed import Testbed, predict

from advisor.paths import share
from advisor.schedulers.slurm.scheduler import Slurm
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.waiting import wait_for

ROOT = share("config").parent


class Command:
    """Runs ``advisor train`` on the cluster with a store that knows its node types."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed, self.folder = testbed, folder
        self.store = folder / "advisor.db"
        self.script = folder / "job.sh"
        with Writer(self.store) as writer:
            writer.save_node_types([BDW], source="test")
            # times of short runs on a shared machine must not decide what is recommended
            base = {"goal": "min_energy", "max_slowdown": 3.0, "training": {"trust": "all"}}
            writer.apply_config(
                "policy", path="p", text="t", compiled={"base": base, "rules": []}, by="root"
            )
        self.env = {
            **testbed.env(),
            "ADVISOR_DB": str(self.store),
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(folder / "state"),
            "ADVISOR_SOCKET": str(folder / "no.sock"),
        }

    def start(self, *argv: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "advisor", "train", *map(str, argv)],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str | Path) -> dict[str, Any]:
        child = self.start(*argv, "--json")
        out, err = child.communicate(timeout=180)
        assert child.returncode == 0, err
        data: dict[str, Any] = json.loads(out)
        return data

    def sweep_jobs(self, sweep: str) -> list[dict[str, str]]:
        """The sweep's allocations, with the names of their steps."""
        done = self.testbed.run(
            ["sacct", "-n", "-P", "-o", "JobID,JobName,State", "-S", "2020-01-01"]
        )
        rows = [line.split("|") for line in done.stdout.splitlines() if sweep in line]
        return [{"id": i, "name": name, "state": state} for i, name, state in rows]

    def designs(self, sweep: str) -> list[str]:
        """The states of the design's allocations; the accounting lags behind Slurm."""
        jobs = [j for j in self.sweep_jobs(sweep) if "." not in j["id"]]
        return [j["state"].split()[0] for j in jobs if j["name"].endswith("design")]

    def finished(self) -> int:
        files = self.folder.glob("state/advisor/sweeps/*/design/events")
        return sum(f.read_text().count("end\t") for f in files)


@pytest.fixture
def command(testbed: Testbed, tmp_path: Path) -> Command:
    return Command(testbed, tmp_path)


def test_train_a_script_from_nothing_to_a_confirmed_model(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH -J cfd -N1 -n1 --exclusive -C broadwell -A proj -t 3\n"
        "srun simapp --kernel stencil\n"
    )
    result = command.run(
        command.script,
        "--yes",
        "--design",
        "uniform",
        "--samples",
        "6",
        "--threads",
        "12,20,28",
        "--freqs",
        "1.5GHz,2.2GHz",
        "--estimate",
        "3s",
    )
    assert result["scheduler"] == "slurm" and result["energy_quality"] == "measured"
    assert (result["application"], result["workload"]) == ("simapp", "--kernel stencil")
    assert result["baseline"]["threads_per_node"] == 28
    assert result["recommended"] is not None
    chosen = result["recommended"]

    # less energy by the law too, not by chance
    def law_j(option: dict[str, Any]) -> float:
        time_s, watts = predict("stencil", POSED, 1, option["threads_per_node"], option["freq_khz"])
        return time_s * watts

    assert law_j(chosen) < law_j(result["baseline"])
    assert [r["role"] for r in result["runs"]] == ["baseline"] + ["design"] * 5 + ["confirm"]
    for run in result["runs"]:
        time_s, watts = predict("stencil", POSED, 1, run["threads_per_node"], run["freq_khz"])
        assert run["energy_j"] == pytest.approx(time_s * watts, abs=10)
        assert time_s <= run["time_s"]
    confirm = result["runs"][-1]
    assert confirm["threads_per_node"] == chosen["threads_per_node"]
    assert confirm["freq_khz"] == chosen["freq_khz"]
    assert (result["state"], result["confirmed"]) == ("confirmed", True), result["attempts"]

    # one allocation for the design, one for the run that confirms
    def allocations() -> list[str]:
        return [job["id"] for job in command.sweep_jobs(result["id"]) if "." not in job["id"]]

    wait_for(lambda: len(allocations()) == 2)
    # the runs follow one another within them, and no second is counted twice
    elapsed_s = sum(int(command.testbed.sacct(int(i))[0]["ElapsedRaw"]) for i in allocations())
    assert sum(run["time_s"] for run in result["runs"]) < elapsed_s + 2
    with Reader(command.store) as reader:
        observations = [o.observation for o in reader.observations("simapp")]
        assert {(o.account, o.scope, o.meter) for o in observations} == {("proj", "all", "slurm")}
        assert [o.source for o in observations].count("confirm") == 1
        (model,) = reader.find_models("simapp")
        assert (model.node_type, model.scope) == ("broadwell", "all")


def test_the_adaptive_design_confirms_beside_the_job_as_written(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH -J cfd -N1 -n1 --exclusive -C broadwell -A proj -t 3\n"
        "srun simapp --kernel stencil\n"
    )
    result = command.run(
        command.script,
        "--yes",
        "--design",
        "adaptive",
        "--budget",
        "7",
        "--threads",
        "12,20,28",
        "--freqs",
        "1.5GHz,1.8GHz,2.2GHz",
        "--estimate",
        "3s",
    )
    roles = [r["role"] for r in result["runs"]]
    assert roles[:3] == ["baseline", "design", "design"] and len(roles) <= 7
    pairs = [i for i, role in enumerate(roles) if role == "confirm"]
    assert pairs and all(roles[i + 1] == "baseline" for i in pairs)
    assert (result["state"], result["confirmed"]) == ("confirmed", True), result["attempts"]
    chosen = result["recommended"]
    place = chosen["threads_per_node"], chosen["freq_khz"]
    # a quiet machine: beside the job as written, what came out as predicted is confirmed, too
    assert place in [(r["threads_per_node"], r["freq_khz"]) for r in result["runs"]]
    assert chosen["confirmed"] and chosen["energy_j"] < result["baseline"]["energy_j"]


def test_a_sweep_in_the_background_knows_that_the_partition_gives_whole_nodes(
    command: Command,
) -> None:
    """Its process reads the job again, from the sweep's folder."""
    command.script.write_text(
        "#!/bin/bash\n#SBATCH -N1 -n1 -c 20 -p broadwell -A proj -t 3\n"
        "srun simapp --kernel stencil\n"
    )
    update = ["scontrol", "update", "PartitionName=broadwell"]
    command.testbed.run([*update, "OverSubscribe=EXCLUSIVE"])
    try:
        begun = command.run(
            command.script,
            "--yes",
            "--detach",
            "--threads",
            "20",
            "--freqs",
            "1.5GHz,2.2GHz",
            "--repeat-baseline",
            "1",
            "--estimate",
            "3s",
        )
        log = Path(begun["folder"]) / "log"
        wait_for(lambda: "all options:" in log.read_text())
    finally:
        command.testbed.run([*update, "OverSubscribe=NO"])
    assert "confirmed: a run there took" in log.read_text(), log.read_text()


def test_killed_while_it_waits_and_resumed(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\n"
        "srun simapp --kernel nbody --scale 0.5\n"
    )
    child = command.start(
        command.script,
        "--yes",
        "--threads",
        "7,14,21,28",
        "--freqs",
        "2.2GHz",
        "--design",
        "uniform",
    )
    wait_for(lambda: command.finished() >= 1)
    child.kill()
    child.communicate()
    result = command.run("--resume")
    wait_for(lambda: command.designs(result["id"]) == ["COMPLETED"])
    seen = command.sweep_jobs(result["id"])
    steps = [j["name"] for j in seen if "." in j["id"] and "design" in j["name"]]
    assert sorted(steps) == sorted(set(steps)) and len(steps) == 4
    assert [r["threads_per_node"] for r in result["runs"]][:4] == [28, 7, 14, 21]


def test_an_allocation_that_is_lost_is_made_anew_for_what_is_missing(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\n"
        "srun simapp --kernel nbody --scale 0.5\n"
    )
    child = command.start(
        command.script,
        "--yes",
        "--threads",
        "7,14,21,28",
        "--freqs",
        "2.2GHz",
        "--design",
        "uniform",
    )
    wait_for(lambda: command.finished() >= 2)
    (folder,) = command.folder.glob("state/advisor/sweeps/*")
    handle = json.loads((folder / "sweep.json").read_text())["stages"]["design"]["handles"][-1]
    command.testbed.run(["scancel", handle])
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "runs are missing" in err and "CANCELLED" in err
    assert f"advisor train --resume {folder.name}" in err and err.count("advisor: ") == 1
    result = command.run("--resume", folder.name)
    wait_for(lambda: command.designs(folder.name) == ["CANCELLED", "COMPLETED"])
    seen = command.sweep_jobs(folder.name)
    good = [
        j["name"]
        for j in seen
        if "." in j["id"] and "design" in j["name"] and j["state"] == "COMPLETED"
    ]
    assert len({n.rsplit("-", 1)[0] for n in good}) == len(good) == 4
    assert result["state"] == "fitted"  # fewer threads save nothing of nbody
    assert result["recommended"] is None and result["attempts"] == []


def test_interrupted_the_allocation_is_given_back(command: Command) -> None:
    command.script.write_text(
        "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\nsrun simapp --kernel nbody\n"
    )
    child = command.start(command.script, "--yes", "--threads", "14,28", "--freqs", "2.2GHz")
    wait_for(lambda: bool(list(command.folder.glob("state/*/sweeps/*/design/events"))))
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    (folder,) = command.folder.glob("state/advisor/sweeps/*")
    assert f"advisor train --resume {folder.name}" in err and "Traceback" not in err

    def given_back() -> bool:
        jobs = [j for j in command.sweep_jobs(folder.name) if "." not in j["id"]]
        return [j["state"].split()[0] for j in jobs] == ["CANCELLED"]

    wait_for(given_back)
    with Reader(command.store) as reader:
        assert [r.id for r in reader.training_requests("stopped")] == [folder.name]


def test_an_ordinary_user_trains_through_the_daemon(command: Command, slurm: Slurm) -> None:
    """Slurm runs the sweep as the user; the store, which only root may write, gets the runs."""
    testbed = command.testbed
    user = testbed.user
    public = Path(tempfile.mkdtemp(prefix="train-user-"))
    public.chmod(0o755)
    store, path = public / "advisor.db", public / "s"
    daemon = None
    try:
        shutil.copyfile(command.store, store)
        daemon = subprocess.Popen(
            [sys.executable, "-m", "advisor", "serve", "--socket", str(path), "--refresh", "0.2"],
            env={**command.env, "ADVISOR_DB": str(store)},
            stderr=subprocess.DEVNULL,
        )
        wait_for(path.exists)
        script = testbed.home(user) / "trained.sh"
        script.write_text(
            "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\n"
            "srun simapp --kernel nbody --scale 0.4\n"
        )
        # may read this checkout and its Python wherever they are, but write only its own
        reader = [
            "setpriv",
            f"--reuid={user}",
            "--clear-groups",
            "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search",
        ]
        done = testbed.run(
            [
                *reader,
                sys.executable,
                "-m",
                "advisor",
                "train",
                script,
                "--yes",
                "--json",
                "--threads",
                "7,14,21,28",
                "--freqs",
                "2.2GHz",
                "--workload",
                "theirs",
            ],
            env={
                "ADVISOR_DB": str(store),
                "ADVISOR_SOCKET": str(path),
                "PYTHONPATH": str(ROOT),
                "HOME": str(testbed.home(user)),
                "USER": user,
            },
            cwd=testbed.home(user),
            timeout=180,
        )
        result = json.loads(done.stdout)
        assert result["model_id"] is None
        record = slurm.job(result["runs"][0]["job_id"])
        assert record is not None and record.user == user

        def arrived() -> bool:
            with Reader(store) as opened:
                return bool(opened.find_models("simapp", "theirs"))

        wait_for(arrived)
        with Reader(store) as opened:
            runs = [o.observation for o in opened.observations("simapp", "theirs")]
        assert {o.contributor for o in runs} == {user}
        assert sum(o.source == "sweep" for o in runs) == 4
        assert {o.energy_quality for o in runs} == {"measured"}
    finally:
        if daemon is not None:
            daemon.terminate()
            daemon.wait(10)
        shutil.rmtree(public)
