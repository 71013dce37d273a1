"""On a real Slurm: a job of an application that was never swept is advised by others like it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from advised import POLICY, AdvisedSite, advised_site
from testbed import KERNELS, NODE_TYPES, Testbed, predict
from testbed.law import Kernel

from advisor.core.configuration import Configuration
from advisor.core.option import Z90, Option
from advisor.core.signature import Signature
from advisor.derive.worker import deriving
from advisor.loop.clock import moment
from advisor.schedulers.slurm.accounting import unfinished_jobs
from advisor.store.signatures import save_signatures

BDW = NODE_TYPES["bdw"]
OWN = Configuration(BDW.feature, 1, 1, BDW.cores, BDW.max_khz)
SCALE = 8.5
"""A run of the stencil on a full node takes a little more than 14 s: in the accounting's whole
seconds a step that starts a second late is still within what was promised."""
SLOWDOWN = "max_slowdown: 15%"
COLD = "cold_start:\n  mode: {mode}\n  trials: {trials}\n  classes: [memory-bound]\n"
LIMITS = "    classes:\n      limits: {cpu: {cpi: 0.4, gbs: 20}, memory: {cpi: 0.4, gbs: 50}}\n"


@pytest.fixture
def site(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[AdvisedSite]:
    policy = POLICY.replace("max_slowdown: 10%", SLOWDOWN) + request.param
    with advised_site(testbed, policy) as advised:
        file = advised.config / "site.yaml"
        named = f"  {BDW.feature}:\n"
        file.write_text(file.read_text().replace(named, named + LIMITS))
        advised.advisor("site", "apply")
        teach(advised)
        yield advised


def signature(kernel: Kernel) -> Signature:
    """What one run on a full node tells: traffic, power and time."""
    time, watts = predict(kernel, BDW, 1, BDW.cores, BDW.max_khz, SCALE)
    values: dict[str, Any] = {"configuration": OWN, "source": "perf", "scope": "all"}
    gbs = SCALE * kernel.traffic / time  # 108.5 of the stencil
    return Signature(cpi=0.9, gbs=gbs, power_w=watts, time_s=time, contributor="root", **values)


def teach(site: AdvisedSite) -> None:
    """Store ten swept applications by the law, from computing to memory, and a signature each."""
    rng = random.Random(4)
    stencil = KERNELS["stencil"]
    with deriving(site.store) as store, store.batch():
        for i in range(10):
            values = {name: getattr(stencil, name) for name in stencil.__dataclass_fields__}
            values |= {
                "name": f"app{i}",
                "work": stencil.work * rng.uniform(0.3, 2.5),
                "traffic": stencil.traffic * rng.uniform(0.5, 1.5),
            }
            kernel = Kernel(**values)
            options = []
            for threads in range(4, BDW.cores + 1, 4):
                for khz in BDW.frequencies_khz:
                    t, w = predict(kernel, BDW, 1, threads, khz, SCALE)
                    e, d = t * w, math.exp(Z90 * 0.01)
                    where = Configuration(BDW.feature, 1, 1, threads, khz)
                    options.append(Option(where, t, t / d, t * d, e, e / d, e * d, confirmed=True))
            save_signatures(store, f"app{i}", "default", [signature(kernel)])
            store.save_model(
                f"app{i}",
                "default",
                BDW.feature,
                scope="all",
                owner="",
                name="physical",
                energy_quality="measured",
                n_train=12,
                stats={"error": 0.05},
                options=options,
            )


def script(site: AdvisedSite, application: str, kernel: str) -> Path:
    """A job on a node of its own, whose application and workload its author names."""
    path = site.script(
        f"{application}.sh",
        f"srun simapp --kernel {kernel} --scale {SCALE:g}",
        "-N 1",
        "--exclusive",
        "-t 5",
        f"-C {BDW.feature}",
    )
    names = f"#ADVISOR application={application} workload=default\n"
    path.write_text(path.read_text().replace("\n", f"\n{names}", 1))
    return path


def run(site: AdvisedSite, *scripts: Path) -> list[tuple[int, dict[str, Any]]]:
    """Submit jobs together, wait for them, collect; return their numbers and what is known."""
    site.settle()
    numbers = [site.testbed.sbatch(str(path)).job_id for path in scripts]
    for number in numbers:
        assert number
        site.testbed.wait(number)
    site.advisor("collect")
    return [(n or 0, site.json("why", n)) for n in numbers]


def counted(site: AdvisedSite, job: int, application: str) -> None:
    """Import what EAR would report of a job of the stencil: it was counted while it ran."""
    ran = signature(KERNELS["stencil"])
    rows = {
        "NODE_ID": "bdw1",
        "JOB_ID": job,
        "STEP_ID": 0,
        "USER_ID": site.testbed.user,
        "APP_ID": application,
        "DEF.FREQ": BDW.max_khz,
        "TIME": ran.time_s,
        "CPI": ran.cpi,
        "TPI": 0.05,
        "GBS": ran.gbs,
        "DC-NODE-POWER": ran.power_w,
        "CYCLES": 9e9,
        "INSTRUCTIONS": 1e10,
        "CPU-GFLOPS": 50.0,
    }
    file = site.folder / "ear.csv"
    file.write_text(f"{';'.join(rows)}\n{';'.join(str(v) for v in rows.values())}\n")
    site.advisor("import", file, "--from", "ear", "--node-type", BDW.feature)


@pytest.mark.parametrize("site", [COLD.format(mode="apply", trials=1)], indirect=True)
def test_one_trial_is_confirmed_and_another_refuted(site: AdvisedSite) -> None:
    wave, changed = script(site, "wave", "stencil"), script(site, "changed", "nbody")
    ((first, why),) = run(site, wave)
    assert "no-model" in why["decision"]["reasons"]
    assert why["verdict"] == "left-alone"

    counted(site, first, "wave")
    with deriving(site.store) as store:  # its program was another one when it was counted
        save_signatures(store, "changed", "default", [signature(KERNELS["stencil"])])
    shown = site.json("classify", "wave", "--node-type", BDW.feature)
    assert shown["class"] == "memory-bound"

    (_, good), (_, bad) = run(site, wave, changed)
    for why in (good, bad):
        decision = why["decision"]
        assert "class-trial" in decision["reasons"]
        assert "class-estimated" in decision["reasons"]
        assert decision["rewrite"] or decision["environment"]
        cold = decision["cold_start"]
        assert (cold["class"], cold["applications"]) == ("memory-bound", 10)
        assert cold["trial"] == {"number": 1, "of": 1}
    assert good["verdict"] == "as-promised"
    assert bad["verdict"] == "worse"

    (number, later), (_, as_it_was) = run(site, wave, changed)
    decision = later["decision"]
    assert "trial-confirmed" in decision["reasons"]
    assert "class-trial" not in decision["reasons"]
    assert decision["chosen"] == good["decision"]["chosen"]
    assert later["verdict"] == "as-promised"
    assert decision["cold_start"]["trials"][0]["state"] == "confirmed"
    assert "confirmed by a trial" in site.advisor("why", number).stdout
    decision = as_it_was["decision"]
    assert "trials-refuted" in decision["reasons"]
    assert not decision["rewrite"]
    assert not decision["environment"]
    assert decision["cold_start"]["trials"][0]["state"] == "bad"
    assert as_it_was["verdict"] == "left-alone"


@pytest.mark.parametrize("site", [COLD.format(mode="apply", trials=1)], indirect=True)
def test_two_bad_trials_stop_those_of_their_class(site: AdvisedSite) -> None:
    names = ("wave", "changed", "altered")
    with deriving(site.store) as store:  # two were other programs when they were counted
        for name in names:
            save_signatures(store, name, "default", [signature(KERNELS["stencil"])])
    wave, *others = (script(site, n, "stencil" if n == "wave" else "nbody") for n in names)
    for _, why in run(site, *others):
        assert "class-trial" in why["decision"]["reasons"]
        assert why["verdict"] == "worse"

    site.settle()  # only asked: a job of its own would count, too, if it missed the bounds
    decision = site.json("explain", wave)
    assert "trials-stopped" in decision["reasons"]
    assert "class-trial" not in decision["reasons"]
    assert decision["cold_start"]["trial"] is None
    shown = site.advisor("explain", wave).stdout
    assert "2 of memory-bound jobs missed the policy's bounds" in shown

    report = site.json("report")
    assert report["trials"] == {"memory-bound": {"bad": 2}}
    assert "trials, memory-bound, counted apart: " in site.advisor("report").stdout
    doctor = site.advisor("doctor", check=False).stdout
    assert "no more trials of memory-bound jobs" in doctor

    site.advisor("forget", "altered", "--yes")  # what was forgotten no longer counts
    ((_, why),) = run(site, wave)
    assert "class-trial" in why["decision"]["reasons"]
    assert why["verdict"] == "as-promised", why["outcome"]["record"]


@pytest.mark.parametrize("site", [COLD.format(mode="apply", trials=0)], indirect=True)
def test_without_trials_it_runs_as_others_like_it_should(site: AdvisedSite) -> None:
    with deriving(site.store) as store:
        save_signatures(store, "wave", "default", [signature(KERNELS["stencil"])])
    path = script(site, "wave", "stencil")
    ((number, why),) = run(site, path)
    decision = why["decision"]
    assert decision["rewrite"] or decision["environment"]
    assert "class-estimated" in decision["reasons"]
    assert decision["cold_start"]["applications"] == 10
    assert why["verdict"] == "as-promised", why["outcome"]["record"]
    assert (
        "application never measured: estimated from 10 applications, "
        in site.advisor("why", number).stdout
    )

    path.write_text(path.read_text().replace("\n", "\n#ADVISOR cold_start=off\n", 1))
    refused = site.json("explain", path)
    assert refused["reasons"][-2:] == ["no-model", "training-ask"]
    assert not refused["rewrite"]


@pytest.mark.parametrize("site", [""], indirect=True)
def test_by_default_it_is_only_shown(site: AdvisedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", site.testbed.env()["SLURM_CONF"])
    before = datetime.now(UTC)
    held = site.testbed.sbatch("--hold", "--wrap=true").job_id
    (job,) = (job for job in unfinished_jobs() if job.job_id == str(held))
    assert (job.user, job.state) == ("root", "PENDING")
    at = moment(job.submitted_at)
    assert at is not None and abs(at - before) < timedelta(minutes=30)
    with deriving(site.store) as store:
        save_signatures(store, "wave", "default", [signature(KERNELS["stencil"])])
    site.settle()
    decision = site.json("explain", script(site, "wave", "stencil"))
    assert "cold-start-advise" in decision["reasons"]
    assert not decision["rewrite"]
    assert not decision["environment"]
    assert decision["cold_start"]["intervals"]
    assert decision["cold_start"]["trial"] is None
