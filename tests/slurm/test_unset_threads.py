"""A variable of threads that a job leaves unset, on a real Slurm: who may set it, and who may not.

A program that starts workers gives each of them one thread only while the variable is unset.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from advised import AdvisedSite

from advisor.store.reader import Reader

POOL = 14


def run(site: AdvisedSite, script: Path) -> tuple[int, dict[str, str]]:
    """Submit a script and wait for it; return its job and what the program printed."""
    done = site.testbed.run(["sbatch", script.name], cwd=site.folder)
    job = int(re.findall(r"\d+", done.stdout)[-1])
    site.testbed.wait(job)
    site.testbed.sacct(job)
    return job, dict(re.findall(r"(\w+)=(\S+)", (site.folder / f"{job}.out").read_text()))


def script_of(site: AdvisedSite, name: str, program: str) -> Path:
    return site.script(
        name, program, "-N 1", "--exclusive", "-p broadwell", "-t 10", f"-o {site.folder}/%j.out"
    )


@pytest.mark.parametrize("pool", [POOL, 0])
def test_a_pool_of_workers_keeps_its_threads_and_an_openmp_program_gets_fewer(
    site: AdvisedSite, pool: int
) -> None:
    scale = f"1.{pool}1"
    words = f"--kernel stencil --scale {scale}" + (f" --pool {pool}" if pool else "")
    script = script_of(site, f"pool{pool}.sh", f"srun simapp {words}")
    site.advisor("train", script.name, "--scheduler", "slurm", "--yes", "--design", "uniform")
    site.settle()
    with Reader(site.store) as reader:
        runs = [o.observation for o in reader.observations("simapp", words)]
    counted = [o.extra["thread_use"] for o in runs if "thread_use" in o.extra]
    expected = [1] * (1 + POOL) if pool else [28]
    assert counted[0] == {"unset": True, "threads": expected}  # the job as written, in /proc
    job, printed = run(site, script)
    answer = site.json("why", job)
    environment, codes = answer["decision"]["environment"], answer["decision"]["reasons"]
    assert answer["decision"]["rewrite"].keys() == {"cpu-freq"}  # the cap is still possible
    if pool:
        assert (printed["workers"], printed["threads_each"]) == ("14", "1")
        assert environment == {} and "threads-unset" in codes
    else:
        threads = environment["OMP_NUM_THREADS"]
        assert printed["threads_per_node"] == threads and int(threads) < 28
        assert "threads-unset" not in codes


def test_cores_that_are_all_of_the_node_are_no_choice_of_threads(site: AdvisedSite) -> None:
    words = "--kernel stencil --scale 1.7"
    options = ("-N 1", "-n 1", "-c 28", "--exclusive", "-p broadwell", "-t 10")
    script = site.script("whole.sh", f"simapp {words}", *options, f"-o {site.folder}/%j.out")
    site.advisor("train", script.name, "--scheduler", "slurm", "--yes", "--design", "uniform")
    site.settle()
    with Reader(site.store) as reader:
        runs = [o.observation for o in reader.observations("simapp", words)]
    counted = [o.extra["thread_use"] for o in runs if "thread_use" in o.extra]
    assert counted[0] == {"unset": True, "threads": [28], "knows_cores": True}
    job, printed = run(site, script)
    decision = site.json("why", job)["decision"]
    threads = decision["environment"]["OMP_NUM_THREADS"]
    assert decision["rewrite"] == {}  # the request stays, and no step is there to cap
    assert printed["threads_per_node"] == threads and int(threads) < 28
