"""On a real Slurm: a frequency cap that the site's login profile sets for everybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from advised import AdvisedSite, advised_site
from test_end_to_end import khz, write_grid
from testbed import NODE_TYPES, Testbed

BDW = NODE_TYPES["bdw"]
NAMED = {"ADVISOR_APPLICATION": "stencil", "ADVISOR_WORKLOAD": "default"}


@pytest.fixture(scope="module")
def capped(testbed: Testbed) -> Iterator[AdvisedSite]:
    """A site that says of SLURM_CPU_FREQ_REQ=2000000 that everybody has it."""
    with advised_site(testbed) as site:
        with (site.config / "site.yaml").open("a") as file:
            file.write("understood_options:\n  SLURM_CPU_FREQ_REQ=2000000: harmless\n")
        site.advisor("site", "apply")
        site.install_hooks()  # they have their own copy of the table
        grid = site.folder / "stencil.csv"
        write_grid(grid, "stencil")
        site.advisor("import", grid, "--application", "stencil", "--node-type", BDW.feature)
        site.advisor("fit", "stencil")
        site.settle()
        yield site


def cap_of_step(site: AdvisedSite, job_id: int) -> int:
    """Return what the job's step was capped to, kHz."""
    site.testbed.wait(job_id)
    step = next(r for r in site.testbed.sacct(job_id) if r["JobID"].endswith(".0"))
    return khz(step["ReqCPUFreqMax"])


def test_it_is_where_jobs_start_from_and_a_users_own_is_kept(capped: AdvisedSite) -> None:
    script = capped.script(
        "stencil.sh",
        "srun simapp --kernel stencil",
        "-N 1",
        "--exclusive",
        "-p broadwell",
        "-t 10",
        "-o /dev/null",
    )
    jobs = {
        (value, off): capped.testbed.sbatch(
            str(script), env={**NAMED, "SLURM_CPU_FREQ_REQ": value, "ADVISOR": off}
        )
        for value in ("2000000", "1800000")
        for off in ("off", "on")
    }
    capped.testbed.rest()
    caps = {key: cap_of_step(capped, job.job_id) for key, job in jobs.items()}
    assert caps["2000000", "off"] == 2_000_000
    assert caps["1800000", "off"] == caps["1800000", "on"] == 1_800_000
    assert caps["2000000", "on"] < 2_000_000
