"""On a real Slurm: a script of several steps is known by its own earlier jobs, and gets a cap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from advised import POLICY, AdvisedSite, advised_site
from testbed import NODE_TYPES, Testbed

from tests.verdicts import verdict_of
from tests.waiting import wait_for

BDW = NODE_TYPES["bdw"]
SCALE = 12
"""Of the posed program: long enough for the accounting's whole seconds."""
DIRECTIVES = ("-N 1", "--exclusive", "-p broadwell", "-t 10")


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[AdvisedSite]:
    """A site where the posed program's memory-bound kernel is measured, and nothing else."""
    # where threads may change, a plan of fewer of them for simapp's step takes the cap's place
    policy = POLICY + "axes: {threads: keep}\n"
    with advised_site(testbed, policy, deadline="5s") as advised:
        advised.import_law(
            "stencil",
            "bdw",
            SCALE,
            application="simapp",
            workload=f"--kernel stencil --scale {SCALE}",
        )
        yield advised


def script(site: AdvisedSite, name: str, main: str) -> Path:
    body = f"srun sleep 3\nsrun {main}"  # each step is metered
    return site.script(name, body, *DIRECTIVES, f"-J {name}", f"-o {site.folder}/%j.out")


def run_once(site: AdvisedSite, path: Path) -> tuple[int, str]:
    """Run a job to its end and collect it; return its number and what sbatch said."""
    job = site.testbed.sbatch(str(path))
    assert job.job_id
    site.testbed.wait(job.job_id)
    site.testbed.sacct(job.job_id)
    site.advisor("collect")
    return job.job_id, job.stderr


def steps(site: AdvisedSite, number: int) -> list[tuple[str, ...]]:
    """What a job's steps were, and what its programs say that they had, but for the clock."""
    shown = ("JobName", "State", "NCPUS", "NTasks")
    rows = [tuple(row[name] for name in shown) for row in site.testbed.sacct(number)]
    # not srun's own words: on a busy machine it says that it waits for "Requested nodes"
    text = (site.folder / f"{number}.out").read_text()
    words = (w for w in text.split() if re.match(r"(threads|ranks|nodes|kernel)\w*=", w))
    return [*rows, tuple(words)]


def test_the_fourth_job_of_a_script_of_several_steps_gets_a_cap(site: AdvisedSite) -> None:
    path = script(site, "several", f"simapp --kernel stencil --scale {SCALE}")
    for _ in range(3):
        number, said = run_once(site, path)
        told = site.json("why", number)
        assert not told["decision"]["changed"] and "runs on" not in said
        assert "several-steps" in told["decision"]["reasons"]

    def capped() -> bool:
        return bool(site.json("explain", path)["rewrite"])

    wait_for(capped, 20, lambda: site.json("explain", path)["explanation"])
    asked = site.json("explain", path)
    assert "whole-job" in asked["reasons"], asked["explanation"]
    assert list(asked["rewrite"]) == ["cpu-freq"] and not asked["environment"]
    assert asked["parts"][0]["application"] == "simapp" and asked["parts"][0]["known"]
    assert not any(part["known"] for part in asked["parts"][1:])
    off = site.testbed.sbatch(str(path), env={"ADVISOR": "off"})
    assert off.job_id and not off.stderr
    site.testbed.wait(off.job_id)
    number, said = run_once(site, path)
    assert "advisor: this job runs on" in said and "ADVISOR=off" in said
    assert steps(site, number) == steps(site, off.job_id)  # but for the cap
    printed = (site.folder / f"{number}.out").read_text()
    cap = asked["chosen"]["freq_khz"]
    assert cap < BDW.max_khz and f"freq_khz={cap} " in printed
    assert f"threads_per_node={BDW.cores} " in printed  # nothing else of the job changed
    told = site.json("why", number)
    assert told["outcome"]["state"] == "COMPLETED"
    record = told["outcome"]["record"]
    assert told["verdict"] == verdict_of(told) != "worse", record["mismatch"]
    line = next(s for s in told["decision"]["explanation"] if "its own earlier jobs" in s)
    assert "% of its time is simapp" in line and "counted at the worst" in line
    assert line in " ".join(site.advisor("why", number).stdout.split())


def test_one_whose_main_part_is_unknown_gets_none(site: AdvisedSite) -> None:
    path = script(site, "unknown", "simapp --kernel nbody --scale 2")
    for _ in range(3):
        run_once(site, path)
    site.settle()
    number, said = run_once(site, path)
    told = site.json("why", number)
    assert not told["decision"]["changed"] and "runs on" not in said
