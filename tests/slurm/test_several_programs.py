"""On a real Slurm: a script of several programs, each of them measured, gets fewer threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from advised import AdvisedSite, advised_site
from test_whole_job import run_once, steps
from testbed import NODE_TYPES, Testbed

from tests.verdicts import verdict_of

BDW = NODE_TYPES["bdw"]
SCALES = (8, 6)
"""Of the posed programs: long enough for the accounting's whole seconds."""
DIRECTIVES = ("-N 1", "-n 1", "--exclusive", "-p broadwell", "-t 10")


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[AdvisedSite]:
    """A site where the posed program is measured with two workloads, and nothing else."""
    with advised_site(testbed, deadline="5s") as advised:
        for scale in SCALES:
            workload = f"--kernel stencil --scale {scale}"
            advised.import_law("stencil", "bdw", scale, application="simapp", workload=workload)
        yield advised


def script(site: AdvisedSite, name: str, *programs: str) -> Path:
    lines = "\n".join(f"simapp {arguments}" for arguments in programs)
    return site.script(name, lines, *DIRECTIVES, f"-J {name}", f"-o {site.folder}/%j.out")


def threads(site: AdvisedSite, number: int) -> list[int]:
    """Return the threads that each program of a job had, as it says."""
    text = (site.folder / f"{number}.out").read_text()
    return [int(n) for n in re.findall(r"\bthreads_per_node=(\d+)", text)]


def test_each_program_of_a_job_gets_the_threads_that_are_better_for_each(site: AdvisedSite) -> None:
    path = script(site, "both", *(f"--kernel stencil --scale {scale}" for scale in SCALES))
    off = site.testbed.sbatch(str(path), env={"ADVISOR": "off"})
    assert off.job_id and not off.stderr
    site.testbed.wait(off.job_id)
    asked = site.json("explain", path)
    assert "several-programs" in asked["reasons"], asked["explanation"]
    fewer = int(asked["environment"]["OMP_NUM_THREADS"])
    assert fewer < BDW.cores and asked["rewrite"] == {}
    number, said = run_once(site, path)
    assert "advisor: this job runs on" in said and "ADVISOR=off" in said
    assert threads(site, off.job_id) == [BDW.cores] * len(SCALES)
    assert threads(site, number) == [fewer] * len(SCALES)
    assert steps(site, number)[:-1] == steps(site, off.job_id)[:-1]  # but for the threads
    told = site.json("why", number)
    assert told["outcome"]["state"] == "COMPLETED" and told["outcome"]["energy_j"] > 0
    record = told["outcome"]["record"]
    assert told["verdict"] == verdict_of(told) != "worse", record["mismatch"]
    line = next(s for s in told["decision"]["explanation"] if "one after the other" in s)
    assert line in " ".join(site.advisor("why", number).stdout.split())


def test_one_unknown_program_keeps_the_threads_of_all(site: AdvisedSite) -> None:
    path = script(site, "one", f"--kernel stencil --scale {SCALES[0]}", "--kernel nbody")
    number, said = run_once(site, path)
    told = site.json("why", number)
    assert not told["decision"]["changed"] and "runs on" not in said
    assert "several-steps" in told["decision"]["reasons"]
    assert threads(site, number) == [BDW.cores] * 2
