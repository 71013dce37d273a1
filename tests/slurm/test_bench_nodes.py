"""``advisor lab bench`` on the nodes of a real Slurm, one of each type at once."""

from __future__ import annotations

import time

from advised import AdvisedSite
from testbed import NODE_TYPES

from advisor.store.profiles import latest_bench, profiles
from advisor.store.reader import Reader


def test_node_types_are_measured_on_their_own_nodes(site: AdvisedSite) -> None:
    names = [NODE_TYPES[n].feature for n in ("bdw", "mil")]
    chosen = [word for name in names for word in ("--node-type", name)]
    told = site.json("bench", *chosen, "--budget", "1s")
    assert [t["node_type"] for t in told["node_types"]] == names
    assert all(t["profiles"] >= 1 and t["stored"].startswith("stored") for t in told["node_types"])
    with Reader(site.store) as store:
        for name in names:
            assert profiles(store, name), name
            bench = latest_bench(store, name)
            assert bench is not None and bench.machine["cores"] >= 1
    command = ["sacct", "-X", "-P", "-n", "-o", "State,NodeList", "--name", "advisor-bench"]
    end = time.monotonic() + 20
    rows: list[str] = []
    while len(rows) < 2 and time.monotonic() < end:
        time.sleep(0.2)
        rows = [r for r in site.testbed.run(command).stdout.split() if r.startswith("COMPLETED")]
    assert len(set(rows)) == 2, rows  # two jobs, on two nodes


def test_the_callers_variables_do_not_shape_the_step(site: AdvisedSite) -> None:
    shaping = {
        "SLURM_LABELIO": "1",
        "SLURM_STDOUTMODE": "/dev/null",
        "SLURM_CPU_BIND": "map_cpu:0",
        "SLURM_CPU_FREQ_REQ": "1200000-1200000",
        "SLURM_JOB_ID": "999999",
    }
    name = NODE_TYPES["bdw"].feature
    done = site.advisor("bench", "--node-type", name, "--budget", "1s", env=shaping)
    assert "stored" in done.stdout
    site.testbed.rest()
    command = ["sacct", "-P", "-n", "-o", "JobID,ReqCPUFreqMax", "--name", "advisor-bench"]
    steps = [
        r for r in site.testbed.run(command).stdout.split() if r.partition("|")[0][-2:] == ".0"
    ]
    assert steps and not any("1.20" in step for step in steps), steps


def test_a_type_whose_nodes_cannot_run_it_says_why(site: AdvisedSite) -> None:
    name = NODE_TYPES["bdw"].feature
    node = {"XDG_CACHE_HOME": "/proc/nowhere"}
    failed = site.advisor("bench", "--node-type", name, "--budget", "1s", check=False, env=node)
    assert failed.returncode == 1
    assert "no profile" in failed.stderr and "Traceback" not in failed.stderr
