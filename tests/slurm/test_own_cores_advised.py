"""On a real Slurm: caps of a shared job's own cores, decided by the advisor, end to end."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from advised import AdvisedSite, advised_site
from test_own_cores import SHOW, cpu_of, without_cpusets
from testbed import NODE_TYPES, Testbed
from testbed.daemons import wait_until

from advisor.core.stamp import node_cap_khz

BDW = NODE_TYPES["bdw"]
HIGHEST = BDW.frequencies_khz[-1]
SHARED = ("-p broadwell", "-N 1", "-n 1", "-c 1", "-w bdw1", "--mem=100", "-t 10")
NAMED = {"ADVISOR_APPLICATION": "stencil", "ADVISOR_WORKLOAD": "default"}


@pytest.fixture(scope="module")
def site() -> Iterator[AdvisedSite]:
    """A site that says that cores have clocks of their own, and knows of stencil on one core."""
    if reason := without_cpusets():
        pytest.skip(reason)
    lines = "PrologFlags=Contain\n"
    with Testbed(more_configuration=lines, bound=True) as cluster:
        # it is there before slurm.conf names it
        program = cluster.conf_dir / "advisor-node-cap"
        with advised_site(cluster, watch_s=1, deadline="5s") as made:
            where = ["--scheduler", "slurm", "--dir", str(cluster.conf_dir), "--deadline", "5s"]
            made.advisor("hook", "install", *where, "--socket", made.socket, "--node-cap")
            conf = cluster.conf_dir / "slurm.conf"
            conf.write_text(f"{conf.read_text()}Prolog={program}\nEpilog={program}\n")
            cluster.run(["scontrol", "reconfigure"])
            file = made.config / "site.yaml"
            text = file.read_text().replace(
                "  broadwell:\n", "  broadwell:\n    shared_caps: accept\n"
            )
            file.write_text(text)
            made.advisor("site", "apply")
            write_grid(made.folder / "stencil.csv")
            made.advisor(
                "import",
                made.folder / "stencil.csv",
                "--application",
                "stencil",
                "--node-type",
                BDW.feature,
            )
            made.advisor("fit", "stencil")
            made.settle()
            made.watched()
            yield made


def write_grid(path: Path) -> None:
    """Write runs of one core that waits for its memory."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["nodes", "ranks_per_node", "threads_per_node", "freq_khz", "time_s", "energy_j"]
        )
        for freq in BDW.frequencies_khz:
            share = freq / HIGHEST
            writer.writerow(
                [1, 1, 1, freq, f"{20 / share**0.1:.4f}", f"{500 + 500 * share**2:.2f}"]
            )


def submit(site: AdvisedSite, body: str, **env: str) -> int:
    path = site.script("job.sh", body, *SHARED, f"-o {site.folder}/%j.out")
    return site.testbed.sbatch(str(path), env={**NAMED, **env}).job_id


def test_a_decided_cap_lands_on_the_jobs_core_and_on_no_other(site: AdvisedSite) -> None:
    cluster = site.testbed
    other = submit(site, f"for i in {{1..60}}; do {SHOW}; sleep 0.1; done", ADVISOR="off")
    job = submit(site, "simapp --kernel stencil")
    cap = node_cap_khz(cluster.scontrol_jobs(job)[0]["AdminComment"])
    assert BDW.min_khz <= cap < HIGHEST, site.advisor("why", job).stdout
    cpu = cpu_of(cluster, job)
    wait_until(lambda: cluster.cpufreq("bdw1", cpu=cpu) == str(cap), 60, "its cap")
    assert cluster.wait(job) == cluster.wait(other) == "COMPLETED"
    told = Path(cluster.scontrol_jobs(other)[0]["StdOut"]).read_text().split()
    assert set(told) == {str(HIGHEST)}
    cluster.rest()
    wait_until(lambda: cluster.cpufreq("bdw1") == str(HIGHEST), 60, "its end")
    assert [cluster.cpufreq("bdw1", cpu=cpu) for cpu in (0, 1)] == [str(HIGHEST)] * 2
    site.advisor("collect")
    outcome = site.json("why", job)["outcome"]
    assert outcome["freq_requested_khz"] == cap
    assert outcome["record"]["mismatch"] == "" and outcome["record"]["ran"]["uncapped"] == ""
    assert outcome["record"]["ran"]["energy_j"] is None


def test_doctor_says_that_own_cores_are_capped(site: AdvisedSite) -> None:
    checks = json.loads(site.advisor("doctor", "--json", check=False).stdout)["checks"]
    (found,) = (c for c in checks if c["name"] == "node-cap")
    assert found["state"] == "ok" and "shared_caps: accept" in found["text"]
