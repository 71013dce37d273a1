"""On a real Slurm with the real daemon: a script that nobody reads, whose steps get their caps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from advised import AdvisedSite, advised_site
from testbed import NODE_TYPES, Testbed

BODY = """\
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
run() { srun "$@"; }
for pass in 1 2; do run simapp --kernel stencil --scale 0.2; done
srun sleep 1
words="simapp --kernel stencil --scale 0.2"
srun --exact -n1 -c4 $words &
srun --exact -n1 -c4 $words &
wait
"""
DIRECTIVES = ("-N 1", "--exclusive", "-p broadwell", "-c 28", "-t 10", "-J planned")


WORKLOAD = "--kernel stencil --scale 0.2"
BDW = NODE_TYPES["bdw"]


def grid() -> str:
    """Return runs of a program that half of the cores serve best, at whatever frequency."""
    lines = ["nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j"]
    for threads in range(4, BDW.cores + 1, 4):
        for khz in BDW.frequencies_khz:
            clock = khz / BDW.max_khz
            time_s = 20 * (1 + 0.5 * (threads / 14 - 1) ** 2 + 0.02 * (1 / clock - 1))
            energy_j = time_s * (100 + threads * (1 + 2 * clock**3))
            lines.append(f"1,1,{threads},{khz},{time_s:.4f},{energy_j:.2f}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[AdvisedSite]:
    """A site where one program is measured, and nothing else."""
    with advised_site(testbed, deadline="5s") as advised:
        runs = advised.folder / "grid.csv"
        runs.write_text(grid())
        names = ("--application=simapp", f"--workload={WORKLOAD}")
        advised.advisor("import", runs, "--node-type", BDW.feature, *names)
        advised.counted()
        advised.advisor("fit", "simapp")
        advised.settle()
        yield advised


def run(site: AdvisedSite, path: Path, **env: str) -> tuple[list[str], Counter[str], str]:
    """Run a job; return its steps' programs, those with a cap, and what sbatch and job said."""
    out = site.folder / "job.out"
    done = site.testbed.sbatch("-o", str(out), str(path), env=env)
    assert done.job_id, done.stderr
    assert site.testbed.wait(done.job_id, timeout=300) == "COMPLETED"
    rows = site.testbed.sacct(done.job_id, timeout=300)
    steps = [row for row in rows if row["JobID"].partition(".")[2].isdecimal()]
    capped = [row["JobName"] for row in steps if row["ReqCPUFreqMax"] not in ("Unknown", "0")]
    threads = re.findall(r" threads_per_node=(\d+)", out.read_text())
    return sorted(r["JobName"] for r in steps), Counter([*capped, *threads]), done.stderr


def test_the_steps_of_an_unmodified_script_get_what_their_program_gets(site: AdvisedSite) -> None:
    path = site.script("planned.sh", BODY, *DIRECTIVES)
    programs, got, said = run(site, path)
    told = site.json("explain", path)
    assert got["simapp"] == 2, (said, told["explanation"], told["steps"])
    assert "advisor: steps: " in said
    assert programs == ["simapp"] * 4 + ["sleep"]
    off = run(site, path, ADVISOR="off")
    assert (off[0], off[1]["simapp"], off[2]) == (programs, 0, "")
    assert (got["28"], off[1]["28"]) == (0, 2)  # the farm's steps have four CPUs each
    path.write_text(path.read_text().replace("export OMP", "#ADVISOR off\nexport OMP"))
    assert run(site, path)[:2] == off[:2]
