"""On a real Slurm: a job goes where its application never ran, and the estimate is held to it."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from advised import POLICY, AdvisedSite, advised_site
from testbed import NODE_TYPES, Testbed, predict

from advisor.ranking.files import read_phases
from advisor.store.profiles import Bench, StoredProfile, save_profiles
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.training.result_store import DaemonResults
from tests.verdicts import verdict_of

BDW, MIL = NODE_TYPES["bdw"], NODE_TYPES["mil"]
SCALE = 5.0
STREAM = {"size_kb": 64000, "stride_b": 8, "dtype_b": 8, "access": "P"}


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[AdvisedSite]:
    with advised_site(testbed, POLICY.replace("min_energy", "balanced"), watch_s=0.5) as advised:
        yield advised


def workload(kernel: str) -> str:
    return f"--kernel {kernel} --scale {SCALE:g}"


def measured_on_broadwell(site: AdvisedSite, kernel: str) -> None:
    """Import the law's own numbers of one node type, every fourth core and every step."""
    path = site.folder / f"{kernel}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["nodes", "ranks_per_node", "threads_per_node", "freq_khz", "time_s", "energy_j"]
        )
        for threads in range(4, BDW.cores + 1, 4):
            for freq in BDW.frequencies_khz:
                t, w = predict(kernel, BDW, 1, threads, freq, SCALE)
                writer.writerow([1, 1, threads, freq, f"{t:.4f}", f"{t * w:.2f}"])
    named = ("--workload", workload(kernel))
    site.advisor("import", path, "--application", "simapp", *named, "--node-type", BDW.feature)
    site.advisor("fit", "simapp", *named)


def characterised(site: AdvisedSite, kernel: str) -> Path:
    """Write what was characterised on broadwell; return the phase file."""
    t0, _ = predict(kernel, BDW, 1, BDW.cores, None, SCALE)
    phases = site.folder / f"{kernel}-phases.yaml"
    phases.write_text(
        yaml.safe_dump(
            {
                "application": "simapp",
                "workload": workload(kernel),
                "node_type": BDW.feature,
                "phases": [
                    {
                        "name": "sweep",
                        "weight": 1.0,
                        "time_s": t0,
                        "time_per_iter_us": 1.0,
                        "streams": [STREAM],
                    }
                ],
            }
        )
    )
    return phases


def profiles(kernel: str, optimism: float = 1.0) -> list[dict[str, Any]]:
    """Return profiles of broadwell and milan that know the law, 8 % off the phase in size."""
    (t0, w0), (t1, w1) = (predict(kernel, p, 1, p.cores, None, SCALE) for p in (BDW, MIL))
    return [
        {
            "microbenchmark": "mbw1p",
            "node_type": node_type,
            "time_per_iter_us": 1.01 * ratio,
            "energy_per_iter_nj": 1e3 * ratio * power,
            "streams": [{**STREAM, "size_kb": 1.08 * 64000}],  # 10 points of 25 for it
        }
        for node_type, ratio, power in (
            (BDW.feature, 1.0, w0),
            (MIL.feature, optimism * t1 / t0, w1),
        )
    ]


def ranked(site: AdvisedSite, kernel: str, optimism: float = 1.0) -> None:
    """Rank milan by hand, as an admin does."""
    site.advisor("characterise", "--input", characterised(site, kernel))
    given = site.folder / f"{kernel}-profiles.yaml"
    given.write_text(yaml.safe_dump(profiles(kernel, optimism)))
    site.advisor("rank", "simapp", "--workload", workload(kernel), "--profiles", given)


def ranked_by_the_site(site: AdvisedSite, kernel: str) -> None:
    """Send the phases to the daemon, as for a user without a right to the store, and wait until
    the site has ranked milan by itself."""
    with Writer(site.store) as store:
        for one in profiles(kernel):
            bench = Bench(one["node_type"], {}, "posed", "6.1", "cc", "root")
            stored = StoredProfile(**one, threads=1, spread=0.01, repeats=5, meter="posed")
            save_profiles(store, bench, [stored])
    DaemonResults(site.socket).characterise(read_phases(characterised(site, kernel)))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with Reader(site.store) as reader:
            if any(m.transferred for m in reader.find_models("simapp", workload(kernel))):
                return
        time.sleep(0.1)
    raise AssertionError((site.folder / "serve.log").read_text())


def submitted(site: AdvisedSite, kernel: str) -> tuple[int, str, str]:
    """Submit an unmodified script; return the job, what sbatch said, and the node it ran on."""
    script = site.script(
        f"{kernel}.sh", f"srun simapp {workload(kernel)}", "-N 1", "--exclusive", "-t 5"
    )
    site.settle()
    job = site.testbed.sbatch(str(script))
    assert job.job_id
    site.testbed.wait(job.job_id)
    step = next(r for r in site.testbed.sacct(job.job_id) if r["JobID"].endswith(".0"))
    return job.job_id, job.stderr, str(step["NodeList"])


def test_a_job_goes_to_a_node_type_where_it_never_ran(site: AdvisedSite) -> None:
    measured_on_broadwell(site, "stencil")
    ranked_by_the_site(site, "stencil")
    shown = site.advisor("options", "simapp", "--workload", workload("stencil")).stdout
    assert f"nothing ran on {MIL.feature}" in shown and "similarity 110/125" in shown

    number, told, node = submitted(site, "stencil")
    assert node in MIL.nodes
    assert f"runs on {MIL.feature}" in told and "estimated, not measured there" in told
    site.advisor("collect")
    why = site.json("why", number)
    assert why["collected"] and why["decision"]["rewrite"]["constraint"] == MIL.feature
    assert "node-type-estimated" in why["decision"]["reasons"]
    assert why["verdict"] == verdict_of(why) != "worse", why["outcome"]["record"]["mismatch"]
    assert why["outcome"]["record"]["judged_model"] is not None
    text = site.advisor("why", number).stdout
    assert f"{MIL.feature} is estimated from microbenchmarks, similarity 110/125" in text
    assert "promised" in text and "measured" in text
    report = site.json("report", "--application", "simapp")
    assert report["estimated_node_types"] == {why["verdict"]: 1}


def test_an_estimate_that_promised_too_much_rests(site: AdvisedSite) -> None:
    measured_on_broadwell(site, "solver")
    ranked(site, "solver", optimism=0.4)
    first, _, node = submitted(site, "solver")
    assert node in MIL.nodes
    collected = site.json("collect")
    assert {o["job"]: o["verdict"] for o in collected["outcomes"]}[str(first)] == "worse"
    (suspended,) = collected["suspended"]
    assert f"job {first}" in suspended["reason"]

    ranked(site, "solver", optimism=0.4)  # saying the same again does not help
    asked = site.json("explain", site.folder / "solver.sh")
    assert asked["chosen"] is None or asked["chosen"]["node_type"] == BDW.feature
    warned = site.advisor("doctor", check=False).stdout
    assert f"on {MIL.feature} is suspended" in warned and "only estimated" in warned
