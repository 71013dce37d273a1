"""Two daemons, one of which only reads, and two users: what they measured comes home."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed import NODE_TYPES, CommandResult, Testbed

from advisor.core.delivery import FOLDER, place_mark
from advisor.core.inventory import NodeType
from advisor.core.protocol import call
from advisor.paths import share
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.waiting import wait_for

ROOT = share("config").parent
POSED = NODE_TYPES["bdw"]
# may read this checkout and its Python wherever they are, but write only its own
READER = ("--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


class Hosts:
    """The store's host with its daemon, and a login node whose daemon answers from a copy."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed = testbed
        self.store, self.copy = folder / "advisor.db", folder / "copy.db"
        self.home_socket, self.login_socket = folder / "s", folder / "login"
        with Writer(self.store) as writer:
            writer.save_node_types(
                [
                    NodeType(
                        "broadwell",
                        feature="broadwell",
                        partitions=("batch",),
                        sockets=2,
                        cores=28,
                        memory_mb=8000,
                        freq_khz=POSED.frequencies_khz,
                        default_freq_khz=POSED.max_khz,
                        nodes=tuple(POSED.nodes),
                        default_partition="batch",
                    )
                ],
                source="test",
            )
        publish(self.store, self.copy, history=False)
        self.daemons = [
            self.serve("--db", self.store, "--socket", self.home_socket),
            self.serve("--db", self.copy, "--socket", self.login_socket, "--read-only"),
        ]
        wait_for(lambda: self.home_socket.exists() and self.login_socket.exists())

    def serve(self, *argv: str | Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "advisor",
                "serve",
                "--refresh",
                "0.2",
                "--watch",
                "0",
                *map(str, argv),
            ],
            env={**self.testbed.env(), "PYTHONPATH": str(ROOT)},
            stderr=subprocess.DEVNULL,
        )

    def login(self, user: str, *argv: str | Path) -> CommandResult:
        """Run a verb on the login node as a user, who names no store."""
        home = self.testbed.home(user)
        return self.testbed.run(
            ["setpriv", f"--reuid={user}", *READER, sys.executable, "-m", "advisor", *argv],
            env={
                "ADVISOR_SOCKET": str(self.login_socket),
                "PYTHONPATH": str(ROOT),
                "HOME": str(home),
                "USER": user,
            },
            cwd=home,
            timeout=180,
        )

    def collect(self, *argv: str) -> dict[str, Any]:
        """Collect on the store's host, as root."""
        done = self.testbed.run(
            [sys.executable, "-m", "advisor", "collect", "--scheduler", "slurm", "--json", *argv],
            env={"ADVISOR_DB": str(self.store), "PYTHONPATH": str(ROOT)},
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def place(self, user: str) -> Path:
        return self.testbed.home(user) / ".local/state/advisor" / FOLDER


@pytest.fixture
def hosts(testbed: Testbed) -> Iterator[Hosts]:
    folder = Path(tempfile.mkdtemp(prefix="hosts-", dir="/tmp"))
    folder.chmod(0o755)
    found = Hosts(testbed, folder)
    try:
        yield found
    finally:
        for daemon in found.daemons:
            daemon.terminate()
            daemon.wait(10)
        shutil.rmtree(folder)


def test_what_login_nodes_measure_comes_home(hosts: Hosts) -> None:
    testbed = hosts.testbed
    ann, bob = testbed.users[:2]
    script = testbed.home(ann) / "far.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --exclusive -C broadwell -t 3\n"
        "srun simapp --kernel nbody --scale 0.2\n"
    )
    done = hosts.login(
        ann,
        "train",
        script,
        "--yes",
        "--json",
        "--threads",
        "7,14,21,28",
        "--freqs",
        "2.2GHz",
        "--workload",
        "far",
    )
    result = json.loads(done.stdout)
    assert result["model_id"] is None and str(hosts.place(ann)) in done.stderr
    assert "--read-only" in done.stderr or "only reads" in done.stderr
    left = list(hosts.place(ann).iterdir())
    assert left and {p.stat().st_mode & 0o777 for p in left} == {0o600}

    # what is not in a sweep's job is taken when an admin names it
    done = hosts.login(
        bob,
        "run",
        "--record",
        "--application",
        "alone",
        "--threads",
        "1",
        "--meter",
        "none",
        "--",
        "true",
    )
    assert f"--left {bob}:{hosts.place(bob)}" in done.stderr

    # bob has a job name ann's folder, and links her files into his own
    (hosts.place(bob) / "runs-1-ab.json").symlink_to(left[0])
    mark = place_mark(hosts.place(ann))
    job = testbed.sbatch("-n1", f"--comment={mark}", script="true\n", user=bob).job_id
    testbed.wait(job)

    sweeps = {run["job_id"] for run in result["runs"]}

    def accounted() -> bool:
        done = testbed.run(["sacct", "-nXP", "-o", "JobID,State", "-S", "2020-01-01"])
        ended = {
            line.split("|")[0] for line in done.stdout.splitlines() if line.endswith("COMPLETED")
        }
        return {*sweeps, str(job)} <= ended

    wait_for(accounted)
    found = hosts.collect("--left", f"{bob}:{hosts.place(bob)}")
    assert found["left"]["files"] == len(left) + 1
    assert [line.split("/")[-1].split(":")[0] for line in found["left"]["refused"]] == [
        "runs-1-ab.json"
    ]
    assert any(bob in line and str(hosts.place(ann)) in line for line in found["left"]["problems"])
    assert not list(hosts.place(ann).iterdir())
    with Reader(hosts.store) as reader:
        mine = [o.observation for o in reader.observations("simapp", "far")]
        alone = [o.observation for o in reader.observations("alone")]
        assert reader.find_models("simapp", "far")
    assert {o.contributor for o in mine} == {ann} and {o.contributor for o in alone} == {bob}
    assert {o.energy_quality for o in mine} == {"measured"}
    assert len(mine) == len(result["runs"])
    again = hosts.collect()
    assert (again["left"]["files"], again["spool"]["files"]) == (0, 0)

    # and the login node answers with it once the copy is there
    publish(hosts.store, hosts.copy, history=False)

    def answered() -> bool:
        return bool(call(hosts.login_socket, {"op": "status"})["models"])

    wait_for(answered)
    assert json.loads(hosts.login(ann, "options", "simapp", "--json").stdout)["models"]
