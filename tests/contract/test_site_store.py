"""Root's site in the default layout, and what a plain user without a store gets of it."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ClusterShell.NodeSet  # noqa: F401  # as nobody a fork cannot, where Python is in root's home
import pytest
from advisor_tui.session import Session

from advisor import paths
from advisor.cli import main
from advisor.core.protocol import call
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.examples import example_store
from tests.forked import forked
from tests.profiled import grid_profile, write_runs
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
DAEMON = """
import sys
from pathlib import Path
from advisor import paths
paths.SYSTEM = Path(sys.argv[1])
from advisor.cli import main
sys.exit(main(sys.argv[2:]))
"""
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup")


@dataclass
class Layout:
    """A machine's folders below one of its own, root's daemon, and a user's home."""

    root: Path
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def store(self) -> Path:
        return self.root / "var/lib/advisor/advisor.db"

    @property
    def socket(self) -> Path:
        return self.root / "run/advisor/advisor.sock"

    def environment(self, home: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR", "XDG_"))}
        return {**kept, "HOME": str(self.root / home), "PYTHONDONTWRITEBYTECODE": "1"}

    def serve(self, *argv: str) -> subprocess.Popen[bytes]:
        self.socket.unlink(missing_ok=True)
        daemon = subprocess.Popen(
            [sys.executable, "-c", DAEMON, str(self.root), "serve", *argv],
            env=self.environment("root"),
            stderr=subprocess.DEVNULL,
        )
        self.daemons.append(daemon)
        end = time.monotonic() + 30
        while not self.socket.exists():
            assert daemon.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        return daemon

    def as_nobody(
        self, task: Callable[[], int], groups: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a task on this machine as nobody, in nobody's home."""

        def run() -> int:
            os.setgroups(groups)
            os.setgid(grp.getgrnam("nogroup").gr_gid)
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            paths.SYSTEM = self.root
            return task()

        return forked(run, self.environment("home"), self.root / "home")

    def user(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a verb as nobody."""
        return self.as_nobody(lambda: main(argv))

    def desk(self) -> str:
        """Return the store that the TUI shows nobody."""

        def show() -> int:
            print(Session.here().store)
            return 0

        return self.as_nobody(show).stdout.strip()

    def good(self, *argv: str) -> str:
        done = self.user(*argv)
        assert done.returncode == 0, (argv, done.stderr)
        return done.stdout


@pytest.fixture
def layout() -> Iterator[Layout]:
    with tempfile.TemporaryDirectory(prefix="advisor-test-") as name:
        found = Layout(Path(name))
        for folder in ("", "var/lib/advisor", "run/advisor", "etc/advisor", "home", "root"):
            (found.root / folder).mkdir(parents=True, exist_ok=True)
            (found.root / folder).chmod(0o755)
        shutil.chown(found.root / "home", "nobody", "nogroup")
        probe = [*AS_NOBODY, "--clear-groups", sys.executable, "-c", "import advisor.cli"]
        if subprocess.run(probe, env=found.environment("home"), capture_output=True).returncode:
            pytest.skip("others than root cannot read this checkout")
        example_store(found.store, "nobody")
        found.store.chmod(0o644)  # this site lets everybody read it
        (found.root / "home/job.sh").write_text(
            "#!/bin/bash\n#SBATCH -N 1 -C broadwell\n#SBATCH --exclusive\nsrun ./cg-solver n=4e6\n"
        )
        kernel = found.root / "home/kernel"
        kernel.write_text("#!/bin/sh\nsleep 0.1\n")
        kernel.chmod(0o755)
        try:
            yield found
        finally:
            for daemon in found.daemons:
                daemon.kill()
                daemon.wait()


READING: tuple[tuple[str, ...], ...] = (
    ("options", "cg-solver", "--json"),
    ("report", "--json"),
    ("explain", "job.sh", "--json"),
    ("rank", "lbm", "--json"),
    ("fit", "cg-solver", "--dry-run", "--json"),
    ("policy", "show"),
    ("train", "job.sh", "--scheduler", "local", "--dry-run", "--json"),
)


def test_a_plain_user_reads_the_sites_store(layout: Layout) -> None:
    """While the daemon runs, after it stopped, and after it was killed."""
    daemon = layout.serve()
    wanted = {argv: layout.user(*argv) for argv in READING}
    for argv, done in wanted.items():
        assert "there is no store" not in done.stderr, (argv, done.stderr)
    assert json.loads(wanted[READING[0]].stdout)["models"]
    assert json.loads(wanted[READING[1]].stdout)["jobs"] > 0
    assert json.loads(wanted[READING[2]].stdout)["application"] == "cg-solver"
    assert layout.desk() == str(layout.store)
    for number in (signal.SIGTERM, signal.SIGKILL):
        daemon.send_signal(number)
        daemon.wait()
        assert json.loads(layout.good(*READING[0]))["models"], number
        assert json.loads(layout.good(*READING[1]))["jobs"] > 0, number
        assert layout.desk() == str(layout.store)
        daemon = layout.serve()


def test_what_a_plain_user_measures_goes_to_the_daemon(layout: Layout) -> None:
    layout.serve()
    layout.good("run", "--record", "--application", "kernel", "--threads", "1", "--", "./kernel")
    layout.good(
        "train",
        "mine",
        "--workload",
        "one",
        "--scheduler",
        "local",
        "--threads",
        "1",
        "--meter",
        "estimate",
        "--yes",
        "--",
        "./kernel",
    )

    def arrived() -> bool:
        with Reader(layout.store) as reader:
            return all(len(reader.observations(name)) > 0 for name in ("kernel", "mine"))

    wait_for(arrived)
    with Reader(layout.store) as reader:
        for name in ("kernel", "mine"):
            found = [o.observation.contributor for o in reader.observations(name)]
            assert set(found) == {"nobody"}
    assert not list((layout.root / "home").rglob("advisor.db"))


def test_writing_is_refused_in_one_line_that_names_the_way_out(layout: Layout) -> None:
    layout.serve()
    before = layout.store.read_bytes()
    for writing in (("fit", "cg-solver"), ("promote", "cg-solver", "--scope", "all")):
        done = layout.user(*writing)
        assert done.returncode in (1, 2, 3) and "Traceback" not in done.stderr, done.stderr
    assert layout.store.read_bytes() == before
    grid = layout.root / "home/grid.csv"
    grid.write_text(
        "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
        + "".join(f"1,1,{t},0,{9 / t},{9 + t}\n" for t in (1, 2, 4, 8))
    )
    argv = ("import", "grid.csv", "--application", "mine", "--node-type", "milan")
    refused = layout.user(*argv)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1
    assert str(layout.store) in refused.stderr and "--db" in refused.stderr
    layout.good(*argv, "--db", "mine.db")
    assert (layout.root / "home/mine.db").exists()


def test_ones_own_store_comes_first(layout: Layout) -> None:
    own = layout.root / "home/.local/share/advisor/advisor.db"
    own.parent.mkdir(parents=True)
    example_store(own, "nobody")
    for path in (own, *own.parents[:3]):
        shutil.chown(path, "nobody", "nogroup")
    assert layout.desk() == str(own)


def test_a_login_node_has_the_store_its_daemon_answers_from(layout: Layout) -> None:
    shared = layout.root / "shared"
    shared.mkdir()
    publish(layout.store, shared / "advisor.db")
    layout.store.unlink()
    layout.serve("--read-only", "--db", str(shared / "advisor.db"))
    assert layout.desk() == str(shared / "advisor.db")
    assert json.loads(layout.good(*READING[0]))["models"]
    status = call(layout.socket, {"op": "status"})
    assert status["store"] == str(shared / "advisor.db")


def rows_of_history(layout: Layout, user: str) -> tuple[str, str]:
    """Return a job of this user's, and one of somebody else's."""
    with Reader(layout.store) as reader:
        mine = next(d for d in reader.decisions(user=user) if d.job_id)
        job = mine.job_id
    with Writer(layout.store) as writer:
        writer.save_decision(replace(mine, id="f" * 16, user="root"), job_id="990017")
        writer.save_decision(replace(mine, id="e" * 16, user="root"))
    return job, "990017"


@pytest.mark.slow
def test_a_closed_store_is_read_through_the_daemon(layout: Layout) -> None:
    """Everything a user asks works without a file and a variable; others' jobs are not shown."""
    mine, others = rows_of_history(layout, "nobody")
    wanted = {argv: layout.user(*argv) for argv in READING[:3]}
    layout.store.chmod(0o600)
    layout.serve()
    shown, whole = json.loads(layout.good(*READING[0])), json.loads(wanted[READING[0]].stdout)
    for model in whole["models"]:  # what the daemon shows of options has no history to count
        if model["worth"] is not None:
            model["worth"].update(own_runs=None, all_runs=None)
    assert shown == whole
    told = json.loads(layout.good(*READING[2]))
    assert told["application"] == "cg-solver"
    found = json.loads(layout.good("why", mine, "--json"))
    assert found["decision"]["user"] == "nobody"
    for job in (others, "990018"):
        done = layout.user("why", job)
        assert done.returncode == 1 and f"job {job} is not known" in done.stderr
    layout.good("choose", "cg-solver", "--goal", "edp")
    done = layout.user("choose", "cg-solvr", "--goal", "edp")
    assert done.returncode == 2 and "cg-solver" in done.stderr
    layout.good(*READING[6])
    assert json.loads(layout.good("report", "--json"))["jobs"] > 0
    assert "cg-solver" in layout.good("completion", "applications").split()
    assert "broadwell" in layout.good("completion", "node-types").split()


@pytest.mark.slow
def test_a_closed_store_is_not_replaced_by_an_empty_one(layout: Layout) -> None:
    """What needs the whole store says so in one line, and what to do; nobody gets one unasked."""
    layout.store.chmod(0o600)
    write_runs(layout.root / "home/runs", [grid_profile((2, 2), 24)])
    layout.serve()
    assert "goal: min_energy" in layout.good("policy", "show")
    assert "only its owner" not in layout.good("site", "show")
    for argv in (
        ("fit", "cg-solver"),
        ("rank", "lbm"),
        ("collect",),
        ("prune", "--older-than", "0d", "--yes"),
        ("forget", "cg-solver"),
        ("promote", "cg-solver", "--scope", "all"),
        ("backup", "b.db"),
        ("bench", "show"),
        ("classify", "cg-solver"),
        ("profile", "show", "cg-solver"),
        ("profile", "history", "cg-solver"),
        ("classes", "train", "--node-type", "broadwell"),
        ("profile", "import", "runs"),
    ):
        done = layout.user(*argv)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, (argv, done.stderr)
        assert str(layout.store) in done.stderr and "only its owner" in done.stderr, argv
    for argv in (("fit", "cg-solver"), ("rank", "lbm")):
        assert "advisor options" in layout.user(*argv).stderr
    found = json.loads(layout.user("doctor", "--json").stdout)["checks"]
    assert [c["state"] for c in found if c["name"] == "store"] == ["ok"]
    assert not list((layout.root / "home").rglob("*.db"))


def test_a_user_lists_own_jobs_through_the_daemon(layout: Layout) -> None:
    layout.store.chmod(0o600)
    layout.serve()
    own = json.loads(layout.good("jobs", "--since", "3650d", "--json"))["jobs"]
    assert own and {job["user"] for job in own} == {"nobody"}
    for words in (("--everybody",), ("--user", "root")):
        answer = json.loads(layout.good("jobs", *words, "--since", "3650d", "--json"))["jobs"]
        assert {job["user"] for job in answer} <= {"nobody"}
    last = json.loads(layout.good("why", "--json"))
    assert last["job"] in {job["job"] for job in own}
    note = json.loads(layout.good("note", "--since", "3650d", "--json"))
    assert (note["jobs"], note["whose"]) == (len(own), "nobody")


def test_whose_jobs_the_daemon_shows(layout: Layout) -> None:
    _, others = rows_of_history(layout, "nobody")
    layout.store.chmod(0o600)
    daemon = layout.serve()
    root = call(layout.socket, {"op": "history", "job": others})
    assert [d["user"] for d in root["decisions"]] == ["root"]  # type: ignore[attr-defined]

    def asked(*groups: int, **request: object) -> dict[str, Any]:
        def ask() -> int:
            print(json.dumps(call(layout.socket, request)))
            return 0

        found: dict[str, Any] = json.loads(layout.as_nobody(ask, groups).stdout)
        return found

    assert asked(op="history", job=others)["decisions"] == []
    seen, after = [], 0
    while True:
        page = asked(op="history", after=after)
        assert len(page["decisions"]) <= 50
        seen += page["decisions"]
        if (after := page["next"]) is None:
            break
    with Reader(layout.store) as reader:
        assert len(seen) == len(reader.decisions(user="nobody", limit=10**6))
    assert {d["user"] for d in seen} == {"nobody"}
    names = {w["application"] for w in asked(op="applications")["workloads"]}
    assert "cg-solver" in names
    daemon.terminate()
    daemon.wait()
    daemon = layout.serve("--admin-user", "nobody")
    assert asked(op="history", job=others)["decisions"][0]["user"] == "root"
    daemon.terminate()
    daemon.wait()
    layout.serve("--admin-group", "adm")
    number = grp.getgrnam("adm").gr_gid
    for groups, seen_others in (
        ((number,), True),
        ((*range(70000, 70100), number), True),
        ((70000,), False),
        ((), False),
    ):
        answer = asked(*groups, op="history", job=others)
        assert bool(answer["decisions"]) is seen_others, groups


def test_a_site_that_closes_its_store(layout: Layout) -> None:
    """Users train through the daemon, which also says what it would decide."""
    layout.store.chmod(0o600)
    layout.serve()
    layout.good("run", "--record", "--application", "kernel", "--threads", "1", "--", "./kernel")
    told = json.loads(layout.good("explain", "job.sh", "--json"))  # the daemon says what it would
    assert told["application"] == "cg-solver"
