"""On a real Slurm: caps that the advisor decides and the nodes' prolog applies, end to end.

The site has a prolog of its own; the program stands beside it in the folders that slurm.conf names.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from advised import AdvisedSite, advised_site
from test_end_to_end import write_grid
from testbed import NODE_TYPES, Testbed, requirements
from testbed.daemons import wait_until

from advisor.core.stamp import node_cap_khz

BDW = NODE_TYPES["bdw"]
HIGHEST = BDW.frequencies_khz[-1]
NAMED = {"ADVISOR_APPLICATION": "stencil", "ADVISOR_WORKLOAD": "default"}
SEEN = "cat /sys/devices/system/cpu/cpu{0,27}/cpufreq/scaling_max_freq\n"
WHOLE = ("-N 1", "-n 1", "--exclusive", "-p broadwell", "-t 10")
SITE_PROLOG = """\
#!/bin/bash
if [[ -e {folder}/fail ]]; then exit 1; fi
echo "$SLURM_JOB_ID $SLURM_SCRIPT_CONTEXT" >> {folder}/ran
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Testbed]:
    """A cluster whose prolog and epilog are all programs of a folder each."""
    if reason := requirements():
        pytest.skip(reason)
    root = Path(tempfile.mkdtemp(prefix="node-cap-", dir="/tmp"))
    folders = {name: root / f"{name}.d" for name in ("Prolog", "Epilog")}
    for folder in folders.values():
        folder.mkdir()
        own = folder / "10-site"
        own.write_text(SITE_PROLOG.format(folder=root))
        own.chmod(0o755)
    lines = [f"{name}={folder}/*" for name, folder in folders.items()]
    lines += ["PrologFlags=Alloc", "PartitionName=wholes Nodes=bdw[1-4] OverSubscribe=EXCLUSIVE"]
    try:
        with Testbed(more_configuration="\n".join(lines) + "\n") as made:
            made.prologs = root  # type: ignore[attr-defined]
            yield made
    finally:
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def capping(cluster: Testbed) -> Iterator[AdvisedSite]:
    """A site that knows of stencil, and runs the program."""
    with advised_site(cluster, watch_s=1, deadline="5s") as site:
        where = ["--scheduler", "slurm", "--dir", str(cluster.conf_dir), "--deadline", "5s"]
        said = site.advisor("hook", "install", *where, "--socket", site.socket, "--node-cap").stdout
        assert "PrologFlags=Alloc" in said
        program = cluster.conf_dir / "advisor-node-cap"
        assert program.stat().st_mode & 0o777 == 0o755
        for name in ("Prolog", "Epilog"):
            (folder_of(cluster) / f"{name}.d" / program.name).symlink_to(program)
        grid = site.folder / "stencil.csv"
        write_grid(grid, "stencil")
        site.advisor("import", grid, "--application", "stencil", "--node-type", BDW.feature)
        site.advisor("fit", "stencil")
        site.settle()
        yield site
        for name in ("Prolog", "Epilog"):
            (folder_of(cluster) / f"{name}.d" / program.name).unlink()


def folder_of(cluster: Testbed) -> Path:
    folder: Path = cluster.prologs  # type: ignore[attr-defined]
    return folder


def submit(site: AdvisedSite, body: str, *directives: str, **env: str) -> int:
    """Submit a job that runs the posed program; return its id."""
    path = site.script("job.sh", body, *(directives or WHOLE), f"-o {site.folder}/%j.out")
    return site.testbed.sbatch(str(path), env={**NAMED, **env}).job_id


def came_of(site: AdvisedSite, job: int) -> tuple[str, int, set[int]]:
    """Return a job's state, the cap in its stamp and what its script saw of its cores, kHz."""
    state = site.testbed.wait(job)
    fields = site.testbed.scontrol_jobs(job)[0]
    words = Path(fields["StdOut"]).read_text().split()
    seen = {int(word) for word in words if word.isdecimal()}
    return state, node_cap_khz(fields.get("AdminComment", "")), seen


def at_rest(site: AdvisedSite) -> bool:
    """Whether each node has its highest frequency again, and is idle."""
    site.testbed.rest()
    states = site.testbed.run(["sinfo", "-h", "-N", "-n", "bdw[1-4]", "-o", "%T"]).stdout.split()
    caps = {site.testbed.cpufreq(f"bdw{n}") for n in range(1, 5)}
    return (caps, set(states)) == ({str(HIGHEST)}, {"idle"})


@pytest.mark.parametrize(
    ("start", "directives"),
    [
        ("", WHOLE),
        ("mpirun -np 1", WHOLE),
        ("srun --cpu-bind=none", WHOLE),
        ("", ("-N 1", "-n 1", "-p wholes", "-t 10")),
        ("", (*WHOLE, "--array=3")),
    ],
)
def test_a_decided_cap_holds_for_all_that_a_job_runs(
    capping: AdvisedSite, start: str, directives: tuple[str, ...]
) -> None:
    job = submit(capping, f"{SEEN}{start} simapp --kernel stencil", *directives)
    state, cap, seen = came_of(capping, job)
    assert (state, seen) == ("COMPLETED", {cap}) and BDW.min_khz <= cap < HIGHEST
    assert at_rest(capping)


def test_a_program_of_srun_is_capped_by_its_step_alone(capping: AdvisedSite) -> None:
    state, cap, seen = came_of(capping, submit(capping, f"{SEEN}srun simapp --kernel stencil"))
    assert (state, cap, seen) == ("COMPLETED", 0, {HIGHEST})


@pytest.mark.parametrize("off", ["off", "on"])
def test_a_stamp_in_the_users_environment_caps_nothing(capping: AdvisedSite, off: str) -> None:
    first = submit(capping, "simapp --kernel stencil")
    capping.testbed.wait(first)
    stamp = capping.testbed.scontrol_jobs(first)[0]["AdminComment"]
    assert '"cap":' in stamp
    forged = stamp.replace('"cap":', '"cap":1200000,"x":')
    for text in (stamp, forged):
        job = submit(
            capping, f"{SEEN}srun simapp --kernel stencil", ADVISOR_STAMP=text, ADVISOR=off
        )
        assert came_of(capping, job) == ("COMPLETED", 0, {HIGHEST})
    assert at_rest(capping)


def test_a_user_may_turn_it_off_or_set_a_cap(capping: AdvisedSite) -> None:
    body = f"{SEEN}simapp --kernel stencil"
    for job in (
        submit(capping, body, ADVISOR="off"),
        submit(capping, body, *WHOLE, "--cpu-freq=1200000-2000000"),
    ):
        assert came_of(capping, job) == ("COMPLETED", 0, {HIGHEST})


def test_a_prolog_of_the_site_runs_beside_it_and_may_fail(capping: AdvisedSite) -> None:
    """Slurm then drains the node by the site's own rule; no cap of ours stays on it."""
    folder = folder_of(capping.testbed)
    assert came_of(capping, submit(capping, f"{SEEN}simapp --kernel stencil"))[1]
    capping.testbed.rest()
    assert {"prolog_slurmd", "epilog_slurmd"} <= set((folder / "ran").read_text().split())
    (folder / "fail").touch()
    job = submit(capping, "simapp --kernel stencil", *WHOLE, "-w bdw1", "--no-requeue")

    def drained() -> bool:
        return "drain" in capping.testbed.run(["sinfo", "-h", "-n", "bdw1", "-o", "%T"]).stdout

    try:
        wait_until(drained, 60, "the site's prolog to fail")
    finally:
        (folder / "fail").unlink()
        capping.testbed.run(["scancel", str(job)])
    capping.testbed.wait(job)

    def resumed() -> bool:  # Slurm may drain it once more, by the same failure
        capping.testbed.run(["scontrol", "update", "NodeName=bdw1", "State=RESUME"], check=False)
        states = capping.testbed.run(["sinfo", "-h", "-n", "bdw1", "-o", "%T"]).stdout
        return set(states.split()) == {"idle"}

    wait_until(resumed, 60, "bdw1 to be idle")
    assert at_rest(capping)


def test_what_came_of_it_is_judged_and_shown(capping: AdvisedSite) -> None:
    job = submit(capping, "simapp --kernel stencil")
    _, cap, _ = came_of(capping, job)
    capping.testbed.rest()
    capping.advisor("collect")
    why = capping.json("why", job)
    outcome = why["outcome"]
    assert why["decision"]["node_cap_khz"] == cap == outcome["freq_requested_khz"]
    assert outcome["record"]["mismatch"] == "" and outcome["record"]["ran"]["uncapped"] == ""
    assert "set by its nodes" in capping.advisor("why", job).stdout


def test_doctor_looks_at_the_program(capping: AdvisedSite) -> None:
    def check() -> tuple[str, str]:
        said = capping.advisor("doctor", "--json", check=False).stdout
        checks = json.loads(said)["checks"]
        (found,) = (c for c in checks if c["name"] == "node-cap")
        return found["state"], found["text"]

    assert check()[0] == "ok"
    program = capping.testbed.conf_dir / "advisor-node-cap"
    for wrong, what in ((0o644, "not executable"), (0o777, "by others than root")):
        program.chmod(wrong)
        state, text = check()
        assert state == "fail" and what in text
    program.chmod(0o755)
    os.chown(program, 1, 1)
    assert "belongs to uid 1" in check()[1]
    os.chown(program, 0, 0)
    assert check()[0] == "ok"


def test_removing_the_hooks_leaves_the_program_that_slurm_still_names(
    capping: AdvisedSite,
) -> None:
    where = ["--scheduler", "slurm", "--dir", str(capping.testbed.conf_dir)]
    said = capping.advisor("hook", "remove", *where).stdout
    assert "advisor-node-cap caps nothing now" in said
    assert (capping.testbed.conf_dir / "advisor-node-cap").exists()
    capping.install_hooks()
