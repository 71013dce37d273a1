"""Two real clusters and one store: the jobs of each are its own, the models are shared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from advised import AdvisedSite
from testbed import Testbed, requirements

from advisor.store.reader import Reader

NAMES = ("alpha", "beta")
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, AdvisedSite]]:
    """A site on each of two clusters that began to count their jobs at 1; one store for both."""
    if reason := requirements():
        pytest.skip(reason)
    with ExitStack() as stack:
        found: dict[str, AdvisedSite] = {}
        for name in NAMES:
            site = AdvisedSite(stack.enter_context(Testbed(cluster=name)), deadline="5s")
            stack.callback(site.tear_down)
            site.store = next(iter(found.values()), site).store
            found[name] = site
            site.set_up()
        yield found


def test_jobs_of_one_id_on_two_clusters(sites: dict[str, AdvisedSite]) -> None:
    first = sites["alpha"]
    # measured once, on the one; the other's nodes are of the same type
    first.import_law("stencil", "bdw", application="simapp", workload="--kernel stencil")
    jobs = {}
    for name, site in sites.items():
        site.settle()
        script = site.script(
            "job.sh",
            "srun simapp --kernel stencil",
            *("-N 1", "--exclusive", "-p broadwell", "-t 10", f"-o {site.folder}/%j.out"),
        )
        jobs[name] = site.testbed.sbatch(str(script))
        assert jobs[name].stderr.startswith("advisor: simapp"), jobs[name].stderr
    assert jobs["alpha"].job_id == jobs["beta"].job_id, "both clusters count from 1"
    number = jobs["alpha"].job_id
    job = str(number)
    with Reader(first.store) as store:
        assert set(store.inventories()) == set(NAMES)
        assert store.inventory("beta").node_types["broadwell"].nodes
    for name, site in sites.items():
        site.testbed.wait(number, PATIENCE_S)
        site.testbed.sacct(number, PATIENCE_S)
        answer = site.json("collect")
        assert (answer["cluster"], answer["new"], answer["skipped"]) == (name, 1, [])
        again = site.json("collect")
        assert (again["new"], again["known"]) == (0, 1)

    with Reader(first.store) as store:
        outcomes = {o.cluster: o for o in store.outcomes("job_id = ?", (job,))}
        assert outcomes.keys() == set(NAMES)
        assert outcomes["alpha"].decision_id != outcomes["beta"].decision_id
        for name, outcome in outcomes.items():
            linked = store.decision_for_job(job, name)
            assert linked is not None
            assert (linked.id, linked.cluster) == (outcome.decision_id, name)
            assert outcome.record["trust"] == "verified"
    for name, site in sites.items():  # of each host its own, of the other by name
        mine = site.json("why", job)
        assert (mine["cluster"], mine["outcome"]["decision_id"]) == (
            name,
            outcomes[name].decision_id,
        )
        other = next(n for n in NAMES if n != name)
        theirs = site.json("why", job, "--cluster", other)
        assert theirs["outcome"]["decision_id"] == outcomes[other].decision_id
        report = site.json("report", "--cluster", name)
        assert (report["cluster"], report["jobs"]) == (name, 1)
        (shown,) = site.json("jobs", "--everybody", "--cluster", name)["jobs"]
        assert (shown["job"], shown["cluster"]) == (job, name)
        metrics = site.advisor("metrics").stdout
        assert all(f'cluster="{n}"' in metrics for n in NAMES)
    assert first.json("report")["jobs"] == 2
    refused = first.advisor("report", "--cluster", "gamma", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no cluster gamma was collected (known: alpha, beta)" in refused.stderr
    bad = first.advisor("collect", "--cluster", "x;reboot", check=False)
    assert bad.returncode == 2 and "is not a cluster's name" in bad.stderr
