"""The short way that `make test` goes through a real Slurm: a grid, a model, a job, its outcome.

Nothing in it depends on how long anything takes; the long tests hold the numbers against a law.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from advised import AdvisedSite, advised_site
from testbed import Testbed

PATIENCE_S = 300.0
"""Far longer than anything takes on the busiest machine: what waits that long has failed."""


@pytest.fixture
def site(testbed: Testbed) -> Iterator[AdvisedSite]:
    """A site whose hooks wait for a daemon that gets no processor."""
    with advised_site(testbed, deadline="5s") as advised:
        yield advised


def test_a_measured_application_s_job_is_advised_and_its_outcome_is_known(
    site: AdvisedSite,
) -> None:
    testbed = site.testbed
    site.import_law("stencil", "bdw", application="simapp", workload="--kernel stencil")
    script = site.script(
        "job.sh",
        "srun simapp --kernel stencil",
        "-N 1",
        "--exclusive",
        "-p broadwell",
        "-t 10",
        f"-o {site.folder}/%j.out",
    )
    chosen = site.json("explain", script)["chosen"]
    job = testbed.sbatch(str(script))
    assert job.job_id
    assert job.stderr.startswith("advisor: simapp") and "ADVISOR=off" in job.stderr, job.stderr
    testbed.wait(job.job_id, PATIENCE_S)
    rows = testbed.sacct(job.job_id, PATIENCE_S)
    assert {row["State"] for row in rows} == {"COMPLETED"}, rows
    printed = (site.folder / f"{job.job_id}.out").read_text()
    assert f"threads_per_node={chosen['threads_per_node']} " in printed
    assert f"freq_khz={chosen['freq_khz']} " in printed

    site.advisor("collect")
    answer = site.json("why", job.job_id)
    assert answer["decision"]["chosen"] == chosen
    assert answer["outcome"]["state"] == "COMPLETED"
    assert answer["outcome"]["time_s"] > 0
    assert "promised" in site.advisor("why", job.job_id).stdout
