"""prospect on what a real sacct writes, and a user's jobs listed after they ran."""

from __future__ import annotations

from pathlib import Path

from advised import AdvisedSite

from advisor.schedulers.slurm.accounting_file import YEAR_COMMAND

PATIENCE_S = 300.0
"""Far longer than anything takes on the busiest machine: what waits that long has failed."""


def test_prospect_reads_what_its_own_command_writes(site: AdvisedSite, tmp_path: Path) -> None:
    testbed = site.testbed
    site.import_law("stencil", "bdw", application="simapp", workload="--kernel stencil")
    script = site.script(
        "year.sh",
        "srun simapp --kernel stencil",
        "-N 1",
        "--exclusive",
        "-p broadwell",
        "-t 10",
        f"-o {site.folder}/%j.out",
    )
    job = testbed.sbatch(str(script))
    testbed.wait(job.job_id, PATIENCE_S)
    testbed.sacct(job.job_id, PATIENCE_S)
    site.advisor("collect")

    command, _, _ = YEAR_COMMAND.replace("2025", "2026").partition(" >")
    command = command.replace("2026-01-01", "now-1days").replace("2026-12-31T23:59:59", "now")
    written = testbed.run(("sh", "-c", command))
    year = tmp_path / "year.txt"
    year.write_text(written.stdout)
    answer = site.json("prospect", str(year))
    assert answer["damaged_lines"] == 0, answer["notes"]
    assert answer["jobs"] >= 1 and answer["node_hours"] > 0 and answer["kwh"] > 0
    assert "simapp" in {part["application"] for part in answer["by_application"]}
    assert "broadwell" in {part["partition"] for part in answer["by_partition"]}

    jobs = site.json("jobs", "--since", "1d")["jobs"]
    (mine,) = (j for j in jobs if j["job"] == str(job.job_id))
    assert mine["application"] == "simapp" and mine["ended_at"] and mine["verdict"]
    assert mine["changed"] and mine["promised_pct"] < 0
    assert site.json("why")["job"] == str(job.job_id)
