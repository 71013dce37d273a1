"""On a real Slurm: a script without steps tries caps that its nodes apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from advised import POLICY, AdvisedSite, advised_site
from test_cap_trials import explained
from test_node_cap_advised import HIGHEST, SEEN, cluster, folder_of
from test_whole_job import run_once
from testbed import NODE_TYPES, Testbed

BDW = NODE_TYPES["bdw"]
SCALE = 12
"""Of the posed program: long enough for the accounting's whole seconds."""
DIRECTIVES = ("-N 1", "-n 1", "--exclusive", "-p broadwell", "-t 10", "-J again")

__all__ = ["cluster"]


@pytest.fixture(scope="module")
def capping(cluster: Testbed) -> Iterator[AdvisedSite]:
    """A site without a model whose nodes cap whole jobs, where recurring scripts may try caps."""
    policy = POLICY + "cold_start: {cap_trials: 6}\n"
    with advised_site(cluster, policy, watch_s=1, deadline="5s") as site:
        where = ["--scheduler", "slurm", "--dir", str(cluster.conf_dir), "--deadline", "5s"]
        site.advisor("hook", "install", *where, "--socket", site.socket, "--node-cap")
        program = cluster.conf_dir / "advisor-node-cap"
        for name in ("Prolog", "Epilog"):
            (folder_of(cluster) / f"{name}.d" / program.name).symlink_to(program)
        site.settle()
        yield site


def seen(site: AdvisedSite, number: int) -> set[int]:
    """Return what the script saw of its cores' highest clock, kHz."""
    words = (site.folder / f"{number}.out").read_text().split()
    return {int(word) for word in words if word.isdecimal()}


def test_a_script_without_steps_tries_caps_a_step_at_a_time(capping: AdvisedSite) -> None:
    body = f"{SEEN}simapp --kernel stencil --scale {SCALE}\nsimapp --kernel stencil"
    path: Path = capping.script("again", body, *DIRECTIVES, f"-o {capping.folder}/%j.out")
    for _ in range(3):
        number, said = run_once(capping, path)
        told = capping.json("why", number)
        assert not told["decision"]["changed"] and "tries" not in said
        assert "several-steps" in told["decision"]["reasons"]
        assert told["outcome"]["energy_j"] > 0  # of its batch step
        assert seen(capping, number) == {HIGHEST}
    for cap in sorted(BDW.frequencies_khz, reverse=True)[1:3]:
        asked = explained(capping, path, "cap-trial")
        assert not asked["environment"] and asked["chosen"]["freq_khz"] == cap
        number, said = run_once(capping, path)
        assert "advisor: this job tries" in said
        assert seen(capping, number) == {cap}
        told = capping.json("why", number)
        assert told["outcome"]["state"] == "COMPLETED"
        assert told["outcome"]["record"]["mismatch"] == "", json.dumps(told)
    assert capping.json("report")["trials"]["recurring-scripts"] == {"tried": 2}
