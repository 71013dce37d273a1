"""On a real Slurm: a script that nobody measured tries caps itself, a step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from advised import POLICY, AdvisedSite, advised_site
from test_whole_job import DIRECTIVES, run_once, steps
from testbed import NODE_TYPES, Testbed

from tests.waiting import wait_for

BDW = NODE_TYPES["bdw"]
SCALE = 12
"""Of the posed program: long enough for the accounting's whole seconds."""


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[AdvisedSite]:
    """A site without a model, where recurring scripts may try caps."""
    policy = POLICY + "cold_start: {cap_trials: 6}\n"
    with advised_site(testbed, policy, deadline="5s") as advised:
        yield advised


def explained(site: AdvisedSite, path: Path, code: str) -> dict[str, Any]:
    """Return what explain says once it gives this reason: what was collected is worked out then."""

    def told() -> bool:
        return code in site.json("explain", path)["reasons"]

    wait_for(told, 20, lambda: site.json("explain", path)["explanation"])
    answer: dict[str, Any] = site.json("explain", path)
    return answer


def test_a_recurring_script_tries_caps_a_step_at_a_time(site: AdvisedSite) -> None:
    body = f"srun sleep 3\nsrun simapp --kernel stencil --scale {SCALE}"
    path = site.script("again", body, *DIRECTIVES, "-J again", f"-o {site.folder}/%j.out")
    for _ in range(3):
        number, said = run_once(site, path)
        assert not site.json("why", number)["decision"]["changed"] and "tries" not in said
    off = site.testbed.sbatch(str(path), env={"ADVISOR": "off"})
    assert off.job_id
    site.testbed.wait(off.job_id)
    clocks = sorted(BDW.frequencies_khz, reverse=True)
    for trial, cap in enumerate(clocks[1:3], 1):
        asked = explained(site, path, "cap-trial")
        assert list(asked["rewrite"]) == ["cpu-freq"] and not asked["environment"]
        assert asked["chosen"]["freq_khz"] == cap
        number, said = run_once(site, path)
        assert "advisor: this job tries" in said and "ADVISOR=off" in said
        printed = (site.folder / f"{number}.out").read_text()
        assert f"freq_khz={cap} " in printed
        assert steps(site, number) == steps(site, off.job_id)  # but for the cap
        told = site.json("why", number)
        assert told["outcome"]["state"] == "COMPLETED"
        assert any(f"trial {trial} of 6" in line for line in told["decision"]["explanation"])
    assert site.json("report")["trials"]["recurring-scripts"] == {"tried": 2}


def test_two_at_once_are_one_trial(site: AdvisedSite) -> None:
    path = site.folder / "again"
    explained(site, path, "cap-trial")
    first, second = (site.testbed.sbatch(str(path)) for _ in range(2))
    assert first.job_id and second.job_id
    assert "this job tries" in first.stderr and "this job tries" not in second.stderr
    site.testbed.run(["scancel", str(first.job_id), str(second.job_id)])
    for number in (first.job_id, second.job_id):
        site.testbed.wait(number)
        site.testbed.sacct(number)
    site.advisor("collect")
    site.settle()
    explained(site, path, "cap-trial")  # the place is free again


def test_a_script_whose_step_has_a_limit_of_its_own_tries_nothing(site: AdvisedSite) -> None:
    body = f"srun sleep 3\nsrun -t 5 simapp --kernel stencil --scale {SCALE}"
    path = site.script("limited", body, *DIRECTIVES, "-J limited", f"-o {site.folder}/%j.out")
    for _ in range(3):
        run_once(site, path)
    asked = explained(site, path, "program-ended")
    assert not asked["rewrite"] and "cap-trial" not in asked["reasons"], asked["explanation"]
    number, said = run_once(site, path)
    assert "tries" not in said
    assert f"freq_khz={BDW.max_khz} " in (site.folder / f"{number}.out").read_text()
    decision = site.json("why", number)["decision"]
    assert not decision["changed"] and "program-ended" in decision["reasons"]
